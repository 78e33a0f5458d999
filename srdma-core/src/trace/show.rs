//! A record for readers: fields by name, with the bits they stand in, and the raw words.
//!
//! ```text
//! wqe  qp=0x012001 index=3 op[37:32]=SEND signaled[62:62]=true … | 0x… 0x… 0x… 0xc000…
//! ```
//!
//! One list of fields serves text and JSON, so the two cannot differ.

use super::record::{Kind, Record, doorbell_of};
use super::{show_dialect, show_packet};
use crate::hw::aeqe::AeqeWord;
use crate::hw::ceqe::CeqeWord;
use crate::hw::cqe::{CqeExtHeader, CqeHeader, CqeLen, CqePeer};
use crate::hw::cqp::{CqpHeader, CqpValue};
use crate::hw::rwqe::RqHeader;
use crate::hw::sge::{FragWord, sge_from_words};
use crate::hw::shadow::CqArmWord;
use crate::hw::wqe::{HEADER, QUANTUM_WORDS, UdWord};
use crate::hw::{Aeqe, Ceqe, CqpCmd, FlushCode, Major, SqHeader, SqOp};
use crate::num::Qpn;
use crate::obj::cq::CCQ;
use core::fmt::{Debug, Write};

/// One field of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its name, with its bits where it is a part of a word.
    pub name: String,
    /// Its value.
    pub value: String,
}

/// A record, decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// What it is.
    pub what: &'static str,
    /// Its fields.
    pub fields: Vec<Field>,
    /// The words that the fields were read from.
    pub words: Vec<u64>,
    /// Bytes of a packet, cut to what headers take.
    pub bytes: Vec<u8>,
}

impl Shown {
    pub(super) fn new(what: &'static str) -> Self {
        let (fields, words, bytes) = (Vec::new(), Vec::new(), Vec::new());
        Self {
            what,
            fields,
            words,
            bytes,
        }
    }

    #[allow(
        clippy::needless_pass_by_value,
        reason = "callers have just made the value"
    )]
    pub(super) fn with(mut self, name: &str, value: impl ToString) -> Self {
        self.add(name, value);
        self
    }

    #[allow(
        clippy::needless_pass_by_value,
        reason = "callers have just made the value"
    )]
    pub(super) fn add(&mut self, name: &str, value: impl ToString) {
        let (name, value) = (name.to_owned(), value.to_string());
        self.fields.push(Field { name, value });
    }

    /// A field of a word; those that are 0 or off say nothing.
    pub(super) fn bits(&mut self, name: &str, [hi, lo]: [u32; 2], value: &dyn Debug) {
        let value = format!("{value:?}");
        let value = bare(&value);
        if !matches!(value, "0" | "false") {
            self.add(&format!("{name}[{hi}:{lo}]"), value);
        }
    }

    pub(super) fn hex(&mut self, name: &str, value: u64) {
        self.add(name, format_args!("{value:#x}"));
    }

    /// The field called `name`, its bits aside.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&str> {
        let is = |field: &&Field| field.name.split('[').next() == Some(name);
        self.fields.iter().find(is).map(|field| &*field.value)
    }

    /// One line of text, without time.
    #[must_use]
    pub fn text(&self) -> String {
        let mut line = format!("{:<9}", self.what);
        for Field { name, value } in &self.fields {
            let _ = write!(line, " {name}={value}");
        }
        if !self.words.is_empty() {
            line.push_str(" |");
        }
        for word in &self.words {
            let _ = write!(line, " {word:#018x}");
        }
        if !self.bytes.is_empty() {
            line.push_str(" | ");
            line.push_str(&self.byte_text());
        }
        line
    }

    /// The bytes in hexadecimal digits.
    #[must_use]
    pub fn byte_text(&self) -> String {
        let mut text = String::new();
        for byte in &self.bytes {
            let _ = write!(text, "{byte:02x}");
        }
        text
    }
}

/// The number in `Qpn(0x12)` and its kin, whose name the field has already.
fn bare(value: &str) -> &str {
    let inner = value
        .strip_suffix(')')
        .and_then(|value| value.split_once('('));
    match inner {
        Some((_, number)) if number.starts_with(|c: char| c.is_ascii_digit()) => number,
        _ => value,
    }
}

