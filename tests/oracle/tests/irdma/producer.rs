//! The oracle posts, the device's ends read: every request comes out as it went in.

use crate::rig::{QPN, Rig, WIDE, rng};
use fastrand::Rng;
use srdma_core::hw::wqe::{SendWr, WrFlags, WriteWr};
use srdma_core::hw::{CqeInfo, RqCmd, SqHeader, SqOp};
use srdma_core::mem::Sge;
use srdma_core::num::Qpn;
use srdma_oracle::wr::{Limits, Payload, Work, Wr, random_sges};
use srdma_oracle::{Caps, Refused};
use std::collections::VecDeque;

/// Posts, reads and completes in random bursts until the ring has wrapped often enough.
fn storm(rig: &mut Rig, rng: &mut Rng, limits: Limits, wraps: u32) {
    while rig.wraps < wraps {
        match rng.u8(..8) {
            // To the brim: the clear-ahead then comes closest to what is in use.
            0 => while rig.post(rng, limits) {},
            1..4 => {
                for _ in 0..rng.u8(1..20) {
                    rig.post(rng, limits);
                }
            }
            4..6 => {
                for _ in 0..rng.u8(1..20) {
                    rig.read();
                }
            }
            _ => {
                for _ in 0..rng.u8(1..20) {
                    rig.complete();
                }
            }
        }
        if rng.u8(..16) == 0 {
            while rig.read() {}
            while rig.complete() {}
        }
    }
    while rig.read() {}
    println!(
        "{} requests, {} wraps of {} quanta, {} NOPs of padding",
        rig.wrs,
        rig.wraps,
        rig.qp.sq_quanta(),
        rig.nops
    );
}

#[test]
fn every_request_of_a_connected_qp_is_read_as_posted() {
    // proves: e810-11
    // proves: e810-12
    // proves: e810-13
    // proves: e810-14
    // proves: e810-15
    // proves: e810-16
    // proves: e810-6
    for (send_wrs, quanta, wraps) in [(16, 512, 40), (400, 4096, 12), (4063, 32_768, 5)] {
        let mut rng = rng("producer, connected", 1);
        let caps = Caps { send_wrs, ..WIDE };
        let mut rig = Rig::new(caps, 16, false);
        assert_eq!(rig.qp.sq_quanta(), quanta);
        storm(&mut rig, &mut rng, Limits::ALL, wraps);
        assert!(rig.wraps >= wraps && rig.nops > 0);
    }
}

#[test]
fn every_request_of_a_datagram_qp_is_read_as_posted() {
    for (send_wrs, wraps) in [(16, 30), (400, 8)] {
        let mut rng = rng("producer, datagrams", 2);
        let caps = Caps { send_wrs, ..WIDE };
        let mut rig = Rig::new(caps, 16, false);
        let limits = Limits {
            datagrams: true,
            ..Limits::ALL
        };
        storm(&mut rig, &mut rng, limits, wraps);
    }
}

#[test]
fn every_inline_length_and_every_fragment_count_is_read_as_posted() {
    let mut rng = rng("producer, lengths", 3);
    let mut rig = Rig::new(WIDE, 16, false);
    let flags = WrFlags::SIGNALED;
    for len in 0..=101 + 13 {
        let payload = |rng: &mut Rng| {
            if len <= 101 {
                Payload::Inline((0..len).map(|_| rng.u8(..)).collect())
            } else {
                Payload::Sges(random_sges(rng, len - 101))
            }
        };
        for imm in [None, Some(0xffff_ffff), Some(rng.u32(..))] {
            let send = SendWr {
                imm,
                ..SendWr::default()
            };
            let write = WriteWr {
                imm,
                solicited: rng.bool(),
                ..WriteWr::default()
            };
            let works = [
                Work::Send(send, payload(&mut rng)),
                Work::Write(write, payload(&mut rng)),
            ];
            for work in works {
                let id = rig.next_id;
                assert!(rig.post_this(Wr { id, flags, work }));
                assert!(rig.read() && !rig.read());
                assert!(rig.complete());
            }
        }
    }
    println!("{} requests, {} wraps", rig.wrs, rig.wraps);
    assert!(rig.wraps >= 3);
}

