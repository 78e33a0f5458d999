//! Notes between two sockets, and what comes in their place.

use super::*;
use crate::rx::RxRing;
use crate::socket::SocketConfig;
use crate::testing::{drain, open};

fn question(from: &RoceSocket, to: &RoceSocket, mark: u64) -> Question {
    Question {
        local: from.local(),
        target: SocketAddr::new(to.local(), ROCE_PORT),
        dest: Qpn::new(0x12_3456),
        token: 0x0123_4567_89ab_cdef,
        mark,
    }
}

/// What comes to `socket` goes to `desk`; what it leaves of it.
fn sift(desk: &mut Desk, socket: &RoceSocket) -> Vec<(RxMeta, Vec<u8>)> {
    let mut rest = Vec::new();
    for (meta, bytes) in drain(&mut RxRing::new(16), socket) {
        desk.sift(&meta, &bytes, |meta, bytes| {
            rest.push((*meta, bytes.to_vec()));
        });
    }
    rest
}

#[test]
fn a_question_is_answered_once_what_came_before_it_was_taken() {
    let (a, b) = (
        open(&SocketConfig::default()),
        open(&SocketConfig::default()),
    );
    let home = Qpn::new(0x77_7000);
    for mark in [5, 6, 7] {
        assert!(ask(&a, &question(&a, &b, mark), home));
    }
    let (mut asker, mut asked) = (Desk::default(), Desk::default());
    assert!(sift(&mut asked, &b).is_empty());
    let sockets = [b];
    asked.serve(Instant(0), &sockets, |_, _| panic!("nothing was asked"));
    assert_eq!(asked.counters().answered, 1, "the last of three");
    assert!(sift(&mut asker, &a).is_empty());
    let mut heard = Vec::new();
    asker.serve(Instant(0), &[], |from, reply| heard.push((from, *reply)));
    let [b] = sockets;
    let want = Note {
        token: 0x0123_4567_89ab_cdef,
        mark: 7,
        port: ROCE_PORT,
        block: 0x123,
        value: b.buffers().rx,
    };
    assert_eq!(heard, [(b.local(), want)]);
    asker.serve(Instant(0), &[], |_, _| panic!("told twice"));
}

#[test]
fn a_plain_desk_takes_no_notes() {
    // proves: wire-1
    let (a, b) = (
        open(&SocketConfig::default()),
        open(&SocketConfig::default()),
    );
    assert!(ask(&a, &question(&a, &b, 5), Qpn::new(0x77_7000)));
    let mut desk = Desk::default().plain(true);
    assert_eq!(
        sift(&mut desk, &b).len(),
        1,
        "it is a packet like any other"
    );
    desk.serve(Instant(0), &[b], |_, _| panic!("nothing was asked"));
    assert_eq!(desk.counters(), DeskCounters::default());
}

#[test]
fn who_asks_beside_others_is_told_a_share() {
    let all = [(); 3].map(|()| open(&SocketConfig::default()));
    let [a, b, c] = &all;
    let mut desk = Desk::default();
    let serve = |desk: &mut Desk, now| {
        sift(desk, c);
        desk.serve(now, &all, |_, _| ());
    };
    let told = |at: &RoceSocket| {
        let (mut desk, mut room) = (Desk::default(), 0);
        sift(&mut desk, at);
        desk.serve(Instant(0), &[], |_, reply| room = reply.value);
        room
    };
    let whole = c.buffers().rx;
    for (from, now, share) in [(a, 0, whole), (b, 1, whole / 2), (b, SHARES_NS, whole)] {
        ask(from, &question(from, c, 1), Qpn::new(9));
        serve(&mut desk, Instant(now));
        assert_eq!(told(from), share, "at {now}");
    }
}

#[test]
fn notes_are_found_among_packets_of_any_length() {
    let (a, b) = (
        open(&SocketConfig::default()),
        open(&SocketConfig::default()),
    );
    let flow = flow_to(&a, SocketAddr::new(b.local(), ROCE_PORT));
    let note = Note {
        token: 1,
        mark: 2,
        port: 3,
        block: 4,
        value: 5,
    };
    let bytes = write(QUESTION, Qpn::new(9), &note, &flow);
    let packet = |len: usize| vec![4; len];
    for (stride, parts, left) in [
        (LEN, vec![bytes.to_vec()], vec![]),
        (
            100,
            vec![packet(100), packet(100), bytes.to_vec()],
            vec![(0, 200)],
        ),
        (100, vec![packet(100), packet(LEN)], vec![(0, 100 + LEN)]),
        (
            LEN,
            vec![packet(LEN), bytes.to_vec(), packet(LEN), packet(12)],
            vec![(0, LEN), (2, LEN + 12)],
        ),
        (20, vec![packet(20), packet(20)], vec![(0, 40)]),
    ] {
        let meta = RxMeta {
            source: SocketAddr::new(a.local(), a.tx_port()),
            local: b.local(),
            port: ROCE_PORT,
            ecn: srdma_core::wire::Ecn::NotEct,
            tclass: 0,
            hop_limit: 64,
            stride,
            first: 0,
        };
        let mut desk = Desk::default();
        let mut rest = Vec::new();
        desk.sift(&meta, &parts.concat(), |meta, bytes| {
            rest.push((meta.first, bytes.len()));
        });
        assert_eq!(rest, left, "stride {stride}");
        let notes = parts.iter().filter(|part| part[0] == QUESTION).count();
        assert_eq!(desk.asked.len(), notes);
        assert_eq!(desk.counters().refused, 0);
    }
}

#[test]
fn damaged_and_foreign_notes_do_nothing_and_many_are_bounded() {
    let (a, b) = (
        open(&SocketConfig::default()),
        open(&SocketConfig::default()),
    );
    let mut desk = Desk::default();
    let flow = flow_to(&a, SocketAddr::new(b.local(), ROCE_PORT));
    let send = |bytes: &[u8]| {
        let target = SocketAddr::new(b.local(), ROCE_PORT);
        a.send_parts(&[bytes, &[]], target).unwrap();
    };
    for at in 0..u64::try_from(2 * ANSWERS).unwrap() {
        let note = Note {
            token: at,
            mark: 2,
            port: 3,
            block: 4,
            value: 5,
        };
        for kind in [QUESTION, ANSWER] {
            let mut bytes = write(kind, Qpn::new(9), &note, &flow);
            send(&bytes);
            bytes[20] ^= 1;
            send(&bytes);
        }
        // Another maker's packet of this length goes on to the device.
        let mut bytes = write(QUESTION, Qpn::new(9), &note, &flow);
        bytes[12] ^= 1;
        send(&bytes);
        assert_eq!(sift(&mut desk, &b).len(), 1);
    }
    assert_eq!((desk.asked.len(), desk.replies.len()), (ANSWERS, ANSWERS));
    let refused = u64::try_from(2 * 2 * ANSWERS + ANSWERS).unwrap();
    assert_eq!(desk.counters().refused, refused);
    for seed in 0..1000u64 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut bytes: Vec<u8> = (0..rng.usize(..100)).map(|_| rng.u8(..)).collect();
        let _ = read(&bytes);
        bytes.resize(LEN, 0);
        let _ = read(&bytes);
    }
}
