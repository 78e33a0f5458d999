//! Packets in one line: what a script says to a device, and what it hears.
//!
//! ```text
//! send_only(7, b"hello").ack()        Frame: headers and payload, no addresses
//! heard.op() heard.psn() heard.syndrome()
//! ```
//!
//! Frames are written by the same [`Emit`] as the device's packets; that they are what others
//! understand is proven by the golden packets. Nothing here keeps any state.

#![allow(
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    reason = "a harness fails loudly"
)]

use srdma_core::num::{Msn, Pkey, Psn, Qkey, Qpn, Rkey};
use srdma_core::wire::icrc::{IcrcCheck, IcrcFlow, verify};
use srdma_core::wire::{
    Aeth, AtomicEth, Bth, Deth, Emit, Feth, FlowTuple, ImmDt, NakCode, Opcode, Packet, ROCE_PORT,
    Reth, Rider, Syndrome,
};
use srdma_net::wire_link::Datagram;

/// The UDP port of a process that shares its address, where a script has one.
pub const NEIGHBOUR: u16 = 50_123;

/// A packet to be.
#[derive(Clone, Debug)]
pub struct Frame {
    /// Its headers; the pad count is filled in when it is written.
    pub head: Emit,
    /// Its payload.
    pub payload: Vec<u8>,
}

impl Frame {
    /// A packet with a base header only.
    #[must_use]
    pub fn new(opcode: Opcode, psn: u32, payload: &[u8]) -> Self {
        Self {
            head: Emit::new(Bth::new(opcode, Qpn::new(0), Psn::new(psn))),
            payload: payload.to_vec(),
        }
    }

    /// For this queue pair.
    #[must_use]
    pub const fn to(mut self, qpn: Qpn) -> Self {
        self.head.bth.dest = qpn;
        self
    }

    /// Asks for an acknowledgement.
    #[must_use]
    pub const fn ack(mut self) -> Self {
        self.head.bth.ack_req = true;
        self
    }

    /// Tells so many packets of its message before it, as our own kind does.
    #[must_use]
    pub const fn told(mut self, place: u8) -> Self {
        self.head.bth.place = place;
        self
    }

    /// Solicited.
    #[must_use]
    pub const fn solicited(mut self) -> Self {
        self.head.bth.solicited = true;
        self
    }

    /// With another partition key.
    #[must_use]
    pub const fn pkey(mut self, pkey: u16) -> Self {
        self.head.bth.pkey = Pkey(pkey);
        self
    }

    /// With another opcode.
    #[must_use]
    pub const fn op(mut self, opcode: Opcode) -> Self {
        self.head.bth.opcode = opcode;
        self
    }

    /// Takes an acknowledgement of `psn` along, as our own kind does.
    #[must_use]
    pub fn riding(mut self, psn: u32, syndrome: Syndrome) -> Self {
        self.head.bth.opcode = self.head.bth.opcode.with_rider().unwrap();
        self.head.rider = Some(Rider {
            aeth: Aeth {
                syndrome,
                msn: Msn::new(0),
            },
            psn: Psn::new(psn),
        });
        self
    }

    /// With an immediate.
    #[must_use]
    pub const fn imm(mut self, imm: [u8; 4]) -> Self {
        self.head.imm = Some(ImmDt(imm));
        self
    }

    /// The datagram of this packet on a flow, signed for identification 0.
    #[must_use]
    pub fn bytes(&self, flow: &FlowTuple) -> Vec<u8> {
        let mut head = self.head;
        head.bth.pad = Bth::pad_for(self.payload.len());
        let mut out = vec![0; head.len()];
        head.write(&mut out);
        out.extend_from_slice(&self.payload);
        out.extend(std::iter::repeat_n(0, usize::from(head.bth.pad)));
        sign(flow, &mut out);
        out
    }
}

/// Appends the ICRC to a datagram that lacks it.
pub fn sign(flow: &FlowTuple, bytes: &mut Vec<u8>) {
    let (bth, rest) = bytes.split_first_chunk().unwrap();
    let mut icrc = IcrcFlow::new(flow).start(bytes.len() + 4, 0, bth);
    icrc.bytes(rest);
    let icrc = icrc.finish();
    bytes.extend_from_slice(&icrc);
}

// ---- requests --------------------------------------------------------------------------

/// SEND_ONLY.
#[must_use]
pub fn send_only(psn: u32, payload: &[u8]) -> Frame {
    Frame::new(Opcode::RC_SEND_ONLY, psn, payload)
}

/// SEND_FIRST.
#[must_use]
pub fn send_first(psn: u32, payload: &[u8]) -> Frame {
    Frame::new(Opcode::RC_SEND_FIRST, psn, payload)
}

/// SEND_MIDDLE.
#[must_use]
pub fn send_middle(psn: u32, payload: &[u8]) -> Frame {
    Frame::new(Opcode::RC_SEND_MIDDLE, psn, payload)
}

