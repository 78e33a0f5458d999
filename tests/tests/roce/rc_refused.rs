//! What a responder refuses, how it says so, and what follows.         [RoCEv2 3.5, 3.9]

use srdma_core::hw::AeSource;
use srdma_core::mem::Access;
use srdma_core::num::Rkey;
use srdma_core::qp::attr::QpState;
use srdma_core::wire::Opcode;
use srdma_tests::node::{PD, QpSpec};
use srdma_tests::rig::{RQ_PSN, Rig};
use srdma_tests::wire_dsl::{
    Frame, answers, atomic_write, compare_swap, fetch_add, flush, read_request, send_first,
    send_inv, send_last, send_middle, send_only, write_first, write_last, write_middle, write_only,
    write_only_imm,
};

const MTU: usize = 1024;
/// Flush codes of the E810.
const GENERAL: Option<u16> = Some(1);
const PROT: Option<u16> = Some(2);
const REM_ACCESS: Option<u16> = Some(3);
const LOC_LEN: Option<u16> = Some(6);
const REM_INV_REQ: Option<u16> = Some(10);

/// What a refused request led to.
#[derive(Debug, PartialEq, Eq)]
struct Refused {
    nak: (u32, u8),
    event: (u16, AeSource),
    /// Statuses of the receives, in order.
    recvs: Vec<Option<u16>>,
}

/// Two receives of 2 KiB are posted; all but the last frame are taken, the last one is refused.
#[track_caller]
fn refused(rig: &mut Rig, frames: Vec<Frame>) -> Refused {
    rig.recv(0, 2048);
    rig.recv(2048, 2048);
    rig.send(0, 0);
    let sent = rig.transmit();
    assert_eq!(sent.len(), 1);
    let count = frames.len();
    let mut heard = Vec::new();
    for (n, frame) in frames.into_iter().enumerate() {
        assert_eq!(rig.state(), QpState::Rts);
        heard = rig.hear(frame.clone());
        if n + 1 == count {
            let twice = answers(&rig.hear(frame));
            assert_eq!(twice, answers(&heard), "the refusal is repeated");
            // proves: roce-127
        }
    }
    assert_eq!(rig.state(), QpState::Err);
    assert_eq!(heard.len(), 1, "one NAK: {:?}", answers(&heard));
    assert!(rig.hear(send_only(RQ_PSN + 77, b"x").ack()).is_empty());
    let events = rig.node.aes();
    assert_eq!(events.len(), 1, "{events:?}");
    let (sends, recvs): (Vec<_>, Vec<_>) = rig.done().into_iter().partition(|wc| wc.0 == 's');
    assert_eq!(sends, [('s', 0, GENERAL)], "the send queue is flushed");
    Refused {
        nak: (heard[0].psn(), heard[0].syndrome().unwrap()),
        event: (events[0].code.0, events[0].source),
        recvs: recvs.iter().map(|wc| wc.2).collect(),
    }
}

/// The same on a usual connection, where the refusal is expected to be NAK 0x61 with event `code`
/// and `first` the status of the first receive.
#[track_caller]
fn invalid(frames: impl FnOnce(&Rig) -> Vec<Frame>, code: u16, first: Option<u16>) {
    let mut rig = Rig::rc();
    let frames = frames(&rig);
    let psn = frames.last().unwrap().head.bth.psn.value();
    let found = refused(&mut rig, frames);
    assert_eq!(found.nak, (psn, 0x61));
    assert_eq!(found.event.0, code);
    assert_eq!(found.recvs, [first, GENERAL]);
}

