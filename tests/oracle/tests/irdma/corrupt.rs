//! Wrong valid bits: neither side takes an entry that is not of its lap.

use crate::rig::{QPN, Rig, WIDE, rng};
use srdma_core::hw::wqe::{SendWr, WrFlags};
use srdma_core::hw::{CqeInfo, RqCmd, SqCmd, WqeFault};
use srdma_core::num::Qpn;
use srdma_oracle::Refused;
use srdma_oracle::wr::{Payload, Work, Wr, random_sges};

const VALID: u64 = 1 << 63;

/// Moves the ring of a fresh rig to a random place, over more than one lap.
fn somewhere(seed: u64) -> (Rig, fastrand::Rng) {
    let mut rng = rng("corrupt", seed);
    let mut rig = Rig::new(WIDE, 7, false);
    for _ in 0..rng.u32(0..1000) {
        let id = rig.next_id;
        let flags = WrFlags::SIGNALED;
        let work = Work::Nop;
        assert!(rig.post_this(Wr { id, flags, work }));
        assert!(rig.read() && rig.complete());
    }
    (rig, rng)
}

#[test]
fn the_device_stands_still_at_a_send_of_another_lap() {
    for seed in 10..30 {
        let (mut rig, mut rng) = somewhere(seed);
        let sges = random_sges(&mut rng, 13);
        let wr = Wr {
            id: rig.next_id,
            flags: WrFlags::SIGNALED,
            work: Work::Send(SendWr::default(), Payload::Sges(sges)),
        };
        assert!(rig.post_this(wr));
        let at = rig.posted.front().unwrap().index as usize * 4;
        let (ring, mut cmd) = (rig.qp.sq(), SqCmd::new());
        // The header: nothing is there, and the consumer does not move, however often it looks.
        ring.store(at + 3, ring.load(at + 3) ^ VALID);
        while let Some(padding) = rig.sq.read(&mut cmd) {
            padding.unwrap();
            assert!(rig.sq.index() != rig.posted.front().unwrap().index);
            rig.sq.advance(&cmd);
        }
        let stands = rig.sq.index();
        for _ in 0..3 {
            assert!(rig.sq.read(&mut cmd).is_none());
            assert_eq!(rig.sq.index(), stands);
        }
        // A later quantum: the WQE is there, and is refused as a whole.
        ring.store(at + 3, ring.load(at + 3) ^ VALID);
        for quantum in 1..7 {
            let word = at + quantum * 4 + 3;
            ring.store(word, ring.load(word) ^ VALID);
            let parsed = rig.sq.read(&mut cmd).unwrap();
            assert_eq!(parsed, Err(WqeFault::QuantumNotValid), "quantum {quantum}");
            ring.store(word, ring.load(word) ^ VALID);
        }
        assert!(rig.read() && rig.complete());
    }
}

#[test]
fn the_device_stands_still_at_a_receive_of_another_lap() {
    for seed in 30..50 {
        let (mut rig, mut rng) = somewhere(seed);
        let sges = random_sges(&mut rng, 13);
        rig.qp.recv(1, &sges).unwrap();
        let (ring, mut cmd) = (rig.qp.rq(), RqCmd::default());
        ring.store(3, ring.load(3) ^ VALID);
        assert!(rig.rq.read(&mut cmd).is_none() && rig.rq.index() == 0);
        ring.store(3, ring.load(3) ^ VALID);
        for quantum in 1..7 {
            let word = quantum * 4 + 3;
            ring.store(word, ring.load(word) ^ VALID);
            let parsed = rig.rq.read(&mut cmd).unwrap();
            assert_eq!(parsed, Err(WqeFault::QuantumNotValid), "quantum {quantum}");
            ring.store(word, ring.load(word) ^ VALID);
        }
        rig.rq.read(&mut cmd).unwrap().unwrap();
        assert_eq!(cmd.sges.as_slice(), &sges[..]);
    }
}

#[test]
fn the_oracle_stands_still_at_a_completion_of_another_lap() {
    for (seed, wide) in (50..90).zip([false, true].into_iter().cycle()) {
        let mut rng = rng("corrupt, completions", seed);
        let mut rig = Rig::new(WIDE, 7, wide);
        for id in 0..rng.u64(1..60) {
            rig.qp.recv(id, &[]).unwrap();
            let cqe = CqeInfo {
                qpn: Qpn::new(QPN),
                context: rig.qp.context(),
                wqe_index: rig.rq.wqe_index(),
                imm: rng.bool().then_some(7),
                ..CqeInfo::default()
            };
            rig.rq.advance();
            let (head, ring) = (rig.cq.head() as usize, rig.cq.words());
            rig.cqes.push(&cqe).unwrap();
            let stride = if wide { 8 } else { 4 };
            let ext = if wide {
                head * 8 + 7
            } else {
                (head + 1) % 7 * 4 + 3
            };
            let mut headers = vec![head * stride + 3];
            headers.extend(cqe.imm.map(|_| ext));
            for word in headers {
                ring.store(word, ring.load(word) ^ VALID);
                for _ in 0..3 {
                    assert_eq!(rig.cq.poll(), Err(Refused::EMPTY));
                    assert_eq!(rig.cq.head() as usize, head, "it stands still");
                }
                ring.store(word, ring.load(word) ^ VALID);
            }
            assert_eq!(rig.cq.poll().unwrap().imm, cqe.imm);
            assert_ne!(rig.cq.head() as usize, head);
        }
    }
}
