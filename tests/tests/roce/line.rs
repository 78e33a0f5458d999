//! Messages in line behind one that has a hole: their payload goes to its place at once if nothing
//! of an earlier one would go there later.
//! [E810 8.6.4, RoCEv2 6.3]

use crate::placed::{MTU, keeping, stats};
use srdma_core::num::Rkey;
use srdma_core::qp::attr::QpState;
use srdma_core::wire::FAR;
use srdma_tests::node::{Node, QpSpec, pattern};
use srdma_tests::rig::{RQ_PSN, Rig};
use srdma_tests::wire_dsl::{
    Frame, answers, read_request, send_first, send_last, send_middle, send_only, write_first,
    write_last, write_last_imm, write_middle, write_only,
};

/// What a message does.
#[derive(Clone, Copy, Debug)]
pub(super) enum What {
    Send,
    Write(u64, Rkey),
    /// The same with immediate data, if it has more than a packet.
    WriteImm(u64, Rkey),
}

/// The packets of a message, the first of which has `psn`.
fn message(psn: u32, what: What, bytes: &[u8]) -> Vec<Frame> {
    let len = u32::try_from(bytes.len()).expect("short");
    let count = bytes.len().div_ceil(MTU).max(1);
    let packet = |(n, part): (usize, &[u8])| {
        let psn = psn + u32::try_from(n).expect("a few");
        match (what, n == 0, n + 1 == count) {
            (What::Send, true, true) => send_only(psn, part),
            (What::Send, true, false) => send_first(psn, part),
            (What::Send, false, false) => send_middle(psn, part),
            (What::Send, false, true) => send_last(psn, part),
            (What::Write(addr, rkey) | What::WriteImm(addr, rkey), true, true) => {
                write_only(psn, addr, rkey, part)
            }
            (What::Write(addr, rkey) | What::WriteImm(addr, rkey), true, false) => {
                write_first(psn, addr, rkey, len, part)
            }
            (What::Write(..) | What::WriteImm(..), false, false) => write_middle(psn, part),
            (What::Write(..), false, true) => write_last(psn, part),
            (What::WriteImm(..), false, true) => write_last_imm(psn, part, [1, 2, 3, 4]),
        }
    };
    bytes.chunks(MTU).enumerate().map(packet).collect()
}

/// The same of a peer of our own kind, which tells the place of each packet.
pub(super) fn told_message(psn: u32, what: What, bytes: &[u8]) -> Vec<Frame> {
    let told = |(n, frame): (usize, Frame)| match what {
        What::Send => frame.told(u8::try_from(n).unwrap_or(FAR).min(FAR)),
        _ => frame,
    };
    let plain = message(psn, what, bytes).into_iter();
    plain.enumerate().map(told).collect()
}

/// A device that keeps packets, with a peer of its own kind.
pub(super) fn with_own_kind() -> Rig {
    let spec = QpSpec::default().own_kind();
    Rig::on(Node::keeping("10.0.0.1"), &spec)
}

/// Says the packets of `from` with these numbers.
pub(super) fn tell(rig: &mut Rig, from: &[Frame], numbers: impl IntoIterator<Item = usize>) {
    for n in numbers {
        rig.tell(from[n].clone());
    }
}

pub(super) fn ahead(rig: &Rig) -> u64 {
    rig.counter("requests_ahead")
}

#[test]
fn the_middle_of_the_next_write_is_placed_at_once() {
    // proves: ieq-18
    let mut rig = keeping();
    let to = |rig: &Rig, at| What::Write(rig.mem.at(at), rig.mem.rkey());
    let (one, two) = (pattern(3 * MTU, 1), pattern(4 * MTU, 2));
    let mut frames = message(RQ_PSN, to(&rig, 0), &one);
    frames.extend(message(RQ_PSN + 3, to(&rig, 8192), &two));
    tell(&mut rig, &frames, [0, 2, 3, 5, 4]);
    let seen = rig.mem.read(8192, two.len());
    assert_eq!(seen[MTU..3 * MTU], two[MTU..3 * MTU]);
    assert!(
        seen[..MTU]
            .iter()
            .chain(&seen[3 * MTU..])
            .all(|byte| *byte == 0)
    );
    assert_eq!((ahead(&rig), rig.node.hca.ieq_buffers().1), (2, 2));
    tell(&mut rig, &frames, [6, 1]);
    assert_eq!(rig.mem.read(0, one.len()), one);
    assert_eq!(rig.mem.read(8192, two.len()), two);
    let heard = rig.transmit();
    assert_eq!(answers(&heard), [(0x11, RQ_PSN + 6, 0x1f)]);
    assert_eq!((stats(&rig).list_len, rig.node.hca.ieq_buffers().1), (0, 0));
}

