//! Announced limits are real: as many objects as a large job makes, in little memory.

#![allow(
    clippy::unwrap_used,
    clippy::tests_outside_test_module,
    clippy::print_stdout,
    reason = "a test: what it expects may panic, and what it measured is printed"
)]

use srdma_verbs::{Access, Buffer, Context, DeviceConfig, MAX_CQE, Qp, QpAttr, QpState, QpType};
use std::net::Ipv4Addr;

fn open() -> Context {
    let [a, b, ..] = std::process::id().to_le_bytes();
    let addr = Ipv4Addr::new(127, a, b, 77);
    DeviceConfig::new().addr(addr.into()).open().unwrap()
}

/// Bytes of memory that this process has touched and still has.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = statm.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

/// Makes `count` objects, and gives back what one of them costs.
fn cost<T>(count: usize, mut make: impl FnMut() -> T) -> (Vec<T>, usize) {
    let before = resident();
    let objects: Vec<T> = (0..count).map(|_| make()).collect();
    (objects, (resident().saturating_sub(before)) / count)
}

/// What a job of 64 ranks on one machine has.
const QPS: usize = 65_536;

/// One test, because memory is counted for the whole process.
#[test]
fn a_process_can_have_what_the_device_announces() {
    let ctx = open();
    let pd = ctx.alloc_pd().unwrap();
    let attr = ctx.query_device();
    assert!(attr.max_qp >= 65_536 && attr.max_cqe >= 4 << 20);

    let before = resident();
    let large = ctx.create_cq(MAX_CQE).build().unwrap();
    ctx.create_cq(MAX_CQE + 1).build().unwrap_err();
    let touched = resident() - before;
    assert!(
        touched < 1 << 20,
        "an empty queue of 4 Mi entries has touched {touched} bytes"
    );

    let (qps, bytes) = cost(QPS, || -> Qp {
        let qp = pd.create_qp(QpType::Rc).send_cq(&large).recv_cq(&large);
        let qp = qp.max_send_wr(16).max_recv_wr(16).build_reset().unwrap();
        let init = QpAttr::to(QpState::Init).pkey_index(0).port(1);
        qp.modify(&init.access(Access::REMOTE)).unwrap();
        qp
    });
    println!("{bytes} bytes a queue pair");
    assert!(bytes < 12 << 10, "{bytes} bytes a queue pair");
    let buffer = Buffer::zeroed(4096).unwrap();
    let (_regions, bytes) = cost(QPS, || pd.register(&buffer, Access::LOCAL_WRITE).unwrap());
    println!("{bytes} bytes a region");
    assert!(bytes < 512, "{bytes} bytes a region");
    let channel = ctx.create_comp_channel().unwrap();
    let (_cqs, bytes) = cost(16_384, || {
        ctx.create_cq(64).on_channel(&channel).build().unwrap()
    });
    println!("{bytes} bytes a completion queue");
    assert!(bytes < 4 << 10, "{bytes} bytes a completion queue");
    drop(qps);
}
