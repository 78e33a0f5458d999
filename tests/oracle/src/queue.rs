//! A completion queue that a driver's code polls and arms: what those of mlx5 and hns share.
//!
//! ```text
//! DriverCq ◄── poll ── CQEs in memory ◄── our CqProducer
//!    ├─── poll, arm ──► record in the area ──► our CqProducer
//!    └─── arm ──► register
//! ```
//!
//! What differs, fields and functions, is in `mlx5.rs` and `hns.rs`, which make the queues.

use crate::object::Object;
use crate::wc::{self, Wc};
use core::ffi::{c_int, c_void};
use srdma_core::mem::HostWords;

/// Work requests of each queue of the queue pair.
pub(crate) const WRS: usize = 256;

pub(crate) type Poll = unsafe extern "C" fn(*mut c_void, c_int, *mut c_void) -> c_int;
pub(crate) type Arm = unsafe extern "C" fn(*mut c_void, c_int) -> c_int;
pub(crate) type Event = unsafe extern "C" fn(*mut c_void);

/// A driver's code. The offsets, in bytes, are facts about it.
#[derive(Debug)]
pub(crate) struct Driver {
    pub(crate) poll: Poll,
    pub(crate) arm: Arm,
    /// For an event that was fetched. `None`: all that its code does is to count.
    pub(crate) event: Option<Event>,
    /// Of its completion queue.
    pub(crate) bytes: usize,
    /// Where that has the entries read, and the number of the next event.
    pub(crate) index: usize,
    pub(crate) arm_sn: usize,
    /// Where the register for requests is.
    pub(crate) register: usize,
}

/// The queue and all that it uses.
#[derive(Debug)]
pub struct DriverCq {
    driver: Driver,
    pub(crate) cq: Object,
    pub(crate) ring: Object,
    /// The area beside the queue, whose first word is the record.
    pub(crate) area: Object,
    pub(crate) registers: Object,
    /// The wr_ids of sends: 0x1000 and up by the place of their WQE.
    pub(crate) sends: Object,
    /// Those of receives: 0x2000 and up in their order.
    pub(crate) recvs: Object,
    /// What else the fields of the queue point to.
    pub(crate) kept: Vec<Object>,
    wc: Object,
}

impl DriverCq {
    /// Memory for a queue of `size` entries, a power of two. Who makes the queue fills in every
    /// field that the code reads.
    pub(crate) fn new(driver: Driver, size: u32) -> Self {
        let wr_ids = |first: u64| {
            let ids = Object::new(WRS * 8);
            for at in 0..WRS {
                ids.words().store(at, first + at as u64);
            }
            ids
        };
        Self {
            cq: Object::new(driver.bytes),
            ring: Object::new(size as usize * 64),
            area: Object::new(64),
            registers: Object::new(4096),
            sends: wr_ids(0x1000),
            recvs: wr_ids(0x2000),
            kept: Vec::new(),
            wc: Object::new(wc::BYTES),
            driver,
        }
    }

    /// The words of the ring.
    #[must_use]
    pub fn words(&self) -> HostWords {
        self.ring.words().clone()
    }

    /// The words of the area whose first is the record.
    #[must_use]
    pub fn area(&self) -> HostWords {
        self.area.words().clone()
    }

    /// Asks for an event; gives what was written to the register.
    pub fn arm(&mut self, solicited_only: bool) -> u64 {
        // SAFETY: why needed: a call into C. Why sound: `cq` has every field that it reads, and
        // all that they point to lives as long as `self`.
        let code = unsafe { (self.driver.arm)(self.cq.ptr(), solicited_only.into()) };
        assert_eq!(code, 0, "arming cannot fail");
        self.registers.words().load(self.driver.register / 8)
    }

    /// The program fetched an event.
    pub fn event(&mut self) {
        match self.driver.event {
            // SAFETY: why needed, why sound: as in `arm`.
            Some(event) => unsafe { event(self.cq.ptr()) },
            None => {
                let (_, sn) = self.state();
                self.cq.set_u32(self.driver.arm_sn, sn.wrapping_add(1));
            }
        }
    }

    /// Entries read, and the number of the next event.
    #[must_use]
    pub fn state(&self) -> (u32, u32) {
        let at = &self.driver;
        (self.cq.u32(at.index), self.cq.u32(at.arm_sn))
    }

    /// The next completion.
    pub fn poll(&mut self) -> Option<Wc> {
        // SAFETY: why needed: a call into C. Why sound: as in `arm`; `wc` has room for one, and
        // the queue pair that an entry names is the one that was made with the queue.
        let count = unsafe { (self.driver.poll)(self.cq.ptr(), 1, self.wc.ptr()) };
        wc::polled(count, &self.wc)
    }
}
