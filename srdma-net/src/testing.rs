//! Helpers of this crate's tests: loopback addresses of our own, and batches from bytes.

use crate::offload::OffloadConfig;
use crate::rx::RxRing;
use crate::socket::{End, ROCE_PORT, RoceSocket, SocketConfig};
use srdma_core::mem::host::{HostBuf, HostRange};
use srdma_core::rx::RxMeta;
use srdma_core::tx::{Run, Seg, TxBatch, TxToken};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU32, Ordering};

/// A loopback address that no other test uses, in this process or another.
pub(crate) fn address() -> IpAddr {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    let next = NEXT.fetch_add(1, Ordering::Relaxed) & 0x3f;
    let low = (std::process::id() << 6 | next) & 0x3f_ffff;
    Ipv4Addr::from(0x7f40_0000 | low).into()
}

pub(crate) fn config(gso: bool, gro: bool) -> SocketConfig {
    SocketConfig {
        offload: OffloadConfig { gso, gro },
        ..SocketConfig::default()
    }
}

/// A socket on an address of its own.
pub(crate) fn open(config: &SocketConfig) -> RoceSocket {
    RoceSocket::open(address(), config).unwrap()
}

/// Where peers send to.
pub(crate) fn door(socket: &RoceSocket) -> &End {
    socket.ends().last().unwrap()
}

/// Runs and their bytes, to be lent out as a batch.
pub(crate) struct Script {
    pub(crate) runs: Vec<Run>,
    ranges: Vec<HostRange>,
}

impl Script {
    pub(crate) const fn new() -> Self {
        Self {
            runs: Vec::new(),
            ranges: Vec::new(),
        }
    }

    /// Adds a run of `lens.len()` packets; all but the last are of one length. Packet `k` is filled
    /// with `first + k`. Its bytes are cut into gather entries at odd places.
    pub(crate) fn run(&mut self, from: IpAddr, to: IpAddr, first: u8, lens: &[usize]) -> &mut Run {
        let mut bytes = Vec::new();
        for (k, len) in lens.iter().enumerate() {
            let fill = first.wrapping_add(u8::try_from(k & 0xff).unwrap());
            bytes.resize(bytes.len() + len, fill);
        }
        let memory = HostBuf::new(bytes.len()).unwrap();
        memory.range().write(0, &bytes).unwrap();
        let start = u32::try_from(self.ranges.len()).unwrap();
        let mut at = 0;
        let step = 7 + bytes.len() / 5;
        while at < bytes.len() {
            let len = step.min(bytes.len() - at);
            self.ranges.push(memory.range().slice(at, len).unwrap());
            at += len;
        }
        self.runs.push(Run {
            target: SocketAddr::new(to, ROCE_PORT),
            local: from,
            tclass: 0,
            hop_limit: 64,
            segment_len: u16::try_from(lens[0].min(65_535)).unwrap(),
            packets: u16::try_from(lens.len()).unwrap(),
            bytes: u32::try_from(bytes.len()).unwrap(),
            unreliable: false,
            segs: start..u32::try_from(self.ranges.len()).unwrap(),
        });
        self.runs.last_mut().unwrap()
    }

    /// Lends everything out as one batch.
    pub(crate) fn lend<T>(&self, use_it: impl FnOnce(&TxBatch<'_>) -> T) -> T {
        let segs: Vec<Seg<'_>> = self
            .ranges
            .iter()
            .map(|range| range.span(0, range.len()).unwrap().seg())
            .collect();
        use_it(&TxBatch {
            runs: &self.runs,
            segs: &segs,
            token: TxToken(1),
        })
    }
}

/// Everything that has arrived, buffer by buffer.
pub(crate) fn drain(ring: &mut RxRing, socket: &RoceSocket) -> Vec<(RxMeta, Vec<u8>)> {
    let mut all = Vec::new();
    for end in socket.ends() {
        while ring.receive(end) > 0 {
            all.extend(
                ring.datagrams()
                    .map(|(meta, bytes)| (*meta, bytes.to_vec())),
            );
        }
    }
    all
}

/// All packets, with merged buffers taken apart.
pub(crate) fn packets(buffers: &[(RxMeta, Vec<u8>)]) -> Vec<Vec<u8>> {
    buffers
        .iter()
        .flat_map(|(meta, bytes)| bytes.chunks(meta.stride).map(<[u8]>::to_vec))
        .collect()
}
