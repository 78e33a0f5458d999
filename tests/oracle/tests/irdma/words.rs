//! Our driver half and the oracle do the same: words in rings, sizes of rings.
//!
//! Both get the same requests. Then every word of every WQE is compared, but for those that the
//! oracle leaves as they were [E810 2.4]: there ours are zero, and the device looks at neither.

use crate::rig::{Rig, WIDE, rng};
use srdma_core::hw::wqe::sq_quanta;
use srdma_core::hw::{WqeBuf, rwqe};
use srdma_core::mem::{HostBuf, HostWords};
use srdma_core::ring::{RqProducer, SqProducer, depth};
use srdma_oracle::wr::{Limits, Payload, Work, Wr, random_sges};
use srdma_oracle::{Caps, fragment_quanta, rq_depth, rq_wqe_bytes, sq_depth, wqe_shift};

/// Bits of word `word` of a WQE that mean something.
fn meaning(wr: &Wr, word: usize) -> u64 {
    let (imm, payload) = match &wr.work {
        Work::Send(send, payload) => (send.imm.is_some(), payload),
        Work::Write(write, payload) => (write.imm.is_some(), payload),
        _ => return u64::MAX,
    };
    match (payload, word) {
        (Payload::Sges(_), 1) if imm => 0,
        (Payload::Inline(_), 0) if !imm => 0,
        (Payload::Sges(_), _) | (Payload::Inline(_), 0 | 2 | 3) => u64::MAX,
        (Payload::Inline(bytes), 1) => inline_mask(bytes.len(), 0),
        (Payload::Inline(bytes), _) => {
            let quantum = word / 4 - 1;
            let used = bytes.len().saturating_sub(8 + 31 * quantum).min(31);
            let valid = if word % 4 == 3 { 0xff << 56 } else { 0 };
            inline_mask(used, word % 4 * 8) | valid
        }
    }
}

/// The bytes of a word at `at` that lie below `used`.
fn inline_mask(used: usize, at: usize) -> u64 {
    match used.saturating_sub(at) {
        0 => 0,
        bytes @ 1..8 => (1 << (8 * bytes)) - 1,
        _ => u64::MAX,
    }
}

fn same_words(ours: &HostWords, oracles: &HostWords, first: usize, count: usize, why: &str) {
    for word in first..first + count {
        let pair = (ours.load(word), oracles.load(word));
        assert!(
            pair.0 == pair.1,
            "word {word}: {:#x} {:#x}, {why}",
            pair.0,
            pair.1
        );
    }
}

/// Posts the same to both, compares what is new in the rings, and lets both forget the rest.
fn compare_storm(send_wrs: u32, limits: Limits, wraps: u32, seed: u64) {
    let mut rng = rng("words, SQ", seed);
    let mut rig = Rig::new(Caps { send_wrs, ..WIDE }, 16, false);
    let quanta = rig.qp.sq_quanta();
    let buf = HostBuf::new(quanta as usize * 32).unwrap();
    let mut ours = SqProducer::new(buf.words(), quanta).unwrap();
    let (mine, theirs) = (buf.words(), rig.qp.sq());
    let (mut wqe, mut cleared) = (WqeBuf::new(), 0);
    while rig.wraps < wraps {
        let wr = Wr::random(&mut rng, rig.next_id, limits);
        wr.build(&mut wqe).unwrap();
        let before = ours.head();
        let slot = ours.push(&wqe);
        assert_eq!(slot.is_ok(), rig.post_this(wr.clone()), "room for {wr:?}");
        if let Ok(slot) = slot {
            assert_eq!(
                (rig.qp.sq_head(), slot.index),
                (ours.head(), rig.posted.back().unwrap().index)
            );
            let padding = slot.padding as usize * 4;
            same_words(&mine, &theirs, before as usize * 4, padding, "padding");
            let at = slot.index as usize * 4;
            for word in 0..wqe.words().len() {
                let mask = meaning(&wr, word);
                let pair = (mine.load(at + word) & mask, theirs.load(at + word) & mask);
                assert!(
                    pair.0 == pair.1,
                    "word {word}: {:#x} {:#x}, {wr:?}",
                    pair.0,
                    pair.1
                );
            }
            if slot.index.is_multiple_of(128) {
                let target = (slot.index + 128) % quanta;
                same_words(&mine, &theirs, target as usize * 4, 128 * 4, "clear-ahead");
                cleared += 1;
            }
        }
        if slot.is_err() || rng.u8(..8) == 0 {
            while rig.read() {}
            while rig.complete() {}
            ours.release_to(rig.qp.sq_tail());
            assert_eq!(ours.tail(), rig.qp.sq_tail());
        }
    }
    let wrs = rig.wrs;
    println!(
        "{wrs} requests, {} wraps of {quanta} quanta, {cleared} clear-aheads",
        rig.wraps
    );
    assert!(cleared >= wraps * quanta / 128 / 2);
}

