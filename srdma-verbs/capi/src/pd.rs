//! Protection domains.

use crate::context::{self, Context};
use crate::domain::Domain;
use crate::ffi;
use crate::handle::{Errno, Kind, Outcome, Tag, borrow, borrow_raw, object, pointer, status_errno};
use crate::import;
use crate::types::{Ptr, ibv_pd};
use core::ffi::c_int;
use core::ptr;
use std::sync::Arc;

/// A protection domain, or a parent domain on one.
#[repr(C)]
pub(crate) struct Pd {
    c: ibv_pd,
    tag: Tag,
    pub(crate) verbs: srdma_verbs::Pd,
    /// Held by whatever was made in this domain.
    users: Arc<()>,
    /// For a parent domain.
    pub(crate) domain: Option<Domain>,
    imported: bool,
}

object!(Pd, Pd);

impl Pd {
    pub(crate) fn create(context: &Context, verbs: srdma_verbs::Pd) -> Self {
        Self {
            c: ibv_pd {
                context: context.c(),
                handle: import::number(),
            },
            tag: Tag::new(Kind::Pd),
            verbs,
            users: Arc::default(),
            domain: None,
            imported: false,
        }
    }

    /// A further name for the domain of another context.
    pub(crate) fn import(context: &Context, other: &Self) -> Self {
        let own = Self::create(context, other.verbs.clone());
        Self {
            c: ibv_pd {
                handle: other.c.handle,
                ..own.c
            },
            imported: true,
            ..own
        }
    }

    /// For an object made in this domain, to hold while it lives.
    pub(crate) fn hold(&self) -> Arc<()> {
        Arc::clone(&self.users)
    }

    /// The context of the domain, as C knows it.
    pub(crate) const fn context_ptr(&self) -> Ptr {
        self.c.context
    }

    /// The context of the domain.
    pub(crate) fn context<'a>(&self) -> Outcome<&'a Context> {
        context::of(self.c.context)
    }

    /// What C calls this domain.
    pub(crate) fn c(&self) -> Ptr {
        ptr::from_ref(self).cast_mut().cast()
    }
}

/// `ibv_alloc_pd`
pub(crate) extern "C" fn alloc_pd(context: Option<&Context>) -> *mut Pd {
    pointer((|| {
        let context = borrow(context)?;
        let pd = ffi::own(Box::new(Pd::create(context, context.verbs.alloc_pd()?)));
        import::enter_object(context, Kind::Pd, borrow_raw(pd)?.c.handle, pd);
        Ok(pd)
    })())
}

/// `ibv_dealloc_pd`
pub(crate) extern "C" fn dealloc_pd(pd: *mut Pd) -> c_int {
    status_errno(end(pd))
}

fn end(handle: *mut Pd) -> Outcome<()> {
    let pd: &Pd = borrow_raw(handle)?;
    if Arc::strong_count(&pd.users) > 1 {
        return Err(Errno::BUSY);
    }
    if pd.domain.is_none() && !pd.imported {
        if pd.verbs.is_used() {
            return Err(Errno::BUSY);
        }
        import::leave_object(pd.context()?, Kind::Pd, pd.c.handle);
    }
    ffi::release(handle);
    Ok(())
}

/// `ibv_unimport_pd`
pub(crate) extern "C" fn unimport_pd(pd: *mut Pd) {
    if borrow_raw(pd).is_ok_and(|pd: &Pd| pd.imported) {
        ffi::release(pd);
    }
}
