//! Regions: registering memory of the program.
//!
//! Nothing is pinned: the device reads and writes by virtual address. Memory that is not mapped is
//! refused when it is registered, as the kernel does, unless it is to come on demand.

use crate::context;
use crate::ffi;
use crate::handle::{
    Errno, Kind, Outcome, Tag, borrow, borrow_raw, lock, object, pointer, status, status_errno,
};
use crate::import;
use crate::pd::Pd;
use crate::post;
use crate::types::{Ptr, ibv_mr, ibv_sge};
use core::cell::Cell;
use core::ffi::c_int;
use srdma_verbs::{Access, Advice, Rereg};
use std::sync::{Arc, Mutex};

/// What [`rereg_mr`] changes.
mod change {
    pub(super) const TRANSLATION: c_int = 1;
    pub(super) const PD: c_int = 2;
    pub(super) const ACCESS: c_int = 4;
    use core::ffi::c_int;
}

/// `IBV_REREG_MR_ERR_INPUT`: the arguments were wrong, and nothing happened.
const ERR_INPUT: c_int = -1;
/// `IBV_REREG_MR_ERR_CMD`: the device refused.
const ERR_CMD: c_int = -4;

/// A region.
#[repr(C)]
pub(crate) struct Mr {
    c: ibv_mr,
    tag: Tag,
    pub(crate) verbs: Arc<Mutex<srdma_verbs::Mr>>,
    /// Held by the domain.
    pd: Cell<Option<Arc<()>>>,
    imported: bool,
}

object!(Mr, Mr);

impl Mr {
    /// Takes over the keys of the region.
    fn refresh(&self, verbs: &srdma_verbs::Mr) {
        self.c.lkey.set(verbs.lkey().value());
        self.c.rkey.set(verbs.rkey().value());
    }

    /// A further name for the region of another context.
    pub(crate) fn import(pd: &Pd, other: &Self) -> Self {
        let c = ibv_mr {
            context: pd.context_ptr(),
            pd: Cell::new(pd.c()),
            addr: Cell::new(core::ptr::null_mut()),
            length: Cell::new(0),
            handle: other.c.handle,
            lkey: Cell::new(other.c.lkey.get()),
            rkey: Cell::new(other.c.rkey.get()),
        };
        Self {
            c,
            tag: Tag::new(Kind::Mr),
            verbs: Arc::clone(&other.verbs),
            pd: Cell::new(Some(pd.hold())),
            imported: true,
        }
    }
}

/// Rights as C gives them.
pub(crate) fn access(bits: u32) -> Outcome<Access> {
    Access::from_verbs(bits).map_err(|_| Errno::INVAL)
}

fn register(pd: Option<&Pd>, addr: Ptr, len: usize, iova: u64, bits: u32) -> Outcome<*mut Mr> {
    let (pd, access) = (borrow(pd)?, access(bits)?);
    let base = addr.cast::<u8>();
    // SAFETY: why needed: memory of the program becomes a region. Why sound: the contract of verbs
    // says that it stays mapped until the region is deregistered, and whether it is gets checked.
    let verbs = unsafe { pd.verbs.register_foreign_at(base, len, iova, access) }?;
    let mr = own(pd, verbs, addr, len);
    import::enter_object(pd.context()?, Kind::Mr, borrow_raw(mr)?.c.handle, mr);
    Ok(mr)
}

/// Gives a region to C.
pub(crate) fn own(pd: &Pd, verbs: srdma_verbs::Mr, addr: Ptr, len: usize) -> *mut Mr {
    let c = ibv_mr {
        context: pd.context_ptr(),
        pd: Cell::new(pd.c()),
        addr: Cell::new(addr),
        length: Cell::new(len),
        handle: import::number(),
        lkey: Cell::new(verbs.lkey().value()),
        rkey: Cell::new(verbs.rkey().value()),
    };
    ffi::own(Box::new(Mr {
        c,
        tag: Tag::new(Kind::Mr),
        verbs: Arc::new(Mutex::new(verbs)),
        pd: Cell::new(Some(pd.hold())),
        imported: false,
    }))
}

/// `alloc_null_mr` of the extended table: takes all writes and keeps none.
pub(crate) extern "C" fn alloc_null_mr(pd: Option<&Pd>) -> *mut Mr {
    pointer((|| {
        let pd = borrow(pd)?;
        let verbs = pd.verbs.alloc_null_mr()?;
        Ok(own(pd, verbs, core::ptr::null_mut(), 0))
    })())
}