#[test]
fn opcodes_out_of_sequence_are_refused() {
    // proves: roce-94, roce-95
    let first = |_: &Rig| send_first(RQ_PSN, &[0; MTU]);
    let write = |rig: &Rig| write_first(RQ_PSN, rig.mem.at(0), rig.mem.rkey(), 3000, &[0; MTU]);
    invalid(|_| vec![send_middle(RQ_PSN, &[0; MTU])], 0x312, GENERAL);
    invalid(|_| vec![send_last(RQ_PSN, b"x")], 0x312, GENERAL);
    invalid(|_| vec![write_middle(RQ_PSN, &[0; MTU])], 0x312, GENERAL);
    invalid(|_| vec![write_last(RQ_PSN, b"x")], 0x312, GENERAL);
    invalid(
        |r| vec![write(r), send_middle(RQ_PSN + 1, &[0; MTU])],
        0x312,
        GENERAL,
    );
    invalid(
        |r| vec![write(r), send_last(RQ_PSN + 1, b"x")],
        0x312,
        GENERAL,
    );
    invalid(
        |r| vec![write(r), send_only(RQ_PSN + 1, b"x")],
        0x312,
        GENERAL,
    );
    invalid(
        |r| vec![write(r), write_only(RQ_PSN + 1, 0, Rkey(0), b"")],
        0x312,
        GENERAL,
    );
    invalid(
        |r| vec![first(r), write_middle(RQ_PSN + 1, &[0; MTU])],
        0x312,
        REM_INV_REQ,
    );
    invalid(
        |r| vec![first(r), send_first(RQ_PSN + 1, &[0; MTU])],
        0x312,
        REM_INV_REQ,
    );
    invalid(
        |r| vec![first(r), read_request(RQ_PSN + 1, 0, Rkey(0), 0)],
        0x312,
        REM_INV_REQ,
    );
    invalid(
        |r| vec![first(r), fetch_add(RQ_PSN + 1, 0, Rkey(0), 0)],
        0x312,
        REM_INV_REQ,
    );
}

#[test]
fn lengths_against_the_mtu_are_refused() {
    // proves: roce-96, roce-97, roce-98
    let code = 0x312;
    let first = |_: &Rig| send_first(RQ_PSN, &[0; MTU]);
    invalid(
        |_| vec![send_first(RQ_PSN, &[0; MTU - 4])],
        code,
        REM_INV_REQ,
    );
    invalid(
        |_| vec![send_first(RQ_PSN, &[0; MTU + 4])],
        code,
        REM_INV_REQ,
    );
    invalid(
        |_| vec![send_first(RQ_PSN, &[0; MTU - 1])],
        code,
        REM_INV_REQ,
    );
    invalid(
        |r| vec![first(r), send_middle(RQ_PSN + 1, &[0; 8])],
        code,
        REM_INV_REQ,
    );
    invalid(
        |r| vec![first(r), send_last(RQ_PSN + 1, &[])],
        code,
        REM_INV_REQ,
    );
    invalid(
        |r| vec![first(r), send_last(RQ_PSN + 1, &[0; MTU + 4])],
        code,
        REM_INV_REQ,
    );
    invalid(
        |_| vec![send_only(RQ_PSN, &[0; MTU + 4])],
        code,
        REM_INV_REQ,
    );
    let write = |rig: &Rig, len: usize| {
        write_first(RQ_PSN, rig.mem.at(0), rig.mem.rkey(), 3000, &vec![0; len])
    };
    invalid(|r| vec![write(r, MTU - 4)], code, GENERAL);
    invalid(
        |r| vec![write(r, MTU), write_middle(RQ_PSN + 1, &[0; 4])],
        code,
        GENERAL,
    );
    invalid(
        |r| vec![write(r, MTU), write_last(RQ_PSN + 1, &[])],
        code,
        GENERAL,
    );
    invalid(
        |r| vec![write_only(RQ_PSN, r.mem.at(0), r.mem.rkey(), &[0; MTU + 4])],
        code,
        GENERAL,
    );
}

#[test]
fn writes_that_are_not_what_they_announced_are_refused() {
    // proves: roce-99, roce-100
    let write = |rig: &Rig, len: u32, payload: usize| {
        write_first(
            RQ_PSN,
            rig.mem.at(0),
            rig.mem.rkey(),
            len,
            &vec![0; payload],
        )
    };
    let only = Opcode::RC_WRITE_ONLY;
    invalid(|r| vec![write(r, 8, 4).op(only)], 0x314, GENERAL);
    invalid(|r| vec![write(r, 8, 12).op(only)], 0x314, GENERAL);
    invalid(|r| vec![write(r, 8, 0).op(only)], 0x314, GENERAL);
    invalid(|r| vec![write(r, 1024, MTU)], 0x314, GENERAL);
    invalid(
        |r| vec![write(r, 1030, MTU), write_last(RQ_PSN + 1, &[0; 5])],
        0x314,
        GENERAL,
    );
    invalid(
        |r| vec![write(r, 1030, MTU), write_last(RQ_PSN + 1, &[0; 7])],
        0x314,
        GENERAL,
    );
    invalid(
        |r| vec![write(r, 2048, MTU), write_middle(RQ_PSN + 1, &[0; MTU])],
        0x314,
        GENERAL,
    );
    let long = (1 << 31) + 1;
    invalid(|r| vec![write(r, long, MTU)], 0x314, GENERAL);
    invalid(
        |r| vec![read_request(RQ_PSN, r.mem.at(0), r.mem.rkey(), long)],
        0x313,
        GENERAL,
    );
}

