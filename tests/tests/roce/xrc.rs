//! XRC: initiators, targets and shared receive queues with a domain.     [IBTA A14]

use fastrand::Rng;
use srdma_core::hw::cqp::XrcHome;
use srdma_core::hw::wqe::{ReadWr, RemoteAddr, SendWr, WqeBuf, WrFlags, WriteWr};
use srdma_core::hw::{HwQpType, Sge};
use srdma_core::mem::Access;
use srdma_core::num::{CqId, Lkey, PdId, Qpn, Rkey, SrqId, XrcdId};
use srdma_core::qp::attr::QpState;
use srdma_core::wire::Opcode;
use srdma_tests::node::{ALL, Mem, Node, PD, QpSpec};
use srdma_tests::pair::{Fate, Pair, Way};
use srdma_tests::rig::brief_wcs;
use std::cell::RefCell;
use std::rc::Rc;

/// The domain of the tests' targets.
pub(crate) const XRCD: XrcdId = XrcdId(7);
/// The completion queue of the tests' XRC queues.
pub(crate) const XRC_CQ: CqId = CqId(30);
/// The domain of the target itself: what it may reach comes from elsewhere.
const NOTHING: PdId = PdId(99);

pub(crate) fn initiator() -> QpSpec {
    QpSpec {
        kind: HwQpType::XRC_SEND,
        ..QpSpec::default()
    }
}

pub(crate) fn target() -> QpSpec {
    QpSpec {
        kind: HwQpType::XRC_RECV,
        pd: NOTHING,
        xrcd: Some(XRCD),
        ..QpSpec::default()
    }
}

/// An XRC queue of the tests' domain, in a protection domain, on [`XRC_CQ`].
pub(crate) fn xrc_srq(node: &mut Node, pd: PdId) -> SrqId {
    let home = XrcHome {
        xrcd: XRCD,
        cq: XRC_CQ,
    };
    node.create_srq_of(64, 0, pd, Some(home))
}

/// An initiator on one device, a target on the other, and one XRC queue there.
fn pair() -> (Pair, SrqId) {
    let (a, mut b) = (Node::new("10.0.0.1"), Node::new("10.0.0.2"));
    b.create_cq(XRC_CQ, 1024);
    let srq = xrc_srq(&mut b, PD);
    (Pair::join(a, b, &initiator(), &target()), srq)
}

/// A request buffer that names a shared receive queue of the peer.
pub(crate) fn naming(srq: SrqId) -> WqeBuf {
    let mut wqe = WqeBuf::new();
    wqe.set_xrc_srq(Some(srq));
    wqe
}

pub(crate) fn send(node: &mut Node, qpn: Qpn, srq: SrqId, sges: &[Sge], imm: Option<u32>) {
    let mut wqe = naming(srq);
    let wr = SendWr {
        flags: WrFlags::SIGNALED,
        imm,
        ..SendWr::default()
    };
    wqe.send(&wr, sges).unwrap();
    node.post(qpn, &wqe);
}

pub(crate) fn write(node: &mut Node, qpn: Qpn, srq: SrqId, sges: &[Sge], to: (u64, Rkey)) {
    let mut wqe = naming(srq);
    let wr = WriteWr {
        flags: WrFlags::SIGNALED,
        remote: remote(to),
        ..WriteWr::default()
    };
    wqe.write(&wr, sges).unwrap();
    node.post(qpn, &wqe);
}

fn read(node: &mut Node, qpn: Qpn, srq: SrqId, sges: &[Sge], from: (u64, Rkey)) {
    let mut wqe = naming(srq);
    let wr = ReadWr {
        flags: WrFlags::SIGNALED,
        remote: remote(from),
        ..ReadWr::default()
    };
    wqe.read(&wr, sges).unwrap();
    node.post(qpn, &wqe);
}

fn add(node: &mut Node, qpn: Qpn, srq: SrqId, local: (u64, Lkey), at: (u64, Rkey)) {
    let mut wqe = naming(srq);
    wqe.fetch_add(WrFlags::SIGNALED, local, remote(at), 1);
    node.post(qpn, &wqe);
}

