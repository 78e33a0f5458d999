//! Exceptions as the device serves them where the driver keeps them: out to its queue, back in
//! their turn; what is only looked at; what damaged packets may do.     [E810 8.6]

use srdma_core::hca::HcaConfig;
use srdma_core::hw::ieq::{IEQ_INFO_AT, IEQ_PACKET_AT};
use srdma_core::hw::wqe::{SendWr, UdTarget, WqeBuf, WrFlags};
use srdma_core::hw::{AeCode, CqpCmd, HwQpType, IeqClass, IeqInfo};
use srdma_core::limits::{IEQ_HOLD_NS, IEQ_TAP_BURST, IEQ_TAP_GAP_NS, IEQ_WINDOW};
use srdma_core::num::{AhId, CqId, Qkey, Qpn};
use srdma_core::puda::IeqMode;
use srdma_core::qp::attr::QpState;
use srdma_tests::node::{Mem, Node, QpSpec, pattern};
use srdma_tests::rig::{RQ_PSN, Rig};
use srdma_tests::wire_dsl::{Frame, answers, send_only};
use std::net::SocketAddr;

const NAK: u8 = 0x60;
/// Completion queue of the exception queue.
const IEQ_CQ: CqId = CqId(2);
/// Bytes of a buffer.
const SLOT: usize = 2048;

/// A device in mode capture with a reliable connection, and its exception queue.
struct Capturing {
    rig: Rig,
    mem: Mem,
    next: usize,
}

impl Capturing {
    fn new(buffers: usize) -> Self {
        Self::with(HcaConfig::default(), buffers)
    }

    fn with(mut config: HcaConfig, buffers: usize) -> Self {
        config.ieq = IeqMode::Capture;
        let mut node = Node::with("10.0.0.1", config);
        node.create_cq(IEQ_CQ, 512);
        let mem = node.mem(SLOT * buffers);
        node.connected(&QpSpec {
            recv_cq: IEQ_CQ,
            send_cq: IEQ_CQ,
            rq_wqes: 256,
            kind: HwQpType::UDA,
            qpn: 2,
            ..QpSpec::default()
        });
        for n in 0..buffers {
            let sge = mem.sge((n * SLOT) as u64, u32::try_from(SLOT).unwrap());
            node.recv(Qpn::IEQ, &[sge]);
        }
        let rig = Rig::on(node, &QpSpec::default());
        Self { rig, mem, next: 0 }
    }

    /// What came since the last look: what is said of it, and where the packet is.
    fn taken(&mut self) -> Vec<(IeqInfo, usize, usize)> {
        // The end of a pass.
        self.rig.node.interrupts();
        let done = self.rig.node.poll_cq(IEQ_CQ);
        let taken = done.iter().filter(|wc| !wc.sq).map(|wc| {
            assert_eq!(wc.status, None);
            let at = SLOT * self.next;
            self.next += 1;
            let info = self.mem.read(at + IEQ_INFO_AT, 24);
            let info = IeqInfo::decode(&info.try_into().unwrap());
            assert_eq!((wc.cqe.psn, wc.cqe.peer), (info.psn, info.qpn.value()));
            let len = wc.cqe.len as usize - IEQ_PACKET_AT;
            (info, at + IEQ_PACKET_AT, len)
        });
        taken.collect()
    }

    fn brief(&mut self) -> Vec<(IeqClass, u32)> {
        let taken = self.taken();
        let brief = taken
            .iter()
            .map(|(info, ..)| (info.class, info.psn.value()));
        brief.collect()
    }

    /// Gives `len` bytes at `at` back.
    fn give(&mut self, (info, at, len): (IeqInfo, usize, usize)) {
        let wr = SendWr {
            flags: WrFlags::SIGNALED,
            ud: Some(UdTarget {
                ah: AhId(0),
                qkey: Qkey(info.epoch),
                dest: info.qpn,
            }),
            ..SendWr::default()
        };
        let sge = self.mem.sge(at as u64, u32::try_from(len).unwrap());
        let mut wqe = WqeBuf::new();
        let sges = if len == 0 { &[][..] } else { &[sge][..] };
        wqe.send(&wr, sges).unwrap();
        self.rig.node.post_quietly(Qpn::IEQ, &wqe);
    }

    fn ring(&mut self) {
        self.rig.node.ring_sq(Qpn::IEQ);
        self.check();
    }

