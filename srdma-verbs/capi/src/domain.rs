//! Thread domains and parent domains.
//!
//! A thread domain promises that one thread uses its objects; our locks are cheap when nobody
//! contends for them, so it is only counted. A parent domain is another name for a protection
//! domain, with allocators of the program: queues made in it live in memory that those give.
//!
//! ```text
//! resource type   1 QP │ 2 CQ │ 3 SRQ
//! ```

use crate::context::Context;
use crate::ffi;
use crate::handle::{Errno, Kind, Tag, borrow, borrow_raw, object, pointer, status_errno};
use crate::pd::Pd;
use crate::types::{AllocFn, FreeFn, Ptr, ibv_parent_domain_init_attr, ibv_td, ibv_td_init_attr};
use core::ffi::c_int;
use core::ptr::{self, NonNull};
use srdma_verbs::{RingAlloc, RingBlock};
use std::sync::Arc;

/// Bits of `comp_mask` of a parent domain.
const ALLOCATORS: u32 = 1;
const PD_CONTEXT: u32 = 2;

/// What an allocator is told that the memory is for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Resource {
    Qp = 1,
    Cq = 2,
    Srq = 3,
}

/// What a parent domain has beyond its protection domain.
pub(crate) struct Domain {
    allocators: Option<(AllocFn, FreeFn)>,
    context: Ptr,
    _pd: Arc<()>,
    _td: Option<Arc<()>>,
}

impl Pd {
    /// The allocators that rings of an object made in this domain come from.
    pub(crate) fn ring_alloc(&self, resource: Resource) -> Option<Arc<dyn RingAlloc>> {
        let domain = self.domain.as_ref()?;
        let (alloc, free) = domain.allocators?;
        Some(Arc::new(Allocators {
            alloc,
            free,
            pd: self.c().expose_provenance(),
            context: domain.context.expose_provenance(),
            resource,
        }))
    }
}

/// The functions of a parent domain, for one object.
#[derive(Debug)]
struct Allocators {
    alloc: AllocFn,
    free: FreeFn,
    pd: usize,
    context: usize,
    resource: Resource,
}

// SAFETY: why needed: rings in memory of the program. Why sound: the contract of verbs says that
// the functions of a parent domain give memory that nobody else uses until it is given back; that
// it is aligned is checked by whoever asks.
unsafe impl RingAlloc for Allocators {
    fn alloc(&self, len: usize, align: usize) -> RingBlock {
        let (pd, context) = (pointer_of(self.pd), pointer_of(self.context));
        // SAFETY: why needed: a function of the program. Why sound: the program gave it for just
        // this, with these arguments.
        let base = unsafe { (self.alloc)(pd, context, len, align, self.resource as u64) };
        // IBV_ALLOCATOR_USE_DEFAULT
        if base.addr() == usize::MAX {
            return RingBlock::Default;
        }
        NonNull::new(base.cast()).map_or(RingBlock::Failed, RingBlock::At)
    }

    fn free(&self, base: NonNull<u8>, _len: usize) {
        let (pd, context) = (pointer_of(self.pd), pointer_of(self.context));
        // SAFETY: why needed: a function of the program. Why sound: it gets back what its
        // counterpart gave.
        unsafe { (self.free)(pd, context, base.as_ptr().cast(), self.resource as u64) };
    }
}

fn pointer_of(addr: usize) -> Ptr {
    ptr::with_exposed_provenance_mut(addr)
}

/// A thread domain.
#[repr(C)]
pub(crate) struct Td {
    c: ibv_td,
    tag: Tag,
    users: Arc<()>,
}

object!(Td, Td);

/// `alloc_td` of the extended table.
pub(crate) extern "C" fn alloc_td(
    context: Option<&Context>,
    attr: Option<&ibv_td_init_attr>,
) -> *mut Td {
    pointer((|| {
        let context = borrow(context)?;
        if attr.ok_or(Errno::INVAL)?.comp_mask != 0 {
            return Err(Errno::UNSUPPORTED);
        }
        Ok(ffi::own(Box::new(Td {
            c: ibv_td {
                context: context.c(),
            },
            tag: Tag::new(Kind::Td),
            users: Arc::default(),
        })))
    })())
}

/// `dealloc_td` of the extended table.
pub(crate) extern "C" fn dealloc_td(handle: *mut Td) -> c_int {
    status_errno((|| {
        let td: &Td = borrow_raw(handle)?;
        if Arc::strong_count(&td.users) > 1 {
            return Err(Errno::BUSY);
        }
        ffi::release(handle);
        Ok(())
    })())
}

/// `alloc_parent_domain` of the extended table.
pub(crate) extern "C" fn alloc_parent_domain(
    context: Option<&Context>,
    attr: Option<&ibv_parent_domain_init_attr>,
) -> *mut Pd {
    pointer((|| {
        let (context, attr) = (borrow(context)?, attr.ok_or(Errno::INVAL)?);
        if attr.comp_mask & !(ALLOCATORS | PD_CONTEXT) != 0 {
            return Err(Errno::UNSUPPORTED);
        }
        let pd: &Pd = borrow_raw(attr.pd.cast_const().cast())?;
        let td = if attr.td.is_null() {
            None
        } else {
            let td: &Td = borrow_raw(attr.td.cast_const().cast())?;
            Some(Arc::clone(&td.users))
        };
        let allocators = if attr.comp_mask & ALLOCATORS == 0 {
            None
        } else {
            Some(attr.alloc.zip(attr.free).ok_or(Errno::INVAL)?)
        };
        let context_ptr = if attr.comp_mask & PD_CONTEXT == 0 {
            ptr::null_mut()
        } else {
            attr.pd_context
        };
        let mut parent = Pd::create(context, pd.verbs.clone());
        parent.domain = Some(Domain {
            allocators,
            context: context_ptr,
            _pd: pd.hold(),
            _td: td,
        });
        Ok(ffi::own(Box::new(parent)))
    })())
}
