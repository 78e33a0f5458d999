//! Work requests: made up at random, built by us, and compared with what the device's half parsed.
//!
//! ```text
//! Wr ── OracleQp::post ──► words of the oracle ──► SqCmd ──┐ same?
//!  ├─── build ───────────► words of ours                   │
//!  └─── expect ────────────────────────────────────────────┘
//! ```

use fastrand::Rng;
use srdma_core::hw::wqe::{
    ReadWr, RemoteAddr, SendWr, UdTarget, WqeBuf, WqeError, WrFlags, WriteWr,
};
use srdma_core::hw::{SqCmd, SqOp};
use srdma_core::limits::{MAX_INLINE, MAX_SGE};
use srdma_core::mem::{Access, Bind, Sge};
use srdma_core::num::{AhId, Lkey, Qkey, Qpn, Rkey};

/// What is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "memory or the WQE itself")]
pub enum Payload {
    /// Fragments of memory.
    Sges(Vec<Sge>),
    /// Bytes in the WQE.
    Inline(Vec<u8>),
}

impl Payload {
    /// Bytes.
    #[must_use]
    pub fn len(&self) -> u32 {
        match self {
            Self::Sges(sges) => sges.iter().map(|sge| sge.len).sum(),
            Self::Inline(bytes) => bytes.len() as u32,
        }
    }

    /// True without bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// What is to be done. Flags inside of the core's structures are not used; see [`Wr::flags`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "what the oracle can post")]
#[allow(missing_docs, reason = "the variants are the operations")]
pub enum Work {
    Send(SendWr, Payload),
    Write(WriteWr, Payload),
    Read(ReadWr, Vec<Sge>),
    Invalidate(u32),
    Bind(Bind),
    Nop,
}

/// One send work request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wr {
    /// What its completion carries.
    pub id: u64,
    /// Signaled and fences.
    pub flags: WrFlags,
    /// What to do.
    pub work: Work,
}

/// What random requests may ask for.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Fragments.
    pub sges: usize,
    /// Inline bytes.
    pub inline: usize,
    /// Sends are datagrams.
    pub datagrams: bool,
}

impl Limits {
    /// All that an E810 takes.
    pub const ALL: Self = Self {
        sges: MAX_SGE,
        inline: MAX_INLINE,
        datagrams: false,
    };
}

/// Random fragments, each with a length and a key.
#[must_use]
pub fn random_sges(rng: &mut Rng, count: usize) -> Vec<Sge> {
    let sge = |_| Sge {
        addr: rng.u64(..),
        // Their sum stays below 2^31.
        len: rng.u32(1..1 << 27),
        lkey: Lkey(rng.u32(1..)),
    };
    (0..count).map(sge).collect()
}

fn random_payload(rng: &mut Rng, limits: Limits) -> Payload {
    if rng.bool() {
        let len = rng.usize(0..=limits.inline);
        Payload::Inline((0..len).map(|_| rng.u8(..)).collect())
    } else {
        let count = rng.usize(0..=limits.sges);
        Payload::Sges(random_sges(rng, count))
    }
}

fn random_remote(rng: &mut Rng) -> RemoteAddr {
    RemoteAddr {
        addr: rng.u64(..),
        rkey: Rkey(rng.u32(..)),
    }
}

fn random_send(rng: &mut Rng, limits: Limits) -> SendWr {
    let ud = UdTarget {
        ah: AhId(rng.u32(..1 << 17)),
        qkey: Qkey(rng.u32(..)),
        dest: Qpn::new(rng.u32(..)),
    };
    let imm = rng.bool().then(|| rng.u32(..));
    let inv = (imm.is_none() && !limits.datagrams && rng.bool()).then(|| Rkey(rng.u32(..)));
    SendWr {
        flags: WrFlags::default(),
        solicited: rng.bool(),
        imm,
        inv,
        ud: limits.datagrams.then_some(ud),
    }
}

fn random_bind(rng: &mut Rng) -> Bind {
    let rights = [Access::REMOTE_READ, Access::REMOTE_WRITE];
    let picked = rights.into_iter().filter(|_| rng.bool());
    Bind {
        access: picked.fold(Access::LOCAL_READ, Access::union),
        window: rng.u32(..),
        parent: rng.u32(..),
        va: rng.u64(..),
        len: rng.u64(..),
        zero_based: rng.bool(),
        type1: rng.bool(),
    }
}

impl Wr {
    /// Any request within the limits.
    #[must_use]
    pub fn random(rng: &mut Rng, id: u64, limits: Limits) -> Self {
        let flags = WrFlags {
            signaled: rng.bool(),
            read_fence: rng.u8(..4) == 0,
            local_fence: rng.u8(..4) == 0,
        };
        let kind = if limits.datagrams { 0 } else { rng.u8(..12) };
        let work = match kind {
            0..4 => Work::Send(random_send(rng, limits), random_payload(rng, limits)),
            4..7 => {
                let wr = WriteWr {
                    flags: WrFlags::default(),
                    solicited: rng.bool(),
                    imm: rng.bool().then(|| rng.u32(..)),
                    remote: random_remote(rng),
                };
                Work::Write(wr, random_payload(rng, limits))
            }
            7..9 => {
                let wr = ReadWr {
                    flags: WrFlags::default(),
                    remote: random_remote(rng),
                    local_inv: rng.u8(..4) == 0,
                };
                let count = rng.usize(0..=limits.sges);
                Work::Read(wr, random_sges(rng, count))
            }
            9 => Work::Invalidate(rng.u32(..)),
            10 => Work::Bind(random_bind(rng)),
            _ => Work::Nop,
        };
        // The oracle's NOP takes no fences.
        let flags = if work == Work::Nop {
            WrFlags {
                signaled: flags.signaled,
                ..WrFlags::default()
            }
        } else {
            flags
        };
        Self { id, flags, work }
    }

