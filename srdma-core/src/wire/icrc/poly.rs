//! Arithmetic of CRC-32 on bare registers.
//!
//! ```text
//!  register bit 31 = x^0 … bit 0 = x^31, modulo P = edb88320 (reflected)
//!  a byte of zero behind the register  = a multiplication by x^8
//!  a difference k bytes from the end   = its register times x^8k
//! ```
//!
//! Registers are not complemented: `!register` is the CRC as zlib has it. Long inputs are the
//! business of `crc32fast`; here is what it does not offer: fixed offsets, and the way back.

use crate::limits::MAX_DATAGRAM;
use crate::wire::opcode::BTH_LEN;

/// The polynomial, reflected.
const POLY: u32 = 0xedb8_8320;
/// The polynomial 1.
const ONE: u32 = 0x8000_0000;

/// `TABLE[b]`: the register zero after byte `b`.
#[allow(
    clippy::indexing_slicing,
    reason = "computed at compile time, and checked there"
)]
const TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte = 0u32;
    while byte < 256 {
        let (mut register, mut bit) = (byte, 0);
        while bit < 8 {
            register = (register >> 1) ^ (if register & 1 != 0 { POLY } else { 0 });
            bit += 1;
        }
        table[byte as usize] = register;
        byte += 1;
    }
    table
};

/// `table_after(n)[b]`: the register zero after byte `b` and `n` bytes of zero.
#[allow(
    clippy::indexing_slicing,
    reason = "computed at compile time, and checked there"
)]
const fn table_after(zeros: usize) -> [u32; 256] {
    let mut table = TABLE;
    let mut byte = 0;
    while byte < 256 {
        let mut n = 0;
        while n < zeros {
            let low = table[byte] & 0xff;
            table[byte] = (table[byte] >> 8) ^ TABLE[low as usize];
            n += 1;
        }
        byte += 1;
    }
    table
}

/// Tables for the twelve bytes of a BTH, the last byte's first.
#[allow(
    clippy::indexing_slicing,
    reason = "computed at compile time, and checked there"
)]
static BTH_TABLES: [[u32; 256]; BTH_LEN] = {
    let mut tables = [[0; 256]; BTH_LEN];
    let mut n = 0;
    while n < BTH_LEN {
        tables[n] = table_after(n);
        n += 1;
    }
    tables
};

/// What a big-endian 16-bit field adds to the register, if `AFTER` bytes follow it.
#[inline]
#[allow(clippy::indexing_slicing, reason = "a byte indexes 256 entries")]
pub(super) fn field<const AFTER: usize>(value: u16) -> u32 {
    let tables: &'static [[u32; 256]; 2] = const { &[table_after(AFTER + 1), table_after(AFTER)] };
    let [hi, lo] = value.to_be_bytes();
    tables[0][usize::from(hi)] ^ tables[1][usize::from(lo)]
}

/// The register after a BTH, whose byte 4 counts as ones.
#[inline]
#[allow(clippy::indexing_slicing, reason = "a byte indexes 256 entries")]
pub(super) fn update_bth(register: u32, bth: &[u8; BTH_LEN]) -> u32 {
    let &[b0, b1, b2, b3, _, b5, b6, b7, b8, b9, b10, b11] = bth;
    let [r0, r1, r2, r3] = register.to_le_bytes();
    let t = &BTH_TABLES;
    // Three groups that do not depend on each other, so that the loads overlap.
    let first = t[11][usize::from(b0 ^ r0)]
        ^ t[10][usize::from(b1 ^ r1)]
        ^ t[9][usize::from(b2 ^ r2)]
        ^ t[8][usize::from(b3 ^ r3)];
    let second = t[7][0xff] ^ t[6][usize::from(b5)] ^ t[5][usize::from(b6)] ^ t[4][usize::from(b7)];
    let third = t[3][usize::from(b8)]
        ^ t[2][usize::from(b9)]
        ^ t[1][usize::from(b10)]
        ^ t[0][usize::from(b11)];
    first ^ second ^ third
}

