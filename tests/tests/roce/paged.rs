//! Regions whose memory may be absent, and the null region: a use that finds nothing is a fault of
//! the work request, not of the program. [RoCEv2 3.6]

use core::ops::Range;
use srdma_core::hw::Sge;
use srdma_core::mem::{AtomicStep, HostRange, Nowhere, Pager};
use srdma_core::num::{Lkey, Rkey};
use srdma_core::qp::attr::QpState;
use srdma_tests::node::{ALL, pattern};
use srdma_tests::rig::{RQ_PSN, Rig, SQ_PSN};
use srdma_tests::wire_dsl::{
    ack, answers, atomic_write, compare_swap, fetch_add, read_request, send_only, write_first,
    write_last, write_only,
};
use std::sync::{Arc, Mutex};

/// A NAK that refuses access.
const REMOTE_ACCESS: u8 = 0x62;
/// A NAK for the responder's own trouble.
const REMOTE_OPERATION: u8 = 0x63;
/// Flush code of a local protection error.
const PROT: Option<u16> = Some(2);
/// Where the memory of the tests begins.
const BASE: u64 = 0x7000_0000;

/// Memory from [`BASE`] on, with a hole that can be moved.
#[derive(Debug)]
struct Holey(Mutex<(Vec<u8>, Range<u64>)>);

impl Holey {
    fn new(len: usize, hole: Range<u64>) -> Arc<Self> {
        Arc::new(Self(Mutex::new((vec![0; len], hole))))
    }

    fn tear(&self, hole: Range<u64>) {
        self.0.lock().unwrap().1 = hole;
    }

    fn bytes(&self, range: Range<usize>) -> Vec<u8> {
        self.0.lock().unwrap().0[range].to_vec()
    }

