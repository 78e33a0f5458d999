//! The hns dialect, third generation: what its driver would find.      [events 4.8]
//!
//! ```text
//! record     23:0 CI                                        driver, at every poll
//! register   58:57 arm_sn | 56 solicited | 55:32 CI | 27:24 command | 23:0 CQN     0x230
//! EQ         55:32 CI | 17:16 command | 7:0 EQN             its own register
//! ```
//!
//! All little-endian. As in `mlx5.rs` a register is the place where the last write to it for one
//! queue stays. The index of a completion queue goes through the record, so only arms go through
//! the register; indexes there and in doorbells of event queues are counted modulo twice the ring.
//!
//! Completions: `cqe.rs`. Events: `eqe.rs`.

pub mod cqe;
pub mod eqe;

use super::{ArmRequest, EqName};

/// The register for everything.
pub const UAR_DB: u32 = 0x230;

open_enum! {
    /// What a write to the register is about.
    pub struct DbCmd: u8 {
        /// Send queue.
        SQ = 0,
        /// Receive queue.
        RQ = 1,
        /// Shared receive queue.
        SRQ = 2,
        /// Index of a completion queue.
        CQ_PTR = 3,
        /// Arm a completion queue.
        CQ_NTR = 4,
    }
}

open_enum! {
    /// What a write to the register of an event queue is.
    pub struct EqCmd: u8 {
        /// Asynchronous events: acknowledged.
        AEQ = 0,
        /// And armed.
        AEQ_ARMED = 1,
        /// Completion events: acknowledged.
        CEQ = 2,
        /// And armed.
        CEQ_ARMED = 3,
    }
}

le_word! {
    /// A record.
    pub struct RecordWord {
        /// How far the driver has read.
        ci / with_ci: u32 = [23:0],
    }
}

le_word! {
    /// A write to the register.
    pub struct DbWord {
        /// CQN, QPN or SRQN.
        tag / with_tag: u32 = [23:0],
        /// What it is about.
        cmd / with_cmd: DbCmd = [27:24],
        /// A WQE follows; not used.
        flag / with_flag: bool = [31:31],
        /// How far the driver had read.
        ci / with_ci: u32 = [55:32],
        /// Only solicited completions.
        solicited / with_solicited: bool = [56:56],
        /// The event that it is for.
        sn / with_sn: u8 = [58:57],
    }
}

le_word! {
    /// A write to the register of an event queue.
    pub struct EqWord {
        /// The completion event queue; 0 for the other.
        eqn / with_eqn: u8 = [7:0],
        /// What it is.
        cmd / with_cmd: EqCmd = [17:16],
        /// How far the driver has read.
        ci / with_ci: u32 = [55:32],
    }
}

/// The record after a poll.
#[inline]
#[must_use]
pub fn record_read(record: u64, count: u32) -> u64 {
    RecordWord::from_bits(record).with_ci(count).bits()
}

/// How far the record says that the driver has read.
#[inline]
#[must_use]
pub fn record_ci(record: u64) -> u32 {
    RecordWord::from_bits(record).ci()
}

/// A request, merged with the last one for the same event: a weaker one takes nothing back.
// rule: dialect-1, event-78
#[must_use]
pub fn arm_word(last: u64, [cqn, depth]: [u32; 2], sn: u8, count: u32, solicited: bool) -> DbWord {
    let before = DbWord::from_bits(last);
    let stronger = last != 0 && before.sn() == sn && !before.solicited();
    DbWord::ZERO
        .with_tag(cqn)
        .with_cmd(DbCmd::CQ_NTR)
        .with_ci(count & (2 * depth - 1))
        .with_sn(sn)
        .with_solicited(solicited && !stronger)
}

/// The request that stands in the register, if it is for this queue of `depth` slots.
#[must_use]
pub fn arm_request(bits: u64, [cqn, depth]: [u32; 2]) -> Option<ArmRequest> {
    let word = DbWord::from_bits(bits);
    (word.cmd() == DbCmd::CQ_NTR && word.tag() == cqn).then(|| ArmRequest {
        seq: word.sn().into(),
        next: !word.solicited(),
        solicited: true,
        read: Some((word.ci(), 2 * depth)),
    })
}

/// The number of an event queue, and its two commands.
#[allow(clippy::cast_possible_truncation, reason = "eight bits of a number")]
const fn named(eq: EqName) -> (u8, [EqCmd; 2]) {
    match eq {
        EqName::Completions(vector) => (vector as u8, [EqCmd::CEQ, EqCmd::CEQ_ARMED]),
        _ => (0, [EqCmd::AEQ, EqCmd::AEQ_ARMED]),
    }
}

/// What the driver writes after it read `count` entries of a ring of `size`.
#[must_use]
#[allow(clippy::cast_possible_truncation, reason = "the remainder fits")]
pub fn eq_doorbell(eq: EqName, size: u32, count: u64, arm: bool) -> u64 {
    let (eqn, [update, armed]) = named(eq);
    EqWord::ZERO
        .with_eqn(eqn)
        .with_cmd(if arm { armed } else { update })
        .with_ci((count % (2 * u64::from(size))) as u32)
        .bits()
}

/// Entries that a doorbell acknowledges beyond `taken`.
#[must_use]
#[allow(clippy::cast_possible_truncation, reason = "the remainder fits")]
pub fn eq_progress(eq: EqName, size: u32, taken: u64, bits: u64) -> Option<u32> {
    let (word, (eqn, cmds)) = (EqWord::from_bits(bits), named(eq));
    let known = bits != 0 && cmds.contains(&word.cmd()) && word.eqn() == eqn;
    let laps = 2 * size;
    let taken = (taken % u64::from(laps)) as u32;
    (known && word.ci() < laps).then(|| (word.ci() + laps - taken) % laps)
}

#[cfg(test)]
mod tests;
