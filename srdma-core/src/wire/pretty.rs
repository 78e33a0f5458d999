//! One line a packet, for traces and for tests that fail.
//!
//! ```text
//!  RC SEND_ONLY_IMM qp 0x000012 psn 0x000001 ack imm 0xcafef00d 64 B
//!  RC ACKNOWLEDGE qp 0x000021 psn 0x000100 nak PSN_SEQUENCE msn 0x000abc 0 B
//! ```
//!
//! `ack` alone means that an acknowledgement is wanted. Not a format to parse.

use core::fmt;

use super::{Aeth, Malformed, Opcode, Packet, Syndrome};
use crate::num::Pkey;

/// Any datagram as one line, also one that is no packet.
#[derive(Clone, Copy)]
pub struct Pretty<'a>(pub &'a [u8]);

impl fmt::Display for Pretty<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Packet::parse(self.0) {
            Ok(packet) => packet.fmt(f),
            Err(malformed) => line_malformed(f, self.0, malformed),
        }
    }
}

impl fmt::Debug for Pretty<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn line_malformed(
    f: &mut fmt::Formatter<'_>,
    datagram: &[u8],
    malformed: Malformed,
) -> fmt::Result {
    write!(f, "malformed ({malformed})")?;
    if let Some(&opcode) = datagram.first() {
        write!(f, " {}", Opcode(opcode))?;
    }
    write!(f, " {} B", datagram.len())
}

impl fmt::Display for Opcode {
    /// Class and operation: `RC SEND_ONLY`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => match name.split_once('_') {
                Some((class, operation)) => write!(f, "{class} {operation}"),
                None => f.write_str(name),
            },
            None => write!(f, "opcode {:#04x}", self.0),
        }
    }
}

impl fmt::Display for Aeth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.syndrome {
            Syndrome::Ack { credits: 31 } => {}
            Syndrome::Ack { credits } => write!(f, "credits {credits} ")?,
            Syndrome::RnrNak { timer } => write!(f, "rnr {timer} ")?,
            Syndrome::Nak(code) => write!(f, "nak {code:?} ")?,
            Syndrome::Reserved(byte) => write!(f, "syndrome {byte:#04x} ")?,
        }
        write!(f, "msn {}", self.msn)
    }
}

impl fmt::Display for Packet<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bth = self.bth();
        write!(f, "{} qp {} psn {}", bth.opcode, bth.dest, bth.psn)?;
        let flags = [
            (bth.ack_req, "ack"),
            (bth.solicited, "se"),
            (bth.becn, "becn"),
            (bth.fecn, "fecn"),
        ];
        for (_, name) in flags.iter().filter(|(set, _)| *set) {
            write!(f, " {name}")?;
        }
        if bth.pkey != Pkey::DEFAULT {
            write!(f, " pkey {}", bth.pkey)?;
        }
        self.write_extensions(f)?;
        write!(f, " {} B", self.payload().len())
    }
}

impl Packet<'_> {
    fn write_extensions(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(srq) = self.xrceth() {
            write!(f, " srq {srq:#08x}")?;
        }
        if let Some(deth) = self.deth() {
            write!(f, " from {} qkey {}", deth.source, deth.qkey)?;
        }
        if let Some(feth) = self.feth() {
            write!(f, " plt {} sel {}", feth.placement, feth.selectivity)?;
        }
        if let Some(reth) = self.reth() {
            write!(
                f,
                " va {:#x} rkey {} len {}",
                reth.addr, reth.rkey, reth.len
            )?;
        }
        if let Some(atomic) = self.atomic_eth() {
            write!(f, " va {:#x} rkey {}", atomic.addr, atomic.rkey)?;
            write!(
                f,
                " value {:#x} compare {:#x}",
                atomic.swap_add, atomic.compare
            )?;
        }
        if let Some(aeth) = self.aeth() {
            write!(f, " {aeth}")?;
        }
        if let Some(value) = self.atomic_ack() {
            write!(f, " original {value:#x}")?;
        }
        if let Some(imm) = self.imm() {
            write!(f, " imm {:#010x}", u32::from_be_bytes(imm.0))?;
        }
        if let Some(rkey) = self.ieth() {
            write!(f, " inv {rkey}")?;
        }
        if let Some(rider) = self.rider() {
            write!(f, " along: psn {} {}", rider.psn.value(), rider.aeth)?;
        }
        Ok(())
    }
}

impl fmt::Debug for Packet<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Packet({self})")
    }
}
