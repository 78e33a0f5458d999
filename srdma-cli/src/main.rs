//! `srdma-cli`
fn main() {}
