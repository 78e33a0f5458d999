//! Building WQEs: the driver's direction.
//!
//! ```text
//! WqeBuf { words [u64; 32], which of them carry the valid bit, quanta }
//! ```
//!
//! A buffer is meant to be kept and reused: a builder writes the quanta it needs and no more. The
//! valid bits are put in when a ring takes the WQE, since only then its lap is known. Words that
//! Intel's driver does not write (`+8` beside an immediate, `+0` of inline data) are zero here.

use super::super::sge::frag_word;
use super::wr::{ReadWr, RemoteAddr, SendWr, WrFlags, WriteWr};
use super::{
    AtomicSrq, BIND_RIGHTS, BindWord, HEADER, ImmWord, MAX_QUANTA, MAX_WORDS, QUANTUM_WORDS,
    SqHeader, SqOp, inline_quanta, sq_quanta,
};
use crate::hw::Polarity;
use crate::limits::{MAX_INLINE, MAX_SGE};
use crate::mem::{Access, Bind, Sge};
use crate::num::{Lkey, SrqId};

/// Why a WQE cannot be built.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WqeError {
    /// More fragments than a WQE can name.
    #[error("more than {MAX_SGE} scatter/gather entries")]
    TooManySges,
    /// More inline bytes than a WQE can hold.
    #[error("more than {MAX_INLINE} inline bytes")]
    InlineTooLong,
    /// A fragment of 2^31 bytes or more.
    #[error("a scatter/gather entry of 2^31 bytes or more")]
    SgeTooLong,
}

/// One WQE under construction, SQ or RQ.
#[derive(Clone)]
pub struct WqeBuf {
    words: [u64; MAX_WORDS],
    valid: u32,
    quanta: u8,
    xrc_srq: Option<SrqId>,
}

impl Default for WqeBuf {
    fn default() -> Self {
        Self::new()
    }
}

#[allow(
    clippy::indexing_slicing,
    reason = "constant indices below 32, or slots below 15 after the length checks"
)]
impl WqeBuf {
    /// An unsignaled NOP.
    #[must_use]
    pub fn new() -> Self {
        let mut buf = Self {
            words: [0; MAX_WORDS],
            valid: 0,
            quanta: 0,
            xrc_srq: None,
        };
        buf.nop(WrFlags::default());
        buf
    }

    /// The peer's shared receive queue that the requests built from here on name: on XRC
    /// initiators, for every request that leaves. `[srdma]`
    #[inline]
    pub const fn set_xrc_srq(&mut self, srq: Option<SrqId>) {
        self.xrc_srq = srq;
    }

    /// Quanta in use, 1..=8.
    #[inline]
    #[must_use]
    pub fn quanta(&self) -> u32 {
        u32::from(self.quanta)
    }

    /// The words in use, without valid bits.
    #[inline]
    #[must_use]
    pub fn words(&self) -> &[u64] {
        &self.words[..usize::from(self.quanta) * QUANTUM_WORDS]
    }

    /// Bit n is set if word n carries the valid bit.
    #[inline]
    #[must_use]
    pub const fn valid_words(&self) -> u32 {
        self.valid
    }

    /// Word `index` as it stands in a ring of that lap; the index is below [`MAX_WORDS`].
    #[inline]
    #[must_use]
    pub fn word(&self, index: usize, polarity: Polarity) -> u64 {
        let carries = u64::from(self.valid >> index & 1) << 63;
        self.words[index] | polarity.bit() & carries
    }

    /// The header, valid bit clear.
    #[inline]
    #[must_use]
    pub fn header(&self) -> SqHeader {
        SqHeader::from_bits(self.words[HEADER])
    }

    /// SEND of fragments.
    #[inline]
    pub fn send(&mut self, wr: &SendWr, sges: &[Sge]) -> Result<(), WqeError> {
        self.fragments(wr.header(), wr.imm, sges)?;
        self.words[2] = wr.target();
        Ok(())
    }

    /// The SEND just built is one of a privileged queue: `dwords` of headers come first in memory.
    pub fn set_l4_len(&mut self, dwords: u8) {
        self.words[HEADER] = self.header().with_l4_len(dwords).bits();
    }

    /// SEND of bytes in the WQE.
    pub fn send_inline(&mut self, wr: &SendWr, bytes: &[u8]) -> Result<(), WqeError> {
        self.inline(wr.header(), wr.imm, bytes)?;
        self.words[2] = wr.target();
        Ok(())
    }

    /// WRITE of fragments.
    #[inline]
    pub fn write(&mut self, wr: &WriteWr, sges: &[Sge]) -> Result<(), WqeError> {
        self.fragments(wr.header(), wr.imm, sges)?;
        self.words[2] = wr.remote.addr;
        Ok(())
    }