    /// Every exception is in one place.
    // proves: puda-12
    fn check(&self) {
        let count = |names: &[&str]| -> u64 { names.iter().map(|n| self.rig.counter(n)).sum() };
        let places = [
            "ieq_dropped",
            "ieq_out_of_order",
            "ieq_captured",
            "ieq_dup_held",
            "ieq_bad_seq_num",
            "ieq_no_rx_bufs",
        ];
        assert_eq!(count(&["ieq_total"]), count(&places));
        let ends = count(&["ieq_reinjected", "ieq_discarded"]);
        assert_eq!(count(&["ieq_out_of_order", "ieq_returned"]), ends);
    }
}

/// SEND `n` of a series.
fn nth(n: u32) -> Frame {
    send_only(RQ_PSN + n, &pattern(40, n.to_le_bytes()[0])).ack()
}

#[test]
fn a_request_ahead_of_its_turn_goes_to_the_driver_and_comes_back() {
    // proves: ieq-13, ieq-14, puda-5, ieq-9, ieq-12
    let mut it = Capturing::new(32);
    for n in 0..4 {
        it.rig.recv(64 * n, 64);
    }
    assert_eq!(answers(&it.rig.hear(nth(2))), [(0x11, RQ_PSN, NAK)]);
    assert!(it.rig.hear(nth(1)).is_empty(), "once");
    let held = it.taken();
    let said: Vec<_> = held
        .iter()
        .map(|(info, ..)| (info.class, info.qpn, info.psn.value(), info.opcode))
        .collect();
    let expected = |n| (IeqClass::OOO, it.rig.qp, RQ_PSN + n, 4);
    assert_eq!(said, [expected(2), expected(1)]);
    assert_eq!(held[0].0.epoch, held[1].0.epoch);
    assert_eq!(held[0].0.at, it.rig.node.now);
    assert!(it.rig.poll().is_empty(), "nothing happens before its turn");
    it.check();
    // The hole is filled: the driver hears of it, and gives back what follows.
    assert_eq!(answers(&it.rig.hear(nth(0))), [(0x11, RQ_PSN, 0x1f)]);
    assert_eq!(it.brief(), [(IeqClass::MOVED, RQ_PSN + 1)]);
    it.give(held[1]);
    it.give(held[0]);
    it.ring();
    assert_eq!(answers(&it.rig.transmit()), [(0x11, RQ_PSN + 2, 0x1f)]);
    assert_eq!(it.rig.done().len(), 3);
    for n in 0..3usize {
        let sent = pattern(40, n.to_le_bytes()[0]);
        assert_eq!(it.rig.mem.read(64 * n, 40), sent);
    }
    assert_eq!(it.brief(), [(IeqClass::GONE, 0)], "all is well again");
    assert_eq!(it.rig.counter("ieq_reinjected"), 2);
    // And the device goes on by itself.
    assert_eq!(answers(&it.rig.hear(nth(3))), [(0x11, RQ_PSN + 3, 0x1f)]);
    assert!(it.brief().is_empty());
}

#[test]
fn what_comes_back_is_served_in_its_turn_and_epoch_only() {
    // proves: ieq-14
    let mut it = Capturing::new(32);
    for n in 0..8 {
        it.rig.recv(64 * n, 64);
    }
    for n in [1, 3] {
        it.rig.tell(nth(n));
    }
    let held = it.taken();
    it.give(held[0]);
    it.ring();
    assert_eq!(it.rig.done(), [], "not its turn");
    it.rig.tell(nth(0));
    let mut stale = held[1];
    stale.0.epoch += 1;
    it.rig.tell(nth(1));
    it.rig.tell(nth(2));
    it.give(stale);
    it.ring();
    assert_eq!(it.rig.done().len(), 3, "another epoch");
    let mut other = held[1];
    other.0.qpn = Qpn::new(0x7777);
    it.give(other);
    it.ring();
    it.give(held[1]);
    it.give(held[1]);
    it.ring();
    assert_eq!(it.rig.done().len(), 1, "once");
    assert_eq!(it.rig.counter("ieq_discarded"), 4);
    // A reset makes everything worthless.
    it.rig.tell(nth(5));
    let held = it.taken();
    let mask = srdma_core::qp::attr::AttrMask::NONE;
    assert!(it.rig.node.modify(it.rig.qp, QpState::Reset, mask));
    assert!(it.brief().contains(&(IeqClass::GONE, 0)));
    it.rig.node.spec_mut(it.rig.qp).rq_psn = RQ_PSN + 5;
    it.rig.node.connect(it.rig.qp);
    it.rig.recv(0, 64);
    it.give(*held.last().unwrap());
    it.ring();
    assert_eq!(it.rig.done(), [], "of an earlier life");
}

