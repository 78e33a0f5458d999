//! MSI-X vectors outside the device: an eventfd each, or a handler in this process.
//!
//! ```text
//! raise(vector) → handler, if there is one        on the thread that ran the pass
//!               → eventfd, if somebody has it     a system call
//!               → pending, until there is either
//! ```
//!
//! Masks and moderation are the device's (`hca/msix.rs`); a vector that comes here fires.

use crate::sys::eventfd::EventFd;
use core::fmt;
use srdma_core::num::MsixVector;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What is called when a vector fires. It runs inside a pass: it must not wait for one.
pub type Handler = Arc<dyn Fn(MsixVector) + Send + Sync>;

/// The vectors of one device.
#[derive(Debug)]
pub struct Msix {
    lines: Box<[Mutex<Line>]>,
}

#[derive(Default)]
struct Line {
    handler: Option<Handler>,
    event: Option<Arc<EventFd>>,
    pending: bool,
}

impl Msix {
    /// `count` vectors that nobody listens to. Costs no descriptors.
    #[must_use]
    pub fn new(count: u16) -> Self {
        Self {
            lines: (0..count).map(|_| Mutex::default()).collect(),
        }
    }

    /// Number of vectors.
    #[must_use]
    pub fn count(&self) -> usize {
        self.lines.len()
    }

    /// Fires `vector`. A vector that does not exist has no listener, so nothing happens.
    pub fn raise(&self, vector: MsixVector) {
        let Some(mut line) = self.line(vector) else {
            return;
        };
        if let Some(handler) = line.handler.clone() {
            // Not under the lock: a handler may replace itself.
            drop(line);
            handler(vector);
        } else if let Some(event) = &line.event {
            event.signal();
        } else {
            line.pending = true;
        }
    }

    /// The eventfd of `vector`, opened at the first call; signalled if the vector fired before
    /// there was anybody to hear it. Not signalled while there is a handler.
    pub fn event(&self, vector: MsixVector) -> io::Result<Arc<EventFd>> {
        let Some(mut line) = self.line(vector) else {
            return Err(io::Error::new(
                io::ErrorKind::NotFound,
                "no such interrupt vector",
            ));
        };
        if let Some(event) = &line.event {
            return Ok(Arc::clone(event));
        }
        let event = Arc::new(EventFd::new()?);
        if core::mem::take(&mut line.pending) {
            event.signal();
        }
        line.event = Some(Arc::clone(&event));
        Ok(event)
    }

    /// Sets or removes the handler of `vector`; called at once if the vector fired before there was
    /// anybody to hear it. False if there is no such vector.
    ///
    /// A call of the old handler may be under way on another thread when this returns.
    pub fn set_handler(&self, vector: MsixVector, handler: Option<Handler>) -> bool {
        let Some(mut line) = self.line(vector) else {
            return false;
        };
        line.handler.clone_from(&handler);
        let Some(handler) = handler else { return true };
        let fired = core::mem::take(&mut line.pending);
        drop(line);
        if fired {
            handler(vector);
        }
        true
    }

    fn line(&self, vector: MsixVector) -> Option<MutexGuard<'_, Line>> {
        let line = self.lines.get(usize::from(vector.value()))?;
        // No code of others runs under the lock, so a poisoned line is still whole.
        Some(line.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl fmt::Debug for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Line")
            .field("handler", &self.handler.is_some())
            .field("event", &self.event.is_some())
            .field("pending", &self.pending)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn a_vector_reaches_its_eventfd_or_its_handler() {
        let msix = Msix::new(3);
        let event = msix.event(MsixVector(1)).unwrap();
        msix.raise(MsixVector(1));
        msix.raise(MsixVector(2));
        assert_eq!(event.take(), 1);
        assert_eq!(
            msix.event(MsixVector(2)).unwrap().take(),
            1,
            "fired before it was opened"
        );

        let calls = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&calls);
        let handler: Handler = Arc::new(move |vector| {
            count.fetch_add(u32::from(vector.value()), Ordering::Relaxed);
        });
        assert!(msix.set_handler(MsixVector(1), Some(handler)));
        msix.raise(MsixVector(1));
        assert_eq!((calls.load(Ordering::Relaxed), event.take()), (1, 0));
        assert!(msix.set_handler(MsixVector(1), None));
        msix.raise(MsixVector(1));
        assert_eq!((calls.load(Ordering::Relaxed), event.take()), (1, 1));
    }

    #[test]
    fn a_handler_set_late_hears_what_was_pending() {
        let msix = Arc::new(Msix::new(1));
        msix.raise(MsixVector(0));
        let calls = Arc::new(AtomicU32::new(0));
        let (count, inner) = (Arc::clone(&calls), Arc::clone(&msix));
        let handler: Handler = Arc::new(move |vector| {
            count.fetch_add(1, Ordering::Relaxed);
            inner.set_handler(vector, None);
        });
        msix.set_handler(MsixVector(0), Some(handler));
        assert_eq!(calls.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_vector_that_does_not_exist_is_an_error_or_nothing() {
        let msix = Msix::new(1);
        msix.raise(MsixVector(1));
        assert_eq!(
            msix.event(MsixVector(1)).unwrap_err().kind(),
            io::ErrorKind::NotFound
        );
        assert!(!msix.set_handler(MsixVector(1), None));
        assert_eq!(msix.count(), 1);
    }
}