    /// WRITE of bytes in the WQE.
    pub fn write_inline(&mut self, wr: &WriteWr, bytes: &[u8]) -> Result<(), WqeError> {
        self.inline(wr.header(), wr.imm, bytes)?;
        self.words[2] = wr.remote.addr;
        Ok(())
    }

    /// READ into fragments.
    pub fn read(&mut self, wr: &ReadWr, sges: &[Sge]) -> Result<(), WqeError> {
        let op = if wr.local_inv {
            SqOp::READ_LOC_INV
        } else {
            SqOp::READ
        };
        self.fragments(wr.flags.header(op).with_key(wr.remote.rkey), None, sges)?;
        self.words[2] = wr.remote.addr;
        Ok(())
    }

    /// ATOMIC WRITE of eight bytes: an inline WRITE with an opcode of its own. `[srdma]`
    pub fn atomic_write(&mut self, flags: WrFlags, remote: RemoteAddr, value: [u8; 8]) {
        let header = flags.header(SqOp::ATOMIC_WRITE).with_key(remote.rkey);
        self.start(1);
        self.words[0] = self.first_word(None);
        self.words[1] = u64::from_le_bytes(value);
        self.words[2] = remote.addr;
        self.words[HEADER] = header
            .with_xrc(self.xrc_srq.is_some())
            .with_inline(true)
            .with_inline_len(8)
            .bits();
    }

    /// Fetch and add: the old value goes to `local`.                 [E810 2.4]
    pub fn fetch_add(
        &mut self,
        flags: WrFlags,
        local: (u64, Lkey),
        remote: RemoteAddr,
        addend: u64,
    ) {
        self.atomic(flags.header(SqOp::FETCH_ADD), local, remote, [addend, 0]);
    }

    /// Compare and swap: the old value goes to `local`.              [E810 2.4]
    pub fn compare_swap(
        &mut self,
        flags: WrFlags,
        local: (u64, Lkey),
        remote: RemoteAddr,
        compare: u64,
        swap: u64,
    ) {
        self.atomic(
            flags.header(SqOp::COMPARE_SWAP),
            local,
            remote,
            [swap, compare],
        );
    }

    /// Local invalidate of a region or window.                       [E810 2.4]
    pub fn local_invalidate(&mut self, flags: WrFlags, stag: u32) {
        self.start(1);
        self.words[1] = u64::from(stag);
        self.words[HEADER] = flags.header(SqOp::LOCAL_INVALIDATE).bits();
    }