#[test]
fn the_driver_says_when_a_hole_is_left() {
    // proves: ieq-5
    let mut it = Capturing::new(32);
    for n in 0..4 {
        it.rig.recv(64 * n, 64);
    }
    it.rig.hear(nth(2));
    let held = it.taken();
    it.rig.hear(nth(0));
    assert_eq!(it.brief(), [(IeqClass::MOVED, RQ_PSN + 1)]);
    let (info, at, _) = held[0];
    for told in [&[(0x11, RQ_PSN + 1, NAK)][..], &[]] {
        it.give((info, at, 0));
        it.ring();
        assert_eq!(answers(&it.rig.transmit()), told, "once");
    }
    it.rig.tell(nth(1));
    assert_eq!(it.brief(), [(IeqClass::MOVED, RQ_PSN + 2)]);
    it.give(held[0]);
    it.ring();
    assert_eq!(it.rig.done().len(), 3);
}

#[test]
fn a_hole_that_nothing_fills_is_given_up_and_a_refusal_gives_up_what_follows() {
    // proves: ieq-7, ieq-8
    let mut it = Capturing::new(32);
    it.rig.hear(nth(1));
    it.taken();
    it.rig.node.advance(IEQ_HOLD_NS - 1_000_000);
    assert!(it.brief().is_empty());
    it.rig.node.advance(2_000_000);
    assert_eq!(it.brief(), [(IeqClass::GONE, 0)]);
    it.rig.hear(nth(1));
    let held = it.taken();
    // No receive: the peer waits, and everything comes again.
    let heard = answers(&it.rig.hear(nth(0)));
    assert_eq!((heard[0].1, heard[0].2 >> 5), (RQ_PSN, 1), "RNR NAK");
    assert_eq!(it.brief(), [(IeqClass::GONE, 0)]);
    assert!(it.rig.hear(nth(2)).is_empty());
    assert!(it.taken().is_empty(), "while it waits nothing is kept");
    assert_eq!(it.rig.counter("ieq_dropped"), 1);
    it.give(held[0]);
    it.ring();
}

#[test]
fn without_a_buffer_or_too_far_ahead_a_packet_is_as_good_as_lost() {
    // proves: ieq-13
    let mut it = Capturing::new(2);
    for n in 1..5 {
        it.rig.tell(nth(n));
    }
    it.rig.tell(nth(IEQ_WINDOW + 1));
    assert_eq!(it.taken().len(), 2);
    assert_eq!(it.rig.counter("ieq_no_rx_bufs"), 2);
    assert_eq!(it.rig.counter("ieq_bad_seq_num"), 1);
    it.check();
    // What the driver has to know it is told as soon as there is a buffer.
    it.rig.recv(0, 64);
    it.rig.tell(nth(0));
    assert!(it.taken().is_empty());
    let sge = it.mem.sge(0, u32::try_from(SLOT).unwrap());
    it.rig.node.recv(Qpn::IEQ, &[sge]);
    it.next = 0;
    assert_eq!(it.brief(), [(IeqClass::MOVED, RQ_PSN + 1)]);
}

#[test]
fn without_the_drivers_queue_capture_is_as_off() {
    // proves: ieq-1
    let mut it = Capturing::new(4);
    it.rig.node.ok(CqpCmd::DestroyQp(Qpn::IEQ));
    it.rig.recv(0, 64);
    assert_eq!(answers(&it.rig.hear(nth(1))), [(0x11, RQ_PSN, NAK)]);
    assert_eq!(it.rig.counter("ieq_dropped"), 1);
    assert_eq!(answers(&it.rig.hear(nth(0))), [(0x11, RQ_PSN, 0x1f)]);
    it.check();
}

