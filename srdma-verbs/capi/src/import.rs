//! Sharing of devices, domains and regions between contexts of one process.
//!
//! ```text
//! cmd_fd ─ dup ─► ibv_import_device     the file behind it tells which device is meant
//! handle ──────► ibv_import_pd, _mr, _dm  a number, valid for every context of the same file
//! ```
//!
//! A file that another process opened means nothing here: its memory is not ours.

use crate::context::{self, Context};
use crate::device::Device;
use crate::dm::Dm;
use crate::ffi;
use crate::handle::{Errno, Kind, Outcome, borrow, borrow_raw, lock, pointer};
use crate::mr::Mr;
use crate::pd::Pd;
use core::ffi::c_int;
use core::ptr;
use core::sync::atomic::{AtomicU32, Ordering};
use std::collections::HashMap;
use std::sync::{LazyLock, Mutex};

/// A file: device and inode.
type File = (u64, u64);

/// Contexts that are open, each with its file.
static OPEN: Mutex<Vec<(File, &'static Device)>> = Mutex::new(Vec::new());

/// Addresses of objects by file, kind and number.
type Objects = HashMap<(File, Kind, u32), usize>;

/// Objects that can be imported.
static OBJECTS: LazyLock<Mutex<Objects>> = LazyLock::new(Mutex::default);

/// A number for the `handle` of an object.
pub(crate) fn number() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Lets the device of `context` be imported.
pub(crate) fn enter(context: &Context) {
    lock(&OPEN).push((context.file, context.device));
    crate::exit::enter(context);
}

/// A context ends.
pub(crate) fn leave(context: &Context) {
    crate::exit::leave(context);
    let mut open = lock(&OPEN);
    if let Some(at) = open.iter().position(|(file, _)| *file == context.file) {
        open.swap_remove(at);
    }
}

/// Lets an object be imported.
pub(crate) fn enter_object<T>(context: &Context, kind: Kind, number: u32, object: *mut T) {
    lock(&OBJECTS).insert((context.file, kind, number), object.expose_provenance());
}

/// An object ends.
pub(crate) fn leave_object(context: &Context, kind: Kind, number: u32) {
    leave_file(context.file, kind, number);
}

/// An object of a file ends.
pub(crate) fn leave_file(file: File, kind: Kind, number: u32) {
    lock(&OBJECTS).remove(&(file, kind, number));
}

fn find<T>(file: File, kind: Kind, number: u32) -> Outcome<*const T> {
    let addr = lock(&OBJECTS).get(&(file, kind, number)).copied();
    addr.map(ptr::with_exposed_provenance)
        .ok_or(Errno(libc::ENOENT))
}

/// `ibv_import_device`: the descriptor belongs to the new context afterwards.
pub(crate) extern "C" fn import_device(cmd_fd: c_int) -> *mut Context {
    pointer((|| {
        let file = ffi::identity(cmd_fd)?;
        let open = lock(&OPEN);
        let found = open
            .iter()
            .find(|(other, _)| *other == file)
            .map(|(_, device)| *device);
        drop(open);
        let device = found.ok_or(Errno(libc::ENODEV))?;
        let context = context::create(device, ffi::take_fd(cmd_fd))?;
        enter(borrow_raw(context)?);
        Ok(context)
    })())
}

/// `ibv_import_pd`
pub(crate) extern "C" fn import_pd(context: Option<&Context>, number: u32) -> *mut Pd {
    pointer((|| {
        let context = borrow(context)?;
        let pd: &Pd = borrow_raw(find(context.file, Kind::Pd, number)?)?;
        Ok(ffi::own(Box::new(Pd::import(context, pd))))
    })())
}

/// `ibv_import_mr`
pub(crate) extern "C" fn import_mr(pd: Option<&Pd>, number: u32) -> *mut Mr {
    pointer((|| {
        let pd = borrow(pd)?;
        let mr: &Mr = borrow_raw(find(pd.context()?.file, Kind::Mr, number)?)?;
        Ok(ffi::own(Box::new(Mr::import(pd, mr))))
    })())
}

/// `ibv_import_dm`
pub(crate) extern "C" fn import_dm(context: Option<&Context>, number: u32) -> *mut Dm {
    pointer((|| {
        let context = borrow(context)?;
        let dm: &Dm = borrow_raw(find(context.file, Kind::Dm, number)?)?;
        Ok(ffi::own(Box::new(Dm::import(context, dm))))
    })())
}