/// Decodes a record.
#[must_use]
pub fn show(record: &Record<'_>) -> Shown {
    match record.kind {
        Kind::DEVICE => Shown::new("device").with("name", text_of(record)),
        Kind::DOORBELL => doorbell("doorbell", record),
        Kind::TAKEN => doorbell("taken", record),
        Kind::WQE => send(record),
        Kind::RQE => receive("rqe", "qp", record),
        Kind::SRQE => receive("srqe", "srq", record),
        Kind::COMMAND => command(record),
        Kind::CQE => completion(record),
        Kind::CEQE => ceqe(record),
        Kind::AEQE => aeqe(record),
        Kind::ARM => arm(record),
        Kind::MLX5_CQE => show_dialect::mlx5_cqe(record),
        Kind::MLX5_EQE => show_dialect::mlx5_eqe("eqe", 2, record),
        Kind::MLX5_ASYNC => show_dialect::mlx5_eqe("async-eqe", 1, record),
        Kind::MLX5_ARM => show_dialect::mlx5_arm(record),
        Kind::HNS_CQE => show_dialect::hns_cqe(record),
        Kind::HNS_CEQE => show_dialect::hns_ceqe(record),
        Kind::HNS_AEQE => show_dialect::hns_aeqe(record),
        Kind::HNS_ARM => show_dialect::hns_arm(record),
        Kind::INTERRUPT => Shown::new("interrupt").with("vector", record.word(0)),
        Kind::IN => show_packet::show("in", record),
        Kind::OUT => show_packet::show("out", record),
        Kind::FAULT_IN => show_packet::show("fault-in", record),
        Kind::FAULT_OUT => show_packet::show("fault-out", record),
        Kind::EXCEPTION => Shown::new("exception").with("to", text_of(record)),
        Kind::DROPPED => Shown::new("dropped").with("cause", text_of(record)),
        Kind::INJECTED => Shown::new("injected").with("fault", text_of(record)),
        Kind::EVENT => Shown::new("event").with("cq", record.word(0)),
        Kind::CEQE_READ => Shown::new("ceqe-read").with("cq", record.word(0)),
        Kind::ACK => counted("ack", "cq", record),
        Kind::ASYNC => Shown::new("async").with("event", text_of(record)),
        Kind::ASYNC_ACK => counted("async-ack", "of", record),
        Kind::UNSENT => Shown::new("unsent").with("packets", record.word(0)),
        Kind::LOST => Shown::new("lost").with("records", record.word(0)),
        other => Shown::new("unknown").with("kind", other.0),
    }
}

fn text_of(record: &Record<'_>) -> String {
    String::from_utf8_lossy(&record.bytes).into_owned()
}

fn counted(what: &'static str, name: &str, record: &Record<'_>) -> Shown {
    Shown::new(what)
        .with(name, record.word(0))
        .with("count", record.word(1))
}

fn doorbell(what: &'static str, record: &Record<'_>) -> Shown {
    let queue = match doorbell_of(record.word(0), record.word(1)) {
        Some(doorbell) => format!("{doorbell:?}"),
        None => "unknown".to_owned(),
    };
    Shown::new(what).with("queue", queue)
}

fn qpn(number: u64) -> String {
    Qpn::new(u32::try_from(number).unwrap_or(0)).to_string()
}

// ---- work queue entries --------------------------------------------------------------------

fn send(record: &Record<'_>) -> Shown {
    let mut shown = Shown::new("wqe")
        .with("qp", qpn(record.word(0)))
        .with("index", record.word(1));
    let words = record.rest(2);
    shown.words = words.to_vec();
    let Some(&bits) = words.get(HEADER) else {
        return shown;
    };
    let header = SqHeader::from_bits(bits);
    let (op, word0) = (header.op(), words.first().copied().unwrap_or(0));
    let bind = op == SqOp::BIND_MW;
    let datagram = op.is_send() && words.get(2).is_some_and(|word| *word != 0);
    header.each_field(&mut |name, range, overlay, value| {
        let meant = match name {
            "ah" => datagram,
            "key" => !datagram && op != SqOp::NOP,
            "inline_len" => header.inline(),
            _ => bind || !overlay,
        };
        if meant {
            shown.bits(name, range, value);
        }
    });
    if datagram {
        let word = words.get(2).copied().unwrap_or(0);
        UdWord::from_bits(word).each_field(&mut |name, range, _, value| {
            shown.bits(name, range, value);
        });
    } else if op.is_write() || matches!(op, SqOp::READ | SqOp::FETCH_ADD | SqOp::COMPARE_SWAP) {
        shown.hex("remote_addr", words.get(2).copied().unwrap_or(0));
    }
    if header.imm() {
        shown.hex("immediate", word0 & 0xffff_ffff);
    }
    if !header.inline() && !bind && op != SqOp::NOP && op != SqOp::LOCAL_INVALIDATE {
        fragments(&mut shown, words, !header.imm(), header.more_frags());
    }
    shown
}

fn receive(what: &'static str, owner: &str, record: &Record<'_>) -> Shown {
    let number = record.word(0);
    let owner_is = if owner == "qp" {
        qpn(number)
    } else {
        number.to_string()
    };
    let mut shown = Shown::new(what)
        .with(owner, owner_is)
        .with("index", record.word(1));
    let words = record.rest(2);
    shown.words = words.to_vec();
    let header = RqHeader::from_bits(words.get(HEADER).copied().unwrap_or(0));
    header.each_field(&mut |name, range, _, value| shown.bits(name, range, value));
    if owner == "srq" {
        shown.hex("wr_id", words.get(2).copied().unwrap_or(0));
    }
    fragments(&mut shown, words, true, header.more_frags());
    shown
}

