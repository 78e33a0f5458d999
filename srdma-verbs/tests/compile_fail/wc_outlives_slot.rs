//! A completion is lent until the next one is asked for.

use srdma_verbs::Cq;

fn main() {
    let poll = |cq: &Cq| {
        let mut done = cq.poll();
        let first = done.next();
        let second = done.next();
        println!("{first:?} {second:?}");
    };
    let _ = poll;
}
