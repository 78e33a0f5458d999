//! Queue pairs: made, modified, queried, destroyed; multicast groups.

use crate::context::{self, Context};
use crate::cq::Cq;
use crate::domain::Resource;
use crate::ffi;
use crate::gid;
use crate::handle::{
    Errno, Kind, Outcome, Tag, borrow, borrow_raw, object, pointer, status, status_errno,
};
use crate::pd::Pd;
use crate::qp_attr;
use crate::qp_build;
use crate::srq::Srq;
use crate::types::{
    Ptr, ibv_ece, ibv_qp, ibv_qp_attr, ibv_qp_cap, ibv_qp_ex, ibv_qp_init_attr, ibv_qp_init_attr_ex,
};
use crate::xrcd;
use core::cell::Cell;
use core::ffi::c_int;
use core::mem::MaybeUninit;
use core::ptr;
use srdma_verbs::{QpType, SendBatch};
use std::sync::Arc;

/// Types of queue pairs, as C numbers them.
pub(crate) mod kind {
    pub(super) const RAW_PACKET: u32 = 8;
    pub(crate) const XRC_SEND: u32 = 9;
    pub(crate) const XRC_RECV: u32 = 10;
    pub(super) const DRIVER: u32 = 0xff;
}

/// A queue pair.
#[repr(C)]
pub(crate) struct Qp {
    pub(crate) c: ibv_qp_ex,
    tag: Tag,
    /// Work requests between `wr_start` and `wr_complete`.
    pub(crate) batch: Cell<Option<SendBatch<'static>>>,
    pub(crate) verbs: srdma_verbs::Qp,
    pub(crate) signals_all: bool,
    /// Made with a builder of work requests.
    pub(crate) extended: bool,
    _pd: Option<Arc<()>>,
}

object!(Qp, Qp);

/// The type that C means.
fn qp_type(value: u32) -> Outcome<QpType> {
    match value {
        2 => Ok(QpType::Rc),
        3 => Ok(QpType::Uc),
        4 => Ok(QpType::Ud),
        kind::XRC_SEND => Ok(QpType::XrcSend),
        kind::RAW_PACKET | kind::DRIVER => Err(Errno::UNSUPPORTED),
        _ => Err(Errno::INVAL),
    }
}

/// Makes a queue pair; `attr.cap` says what it came to afterwards.
pub(crate) fn create(pd: &Pd, attr: &mut ibv_qp_init_attr_ex, extended: bool) -> Outcome<*mut Qp> {
    let context = pd.context()?;
    let kind = qp_type(attr.qp_type)?;
    let send_cq: &Cq = borrow_raw(attr.send_cq.cast_const().cast())?;
    // An initiator receives nothing, so programs need not name a queue for it.
    let receives = kind != QpType::XrcSend;
    let recv_cq: &Cq = if attr.recv_cq.is_null() && !receives {
        send_cq
    } else {
        borrow_raw(attr.recv_cq.cast_const().cast())?
    };
    let cap = &attr.cap;
    let mut builder = pd
        .verbs
        .create_qp(kind)
        .send_cq(&send_cq.verbs)
        .recv_cq(&recv_cq.verbs)
        .max_send_wr(cap.max_send_wr)
        .max_recv_wr(if receives { cap.max_recv_wr } else { 0 })
        .max_send_sge(cap.max_send_sge)
        .max_recv_sge(cap.max_recv_sge)
        .max_inline(cap.max_inline_data)
        .signal_all(attr.sq_sig_all != 0);
    if !attr.srq.is_null() {
        let srq: &Srq = borrow_raw(attr.srq.cast_const().cast())?;
        builder = builder.srq(&srq.verbs);
    }
    if let Some(alloc) = pd.ring_alloc(Resource::Qp) {
        builder = builder.ring_alloc(alloc);
    }
    let verbs = builder.build_reset()?;
    attr.cap = qp_attr::cap_of(&verbs);
    let base = base(context, attr, pd.c(), &verbs);
    let made = Made {
        signals_all: attr.sq_sig_all != 0,
        extended,
        pd: Some(pd.hold()),
    };
    Ok(own(context, base, verbs, made))
}

/// Makes an XRC target.
pub(crate) fn create_target(context: &Context, attr: &mut ibv_qp_init_attr_ex) -> Outcome<*mut Qp> {
    let verbs = xrcd::of(attr.xrcd)?.verbs.create_qp().build_reset()?;
    attr.cap = qp_attr::cap_of(&verbs);
    let base = base(context, attr, ptr::null_mut(), &verbs);
    Ok(own(context, base, verbs, Made::default()))
}

/// A further handle on an XRC target.
pub(crate) fn opened(context: &Context, verbs: srdma_verbs::Qp, qp_context: Ptr) -> *mut Qp {
    let mut base = qp_build::table().qp_base;
    let number = verbs.qp_num().value();
    (base.context, base.qp_context) = (context.c(), qp_context);
    (base.handle, base.qp_num, base.qp_type) = (number, number, kind::XRC_RECV);
    base.state.set(verbs.state() as u32);
    own(context, base, verbs, Made::default())
}

/// How a queue pair was made, beyond what C sees.
#[derive(Default)]
struct Made {
    signals_all: bool,
    extended: bool,
    pd: Option<Arc<()>>,
}

fn base(context: &Context, attr: &ibv_qp_init_attr_ex, pd: Ptr, verbs: &srdma_verbs::Qp) -> ibv_qp {
    let number = verbs.qp_num().value();
    let mut base = qp_build::table().qp_base;
    (base.context, base.qp_context, base.pd) = (context.c(), attr.qp_context, pd);
    (base.send_cq, base.recv_cq, base.srq) = (attr.send_cq, attr.recv_cq, attr.srq);
    (base.handle, base.qp_num, base.qp_type) = (number, number, attr.qp_type);
    base
}

