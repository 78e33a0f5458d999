//! What a peer of our own kind tells of a packet's place in its message: more of what comes ahead
//! of its turn goes to its place at once.
//! [RoCEv2 6.5]

use crate::line::{What, ahead, tell, told_message, with_own_kind};
use crate::placed::{MTU, keeping};
use srdma_core::qp::attr::QpState;
use srdma_core::wire::FAR;
use srdma_tests::node::{QpSpec, pattern};
use srdma_tests::rig::{RQ_PSN, Rig};

#[test]
fn our_own_kind_tells_which_message_a_packet_is_of() {
    // proves: place-1, ieq-17, ieq-18
    let mut rig = with_own_kind();
    rig.recv(0, 8192);
    rig.recv(8192, 8192);
    let (one, two) = (pattern(7 * MTU, 1), pattern(6 * MTU, 2));
    let mut frames = told_message(RQ_PSN, What::Send, &one);
    frames.extend(told_message(RQ_PSN + 7, What::Send, &two));
    // Between 0 and 4 a message might end and another begin, but 4 tells that none does.
    tell(&mut rig, &frames, [0, 4, 5]);
    assert_eq!(ahead(&rig), 2);
    assert_eq!(rig.mem.read(4 * MTU, 2 * MTU), one[4 * MTU..6 * MTU]);
    // The next message is not in line while its beginning is missing.
    tell(&mut rig, &frames, [10]);
    assert_eq!(ahead(&rig), 2);
    tell(&mut rig, &frames, [6, 7, 11]);
    assert_eq!(ahead(&rig), 3);
    tell(&mut rig, &frames, [1, 2, 3, 8, 9, 12]);
    assert_eq!(rig.poll().len(), 2);
    assert_eq!(rig.mem.read(0, one.len()), one);
    assert_eq!(rig.mem.read(8192, two.len()), two);

    // Of others the bits mean nothing.
    let mut rig = keeping();
    rig.recv(0, 8192);
    tell(&mut rig, &frames, [0, 4, 5]);
    assert_eq!(ahead(&rig), 0);
}

#[test]
fn only_sends_to_our_own_kind_tell_it() {
    // proves: place-1
    let places = |spec: &QpSpec, write: bool, packets: usize| -> Vec<u8> {
        let mut rig = Rig::with(spec);
        rig.mem = rig.node.mem(packets * MTU);
        let len = u32::try_from(packets * MTU).expect("short");
        if write {
            let sge = rig.mem.sge(0, len);
            rig.node.write(rig.qp, &[sge], 0x1000, rig.mem.rkey());
        } else {
            rig.send(0, len);
        }
        let heard = rig.transmit();
        heard.iter().map(|heard| heard.head.bth.place).collect()
    };
    let ours = QpSpec::default().own_kind();
    assert_eq!(places(&ours, false, 4), [0, 1, 2, 3]);
    assert_eq!(places(&ours, true, 4), [0; 4]);
    assert_eq!(places(&QpSpec::default(), false, 4), [0; 4]);
    let far = places(&ours, false, 130);
    assert_eq!(far.len(), 130);
    assert_eq!(far[126..], [126, FAR, FAR, FAR]);
}

#[test]
fn far_into_a_message_it_is_the_packet_before_that_tells() {
    // proves: place-1
    let bytes = pattern(300 * MTU, 1);
    let frames = told_message(RQ_PSN, What::Send, &bytes);
    let far = usize::from(FAR);
    // The last packet before the hole, and the first behind it.
    for (last, next, known) in [
        (0, far - 1, true),
        (0, far, true),
        (0, far + 1, false),
        (far, 2 * far, true),
        (far, 2 * far + 1, false),
        (150, 152, true),
    ] {
        let mut rig = with_own_kind();
        rig.mem = rig.node.mem(bytes.len());
        rig.recv(0, u32::try_from(bytes.len()).expect("short"));
        tell(&mut rig, &frames, 0..=last);
        tell(&mut rig, &frames, [next]);
        assert_eq!(ahead(&rig), u64::from(known), "{next} behind {last}");
        tell(
            &mut rig,
            &frames,
            (last + 1..frames.len()).filter(|n| *n != next),
        );
        assert_eq!(rig.poll().len(), 1);
        assert!(
            rig.mem.read(0, bytes.len()) == bytes,
            "{next} behind {last}"
        );
    }
}

#[test]
fn a_peer_that_tells_what_is_not_so_harms_its_own_messages_only() {
    // proves: place-1
    // What the first message was not to fill may have room for the lie, or not.
    for (lie, room) in (0..=FAR).flat_map(|lie| [(lie, 4096), (lie, 8192)]) {
        let mut rig = with_own_kind();
        rig.recv(0, room);
        rig.recv(8192, 4096);
        let (one, two) = (pattern(3 * MTU, 1), pattern(4 * MTU, 2));
        let mut frames = told_message(RQ_PSN, What::Send, &one);
        frames.extend(told_message(RQ_PSN + 3, What::Send, &two));
        frames[5].head.bth.place = lie;
        tell(&mut rig, &frames, [0, 2, 5, 4, 3, 1, 6]);
        // What was taken for a part of another message is sent again.
        tell(&mut rig, &frames, 1..7);
        assert_eq!(rig.state(), QpState::Rts, "{lie}");
        let lens: Vec<_> = rig.poll().iter().map(|wc| wc.cqe.len).collect();
        assert_eq!(lens, [3072, 4096], "{lie}");
        assert_eq!(rig.mem.read(0, one.len()), one, "{lie}");
        assert_eq!(rig.mem.read(8192, two.len()), two, "{lie}");
    }
}
