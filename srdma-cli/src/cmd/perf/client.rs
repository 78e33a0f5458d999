//! `perf client`: asks a server for measurements, one after the other.

use super::case::{Case, Mode, Op};
use super::control::{Control, Message, PATIENCE};
use super::options::CONTROL_PORT;
use super::rig::{Part, Rig};
use super::row::Figures;
use super::{latency, stream};
use crate::cmd::limit::Rtt;
use crate::cmd::{DeviceArgs, device, per_sec};
use crate::error::{CliError, Result};
use socket2::{Domain, Socket, Type};
use srdma_verbs::Context;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

/// How long to wait for a connection.
const CONNECT: Duration = Duration::from_secs(5);

/// A connection to a server, and the device.
#[derive(Debug)]
pub(super) struct Client {
    control: Control,
    context: Context,
}

impl Client {
    /// Connects to `host`, and opens the device on `local`, or on the address that reaches `host`.
    pub(super) fn open(host: &str, local: Option<IpAddr>, device: &DeviceArgs) -> Result<Self> {
        let addrs = resolve(host).map_err(|error| {
            CliError::Usage(format!("{host} is no address and no known host: {error}"))
        })?;
        let stream = connect(&addrs, local).map_err(|cause| CliError::NoServer {
            host: host.to_owned(),
            port: CONTROL_PORT,
            cause,
        })?;
        let ours = stream
            .local_addr()
            .map_err(CliError::io("ask for our address"))?;
        let local = local.unwrap_or_else(|| ours.ip().to_canonical());
        let control = Control::open(stream)?;
        let context = device::open(local, device)?;
        Ok(Self { control, context })
    }

    /// Measures one case.
    pub(super) fn measure(&mut self, case: &Case) -> Result<Figures> {
        case.check().map_err(CliError::Usage)?;
        let dropped = device::dropped(&self.context);
        let control = &mut self.control;
        let rig = Rig::build(&self.context, case, Part::Client)?;
        control.say(&Message::Case {
            case: *case,
            side: rig.side(),
        })?;
        let theirs = match control.hear(PATIENCE)? {
            Message::Ready { side } => side,
            message => return Err(CliError::garbled("server", &format!("{message:?}"))),
        };
        let mut live = rig.connect(&theirs)?;
        let mut figures = Figures {
            mtu: live.mtu,
            ..Figures::default()
        };
        let (messages, mut least);
        if case.mode == Mode::Lat {
            latency::prepare(&live)?;
            control.say(&Message::Go)?;
            let (times, trips) = latency::client(&mut live, control)?;
            figures.rtt = Some(Rtt::from(&times));
            (messages, least) = (trips, trips);
        } else {
            control.say(&Message::Go)?;
            let measured = stream::client(&mut live, control)?;
            let nanos = u64::try_from(measured.elapsed.as_nanos()).unwrap_or(u64::MAX);
            figures.add(per_sec(measured.messages, nanos), case.size);
            (messages, least) = (measured.total, measured.least);
        }
        control.say(&Message::Stop { messages, least })?;
        let (mut damaged, moved) = match control.hear(PATIENCE)? {
            Message::Done {
                damaged,
                dropped: theirs,
                moved,
            } => {
                let ours = device::dropped(&self.context).saturating_sub(dropped);
                figures.dropped = ours.saturating_add(theirs);
                (damaged, moved)
            }
            message => return Err(CliError::garbled("server", &format!("{message:?}"))),
        };
        if let Some(moved) = moved {
            figures.add(per_sec(moved.messages, moved.nanos), case.size);
            least = moved.least;
        }
        let pong = case.mode == Mode::Lat && matches!(case.op, Op::Send | Op::Write);
        if case.op == Op::Read || pong || moved.is_some() {
            damaged += live.damage(least)?;
        }
        if damaged > 0 {
            return Err(CliError::Damaged {
                what: "data check",
                bad: damaged,
            });
        }
        Ok(figures)
    }
}

/// Tries every address of a host.
fn connect(addrs: &[SocketAddr], local: Option<IpAddr>) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "no such host");
    for addr in addrs {
        match connect_to(*addr, local) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn connect_to(addr: SocketAddr, local: Option<IpAddr>) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM, None)?;
    if let Some(local) = local.filter(|local| local.is_ipv4() == addr.is_ipv4()) {
        socket.bind(&SocketAddr::new(local, 0).into())?;
    }
    socket.connect_timeout(&addr.into(), CONNECT)?;
    Ok(socket.into())
}

/// A name or address, with or without a port.
fn resolve(host: &str) -> io::Result<Vec<SocketAddr>> {
    if let Ok(ip) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(ip, CONTROL_PORT)]);
    }
    match host.to_socket_addrs() {
        Ok(addrs) => Ok(addrs.collect()),
        // Without a port, or no host of that name.
        Err(error) => match (host, CONTROL_PORT).to_socket_addrs() {
            Ok(addrs) => Ok(addrs.collect()),
            Err(_) if host.contains(':') => Err(error),
            Err(error) => Err(error),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_have_ports_or_get_ours() {
        let one = |host: &str| resolve(host).unwrap().first().copied().unwrap();
        assert_eq!(one("::1"), "[::1]:18791".parse().unwrap());
        assert_eq!(one("127.0.0.2"), "127.0.0.2:18791".parse().unwrap());
        assert_eq!(one("127.0.0.2:7"), "127.0.0.2:7".parse().unwrap());
        assert_eq!(one("[::1]:7"), "[::1]:7".parse().unwrap());
    }
}