/// `ibv_reg_mr`
pub(crate) extern "C" fn reg_mr(pd: Option<&Pd>, addr: Ptr, len: usize, access: c_int) -> *mut Mr {
    let iova = addr.expose_provenance() as u64;
    pointer(register(pd, addr, len, iova, access.cast_unsigned()))
}

/// `ibv_reg_mr_iova` and `ibv_reg_mr_iova2`
pub(crate) extern "C" fn reg_mr_iova(
    pd: Option<&Pd>,
    addr: Ptr,
    len: usize,
    iova: u64,
    access: u32,
) -> *mut Mr {
    pointer(register(pd, addr, len, iova, access))
}

/// `ibv_rereg_mr`: zero or one of the `IBV_REREG_MR_ERR` codes.
pub(crate) extern "C" fn rereg_mr(
    mr: Option<&Mr>,
    flags: c_int,
    pd: Option<&Pd>,
    addr: Ptr,
    len: usize,
    bits: c_int,
) -> c_int {
    let all = change::TRANSLATION | change::PD | change::ACCESS;
    let moved = flags & change::TRANSLATION != 0;
    let rights = flags & change::ACCESS != 0;
    let wrong = flags & !all != 0 || (moved && len == 0) || (bits != 0 && !rights);
    let Ok(mr) = borrow(mr).and_then(|mr| if wrong { Err(Errno::INVAL) } else { Ok(mr) }) else {
        ffi::set_errno(libc::EINVAL);
        return ERR_INPUT;
    };
    let memory = moved.then_some((addr, len));
    let pd = if flags & change::PD == 0 {
        Ok(None)
    } else {
        borrow(pd).map(Some)
    };
    let changed = pd.and_then(|pd| {
        let rights = if rights {
            Some(access(bits.cast_unsigned())?)
        } else {
            None
        };
        rereg(mr, pd, memory, rights)
    });
    match changed {
        Ok(()) => 0,
        Err(Errno(code)) => {
            ffi::set_errno(code);
            ERR_CMD
        }
    }
}

fn rereg(
    mr: &Mr,
    pd: Option<&Pd>,
    memory: Option<(Ptr, usize)>,
    rights: Option<Access>,
) -> Outcome<()> {
    // Programs tell peers of keys once.
    let mut change = Rereg::new().keep_key();
    if let Some(pd) = pd {
        change = change.pd(&pd.verbs);
    }
    if let Some(access) = rights {
        change = change.access(access);
    }
    if let Some((addr, len)) = memory {
        // SAFETY: why needed: memory of the program becomes a region. Why sound: the contract of
        // verbs says that it stays mapped until the region is deregistered, and it gets checked.
        change = unsafe { change.foreign(addr.cast(), len) };
    }
    let mut verbs = lock(&mr.verbs);
    verbs.rereg(change)?;
    mr.refresh(&verbs);
    if let Some(pd) = pd {
        mr.c.pd.set(pd.c());
        mr.pd.set(Some(pd.hold()));
    }
    if let Some((addr, len)) = memory {
        mr.c.addr.set(addr);
        mr.c.length.set(len);
    }
    Ok(())
}

/// `ibv_dereg_mr`
pub(crate) extern "C" fn dereg_mr(handle: *mut Mr) -> c_int {
    status_errno((|| {
        let mr: &Mr = borrow_raw(handle)?;
        if !mr.imported {
            lock(&mr.verbs).try_dereg()?;
            import::leave_object(context::of(mr.c.context)?, Kind::Mr, mr.c.handle);
        }
        ffi::release(handle);
        Ok(())
    })())
}

/// `ibv_unimport_mr`
pub(crate) extern "C" fn unimport_mr(handle: *mut Mr) {
    if borrow_raw(handle).is_ok_and(|mr: &Mr| mr.imported) {
        ffi::release(handle);
    }
}

/// `advise_mr` of the extended table.
pub(crate) extern "C" fn advise_mr(
    pd: Option<&Pd>,
    advice: u32,
    _flags: u32,
    sges: *const ibv_sge,
    count: u32,
) -> c_int {
    status((|| {
        let pd = borrow(pd)?;
        let advice = match advice {
            0 => Advice::Prefetch,
            1 => Advice::PrefetchWrite,
            2 => Advice::PrefetchNoFault,
            _ => return Err(Errno::UNSUPPORTED),
        };
        let sges = ffi::slice(sges, count as usize).iter().map(post::sge);
        Ok(pd.verbs.advise(advice, &sges.collect::<Vec<_>>())?)
    })())
}