#[test]
fn operations_that_the_queue_pair_does_not_allow_are_refused() {
    // proves: roce-101, roce-102
    type Make = fn(&Rig) -> Frame;
    let ops: [(Access, Make); 6] = [
        (Access::REMOTE_WRITE, |r| {
            write_only(RQ_PSN, r.mem.at(0), r.mem.rkey(), b"x")
        }),
        (Access::REMOTE_WRITE, |r| {
            atomic_write(RQ_PSN, r.mem.at(0), r.mem.rkey(), [1; 8])
        }),
        (Access::REMOTE_READ, |r| {
            read_request(RQ_PSN, r.mem.at(0), r.mem.rkey(), 8)
        }),
        (Access::REMOTE_ATOMIC, |r| {
            fetch_add(RQ_PSN, r.mem.at(0), r.mem.rkey(), 1)
        }),
        (Access::REMOTE_ATOMIC, |r| {
            compare_swap(RQ_PSN, r.mem.at(0), r.mem.rkey(), 1, 2)
        }),
        (Access::FLUSH_GLOBAL, |r| {
            flush(RQ_PSN, r.mem.at(0), r.mem.rkey(), 8)
        }),
    ];
    let all = QpSpec::default().access;
    for (right, make) in ops {
        let mut rig = Rig::with(&QpSpec {
            access: all.without(right),
            ..QpSpec::default()
        });
        let frame = make(&rig);
        let found = refused(&mut rig, vec![frame]);
        assert_eq!(found.nak, (RQ_PSN, 0x61), "{right:?}");
        assert_eq!(found.event, (0x312, AeSource::RQ), "{right:?}");
        let mut rig = Rig::with(&QpSpec {
            access: right,
            ..QpSpec::default()
        });
        let frame = make(&rig);
        rig.hear(frame.ack());
        assert_eq!(rig.state(), QpState::Rts, "{right:?}");
    }
    for (_, make) in ops.into_iter().skip(1) {
        let mut rig = Rig::with(&QpSpec {
            ird: 0,
            ..QpSpec::default()
        });
        let frame = make(&rig);
        let found = refused(&mut rig, vec![frame]);
        assert_eq!(found.nak, (RQ_PSN, 0x61));
        assert_eq!(found.event, (0x207, AeSource::INBOUND));
    }
}

#[test]
fn keys_and_ranges_that_do_not_fit_are_refused() {
    // proves: roce-103
    type Make = Box<dyn Fn(u64, Rkey, u32) -> Frame>;
    let makes: [(Access, Make); 4] = [
        (
            Access::REMOTE_WRITE,
            Box::new(|at, key, len| write_first(RQ_PSN, at, key, len, &[0; MTU])),
        ),
        (
            Access::REMOTE_READ,
            Box::new(|at, key, len| read_request(RQ_PSN, at, key, len)),
        ),
        (
            Access::REMOTE_ATOMIC,
            Box::new(|at, key, _| fetch_add(RQ_PSN, at & !7, key, 1)),
        ),
        (
            Access::REMOTE_ATOMIC,
            Box::new(|at, key, _| compare_swap(RQ_PSN, at & !7, key, 1, 2)),
        ),
    ];
    for (right, make) in &makes {
        let check = |code: u16, pick: &dyn Fn(&mut Rig) -> (u64, Rkey)| {
            let mut rig = Rig::rc();
            let (at, key) = pick(&mut rig);
            let found = refused(&mut rig, vec![make(at, key, 2000)]);
            assert_eq!(found.nak, (RQ_PSN, 0x62), "{right:?}");
            assert_eq!(found.event, (code, AeSource::INBOUND), "{right:?}");
            assert_eq!(found.recvs, [GENERAL, GENERAL]);
        };
        check(0x102, &|rig| (rig.mem.at(0), Rkey(0xffff_ff5a)));
        check(0x106, &|rig| (rig.mem.at(0), Rkey(rig.mem.stag ^ 1)));
        check(0x105, &|rig| {
            let other = rig
                .node
                .mem_with(4096, srdma_tests::node::ALL, srdma_core::num::PdId(9));
            (other.at(0), other.rkey())
        });
        check(0x109, &|rig| {
            let less = srdma_tests::node::ALL.without(*right);
            let other = rig.node.mem_with(4096, less, PD);
            (other.at(0), other.rkey())
        });
        check(0x108, &|rig| (rig.mem.at(64 * 1024), rig.mem.rkey()));
        check(0x108, &|rig| (rig.mem.at(0) - 8, rig.mem.rkey()));
        check(0x108, &|rig| (0, rig.mem.rkey()));
    }
    // Only the last bytes lie outside, or the address wraps.
    for (at, key, len) in [(63 * 1024 + 512, None, 1024), (u64::MAX - 7, Some(0), 1024)] {
        let mut rig = Rig::rc();
        let at = if key.is_none() { rig.mem.at(at) } else { at };
        let frame = write_first(RQ_PSN, at, rig.mem.rkey(), len, &[0; MTU]);
        let found = refused(&mut rig, vec![frame.op(Opcode::RC_WRITE_ONLY)]);
        assert_eq!(found.nak, (RQ_PSN, 0x62));
    }
}

