//! srdma-verbs
