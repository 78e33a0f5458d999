//! Registered memory of a script: bytes under a key.

use super::{Node, PD};
use srdma_core::hw::cqp::{AllocStag, DeallocStag, RegMr, StagKind};
use srdma_core::hw::{CqpCmd, Sge};
use srdma_core::mem::{Access, HostBuf, HostRange};
use srdma_core::num::{Lkey, PdId, Rkey};
use std::sync::Arc;

/// Every right that a region can give.
pub const ALL: Access = Access::LOCAL_WRITE
    .union(Access::REMOTE_WRITE)
    .union(Access::REMOTE_READ)
    .union(Access::REMOTE_ATOMIC)
    .union(Access::MW_BIND)
    .union(Access::FLUSH_GLOBAL);

/// A region.
#[derive(Clone, Debug)]
pub struct Mem {
    buf: Arc<HostBuf>,
    /// Index and key.
    pub stag: u32,
    /// Address of its first byte, as peers and work requests count it.
    pub va: u64,
    /// Its domain.
    pub pd: PdId,
}

impl Mem {
    /// Its remote key.
    #[must_use]
    pub const fn rkey(&self) -> Rkey {
        Rkey(self.stag)
    }

    /// Its local key.
    #[must_use]
    pub const fn lkey(&self) -> Lkey {
        Lkey(self.stag)
    }

    /// Address of byte `offset`.
    #[must_use]
    pub const fn at(&self, offset: u64) -> u64 {
        self.va + offset
    }

    /// A scatter/gather entry.
    #[must_use]
    pub const fn sge(&self, offset: u64, len: u32) -> Sge {
        Sge {
            addr: self.va + offset,
            len,
            lkey: self.lkey(),
        }
    }

    /// Puts bytes there.
    pub fn write(&self, offset: usize, bytes: &[u8]) {
        self.buf.range().write(offset, bytes).unwrap();
    }

    /// What stands there.
    #[must_use]
    pub fn read(&self, offset: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.buf.range().read(offset, &mut bytes).unwrap();
        bytes
    }

    /// A 64-bit number there, in the host's order.
    #[must_use]
    pub fn word(&self, offset: usize) -> u64 {
        u64::from_ne_bytes(self.read(offset, 8).try_into().unwrap())
    }

    /// Fills `len` bytes with a pattern that says where they are, and gives it.
    pub fn fill(&self, offset: usize, len: usize, seed: u8) -> Vec<u8> {
        let bytes = pattern(len, seed);
        self.write(offset, &bytes);
        bytes
    }
}

/// Bytes that differ by place and by seed.
#[must_use]
pub fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len)
        .map(|at| {
            let [low, high, ..] = at.to_le_bytes();
            low.wrapping_mul(31).wrapping_add(high).wrapping_add(seed)
        })
        .collect()
}

impl Node {
    /// Registers `len` bytes with every right.
    pub fn mem(&mut self, len: usize) -> Mem {
        self.mem_with(len, ALL, PD)
    }

    /// Registers `len` bytes with these rights in this domain.
    pub fn mem_with(&mut self, len: usize, access: Access, pd: PdId) -> Mem {
        let buf = HostBuf::new(len.max(1)).unwrap();
        let pbl = self.hca.host_mut().insert_region(buf.range());
        let stag = self.fresh_id() << 8 | 0x5a;
        let va = if access.contains(Access::ZERO_BASED) {
            0
        } else {
            buf.addr()
        };
        self.ok(CqpCmd::RegMr(RegMr {
            stag,
            pd,
            va,
            len: len as u64,
            access,
            pbl,
        }));
        Mem { buf, stag, va, pd }
    }

    /// Registers any range of memory in the usual domain, and gives its stag.
    pub fn region(&mut self, range: HostRange, va: u64, access: Access) -> u32 {
        let len = range.len() as u64;
        let pbl = self.hca.host_mut().insert_region(range);
        let stag = self.fresh_id() << 8 | 0x5b;
        self.ok(CqpCmd::RegMr(RegMr {
            stag,
            pd: PD,
            va,
            len,
            access,
            pbl,
        }));
        stag
    }

    /// Deregisters.
    pub fn dereg(&mut self, mem: &Mem) {
        self.ok(CqpCmd::DeallocStag(DeallocStag {
            stag: mem.stag,
            pd: mem.pd,
            kind: StagKind::Mr,
        }));
    }

    /// Allocates a window and gives its stag.
    pub fn mw(&mut self, kind: StagKind) -> u32 {
        let stag = self.fresh_id() << 8 | 0x11;
        self.ok(CqpCmd::AllocStag(AllocStag { stag, pd: PD, kind }));
        stag
    }
}