#[test]
fn where_an_earlier_message_has_bytes_to_come_a_later_one_waits() {
    // proves: ieq-18
    let mut rig = keeping();
    let to = What::Write(rig.mem.at(0), rig.mem.rkey());
    let (one, two) = (pattern(5 * MTU, 1), pattern(5 * MTU, 2));
    let mut frames = message(RQ_PSN, to, &one);
    frames.extend(message(RQ_PSN + 5, to, &two));
    tell(&mut rig, &frames, [0, 2, 3, 4, 5, 6, 7]);
    let seen = rig.mem.read(0, one.len());
    assert!(
        seen[MTU..2 * MTU].iter().all(|byte| *byte == 0),
        "1 is missing, 6 waits for it"
    );
    assert_eq!(seen[2 * MTU..3 * MTU], two[2 * MTU..3 * MTU]);
    assert_eq!(seen[3 * MTU..4 * MTU], one[3 * MTU..4 * MTU]);
    tell(&mut rig, &frames, [1]);
    let seen = rig.mem.read(0, one.len());
    assert_eq!(seen[..3 * MTU], two[..3 * MTU]);
    assert_eq!(seen[3 * MTU..], one[3 * MTU..]);
    tell(&mut rig, &frames, [8, 9]);
    assert_eq!(rig.mem.read(0, two.len()), two);

    // Where the earlier one does not reach, nothing is waited for.
    let mut rig = keeping();
    let to = What::Write(rig.mem.at(0), rig.mem.rkey());
    let mut frames = message(RQ_PSN, to, &one[..3 * MTU]);
    frames.extend(message(RQ_PSN + 3, to, &two));
    tell(&mut rig, &frames, [0, 2, 3, 4, 5, 6]);
    assert_eq!(ahead(&rig), 1);
    let seen = rig.mem.read(0, two.len());
    assert_eq!(seen[3 * MTU..4 * MTU], two[3 * MTU..4 * MTU]);
    assert!(seen[MTU..3 * MTU].iter().all(|byte| *byte == 0));

    // Not by whole packets: two of the one lie under each of the other.
    let mut rig = keeping();
    let key = rig.mem.rkey();
    let mut frames = message(RQ_PSN, What::Write(rig.mem.at(0), key), &one);
    frames.extend(message(RQ_PSN + 5, What::Write(rig.mem.at(512), key), &two));
    // 7 goes over the second halves of 2 and the first of 3: both are there. 6 needs 1, 8 needs 4.
    tell(&mut rig, &frames, [0, 2, 3, 5, 6, 7, 8]);
    assert_eq!(ahead(&rig), 3);
    assert_eq!(rig.mem.read(512 + 2048, MTU), two[2 * MTU..3 * MTU]);
    tell(&mut rig, &frames, [4, 1, 9]);
    assert_eq!(rig.mem.read(512, two.len()), two);
    assert_eq!(rig.mem.read(0, 512), one[..512]);
}

