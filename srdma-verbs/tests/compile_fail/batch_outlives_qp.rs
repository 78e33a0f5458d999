//! A batch borrows its queue pair.

use srdma_verbs::{Qp, WrId};

fn post(qp: Qp) {
    let mut batch = qp.post_send();
    drop(qp);
    batch.nop(WrId(1));
}

fn main() {
    let _ = post;
}