#[test]
fn a_released_key_is_refused_even_inside_a_message() {
    let mut rig = Rig::rc();
    let mem = rig.node.mem(4096);
    rig.tell(write_first(RQ_PSN, mem.at(0), mem.rkey(), 2048, &[1; MTU]));
    rig.node.dereg(&mem);
    assert_eq!(
        answers(&rig.hear(write_last(RQ_PSN + 1, &[2; MTU]).ack()))[0].2,
        0x62
    );
    assert_eq!(mem.read(1024, 4), [0; 4], "nothing was placed");
    assert_eq!(rig.state(), QpState::Err);
}

#[test]
fn messages_of_no_bytes_need_no_key() {
    // proves: roce-104
    let mut rig = Rig::rc();
    let bad = Rkey(0x0bad_0bad);
    let heard = rig.hear(write_only(RQ_PSN, 0xdead, bad, b"").ack());
    assert_eq!(answers(&heard), [(0x11, RQ_PSN, 0x1f)]);
    let heard = rig.hear(read_request(RQ_PSN + 1, 0xdead, bad, 0));
    assert_eq!(answers(&heard), [(0x10, RQ_PSN + 1, 0x1f)]);
    assert!(heard[0].payload.is_empty());
    rig.recv(0, 0);
    assert_eq!(
        answers(&rig.hear(send_only(RQ_PSN + 2, b"").ack())),
        [(0x11, RQ_PSN + 2, 0x1f)]
    );
    assert_eq!(rig.poll()[0].cqe.len, 0);
}

#[test]
fn a_message_longer_than_its_receive_is_refused() {
    // proves: roce-109
    let mut rig = Rig::rc();
    let frames = vec![
        send_first(RQ_PSN, &[1; MTU]),
        send_middle(RQ_PSN + 1, &[2; MTU]),
        send_last(RQ_PSN + 2, &[3; 4]),
    ];
    let found = refused(&mut rig, frames);
    assert_eq!(found.nak, (RQ_PSN + 2, 0x61));
    assert_eq!(found.event, (0x303, AeSource::RQ));
    assert_eq!(found.recvs, [LOC_LEN, GENERAL]);
    assert_eq!(rig.mem.read(2048, 4), [0; 4], "nothing behind the receive");
}

#[test]
fn an_unfit_receive_buffer_is_our_own_fault() {
    // proves: roce-110
    for kind in 0..3 {
        let mut rig = Rig::rc();
        let mut sge = rig.mem.sge(0, 64);
        match kind {
            0 => sge.lkey.0 ^= 1,
            1 => sge.addr = rig.mem.at(64 * 1024 - 2),
            _ => {
                let read_only = rig.node.mem_with(64, Access::REMOTE_READ, PD);
                sge = read_only.sge(0, 64);
            }
        }
        rig.node.recv(rig.qp, &[sge]);
        rig.recv(0, 64);
        let heard = rig.hear(send_only(RQ_PSN, b"hello").ack());
        assert_eq!(answers(&heard), [(0x11, RQ_PSN, 0x63)]);
        assert_eq!(rig.state(), QpState::Err);
        assert_eq!(rig.done(), [('r', 0, PROT), ('r', 1, GENERAL)]);
        let event = rig.node.aes()[0];
        assert_eq!(event.source, AeSource::RQ);
        assert_eq!(event.code.0, [0x106, 0x108, 0x109][kind]);
    }
}

