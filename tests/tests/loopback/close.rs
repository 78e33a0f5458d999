//! Devices that go in the middle of traffic: no hang, and the address is free at once.

use crate::common::*;
use srdma_verbs::{Mr, Pd, Qp, QpType, WrId};

const SIZE: usize = 1 << 20;

fn flood(qp: &Qp, source: &Mr, target: &Mr, count: u64) {
    let mut batch = qp.post_send();
    for id in 0..count {
        batch
            .write(WrId(id))
            .local(source.sge(..))
            .remote(target.addr(), target.rkey())
            .signaled();
    }
    batch.ring().unwrap();
}

#[test]
fn objects_go_in_any_order_while_data_moves() {
    let addrs = (address(), address());
    for turn in 0..24 {
        // The same addresses each time: the one before has let go of them.
        let p = pair(QpType::Rc, Sockets::DEFAULT, addrs);
        let (source, target) = (p.a.pattern(SIZE, 1), p.b.mr(SIZE));
        flood(&p.qa, &source, &target, 8);
        for _ in 0..turn % 3 {
            done(&p.a.cq);
        }
        let Pair { a, b, qa, qb } = p;
        match turn % 6 {
            0 => drop((a, b, qa, qb, source, target)),
            1 => drop((qb, qa, b, a, target, source)),
            2 => drop((target, source, a, qa, b, qb)),
            3 => drop((b, qb, target, a, qa, source)),
            4 => {
                qa.destroy().unwrap();
                source.dereg().unwrap();
                drop((qb, b, a, target));
            }
            _ => {
                // Memory goes first: what is in flight fails, and nothing reads it any more.
                source.dereg().unwrap();
                target.dereg().unwrap();
                let end = next(&a.cq);
                assert!(
                    end.is_ok() || qa.state() == srdma_verbs::QpState::Err,
                    "{end:?}"
                );
                drop((qa, qb));
            }
        }
    }
}

#[test]
fn a_device_goes_while_threads_poll_it() {
    for _ in 0..6 {
        let p = pair(QpType::Rc, Sockets::DEFAULT, (address(), address()));
        let (source, target) = (p.a.pattern(SIZE, 1), p.b.mr(SIZE));
        flood(&p.qa, &source, &target, 16);
        let Pair { a, b, qa, qb } = p;
        std::thread::scope(|scope| {
            let (cq, peer_cq) = (a.cq.clone(), b.cq.clone());
            scope.spawn(move || {
                for _ in 0..3000 {
                    let _ = cq.poll().next();
                }
            });
            scope.spawn(move || {
                for _ in 0..3000 {
                    let _ = peer_cq.poll().next();
                }
            });
            scope.spawn(move || drop((qa, a, source)));
            scope.spawn(move || drop((target, qb, b)));
        });
    }
}

#[test]
fn regions_come_and_go_beside_traffic() {
    let p = pair(QpType::Rc, Sockets::DEFAULT, (address(), address()));
    let (source, target) = (p.a.pattern(SIZE, 6), p.b.mr(SIZE));
    std::thread::scope(|scope| {
        let churn = |pd: &Pd| {
            for n in 0..300usize {
                let mr = pd.register(vec![n as u8; 5000], srdma_verbs::Access::REMOTE_READ);
                drop(mr.unwrap());
            }
        };
        scope.spawn(move || churn(&p.a.pd.clone()));
        for _ in 0..10 {
            flood(&p.qa, &source, &target, 4);
            for _ in 0..4 {
                done(&p.a.cq);
            }
        }
    });
    assert!(target.to_vec(0, SIZE).unwrap() == pattern(SIZE, 6));
}