#[test]
fn the_middle_of_the_next_send_goes_to_the_next_receive() {
    // proves: ieq-18
    let mut rig = keeping();
    for n in 0..3 {
        rig.recv(8192 * n, 8192);
    }
    let bytes: Vec<_> = (0..3).map(|n| pattern(4 * MTU, n + 1)).collect();
    let mut frames = Vec::new();
    for (n, bytes) in (0..).zip(&bytes) {
        frames.extend(message(RQ_PSN + 4 * n, What::Send, bytes));
    }
    // The end of the second is missing as well: what is between 6 and 8 can only be that.
    tell(&mut rig, &frames, [0, 2, 3, 4, 5, 6, 8, 9, 10]);
    for (n, parts) in [(1, 1..3), (2, 1..3)] {
        let seen = rig.mem.read(8192 * n, 4 * MTU);
        let part = parts.start * MTU..parts.end * MTU;
        assert_eq!(seen[part.clone()], bytes[n][part], "receive {n}");
    }
    assert_eq!(ahead(&rig), 5);
    assert!(rig.poll().is_empty());
    tell(&mut rig, &frames, [11, 7, 1]);
    let done: Vec<_> = rig.poll().iter().map(|wc| (wc.wr_id, wc.cqe.len)).collect();
    assert_eq!(done, [(0, 4096), (1, 4096), (2, 4096)]);
    for (n, bytes) in (0..).zip(&bytes) {
        assert_eq!(&rig.mem.read(8192 * n, bytes.len()), bytes);
    }
}

#[test]
fn what_fills_a_hole_tells_what_lies_behind_it() {
    // proves: ieq-18
    let mut rig = keeping();
    rig.recv(0, 8192);
    rig.recv(8192, 8192);
    let (one, two) = (pattern(6 * MTU, 1), pattern(5 * MTU, 2));
    let mut frames = message(RQ_PSN, What::Send, &one);
    frames.extend(message(RQ_PSN + 6, What::Send, &two));
    // 1 and 2 might be an end and a beginning, until one of them is here.
    tell(&mut rig, &frames, [0, 3, 5, 6]);
    assert_eq!(ahead(&rig), 0);
    tell(&mut rig, &frames, [2, 7, 8]);
    assert_eq!(ahead(&rig), 3);
    let seen = rig.mem.read(8192, two.len());
    assert_eq!(seen[MTU..3 * MTU], two[MTU..3 * MTU]);
    tell(&mut rig, &frames, [1, 4, 9, 10]);
    assert_eq!(rig.mem.read(0, one.len()), one);
    assert_eq!(rig.mem.read(8192, two.len()), two);

    // The same where it is the expected packet that comes.
    let mut rig = keeping();
    rig.recv(0, 8192);
    tell(&mut rig, &frames, [0, 3, 1, 4]);
    assert_eq!(ahead(&rig), 1);
    assert_eq!(rig.mem.read(4 * MTU, MTU), one[4 * MTU..5 * MTU]);

    // The beginning of a WRITE comes behind that of the next.
    let mut rig = keeping();
    let to = |rig: &Rig, at| What::Write(rig.mem.at(at), rig.mem.rkey());
    let mut frames = message(RQ_PSN, to(&rig, 0), &one[..3 * MTU]);
    frames.extend(message(RQ_PSN + 3, to(&rig, 8192), &two[..3 * MTU]));
    frames.extend(message(RQ_PSN + 6, to(&rig, 16384), &two));
    tell(&mut rig, &frames, [0, 2, 4, 5, 6, 7]);
    assert_eq!(ahead(&rig), 0);
    tell(&mut rig, &frames, [3, 8]);
    assert_eq!(ahead(&rig), 1);
    assert_eq!(rig.mem.read(16384 + 2 * MTU, MTU), two[2 * MTU..3 * MTU]);
    tell(&mut rig, &frames, [1, 9, 10]);
    assert_eq!(rig.mem.read(16384, two.len()), two);
}

