//! Anything may arrive, and anything may stand in a ring: nothing breaks. [RoCEv2 3.1]
//!
//! Each test prints its seed; what is checked is that the device neither panics nor changes what it
//! must not, and that an untouched connection beside works on.

use srdma_core::hw::wqe::{WqeBuf, WrFlags};
use srdma_core::hw::{CqpCmd, HwQpType};
use srdma_core::num::Qpn;
use srdma_core::qp::attr::QpState;
use srdma_core::wire::FlowTuple;
use srdma_core::wire::NakCode;
use srdma_tests::node::{ALL, Mem, Node, PD, QpSpec};
use srdma_tests::wire_dsl::{
    Frame, ack, answers, atomic_ack, atomic_write, compare_swap, datagram, fetch_add, flush, nak,
    read_request, read_response, rnr_nak, send_first, send_inv, send_last, send_middle, send_only,
    sign, uc, write_first, write_last, write_last_imm, write_middle, write_only, write_only_imm,
};
use std::net::SocketAddr;

const ROUNDS: usize = 3000;

struct Target {
    node: Node,
    qps: Vec<Qpn>,
    /// Never touched by garbage: another peer's.
    quiet: Qpn,
    quiet_psn: u32,
    mem: Mem,
    peer: SocketAddr,
}

impl Target {
    fn new() -> Self {
        let mut node = Node::new("10.0.0.1");
        let mem = node.mem(1 << 16);
        let kinds = [HwQpType::RC, HwQpType::UC, HwQpType::UD];
        let qps = kinds.map(|kind| {
            node.connected(&QpSpec {
                kind,
                ..QpSpec::default()
            })
        });
        let quiet = node.connected(&QpSpec {
            peer: "10.0.0.3".parse().unwrap(),
            ..QpSpec::default()
        });
        Self {
            node,
            qps: qps.to_vec(),
            quiet,
            quiet_psn: 0x200,
            mem,
            peer: "10.0.0.2:49443".parse().unwrap(),
        }
    }

    fn flow(&self) -> FlowTuple {
        FlowTuple::to_roce(self.peer.ip(), self.peer.port(), self.node.ip)
    }

    /// Work in both directions, and queue pairs that failed are taken up again.
    fn refresh(&mut self, rng: &mut fastrand::Rng) {
        for qp in self.qps.clone() {
            if matches!(self.node.state(qp), QpState::Err | QpState::Sqe) {
                let none = srdma_core::qp::attr::AttrMask::NONE;
                self.node.poll();
                assert!(self.node.modify(qp, QpState::Reset, none));
                self.node.connect(qp);
            }
            let sge = self.mem.sge(0, 2048);
            for _ in 0..rng.u32(..3).min(self.node.room(qp).1) {
                self.node.recv(qp, &[sge]);
            }
        }
        let (rc, key) = (self.qps[0], self.mem.rkey());
        if self.node.room(rc).0 < 16 {
            return;
        }
        match rng.u8(..4) {
            0 => drop(self.node.send(rc, &[self.mem.sge(0, rng.u32(..5000))])),
            1 => drop(
                self.node
                    .read(rc, &[self.mem.sge(0, rng.u32(..5000))], 0x1000, key),
            ),
            2 => {
                let local = (self.mem.at(0), self.mem.lkey());
                self.node.fetch_add(rc, local, 0x1000, key, 1);
            }
            _ => {}
        }
    }

    /// The connection that nobody disturbed takes a message.
    #[track_caller]
    fn works(&mut self) {
        assert_eq!(self.node.state(self.quiet), QpState::Rts);
        self.node.recv(self.quiet, &[self.mem.sge(0, 64)]);
        self.node.poll();
        self.node.transmit();
        let peer = "10.0.0.3:49443".parse().unwrap();
        let frame = send_only(self.quiet_psn, b"hello").ack();
        self.node.inject(peer, self.quiet, &frame);
        let heard = self.node.transmit();
        assert_eq!(answers(&heard), [(0x11, self.quiet_psn, 0x1f)]);
        self.quiet_psn += 1;
        self.node.poll();
        self.node.aes();
        self.node.interrupts();
    }