const fn remote((addr, rkey): (u64, Rkey)) -> RemoteAddr {
    RemoteAddr { addr, rkey }
}

#[test]
fn each_message_goes_to_the_queue_that_it_names() {
    // proves: xrc-5
    let (mut pair, first) = pair();
    let other_cq = CqId(31);
    pair.b.create_cq(other_cq, 64);
    let home = XrcHome {
        xrcd: XRCD,
        cq: other_cq,
    };
    let second = pair.b.create_srq_of(16, 0, PD, Some(home));
    pair.b.post_srq(first, &[pair.mb.sge(0, 4096)]);
    pair.b.post_srq(second, &[pair.mb.sge(8192, 4096)]);
    pair.b.post_srq(second, &[pair.mb.sge(16_384, 4096)]);
    let sent = pair.ma.fill(0, 3000, 3);
    let sge = pair.ma.sge(0, 3000);
    let short = pair.ma.sge(0, 5);
    send(&mut pair.a, pair.qa, second, &[sge], None);
    send(&mut pair.a, pair.qa, first, &[sge], Some(0xabcd));
    send(&mut pair.a, pair.qa, second, &[short], None);
    pair.run();
    let done = brief_wcs(&pair.a.poll());
    assert_eq!(done, [('s', 0, None), ('s', 1, None), ('s', 2, None)]);
    assert_eq!(pair.mb.read(0, 3000), sent);
    assert_eq!(pair.mb.read(8192, 3000), sent);
    assert_eq!(pair.mb.read(16_384, 5), sent[..5]);
    let firsts = pair.b.poll_cq(XRC_CQ);
    assert_eq!(brief_wcs(&firsts), [('r', 0, None)]);
    assert_eq!(firsts[0].qpn, pair.qb, "the target's number");
    assert_eq!(firsts[0].cqe.context, 0x5000 + u64::from(first.0));
    assert_eq!((firsts[0].cqe.imm, firsts[0].cqe.len), (Some(0xabcd), 3000));
    let seconds = pair.b.poll_cq(other_cq);
    assert_eq!(brief_wcs(&seconds), [('r', 0, None), ('r', 1, None)]);
    assert_eq!((seconds[0].cqe.len, seconds[1].cqe.len), (3000, 5));
    assert!(pair.b.poll().is_empty(), "nothing in the target's own");
}

#[test]
fn every_request_carries_the_queue_and_no_answer_does() {
    // proves: xrc-7
    let (mut pair, srq) = pair();
    let seen = Rc::new(RefCell::new(Vec::new()));
    let log = Rc::clone(&seen);
    pair.hook(move |heard, way, _| {
        let head = &heard.head;
        log.borrow_mut().push((way, head.bth.opcode, head.xrceth));
        Fate::Deliver
    });
    let (key, sge) = (pair.mb.rkey(), pair.ma.sge(0, 2500));
    pair.b.post_srq(srq, &[pair.mb.sge(0, 4096)]);
    let local = (pair.ma.at(8192), pair.ma.lkey());
    send(&mut pair.a, pair.qa, srq, &[sge], None);
    write(&mut pair.a, pair.qa, srq, &[sge], (pair.mb.at(4096), key));
    pair.run();
    read(&mut pair.a, pair.qa, srq, &[sge], (pair.mb.at(4096), key));
    add(&mut pair.a, pair.qa, srq, local, (pair.mb.at(8192), key));
    let mut wqe = naming(srq);
    let there = remote((pair.mb.at(16_384), key));
    wqe.atomic_write(WrFlags::SIGNALED, there, *b"12345678");
    pair.a.post(pair.qa, &wqe);
    pair.run();
    assert_eq!(pair.a.poll().len(), 5);
    assert_eq!(pair.mb.read(16_384, 8), b"12345678");
    let seen = seen.borrow();
    let requests: Vec<u8> = seen
        .iter()
        .filter(|s| s.0 == Way::ToB)
        .map(|s| s.1.0)
        .collect();
    let all = [0xa0, 0xa1, 0xa2, 0xa6, 0xa7, 0xa8, 0xac, 0xb4, 0xbd];
    assert_eq!(requests, all, "three, three, one, one, one");
    for &(way, opcode, xrceth) in seen.iter() {
        let expected = (way == Way::ToB).then_some(srq.0);
        assert_eq!(xrceth, expected, "{opcode:?}");
        assert_eq!(opcode.0 >> 5, 0b101, "{opcode:?}");
    }
    let answers: Vec<Opcode> = seen
        .iter()
        .filter(|s| s.0 == Way::ToA)
        .map(|s| s.1)
        .collect();
    for opcode in [
        Opcode::XRC_ACKNOWLEDGE,
        Opcode::XRC_ATOMIC_ACK,
        Opcode::XRC_READ_RESP_ONLY,
    ] {
        assert!(answers.contains(&opcode), "{opcode:?} in {answers:?}");
    }
}

