//! Open devices: opening, closing, and finding the object of an event.
//!
//! ```text
//! Block { verbs_context │ Context { ibv_context │ tag │ what we keep } }
//!                         ▲ what programs hold; they find the table in front of it by `sz`
//! ```

use crate::device::Device;
use crate::ffi;
use crate::handle::{Errno, Kind, Object, Outcome, Tag, borrow, borrow_raw, lock, object, pointer};
use crate::types::{Ptr, ibv_context, verbs_context};
use crate::{import, vtable};
use core::cell::Cell;
use core::ffi::c_int;
use core::mem::offset_of;
use core::ptr;
use std::collections::HashMap;
use std::io::Write;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Mutex;

/// The mark of a context that has a table in front of it.
const EXTENDED: usize = usize::MAX;

/// An open device.
#[repr(C)]
pub(crate) struct Context {
    c: ibv_context,
    tag: Tag,
    pub(crate) verbs: srdma_verbs::Context,
    pub(crate) device: &'static Device,
    objects: Mutex<HashMap<(Kind, u32), Vec<usize>>>,
    /// Identity of the device for [`import`]; programs duplicate it.
    _cmd: OwnedFd,
    /// The file behind that descriptor.
    pub(crate) file: (u64, u64),
    /// The process that opened it.
    process: u32,
}

object!(Context, Context);

/// A context and what stands in front of it.
#[repr(C)]
struct Block {
    table: verbs_context,
    context: Context,
}

impl Context {
    /// Remembers which C object belongs to a number, for events. Several handles on one queue pair
    /// share its number.
    pub(crate) fn enter<T>(&self, kind: Kind, number: u32, object: *mut T) {
        let addr = object.expose_provenance();
        let mut objects = lock(&self.objects);
        objects.entry((kind, number)).or_default().push(addr);
    }

    /// Forgets it.
    pub(crate) fn leave<T>(&self, kind: Kind, number: u32, object: *mut T) {
        let mut objects = lock(&self.objects);
        if let Some(known) = objects.get_mut(&(kind, number)) {
            known.retain(|addr| *addr != object.addr());
            if known.is_empty() {
                objects.remove(&(kind, number));
            }
        }
    }

    /// The C object of a number, of several the one that `is_it`.
    pub(crate) fn find<T: Object + 'static>(
        &self,
        kind: Kind,
        number: u32,
        is_it: impl Fn(&T) -> bool,
    ) -> Option<*mut T> {
        let objects = lock(&self.objects);
        let known = objects.get(&(kind, number))?.iter();
        let mut known = known.map(|addr| ptr::with_exposed_provenance_mut::<T>(*addr));
        known.find(|object| borrow_raw(object.cast_const()).is_ok_and(&is_it))
    }

    /// What C calls this context.
    pub(crate) fn c(&self) -> Ptr {
        ptr::from_ref(self).cast_mut().cast()
    }

    /// Refuses in a child of the process that opened the device: events are its parent's, and
    /// nothing serves the child's copy of the device.
    // rule: event-36
    pub(crate) fn check_process(&self) -> Outcome<()> {
        if self.process == std::process::id() {
            Ok(())
        } else {
            Err(Errno::IO)
        }
    }

    /// The descriptor of asynchronous events.
    pub(crate) const fn async_fd(&self) -> c_int {
        self.c.async_fd
    }

    /// Completion vectors, as programs were told.
    pub(crate) const fn comp_vectors(&self) -> c_int {
        self.c.num_comp_vectors
    }
}

/// The context of an object that C holds.
pub(crate) fn of<'a>(context: Ptr) -> Outcome<&'a Context> {
    borrow_raw(context.cast_const().cast())
}

/// Says why a device cannot be opened: C has a number for it, programs say less, and what to do
/// about an address of another user or a port that is taken is not in either.
fn complain(device: &Device, error: srdma_verbs::Error) -> Errno {
    let name = &device.info.name;
    // Where there is nobody to tell, the number has to do.
    let _ = writeln!(std::io::stderr().lock(), "libsrdma: {name}: {error}");
    error.into()
}

/// Opens a device, under the identity `cmd`.
pub(crate) fn create(device: &'static Device, cmd: OwnedFd) -> Outcome<*mut Context> {
    let verbs = srdma_verbs::open(&device.info.name).map_err(|error| complain(device, error))?;
    let async_fd = verbs.async_fd()?.as_raw_fd();
    ffi::set_blocking(async_fd);
    let vectors = verbs.query_device().comp_vectors;
    let c = ibv_context {
        device: device.c().cast(),
        ops: vtable::ops(),
        cmd_fd: cmd.as_raw_fd(),
        async_fd,
        num_comp_vectors: c_int::from(vectors.min(0x7fff).cast_signed()),
        mutex: libc::PTHREAD_MUTEX_INITIALIZER,
        abi_compat: Cell::new(EXTENDED),
    };
    let context = Context {
        c,
        tag: Tag::new(Kind::Context),
        verbs,
        device,
        objects: Mutex::default(),
        file: ffi::identity(cmd.as_raw_fd())?,
        _cmd: cmd,
        process: std::process::id(),
    };
    let table = vtable::extended(size_of::<verbs_context>() + size_of::<ibv_context>());
    let block = ffi::own(Box::new(Block { table, context }));
    Ok(block
        .wrapping_byte_add(offset_of!(Block, context))
        .cast::<Context>())
}

/// `ibv_open_device`
pub(crate) extern "C" fn open_device(device: Option<&'static Device>) -> *mut Context {
    pointer(open(device))
}

fn open(device: Option<&'static Device>) -> Outcome<*mut Context> {
    let context = create(borrow(device)?, ffi::memfd()?)?;
    import::enter(borrow_raw(context)?);
    Ok(context)
}

/// `ibv_close_device`: -1 for what is no device.
pub(crate) extern "C" fn close_device(context: *mut Context) -> c_int {
    let Ok(open) = borrow_raw(context) else {
        ffi::set_errno(Errno::INVAL.0);
        return -1;
    };
    import::leave(open);
    ffi::release(
        context
            .wrapping_byte_sub(offset_of!(Block, context))
            .cast::<Block>(),
    );
    0
}
