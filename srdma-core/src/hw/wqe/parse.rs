//! Parsing WQEs: the device's direction.
//!
//! ```text
//! words (a copy, out of the ring) ── SqCmd::parse ──► op, flags, keys, sges | inline | operands
//! ```
//!
//! A [`SqCmd`] belongs to the caller and is filled in place: nothing is zeroed, arrays are written
//! up to their length. Any bits give a value or a [`WqeFault`], never a panic; on a fault the
//! header's parts (`op`, `signaled`, `quanta`) are filled, so that the fault can be reported.
//! What is *not* checked here: keys, rights, lengths against the path, whether the QP's type
//! allows the operation.

use super::super::sge::{FragWord, SgeList, sge_from_words};
use super::{
    AtomicSrq, BIND_RIGHTS, BindWord, HEADER, ImmWord, QUANTUM_WORDS, SqHeader, SqOp, UdTarget,
    UdWord,
};
use crate::hw::{AeCode, Polarity};
use crate::limits::MAX_INLINE;
use crate::mem::{Access, Bind, Sge};
use crate::num::{Rkey, SrqId};

/// Why a WQE means nothing to the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WqeFault {
    /// An opcode the device does not serve.
    #[error("unknown opcode {0:?}")]
    BadOpcode(SqOp),
    /// More fragments than the device takes.
    #[error("too many fragments")]
    TooManyFragments,
    /// More inline bytes than the device takes, or inline data where there can be none.
    #[error("bad inline length")]
    BadInline,
    /// A quantum after the first is of another lap.
    #[error("a quantum of the entry is not valid")]
    QuantumNotValid,
    /// The WQE leaves its chunk of eight quanta, or its slot.
    #[error("the entry crosses a chunk or slot boundary")]
    Straddles,
    /// Fewer words than the header announces.
    #[error("the entry is cut short")]
    Truncated,
}

impl WqeFault {
    /// The asynchronous event it raises.                             [E810 5.3]
    #[must_use]
    pub const fn ae_code(self) -> AeCode {
        match self {
            Self::BadOpcode(_) => AeCode::WQE_UNEXPECTED_OPCODE,
            Self::TooManyFragments => AeCode::WQE_INVALID_FRAG_DATA,
            _ => AeCode::WQE_INVALID_PARAMETER,
        }
    }
}

/// The two numbers of an atomic operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AtomicOperands {
    /// Addend, or the value to swap in.
    pub swap_or_add: u64,
    /// Value to compare with.
    pub compare: u64,
}

/// Room for inline bytes: whole words, the valid byte of the last quantum included.
const INLINE_ROOM: usize = 104;

/// One SQ WQE, parsed. Fields that the operation does not have are zero or stale as noted.
#[derive(Debug, Clone)]
pub struct SqCmd {
    /// Operation.
    pub op: SqOp,
    /// Quanta in the ring.
    pub quanta: u8,
    /// Report success.
    pub signaled: bool,
    /// Wait for outstanding READs and atomics.
    pub read_fence: bool,
    /// Wait for all earlier WQEs.
    pub local_fence: bool,
    /// Solicited event at the receiver.
    pub solicited: bool,
    /// Immediate, a host-order value. SEND and WRITE only.
    pub imm: Option<u32>,
    /// SEND with invalidate: the peer's key. `None` otherwise.
    pub inv_key: Option<Rkey>,
    /// XRC: the peer's shared receive queue. `None` otherwise. `[srdma]`
    pub xrc_srq: Option<SrqId>,
    /// LOCAL_INVALIDATE: the key. Stale otherwise.
    pub local_stag: u32,
    /// WRITE, READ, atomics: remote address. Stale otherwise.
    pub remote_addr: u64,
    /// WRITE, READ, atomics: remote key. Stale otherwise.
    pub rkey: Rkey,
    /// SEND: dwords of headers in front of the payload, on a privileged queue. Stale otherwise.
    pub l4_len: u8,
    /// SEND: target of a datagram (meaningless bits on a connected QP). Stale otherwise.
    pub ud: UdTarget,
    /// Local memory, padding dropped. Empty for inline data.
    pub sges: SgeList,
    /// FETCH_ADD, COMPARE_SWAP. Stale otherwise.
    pub atomic: AtomicOperands,
    /// BIND_MW. Stale otherwise.
    pub bind: Bind,
    inline: bool,
    inline_len: u8,
    inline_bytes: [u8; INLINE_ROOM],
}

impl Default for SqCmd {
    fn default() -> Self {
        Self::new()
    }
}

