//! `perf server`: waits for clients, and does what they ask, one client at a time.
//!
//! What goes wrong with one client is told to that client and to standard error; the server goes
//! on. The device is open while a client is there.

use super::case::{Case, Mode, Op};
use super::control::{Control, Message, PATIENCE, Side};
use super::options::ServerArgs;
use super::rig::{Live, Part, Rig};
use super::{latency, stream};
use crate::child;
use crate::cmd::device;
use crate::error::{CliError, Result};
use crate::out;
use serde::{Deserialize, Serialize};
use srdma_verbs::Context;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How long a client may think between two measurements.
const THINKING: Duration = Duration::from_secs(600);

/// Where a server that we started ourselves listens.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Listening {
    pub(super) addr: SocketAddr,
}

/// Runs the command.
pub(super) fn run(args: &ServerArgs) -> Result<()> {
    if args.child {
        child::end_with_parent();
    }
    let listener = bind(args.listen)?;
    let addr = listener
        .local_addr()
        .map_err(CliError::io("ask for the control port"))?;
    if args.child {
        child::say(&Listening { addr })?;
    } else {
        out::line(format_args!(
            "waiting for clients on TCP {addr}; Ctrl-C ends"
        ));
    }
    loop {
        let (stream, peer) = listener
            .accept()
            .map_err(CliError::io("wait for clients"))?;
        let served = serve(args, stream);
        if args.once {
            return served;
        }
        match served {
            Ok(()) if args.child => {}
            Ok(()) => out::line(format_args!("{peer}: done")),
            Err(error) => eprintln!("{peer}: {}", crate::error::chain(&error)),
        }
    }
}

/// Binds the control port; a machine without IPv6 listens on IPv4 instead of everywhere.
fn bind(addr: SocketAddr) -> Result<TcpListener> {
    let everywhere = addr.ip() == IpAddr::V6(Ipv6Addr::UNSPECIFIED);
    let bound = match TcpListener::bind(addr) {
        Err(_) if everywhere => TcpListener::bind((Ipv4Addr::UNSPECIFIED, addr.port())),
        bound => bound,
    };
    bound.map_err(|source| match source.kind() {
        std::io::ErrorKind::AddrNotAvailable => CliError::Usage(format!(
            "{} is not an address of this machine (`ip address` lists them)",
            addr.ip()
        )),
        _ => CliError::Io {
            what: "listen on the control port (is another server running?)",
            source,
        },
    })
}

/// One client, from greeting to end.
fn serve(args: &ServerArgs, stream: TcpStream) -> Result<()> {
    let reached = stream
        .local_addr()
        .map_err(CliError::io("ask for the client's route"))?;
    let local = args.address.unwrap_or_else(|| reached.ip().to_canonical());
    let mut control = Control::open(stream)?;
    let outcome =
        device::open(local, &args.device).and_then(|context| cases(&context, &mut control));
    if let Err(error) = &outcome
        && !matches!(error, CliError::PeerGone | CliError::Peer { .. })
    {
        // The client may be gone; then nobody needs to know.
        let _ = control.say(&Message::Error {
            text: crate::error::chain(error),
        });
    }
    outcome
}

/// Measurements until the client goes.
fn cases(context: &Context, control: &mut Control) -> Result<()> {
    loop {
        match control.hear(THINKING) {
            Ok(Message::Case { case, side }) => measure(context, control, &case, &side)?,
            Ok(message) => {
                return Err(CliError::garbled("client", &format!("{message:?}")));
            }
            Err(CliError::PeerGone) => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

/// One measurement.
fn measure(context: &Context, control: &mut Control, case: &Case, theirs: &Side) -> Result<()> {
    case.check().map_err(CliError::Usage)?;
    let dropped = device::dropped(context);
    let rig = Rig::build(context, case, Part::Server)?;
    let side = rig.side();
    let mut live = rig.connect(theirs)?;
    let ping_pong = case.mode == Mode::Lat;
    if ping_pong {
        latency::prepare(&live)?;
    } else {
        stream::prepare(&live)?;
    }
    control.say(&Message::Ready { side })?;
    match control.hear(PATIENCE)? {
        Message::Go => {}
        message => return Err(CliError::garbled("client", &format!("{message:?}"))),
    }
    let (end, moved) = if case.both {
        let (end, moved) = stream::counterpart(&mut live, control)?;
        (end, Some(moved))
    } else if ping_pong {
        (latency::server(&mut live, control)?, None)
    } else {
        (stream::server(&mut live, control)?, None)
    };
    let Message::Stop { messages, least } = end else {
        return Err(CliError::garbled("client", &format!("{end:?}")));
    };
    let damaged = damage(&live, messages, least)?;
    let dropped = device::dropped(context).saturating_sub(dropped);
    control.say(&Message::Done {
        damaged,
        dropped,
        moved,
    })
}

/// Wrong bytes, or atomics that were not counted.
fn damage(live: &Live, messages: u64, least: u64) -> Result<u64> {
    match live.case.op {
        // The client checks what it read.
        Op::Read => Ok(0),
        Op::Send | Op::Write => live.damage(least),
        Op::Atomic => {
            let mut counted = 0u64;
            for qp in 0..live.qps.len() {
                let word = live.mr.load(live.inbound(qp, 0), Ordering::Acquire)?;
                counted = counted.wrapping_add(word);
            }
            Ok(counted.abs_diff(messages))
        }
    }
}