    fn frame(&self, rng: &mut fastrand::Rng, psn: u32) -> Frame {
        let at = self.mem.at(rng.u64(..64) * 8);
        let key = self.mem.rkey();
        let len = rng.u32(..5000);
        let data = vec![rng.u8(..); [0, 1, 8, 1020, 1024, 1028][rng.usize(..6)]];
        let frame = match rng.u8(..24) {
            0 => send_only(psn, &data),
            1 => send_first(psn, &data),
            2 => send_middle(psn, &data),
            3 => send_last(psn, &data),
            4 => send_inv(psn, &data, key),
            5 => write_only(psn, at, key, &data),
            6 => write_first(psn, at, key, len, &data),
            7 => write_middle(psn, &data),
            8 => write_last(psn, &data),
            9 => write_last_imm(psn, &data, [1, 2, 3, 4]),
            10 => write_only_imm(psn, at, key, &data, [1, 2, 3, 4]),
            11 => read_request(psn, at, key, len),
            12 => fetch_add(psn, at, key, 1),
            13 => compare_swap(psn, at, key, 1, 2),
            14 => atomic_write(psn, at, key, [1; 8]),
            15 => flush(psn, at, key, len),
            16 => ack(psn),
            17 => nak(psn, NakCode(rng.u8(..32))),
            18 => rnr_nak(psn, rng.u8(..32)),
            19 => read_response(psn, rng.bool(), rng.bool(), &data),
            20 => atomic_ack(psn, 7),
            21 => datagram(psn, 0x1234_5678, 5, &data),
            22 => uc(send_only(psn, &data)),
            _ => uc(write_first(psn, at, key, len, &data)),
        };
        if rng.bool() { frame.ack() } else { frame }
    }
}

#[test]
fn any_bytes_may_arrive() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut target = Target::new();
    let before = target.node.hca.counters().rcvd_pkts;
    for _ in 0..ROUNDS {
        let mut bytes = vec![0; rng.usize(..5000)];
        rng.fill(&mut bytes);
        target.node.receive_bytes(target.peer, bytes);
    }
    let counters = target.node.hca.counters();
    // Sixteen bits of the ICRC are solved for, so a few may pass by chance, but not more.
    assert!(counters.rcvd_pkts - before < 10);
    target.works();
}

#[test]
fn any_headers_may_arrive_under_a_good_icrc() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut target = Target::new();
    for round in 0..ROUNDS {
        let mut bytes = vec![0; rng.usize(12..1200)];
        rng.fill(&mut bytes);
        bytes[1] &= 0xf0;
        if rng.bool() {
            bytes[1] &= 0xcf;
            bytes.truncate(bytes.len() & !3);
        }
        if rng.u8(..10) > 0 {
            bytes[0] &= 0x3f;
            bytes[2..4].copy_from_slice(&[0xff, 0xff]);
            let qp = target.qps[rng.usize(..3)];
            bytes[5..8].copy_from_slice(&qp.to_be_bytes());
            bytes[9..11].copy_from_slice(&[0, if rng.bool() { 1 } else { 2 }]);
        }
        sign(&target.flow(), &mut bytes);
        target.node.receive_bytes(target.peer, bytes);
        target.node.transmit();
        if round % 16 == 0 {
            target.refresh(&mut rng);
        }
    }
    target.works();
}

#[test]
fn packets_in_any_order_and_a_little_wrong() {
    for _ in 0..4 {
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut target = Target::new();
        for round in 0..ROUNDS {
            let base = if rng.bool() { 0x100 } else { 0x200 };
            let psn = (base + rng.u32(..12)).wrapping_sub(3) & 0x00ff_ffff;
            let qp = target.qps[rng.usize(..3)];
            let frame = target.frame(&mut rng, psn).to(qp);
            let flow = target.flow();
            let mut bytes = frame.bytes(&flow);
            if rng.u8(..4) == 0 {
                // A bit flips, and whoever flipped it signs.
                bytes.truncate(bytes.len() - 4);
                let bit = rng.usize(..bytes.len() * 8);
                bytes[bit / 8] ^= 1 << (bit % 8);
                sign(&flow, &mut bytes);
            }
            target.node.receive_bytes(target.peer, bytes);
            if rng.bool() {
                target.node.transmit();
            } else {
                let _ = target
                    .node
                    .transmit_some(rng.usize(..2), srdma_core::hca::Acks::Send);
            }
            if round % 8 == 0 {
                target.refresh(&mut rng);
            }
            if rng.u8(..10) == 0 {
                target.node.advance(rng.u64(..1 << 28));
                target.node.aes();
            }
            if round % 500 == 499 {
                target.works();
            }
        }
        target.works();
    }
}