#[test]
fn receives_into_the_same_buffer_are_filled_in_their_order() {
    // proves: ieq-18
    let mut rig = keeping();
    rig.recv(0, 8192);
    rig.recv(0, 8192);
    let (one, two) = (pattern(4 * MTU, 1), pattern(3 * MTU, 2));
    let mut frames = message(RQ_PSN, What::Send, &one);
    frames.extend(message(RQ_PSN + 4, What::Send, &two));
    tell(&mut rig, &frames, [0, 2, 3, 4, 5]);
    assert!(rig.mem.read(MTU, MTU).iter().all(|byte| *byte == 0));
    tell(&mut rig, &frames, [1]);
    let seen = rig.mem.read(0, 4 * MTU);
    assert_eq!(
        (&seen[..2 * MTU], &seen[2 * MTU..]),
        (&two[..2 * MTU], &one[2 * MTU..])
    );
    tell(&mut rig, &frames, [6]);
    assert_eq!(rig.mem.read(0, two.len()), two);

    // Where the earlier one does not reach, nothing is waited for.
    let mut rig = keeping();
    rig.recv(0, 8192);
    rig.recv(0, 8192);
    let mut frames = message(RQ_PSN, What::Send, &two);
    frames.extend(message(RQ_PSN + 3, What::Send, &pattern(5 * MTU, 1)));
    tell(&mut rig, &frames, [0, 2, 3, 4, 5, 6]);
    assert_eq!(ahead(&rig), 1);
    assert!(rig.mem.read(MTU, 2 * MTU).iter().all(|byte| *byte == 0));
}

#[test]
fn behind_anything_else_all_wait() {
    // proves: ieq-18
    let (one, two) = (pattern(3 * MTU, 1), pattern(3 * MTU, 2));
    let mut rig = keeping();
    let key = rig.mem.rkey();
    let mut frames = message(RQ_PSN, What::Write(rig.mem.at(0), key), &one);
    // A READ may be the last of them, or stand for more than one packet.
    frames.push(read_request(RQ_PSN + 3, rig.mem.at(8192), key, 100));
    frames.extend(message(
        RQ_PSN + 4,
        What::Write(rig.mem.at(8192), key),
        &two,
    ));
    tell(&mut rig, &frames, [0, 2, 3, 4, 5, 6]);
    assert!(rig.mem.read(8192, two.len()).iter().all(|byte| *byte == 0));
    // The same where it did not come.
    let mut rig = keeping();
    tell(&mut rig, &frames, [0, 2, 4, 5, 6]);
    assert!(rig.mem.read(8192, two.len()).iter().all(|byte| *byte == 0));

    // Who takes the next entry of a shared queue is not known.
    let mut node = Node::keeping("10.0.0.1");
    let srq = node.create_srq(64, 0);
    let spec = QpSpec {
        srq: Some(srq),
        ..QpSpec::default()
    };
    let mut rig = Rig::on(node, &spec);
    for n in 0..2 {
        let sge = rig.mem.sge(8192 * n, 8192);
        rig.node.post_srq(srq, &[sge]);
    }
    let mut frames = message(RQ_PSN, What::Send, &one);
    frames.extend(message(RQ_PSN + 3, What::Send, &two));
    tell(&mut rig, &frames, [0, 2, 3, 4, 5]);
    assert!(rig.mem.read(8192, two.len()).iter().all(|byte| *byte == 0));
    tell(&mut rig, &frames, [1]);
    assert_eq!(rig.mem.read(8192, two.len()), two);
}

#[test]
fn no_key_and_no_receive_means_no_place() {
    // proves: ieq-18
    let (one, two) = (pattern(3 * MTU, 1), pattern(3 * MTU, 2));
    let mut rig = keeping();
    let key = rig.mem.rkey();
    let mut frames = message(RQ_PSN, What::Write(rig.mem.at(0), key), &one);
    let elsewhere = What::Write(rig.mem.at(8192), Rkey(key.0 ^ 0x1100));
    frames.extend(message(RQ_PSN + 3, elsewhere, &two));
    tell(&mut rig, &frames, [0, 2, 3, 4, 5]);
    assert_eq!(ahead(&rig), 0);
    let heard = rig.hear(frames[1].clone());
    assert_eq!(answers(&heard).last(), Some(&(0x11, RQ_PSN + 3, 0x62)));
    assert_eq!(rig.state(), QpState::Err);

    let mut rig = keeping();
    rig.recv(0, 8192);
    let mut frames = message(RQ_PSN, What::Send, &one);
    frames.extend(message(RQ_PSN + 3, What::Send, &two));
    tell(&mut rig, &frames, [0, 2, 3, 4, 5]);
    assert_eq!(ahead(&rig), 0, "there is no receive yet");
    rig.recv(8192, 2048);
    tell(&mut rig, &frames, [1]);
    assert_eq!(rig.poll().len(), 2, "the second is too long for it");
}

