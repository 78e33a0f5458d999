//! A bad network on real sockets: whatever the device does with packets out of order, programs get
//! the same completions and the same bytes.

use crate::common::*;
use srdma_verbs::{Completion, FaultConfig, IeqMode, Mr, QpType, WcOpcode, WrId};
use std::sync::atomic::Ordering;

/// What happens to packets that come in, on both sides.
const FAULTS: &str = "drop 1%; duplicate 1%; reorder=100us 5%";
const ROUNDS: u64 = 96;
const SIZES: [usize; 6] = [100_003, 1, 4097, 65_536, 0, 300_000];
const MOST: usize = 300_000;

/// What a completion says.
type Seen = (u64, WcOpcode, u32, Option<u32>);

/// What a program sees of a run.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    requester: Vec<Seen>,
    receiver: Vec<Seen>,
    /// What atomics found.
    found: Vec<u64>,
    word: u64,
}

fn seen(wc: &Completion) -> Seen {
    (wc.wr_id().0, wc.opcode(), wc.byte_len(), wc.imm())
}

struct Memory {
    source: Mr,
    received: Mr,
    written: Mr,
    read: Mr,
    old: Mr,
    word: Mr,
}

impl Memory {
    fn new(p: &Pair) -> Self {
        Self {
            source: p.a.mr(MOST),
            received: p.b.mr(MOST),
            written: p.b.mr(2 * MOST),
            read: p.a.mr(MOST),
            old: p.a.mr(16),
            word: p.b.mr(16),
        }
    }
}

/// SEND, WRITE, WRITE with immediate, READ of what was written, atomics: all at once.
fn round(p: &Pair, m: &Memory, n: u64, size: usize) {
    let mut batch = p.qb.post_recv();
    batch.recv(WrId(10 * n)).local(m.received.sge(..size));
    batch.recv(WrId(10 * n + 1));
    batch.ring().unwrap();
    let (written, key) = (m.written.addr(), m.written.rkey());
    let mut batch = p.qa.post_send();
    let from = || m.source.sge(..size);
    batch.send(WrId(10 * n)).local(from()).signaled();
    let write = batch.write(WrId(10 * n + 1)).local(from());
    write.remote(written, key).signaled();
    let word = (m.word.addr(), m.word.rkey());
    let add = batch.fetch_add(WrId(10 * n + 2), n).local(m.old.sge(..8));
    add.remote(word.0, word.1).signaled();
    let read = batch.read(WrId(10 * n + 3)).local(m.read.sge(..size));
    read.remote(written, key).signaled();
    let swap = batch.compare_swap(WrId(10 * n + 4), 1, 2);
    let swap = swap.local(m.old.sge(8..));
    swap.remote(word.0 + 8, word.1).signaled();
    let imm = batch.write_imm(WrId(10 * n + 5), n as u32).local(from());
    imm.remote(written + MOST as u64, key).signaled();
    batch.ring().unwrap();
}

fn run(mode: IeqMode, seed: u64) -> Outcome {
    let side = |nth: u64| {
        let rules = format!("seed={}; {FAULTS}", seed + nth);
        let faults = rules.parse::<FaultConfig>().unwrap();
        let config = Sockets::DEFAULT.on(address());
        Side::new(config.ieq(mode).fault(faults))
    };
    let (a, b) = (side(0), side(1));
    // What a lost acknowledgement at the end of a round costs, where nothing else finds it.
    let (qa, qb) = connect(&a.qp(QpType::Rc).timeout(14), &b.qp(QpType::Rc).timeout(14));
    let p = Pair { a, b, qa, qb };
    let m = Memory::new(&p);
    let (mut requester, mut receiver, mut found) = (Vec::new(), Vec::new(), Vec::new());
    for n in 0..ROUNDS {
        let size = SIZES[n as usize % SIZES.len()];
        let bytes = pattern(size, n as u8);
        m.source.write(0, &bytes).unwrap();
        round(&p, &m, n, size);
        requester.extend((0..6).map(|_| seen(&done(&p.a.cq))));
        receiver.extend((0..2).map(|_| seen(&done(&p.b.cq))));
        for (mr, at) in [
            (&m.received, 0),
            (&m.written, 0),
            (&m.written, MOST),
            (&m.read, 0),
        ] {
            assert!(mr.to_vec(at, size).unwrap() == bytes, "{mode:?} {n} {at}");
        }
        found.extend([0, 8].map(|at| m.old.load(at, Ordering::Acquire).unwrap()));
    }
    assert_quiet(&p.a.cq);
    assert_quiet(&p.b.cq);
    for done in ["fault_lost", "fault_duplicated", "fault_reordered"] {
        assert!(p.a.link(done) + p.b.link(done) > 0, "{mode:?}: {done}");
    }
    let counters = p.b.ctx.counters();
    let treated = match mode {
        IeqMode::Off => counters.ieq_dropped,
        IeqMode::Capture => counters.ieq_captured,
        _ => counters.ieq_out_of_order,
    };
    assert!(treated > 0, "{mode:?}: {counters:?}");
    Outcome {
        requester,
        receiver,
        found,
        word: m.word.load(0, Ordering::Acquire).unwrap(),
    }
}

#[test]
fn programs_see_the_same_in_every_mode() {
    // proves: ieq-1, ieq-12
    let given = std::env::var("SRDMA_SEED").ok();
    let seed = given.map_or_else(
        || u64::from(std::process::id()),
        |seed| seed.parse().unwrap(),
    );
    println!("SRDMA_SEED={seed}");
    let [off, reorder, capture] =
        [IeqMode::Off, IeqMode::Reorder, IeqMode::Capture].map(|mode| run(mode, seed));
    assert_eq!(off, reorder);
    assert_eq!(off, capture);
    let sum = |upto: u64| upto * upto.saturating_sub(1) / 2;
    let found: Vec<_> = (0..ROUNDS).flat_map(|n| [sum(n), 0]).collect();
    assert_eq!((&off.found, off.word), (&found, sum(ROUNDS)));
    let ids: Vec<_> = off.requester.iter().map(|wc| wc.0).collect();
    let expected: Vec<_> = (0..ROUNDS)
        .flat_map(|n| (0..6).map(move |k| 10 * n + k))
        .collect();
    assert_eq!(ids, expected);
    let imms: Vec<_> = off.receiver.iter().filter_map(|wc| wc.3).collect();
    assert_eq!(imms, (0..ROUNDS as u32).collect::<Vec<_>>());
}