/// The register four bytes of zero later.
#[inline]
#[allow(clippy::indexing_slicing, reason = "a byte indexes 256 entries")]
const fn shift_word(register: u32) -> u32 {
    let [r0, r1, r2, r3] = register.to_le_bytes();
    let t = &BTH_TABLES;
    t[3][r0 as usize] ^ t[2][r1 as usize] ^ t[1][r2 as usize] ^ t[0][r3 as usize]
}

/// Product without carries. Operands are spread over four groups of every fourth bit, so that no
/// sum of eight ones runs into the next bit of its group.
const fn carryless(a: u32, b: u32) -> u64 {
    const M: u64 = 0x1111_1111_1111_1111;
    let (a, b) = (a as u64, b as u64);
    let (a0, a1, a2, a3) = (a & M, a & M << 1, a & M << 2, a & M << 3);
    let (b0, b1, b2, b3) = (b & M, b & M << 1, b & M << 2, b & M << 3);
    let p0 = (a0 * b0) ^ (a1 * b3) ^ (a2 * b2) ^ (a3 * b1);
    let p1 = (a0 * b1) ^ (a1 * b0) ^ (a2 * b3) ^ (a3 * b2);
    let p2 = (a0 * b2) ^ (a1 * b1) ^ (a2 * b0) ^ (a3 * b3);
    let p3 = (a0 * b3) ^ (a1 * b2) ^ (a2 * b1) ^ (a3 * b0);
    p0 & M | p1 & M << 1 | p2 & M << 2 | p3 & M << 3
}

/// Product of two registers modulo P.
#[inline]
#[allow(
    clippy::cast_possible_truncation,
    reason = "takes the halves of a product"
)]
const fn mul(a: u32, b: u32) -> u32 {
    let product = carryless(a, b) << 1;
    (product >> 32) as u32 ^ shift_word(product as u32)
}

/// The register `bytes` bytes of zero ago, up to seven.
const fn back(register: u32, bytes: usize) -> u32 {
    let (mut register, mut bit) = (register, 0);
    while bit < 8 * bytes {
        register = if register & ONE != 0 {
            (register ^ POLY) << 1 | 1
        } else {
            register << 1
        };
        bit += 1;
    }
    register
}

/// Words that any packet has at most behind what we ask about.
const WORDS: usize = (MAX_DATAGRAM + 24) / 4 + 1;

/// Powers of one factor.
#[allow(
    clippy::indexing_slicing,
    reason = "computed at compile time, and checked there"
)]
const fn powers(factor: u32) -> [u32; WORDS] {
    let mut powers = [ONE; WORDS];
    let mut n = 1;
    while n < WORDS {
        powers[n] = mul(powers[n - 1], factor);
        n += 1;
    }
    powers
}

/// x^32, x^64, …: by the number of words that follow.
static FORTH: [u32; WORDS] = powers(shift_word(ONE));
/// x^-32, x^-64, …
static BACK: [u32; WORDS] = powers(back(ONE, 4));

/// `register` times the `words`-th power; a table's end is no end.
#[inline]
fn times(register: u32, table: &[u32; WORDS], mut words: usize) -> u32 {
    let mut register = register;
    loop {
        match table.get(words) {
            Some(&power) => return mul(register, power),
            None => register = mul(register, *table.last().unwrap_or(&ONE)),
        }
        words -= WORDS - 1;
    }
}

/// The register after `bytes` bytes of zero.
#[inline]
#[allow(clippy::indexing_slicing, reason = "a byte indexes 256 entries")]
pub(super) fn shift(register: u32, bytes: usize) -> u32 {
    let mut register = times(register, &FORTH, bytes / 4);
    for _ in 0..bytes % 4 {
        let [low, ..] = register.to_le_bytes();
        register = (register >> 8) ^ BTH_TABLES[0][usize::from(low)];
    }
    register
}

/// The register before `bytes` bytes of zero.
#[inline]
pub(super) fn unshift(register: u32, bytes: usize) -> u32 {
    back(times(register, &BACK, bytes / 4), bytes % 4)
}
