//! Memory that is not a buffer of the program: device memory, the null region.

use crate::common::{config, connect, done, pattern, sides};
use srdma_verbs::{Access, MAX_DM_BYTES, QpType, Reason, WrId};

const ALL: Access = Access::LOCAL_WRITE
    .union(Access::REMOTE)
    .union(Access::ZERO_BASED);

#[test]
fn device_memory_is_copied_registered_and_given_back() {
    let (a, b) = sides();
    let (qa, _qb) = connect(&a.qp(QpType::Rc), &b.qp(QpType::Rc).max_recv_sge(2));
    let dm = b.ctx.alloc_dm(4096, 3).unwrap();
    let bytes = pattern(256, 7);
    dm.write(64, &bytes).unwrap();
    let mut seen = vec![0; 256];
    dm.read(64, &mut seen).unwrap();
    assert_eq!(seen, bytes);

    let mr = b.pd.register_dm(&dm, 1024, 512, ALL).unwrap();
    assert_eq!((mr.addr(), mr.len()), (0, 512));
    let source = a.pattern(100, 3);
    let mut batch = qa.post_send();
    let wr = batch.write(WrId(1)).local(source.sge(..)).signaled();
    let _ = wr.remote(mr.addr() + 8, mr.rkey());
    batch.ring().unwrap();
    done(&a.cq);
    let mut seen = vec![0; 100];
    dm.read(1032, &mut seen).unwrap();
    assert_eq!(seen, pattern(100, 3));

    let busy = dm.clone().free().unwrap_err();
    assert!(matches!(busy.reason(), Reason::Busy));
    drop(mr);
    dm.free().unwrap();
}

#[test]
fn device_memory_has_bounds() {
    let ctx = config().open().unwrap();
    let pd = ctx.alloc_pd().unwrap();
    let dm = ctx.alloc_dm(100, 0).unwrap();
    let errno = |result: srdma_verbs::Result<()>| result.map_err(|error| error.errno());
    assert_eq!(errno(dm.write(96, &[1; 4])), Ok(()));
    for (offset, len) in [(1, 4), (0, 3), (100, 4), (0, 104), (u64::MAX - 3, 4)] {
        assert_eq!(
            errno(dm.write(offset, &vec![0; len])),
            Err(22),
            "{offset} {len}"
        );
        assert_eq!(errno(dm.read(offset, &mut vec![0; len])), Err(22));
    }
    for (offset, len, access) in [
        (0, 104, ALL),
        (104, 4, ALL),
        (0, 100, Access::LOCAL_WRITE),
        (0, 100, Access::REMOTE_WRITE | Access::ZERO_BASED),
    ] {
        let refused = pd.register_dm(&dm, offset, len, access);
        assert_eq!(refused.unwrap_err().errno(), 22, "{offset} {len}");
    }
    let half = usize::try_from(MAX_DM_BYTES / 2).unwrap();
    let first = ctx.alloc_dm(half, 6).unwrap();
    let refused = ctx.alloc_dm(half, 6).unwrap_err();
    assert_eq!(refused.errno(), 12, "the rest is too small");
    drop((first, dm));
    let both = [
        ctx.alloc_dm(half, 12).unwrap(),
        ctx.alloc_dm(half, 0).unwrap(),
    ];
    assert_eq!(ctx.alloc_dm(4, 0).unwrap_err().errno(), 12);
    drop(both);
    assert_eq!(
        ctx.alloc_dm(half, 13).unwrap_err().errno(),
        22,
        "no such alignment"
    );
}

#[test]
fn the_null_region_is_zeros_and_forgets() {
    let (a, b) = sides();
    let (qa, qb) = connect(&a.qp(QpType::Rc), &b.qp(QpType::Rc).max_recv_sge(2));
    let (null, forget) = (a.pd.alloc_null_mr().unwrap(), b.pd.alloc_null_mr().unwrap());
    let (source, target) = (a.pattern(64, 5), b.mr(64));
    let mut batch = qb.post_recv();
    let wr = batch.recv(WrId(9)).local(forget.sge(..16));
    let _ = wr.local(target.sge(..64));
    batch.ring().unwrap();
    let mut batch = qa.post_send();
    let wr = batch.send(WrId(1)).local(source.sge(..32)).signaled();
    let _ = wr.local(null.sge(1 << 40..(1 << 40) + 32));
    batch.ring().unwrap();
    done(&a.cq);
    done(&b.cq);
    let expected = [&pattern(64, 5)[16..32], &[0; 32]].concat();
    assert_eq!(target.to_vec(0, 48).unwrap(), expected);
    assert_eq!(null.to_vec(12345, 3).unwrap(), [0; 3]);
}
