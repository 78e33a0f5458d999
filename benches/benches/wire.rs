//! What a packet costs before the transport sees it: parsing, ICRC, the identification solver.
//!
//! Prints nanoseconds, the best of several rounds: `cargo bench -p srdma-benches --bench wire`.
//! `crc32fast` alone over the same bytes stands beside each check as its floor.

use std::hint::black_box;
use std::net::Ipv4Addr;
use std::time::Instant;

use srdma_core::num::{Psn, Qpn, Rkey};
use srdma_core::wire::icrc::{IcrcFlow, resign, verify};
use srdma_core::wire::{Bth, Emit, FlowTuple, Opcode, Packet, Reth};

const CALLS: u32 = 200_000;
const ROUNDS: u32 = 7;

/// Prints what one call of `f` takes.
fn time(what: &str, mut f: impl FnMut()) {
    let mut best = f64::MAX;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        for _ in 0..CALLS {
            f();
        }
        best = best.min(start.elapsed().as_secs_f64());
    }
    println!("{what:44} {:8.1} ns", best * 1e9 / f64::from(CALLS));
}

/// A WRITE of `len` bytes as segment `ip_id` of a segmented send.
fn write(sums: &IcrcFlow, len: u32, ip_id: u16) -> Vec<u8> {
    let reth = Reth {
        addr: 0x7f00_0000_0000,
        rkey: Rkey(0x0102),
        len,
    };
    let bth = Bth::new(Opcode::RC_WRITE_ONLY, Qpn::new(0x12), Psn::new(7));
    let emit = Emit {
        reth: Some(reth),
        ..Emit::new(bth)
    };
    let mut bytes = vec![0; emit.len()];
    emit.write(&mut bytes);
    bytes.extend((0..len).map(|i| i.to_le_bytes()[0]));
    let (bth, rest) = bytes.split_first_chunk().unwrap_or((&[0; 12], &[]));
    let mut icrc = sums.start(bytes.len() + 4, ip_id, bth);
    icrc.bytes(rest);
    bytes.extend(icrc.finish());
    bytes
}

/// Headers and the parts of a signature.
fn sending(tuple: &FlowTuple, sums: &IcrcFlow) {
    time("IcrcFlow::new", || {
        black_box(IcrcFlow::new(black_box(tuple)));
    });
    let mut out = [0; 64];
    for opcode in [Opcode::RC_SEND_MIDDLE, Opcode::RC_WRITE_FIRST] {
        let reth = Reth {
            addr: 1,
            rkey: Rkey(2),
            len: 3,
        };
        let reth = (opcode == Opcode::RC_WRITE_FIRST).then_some(reth);
        let emit = Emit {
            reth,
            ..Emit::new(Bth::new(opcode, Qpn::new(5), Psn::new(6)))
        };
        time(&format!("{opcode}: write headers"), || {
            black_box(black_box(&emit).write(&mut out));
        });
        let headers = out.get(..emit.len()).unwrap_or_default();
        time(&format!("{opcode}: start, headers, finish"), || {
            let (bth, ext) = headers.split_first_chunk().unwrap_or((&[0; 12], &[]));
            let mut icrc = sums.start(black_box(4112), 3, black_box(bth));
            icrc.bytes(black_box(ext));
            black_box(icrc.finish());
        });
    }
    time("resign", || {
        black_box(resign(
            black_box([1; 4]),
            black_box(4112),
            black_box(3),
            black_box(4),
        ));
    });
}

/// Parsing and checking.
fn receiving(sums: &IcrcFlow) {
    for len in [0, 64, 256, 1024, 4096] {
        let datagram = write(sums, len, 3);
        time(&format!("{len} B: parse"), || {
            black_box(Packet::parse(black_box(&datagram)).is_ok());
        });
        time(&format!("{len} B: crc32fast alone"), || {
            black_box(crc32fast::hash(black_box(&datagram)));
        });
        time(
            &format!("{len} B: verify, identification as guessed"),
            || {
                black_box(verify(sums, black_box(&datagram), 3));
            },
        );
        time(&format!("{len} B: verify, identification solved"), || {
            black_box(verify(sums, black_box(&datagram), 0));
        });
    }
}

fn main() {
    let (source, target) = (Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2));
    let tuple = FlowTuple::to_roce(source.into(), 0xc123, target.into());
    let sums = IcrcFlow::new(&tuple);
    sending(&tuple, &sums);
    receiving(&sums);
}
