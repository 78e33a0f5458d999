//! Memory windows.

use crate::ffi;
use crate::handle::{
    Errno, Kind, Outcome, Tag, borrow, borrow_raw, lock, object, pointer, status, status_errno,
};
use crate::mr::{self, Mr};
use crate::pd::Pd;
use crate::qp::Qp;
use crate::types::{ibv_mw, ibv_mw_bind, ibv_mw_bind_info};
use core::cell::Cell;
use core::ffi::c_int;
use srdma_verbs::{BindInfo, MwType, Rkey, WrId};
use std::sync::Arc;

/// A window.
#[repr(C)]
pub(crate) struct Mw {
    c: ibv_mw,
    tag: Tag,
    pub(crate) verbs: srdma_verbs::Mw,
    _pd: Arc<()>,
}

object!(Mw, Mw);

impl Mw {
    /// Takes over the key that a bind gives.
    pub(crate) fn set_rkey(&self, rkey: u32) {
        self.c.rkey.set(rkey);
        if self.verbs.kind() == MwType::Two {
            self.verbs.set_rkey(Rkey(rkey));
        }
    }
}

/// `alloc_mw` of the context's table.
pub(crate) extern "C" fn alloc_mw(pd: Option<&Pd>, kind: u32) -> *mut Mw {
    pointer((|| {
        let pd = borrow(pd)?;
        let kind = match kind {
            1 => MwType::One,
            2 => MwType::Two,
            _ => return Err(Errno::INVAL),
        };
        let verbs = pd.verbs.alloc_mw(kind)?;
        Ok(ffi::own(Box::new(Mw {
            c: ibv_mw {
                context: pd.context_ptr(),
                pd: pd.c(),
                rkey: Cell::new(verbs.rkey().value()),
                handle: crate::import::number(),
                type_: if kind == MwType::One { 1 } else { 2 },
            },
            tag: Tag::new(Kind::Mw),
            verbs,
            _pd: pd.hold(),
        })))
    })())
}

/// `dealloc_mw` of the context's table.
pub(crate) extern "C" fn dealloc_mw(handle: *mut Mw) -> c_int {
    status_errno((|| {
        let _: &Mw = borrow_raw(handle)?;
        ffi::release(handle);
        Ok(())
    })())
}

/// Calls `bind` with what C says to open.
pub(crate) fn with_info<R>(
    info: &ibv_mw_bind_info,
    bind: impl FnOnce(&BindInfo<'_>) -> Outcome<R>,
) -> Outcome<R> {
    let mr: &Mr = borrow_raw(info.mr.cast_const().cast())?;
    let access = mr::access(info.mw_access_flags)?;
    let verbs = lock(&mr.verbs);
    bind(&BindInfo::at(&verbs, info.addr, info.length, access))
}

/// `bind_mw` of the context's table, for type 1 windows.
pub(crate) extern "C" fn bind_mw(
    qp: Option<&Qp>,
    mw: Option<&Mw>,
    bind: Option<&ibv_mw_bind>,
) -> c_int {
    const SIGNALED: u32 = 2;
    status((|| {
        let (qp, mw) = (borrow(qp)?, borrow(mw)?);
        let bind = bind.ok_or(Errno::INVAL)?;
        let (id, signaled) = (WrId(bind.wr_id), bind.send_flags & SIGNALED != 0);
        let rkey = with_info(&bind.bind_info, |info| {
            Ok(mw.verbs.bind(&qp.verbs, id, info, signaled)?)
        })?;
        mw.set_rkey(rkey.value());
        Ok(())
    })())
}