/// Messages at random, over each other at random, in any order that a window allows: memory and
/// completions are those of the right order.
#[test]
fn in_whatever_order_they_come_the_outcome_is_that_of_the_right_one() {
    // proves: ieq-18, ieq-17
    let seed: u64 = std::env::var("SRDMA_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or_else(|| fastrand::u64(..));
    println!("SRDMA_SEED={seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut placed = 0;
    for round in 0..2000 {
        placed += one_round(&mut rng, round);
    }
    assert!(
        placed > 500,
        "only {placed} packets were placed ahead of their turn"
    );
}

/// Says so many messages in order to one device, out of order to another, and compares; how many
/// packets were placed ahead of their turn.
fn one_round(rng: &mut fastrand::Rng, round: u32) -> u64 {
    let own_kind = rng.bool();
    let rig = || if own_kind { with_own_kind() } else { keeping() };
    let (mut right, mut wrong) = (rig(), rig());
    let message = if own_kind { told_message } else { message };
    // Places of a message: all over each other, half over each other, or apart.
    let step = [0, 512, 3 * 1024, 8 * 1024][rng.usize(..4)];
    let sends = rng.u8(..3);
    let (mut frames, mut of_wrong, mut psn) = (Vec::new(), Vec::new(), RQ_PSN);
    for n in 0..rng.u8(2..7) {
        let at = step * rng.u64(..4);
        let bytes = pattern(rng.usize(MTU..6 * MTU), n.wrapping_mul(37).wrapping_add(1));
        let send = sends == 2 || (sends == 1 && rng.bool());
        let imm = rng.u8(..3) == 0 && bytes.len() > MTU;
        let reads = rng.u8(..10) == 0;
        let mut packets = 1;
        for (rig, frames) in [(&mut right, &mut frames), (&mut wrong, &mut of_wrong)] {
            let (addr, key) = (rig.mem.at(at), rig.mem.rkey());
            if reads {
                frames.push(read_request(psn, addr, key, 64));
                continue;
            }
            let what = match (send, imm) {
                (true, _) => What::Send,
                (false, true) => What::WriteImm(addr, key),
                (false, false) => What::Write(addr, key),
            };
            // Where that of a WRITE points, nothing goes.
            match what {
                What::Send => rig.recv(at, 6 * 1024),
                What::WriteImm(..) => rig.recv(40 * 1024, 6 * 1024),
                What::Write(..) => {}
            }
            let more = message(psn, what, &bytes);
            packets = u32::try_from(more.len()).expect("a few");
            frames.extend(more);
        }
        psn += packets;
    }
    for frame in &frames {
        right.hear(frame.clone());
    }
    // Late ones come up to so many packets later.
    let late = rng.usize(1..12);
    let mut order: Vec<_> = (0..frames.len())
        .map(|n| {
            let by = if rng.u8(..4) == 0 {
                rng.usize(..=late)
            } else {
                0
            };
            (n + by, n)
        })
        .collect();
    order.sort_unstable();
    for (_, n) in order {
        for _ in 0..1 + u8::from(rng.u8(..8) == 0) {
            wrong.hear(of_wrong[n].clone());
        }
    }
    let said = |rig: &mut Rig| -> Vec<_> {
        let done = rig.poll();
        let brief = done.iter().map(|wc| (wc.wr_id, wc.cqe.len, wc.status));
        brief.collect()
    };
    assert_eq!(said(&mut wrong), said(&mut right), "round {round}");
    let size = 48 * 1024;
    assert!(
        wrong.mem.read(0, size) == right.mem.read(0, size),
        "round {round}: memory"
    );
    assert_eq!(stats(&wrong).list_len, 0, "round {round}");
    assert_eq!(wrong.node.hca.ieq_buffers().1, 0, "round {round}");
    ahead(&wrong)
}
