//! The opcode table: what each opcode means and which headers stand in front of its payload.
//!
//! ```text
//!  bits 7:5   class      000 RC   001 UC   010 RD   011 UD   100 CNP   101 XRC   111 manufacturer
//!  bits 4:0   operation  00..17 as InfiniBand has them, 1c FLUSH, 1d ATOMIC_WRITE
//! ```
//!
//! One row an opcode, built at compile time, so that the receive path costs one load. RD and every
//! hole have no row: such packets are dropped. Of the manufacturers' class some are ours
//! (`own.rs`). Nothing here says what a queue pair may do with an opcode.      [RoCEv2 1.5]

mod message;
mod own;

pub use message::MessageForm;

use super::HeaderSet;

open_enum! {
    /// The first byte of the BTH. Any value can stand there; [`Opcode::info`] knows which are
    /// defined.
    pub struct Opcode: u8 {
        RC_SEND_FIRST = 0x00, RC_SEND_MIDDLE = 0x01, RC_SEND_LAST = 0x02, RC_SEND_LAST_IMM = 0x03,
        RC_SEND_ONLY = 0x04, RC_SEND_ONLY_IMM = 0x05,
        RC_WRITE_FIRST = 0x06, RC_WRITE_MIDDLE = 0x07, RC_WRITE_LAST = 0x08,
        RC_WRITE_LAST_IMM = 0x09, RC_WRITE_ONLY = 0x0a, RC_WRITE_ONLY_IMM = 0x0b,
        RC_READ_REQUEST = 0x0c, RC_READ_RESP_FIRST = 0x0d, RC_READ_RESP_MIDDLE = 0x0e,
        RC_READ_RESP_LAST = 0x0f, RC_READ_RESP_ONLY = 0x10,
        RC_ACKNOWLEDGE = 0x11, RC_ATOMIC_ACK = 0x12, RC_COMPARE_SWAP = 0x13, RC_FETCH_ADD = 0x14,
        RC_SEND_LAST_INV = 0x16, RC_SEND_ONLY_INV = 0x17, RC_FLUSH = 0x1c, RC_ATOMIC_WRITE = 0x1d,

        UC_SEND_FIRST = 0x20, UC_SEND_MIDDLE = 0x21, UC_SEND_LAST = 0x22, UC_SEND_LAST_IMM = 0x23,
        UC_SEND_ONLY = 0x24, UC_SEND_ONLY_IMM = 0x25,
        UC_WRITE_FIRST = 0x26, UC_WRITE_MIDDLE = 0x27, UC_WRITE_LAST = 0x28,
        UC_WRITE_LAST_IMM = 0x29, UC_WRITE_ONLY = 0x2a, UC_WRITE_ONLY_IMM = 0x2b,

        UD_SEND_ONLY = 0x64, UD_SEND_ONLY_IMM = 0x65,

        /// Congestion notification.                                            [RoCEv2 1.8]
        CNP = 0x81,

        XRC_SEND_FIRST = 0xa0, XRC_SEND_MIDDLE = 0xa1, XRC_SEND_LAST = 0xa2,
        XRC_SEND_LAST_IMM = 0xa3, XRC_SEND_ONLY = 0xa4, XRC_SEND_ONLY_IMM = 0xa5,
        XRC_WRITE_FIRST = 0xa6, XRC_WRITE_MIDDLE = 0xa7, XRC_WRITE_LAST = 0xa8,
        XRC_WRITE_LAST_IMM = 0xa9, XRC_WRITE_ONLY = 0xaa, XRC_WRITE_ONLY_IMM = 0xab,
        XRC_READ_REQUEST = 0xac, XRC_READ_RESP_FIRST = 0xad, XRC_READ_RESP_MIDDLE = 0xae,
        XRC_READ_RESP_LAST = 0xaf, XRC_READ_RESP_ONLY = 0xb0,
        XRC_ACKNOWLEDGE = 0xb1, XRC_ATOMIC_ACK = 0xb2, XRC_COMPARE_SWAP = 0xb3,
        XRC_FETCH_ADD = 0xb4, XRC_SEND_LAST_INV = 0xb6, XRC_SEND_ONLY_INV = 0xb7,
        XRC_FLUSH = 0xbc, XRC_ATOMIC_WRITE = 0xbd,

        RC_SEND_ONLY_ACK = 0xe4, RC_SEND_ONLY_IMM_ACK = 0xe5,
        RC_WRITE_MIDDLE_RETH = 0xe7, RC_WRITE_LAST_RETH = 0xe8,
        RC_WRITE_ONLY_ACK = 0xea, RC_WRITE_ONLY_IMM_ACK = 0xeb,
        RC_READ_RESP_MIDDLE_AETH = 0xee,
    }
}

