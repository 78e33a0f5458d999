//! A packet for readers: what its headers say, one field each.

use super::record::Record;
use super::show::Shown;
use crate::wire::{Packet, Pretty};

/// Bytes that are shown: more than the longest headers; a capture has all of them.
const SHOWN_BYTES: usize = 64;

pub(super) fn show(what: &'static str, record: &Record<'_>) -> Shown {
    let mut shown = Shown::new(what);
    if let Some(path) = record.path() {
        shown.add("from", path.source);
        shown.add("to", path.target);
        shown.add("tos", format_args!("{:#04x}", path.tclass));
        shown.add("ttl", path.hop_limit);
        if path.source.is_ipv4() {
            shown.add("ip_id", path.ip_id);
        }
        let faults = path.note.faults();
        if !faults.is_empty() {
            shown.add("fault", format_args!("\"{faults}\""));
        }
        if path.note.bad_icrc() {
            shown.add("icrc_is", "wrong");
        }
    }
    shown.add("packet", format_args!("\"{}\"", Pretty(&record.bytes)));
    if let Ok(packet) = Packet::parse(&record.bytes) {
        headers(&mut shown, &packet);
    }
    shown.bytes = record.bytes.iter().take(SHOWN_BYTES).copied().collect();
    shown
}

fn headers(shown: &mut Shown, packet: &Packet<'_>) {
    let bth = packet.bth();
    shown.add("opcode", format_args!("{:#04x}", bth.opcode.0));
    for (name, set) in [
        ("se", bth.solicited),
        ("migreq", bth.migrated),
        ("becn", bth.becn),
        ("fecn", bth.fecn),
        ("ackreq", bth.ack_req),
    ] {
        if set {
            shown.add(name, true);
        }
    }
    shown.add("pad", bth.pad);
    shown.add("pkey", bth.pkey);
    shown.add("dest", bth.dest);
    shown.add("psn", bth.psn);
    if let Some(deth) = packet.deth() {
        shown.add("qkey", deth.qkey);
        shown.add("src_qp", deth.source);
    }
    if let Some(reth) = packet.reth() {
        shown.add("va", format_args!("{:#x}", reth.addr));
        shown.add("rkey", reth.rkey);
        shown.add("dma_len", reth.len);
    }
    if let Some(atomic) = packet.atomic_eth() {
        shown.add("va", format_args!("{:#x}", atomic.addr));
        shown.add("rkey", atomic.rkey);
        shown.add("swap_add", format_args!("{:#x}", atomic.swap_add));
        shown.add("compare", format_args!("{:#x}", atomic.compare));
    }
    if let Some(aeth) = packet.aeth() {
        shown.add("syndrome", format_args!("{:#04x}", aeth.syndrome.to_byte()));
        shown.add("msn", aeth.msn);
    }
    if let Some(rider) = packet.rider() {
        let syndrome = rider.aeth.syndrome.to_byte();
        shown.add("along_psn", format_args!("{:#08x}", rider.psn.value()));
        shown.add("along_syndrome", format_args!("{syndrome:#04x}"));
        shown.add("along_msn", rider.aeth.msn);
    }
    if let Some(original) = packet.atomic_ack() {
        shown.add("original", format_args!("{original:#x}"));
    }
    if let Some(imm) = packet.imm() {
        shown.add("imm", format_args!("{:#010x}", u32::from_be_bytes(imm.0)));
    }
    if let Some(rkey) = packet.ieth() {
        shown.add("inv_rkey", rkey);
    }
    shown.add("payload", packet.payload().len());
    shown.add("icrc", format_args!("{:#010x}", packet.icrc()));
}
