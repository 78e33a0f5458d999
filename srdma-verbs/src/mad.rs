//! Management datagrams: what arrives at queue pair 1 while no program has it, by management class.
//!
//! ```text
//! queue pair 1 ─► local queue of the driver ─► handler of the class ─► MadSender ─► the wire
//! ```
//!
//! A handler runs where events are handled: on whatever thread ran the device, maybe deep inside a
//! verbs call. So it must be short and take no lock that is held around one, nor make or drop
//! objects; it may send. A program that makes the GSI queue pair takes queue pair 1 for itself, and
//! handlers hear nothing meanwhile.                                    [E810 8.6.2]

use crate::context::Context;
use crate::driver::Driver;
use crate::error::{Reason, Result};
use crate::path::Path;
use core::fmt;
use srdma_core::num::Qpn;
use std::sync::{Arc, Weak};

/// Bytes of a management datagram.
pub const MAD_BYTES: usize = 256;

/// A management datagram that arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Mad {
    /// Its bytes.
    pub bytes: [u8; MAD_BYTES],
    /// The queue pair that it came from.
    pub source: Qpn,
    /// The way back.
    pub path: Path,
}

impl Mad {
    /// Management class.
    #[must_use]
    pub const fn class(&self) -> u8 {
        let [_, class, ..] = self.bytes;
        class
    }

    /// Method, with the response bit.
    #[must_use]
    pub const fn method(&self) -> u8 {
        let [_, _, _, method, ..] = self.bytes;
        method
    }

    /// Attribute.
    #[must_use]
    pub const fn attribute(&self) -> u16 {
        let &[.., a, b] = self.first();
        u16::from_be_bytes([a, b])
    }

    const fn first(&self) -> &[u8; 18] {
        match self.bytes.first_chunk() {
            Some(first) => first,
            None => &[0; 18],
        }
    }
}

/// What is called with each datagram of a class.
pub type MadHandler = dyn Fn(&Mad, &MadSender) + Send + Sync;

/// Sends management datagrams from queue pair 1.
#[derive(Clone)]
pub struct MadSender {
    driver: Weak<Driver>,
}

impl MadSender {
    pub(crate) fn new(driver: &Arc<Driver>) -> Self {
        Self {
            driver: Arc::downgrade(driver),
        }
    }

    /// Sends `bytes` to queue pair `dest` at the end of `path`. They leave in order, now or when
    /// there is room; nobody says whether they arrive.
    pub fn send(&self, path: &Path, dest: Qpn, bytes: &[u8; MAD_BYTES]) -> Result<()> {
        const VERB: &str = "send_mad";
        let driver = self.driver.upgrade();
        let driver = driver.ok_or_else(|| Reason::Destroyed.of(VERB))?;
        let av = driver.address_vector(path).map_err(|r| r.of(VERB))?;
        driver
            .send_mad(&av, dest, bytes)
            .map_err(|reason| reason.of(VERB))
    }
}

impl fmt::Debug for MadSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MadSender")
    }
}

/// A class that is handled. Dropping it ends that.
pub struct MadAgent {
    driver: Arc<Driver>,
    class: u8,
}

impl MadAgent {
    /// The class.
    #[must_use]
    pub const fn class(&self) -> u8 {
        self.class
    }

    /// Sends as handlers do.
    #[must_use]
    pub fn sender(&self) -> MadSender {
        MadSender::new(&self.driver)
    }
}

impl Drop for MadAgent {
    fn drop(&mut self) {
        self.driver.unhandle_mads(self.class);
    }
}

impl fmt::Debug for MadAgent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MadAgent(class {:#04x})", self.class)
    }
}

impl Context {
    /// Lets `handler` have the management datagrams of a class; [`Reason::Busy`] if it has one. The
    /// first class makes the local queue, the last one that ends takes it back.
    pub fn handle_mads(&self, class: u8, handler: Arc<MadHandler>) -> Result<MadAgent> {
        let driver = Arc::clone(&self.inner.driver);
        driver
            .handle_mads(class, handler)
            .map_err(|reason| reason.of("handle_mads"))?;
        Ok(MadAgent { driver, class })
    }
}
