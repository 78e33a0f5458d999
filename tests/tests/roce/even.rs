//! Packets of one message are of one length between devices of our own kind: with the header of the
//! first one, and so in opcodes of their own. `[srdma]`

use srdma_core::hw::wqe::{RemoteAddr, WqeBuf, WriteWr};
use srdma_core::qp::attr::QpState;
use srdma_core::wire::{Aeth, Opcode, Reth, Syndrome};
use srdma_tests::node::{Node, QpSpec, pattern};
use srdma_tests::rig::{RQ_PSN, Rig, SQ_PSN};
use srdma_tests::wire_dsl::{Frame, Heard, read_request, write_first};

const MTU: usize = 1024;

fn ours() -> QpSpec {
    QpSpec::default().own_kind()
}

fn ops(heard: &[Heard]) -> Vec<u8> {
    heard.iter().map(|one| one.head.bth.opcode.0).collect()
}

/// What a WRITE of so many bytes leaves as.
fn written(spec: &QpSpec, len: usize) -> Vec<Heard> {
    let mut rig = Rig::with(spec);
    rig.mem = rig.node.mem(len);
    let sge = rig.mem.sge(0, u32::try_from(len).expect("short"));
    rig.node.write(rig.qp, &[sge], 0x1000, rig.mem.rkey());
    rig.transmit()
}

#[test]
fn packets_of_a_write_are_as_long_as_its_first() {
    // proves: even-1
    let heard = written(&ours(), 3 * MTU);
    assert_eq!(ops(&heard), [0x06, 0xe7, 0xe8]);
    let what: Vec<_> = heard.iter().filter_map(|one| one.head.reth).collect();
    let what: Vec<_> = what.iter().map(|reth| (reth.addr, reth.len)).collect();
    assert_eq!(what, [(0x1000, 3072), (0x1400, 2048), (0x1800, 1024)]);
    // A short one ends the run anyway.
    assert_eq!(ops(&written(&ours(), 3 * MTU - 4)), [0x06, 0xe7, 0x08]);
    assert_eq!(ops(&written(&ours(), MTU)), [0x0a]);
    let stranger = QpSpec::default();
    assert_eq!(ops(&written(&stranger, 3 * MTU)), [0x06, 0x07, 0x08]);
}

#[test]
fn a_write_with_immediate_ends_in_a_shorter_packet() {
    // proves: even-1
    let mut rig = Rig::with(&ours());
    let remote = RemoteAddr {
        addr: 0x1000,
        rkey: rig.mem.rkey(),
    };
    let wr = WriteWr {
        imm: Some(7),
        remote,
        ..WriteWr::default()
    };
    for _ in 0..2 {
        let mut wqe = WqeBuf::new();
        wqe.write(&wr, &[rig.mem.sge(0, 3 * 1024)]).unwrap();
        rig.node.post(rig.qp, &wqe);
    }
    // So it closes the run, and the next message has its own.
    assert_eq!(ops(&rig.transmit_some(1)), [0x06, 0xe7, 0x09]);
}

#[test]
fn a_write_leaves_in_one_run() {
    // proves: even-1
    for (spec, packets) in [(ours(), 8), (QpSpec::default(), 2)] {
        let mut rig = Rig::with(&spec);
        let sge = rig.mem.sge(0, 4 * 1024);
        for _ in 0..2 {
            rig.node.write(rig.qp, &[sge], 0x1000, rig.mem.rkey());
        }
        assert_eq!(rig.transmit_some(1).len(), packets);
    }
}

/// What a READ of so many bytes is answered with.
fn read(spec: &QpSpec, len: u32) -> Vec<Heard> {
    let mut rig = Rig::with(spec);
    let (addr, key) = (rig.mem.at(0), rig.mem.rkey());
    rig.hear(read_request(RQ_PSN, addr, key, len))
}

#[test]
fn responses_in_the_middle_are_as_long_as_the_others() {
    // proves: even-1
    let heard = read(&ours(), 4 * 1024);
    assert_eq!(ops(&heard), [0x0d, 0xee, 0xee, 0x0f]);
    let said: Vec<_> = heard.iter().filter_map(|one| one.head.aeth).collect();
    assert_eq!(said.len(), 4);
    assert!(said.iter().all(|aeth| *aeth == said[0]));
    let heard = read(&QpSpec::default(), 4 * 1024);
    assert_eq!(ops(&heard), [0x0d, 0x0e, 0x0e, 0x0f]);
}

