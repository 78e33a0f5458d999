//! Opening a device as the options say, and asking it what it lost.

use super::DeviceArgs;
use crate::error::Result;
use srdma_net::fault::FaultConfig;
use srdma_verbs::{Context, DeviceConfig, WireMode};
use std::net::IpAddr;

/// Packets that the kernel has dropped because a socket of ours was full.
pub(crate) fn dropped(context: &Context) -> u64 {
    let counters = context.link_counters();
    let full = counters
        .iter()
        .find(|(name, _)| *name == "socket_rx_dropped_full");
    full.map_or(0, |(_, count)| *count)
}

/// Opens the device of one address.
pub(crate) fn open(local: IpAddr, args: &DeviceArgs) -> Result<Context> {
    let mut config = DeviceConfig::new()
        .addr(local)
        .gso(!args.sockets.no_gso)
        .gro(!args.sockets.no_gro);
    if let Some(bytes) = args.sockets.rcvbuf_cap {
        config = config.receive_buffer_cap(bytes);
    }
    if let Some(dialect) = args.dialect {
        config = config.dialect(dialect);
    }
    if args.bridge {
        config = config.wire_mode(WireMode::Bridge);
    }
    let fault = FaultConfig {
        loss: args.loss,
        duplicate: args.duplicate,
        reorder: args.reorder,
        corrupt: args.corrupt,
        seed: args.seed,
        ..FaultConfig::default()
    };
    if !fault.is_off() {
        config = config.fault(fault);
    }
    Ok(config.open()?)
}
