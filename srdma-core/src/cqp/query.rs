//! QUERY_RDMA_FEATURES: the device says what it is.                     [E810 7.1]
//!
//! ```text
//! entry k at +8k    63:48 type │ 47:0 value
//! type 0   47:32 number of entries │ 31:16 major │ 15:0 minor version of the firmware
//! type 1   hardware version
//! ```
//!
//! A buffer too short for all entries gets the first ones; the number is that of all.

use super::status::Outcome;
use super::{Control, check};
use crate::hw::cqp::CqpMinor;

le_word! {
    /// One entry of the answer.
    pub struct Feature {
        value / with_value: u64 = [47:0],
        kind / with_kind: u16 = [63:48],
    }
}

const KIND_FIRMWARE: u16 = 0;
const KIND_HARDWARE: u16 = 1;
/// Entries of the answer.
const ENTRIES: u64 = 2;
/// GEN2.
const HARDWARE_VERSION: u64 = 2;
/// Version 1.0.
const FIRMWARE_VERSION: u64 = 1 << 16;

impl Control<'_> {
    pub(super) fn query_features(&self, addr: u64, len: u32) -> Outcome {
        check(len >= 8 && len.is_multiple_of(8), CqpMinor::INVALID_COMMAND)?;
        let words = self.ring(addr, len / 8, 8, 8)?;
        let firmware = ENTRIES << 32 | FIRMWARE_VERSION;
        let entries = [(KIND_FIRMWARE, firmware), (KIND_HARDWARE, HARDWARE_VERSION)];
        for (index, (kind, value)) in entries.into_iter().enumerate().take(words.len()) {
            let entry = Feature::ZERO.with_kind(kind).with_value(value);
            words.store(index, entry.bits());
        }
        Ok(())
    }
}
