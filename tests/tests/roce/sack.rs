//! What devices of our kind tell each other of packets that are held behind a hole. [RoCEv2 6.5]

use srdma_core::limits::DEFAULT_RMEM;
use srdma_core::qp::attr::QpState;
use srdma_core::wire::NakCode;
use srdma_tests::node::{Node, QpSpec};
use srdma_tests::rig::{RQ_PSN, Rig, SQ_PSN};
use srdma_tests::wire_dsl::{Frame, Heard, ack, answers, nak, read_response, send_only};

/// The payload that says: packets with these places behind the expected one are held, and what is
/// not held before `lost` will not come.
fn says(lost: u16, held: &[u32]) -> Vec<u8> {
    let words = held.iter().map(|place| place.div_ceil(64)).max().unwrap();
    let mut bits = vec![0u64; words as usize];
    for place in held {
        bits[((place - 1) / 64) as usize] |= 1 << ((place - 1) % 64);
    }
    let [a, b] = lost.to_be_bytes();
    let mut bytes = vec![1, u8::try_from(words).unwrap(), a, b];
    bytes.extend(bits.iter().flat_map(|word| word.to_be_bytes()));
    bytes
}

fn saying(mut frame: Frame, lost: u16, held: &[u32]) -> Frame {
    frame.payload = says(lost, held);
    frame
}

/// NAK at packet `n`, with `held` numbers of packets and `lost` before one.
fn missing(n: u32, lost: u32, held: impl IntoIterator<Item = u32>) -> Frame {
    let held: Vec<u32> = held.into_iter().map(|h| h - n).collect();
    let lost = u16::try_from(lost - n).unwrap();
    saying(nak(SQ_PSN + n, NakCode::PSN_SEQUENCE), lost, &held)
}

/// A requester with `n` SENDs in flight.
fn flying(n: u32) -> Rig {
    let spec = QpSpec::default().own_kind();
    let mut rig = Rig::on(Node::keeping("10.0.0.1"), &spec);
    for _ in 0..n {
        rig.send(0, 4);
    }
    assert_eq!(rig.transmit().len(), n as usize);
    rig.node.advance(50_000);
    rig
}

fn psns(heard: &[Heard]) -> Vec<u32> {
    heard.iter().map(|h| h.psn() - SQ_PSN).collect()
}

#[test]
fn all_that_is_lost_is_sent_again_at_once_and_nothing_else() {
    // proves: ieq-10, sack-1
    let mut rig = flying(30);
    let held = (3..30).filter(|n| ![10, 11, 20, 28].contains(n));
    let heard = rig.hear(missing(2, 25, held.clone()));
    // 28 may be late yet.
    assert_eq!(psns(&heard), [2, 10, 11, 20]);
    assert!(heard.iter().all(|h| h.head.bth.ack_req));
    // The same again tells nothing new.
    assert!(rig.hear(missing(2, 25, held.clone())).is_empty());
    assert_eq!(psns(&rig.hear(missing(2, 29, held))), [28]);
    rig.tell(ack(SQ_PSN + 29));
    assert_eq!(rig.done().len(), 30);
    assert_eq!(rig.counter("retransmitted_pkts"), 5);
    assert_eq!(rig.counter("completer_retry_err"), 0);
    rig.node.advance(1_000_000_000);
    assert!(rig.transmit().is_empty());
}

#[test]
fn what_is_lost_again_is_sent_again() {
    // proves: sack-1
    let mut rig = flying(10);
    assert_eq!(psns(&rig.hear(missing(2, 9, 3..10))), [2]);
    rig.send(0, 4);
    assert_eq!(psns(&rig.transmit()), [10]);
    // What was sent after it is there.
    assert_eq!(psns(&rig.hear(missing(2, 10, 3..11))), [2]);
    // Nothing is heard for long: again, later and later, for as long as the time-outs last.
    let mut times = 0;
    for _ in 0..100 {
        rig.node.advance(1_000_000);
        times += rig
            .transmit()
            .iter()
            .filter(|h| h.psn() == SQ_PSN + 2)
            .count();
    }
    assert!((3..20).contains(&times), "{times}");
    assert_eq!(rig.state(), QpState::Rts);
    rig.tell(ack(SQ_PSN + 10));
    assert_eq!(rig.done().len(), 11);
}

#[test]
fn what_is_held_takes_no_room() {
    // proves: sack-1
    let spec = QpSpec {
        peer_rx: DEFAULT_RMEM,
        ..QpSpec::default()
    };
    let mut rig = Rig::on(Node::keeping("10.0.0.1"), &spec);
    for _ in 0..40 {
        rig.send(0, 60_000);
    }
    let first = u32::try_from(rig.transmit().len()).unwrap();
    assert!(first > 100, "{first}");
    assert!(rig.transmit().is_empty(), "there is no more room");
    // Not everything is lost that is not there, and there is room for what has arrived.
    let frame = saying(ack(SQ_PSN - 1), 0, &(1..first).collect::<Vec<_>>());
    let heard = psns(&rig.hear(frame));
    assert_eq!(heard.first(), Some(&first), "nothing again");
    assert!(heard.len() * 2 >= first as usize, "{}", heard.len());
    // A receiver holds no more than so many packets.
    for n in 1..10 {
        let frame = saying(ack(SQ_PSN - 1), 0, &(1..first * n).collect::<Vec<_>>());
        rig.hear(frame);
    }
    let counted = rig.counter("sent_pkts");
    assert!((500..=600).contains(&counted), "{counted}");
    // All that was given back is not given back again.
    rig.tell(ack(SQ_PSN + first));
    rig.node.advance(1_000_000);
    rig.tell(nak(SQ_PSN + first + 1, NakCode::PSN_SEQUENCE));
    rig.transmit();
}

