//! Tests of ud.
