//! Each kind of request offers what it has.

use srdma_verbs::{Qp, WrId};

fn post(qp: &Qp) {
    let mut batch = qp.post_send();
    batch.read(WrId(1)).inline(b"no");
}

fn main() {
    let _ = post;
}
