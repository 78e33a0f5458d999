//! The checks of `doctor`, one function each.

use super::Finding;
use super::host;
use srdma_net::bare::{BareConfig, BareSocket};
use srdma_net::offload::{GSO_PACKETS, GsoLimit};
use srdma_net::selftest::sent_header;
use srdma_net::share;
use srdma_net::socket::ROCE_PORT;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

/// A receive buffer that never slows anything down.
const GOOD_RMEM: u64 = 8 << 20;
/// Where nothing receives: the discard port.
const DISCARD: u16 = 9;

const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Runs all checks, in the order of the report.
pub(super) fn all() -> Vec<Finding> {
    let mut findings = vec![
        cpus(),
        gso(),
        gro(),
        rmem_max(),
        rmem_default(),
        wmem(),
        headers(),
    ];
    findings.push(bridge());
    findings.push(ipv6());
    findings.extend(host::addresses().into_iter().map(port));
    findings
}

fn cpus() -> Finding {
    let count = std::thread::available_parallelism().map_or(1, usize::from);
    match count {
        1 => Finding::warn(
            "cpus",
            "one CPU: two programs that poll take turns on it",
            "use events instead of polling (`perf client HOST --events`), or more CPUs",
        ),
        2 => Finding::ok("cpus", "2 CPUs: two programs that poll use all of them"),
        count => Finding::ok("cpus", format!("{count} CPUs")),
    }
}

fn gso() -> Finding {
    const OLD: &str = "use Linux 4.18 or newer, outside of sandboxes that filter UDP options";
    match GsoLimit::probe(LOCALHOST) {
        Ok(limit) if limit.packets >= GSO_PACKETS => {
            Finding::ok("gso", format!("{} packets in one send", limit.packets))
        }
        Ok(limit) if limit.packets > 1 => Finding::warn(
            "gso",
            format!("{} packets in one send", limit.packets),
            "fast enough for path MTUs from 1024 up; Linux 6.9 takes 128",
        ),
        Ok(_) => Finding::warn(
            "gso",
            "none: every packet costs a system call of its own",
            OLD,
        ),
        Err(error) => Finding::fail("gso", error.to_string(), "let this user open UDP sockets"),
    }
}

/// Sends three segments to a socket that merges, and looks whether they come in one piece.
fn gro() -> Finding {
    const OLD: &str = "use Linux 5.0 or newer";
    let merge = || -> Result<usize, Box<dyn std::error::Error>> {
        let limit = Some(Duration::from_secs(1));
        let config = BareConfig {
            gro: true,
            blocking: limit,
            ..BareConfig::default()
        };
        let receiver = BareSocket::open(LOCALHOST, &config)?;
        let config = BareConfig {
            segment: Some(100),
            ..BareConfig::default()
        };
        let sender = BareSocket::open(LOCALHOST, &config)?;
        sender.send(&[0; 300], receiver.local())?;
        let got = receiver.receive(&mut [0; 1024])?;
        Ok(got.map_or(0, |(len, _)| len))
    };
    match merge() {
        Ok(300) => Finding::ok("gro", "received packets are merged"),
        Ok(_) => Finding::warn("gro", "none: every packet costs a receive of its own", OLD),
        Err(error) => Finding::warn("gro", format!("not available: {error}"), OLD),
    }
}

fn rmem_max() -> Finding {
    let granted = BareSocket::open(LOCALHOST, &BareConfig::default());
    let granted = granted.map_or(0, |socket| socket.rx_buffer());
    let setting = host::core_setting("rmem_max");
    let max = setting.map_or_else(|| "unknown".to_owned(), |max| max.to_string());
    let found = format!("net.core.rmem_max is {max}; our sockets get {granted} bytes");
    if u64::from(granted) >= GOOD_RMEM {
        return Finding::ok("rmem_max", found);
    }
    let advice = format!(
        "sysctl -w net.core.rmem_max={GOOD_RMEM} lets more be in flight towards this machine: \
         more bandwidth with several peers, nothing lost in bursts"
    );
    Finding::warn("rmem_max", found, advice)
}

