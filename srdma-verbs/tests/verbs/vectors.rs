//! Interrupt vectors: how many a device gets of how many there are, and that each of them works.

use crate::common::*;
use core::time::Duration;
use srdma_core::hca::Injection;
use srdma_verbs::{AsyncKind, QpType};

/// Vectors that the network driver keeps besides one for each processor: its own causes, the
/// switch, and two of the flow director.
const OTHER: u16 = 4;

#[test]
fn every_vector_carries_its_events_shared_or_not() {
    // proves: event-80
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let cpus = u16::try_from(cpus).unwrap();
    // With the least, one or two are left for RDMA; with many, one for each processor.
    for msix in [OTHER + 3, 1024] {
        let (a, b) = (Side::new(config()), Side::new(config().msix(msix)));
        let uses: Vec<_> = b.ctx.vectors().collect();
        let vectors = b.ctx.query_device().comp_vectors;
        if msix == 1024 {
            assert_eq!((vectors, uses[0].ceq), (cpus.min(63), None));
        } else {
            // Two vectors; on one processor they are one more than there are processors.
            assert_eq!((uses.len(), uses[0].ceq.is_some()), (2, cpus > 1));
        }
        assert!(uses[0].aeq && uses.iter().filter(|each| each.aeq).count() == 1);
        for vector in 0..vectors {
            let served = uses
                .iter()
                .find(|each| each.ceq.is_some_and(|ceq| ceq.0 == vector));
            assert_eq!(served.unwrap().cpu, u32::from(vector));
            let channel = b.ctx.create_comp_channel().unwrap();
            let cq = b.ctx.create_cq(16).on_channel(&channel).comp_vector(vector);
            let cq = cq.build().unwrap();
            let (qa, qb) = connect(&a.qp(QpType::Rc), &b.qp(QpType::Rc).recv_cq(&cq));
            cq.arm(false).unwrap();
            receive(&qb, 1);
            send(&qa, 2);
            let event = channel.wait_for(Duration::from_secs(60)).unwrap();
            assert_eq!(event.cq(), &cq, "vector {vector} of {vectors}");
        }
        assert!(b.ctx.inject(Injection::Port { up: false }));
        assert_eq!(b.ctx.wait_async_event().kind(), AsyncKind::PortErr);
    }
}

#[test]
fn a_device_without_vectors_for_completions_does_not_open() {
    // proves: event-81
    for msix in [0, 1, 2, OTHER, OTHER + 2] {
        let refused = config().msix(msix).open().unwrap_err();
        assert!(refused.to_string().contains("vector"), "{msix}: {refused}");
    }
    assert!(config().msix(OTHER + 3).open().is_ok());
}