#[test]
fn a_queue_that_misbehaves_hurts_nobody_else() {
    // proves: ieq-14
    let mut it = Capturing::new(4);
    it.rig.recv(0, 64);
    it.rig.tell(nth(1));
    let held = it.taken();
    // Memory that is not its own.
    let wr = SendWr {
        flags: WrFlags::SIGNALED,
        ud: Some(UdTarget {
            ah: AhId(0),
            qkey: Qkey(held[0].0.epoch),
            dest: it.rig.qp,
        }),
        ..SendWr::default()
    };
    let mut sge = it.mem.sge(0, 64);
    sge.lkey.0 ^= 1;
    let mut wqe = WqeBuf::new();
    wqe.send(&wr, &[sge]).unwrap();
    it.rig.node.post_quietly(Qpn::IEQ, &wqe);
    it.rig.node.ring_sq(Qpn::IEQ);
    assert_eq!(it.rig.node.state(Qpn::IEQ), QpState::Err);
    assert_eq!(answers(&it.rig.hear(nth(0)))[0], (0x11, RQ_PSN, 0x1f));
    assert_eq!(it.rig.state(), QpState::Rts);
}

// ---- what is only looked at ------------------------------------------------------------------

/// A datagram that is damaged, cut or for nobody.
fn strays(it: &Capturing) -> [(IeqClass, Vec<u8>); 3] {
    let peer: SocketAddr = it.rig.peer;
    let flow = srdma_core::wire::FlowTuple::to_roce(peer.ip(), peer.port(), it.rig.node.ip);
    let good = nth(0).to(it.rig.qp).bytes(&flow);
    let mut bad = good.clone();
    bad[15] ^= 1;
    let lost = nth(0).to(Qpn::new(0x5555)).bytes(&flow);
    [
        (IeqClass::ICRC, bad),
        (IeqClass::MALFORMED, good[..13].to_vec()),
        (IeqClass::BAD_QPN, lost),
    ]
}

#[test]
fn strays_are_shown_but_not_too_many_of_them() {
    // proves: puda-9
    let mut it = Capturing::new(128);
    let peer = it.rig.peer;
    for (class, bytes) in strays(&it) {
        it.rig.node.receive_bytes(peer, bytes.clone());
        let [(info, at, len)] = it.taken()[..] else {
            panic!("one of {class:?}")
        };
        assert_eq!((info.class, it.mem.read(at, len)), (class, bytes));
    }
    let [(_, bad), ..] = strays(&it);
    for _ in 0..200 {
        it.rig.node.receive_bytes(peer, bad.clone());
    }
    let shown = it.taken().len() as u64;
    assert!(shown <= IEQ_TAP_BURST, "{shown}");
    assert_eq!(it.rig.counter("ieq_tapped"), shown + 3);
    assert_eq!(it.rig.counter("ieq_capture_dropped"), 200 - shown);
    it.rig.node.advance(10 * IEQ_TAP_GAP_NS);
    for _ in 0..20 {
        it.rig.node.receive_bytes(peer, bad.clone());
    }
    assert_eq!(it.taken().len(), 10, "so many a second");
    // The connection has noticed nothing.
    it.rig.recv(0, 64);
    assert_eq!(answers(&it.rig.hear(nth(0))), [(0x11, RQ_PSN, 0x1f)]);
}

#[test]
fn damaged_packets_in_a_row_end_a_connection_where_that_is_wanted() {
    // proves: puda-10
    for (limit, ends) in [(0, false), (3, true)] {
        let mut config = HcaConfig::default();
        config.icrc_limit = limit;
        let mut it = Capturing::with(config, 64);
        let peer = it.rig.peer;
        let [(_, bad), ..] = strays(&it);
        it.rig.recv(0, 64);
        let hear_bad = |it: &mut Capturing, times: u32, from: SocketAddr| {
            for _ in 0..times {
                it.rig.node.receive_bytes(from, bad.clone());
            }
        };
        hear_bad(&mut it, 2, peer);
        it.rig.hear(nth(0));
        hear_bad(&mut it, 2, peer);
        // From elsewhere it is none of the connection's.
        hear_bad(&mut it, 5, "10.0.0.77:4791".parse().unwrap());
        assert_eq!(it.rig.state(), QpState::Rts, "not in a row");
        assert_eq!(it.rig.aes(), []);
        hear_bad(&mut it, 1, peer);
        if ends {
            assert_eq!(it.rig.state(), QpState::Err);
            let event = it.rig.node.aes()[0];
            assert_eq!(event.code, AeCode::LLP_RECEIVED_MPA_CRC_ERROR);
            assert_eq!(event.source, srdma_core::hw::AeSource::RQ);
        } else {
            assert_eq!(it.rig.state(), QpState::Rts);
        }
        assert_eq!(it.rig.counter("ieq_latched"), u64::from(ends));
    }
}
