//! The wire in memory cuts, merges and drops as the kernel does.

use super::*;
use crate::testing::{Script, address};

fn link(capacity: usize, merge: bool) -> (Arc<WireLink>, IpAddr) {
    let local = address();
    (
        WireLink::new(&[SocketAddr::new(local, 50_000)], capacity, merge),
        local,
    )
}

#[test]
fn a_run_is_cut_with_the_ids_of_the_kernel() {
    let (wire, local) = link(10, false);
    let mut script = Script::new();
    script.run(local, address(), 1, &[100, 100, 40]).tclass = 2;
    script.run(local, address(), 9, &[8]);
    script.run(address(), address(), 9, &[8]);
    let sent = script.lend(|batch| wire.send(batch));
    assert_eq!(
        sent,
        Sent {
            runs: 3,
            blocked: false
        }
    );
    let all: Vec<_> = core::iter::from_fn(|| wire.take()).collect();
    let seen: Vec<_> = all
        .iter()
        .map(|d| (d.ip_id, d.bytes.len(), d.bytes[0]))
        .collect();
    assert_eq!(seen, [(0, 100, 1), (1, 100, 2), (2, 40, 3), (0, 8, 9)]);
    assert_eq!(all[0].source, SocketAddr::new(local, 50_000));
    assert_eq!((all[0].target, all[0].tclass), (script.runs[0].target, 2));
}

#[test]
fn a_full_outbox_blocks_at_a_run_boundary() {
    let (wire, local) = link(4, false);
    let mut script = Script::new();
    for first in [1, 2] {
        script.run(local, address(), first, &[8, 8, 8]);
    }
    assert_eq!(
        script.lend(|batch| wire.send(batch)),
        Sent {
            runs: 1,
            blocked: true
        }
    );
    while wire.take().is_some() {}
    script.runs.remove(0);
    assert_eq!(
        script.lend(|batch| wire.send(batch)),
        Sent {
            runs: 1,
            blocked: false
        }
    );
}

#[test]
fn datagrams_of_one_flow_are_merged_until_a_shorter_one() {
    let (wire, local) = link(100, true);
    let to = address();
    let mut script = Script::new();
    script.run(local, to, 1, &[100, 100, 40]);
    script.run(local, to, 4, &[100]);
    script.run(local, to, 5, &[100]).tclass = 3;
    script.lend(|batch| wire.send(batch));
    while let Some(datagram) = wire.take() {
        wire.deliver(datagram);
    }
    assert!(wire.has_input());
    let got: Vec<_> = core::iter::from_fn(|| wire.receive()).collect();
    let seen: Vec<_> = got
        .iter()
        .map(|(meta, bytes)| (meta.stride, bytes.len()))
        .collect();
    assert_eq!(seen, [(100, 240), (100, 100), (100, 100)]);
    assert_eq!(got[2].0.ecn, srdma_core::wire::flow::Ecn::Ce);
    assert!(!wire.has_input());
}

#[test]
fn a_full_inbox_drops_and_counts() {
    let (wire, local) = link(1, false);
    let mut script = Script::new();
    script.run(local, address(), 1, &[100]);
    script.lend(|batch| wire.send(batch));
    let datagram = wire.take().unwrap();
    wire.deliver(datagram.clone());
    wire.deliver(datagram);
    assert_eq!(wire.dropped_full(), 1);
    assert!(wire.receive().is_some() && wire.receive().is_none());
}

#[test]
#[should_panic(expected = "assertion")]
fn a_miscut_run_is_our_own_bug() {
    let (wire, local) = link(10, false);
    let mut script = Script::new();
    script.run(local, address(), 1, &[100, 100]).segment_len = 90;
    script.lend(|batch| wire.send(batch));
}
