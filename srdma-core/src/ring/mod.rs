//! One ring, two ends.
