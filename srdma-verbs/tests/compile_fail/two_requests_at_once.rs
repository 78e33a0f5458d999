//! A request is written before the next one begins.

use srdma_verbs::{Qp, WrId};

fn post(qp: &Qp) {
    let mut batch = qp.post_send();
    let first = batch.send(WrId(1));
    let second = batch.send(WrId(2));
    drop((first, second));
}

fn main() {
    let _ = post;
}