#[test]
fn a_512_quanta_ring_takes_255_requests_and_a_16_entry_ring_15() {
    let caps = Caps {
        send_sges: 1,
        recv_sges: 1,
        inline: 0,
        ..WIDE
    };
    let mut rig = Rig::new(caps, 16, false);
    let nop = |id| Wr {
        id,
        flags: WrFlags::SIGNALED,
        work: Work::Nop,
    };
    let fit = (1..).take_while(|id| rig.post_this(nop(*id))).count();
    assert_eq!((rig.qp.sq_quanta(), fit), (512, 255));
    let fit = (1..).take_while(|id| rig.qp.recv(*id, &[]).is_ok()).count();
    assert_eq!((rig.qp.rq_wqes(), fit), (16, 15));
}

/// A request that does not fit its chunk is moved to the next; the lap stays that of the chunk.
#[test]
fn padding_at_the_end_of_the_ring_has_the_old_polarity() {
    let mut rig = Rig::new(WIDE, 16, false);
    let wr = |id, sges: usize| {
        let mut rng = Rng::with_seed(id);
        Wr {
            id,
            flags: WrFlags::SIGNALED,
            work: Work::Send(
                SendWr::default(),
                Payload::Sges(random_sges(&mut rng, sges)),
            ),
        }
    };
    for id in 0..511 {
        assert!(rig.post_this(wr(id, 1)));
        assert!(rig.read() && rig.complete());
    }
    assert_eq!((rig.qp.sq_head(), rig.qp.sq_polarity()), (511, 1));
    assert!(rig.post_this(wr(511, 13)));
    let header = |quantum: usize| SqHeader::from_bits(rig.qp.sq().load(quantum * 4 + 3));
    assert_eq!(header(511).op(), SqOp::NOP);
    assert_eq!(rig.qp.sq().load(511 * 4 + 3) >> 63, 1, "the old lap's");
    assert_eq!((header(0).op(), rig.qp.sq_polarity()), (SqOp::SEND, 0));
    assert_eq!(rig.qp.sq().load(3) >> 63, 0, "the new lap's");
    assert!(rig.read() && rig.complete());
    assert_eq!((rig.nops, rig.qp.sq_head()), (1, 7));
}

#[test]
fn every_receive_is_read_as_posted() {
    // proves: e810-6
    // proves: e810-11
    // proves: e810-16
    for (recv_wrs, recv_sges) in [(15, 1), (15, 3), (60, 7), (15, 13), (4000, 13), (32_767, 1)] {
        receives(recv_wrs, recv_sges);
    }
}

fn receives(recv_wrs: u32, recv_sges: u32) {
    let mut rng = rng("producer, receives", 4);
    let caps = Caps {
        recv_wrs,
        recv_sges,
        ..WIDE
    };
    let mut rig = Rig::new(caps, 8, false);
    let mut posted: VecDeque<(u64, Vec<Sge>)> = VecDeque::new();
    let (mut cmd, mut id, mut wraps) = (RqCmd::default(), 0u64, 0);
    while wraps < 5 {
        for _ in 0..rng.u32(1..=recv_wrs) {
            let count = rng.usize(0..=recv_sges as usize);
            let sges = random_sges(&mut rng, count);
            match rig.qp.recv(id, &sges) {
                Ok(()) => posted.push_back((id, sges)),
                Err(fault) => {
                    assert_eq!(fault, Refused::FULL);
                    break;
                }
            }
            id += 1;
            wraps += u32::from(rig.qp.rq_head() == 0);
        }
        let unread = rig.rq.available(rig.qp.rq_head());
        assert_eq!(unread as usize, posted.len());
        for _ in 0..rng.u32(1..=recv_wrs) {
            let Some(parsed) = rig.rq.read(&mut cmd) else {
                assert!(posted.is_empty());
                break;
            };
            parsed.unwrap();
            let (wr_id, sges) = posted.pop_front().unwrap();
            assert_eq!((cmd.sges.as_slice(), cmd.wr_id), (&sges[..], 0));
            let cqe = CqeInfo {
                qpn: Qpn::new(QPN),
                context: rig.qp.context(),
                wqe_index: rig.rq.wqe_index(),
                len: rng.u32(..),
                op: 4,
                ..CqeInfo::default()
            };
            rig.rq.advance();
            rig.cqes.push(&cqe).unwrap();
            let polled = rig.cq.poll().unwrap();
            assert_eq!((polled.wr_id, polled.bytes), (wr_id, cqe.len));
            assert!(!polled.sq && polled.op == 0x3e);
            assert_eq!(rig.qp.rq_tail(), rig.rq.index());
        }
    }
    let (size, shift) = (rig.qp.rq_wqes(), rig.qp.rq_shift());
    println!("{id} receives, {wraps} wraps of {size} entries, shift {shift}");
}