#[test]
fn rights_are_those_of_the_named_queues_domain() {
    // proves: xrc-4
    let theirs = PdId(21);
    let run = |region: PdId, queue: PdId| {
        let (mut pair, _) = pair();
        let srq = xrc_srq(&mut pair.b, queue);
        let mem = pair.b.mem_with(8192, ALL, region);
        let sge = pair.ma.sge(0, 2000);
        write(&mut pair.a, pair.qa, srq, &[sge], (mem.at(0), mem.rkey()));
        pair.run();
        let status = pair.a.poll()[0].status.map(|code| code.0);
        (status, pair.b.state(pair.qb))
    };
    assert_eq!(run(theirs, theirs), (None, QpState::Rts));
    let refused = (Some(3), QpState::Err);
    assert_eq!(run(PD, theirs), refused);
    assert_eq!(run(theirs, PD), refused);
    assert_eq!(run(NOTHING, PD), refused, "the target's own counts nothing");
}

#[test]
fn scatter_lists_are_of_the_named_queues_domain() {
    // proves: xrc-4
    let (mut pair, srq) = pair();
    let foreign = pair.b.mem_with(4096, ALL, NOTHING);
    pair.b.post_srq(srq, &[foreign.sge(0, 100)]);
    let sge = pair.ma.sge(0, 50);
    send(&mut pair.a, pair.qa, srq, &[sge], None);
    pair.run();
    assert_eq!(brief_wcs(&pair.a.poll()), [('s', 0, Some(5))]);
    let got = pair.b.poll_cq(XRC_CQ);
    assert_eq!(brief_wcs(&got), [('r', 0, Some(2))]);
}

#[test]
fn initiators_share_queues_and_take_in_order() {
    // proves: xrc-5
    let (mut pair, srq) = pair();
    let (qa, qb) = (pair.qa, pair.qb);
    let (qa2, qb2) = pair.more(&initiator(), &target());
    for n in 0..8 {
        pair.b.post_srq(srq, &[pair.mb.sge(4096 * n, 4096)]);
    }
    let sge = pair.ma.sge(0, 100);
    for _ in 0..4 {
        send(&mut pair.a, qa, srq, &[sge], None);
        send(&mut pair.a, qa2, srq, &[sge], None);
    }
    pair.run();
    let got = pair.b.poll_cq(XRC_CQ);
    let ids: Vec<u64> = got.iter().map(|wc| wc.wr_id).collect();
    assert_eq!(ids, [0, 1, 2, 3, 4, 5, 6, 7]);
    let of = |qpn| got.iter().filter(|wc| wc.qpn == qpn).count();
    assert_eq!((of(qb), of(qb2)), (4, 4));
}

#[test]
fn an_empty_queue_makes_the_initiator_wait() {
    let (mut pair, srq) = pair();
    let sge = pair.ma.sge(0, 100);
    send(&mut pair.a, pair.qa, srq, &[sge], None);
    pair.run_for(1_000_000);
    assert!(pair.a.poll().is_empty());
    assert!(pair.b.hca.counters().send_rnr_err > 0);
    pair.b.post_srq(srq, &[pair.mb.sge(0, 4096)]);
    pair.run();
    assert_eq!(brief_wcs(&pair.a.poll()), [('s', 0, None)]);
    assert_eq!(pair.b.poll_cq(XRC_CQ).len(), 1);
}

