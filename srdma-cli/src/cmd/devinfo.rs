//! `devinfo`: the devices of this machine, their limits and addresses.
//!
//! Each device is opened for a moment, since only then is it known what it can do. One that is in
//! use, or cannot be opened, is shown with the reason.

use crate::error::{CliError, Result, chain};
use crate::out;
use serde::Serialize;
use srdma_verbs::{DeviceInfo, LinkState};
use std::net::IpAddr;

/// `devinfo`.
#[derive(clap::Args, Debug, Clone)]
pub(crate) struct DevinfoArgs {
    /// Only this device: a name, an interface, or an address
    #[arg(value_name = "DEVICE")]
    device: Option<String>,
    /// One JSON object a device
    #[arg(long)]
    json: bool,
}

/// One device.
#[derive(Debug, Serialize)]
struct Device {
    name: String,
    addrs: Vec<IpAddr>,
    #[serde(flatten)]
    open: Option<Open>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// What an open device says.
#[derive(Debug, Serialize)]
struct Open {
    guid: String,
    state: &'static str,
    mtu: u16,
    max_mtu: u16,
    gids: Vec<String>,
    limits: Vec<(&'static str, u64)>,
}

/// Runs the command.
pub(crate) fn run(args: &DevinfoArgs) -> Result<()> {
    let found = srdma_verbs::devices()?;
    let asked = |device: &DeviceInfo| args.device.as_ref().is_none_or(|name| *name == device.name);
    let mut devices: Vec<_> = found
        .into_iter()
        .filter(asked)
        .map(|info| (info.name, info.addrs))
        .collect();
    if devices.is_empty()
        && let Some(name) = &args.device
    {
        // An address is a device too.
        devices.push((name.clone(), name.parse().into_iter().collect()));
    }
    let mut opened = 0;
    for (name, addrs) in devices {
        let device = match inspect(&name) {
            Ok(open) => Device {
                name,
                addrs,
                open: Some(open),
                error: None,
            },
            // Who asks for one device wants to know what is wrong with it, and nothing else.
            Err(error) if args.device.is_some() && !args.json => return Err(error),
            Err(error) => Device {
                name,
                addrs,
                open: None,
                error: Some(chain(&error)),
            },
        };
        opened += usize::from(device.open.is_some());
        if args.json {
            let line = serde_json::to_string(&device);
            out::line(line.map_err(|_| CliError::garbled("program", "json"))?);
        } else {
            print(&device);
        }
    }
    if opened == 0 {
        return Err(CliError::Usage(
            "no device can be opened; see `srdma-cli doctor`".to_owned(),
        ));
    }
    Ok(())
}

/// Opens the device and asks.
fn inspect(name: &str) -> Result<Open> {
    let context = srdma_verbs::open(name)?;
    let port = context.query_port(1)?;
    let attr = context.query_device();
    let mut gids = Vec::new();
    for index in 0..port.gid_tbl_len {
        let gid = context.query_gid(1, index)?;
        if !gid.is_zero() {
            gids.push(gid.to_string());
        }
    }
    Ok(Open {
        guid: format!("{:#018x}", attr.guid),
        state: match port.state {
            LinkState::Active => "active",
            LinkState::Down => "down",
            _ => "other",
        },
        mtu: port.active_mtu.bytes(),
        max_mtu: port.max_mtu.bytes(),
        gids,
        limits: vec![
            ("max_qp", attr.max_qp.into()),
            ("max_qp_wr", attr.max_qp_wr.into()),
            ("max_sge", attr.max_sge.into()),
            ("max_inline", attr.max_inline.into()),
            ("max_qp_rd_atomic", attr.max_qp_rd_atomic.into()),
            ("max_cq", attr.max_cq.into()),
            ("max_cqe", attr.max_cqe.into()),
            ("max_mr", attr.max_mr.into()),
            ("max_mr_size", attr.max_mr_size),
            ("max_msg_size", port.max_msg_size.into()),
            ("max_pd", attr.max_pd.into()),
            ("max_ah", attr.max_ah.into()),
            ("max_srq", attr.max_srq.into()),
            ("max_srq_wr", attr.max_srq_wr.into()),
            ("max_mcast_grp", attr.max_mcast_grp.into()),
            ("comp_vectors", attr.comp_vectors.into()),
        ],
    })
}

fn print(device: &Device) {
    out::line(&device.name);
    let Some(open) = &device.open else {
        let addrs: Vec<_> = device.addrs.iter().map(ToString::to_string).collect();
        out::line(format_args!("  addresses         {}", addrs.join(", ")));
        let error = device.error.as_deref().unwrap_or("unknown");
        out::line(format_args!("  cannot be opened  {error}"));
        return;
    };
    out::line(format_args!("  guid              {}", open.guid));
    out::line(format_args!(
        "  port 1            {}, path MTU up to {}",
        open.state, open.mtu
    ));
    for (index, gid) in open.gids.iter().enumerate() {
        out::line(format_args!("  gid {index:<3}           {gid}"));
    }
    for (name, value) in &open.limits {
        out::line(format_args!("  {name:17} {value}"));
    }
}
