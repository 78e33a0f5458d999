//! What programs see does not depend on whose words the device uses.
//!
//! All other tests of this program run once more in each dialect but the usual one, in a child that
//! is told by `SRDMA_DIALECT`; and devices of every two dialects talk to each other.

use crate::common::*;
use srdma_verbs::{AsyncKind, Dialect, Qp, QpType, Rkey, WcOpcode, WcStatus, WrId};

const VARIABLE: &str = "SRDMA_DIALECT";
#[test]
// proves: dialect-3
fn everything_passes_in_the_other_dialects() {
    if std::env::var_os(VARIABLE).is_some() {
        // This is the child, or whoever runs the tests has chosen.
        return;
    }
    for dialect in [Dialect::Mlx5, Dialect::Hns] {
        // Of arming: what some of them expect; the others name a model.
        again(&[(VARIABLE, dialect.name()), ("SRDMA_ARM", "strict")]);
    }
}

#[test]
fn devices_of_every_two_dialects_talk() {
    for first in Dialect::ALL {
        for second in Dialect::ALL {
            talk(first, second);
        }
    }
}

/// Messages with events, a READ, an atomic, and a failure.
fn talk(first: Dialect, second: Dialect) {
    let (a, b) = (
        Side::new(config().dialect(first)),
        Side::new(config().dialect(second)),
    );
    let channel = b.ctx.create_comp_channel().unwrap();
    let cq = b.ctx.create_cq(4).on_channel(&channel).build().unwrap();
    let (qa, qb) = connect(&a.qp(QpType::Rc), &b.qp(QpType::Rc).recv_cq(&cq));
    let (source, target) = (a.pattern(9000, 3), b.mr(9000));
    let (addr, rkey) = (target.addr(), target.rkey());
    let what = format!("{first} to {second}");

    // More than the receiving queue has slots, so that its owner bits turn over.
    for round in 0..24 {
        cq.arm(round % 2 == 0).unwrap();
        let mut batch = qb.post_recv();
        let _ = batch.recv(WrId(round)).local(target.sge(..));
        batch.ring().unwrap();
        let mut batch = qa.post_send();
        let write = batch.write(WrId(1)).local(source.sge(..));
        let _ = write.remote(addr, rkey);
        let imm = u32::try_from(round).unwrap();
        let send = batch.send_imm(WrId(2), imm).local(source.sge(..5000));
        let _ = send.signaled().solicited();
        batch.ring().unwrap();
        drop(channel.wait());
        let wc = done(&cq);
        assert_eq!((wc.wr_id(), wc.opcode()), (WrId(round), WcOpcode::Recv));
        let told = (wc.byte_len(), wc.imm(), wc.is_solicited(), wc.qp_num());
        assert_eq!(told, (5000, Some(imm), true, qb.qp_num()), "{what}");
        assert_eq!(done(&a.cq).wr_id(), WrId(2));
        let more = channel.try_get().unwrap_err();
        assert!(more.is_would_block(), "{what}: one event");
    }
    assert_eq!(target.to_vec(0, 9000).unwrap(), pattern(9000, 3), "{what}");

    let back = a.mr(9000);
    let mut batch = qa.post_send();
    let read = batch.read(WrId(3)).local(back.sge(..));
    let _ = read.remote(addr, rkey).signaled();
    let add = batch.fetch_add(WrId(4), 1).local(back.sge(..8));
    let _ = add.remote(addr, rkey).signaled();
    batch.ring().unwrap();
    assert_eq!(done(&a.cq).opcode(), WcOpcode::RdmaRead, "{what}");
    assert_eq!(done(&a.cq).opcode(), WcOpcode::FetchAdd, "{what}");
    fail(&a, &b, &qa, addr + 8999, rkey, &what);
}

/// A WRITE beyond the region, and what is behind it.
fn fail(a: &Side, b: &Side, qa: &Qp, addr: u64, rkey: Rkey, what: &str) {
    let source = a.mr(8);
    let mut batch = qa.post_send();
    let write = batch.write(WrId(5)).local(source.sge(..2));
    let _ = write.remote(addr, rkey).signaled();
    let _ = batch.send(WrId(6)).signaled();
    batch.ring().unwrap();
    let wc = next(&a.cq);
    let failed = (WrId(5), WcStatus::RemAccessErr);
    assert_eq!((wc.wr_id(), wc.status()), failed, "{what}");
    assert_ne!(wc.vendor_err(), 0);
    assert_flushed(&a.cq, &[6]);
    let event = b.ctx.wait_async_event();
    assert_eq!(event.kind(), AsyncKind::QpAccessErr, "{what}");
}
