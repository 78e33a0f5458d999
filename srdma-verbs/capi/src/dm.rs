//! Device memory.

use crate::context::Context;
use crate::ffi;
use crate::handle::{
    Errno, Kind, Outcome, Tag, borrow, borrow_raw, object, pointer, status, status_errno,
};
use crate::import;
use crate::mr::{self, Mr};
use crate::pd::Pd;
use crate::types::{ibv_alloc_dm_attr, ibv_dm};
use core::ffi::c_int;

/// `IBV_DM_MASK_HANDLE`
const HAS_HANDLE: u32 = 1;

/// Device memory.
#[repr(C)]
pub(crate) struct Dm {
    c: ibv_dm,
    tag: Tag,
    verbs: srdma_verbs::Dm,
    /// Where it can be imported from; `None` for what was imported.
    file: Option<(u64, u64)>,
}

object!(Dm, Dm);

impl Dm {
    fn create(context: &Context, verbs: srdma_verbs::Dm, number: u32) -> Self {
        Self {
            c: ibv_dm {
                context: context.c(),
                memcpy_to_dm: slot!(copy_to),
                memcpy_from_dm: slot!(copy_from),
                comp_mask: HAS_HANDLE,
                handle: number,
            },
            tag: Tag::new(Kind::Dm),
            verbs,
            file: None,
        }
    }

    /// A further name for the memory of another context.
    pub(crate) fn import(context: &Context, other: &Self) -> Self {
        Self::create(context, other.verbs.clone(), other.c.handle)
    }
}

/// `alloc_dm` of the extended table.
pub(crate) extern "C" fn alloc_dm(
    context: Option<&Context>,
    attr: Option<&ibv_alloc_dm_attr>,
) -> *mut Dm {
    pointer((|| {
        let (context, attr) = (borrow(context)?, attr.ok_or(Errno::INVAL)?);
        if attr.comp_mask != 0 {
            return Err(Errno::UNSUPPORTED);
        }
        let verbs = context.verbs.alloc_dm(attr.length, attr.log_align_req)?;
        let number = import::number();
        let mut dm = Dm::create(context, verbs, number);
        dm.file = Some(context.file);
        let dm = ffi::own(Box::new(dm));
        import::enter_object(context, Kind::Dm, number, dm);
        Ok(dm)
    })())
}

/// `free_dm` of the extended table.
pub(crate) extern "C" fn free_dm(handle: *mut Dm) -> c_int {
    status_errno((|| {
        let dm: &Dm = borrow_raw(handle)?;
        if dm.verbs.is_used() {
            return Err(Errno::BUSY);
        }
        if let Some(file) = dm.file {
            import::leave_file(file, Kind::Dm, dm.c.handle);
        }
        ffi::release(handle);
        Ok(())
    })())
}

/// `ibv_unimport_dm`
pub(crate) extern "C" fn unimport_dm(handle: *mut Dm) {
    if borrow_raw(handle).is_ok_and(|dm: &Dm| dm.file.is_none()) {
        ffi::release(handle);
    }
}

extern "C" fn copy_to(dm: Option<&Dm>, offset: u64, from: *const u8, len: usize) -> c_int {
    status((|| {
        Ok(borrow(dm)?.verbs.write(offset, ffi::slice(from, len))?)
    })())
}

extern "C" fn copy_from(to: *mut u8, dm: Option<&Dm>, offset: u64, len: usize) -> c_int {
    status((|| {
        Ok(borrow(dm)?.verbs.read(offset, ffi::bytes_out(to, len))?)
    })())
}

/// `reg_dm_mr` of the extended table.
pub(crate) extern "C" fn reg_dm_mr(
    pd: Option<&Pd>,
    dm: Option<&Dm>,
    offset: u64,
    len: usize,
    access: u32,
) -> *mut Mr {
    pointer((|| -> Outcome<*mut Mr> {
        let (pd, dm) = (borrow(pd)?, borrow(dm)?);
        let verbs = pd
            .verbs
            .register_dm(&dm.verbs, offset, len, mr::access(access)?)?;
        Ok(mr::own(pd, verbs, core::ptr::null_mut(), len))
    })())
}