#[test]
fn misaligned_atomics_are_refused() {
    // proves: roce-111
    for offset in 1..8 {
        let mut rig = Rig::rc();
        let (at, key) = (rig.mem.at(offset), rig.mem.rkey());
        let found = refused(&mut rig, vec![fetch_add(RQ_PSN, at, key, 1)]);
        assert_eq!(found.nak, (RQ_PSN, 0x61));
        assert_eq!(rig.mem.read(0, 16), [0; 16]);
        let mut rig = Rig::rc();
        let (at, key) = (rig.mem.at(offset), rig.mem.rkey());
        let found = refused(&mut rig, vec![compare_swap(RQ_PSN, at, key, 0, 1)]);
        assert_eq!(found.nak, (RQ_PSN, 0x61));
    }
}

#[test]
fn a_bad_key_comes_before_a_bad_alignment() {
    for make in [
        |at| fetch_add(RQ_PSN, at, Rkey(0x5a), 1),
        |at| atomic_write(RQ_PSN, at, Rkey(0x5a), [1; 8]),
    ] {
        let mut rig = Rig::rc();
        let frame = make(rig.mem.at(1));
        let found = refused(&mut rig, vec![frame]);
        assert_eq!(found.nak, (RQ_PSN, 0x62));
    }
}

#[test]
fn a_bad_key_of_write_with_immediate_ends_its_receive() {
    let mut rig = Rig::rc();
    let frame = write_only_imm(RQ_PSN, rig.mem.at(0), Rkey(0x5a), b"x", [0; 4]);
    let found = refused(&mut rig, vec![frame]);
    assert_eq!(found.nak, (RQ_PSN, 0x62));
    assert_eq!(found.recvs, [REM_ACCESS, GENERAL]);
}

#[test]
fn no_receive_comes_before_a_bad_key() {
    let mut rig = Rig::rc();
    let frame = write_only_imm(RQ_PSN, rig.mem.at(0), Rkey(0x5a), b"x", [0; 4]);
    assert_eq!(answers(&rig.hear(frame)), [(0x11, RQ_PSN, 0x20 | 12)]);
    let frame = send_only(RQ_PSN, &[0; MTU + 4]);
    assert_eq!(answers(&rig.hear(frame)), [(0x11, RQ_PSN, 0x20 | 12)]);
    assert_eq!(rig.state(), QpState::Rts);
}

#[test]
fn a_fatal_refusal_is_repeated_for_a_while() {
    // proves: roce-127, roce-128
    let mut rig = Rig::rc();
    let bad = || read_request(RQ_PSN, 0, Rkey(0x5a), 8);
    let nak = [(0x11, RQ_PSN, 0x62)];
    assert_eq!(answers(&rig.hear(bad())), nak);
    rig.node.advance(1_000_000_000);
    assert_eq!(answers(&rig.hear(bad())), nak);
    assert!(rig.hear(send_only(RQ_PSN + 1, b"x").ack()).is_empty());
    assert!(rig.hear(send_only(RQ_PSN - 1, b"x").ack()).is_empty());
    rig.node.advance(30_000_000_000);
    assert!(rig.hear(bad()).is_empty());
}

#[test]
fn a_key_that_cannot_be_invalidated_ends_the_receiver_only() {
    let mut rig = Rig::rc();
    rig.recv(0, 64);
    rig.recv(64, 64);
    let heard = rig.hear(send_inv(RQ_PSN, b"bye", Rkey(0x7700_0011)).ack());
    assert_eq!(
        answers(&heard),
        [(0x11, RQ_PSN, 0x1f)],
        "the peer sees success"
    );
    assert_eq!(rig.state(), QpState::Err);
    assert_eq!(rig.done(), [('r', 0, REM_INV_REQ), ('r', 1, GENERAL)]);
    assert_eq!(rig.mem.read(0, 3), b"bye");
    assert!(rig.hear(send_only(RQ_PSN + 1, b"x").ack()).is_empty());
}