fn rmem_default() -> Finding {
    match host::core_setting("rmem_default") {
        Some(value) if value < 212_992 => Finding::warn(
            "rmem",
            format!("net.core.rmem_default is {value}, less than distributions have"),
            "sysctl -w net.core.rmem_default=212992 (our sockets ask for more by themselves)",
        ),
        Some(value) => Finding::ok("rmem", format!("net.core.rmem_default is {value}")),
        None => Finding::ok("rmem", "net.core.rmem_default cannot be read here"),
    }
}

fn wmem() -> Finding {
    match host::core_setting("wmem_max") {
        Some(value) if value < 212_992 => Finding::warn(
            "wmem_max",
            format!("net.core.wmem_max is {value}"),
            "sysctl -w net.core.wmem_max=4194304: a short send buffer breaks batches up",
        ),
        Some(value) => Finding::ok("wmem_max", format!("net.core.wmem_max is {value}")),
        None => Finding::ok("wmem_max", "net.core.wmem_max cannot be read here"),
    }
}

/// Can devices of this user share memory, for those who ask for it?
fn bridge() -> Finding {
    match share::check_bridge() {
        Ok(()) => Finding::ok(
            "bridge",
            "devices of this user can share memory (`--bridge`)",
        ),
        Err(error) => Finding::warn(
            "bridge",
            error.to_string(),
            "`--bridge` makes no difference here: packets go through sockets",
        ),
    }
}

/// Do packets leave with the IP header that the checksum was computed for?
fn headers() -> Finding {
    const NIC: &str = "peers of our own work all the same; hardware NICs and rdma_rxe may drop \
                       what we send";
    match sent_header(LOCALHOST, SocketAddr::new(LOCALHOST, DISCARD)) {
        Ok(Some(header)) if header.fits_icrc() => Finding::ok(
            "ip header",
            "packets leave with IP ID 0 and DF, as the ICRC needs",
        ),
        Ok(Some(header)) => Finding::warn("ip header", format!("{header:?}"), NIC),
        Ok(None) => Finding::warn(
            "ip header",
            "the kernel shows no copies of sent packets; not checked",
            "sysctl -w net.core.tstamp_allow_data=1 makes the check possible",
        ),
        Err(error) => Finding::warn("ip header", format!("not checked: {error}"), NIC),
    }
}

fn ipv6() -> Finding {
    let local = IpAddr::V6(Ipv6Addr::LOCALHOST);
    match BareSocket::open(local, &BareConfig::default()) {
        Ok(_) => Finding::ok("ipv6", "available"),
        Err(_) => Finding::warn(
            "ipv6",
            "not available: only IPv4 addresses can be used",
            "sysctl -w net.ipv6.conf.all.disable_ipv6=0, if IPv6 is wanted",
        ),
    }
}

/// Can a device be opened on this address?
fn port(local: IpAddr) -> Finding {
    match share::check(local) {
        Ok(0) => Finding::ok("port", format!("{local}: UDP {ROCE_PORT} is free")),
        Ok(others) => {
            let found = format!("{local}: UDP {ROCE_PORT} is shared with {others} of your devices");
            Finding::ok("port", found)
        }
        Err(srdma_net::NetError::PortInUse { .. }) => {
            let owners = host::owners(&host::port_inodes(ROCE_PORT));
            let (who, advice) = match (owners.is_empty(), host::module_loaded("rdma_rxe")) {
                (false, _) => (owners.join(", "), "stop it, or use another address"),
                (true, true) => (
                    "the kernel's rdma_rxe".to_owned(),
                    "`rdma link` shows its devices; `rdma link delete NAME` or `modprobe -r \
                     rdma_rxe` frees the port",
                ),
                (true, false) => (
                    "a process of another user, or the kernel".to_owned(),
                    "`sudo ss -ulpn sport = :4791` shows it; stop it, or use another address",
                ),
            };
            let found = format!("{local}: UDP {ROCE_PORT} is in use by {who}");
            Finding::warn("port", found, advice)
        }
        Err(error) => {
            let advice = "the error says what to do";
            Finding::fail("port", format!("{local}: {error}"), advice)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::doctor::Verdict;

    #[test]
    fn every_warning_says_what_to_do() {
        let findings = all();
        assert!(findings.len() > 8);
        for finding in findings {
            let advised = finding.advice.is_some();
            assert_eq!(advised, finding.verdict != Verdict::Ok, "{finding:?}");
        }
    }
}