/// Local memory: slot 0 in the first quantum if it is one, the others behind.
fn fragments(shown: &mut Shown, words: &[u64], first: bool, more: u8) {
    let slots = (0..=usize::from(more)).filter(|slot| first || *slot > 0);
    for slot in slots {
        let at = if slot == 0 {
            0
        } else {
            QUANTUM_WORDS + 2 * (slot - 1)
        };
        let (Some(&addr), Some(&second)) = (words.get(at), words.get(at + 1)) else {
            return;
        };
        if sge_from_words(addr, second).is_some() {
            let word = FragWord::from_bits(second);
            let place = format!("{addr:#x}+{} lkey {}", word.bytes(), word.lkey());
            shown.add(&format!("sge{slot}"), format_args!("\"{place}\""));
        }
    }
}

fn command(record: &Record<'_>) -> Shown {
    let mut shown = Shown::new("command").with("index", record.word(0));
    let words = record.rest(1);
    shown.words = words.to_vec();
    let header = CqpHeader::from_bits(words.get(HEADER).copied().unwrap_or(0));
    header.each_field(&mut |name, range, _, value| shown.bits(name, range, value));
    if let Some(words) = words.first_chunk() {
        match CqpCmd::decode(words) {
            Ok(cmd) => shown.add("command", format_args!("\"{cmd:?}\"")),
            Err(fault) => shown.add("fault", format_args!("\"{fault}\"")),
        }
    }
    shown
}

// ---- completions and events ----------------------------------------------------------------

fn completion(record: &Record<'_>) -> Shown {
    let mut shown = Shown::new("cqe")
        .with("cq", record.word(0))
        .with("slot", record.word(1));
    let words = record.rest(2);
    shown.words = words.to_vec();
    let Some(&[len, context, peer, header]) = words.first_chunk() else {
        return shown;
    };
    let head = CqeHeader::from_bits(header);
    CqeLen::from_bits(len).each_field(&mut |name, range, _, value| {
        shown.bits(name, range, value);
    });
    shown.hex(if head.srq() { "wr_id" } else { "context" }, context);
    head.each_field(&mut |name, range, _, value| shown.bits(name, range, value));
    if record.word(0) == u64::from(CCQ.0) {
        let value = CqpValue::from_bits(peer);
        value.each_field(&mut |name, range, _, value| shown.bits(name, range, value));
    } else {
        let peer = CqePeer::from_bits(peer);
        peer.each_field(&mut |name, range, _, value| shown.bits(name, range, value));
        if head.error() && head.major() == Major::FLUSH {
            shown.add("flush", format_args!("{:?}", FlushCode(head.minor())));
        } else if head.sq() {
            shown.add("operation", format_args!("{:?}", SqOp(head.op())));
        }
    }
    if let Some(&[imm, context, third, header]) = words.get(4..).and_then(<[u64]>::first_chunk) {
        let ext = CqeExtHeader::from_bits(header);
        ext.each_field(&mut |name, range, _, value| shown.bits(name, range, value));
        if ext.imm_valid() {
            shown.hex("immediate", imm);
        }
        if head.srq() {
            shown.hex("context", context);
        }
        if ext.timestamp() {
            shown.add("timestamp_ns", third);
        }
    }
    shown
}

fn ceqe(record: &Record<'_>) -> Shown {
    let mut shown = Shown::new("ceqe")
        .with("ceq", record.word(0))
        .with("index", record.word(1));
    let word = record.word(2);
    shown.words.push(word);
    shown.hex("cookie", Ceqe::decode(word).cookie);
    CeqeWord::from_bits(word).each_field(&mut |name, range, _, value| {
        if name != "half_cookie" {
            shown.bits(name, range, value);
        }
    });
    shown
}

fn aeqe(record: &Record<'_>) -> Shown {
    let mut shown = Shown::new("aeqe").with("index", record.word(0));
    let words = [record.word(1), record.word(2)];
    shown.words = words.to_vec();
    let [_, word] = words;
    let event = Aeqe::decode(words);
    AeqeWord::from_bits(word).each_field(&mut |name, range, _, value| {
        shown.bits(name, range, value);
    });
    shown.add("id", event.id);
    shown.hex(
        if event.is_cq() { "cookie" } else { "context" },
        event.context,
    );
    shown
}

fn arm(record: &Record<'_>) -> Shown {
    let mut shown = Shown::new("arm").with("cq", record.word(0));
    let word = record.word(1);
    shown.words.push(word);
    CqArmWord::from_bits(word).each_field(&mut |name, range, _, value| {
        shown.bits(name, range, value);
    });
    shown
}