#[test]
fn our_send_queue_has_the_oracles_words() {
    let datagrams = Limits {
        datagrams: true,
        ..Limits::ALL
    };
    compare_storm(16, Limits::ALL, 40, 5);
    compare_storm(16, datagrams, 20, 6);
    compare_storm(400, Limits::ALL, 8, 7);
    compare_storm(4063, Limits::ALL, 5, 8);
}

#[test]
fn our_receive_queue_has_the_oracles_words() {
    let mut rng = rng("words, RQ", 9);
    for recv_sges in [1, 3, 7, 13] {
        let caps = Caps { recv_sges, ..WIDE };
        let mut rig = Rig::new(caps, 16, false);
        let (wqes, shift) = (rig.qp.rq_wqes(), rig.qp.rq_shift());
        let buf = HostBuf::new((wqes as usize * 32) << shift).unwrap();
        let mut ours = RqProducer::new(buf.words(), wqes, shift).unwrap();
        let mut wqe = WqeBuf::new();
        for id in 0..6 * u64::from(wqes) {
            let count = rng.usize(0..=recv_sges as usize);
            let sges = random_sges(&mut rng, count);
            wqe.recv(&sges, None).unwrap();
            let index = ours.push(&wqe);
            assert_eq!(index.is_ok(), rig.qp.recv(id, &sges).is_ok());
            if let Ok(index) = index {
                let at = (index as usize * 4) << shift;
                same_words(&buf.words(), &rig.qp.rq(), at, wqe.words().len(), "receive");
            }
            if index.is_err() || rng.u8(..8) == 0 {
                drain_receives(&mut rig, &mut ours);
            }
        }
    }
}

fn drain_receives(rig: &mut Rig, ours: &mut RqProducer) {
    while rig.rq.peek().is_some() {
        let cqe = srdma_core::hw::CqeInfo {
            context: rig.qp.context(),
            wqe_index: rig.rq.wqe_index(),
            ..Default::default()
        };
        rig.rq.advance();
        rig.cqes.push(&cqe).unwrap();
        rig.cq.poll().unwrap();
    }
    ours.release_to(rig.qp.rq_tail());
    assert_eq!(ours.tail(), rig.qp.rq_tail());
}

#[test]
fn our_rings_have_the_oracles_sizes() {
    for sges in 0..=14 {
        for inline in 0..=256 {
            let shift = wqe_shift(sges, inline);
            assert_eq!(depth::wqe_shift(sges, inline), shift, "{sges} {inline}");
        }
    }
    for sges in 0..=13 {
        assert_eq!(depth::sq_shift(sges, 0), wqe_shift(sges + 1, 0));
        assert_eq!(depth::rq_shift(sges), wqe_shift(sges, 0));
    }
    for shift in 0..=3 {
        for wrs in 0..=40_000 {
            let what = format!("{wrs} WRs, shift {shift}");
            assert_eq!(
                depth::sq_depth(wrs, shift),
                sq_depth(wrs, shift).ok(),
                "SQ, {what}"
            );
            assert_eq!(
                depth::rq_depth(wrs, shift),
                rq_depth(wrs, shift).ok(),
                "RQ, {what}"
            );
        }
    }
}

#[test]
fn our_wqes_have_the_oracles_sizes() {
    for frags in 0..=14 {
        assert_eq!(
            Ok(sq_quanta(frags)),
            fragment_quanta(frags).map(u32::from),
            "{frags}"
        );
    }
    for frags in 0..=16 {
        let bytes = rwqe::rq_shift_for(frags).map(|shift| 32u16 << shift);
        assert_eq!(bytes, rq_wqe_bytes(frags).ok(), "{frags}");
    }
}