impl SqCmd {
    /// A NOP, to be filled by [`Self::parse`].
    #[must_use]
    pub const fn new() -> Self {
        Self {
            op: SqOp::NOP,
            quanta: 1,
            signaled: false,
            read_fence: false,
            local_fence: false,
            solicited: false,
            imm: None,
            inv_key: None,
            xrc_srq: None,
            local_stag: 0,
            remote_addr: 0,
            rkey: Rkey(0),
            l4_len: 0,
            ud: UdTarget {
                ah: crate::num::AhId(0),
                qkey: crate::num::Qkey(0),
                dest: crate::num::Qpn::new(0),
            },
            sges: SgeList::EMPTY,
            atomic: AtomicOperands {
                swap_or_add: 0,
                compare: 0,
            },
            bind: Bind {
                window: 0,
                parent: 0,
                va: 0,
                len: 0,
                access: Access::LOCAL_READ,
                zero_based: false,
                type1: false,
            },
            inline: false,
            inline_len: 0,
            inline_bytes: [0; INLINE_ROOM],
        }
    }

    /// The payload that stands in the WQE itself, if it does.
    #[inline]
    #[must_use]
    pub fn inline_data(&self) -> Option<&[u8]> {
        if self.inline {
            self.inline_bytes.get(..usize::from(self.inline_len))
        } else {
            None
        }
    }

    /// Payload bytes: of the fragments or inline.
    #[inline]
    #[must_use]
    pub fn payload_len(&self) -> u64 {
        if self.inline {
            u64::from(self.inline_len)
        } else {
            self.sges.total_len()
        }
    }

    /// Fills the command from the words of one WQE. Allocates nothing, zeroes nothing.
    #[inline]
    pub fn parse(&mut self, words: &[u64]) -> Result<(), WqeFault> {
        let &[word0, word1, word2, word3, ref rest @ ..] = words else {
            return Err(WqeFault::Truncated);
        };
        let header = SqHeader::from_bits(word3);
        let quanta = header.quanta();
        let more = (quanta as usize - 1) * QUANTUM_WORDS;
        match rest.get(..more) {
            Some(rest) => self.fill(header, quanta, [word0, word1, word2], rest),
            None => {
                self.start(header, quanta);
                Err(WqeFault::Truncated)
            }
        }
    }

    /// As [`Self::parse`]: the header, as many quanta as it says, the three words before it, and
    /// those of the other quanta.
    #[inline(always)]
    pub(crate) fn fill(
        &mut self,
        header: SqHeader,
        quanta: u32,
        [word0, word1, word2]: [u64; 3],
        rest: &[u64],
    ) -> Result<(), WqeFault> {
        self.start(header, quanta);
        if !rest.is_empty() {
            check_quanta(header.valid(), rest)?;
        }
        match self.op {
            SqOp::SEND | SqOp::SEND_SOL | SqOp::SEND_INV | SqOp::SEND_SOL_INV => {
                let word = UdWord::from_bits(word2);
                self.l4_len = header.l4_len();
                self.ud = UdTarget {
                    ah: header.ah(),
                    qkey: word.qkey(),
                    dest: word.dest(),
                };
                if matches!(self.op, SqOp::SEND_INV | SqOp::SEND_SOL_INV) {
                    self.inv_key = Some(header.key());
                }
                self.payload(header, word0, word1, rest)
            }
            SqOp::WRITE | SqOp::WRITE_SOL => {
                self.remote(header, word2);
                self.payload(header, word0, word1, rest)
            }
            SqOp::READ | SqOp::READ_LOC_INV => {
                if header.inline() || header.imm() {
                    return Err(WqeFault::BadInline);
                }
                self.remote(header, word2);
                self.payload(header, word0, word1, rest)
            }
            SqOp::NOP => Ok(()),
            SqOp::LOCAL_INVALIDATE => {
                // The valid bit is absent in this word.                    [E810 11 #12]
                // rule: e810-12
                self.local_stag = FragWord::from_bits(word1).lkey().value();
                Ok(())
            }
            SqOp::BIND_MW => {
                self.bind = bind(header, word0, word1, word2);
                Ok(())
            }
            SqOp::FETCH_ADD | SqOp::COMPARE_SWAP => {
                self.remote(header, word2);
                self.atomic(header, word0, word1, rest)
            }
            SqOp::ATOMIC_WRITE => {
                if !header.inline() || header.inline_len() != 8 {
                    return Err(WqeFault::BadInline);
                }
                self.remote(header, word2);
                if header.xrc() {
                    self.xrc_srq = Some(ImmWord::from_bits(word0).srq());
                }
                self.inline_payload(header, word1, rest)
            }
            other => Err(WqeFault::BadOpcode(other)),
        }
    }

    /// Header parts and defaults: all that is filled of a WQE that cannot be parsed.
    #[inline]
    pub(crate) fn start(&mut self, header: SqHeader, quanta: u32) {
        self.op = header.op();
        #[allow(clippy::cast_possible_truncation, reason = "1..=8")]
        {
            self.quanta = quanta as u8;
        }
        self.signaled = header.signaled();
        self.read_fence = header.read_fence();
        self.local_fence = header.local_fence();
        self.solicited = self.op.is_solicited();
        self.imm = None;
        self.inv_key = None;
        self.xrc_srq = None;
        self.sges.clear();
        self.inline = false;
    }

