//! The mlx5 dialect: what its driver would find.                       [events 4.1-4.7]
//!
//! ```text
//! record     31:0 SET_CI | 63:32 ARM, each big-endian       driver, at every poll; at every arm
//! CQ arm     63:62 0 | 61:60 arm_sn | 56 solicited | 55:32 CI | 23:0 CQN     register 0x20
//! EQ         31:24 EQN | 23:0 CI, big-endian                registers 0x40 (arm), 0x48 (update)
//! ```
//!
//! A register is modelled as the place where the last write to it for one queue stays until the
//! device looks: behind the ring of an event queue, beside the record of a completion queue. The
//! board says where to look.
//!
//! Completions: `cqe.rs`. Events: `eqe.rs`.

pub mod cqe;
pub mod eqe;

use super::{ArmRequest, EqName};
use crate::num::CeqId;

/// The register that arms completion queues.
pub const UAR_CQ_ARM: u32 = 0x20;
/// The register that acknowledges an event queue and arms it.
pub const UAR_EQ_ARM: u32 = 0x40;
/// The register that only acknowledges.
pub const UAR_EQ_UPDATE: u32 = 0x48;
/// The event queue that CREATE_CEQ makes for completed commands under this number. `[srdma]`
pub const COMMANDS: CeqId = CeqId(0x3ff);
/// Entries beyond those that were asked for: a handler may take so many before it acknowledges.
pub const EQ_SPARE: u32 = 0x80;
/// Indexes are counted modulo this.
const CI: u32 = 1 << 24;

le_word! {
    /// A doorbell record of a completion queue, its first byte highest.
    pub struct RecordWord {
        /// The ARM half: how far the driver had read.
        arm_ci / with_arm_ci: u32 = [23:0],
        /// The ARM half: only solicited completions.
        arm_solicited / with_arm_solicited: bool = [24:24],
        /// The ARM half: the event that it is for.
        arm_sn / with_arm_sn: u8 = [29:28],
        /// The SET_CI half: how far the driver has read.
        set_ci / with_set_ci: u32 = [55:32],
    }
}

le_word! {
    /// A write to the register that arms completion queues.
    pub struct ArmWord {
        /// The completion queue.
        cqn / with_cqn: u32 = [23:0],
        /// How far the driver had read.
        ci / with_ci: u32 = [55:32],
        /// Only solicited completions.
        solicited / with_solicited: bool = [56:56],
        /// The event that it is for.
        sn / with_sn: u8 = [61:60],
    }
}

le_word! {
    /// A write to one of the registers of event queues; its lower half is not used.
    pub struct EqWord {
        /// How far the driver has read.
        ci / with_ci: u32 = [55:32],
        /// The event queue.
        eqn / with_eqn: u8 = [63:56],
    }
}

/// The record after a poll, as it stands in memory.
#[inline]
#[must_use]
pub fn record_read(record: u64, count: u32) -> u64 {
    let record = RecordWord::from_bits(record.swap_bytes());
    record.with_set_ci(count).bits().swap_bytes()
}

/// How far the record says that the driver has read.
#[inline]
#[must_use]
pub fn record_ci(record: u64) -> u32 {
    RecordWord::from_bits(record.swap_bytes()).set_ci()
}

/// The record with the ARM half of a request.
#[must_use]
pub fn record_armed(record: u64, arm: ArmWord) -> u64 {
    let record = RecordWord::from_bits(record.swap_bytes());
    record
        .with_arm_ci(arm.ci())
        .with_arm_solicited(arm.solicited())
        .with_arm_sn(arm.sn())
        .bits()
        .swap_bytes()
}

/// A request, merged with the last one for the same event: a weaker one takes nothing back.
// rule: dialect-1, event-72
#[must_use]
pub fn arm_word(last: u64, cqn: u32, sn: u8, count: u32, solicited_only: bool) -> ArmWord {
    let before = ArmWord::from_bits(last.swap_bytes());
    let stronger = last != 0 && before.sn() == sn && !before.solicited();
    ArmWord::ZERO
        .with_cqn(cqn)
        .with_ci(count)
        .with_sn(sn)
        .with_solicited(solicited_only && !stronger)
}

/// The request that stands in the register, if it is for this queue.
#[must_use]
pub fn arm_request(bits: u64, cqn: u32) -> Option<ArmRequest> {
    let word = ArmWord::from_bits(bits.swap_bytes());
    (bits != 0 && word.cqn() == cqn).then(|| ArmRequest {
        seq: word.sn().into(),
        next: !word.solicited(),
        solicited: true,
        read: Some((word.ci(), CI)),
    })
}

/// The number of an event queue.
#[must_use]
#[allow(clippy::cast_possible_truncation, reason = "eight bits of a number")]
pub const fn eqn(eq: EqName) -> u8 {
    match eq {
        EqName::Commands => 1,
        EqName::Async => 2,
        EqName::Pages => 3,
        EqName::Completions(vector) => (vector as u8).wrapping_add(4),
    }
}

/// What the driver writes after it read `count` entries.
#[must_use]
#[allow(clippy::cast_possible_truncation, reason = "24 bits of a counter")]
pub fn eq_doorbell(eq: EqName, count: u64) -> u64 {
    let word = EqWord::ZERO
        .with_eqn(eqn(eq))
        .with_ci((count & u64::from(CI - 1)) as u32);
    word.bits().swap_bytes()
}

/// Entries that a doorbell acknowledges beyond `taken`.
#[must_use]
#[allow(clippy::cast_possible_truncation, reason = "24 bits of a counter")]
pub fn eq_progress(eq: EqName, taken: u64, bits: u64) -> Option<u32> {
    let word = EqWord::from_bits(bits.swap_bytes());
    let taken = (taken & u64::from(CI - 1)) as u32;
    (bits != 0 && word.eqn() == eqn(eq)).then(|| word.ci().wrapping_sub(taken) & (CI - 1))
}

#[cfg(test)]
mod tests;