/// Packet `n` of a WRITE of `bytes`, even or not.
fn part(rig: &Rig, n: usize, bytes: &[u8], even: bool) -> Frame {
    let psn = RQ_PSN + u32::try_from(n).expect("a few");
    let at = n * MTU;
    let payload = &bytes[at..bytes.len().min(at + MTU)];
    let len = u32::try_from(bytes.len() - at).expect("short");
    let first = write_first(psn, rig.mem.at(at as u64), rig.mem.rkey(), len, payload);
    let known = match (n, at + MTU >= bytes.len()) {
        (0, _) => return first,
        (_, false) => Opcode::RC_WRITE_MIDDLE,
        (_, true) => Opcode::RC_WRITE_LAST,
    };
    if even {
        return first.op(known.evened().expect("it is one of them"));
    }
    Frame::new(known, psn, payload)
}

#[test]
fn they_are_what_everybody_knows() {
    // proves: even-1
    let bytes = pattern(4 * MTU, 1);
    // In any mixture, in turn or not, from whomever.
    for even in 0..8u8 {
        for order in [[0, 1, 2, 3], [0, 2, 1, 3], [0, 3, 2, 1]] {
            let mut rig = Rig::on(Node::keeping("10.0.0.1"), &QpSpec::default());
            for n in order {
                let frame = part(&rig, n, &bytes, n > 0 && even >> (n - 1) & 1 != 0);
                rig.tell(frame.ack());
            }
            assert_eq!(rig.mem.read(0, bytes.len()), bytes, "{even:#b} {order:?}");
            assert_eq!(rig.counter("inbound_writes"), 1);
        }
    }
}

#[test]
fn what_they_say_besides_changes_nothing() {
    // proves: even-1, roce-96
    let bytes = pattern(3 * MTU, 1);
    let mut rig = Rig::with(&ours());
    for n in 0..3 {
        let mut frame = part(&rig, n, &bytes, true);
        if n > 0 {
            // Where the message goes was said once.
            frame.head.reth = Some(Reth {
                addr: 0,
                rkey: srdma_core::num::Rkey(0),
                len: u32::MAX,
            });
        }
        rig.tell(frame);
    }
    assert_eq!(rig.mem.read(0, bytes.len()), bytes);
    // Nor does it begin a message, or fill a packet.
    for (n, cut) in [(1, 0), (1, 4)] {
        let mut rig = Rig::with(&ours());
        if cut > 0 {
            rig.tell(part(&rig, 0, &bytes, true));
        }
        let mut frame = part(&rig, n, &bytes, true);
        frame.payload.truncate(MTU - cut);
        if cut == 0 {
            frame.head.bth.psn = srdma_core::num::Psn::new(RQ_PSN);
        }
        rig.tell(frame);
        assert_eq!(rig.state(), QpState::Err);
    }
}

#[test]
fn responses_that_are_even_are_responses() {
    // proves: even-1
    for (syndrome, ends) in [
        (Syndrome::ACK, false),
        (Syndrome::RnrNak { timer: 1 }, true),
    ] {
        let mut rig = Rig::with(&ours());
        let sge = rig.mem.sge(0, 3 * 1024);
        rig.node.read(rig.qp, &[sge], 0x1000, rig.mem.rkey());
        assert_eq!(ops(&rig.transmit()), [0x0c]);
        for (n, opcode) in [(0, 0x0d), (1, 0xee), (2, 0x0f)] {
            let bytes = pattern(MTU, 7 + u8::try_from(n).expect("a few"));
            let mut frame = Frame::new(Opcode(opcode), SQ_PSN + n, &bytes);
            frame.head.aeth = Some(Aeth {
                syndrome: if n == 1 { syndrome } else { Syndrome::ACK },
                msn: srdma_core::num::Msn::new(1),
            });
            rig.tell(frame);
        }
        assert_eq!(rig.state() == QpState::Err, ends);
        if !ends {
            assert_eq!(rig.done(), [('s', 0, None)]);
            assert_eq!(rig.mem.read(MTU, MTU), pattern(MTU, 8));
        }
    }
}
