//! Why a work request failed, as mlx5 and hns number it.               [events 4.6, 4.8]
//!
//! Both use one set of numbers. An E810 says it with a major and a minor code (`hw::cqe`).

use crate::hw::{AeCode, FlushCode, Major};

/// Aborted by the other side; stands for a cause that has no number of its own.
const ABORTED: u8 = 0x22;

/// Minor code of an E810, and the syndrome.
const TABLE: [(FlushCode, u8); 12] = [
    (FlushCode::LOC_LEN, 0x01),
    (FlushCode::LOC_QP_OP, 0x02),
    (FlushCode::PROT, 0x04),
    (FlushCode::GENERAL, 0x05),
    (FlushCode::MW_BIND, 0x06),
    (FlushCode::BAD_RESP, 0x10),
    (FlushCode::REM_INV_REQ, 0x12),
    (FlushCode::REM_ACCESS, 0x13),
    (FlushCode::REM_OP, 0x14),
    (FlushCode::RETRY_EXC, 0x15),
    (FlushCode::RNR_RETRY_EXC, 0x16),
    (FlushCode::FATAL, ABORTED),
];

/// The syndrome of an error.
#[must_use]
pub fn of(major: Major, minor: u16) -> u8 {
    let code = match major {
        Major::FLUSH => FlushCode(minor),
        Major::SRQ_FLUSH => AeCode(minor).flush_code(),
        _ => FlushCode::FATAL,
    };
    let known = TABLE.iter().find(|(flush, _)| *flush == code);
    known.map_or(ABORTED, |(_, syndrome)| *syndrome)
}

/// The minor code that a syndrome stands for.
#[must_use]
pub fn flush_code(syndrome: u8) -> FlushCode {
    let known = TABLE.iter().find(|(_, number)| *number == syndrome);
    known.map_or(FlushCode::FATAL, |(code, _)| *code)
}

/// A code of ours for the byte that each vendor fills as it likes.
#[must_use]
pub fn vendor(minor: u16) -> u8 {
    u8::try_from(minor).unwrap_or(u8::MAX)
}
