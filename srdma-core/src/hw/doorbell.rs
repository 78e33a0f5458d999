//! Doorbells and interrupt registers.                                  [E810 2.7, 4.5]
//!
//! ```text
//! user page   +0   WQE_ALLOC   QPN: the SQ has something new
//!             +64  CQ arm      CQ id: look at the arm word
//! PF          CQPDB 0x500800 · CQACK 0x502c80 · AEQALLOC 0x502d00
//!             GLINT_DYN_CTL(i) 0x160000 + 4 i: enable and moderate vector i
//! ```
//!
//! A doorbell is a hint: it says where to look, and what is there is decided by valid bits. It may
//! come late, twice, or for nothing. What carries doorbells between threads: `hca::board`.

/// Offset of the SQ doorbell in a user's page.
pub const DB_WQE_ALLOC: u32 = 0;
/// Offset of the CQ arm doorbell in a user's page.
pub const DB_CQ_ARM: u32 = 64;
/// The CQP's doorbell: its new head index.
pub const PFPE_CQPDB: u32 = 0x50_0800;
/// CQ id whose event was taken from the CEQ.
pub const PFPE_CQACK: u32 = 0x50_2c80;
/// Asynchronous events taken from the AEQ.
pub const PFPE_AEQALLOC: u32 = 0x50_2d00;
/// Control of vector 0; vector i stands 4 i further.
pub const GLINT_DYN_CTL: u32 = 0x16_0000;

le_word! {
    /// GLINT_DYN_CTL of one vector (32 bits used).                    [E810 4.5]
    pub struct DynCtl {
        /// The vector may fire.
        enable / with_enable: bool = [0:0],
        /// Forget what is pending.
        clear_pending / with_clear_pending: bool = [1:1],
        /// Which moderation interval; 3 is none.
        itr_index / with_itr_index: u8 = [4:3],
        /// Interval in units of 2 µs.
        interval / with_interval: u16 = [16:5],
    }
}

impl DynCtl {
    /// The index that names no interval.
    pub const NO_ITR: u8 = 3;

    /// What a driver writes after it drained the queues of a vector.  [E810 4.5]
    #[must_use]
    pub fn rearm() -> Self {
        Self::ZERO.with_enable(true).with_clear_pending(true)
    }
}