/// The transport service an opcode belongs to: its class, bits 7:5.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[non_exhaustive]
pub enum Service {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Reliable datagram: known by its class, never spoken.
    Rd,
    /// Unreliable datagram.
    Ud,
    /// Congestion notification: belongs to no queue pair type.
    Cnp,
    /// Extended reliable connection.
    Xrc,
    /// Left to manufacturers: spoken with devices of our own kind only, and then as RC.
    Manufacturer,
}

impl Service {
    /// Its queue pairs have one peer each.
    #[inline]
    #[must_use]
    pub const fn is_connected(self) -> bool {
        matches!(self, Self::Rc | Self::Uc | Self::Xrc)
    }
}

/// What a packet does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[non_exhaustive]
pub enum Verb {
    /// SEND, any form.
    Send,
    /// RDMA WRITE, any form.
    Write,
    /// RDMA READ request.
    ReadRequest,
    /// RDMA READ response; also the answer to FLUSH and ATOMIC WRITE.
    ReadResponse,
    /// Acknowledgement or NAK.
    Ack,
    /// Acknowledgement of an atomic, with the original value.
    AtomicAck,
    /// Compare and swap.
    CompareSwap,
    /// Fetch and add.
    FetchAdd,
    /// FLUSH.
    Flush,
    /// ATOMIC WRITE of eight bytes.
    AtomicWrite,
    /// Congestion notification.
    Cnp,
}

/// Where a packet stands in its message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[non_exhaustive]
pub enum Position {
    /// The first of several.
    First,
    /// Neither first nor last.
    Middle,
    /// The last of several.
    Last,
    /// The whole message.
    Only,
}

impl Position {
    /// The position of a packet that is or isn't the first and the last of its message.
    #[must_use]
    pub const fn new(first: bool, last: bool) -> Self {
        match (first, last) {
            (true, true) => Self::Only,
            (true, false) => Self::First,
            (false, true) => Self::Last,
            (false, false) => Self::Middle,
        }
    }

    /// The packet begins a message.
    #[must_use]
    pub const fn starts(self) -> bool {
        matches!(self, Self::First | Self::Only)
    }

    /// The packet ends a message.
    #[must_use]
    pub const fn ends(self) -> bool {
        matches!(self, Self::Last | Self::Only)
    }
}

/// How much payload an opcode carries. Checked by the queue pair, which knows its MTU and answers
/// a violation with a NAK; parsing only refuses more than the largest MTU.     [RoCEv2 1.6]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[non_exhaustive]
pub enum PayloadRule {
    /// No payload.
    None,
    /// 0..=MTU.
    UpToMtu,
    /// 1..=MTU.
    NonEmpty,
    /// Exactly one MTU.
    FullMtu,
    /// Exactly eight bytes.
    Eight,
}

impl PayloadRule {
    /// Whether `len` bytes of payload are right at path MTU `mtu`.
    #[must_use]
    pub const fn allows(self, len: usize, mtu: usize) -> bool {
        match self {
            Self::None => len == 0,
            Self::UpToMtu => len <= mtu,
            Self::NonEmpty => len > 0 && len <= mtu,
            Self::FullMtu => len == mtu,
            Self::Eight => len == 8,
        }
    }
}

/// One row of the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct OpcodeInfo {
    /// The transport service.
    pub service: Service,
    /// What the packet does.
    pub verb: Verb,
    /// Where it stands in its message.
    pub position: Position,
    /// The extension headers after the BTH.
    pub headers: HeaderSet,
    /// How much payload follows.
    pub payload: PayloadRule,
    /// The packet takes a receive WQE: a SEND's first, a WRITE's last with immediate.
    pub takes_rwqe: bool,
    /// Immediate data is among the headers.
    pub has_imm: bool,
    /// A key to invalidate is among the headers.
    pub has_inv: bool,
    /// An acknowledgement is among the headers of a request.
    pub has_rider: bool,
    /// The packet answers a request, and belongs to the requester's half of a queue pair.
    pub is_response: bool,
    /// Bytes of BTH and extension headers.
    pub header_len: u8,
    /// Offset of each header from the start of the BTH, by bit; 0 where it is absent.
    offsets: [u8; HeaderSet::KINDS],
}

impl OpcodeInfo {
    /// Where `header` (one header) starts, from the first byte of the BTH; `None` if absent.
    #[inline]
    #[must_use]
    pub const fn offset(&self, header: HeaderSet) -> Option<usize> {
        if !self.headers.contains(header) || header.is_empty() {
            return None;
        }
        #[allow(clippy::indexing_slicing, reason = "a set has bits below KINDS only")]
        let at = self.offsets[header.first()];
        Some(at as usize)
    }