    #[inline]
    fn remote(&mut self, header: SqHeader, addr: u64) {
        self.remote_addr = addr;
        self.rkey = header.key();
    }

    #[inline]
    #[allow(
        clippy::cast_possible_truncation,
        reason = "the low half is the immediate"
    )]
    fn payload(
        &mut self,
        header: SqHeader,
        word0: u64,
        word1: u64,
        rest: &[u64],
    ) -> Result<(), WqeFault> {
        let imm = header.imm();
        if imm {
            self.imm = Some(word0 as u32);
        }
        let xrc = header.xrc();
        if xrc {
            self.xrc_srq = Some(ImmWord::from_bits(word0).srq());
        }
        if header.inline() {
            return self.inline_payload(header, word1, rest);
        }
        // Beside an immediate word 1 is stale, possibly all ones.    [E810 11 #13]
        // rule: e810-13
        let first = if imm || xrc {
            None
        } else {
            Some([word0, word1])
        };
        read_fragments(&mut self.sges, first, header.more_frags(), rest)
    }

    fn inline_payload(
        &mut self,
        header: SqHeader,
        word1: u64,
        rest: &[u64],
    ) -> Result<(), WqeFault> {
        let len = header.inline_len();
        if usize::from(len) > MAX_INLINE {
            return Err(WqeFault::BadInline);
        }
        self.inline = true;
        self.inline_len = len;
        let (first, room) = self.inline_bytes.split_at_mut(8);
        first.copy_from_slice(&word1.to_le_bytes());
        // 31 bytes a quantum; the eighth byte of the last word is the valid bit and is either cut
        // off by the length or overwritten by the next quantum.
        let quanta = rest.chunks_exact(QUANTUM_WORDS);
        for (at, quantum) in (0..).step_by(31).zip(quanta) {
            for (at, word) in (at..).step_by(8).zip(quantum) {
                if let Some(to) = room.get_mut(at..at + 8) {
                    to.copy_from_slice(&word.to_le_bytes());
                }
            }
        }
        Ok(())
    }

    fn atomic(
        &mut self,
        header: SqHeader,
        word0: u64,
        word1: u64,
        rest: &[u64],
    ) -> Result<(), WqeFault> {
        let &[swap_or_add, compare, srq, _] = rest else {
            return Err(WqeFault::TooManyFragments);
        };
        if header.xrc() {
            self.xrc_srq = Some(AtomicSrq::from_bits(srq).srq());
        }
        let lkey = FragWord::from_bits(word1).lkey();
        self.sges.push(Sge {
            addr: word0,
            len: 8,
            lkey,
        });
        self.atomic = AtomicOperands {
            swap_or_add,
            compare,
        };
        Ok(())
    }
}

fn bind(header: SqHeader, va: u64, word1: u64, len: u64) -> Bind {
    let keys = BindWord::from_bits(word1);
    let mut access = Access::from_hw(u32::from(header.rights()) & BIND_RIGHTS);
    if header.remote_atomic() {
        access |= Access::REMOTE_ATOMIC;
    }
    Bind {
        window: keys.window(),
        parent: keys.parent(),
        va,
        len,
        access,
        zero_based: !header.va_based(),
        type1: header.type1(),
    }
}

/// The last word of every quantum after the first carries the valid bit. [E810 1.5]
#[inline]
pub(in crate::hw) fn check_quanta(polarity: Polarity, rest: &[u64]) -> Result<(), WqeFault> {
    let ok = rest
        .iter()
        .skip(HEADER)
        .step_by(QUANTUM_WORDS)
        .all(|word| polarity.matches(*word));
    if ok {
        Ok(())
    } else {
        Err(WqeFault::QuantumNotValid)
    }
}

/// Collects the fragments of `more + 1` slots; `first` is slot 0 unless an immediate is there.
#[inline]
pub(in crate::hw) fn read_fragments(
    sges: &mut SgeList,
    first: Option<[u64; 2]>,
    more: u8,
    rest: &[u64],
) -> Result<(), WqeFault> {
    sges.clear();
    if let Some([addr, second]) = first
        && let Some(sge) = sge_from_words(addr, second)
    {
        sges.push(sge);
    }
    let more = usize::from(more);
    if more == 0 {
        return Ok(());
    }
    if 2 * more > rest.len() {
        return Err(WqeFault::TooManyFragments);
    }
    for slot in rest.chunks_exact(2).take(more) {
        if let &[addr, second] = slot
            && let Some(sge) = sge_from_words(addr, second)
            && !sges.push(sge)
        {
            return Err(WqeFault::TooManyFragments);
        }
    }
    Ok(())
}

const _: () = assert!(INLINE_ROOM >= 8 + 2 * 31 + 32 && MAX_INLINE <= 8 + 3 * 31);