    /// Bytes that the sender's completion reports.
    #[must_use]
    pub fn bytes(&self) -> u32 {
        match &self.work {
            Work::Send(_, payload) | Work::Write(_, payload) => payload.len(),
            Work::Read(_, sges) => sges.iter().map(|sge| sge.len).sum(),
            Work::Invalidate(_) | Work::Bind(_) | Work::Nop => 0,
        }
    }

    /// The opcode of its WQE.                                        [E810 2.2]
    #[must_use]
    pub fn op(&self) -> SqOp {
        match &self.work {
            Work::Send(wr, _) => match (wr.inv.is_some(), wr.solicited) {
                (false, false) => SqOp::SEND,
                (false, true) => SqOp::SEND_SOL,
                (true, false) => SqOp::SEND_INV,
                (true, true) => SqOp::SEND_SOL_INV,
            },
            Work::Write(wr, _) if wr.solicited && wr.imm.is_some() => SqOp::WRITE_SOL,
            Work::Write(..) => SqOp::WRITE,
            Work::Read(wr, _) if wr.local_inv => SqOp::READ_LOC_INV,
            Work::Read(..) => SqOp::READ,
            Work::Invalidate(_) => SqOp::LOCAL_INVALIDATE,
            Work::Bind(_) => SqOp::BIND_MW,
            Work::Nop => SqOp::NOP,
        }
    }

    /// Builds it as our driver half does.
    pub fn build(&self, wqe: &mut WqeBuf) -> Result<(), WqeError> {
        let flags = self.flags;
        match &self.work {
            Work::Send(wr, Payload::Sges(sges)) => wqe.send(&SendWr { flags, ..*wr }, sges)?,
            Work::Send(wr, Payload::Inline(bytes)) => {
                wqe.send_inline(&SendWr { flags, ..*wr }, bytes)?;
            }
            Work::Write(wr, Payload::Sges(sges)) => wqe.write(&WriteWr { flags, ..*wr }, sges)?,
            Work::Write(wr, Payload::Inline(bytes)) => {
                wqe.write_inline(&WriteWr { flags, ..*wr }, bytes)?;
            }
            Work::Read(wr, sges) => wqe.read(&ReadWr { flags, ..*wr }, sges)?,
            Work::Invalidate(stag) => wqe.local_invalidate(flags, *stag),
            Work::Bind(bind) => wqe.bind_mw(flags, bind),
            Work::Nop => wqe.nop(flags),
        }
        Ok(())
    }

    /// Compares it with what the device parsed.
    ///
    /// # Panics
    ///
    /// If they differ.
    pub fn expect(&self, cmd: &SqCmd) {
        assert_eq!(cmd.op, self.op(), "{self:?}\n{cmd:?}");
        let flags = (cmd.signaled, cmd.read_fence, cmd.local_fence);
        let mine = self.flags;
        let wanted = (mine.signaled, mine.read_fence, mine.local_fence);
        assert_eq!(flags, wanted, "{self:?}\n{cmd:?}");
        let remote = (cmd.remote_addr, cmd.rkey);
        match &self.work {
            Work::Send(wr, payload) => {
                let got = (cmd.imm, cmd.inv_key, cmd.solicited);
                assert_eq!(got, (wr.imm, wr.inv, wr.solicited), "{self:?}");
                assert!(wr.ud.is_none_or(|ud| ud == cmd.ud), "{self:?}\n{cmd:?}");
                expect_payload(payload, cmd);
            }
            Work::Write(wr, payload) => {
                let solicited = wr.solicited && wr.imm.is_some();
                assert_eq!((cmd.imm, cmd.solicited), (wr.imm, solicited), "{self:?}");
                assert_eq!(remote, (wr.remote.addr, wr.remote.rkey), "{self:?}");
                expect_payload(payload, cmd);
            }
            Work::Read(wr, sges) => {
                assert_eq!(remote, (wr.remote.addr, wr.remote.rkey), "{self:?}");
                assert_eq!(cmd.sges.as_slice(), sges, "{self:?}");
                assert!(cmd.inline_data().is_none() && cmd.imm.is_none());
            }
            Work::Invalidate(stag) => assert_eq!(cmd.local_stag, *stag),
            Work::Bind(bind) => assert_eq!(&cmd.bind, bind),
            Work::Nop => {}
        }
    }
}

fn expect_payload(payload: &Payload, cmd: &SqCmd) {
    match payload {
        Payload::Sges(sges) => {
            assert!(cmd.inline_data().is_none(), "{cmd:?}");
            assert_eq!(cmd.sges.as_slice(), sges, "{cmd:?}");
        }
        Payload::Inline(bytes) => {
            assert_eq!(cmd.inline_data(), Some(&bytes[..]), "{cmd:?}");
        }
    }
    assert_eq!(cmd.payload_len(), u64::from(payload.len()), "{cmd:?}");
}