/// What a random run checks at its end.
struct Expect {
    sends: usize,
    adds: u64,
    total: usize,
    writes: Vec<(u16, u16, u8)>,
}

/// Posts twelve random requests into two queues.
fn random_work(pair: &mut Pair, srqs: [SrqId; 2], rng: &mut Rng) -> Expect {
    let mut expect = Expect {
        sends: 0,
        adds: 0,
        total: 12,
        writes: vec![],
    };
    let key = pair.mb.rkey();
    for n in 0..12_u8 {
        let srq = srqs[rng.usize(..2)];
        let (bytes, place) = (rng.u16(1..5000), u16::from(n) * 5120);
        let (len, at) = (u32::from(bytes), u64::from(place));
        let seed = n + 1;
        match rng.u8(..4) {
            0 => {
                pair.b.post_srq(srq, &[pair.mb.sge(at, 5120)]);
                pair.ma.fill(place.into(), bytes.into(), seed);
                let sge = pair.ma.sge(at, len);
                send(&mut pair.a, pair.qa, srq, &[sge], None);
                expect.sends += 1;
            }
            1 => {
                pair.ma.fill(place.into(), bytes.into(), seed);
                let sge = pair.ma.sge(at, len);
                write(&mut pair.a, pair.qa, srq, &[sge], (pair.mb.at(at), key));
                expect.writes.push((place, bytes, seed));
            }
            2 => {
                let sge = pair.ma.sge(1 << 19, len);
                read(
                    &mut pair.a,
                    pair.qa,
                    srq,
                    &[sge],
                    (pair.mb.at(1 << 19), key),
                );
            }
            _ => {
                let local = (pair.ma.at(1 << 18), pair.ma.lkey());
                add(&mut pair.a, pair.qa, srq, local, (pair.mb.at(1 << 18), key));
                expect.adds += 1;
            }
        }
    }
    expect
}

#[test]
fn loss_duplication_and_delay_are_survived() {
    let seed: u64 = std::env::var("SRDMA_SEED")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or_else(|| fastrand::u64(..));
    println!("SRDMA_SEED={seed}");
    for round in 0..60_u64 {
        let mut rng = Rng::with_seed(seed.wrapping_add(round));
        let mut chance = rng.fork();
        let (mut pair, first) = pair();
        let second = xrc_srq(&mut pair.b, PD);
        pair.hook(move |_, _, _| match chance.u8(..20) {
            0 | 1 => Fate::Drop,
            2 | 3 => Fate::Twice,
            4 => Fate::Late(30_000),
            _ => Fate::Deliver,
        });
        let expect = random_work(&mut pair, [first, second], &mut rng);
        pair.run();
        let done = pair.a.poll();
        assert_eq!(done.len(), expect.total, "seed {seed} round {round}");
        assert!(
            done.iter().all(|wc| wc.status.is_none()),
            "seed {seed} round {round}"
        );
        let got = pair.b.poll_cq(XRC_CQ);
        assert_eq!(got.len(), expect.sends, "seed {seed} round {round}");
        assert_eq!(
            pair.mb.word(1 << 18),
            expect.adds,
            "seed {seed} round {round}"
        );
        for &(at, len, byte) in &expect.writes {
            let sent = srdma_tests::node::pattern(len.into(), byte);
            assert_eq!(
                pair.mb.read(at.into(), len.into()),
                sent,
                "seed {seed} round {round}"
            );
        }
    }
}

#[test]
fn a_region_may_be_withdrawn_between_requests() {
    let (mut pair, srq) = pair();
    let mem: Mem = pair.b.mem_with(4096, ALL.union(Access::REMOTE_READ), PD);
    let sge = pair.ma.sge(0, 16);
    read(&mut pair.a, pair.qa, srq, &[sge], (mem.at(0), mem.rkey()));
    pair.run();
    pair.b.dereg(&mem);
    read(&mut pair.a, pair.qa, srq, &[sge], (mem.at(0), mem.rkey()));
    pair.run();
    let done = brief_wcs(&pair.a.poll());
    assert_eq!(done, [('s', 0, None), ('s', 1, Some(3))]);
}
