//! Locks and threads: the standard ones, or loom's under `cfg(loom)`, for the few parts of this
//! crate whose interleavings are modelled.

#[cfg(not(loom))]
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
#[cfg(not(loom))]
pub(crate) use std::thread::ThreadId;

#[cfg(loom)]
pub(crate) use loom::sync::{Condvar, Mutex, MutexGuard};
#[cfg(loom)]
pub(crate) use loom::thread::ThreadId;
#[cfg(loom)]
pub(crate) use std::sync::PoisonError;

/// Locks; what a thread that panicked left behind is as good as any.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The thread that asks.
#[cfg(not(loom))]
pub(crate) fn this_thread() -> ThreadId {
    std::thread::current().id()
}

/// The thread that asks.
#[cfg(loom)]
pub(crate) fn this_thread() -> ThreadId {
    loom::thread::current().id()
}