/// SEND_LAST.
#[must_use]
pub fn send_last(psn: u32, payload: &[u8]) -> Frame {
    Frame::new(Opcode::RC_SEND_LAST, psn, payload)
}

/// SEND_ONLY with invalidate.
#[must_use]
pub fn send_inv(psn: u32, payload: &[u8], key: Rkey) -> Frame {
    let mut frame = Frame::new(Opcode(0x17), psn, payload);
    frame.head.ieth = Some(key);
    frame
}

/// WRITE_ONLY of the whole payload.
#[must_use]
pub fn write_only(psn: u32, addr: u64, rkey: Rkey, payload: &[u8]) -> Frame {
    let len = u32::try_from(payload.len()).unwrap();
    write_first(psn, addr, rkey, len, payload).op(Opcode(0x0a))
}

/// WRITE_FIRST of a message of `len` bytes.
#[must_use]
pub fn write_first(psn: u32, addr: u64, rkey: Rkey, len: u32, payload: &[u8]) -> Frame {
    let mut frame = Frame::new(Opcode(0x06), psn, payload);
    frame.head.reth = Some(Reth { addr, rkey, len });
    frame
}

/// WRITE_MIDDLE.
#[must_use]
pub fn write_middle(psn: u32, payload: &[u8]) -> Frame {
    Frame::new(Opcode(0x07), psn, payload)
}

/// WRITE_LAST.
#[must_use]
pub fn write_last(psn: u32, payload: &[u8]) -> Frame {
    Frame::new(Opcode(0x08), psn, payload)
}

/// WRITE_LAST with immediate.
#[must_use]
pub fn write_last_imm(psn: u32, payload: &[u8], imm: [u8; 4]) -> Frame {
    Frame::new(Opcode(0x09), psn, payload).imm(imm)
}

/// WRITE_ONLY with immediate.
#[must_use]
pub fn write_only_imm(psn: u32, addr: u64, rkey: Rkey, payload: &[u8], imm: [u8; 4]) -> Frame {
    write_only(psn, addr, rkey, payload)
        .op(Opcode(0x0b))
        .imm(imm)
}

/// READ_REQUEST.
#[must_use]
pub fn read_request(psn: u32, addr: u64, rkey: Rkey, len: u32) -> Frame {
    let mut frame = Frame::new(Opcode::RC_READ_REQUEST, psn, &[]);
    frame.head.reth = Some(Reth { addr, rkey, len });
    frame
}

/// FETCH_ADD.
#[must_use]
pub fn fetch_add(psn: u32, addr: u64, rkey: Rkey, add: u64) -> Frame {
    let mut frame = Frame::new(Opcode::RC_FETCH_ADD, psn, &[]);
    frame.head.atomic = Some(AtomicEth {
        addr,
        rkey,
        swap_add: add,
        compare: 0,
    });
    frame
}

/// COMPARE_SWAP.
#[must_use]
pub fn compare_swap(psn: u32, addr: u64, rkey: Rkey, compare: u64, swap: u64) -> Frame {
    let mut frame = Frame::new(Opcode::RC_COMPARE_SWAP, psn, &[]);
    frame.head.atomic = Some(AtomicEth {
        addr,
        rkey,
        swap_add: swap,
        compare,
    });
    frame
}

/// ATOMIC_WRITE.
#[must_use]
pub fn atomic_write(psn: u32, addr: u64, rkey: Rkey, value: [u8; 8]) -> Frame {
    write_first(psn, addr, rkey, 8, &value).op(Opcode::RC_ATOMIC_WRITE)
}

/// FLUSH of a range, global visibility.
#[must_use]
pub fn flush(psn: u32, addr: u64, rkey: Rkey, len: u32) -> Frame {
    let mut frame = read_request(psn, addr, rkey, len).op(Opcode(0x1c));
    frame.head.feth = Some(Feth {
        placement: Feth::GLOBAL,
        selectivity: Feth::RANGE,
    });
    frame
}

/// UD SEND_ONLY.
#[must_use]
pub fn datagram(psn: u32, qkey: u32, source: u32, payload: &[u8]) -> Frame {
    let mut frame = Frame::new(Opcode(0x64), psn, payload);
    frame.head.deth = Some(Deth {
        qkey: Qkey(qkey),
        source: Qpn::new(source),
    });
    frame
}

/// The same request for a UC queue pair.
#[must_use]
pub const fn uc(frame: Frame) -> Frame {
    let Opcode(code) = frame.head.bth.opcode;
    frame.op(Opcode(code | 0x20))
}

// ---- responses -------------------------------------------------------------------------

