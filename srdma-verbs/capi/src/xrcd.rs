//! XRC domains, and further handles on their targets.

use crate::context::{self, Context};
use crate::ffi;
use crate::handle::{Errno, Kind, Outcome, Tag, borrow, borrow_raw, object, pointer, status_errno};
use crate::qp::{self, Qp};
use crate::types::{Ptr, ibv_qp_open_attr, ibv_xrcd, ibv_xrcd_init_attr};
use core::ffi::c_int;
use srdma_verbs::{Qpn, XrcdOpen};

/// Bits of `comp_mask` when a domain is opened: both are needed.
const FD: u32 = 1;
const OFLAGS: u32 = 2;

/// Bits of `comp_mask` when a target is opened.
mod open {
    pub(super) const NUM: u32 = 1;
    pub(super) const XRCD: u32 = 2;
    pub(super) const CONTEXT: u32 = 4;
    pub(super) const TYPE: u32 = 8;
}

/// A domain.
#[repr(C)]
pub(crate) struct Xrcd {
    c: ibv_xrcd,
    tag: Tag,
    pub(crate) verbs: srdma_verbs::Xrcd,
}

object!(Xrcd, Xrcd);

/// The domain that a structure names.
pub(crate) fn of<'a>(xrcd: Ptr) -> Outcome<&'a Xrcd> {
    borrow_raw(xrcd.cast_const().cast())
}

/// `open_xrcd` of the extended table.
pub(crate) extern "C" fn open_xrcd(
    context: Option<&Context>,
    attr: Option<&ibv_xrcd_init_attr>,
) -> *mut Xrcd {
    pointer((|| {
        let (context, attr) = (borrow(context)?, attr.ok_or(Errno::INVAL)?);
        if attr.comp_mask != FD | OFLAGS {
            return Err(Errno::INVAL);
        }
        let how = match attr.oflags & (libc::O_CREAT | libc::O_EXCL) {
            0 => XrcdOpen::Existing,
            libc::O_CREAT => XrcdOpen::Create,
            _ => XrcdOpen::CreateNew,
        };
        let verbs = if attr.fd == -1 {
            if how == XrcdOpen::Existing {
                return Err(Errno::INVAL);
            }
            context.verbs.open_xrcd()?
        } else {
            ffi::identity(attr.fd)?;
            context.verbs.open_xrcd_file(ffi::lent_fd(attr.fd), how)?
        };
        Ok(ffi::own(Box::new(Xrcd {
            c: ibv_xrcd {
                context: context.c(),
            },
            tag: Tag::new(Kind::Xrcd),
            verbs,
        })))
    })())
}

/// `close_xrcd` of the extended table.
pub(crate) extern "C" fn close_xrcd(handle: *mut Xrcd) -> c_int {
    status_errno((|| {
        let xrcd: &Xrcd = borrow_raw(handle)?;
        if xrcd.verbs.is_used() {
            return Err(Errno::BUSY);
        }
        ffi::release(handle);
        Ok(())
    })())
}

/// `open_qp` of the extended table: a further handle on a target.
pub(crate) extern "C" fn open_qp(
    context: Option<&Context>,
    attr: Option<&ibv_qp_open_attr>,
) -> *mut Qp {
    pointer((|| {
        let (context, attr) = (borrow(context)?, attr.ok_or(Errno::INVAL)?);
        let needed = open::NUM | open::XRCD | open::TYPE;
        let known = needed | open::CONTEXT;
        if attr.comp_mask & needed != needed || attr.comp_mask & !known != 0 {
            return Err(Errno::INVAL);
        }
        if attr.qp_type != qp::kind::XRC_RECV {
            return Err(Errno::INVAL);
        }
        let verbs = of(attr.xrcd)?.verbs.open_qp(Qpn::new(attr.qp_num))?;
        let named = attr.comp_mask & open::CONTEXT != 0;
        let qp_context = if named {
            attr.qp_context
        } else {
            core::ptr::null_mut()
        };
        Ok(qp::opened(context::of(context.c())?, verbs, qp_context))
    })())
}