    /// `extra` and `payload` as the operation has them; the class's headers are added.
    #[allow(clippy::indexing_slicing, reason = "bounded by the number of kinds")]
    const fn row(
        service: Service,
        verb: Verb,
        position: Position,
        extra: HeaderSet,
        payload: PayloadRule,
    ) -> Self {
        let is_response = matches!(verb, Verb::ReadResponse | Verb::Ack | Verb::AtomicAck);
        let class = match service {
            Service::Ud => HeaderSet::DETH,
            Service::Xrc if !is_response => HeaderSet::XRCETH,
            _ => HeaderSet::NONE,
        };
        let headers = extra.with(class);
        let has_imm = headers.contains(HeaderSet::IMM);
        let mut offsets = [0; HeaderSet::KINDS];
        let mut bit = 0;
        while bit < HeaderSet::KINDS {
            if headers.contains(HeaderSet::kind(bit)) {
                offsets[bit] = byte(BTH_LEN + headers.len_before(bit));
            }
            bit += 1;
        }
        Self {
            service,
            verb,
            position,
            headers,
            payload,
            takes_rwqe: match verb {
                Verb::Send => position.starts(),
                Verb::Write => has_imm,
                _ => false,
            },
            has_imm,
            has_inv: headers.contains(HeaderSet::IETH),
            has_rider: headers.contains(HeaderSet::RIDER),
            is_response,
            header_len: byte(BTH_LEN + headers.len()),
            offsets,
        }
    }
}

/// Bytes of a BTH.                                                             [RoCEv2 1.2]
pub const BTH_LEN: usize = 12;

#[allow(
    clippy::cast_possible_truncation,
    reason = "headers are at most MAX_HEADER bytes"
)]
const fn byte(len: usize) -> u8 {
    assert!(len <= crate::limits::MAX_HEADER);
    len as u8
}

/// What operation `op` (bits 4:0) is in the reliable classes.
const fn operation(op: u8) -> Option<(Verb, Position, HeaderSet, PayloadRule)> {
    use HeaderSet as H;
    use PayloadRule as P;
    use Position::{First, Last, Middle, Only};
    Some(match op {
        0x00 => (Verb::Send, First, H::NONE, P::FullMtu),
        0x01 => (Verb::Send, Middle, H::NONE, P::FullMtu),
        0x02 => (Verb::Send, Last, H::NONE, P::NonEmpty),
        0x03 => (Verb::Send, Last, H::IMM, P::NonEmpty),
        0x04 => (Verb::Send, Only, H::NONE, P::UpToMtu),
        0x05 => (Verb::Send, Only, H::IMM, P::UpToMtu),
        0x06 => (Verb::Write, First, H::RETH, P::FullMtu),
        0x07 => (Verb::Write, Middle, H::NONE, P::FullMtu),
        0x08 => (Verb::Write, Last, H::NONE, P::NonEmpty),
        0x09 => (Verb::Write, Last, H::IMM, P::NonEmpty),
        0x0a => (Verb::Write, Only, H::RETH, P::UpToMtu),
        0x0b => (Verb::Write, Only, H::RETH.with(H::IMM), P::UpToMtu),
        0x0c => (Verb::ReadRequest, Only, H::RETH, P::None),
        // rule: roce-21
        0x0d => (Verb::ReadResponse, First, H::AETH, P::FullMtu),
        0x0e => (Verb::ReadResponse, Middle, H::NONE, P::FullMtu),
        0x0f => (Verb::ReadResponse, Last, H::AETH, P::NonEmpty),
        0x10 => (Verb::ReadResponse, Only, H::AETH, P::UpToMtu),
        0x11 => (Verb::Ack, Only, H::AETH, P::None),
        0x12 => (Verb::AtomicAck, Only, H::AETH.with(H::ATOMIC_ACK), P::None),
        0x13 => (Verb::CompareSwap, Only, H::ATOMIC, P::None),
        0x14 => (Verb::FetchAdd, Only, H::ATOMIC, P::None),
        0x16 => (Verb::Send, Last, H::IETH, P::NonEmpty),
        0x17 => (Verb::Send, Only, H::IETH, P::UpToMtu),
        0x1c => (Verb::Flush, Only, H::FETH.with(H::RETH), P::None),
        0x1d => (Verb::AtomicWrite, Only, H::RETH, P::Eight),
        _ => return None,
    })
}