#[test]
fn an_old_or_a_wrong_word_does_no_harm() {
    let mut rig = flying(10);
    rig.tell(ack(SQ_PSN + 4));
    rig.tell(missing(2, 9, 3..10));
    // Of packets that were never sent.
    assert!(
        rig.hear(saying(ack(SQ_PSN + 4), 1000, &[500, 1000]))
            .is_empty()
    );
    let mut frame = nak(SQ_PSN + 5, NakCode::PSN_SEQUENCE);
    frame.payload = vec![9; 12];
    assert_eq!(psns(&rig.hear(frame)), [5], "a NAK as of anybody");
    assert!(
        rig.hear(saying(ack(SQ_PSN + 9), 1000, &[1, 500]))
            .is_empty()
    );
    assert_eq!(rig.done().len(), 10);
    assert_eq!(rig.state(), QpState::Rts);
}

#[test]
fn a_request_for_a_read_is_held_and_its_answer_awaited() {
    // proves: sack-1
    let spec = QpSpec::default().own_kind();
    let mut rig = Rig::on(Node::keeping("10.0.0.1"), &spec);
    rig.send(0, 4);
    let (sge, key) = (rig.mem.sge(1024, 3072), rig.mem.rkey());
    rig.node.read(rig.qp, &[sge], 0x10_0000, key);
    rig.send(0, 4);
    rig.node.read(rig.qp, &[sge], 0x10_0000, key);
    rig.send(0, 4);
    assert_eq!(psns(&rig.transmit()), [0, 1, 4, 5, 8]);
    // The first packet and the second READ are lost; the first READ is held.
    assert_eq!(psns(&rig.hear(missing(0, 8, [1, 4, 8]))), [0, 5]);
    for n in 0..3u32 {
        rig.tell(read_response(SQ_PSN + 1 + n, n == 0, n == 2, &[1; 1024]));
    }
    for n in 0..3u32 {
        rig.tell(read_response(SQ_PSN + 5 + n, n == 0, n == 2, &[1; 1024]));
    }
    rig.tell(ack(SQ_PSN + 8));
    assert_eq!(rig.done().len(), 5);
    assert_eq!(rig.counter("retransmitted_pkts"), 2);
}

/// A responder; the peer is of its kind, or not.
fn serving(own: bool) -> Rig {
    let spec = QpSpec::default();
    let spec = if own { spec.own_kind() } else { spec };
    let mut rig = Rig::on(Node::keeping("10.0.0.1"), &spec);
    for _ in 0..40 {
        rig.recv(0, 64);
    }
    rig
}

fn nth(n: u32) -> Frame {
    send_only(RQ_PSN + n, b"x")
}

#[test]
fn the_peer_is_told_of_all_holes_at_once() {
    // proves: sack-1
    for own in [true, false] {
        let mut rig = serving(own);
        rig.hear(nth(0));
        for n in [2, 3, 6] {
            assert!(rig.hear(nth(n)).is_empty());
        }
        rig.node.advance(1_000_000);
        let heard = rig.transmit();
        assert_eq!(answers(&heard), [(0x11, RQ_PSN + 1, 0x60)]);
        let word = if own { says(6, &[1, 2, 5]) } else { vec![] };
        assert_eq!(heard[0].payload, word);
        // A hole that is new is told when it is as old as the first was.
        rig.tell(nth(9));
        let soon = rig.transmit();
        rig.node.advance(100_000);
        let heard = [soon, rig.transmit()].concat();
        if own {
            assert_eq!(heard.last().unwrap().payload, says(9, &[1, 2, 5, 8]));
            assert_eq!(answers(&heard), [(0x11, RQ_PSN + 1, 0x60)]);
        } else {
            assert!(heard.is_empty());
        }
        // Whoever asks learns what has arrived.
        let heard = rig.hear(nth(10).ack());
        assert_eq!(heard.len(), usize::from(own));
        let heard = rig.hear(nth(1));
        assert!(heard[0].payload.is_empty() || own);
        for n in [4, 5, 7, 8] {
            rig.tell(nth(n));
        }
        let heard = rig.transmit();
        assert_eq!(answers(&heard).last(), Some(&(0x11, RQ_PSN + 10, 0x1f)));
        assert!(heard.last().unwrap().payload.is_empty(), "nothing is held");
        assert_eq!(rig.poll().len(), 11);
    }
}

#[test]
fn who_asks_before_the_hole_is_told_learns_what_is_held() {
    // proves: sack-1
    let mut rig = serving(true);
    rig.hear(nth(0));
    let heard = rig.hear(nth(2).ack());
    assert_eq!(answers(&heard), [(0x11, RQ_PSN, 0x1f)]);
    assert_eq!(
        heard[0].payload,
        says(0, &[1]),
        "the hole may yet be filled"
    );
    let mut rig = serving(false);
    rig.hear(nth(0));
    assert!(rig.hear(nth(2).ack()).is_empty());
}