/// Any packet whose only extension is an AETH.
#[must_use]
pub fn aeth(opcode: Opcode, psn: u32, syndrome: Syndrome, msn: u32, payload: &[u8]) -> Frame {
    let mut frame = Frame::new(opcode, psn, payload);
    frame.head.aeth = Some(Aeth {
        syndrome,
        msn: Msn::new(msn),
    });
    frame
}

/// ACK.
#[must_use]
pub fn ack(psn: u32) -> Frame {
    aeth(Opcode::RC_ACKNOWLEDGE, psn, Syndrome::ACK, 0, &[])
}

/// NAK.
#[must_use]
pub fn nak(psn: u32, code: NakCode) -> Frame {
    aeth(Opcode::RC_ACKNOWLEDGE, psn, Syndrome::Nak(code), 0, &[])
}

/// RNR NAK.
#[must_use]
pub fn rnr_nak(psn: u32, timer: u8) -> Frame {
    let syndrome = Syndrome::RnrNak { timer };
    aeth(Opcode::RC_ACKNOWLEDGE, psn, syndrome, 0, &[])
}

/// READ_RESP of position `first`, `last`.
#[must_use]
pub fn read_response(psn: u32, first: bool, last: bool, payload: &[u8]) -> Frame {
    let opcode = match (first, last) {
        (true, true) => Opcode::RC_READ_RESP_ONLY,
        (true, false) => Opcode::RC_READ_RESP_FIRST,
        (false, true) => Opcode::RC_READ_RESP_LAST,
        (false, false) => return Frame::new(Opcode::RC_READ_RESP_MIDDLE, psn, payload),
    };
    aeth(opcode, psn, Syndrome::ACK, 0, payload)
}

/// ATOMIC_ACK.
#[must_use]
pub fn atomic_ack(psn: u32, original: u64) -> Frame {
    let mut frame = aeth(Opcode::RC_ATOMIC_ACK, psn, Syndrome::ACK, 0, &[]);
    frame.head.atomic_ack = Some(original);
    frame
}

// ---- what is heard ---------------------------------------------------------------------

/// A packet that a device sent.
#[derive(Clone, Debug)]
pub struct Heard {
    /// Its headers.
    pub head: Emit,
    /// Its payload.
    pub payload: Vec<u8>,
    /// The datagram as it went out.
    pub datagram: Datagram,
}

impl Heard {
    /// Checks what every packet must be, and takes it apart.
    #[must_use]
    pub fn new(datagram: Datagram) -> Self {
        // proves: roce-1, roce-3, roce-30, roce-31
        assert!([ROCE_PORT, NEIGHBOUR].contains(&datagram.target.port()));
        assert!((0xc000..=0xffff).contains(&datagram.source.port()));
        let flow = FlowTuple {
            source: datagram.source.ip(),
            target: datagram.target.ip(),
            source_port: datagram.source.port(),
            target_port: datagram.target.port(),
        };
        let expected = IcrcCheck::Good {
            ip_id: if datagram.source.is_ipv6() {
                0
            } else {
                datagram.ip_id
            },
        };
        let checked = verify(&IcrcFlow::new(&flow), &datagram.bytes, datagram.ip_id);
        assert_eq!(checked, expected, "the ICRC fits the header of the wire");
        let packet = Packet::parse(&datagram.bytes).unwrap();
        let head = packet.headers();
        let payload = packet.payload().to_vec();
        let end = datagram.bytes.len() - 4;
        let pad = datagram.bytes.get(end - usize::from(packet.pad())..end);
        // proves: roce-13
        assert!(pad.unwrap().iter().all(|byte| *byte == 0), "pad is zero");
        Self {
            head,
            payload,
            datagram,
        }
    }

    /// The opcode's number.
    #[must_use]
    pub const fn op(&self) -> u8 {
        self.head.bth.opcode.0
    }

    /// The PSN.
    #[must_use]
    pub const fn psn(&self) -> u32 {
        self.head.bth.psn.value()
    }

    /// The AETH's syndrome byte, if there is an AETH.
    #[must_use]
    pub fn syndrome(&self) -> Option<u8> {
        self.head.aeth.map(|aeth| aeth.syndrome.to_byte())
    }

    /// The AETH's MSN.
    #[must_use]
    pub fn msn(&self) -> Option<u32> {
        self.head.aeth.map(|aeth| aeth.msn.value())
    }
}

/// Opcode and PSN of each packet.
#[must_use]
pub fn brief(heard: &[Heard]) -> Vec<(u8, u32)> {
    heard.iter().map(|h| (h.op(), h.psn())).collect()
}

/// Opcode, PSN and syndrome byte of each packet; 0xff without an AETH.
#[must_use]
pub fn answers(heard: &[Heard]) -> Vec<(u8, u32, u8)> {
    heard
        .iter()
        .map(|h| (h.op(), h.psn(), h.syndrome().unwrap_or(0xff)))
        .collect()
}