    /// Bind (or with length 0 unbind) a window.                      [E810 2.4]
    #[allow(
        clippy::cast_possible_truncation,
        reason = "only two rights of four bits are kept"
    )]
    pub fn bind_mw(&mut self, flags: WrFlags, bind: &Bind) {
        self.start(1);
        self.words[0] = bind.va;
        self.words[1] = BindWord::ZERO
            .with_parent(bind.parent)
            .with_window(bind.window)
            .bits();
        self.words[2] = bind.len;
        self.words[HEADER] = flags
            .header(SqOp::BIND_MW)
            .with_rights((bind.access.to_hw() & BIND_RIGHTS) as u8)
            .with_va_based(!bind.zero_based)
            .with_type1(bind.type1)
            .with_remote_atomic(bind.access.contains(Access::REMOTE_ATOMIC))
            .bits();
    }

    /// Nothing; reported if signaled.
    pub fn nop(&mut self, flags: WrFlags) {
        self.start(1);
        self.words[HEADER] = flags.header(SqOp::NOP).bits();
    }

    /// RQ or SRQ entry; `wr_id` stands in word 2 of an SRQ's.        [E810 2.6]
    pub fn recv(&mut self, sges: &[Sge], wr_id: Option<u64>) -> Result<(), WqeError> {
        self.fragments(SqHeader::ZERO, None, sges)?;
        self.words[2] = wr_id.unwrap_or(0);
        Ok(())
    }

    /// Word 0 where no fragment stands there.
    #[inline]
    fn first_word(&self, imm: Option<u32>) -> u64 {
        ImmWord::ZERO
            .with_imm(imm.unwrap_or(0))
            .with_srq(self.xrc_srq.unwrap_or_default())
            .bits()
    }

    /// Clears `quanta` quanta and marks the last word of each as a carrier of the valid bit.
    #[inline]
    fn start(&mut self, quanta: u8) {
        debug_assert!((1..=8).contains(&quanta) && u32::from(quanta) <= MAX_QUANTA);
        self.words[..usize::from(quanta) * QUANTUM_WORDS].fill(0);
        self.valid = 0x8888_8888_u32 >> (32 - 4 * u32::from(quanta));
        self.quanta = quanta;
    }

    #[inline]
    fn fragments(
        &mut self,
        header: SqHeader,
        imm: Option<u32>,
        sges: &[Sge],
    ) -> Result<(), WqeError> {
        match sges {
            // What most requests are: the same quantum as the list below makes of it.
            [sge] if imm.is_none() && self.xrc_srq.is_none() && sge.len < 1 << 31 => {
                let words = [sge.addr, frag_word(sge), 0, header.bits()];
                if let Some(quantum) = self.words.first_chunk_mut() {
                    *quantum = words;
                }
                self.valid = 1 << HEADER | 1 << 1;
                self.quanta = 1;
                Ok(())
            }
            _ => self.fragment_list(header, imm, sges),
        }
    }

    #[allow(
        clippy::cast_possible_truncation,
        reason = "at most 14 slots, 8 quanta"
    )]
    pub(super) fn fragment_list(
        &mut self,
        header: SqHeader,
        imm: Option<u32>,
        sges: &[Sge],
    ) -> Result<(), WqeError> {
        if sges.len() > MAX_SGE {
            return Err(WqeError::TooManySges);
        }
        if sges.iter().any(|sge| sge.len >= 1 << 31) {
            return Err(WqeError::SgeTooLong);
        }
        let xrc = self.xrc_srq.is_some();
        let taken = imm.is_some() || xrc;
        let frags = (sges.len() + usize::from(taken)) as u32;
        self.start(sq_quanta(frags) as u8);
        let mut slot = 0;
        if taken {
            self.words[0] = self.first_word(imm);
            slot = 1;
        } else {
            // The second word of slot 0 carries a valid bit, unless an immediate stands there.
            self.valid |= 1 << 1;
        }
        for sge in sges {
            let at = if slot == 0 { 0 } else { 4 + 2 * (slot - 1) };
            self.words[at] = sge.addr;
            self.words[at + 1] = frag_word(sge);
            self.valid |= 1 << (at + 1);
            slot += 1;
        }
        // An even count is padded with a null fragment, which GEN2 counts. [E810 2.3]
        let more = match frags {
            0 => 0,
            even if even % 2 == 0 => even,
            odd => odd - 1,
        };
        self.words[HEADER] = header
            .with_imm(imm.is_some())
            .with_xrc(xrc)
            .with_more_frags(more as u8)
            .bits();
        Ok(())
    }

    #[allow(
        clippy::cast_possible_truncation,
        reason = "at most 101 bytes, 4 quanta"
    )]
    // rule: roce-68
    fn inline(&mut self, header: SqHeader, imm: Option<u32>, bytes: &[u8]) -> Result<(), WqeError> {
        if bytes.len() > MAX_INLINE {
            return Err(WqeError::InlineTooLong);
        }
        self.start(inline_quanta(bytes.len() as u32) as u8);
        let (first, rest) = bytes.split_at(bytes.len().min(8));
        self.words[1] = le_word(first);
        for (quantum, part) in rest.chunks(31).enumerate() {
            let at = QUANTUM_WORDS * (quantum + 1);
            for (word, piece) in part.chunks(8).enumerate() {
                self.words[at + word] = le_word(piece);
            }
        }
        self.words[0] = self.first_word(imm);
        self.words[HEADER] = header
            .with_imm(imm.is_some())
            .with_xrc(self.xrc_srq.is_some())
            .with_inline(true)
            .with_inline_len(bytes.len() as u8)
            .bits();
        Ok(())
    }

    fn atomic(
        &mut self,
        header: SqHeader,
        (addr, lkey): (u64, Lkey),
        remote: RemoteAddr,
        operands: [u64; 2],
    ) {
        self.start(2);
        self.words[0] = addr;
        self.words[1] = u64::from(lkey.value());
        self.words[2] = remote.addr;
        self.words[HEADER] = header
            .with_key(remote.rkey)
            .with_xrc(self.xrc_srq.is_some())
            .with_more_frags(1)
            .bits();
        self.words[4] = operands[0];
        self.words[5] = operands[1];
        self.words[6] = AtomicSrq::ZERO
            .with_srq(self.xrc_srq.unwrap_or_default())
            .bits();
    }
}

/// Up to eight bytes as a little-endian word.
#[inline]
fn le_word(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    if let Some(to) = word.get_mut(..bytes.len()) {
        to.copy_from_slice(bytes);
    }
    u64::from_le_bytes(word)
}

impl core::fmt::Debug for WqeBuf {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("WqeBuf")
            .field("words", &self.words())
            .finish_non_exhaustive()
    }
}

const _: () = assert!(
    MAX_SGE <= super::super::sge::SGE_LIST,
    "the device takes what we build"
);