    fn put(&self, at: usize, bytes: &[u8]) {
        self.0.lock().unwrap().0[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn part<R>(&self, addr: u64, len: usize, f: impl FnOnce(&mut [u8]) -> R) -> Option<R> {
        let mut guard = self.0.lock().unwrap();
        let (bytes, hole) = &mut *guard;
        let at = addr.checked_sub(BASE)?;
        if at < hole.end && at + len as u64 > hole.start {
            return None;
        }
        let at = usize::try_from(at).ok()?;
        bytes.get_mut(at..at.checked_add(len)?).map(f)
    }
}

impl Pager for Holey {
    fn read(&self, addr: u64, bytes: &mut [u8]) -> bool {
        let len = bytes.len();
        let copy = |part: &mut [u8]| bytes.copy_from_slice(part);
        self.part(addr, len, copy).is_some()
    }

    fn write(&self, addr: u64, bytes: &[u8]) -> bool {
        let copy = |part: &mut [u8]| part.copy_from_slice(bytes);
        self.part(addr, bytes.len(), copy).is_some()
    }

    fn prefetch(&self, addr: u64, len: u64, _: bool) -> bool {
        let len = usize::try_from(len).unwrap();
        self.part(addr, len, |_| ()).is_some()
    }

    fn atomic(&self, addr: u64, step: AtomicStep) -> Option<u64> {
        self.part(addr, 8, |part| {
            let word = u64::from_ne_bytes(part.try_into().unwrap()).into();
            let before = step.run(&word);
            part.copy_from_slice(&word.into_inner().to_ne_bytes());
            before
        })
    }
}

/// A region of the whole address space over memory with a hole.
fn everything(rig: &mut Rig, memory: &Arc<Holey>) -> u32 {
    let range = HostRange::paged(0, usize::MAX, Arc::clone(memory) as Arc<dyn Pager>);
    rig.node.region(range, 0, ALL)
}

fn sge(key: u32, offset: u64, len: u32) -> Sge {
    Sge {
        addr: BASE + offset,
        len,
        lkey: Lkey(key),
    }
}

#[test]
fn what_is_there_is_sent_and_what_is_not_is_a_protection_error() {
    let mut rig = Rig::rc();
    let memory = Holey::new(8192, 5000..6000);
    let key = everything(&mut rig, &memory);
    let bytes = pattern(3000, 9);
    memory.put(0, &bytes);
    let own = rig.mem.fill(0, 7, 1);
    let mixed = [sge(key, 0, 900), rig.mem.sge(0, 7), sge(key, 900, 100)];
    rig.node.send(rig.qp, &mixed);
    let heard = rig.transmit();
    let expected = [&bytes[..900], &own, &bytes[900..1000]].concat();
    assert_eq!(heard[0].payload, expected);
    rig.hear(ack(SQ_PSN));
    assert_eq!(rig.done(), [('s', 0, None)]);

    rig.node.send(rig.qp, &[sge(key, 4999, 2)]);
    assert!(rig.transmit().is_empty());
    assert_eq!(rig.done(), [('s', 1, PROT)]);
    assert_eq!(rig.state(), QpState::Err);
}

#[test]
fn a_message_fails_where_its_memory_ends() {
    let mut rig = Rig::rc();
    let memory = Holey::new(8192, 1500..1501);
    let key = everything(&mut rig, &memory);
    rig.node.send(rig.qp, &[sge(key, 0, 3000)]);
    assert_eq!(rig.transmit().len(), 1, "the packet before the hole");
    rig.hear(ack(SQ_PSN));
    assert_eq!(rig.done(), [('s', 0, PROT)]);
}

#[test]
fn a_peer_reaches_what_is_there() {
    let mut rig = Rig::rc();
    let memory = Holey::new(8192, 4096..8192);
    let key = Rkey(everything(&mut rig, &memory));
    for len in [1, 7, 8, 9, 100] {
        let bytes = pattern(len, 3);
        rig.renew();
        let heard = rig.hear(write_only(RQ_PSN, BASE + 3, key, &bytes).ack());
        assert_eq!(answers(&heard), [(0x11, RQ_PSN, 0x1f)]);
        assert_eq!(memory.bytes(3..3 + len), bytes);
    }
    rig.renew();
    memory.put(8, &5u64.to_ne_bytes());
    rig.hear(fetch_add(RQ_PSN, BASE + 8, key, 2));
    rig.hear(compare_swap(RQ_PSN + 1, BASE + 8, key, 7, 9));
    assert_eq!(memory.bytes(8..16), 9u64.to_ne_bytes());
    rig.hear(atomic_write(RQ_PSN + 2, BASE + 16, key, *b"in order"));
    assert_eq!(memory.bytes(16..24), b"in order");
    let heard = rig.hear(read_request(RQ_PSN + 3, BASE, key, 1500));
    let payload: Vec<u8> = heard.iter().flat_map(|p| p.payload.clone()).collect();
    assert_eq!(payload, memory.bytes(0..1500));
}

#[test]
fn a_peer_is_refused_what_is_absent() {
    let memory = Holey::new(8192, 4096..8192);
    let frames = |key| {
        [
            vec![write_only(RQ_PSN, BASE + 4090, key, &[1; 7])],
            vec![write_only(RQ_PSN, 0, key, &[1; 7])],
            vec![write_only(RQ_PSN, u64::MAX - 20, key, &[1; 7])],
            vec![
                write_first(RQ_PSN, BASE + 3072, key, 1025, &[1; 1024]),
                write_last(RQ_PSN + 1, &[1]),
            ],
            vec![fetch_add(RQ_PSN, BASE + 4096, key, 1)],
            vec![compare_swap(RQ_PSN, BASE + 4096, key, 0, 1)],
            vec![atomic_write(RQ_PSN, BASE + 4096, key, [1; 8])],
            vec![read_request(RQ_PSN, BASE + 4096, key, 1)],
        ]
    };
    for case in 0..frames(Rkey(0)).len() {
        let mut rig = Rig::rc();
        let key = Rkey(everything(&mut rig, &memory));
        let mut heard = Vec::new();
        for frame in frames(key)[case].clone() {
            heard.extend(rig.hear(frame));
        }
        let last = heard.last().unwrap();
        assert_eq!(last.syndrome(), Some(REMOTE_ACCESS), "case {case}");
        assert_eq!(rig.state(), QpState::Err, "case {case}");
    }
}

#[test]
fn memory_that_goes_away_during_a_read_ends_it() {
    let mut rig = Rig::rc();
    let memory = Holey::new(8192, 2048..8192);
    let key = Rkey(everything(&mut rig, &memory));
    let heard = rig.hear(read_request(RQ_PSN, BASE, key, 4096));
    let tail = answers(&heard).last().copied().unwrap();
    assert_eq!(heard.len(), 3);
    assert_eq!(tail, (0x11, RQ_PSN + 2, REMOTE_ACCESS));
}

#[test]
fn a_receive_without_memory_is_the_receivers_fault() {
    let mut rig = Rig::rc();
    let memory = Holey::new(8192, 0..0);
    let key = everything(&mut rig, &memory);
    rig.node.recv(rig.qp, &[sge(key, 0, 64)]);
    rig.node.recv(rig.qp, &[sge(key, 64, 64)]);
    rig.hear(send_only(RQ_PSN, b"there").ack());
    assert_eq!(memory.bytes(0..5), b"there");
    memory.tear(64..128);
    let heard = rig.hear(send_only(RQ_PSN + 1, b"gone").ack());
    assert_eq!(heard[0].syndrome(), Some(REMOTE_OPERATION));
    assert_eq!(rig.done(), [('r', 0, None), ('r', 1, PROT)]);
}

#[test]
fn the_null_region_reads_as_zero_and_forgets() {
    let mut rig = Rig::rc();
    let range = HostRange::paged(0, usize::MAX, Arc::new(Nowhere::default()));
    let key = rig.node.region(range, 0, ALL);
    let text = rig.mem.fill(0, 3, 1);
    rig.node.send(
        rig.qp,
        &[rig.mem.sge(0, 3), sge(key, 0, 2), sge(key, u64::MAX / 2, 2)],
    );
    let heard = rig.transmit();
    assert_eq!(heard[0].payload, [&text[..], &[0; 4]].concat());
    rig.hear(ack(SQ_PSN));
    rig.node.recv(rig.qp, &[sge(key, 9, 2), rig.mem.sge(32, 3)]);
    rig.hear(send_only(RQ_PSN, b"xxabc").ack());
    assert_eq!(rig.mem.read(32, 3), b"abc");
    assert_eq!(rig.done(), [('s', 0, None), ('r', 0, None)]);
}