#[test]
fn any_words_may_stand_in_a_send_queue() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut target = Target::new();
    for _ in 0..ROUNDS {
        target.refresh(&mut rng);
        let qp = target.qps[rng.usize(..3)];
        let mut wqe = WqeBuf::new();
        wqe.nop(WrFlags::SIGNALED);
        let first = target.node.post_quietly(qp, &wqe);
        for _ in 0..rng.u8(..8) {
            target.node.post_quietly(qp, &wqe);
        }
        let words = target.node.sq_words(qp);
        let at = 4 * first as usize;
        let valid = words.load(at + 3) & 1 << 63;
        for word in 0..4 {
            let mut value = rng.u64(..);
            if rng.bool() {
                value = [0, target.mem.at(0), u64::from(target.mem.stag)][rng.usize(..3)];
            }
            if word == 3 {
                value = value & !(1 << 63) | valid;
                if rng.bool() {
                    value &= !(0xf << 38);
                }
            }
            words.store(at + word, value);
        }
        target.node.ring_sq(qp);
        target.node.transmit();
        target.node.cqes(srdma_tests::node::CQ);
        target.node.aes();
        // What the words meant is not known; the rings start over.
        let none = srdma_core::qp::attr::AttrMask::NONE;
        assert!(target.node.modify(qp, QpState::Reset, none));
        target.node.connect(qp);
    }
    target.works();
}

#[test]
fn any_words_may_stand_in_the_control_queue() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut target = Target::new();
    let keep = [0x02, 0x05, 0x0d, 0x01, 0x18, 0x1b, 0x22, 0x29, 0x03];
    for round in 0..ROUNDS {
        let mut words = [0_u64; 8];
        for word in &mut words {
            *word = match rng.u8(..4) {
                0 => rng.u64(..),
                1 => rng.u64(..0x40),
                2 => target.mem.at(0) & !0xfff,
                _ => 0,
            };
        }
        let op = rng.u64(..0x40);
        let header = words[3] & !(0x3f << 32) & !(1 << 63);
        // What would rightly take away what the test needs is left out.
        words[3] = if keep.contains(&op) {
            0x24 << 32
        } else {
            header | op << 32
        };
        target.node.raw_cmd(words);
        if round % 100 == 0 {
            target.works();
        }
    }
    target.works();
    target.node.mem_with(64, ALL, PD);
    target.node.ok(CqpCmd::Nop);
}

#[test]
fn a_peer_cannot_make_the_device_hold_more_and_more() {
    let mut target = Target::new();
    let mut rng = fastrand::Rng::with_seed(1);
    let (at, key) = (target.mem.at(0), target.mem.rkey());
    let rc = target.qps[0];
    // Requests that draw answers, over and over, while nothing leaves.
    target
        .node
        .inject(target.peer, rc, &read_request(0x200, at, key, 60_000));
    for _ in 0..20_000 {
        let frame = match rng.u8(..4) {
            0 => read_request(0x200, at, key, 60_000),
            1 => send_only(0x1f0 + rng.u32(..16), b"x").ack(),
            2 => send_only(0x300 + rng.u32(..16), b"x").ack(),
            _ => read_request(0x200, at, key, rng.u32(..60_000)),
        };
        target.node.inject(target.peer, rc, &frame);
        target.node.advance(1_000);
    }
    let heard = target.node.transmit();
    assert!(heard.len() <= 59 + 2, "{} packets", heard.len());
    target.works();
}
