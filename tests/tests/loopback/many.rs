//! Two hundred queue pairs at once, and several contexts on one device.

use crate::common::*;
use srdma_verbs::{Mr, Qp, QpType, WrId};

const QPS: usize = 200;
/// Messages of each kind on each queue pair and in each direction.
const ROUNDS: usize = 6;
const SLOT: usize = 20_000;

/// One end of all connections.
struct End<'a> {
    side: &'a Side,
    qps: Vec<&'a Qp>,
    source: Mr,
    /// Received, written and read, a slot for each queue pair.
    target: Mr,
}

fn len_of(qp: usize, round: usize) -> usize {
    [0, 1, 64, 700, 4096, 9000, 20_000][(qp + round) % 7]
}

fn place(kind: usize, qp: usize) -> usize {
    (kind * QPS + qp) * SLOT
}

/// All requests of one round, and everything that completes from them.
fn round(end: &End<'_>, there: (u64, srdma_verbs::Rkey, u64, srdma_verbs::Rkey), round: usize) {
    let (target, target_key, source, source_key) = there;
    for (at, qp) in end.qps.iter().enumerate() {
        let len = len_of(at, round);
        let mut batch = qp.post_send();
        batch.send(WrId(at as u64)).local(end.source.sge(..len));
        batch
            .write(WrId(at as u64))
            .local(end.source.sge(..len))
            .remote(target + place(1, at) as u64, target_key);
        batch
            .read(WrId(at as u64))
            .local(end.target.sge(place(2, at)..place(2, at) + len))
            .remote(source, source_key)
            .signaled();
        batch.ring().unwrap();
    }
    let mut read = [false; QPS];
    let mut received = [false; QPS];
    for _ in 0..2 * QPS {
        let wc = done(&end.side.cq);
        let id = wc.wr_id().0 as usize;
        let seen = if id >= 1000 {
            assert_eq!(wc.byte_len() as usize, len_of(id - 1000, round));
            &mut received[id - 1000]
        } else {
            &mut read[id]
        };
        assert!(!core::mem::replace(seen, true), "twice: {wc:?}");
    }
}

fn post_receives(end: &End<'_>) {
    for (at, qp) in end.qps.iter().enumerate() {
        let mut batch = qp.post_recv();
        batch
            .recv(WrId(1000 + at as u64))
            .local(end.target.sge(place(0, at)..place(0, at) + SLOT));
        batch.ring().unwrap();
    }
}

fn check(end: &End<'_>, seed: u8, round: usize) {
    for kind in 0..3 {
        for at in 0..QPS {
            let len = len_of(at, round);
            let got = end.target.to_vec(place(kind, at), len).unwrap();
            assert!(got == pattern(len, seed), "kind {kind} queue pair {at}");
        }
    }
}

#[test]
fn two_hundred_queue_pairs() {
    for sockets in Sockets::all() {
        let (a, b) = (
            Side::new(sockets.on(address())),
            Side::new(sockets.on(address())),
        );
        let pairs: Vec<(Qp, Qp)> = (0..QPS)
            .map(|_| connect(&a.qp(QpType::Rc), &b.qp(QpType::Rc)))
            .collect();
        let ends = [
            End {
                side: &a,
                qps: pairs.iter().map(|pair| &pair.0).collect(),
                source: a.pattern(SLOT, 11),
                target: a.mr(3 * QPS * SLOT),
            },
            End {
                side: &b,
                qps: pairs.iter().map(|pair| &pair.1).collect(),
                source: b.pattern(SLOT, 22),
                target: b.mr(3 * QPS * SLOT),
            },
        ];
        let known = ends.each_ref().map(|end| {
            (
                end.target.addr(),
                end.target.rkey(),
                end.source.addr(),
                end.source.rkey(),
            )
        });
        for turn in 0..ROUNDS {
            ends.iter().for_each(post_receives);
            std::thread::scope(|scope| {
                scope.spawn(|| round(&ends[0], known[1], turn));
                scope.spawn(|| round(&ends[1], known[0], turn));
            });
            check(&ends[0], 22, turn);
            check(&ends[1], 11, turn);
        }
        // Acknowledgements and READ requests are not counted among what is in flight: of hundreds
        // of queue pairs, those that a small socket has no room for are few, and asked for again.
        let bound = |side: &Side| match sockets.small {
            true => side.ctx.counters().rcvd_pkts / 20,
            false => 0,
        };
        let lost = [a.dropped(), b.dropped()];
        let fine = lost[0] <= bound(&a) && lost[1] <= bound(&b);
        assert!(fine, "{sockets:?}: {lost:?} lost in sockets");
    }
}

#[test]
fn two_contexts_on_one_device() {
    let here = address();
    let (first, second) = (
        Side::new(Sockets::DEFAULT.on(here)),
        Side::new(Sockets::DEFAULT.on(here)),
    );
    assert!(first.ctx.same_device(&second.ctx));
    let (qa, _qb) = connect(&first.qp(QpType::Rc), &second.qp(QpType::Rc));
    let (source, target) = (first.pattern(300_000, 4), second.mr(300_000));
    let write = |id| {
        let mut batch = qa.post_send();
        batch
            .write(WrId(id))
            .local(source.sge(..))
            .remote(target.addr(), target.rkey())
            .signaled();
        batch.ring().unwrap();
        assert_eq!(done(&first.cq).wr_id().0, id);
    };
    write(1);
    assert!(target.to_vec(0, 300_000).unwrap() == pattern(300_000, 4));
    // A third that comes and goes leaves the device running.
    drop(Side::new(Sockets::DEFAULT.on(here)));
    write(2);
    assert_eq!(first.dropped(), 0);
}