/// The row of `opcode`, if it is defined.
// rule: roce-16
const fn row(opcode: u8) -> Option<OpcodeInfo> {
    let service = Opcode(opcode).service();
    let op = opcode & 0x1f;
    if let Some((alone, more)) = Opcode(opcode).own() {
        let Some((verb, position, headers, payload)) = operation(alone.0) else {
            return None;
        };
        let (rc, headers) = (Service::Rc, headers.with(more));
        return Some(OpcodeInfo::row(rc, verb, position, headers, payload));
    }
    let spoken = match service {
        Some(Service::Rc | Service::Xrc) => true,
        Some(Service::Uc) => op <= 0x0b,
        Some(Service::Ud) => op == 0x04 || op == 0x05,
        Some(Service::Cnp) => {
            return if op == 0x01 {
                let (verb, only) = (Verb::Cnp, Position::Only);
                let none = PayloadRule::None;
                Some(OpcodeInfo::row(
                    Service::Cnp,
                    verb,
                    only,
                    HeaderSet::CNP,
                    none,
                ))
            } else {
                None
            };
        }
        _ => false,
    };
    match (service, operation(op)) {
        (Some(service), Some((verb, position, headers, payload))) if spoken => {
            Some(OpcodeInfo::row(service, verb, position, headers, payload))
        }
        _ => None,
    }
}

/// The rows by opcode.
#[allow(
    clippy::indexing_slicing,
    reason = "computed at compile time, and checked there"
)]
static TABLE: [Option<OpcodeInfo>; 256] = {
    let mut table = [None; 256];
    let mut opcode = 0u8;
    loop {
        table[opcode as usize] = row(opcode);
        if opcode == u8::MAX {
            break table;
        }
        opcode += 1;
    }
};

impl Opcode {
    /// The row of the table; `None` for opcodes that nobody defined or that we do not speak.
    #[inline]
    #[must_use]
    #[allow(clippy::indexing_slicing, reason = "a byte indexes 256 rows")]
    pub const fn info(self) -> Option<&'static OpcodeInfo> {
        TABLE[self.0 as usize].as_ref()
    }

    /// The same operation of RC in the class of XRC.
    #[inline]
    #[must_use]
    pub const fn in_xrc(self) -> Self {
        Self(self.0 | 0xa0)
    }

    /// The service of the opcode's class, also where the opcode itself is undefined.
    #[must_use]
    pub const fn service(self) -> Option<Service> {
        match self.0 >> 5 {
            0b000 => Some(Service::Rc),
            0b001 => Some(Service::Uc),
            0b010 => Some(Service::Rd),
            0b011 => Some(Service::Ud),
            0b100 => Some(Service::Cnp),
            0b101 => Some(Service::Xrc),
            0b111 => Some(Service::Manufacturer),
            _ => None,
        }
    }

    /// True if nobody acknowledges the packets of its class.
    #[inline]
    #[must_use]
    pub const fn is_unreliable(self) -> bool {
        matches!(self.service(), Some(Service::Uc | Service::Ud))
    }

    /// The opcode of a packet, if there is one: not every service has every form.
    #[must_use]
    pub const fn of(
        service: Service,
        verb: Verb,
        position: Position,
        imm: bool,
        inv: bool,
    ) -> Option<Self> {
        use Position::{First, Last, Middle, Only};
        let class = match service {
            Service::Rc => 0x00,
            Service::Uc => 0x20,
            Service::Ud => 0x60,
            Service::Cnp => 0x80,
            Service::Xrc => 0xa0,
            _ => return None,
        };
        let op = match (verb, position, imm, inv) {
            (Verb::Send, First, false, false) => 0x00,
            (Verb::Send, Middle, false, false) => 0x01,
            (Verb::Send, Last, imm, false) => 0x02 + imm as u8,
            (Verb::Send, Only, imm, false) => 0x04 + imm as u8,
            (Verb::Send, Last, false, true) => 0x16,
            (Verb::Send, Only, false, true) => 0x17,
            (Verb::Write, First, false, false) => 0x06,
            (Verb::Write, Middle, false, false) => 0x07,
            (Verb::Write, Last, imm, false) => 0x08 + imm as u8,
            (Verb::Write, Only, imm, false) => 0x0a + imm as u8,
            (Verb::ReadRequest, Only, false, false) => 0x0c,
            (Verb::ReadResponse, First, false, false) => 0x0d,
            (Verb::ReadResponse, Middle, false, false) => 0x0e,
            (Verb::ReadResponse, Last, false, false) => 0x0f,
            (Verb::ReadResponse, Only, false, false) => 0x10,
            (Verb::Ack, Only, false, false) => 0x11,
            (Verb::AtomicAck, Only, false, false) => 0x12,
            (Verb::CompareSwap, Only, false, false) => 0x13,
            (Verb::FetchAdd, Only, false, false) => 0x14,
            (Verb::Flush, Only, false, false) => 0x1c,
            (Verb::AtomicWrite, Only, false, false) => 0x1d,
            (Verb::Cnp, Only, false, false) => 0x01,
            _ => return None,
        };
        if matches!(verb, Verb::Cnp) != matches!(service, Service::Cnp) {
            return None;
        }
        let opcode = Self(class | op);
        if opcode.info().is_some() {
            Some(opcode)
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests;