/// Gives a queue pair to C.
fn own(context: &Context, base: ibv_qp, verbs: srdma_verbs::Qp, made: Made) -> *mut Qp {
    let number = base.qp_num;
    let mut c = qp_build::table();
    c.qp_base = base;
    let qp = ffi::own(Box::new(Qp {
        c,
        tag: Tag::new(Kind::Qp),
        batch: Cell::new(None),
        verbs,
        signals_all: made.signals_all,
        extended: made.extended,
        _pd: made.pd,
    }));
    context.enter(Kind::Qp, number, qp);
    qp
}

/// `ibv_create_qp`
pub(crate) extern "C" fn create_qp(
    pd: Option<&Pd>,
    attr: Option<&Cell<ibv_qp_init_attr>>,
) -> *mut Qp {
    pointer((|| {
        let attr = attr.ok_or(Errno::INVAL)?;
        let mut value = attr.get();
        let mut wide = ibv_qp_init_attr_ex {
            qp_context: value.qp_context,
            send_cq: value.send_cq,
            recv_cq: value.recv_cq,
            srq: value.srq,
            cap: value.cap,
            qp_type: value.qp_type,
            sq_sig_all: value.sq_sig_all,
            comp_mask: 0,
            pd: ptr::null_mut(),
            xrcd: ptr::null_mut(),
            create_flags: 0,
            max_tso_header: 0,
            rwq_ind_tbl: ptr::null_mut(),
            rx_hash_conf: [0; 3],
            source_qpn: 0,
            send_ops_flags: 0,
        };
        let qp = create(borrow(pd)?, &mut wide, false)?;
        value.cap = wide.cap;
        attr.set(value);
        Ok(qp)
    })())
}

/// `ibv_modify_qp`
pub(crate) extern "C" fn modify_qp(
    qp: Option<&Qp>,
    attr: Option<&ibv_qp_attr>,
    mask: c_int,
) -> c_int {
    status_errno((|| {
        let (qp, attr) = (borrow(qp)?, attr.ok_or(Errno::INVAL)?);
        let change = qp_attr::change(attr, qp_attr::heeded(&qp.verbs, mask))?;
        qp.verbs.modify(&change)?;
        qp.c.qp_base.state.set(qp.verbs.state() as u32);
        Ok(())
    })())
}

/// `ibv_query_qp`
pub(crate) extern "C" fn query_qp(
    qp: Option<&Qp>,
    attr: Option<&mut MaybeUninit<ibv_qp_attr>>,
    _mask: c_int,
    init: Option<&mut MaybeUninit<ibv_qp_init_attr>>,
) -> c_int {
    status_errno((|| {
        let qp = borrow(qp)?;
        let (Some(attr), Some(init)) = (attr, init) else {
            return Err(Errno::INVAL);
        };
        let value = qp_attr::query(&qp.verbs);
        qp.c.qp_base.state.set(value.qp_state);
        let base = &qp.c.qp_base;
        init.write(ibv_qp_init_attr {
            qp_context: base.qp_context,
            send_cq: base.send_cq,
            recv_cq: base.recv_cq,
            srq: base.srq,
            cap: ibv_qp_cap { ..value.cap },
            qp_type: base.qp_type,
            sq_sig_all: c_int::from(qp.signals_all),
        });
        attr.write(value);
        Ok(())
    })())
}

/// `ibv_destroy_qp`: waits until the events that were given are acknowledged.
pub(crate) extern "C" fn destroy_qp(handle: *mut Qp) -> c_int {
    status_errno((|| {
        let qp: &Qp = borrow_raw(handle)?;
        // A batch that was never completed would hold the send queue.
        drop(qp.batch.take());
        qp.verbs.destroy()?;
        context::of(qp.c.qp_base.context)?.leave(Kind::Qp, qp.verbs.qp_num().value(), handle);
        ffi::release(handle);
        Ok(())
    })())
}

/// `ibv_qp_to_qp_ex`: null for a queue pair that was made without a builder.
pub(crate) extern "C" fn qp_to_qp_ex(qp: *mut Qp) -> *mut Qp {
    if borrow_raw(qp).is_ok_and(|qp: &Qp| qp.extended) {
        qp
    } else {
        ptr::null_mut()
    }
}

/// `ibv_query_qp_data_in_order`: no promise beyond that of the transport.
pub(crate) extern "C" fn query_qp_data_in_order(_qp: Ptr, _op: u32, _flags: u32) -> c_int {
    0
}

/// `ibv_set_ece` and `ibv_query_ece`: there is nothing to agree about.
pub(crate) extern "C" fn ece(_qp: Ptr, _ece: Option<&ibv_ece>) -> c_int {
    libc::EOPNOTSUPP
}

/// `ibv_attach_mcast`
pub(crate) extern "C" fn attach_mcast(
    qp: Option<&Qp>,
    group: Option<&[u64; 2]>,
    _lid: u16,
) -> c_int {
    status((|| {
        let group = gid::from_words(*group.ok_or(Errno::INVAL)?);
        Ok(borrow(qp)?.verbs.attach_mcast(group)?)
    })())
}

/// `ibv_detach_mcast`
pub(crate) extern "C" fn detach_mcast(
    qp: Option<&Qp>,
    group: Option<&[u64; 2]>,
    _lid: u16,
) -> c_int {
    status((|| {
        let group = gid::from_words(*group.ok_or(Errno::INVAL)?);
        Ok(borrow(qp)?.verbs.detach_mcast(group)?)
    })())
}
