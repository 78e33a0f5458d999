//! Packets that leave, recorded: what they are before the kernel has them, that they left after.

use crate::engine::link::Link;
use crate::sys::gather;
use crate::tx::{Sent, part, segs};
use bytes::{Bytes, BytesMut};
use srdma_core::time::Instant;
use srdma_core::trace::{self as probes, Kind, PacketNote, PacketPath};
use srdma_core::tx::{Run, TxBatch};
use std::net::SocketAddr;

/// Sends a batch and records its packets, with the time before: nobody receives earlier.
#[cold]
pub(crate) fn send(link: &mut Link, now: Instant, batch: &TxBatch<'_>) -> Sent {
    let time = probes::time();
    let runs: Vec<_> = batch
        .runs
        .iter()
        .map(|run| gather_run(batch, run))
        .collect();
    let origins: Vec<_> = batch
        .runs
        .iter()
        .map(|run| link.carrier.origin(run.local, run.target.ip()))
        .collect();
    let sent = link.send(now, batch);
    if link.records_itself() {
        return sent;
    }
    let each = batch.runs.iter().zip(&runs).zip(origins).take(sent.runs);
    for ((run, bytes), (port, counts)) in each {
        for at in 0..run.packets {
            let (start, len) = part(run, at);
            let packet = bytes.get(start..start + len).unwrap_or_default();
            let path = path(run, port, if counts { at } else { 0 });
            probes::packet(Kind::OUT, Some(time), &path, packet);
        }
    }
    let left = batch.runs.get(sent.runs..).unwrap_or_default();
    let unsent: u64 = left.iter().map(|run| u64::from(run.packets)).sum();
    if unsent != 0 {
        probes::object(Kind::UNSENT, u32::try_from(unsent).unwrap_or(u32::MAX), 0);
    }
    sent
}

/// The headers of a packet of `run` that leaves from `port`.
pub(crate) fn path(run: &Run, port: u16, ip_id: u16) -> PacketPath {
    PacketPath {
        source: SocketAddr::new(run.local, port),
        target: run.target,
        tclass: run.tclass,
        hop_limit: run.hop_limit,
        ip_id,
        note: PacketNote::NONE,
    }
}

/// The bytes of a run.
pub(crate) fn gather_run(batch: &TxBatch<'_>, run: &Run) -> Bytes {
    let mut bytes = BytesMut::new();
    gather::append(&mut bytes, segs(batch, run));
    bytes.freeze()
}
