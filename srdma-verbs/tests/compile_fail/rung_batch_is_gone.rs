//! A batch that was rung takes nothing more.

use srdma_verbs::{Qp, WrId};

fn post(qp: &Qp) {
    let mut batch = qp.post_send();
    batch.nop(WrId(1));
    let _ = batch.ring();
    batch.nop(WrId(2));
}

fn main() {
    let _ = post;
}
