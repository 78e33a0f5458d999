//! A peer may write to registered memory at any time.

use srdma_verbs::Mr;

fn look(mr: &Mr) -> u8 {
    mr.as_slice()[0]
}

fn main() {
    let _ = look;
}
