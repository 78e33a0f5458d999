//! The control connection of `perf`: JSON lines over TCP, heard by a thread of their own.
//!
//! ```text
//! client                                   server
//!   │ Hello ───────────────────────────────►│  versions must agree
//!   │◄─────────────────────────────── Hello │
//!   │ Case, endpoints, address, key ───────►│  checks, builds, connects, posts receives
//!   │◄────── Ready, endpoints, address, key │
//!   │ Go ──────────────────────────────────►│
//!   │        … data, by RDMA …              │
//!   │ Stop, messages ──────────────────────►│  checks the data
//!   │◄─────── Done, damage, losses, (moved) │
//! ```
//!
//! Loops that move data ask [`Control::alarm`], a load, whether anything was said meanwhile: the
//! peer is done, failed, or is gone. What the peer says is input: lines have a limit, waiting has
//! one too.

use super::case::Case;
use crate::error::{CliError, Result};
use serde::{Deserialize, Serialize};
use srdma_verbs::QpEndpoint;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// Version of this conversation: both sides must have the same.
const VERSION: u32 = 2;
/// How a conversation begins.
const MAGIC: &str = "srdma-perf";
/// Most bytes of a line: sixteen thousand endpoints fit.
const MAX_LINE: u64 = 8 << 20;
/// How long an answer may take, beside the time of a measurement.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// One side's memory and queue pairs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Side {
    pub(super) endpoints: Vec<QpEndpoint>,
    /// Where the region begins, and the key to it.
    pub(super) addr: u64,
    pub(super) rkey: u32,
}

/// What a side has moved in its measured time.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Moved {
    pub(super) messages: u64,
    pub(super) nanos: u64,
    /// Messages of all time, of the queue pair with the fewest.
    pub(super) least: u64,
}

/// One line.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "lowercase")]
pub(super) enum Message {
    Hello {
        magic: String,
        version: u32,
        program: String,
    },
    Case {
        case: Case,
        side: Side,
    },
    Ready {
        side: Side,
    },
    Go,
    /// Messages of all queue pairs together, and of the one with the fewest.
    Stop {
        messages: u64,
        least: u64,
    },
    Done {
        damaged: u64,
        /// Packets that found the server's socket full.
        dropped: u64,
        /// What the server sent itself, where both sides do.
        moved: Option<Moved>,
    },
    Error {
        text: String,
    },
}

impl Message {
    fn hello() -> Self {
        Self::Hello {
            magic: MAGIC.to_owned(),
            version: VERSION,
            program: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }
}

/// Our end of the connection.
#[derive(Debug)]
pub(super) struct Control {
    stream: TcpStream,
    lines: Receiver<Option<Message>>,
    said: Arc<AtomicU64>,
    heard: u64,
}

impl Control {
    /// Greets the peer, and checks that it is one of ours.
    pub(super) fn open(stream: TcpStream) -> Result<Self> {
        stream
            .set_nodelay(true)
            .map_err(CliError::io("set up the control connection"))?;
        let write_limit = stream.set_write_timeout(Some(PATIENCE));
        write_limit.map_err(CliError::io("set up the control connection"))?;
        let reader = stream
            .try_clone()
            .map_err(CliError::io("share the control connection"))?;
        let (sender, lines) = channel();
        let said = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&said);
        // Ends when the connection does: `Drop` shuts it down.
        std::thread::spawn(move || listen(reader, &sender, &counter));
        let mut control = Self {
            stream,
            lines,
            said,
            heard: 0,
        };
        control.say(&Message::hello())?;
        match control.hear(PATIENCE)? {
            Message::Hello { magic, version, .. } if magic == MAGIC && version == VERSION => {
                Ok(control)
            }
            Message::Hello {
                magic,
                version,
                program,
            } if magic == MAGIC => {
                let ours = env!("CARGO_PKG_VERSION");
                let text = format!(
                    "the peer is srdma-cli {program} and speaks version {version} of perf; this \
                     is {ours} and speaks {VERSION}: use the same on both sides"
                );
                let _ = control.say(&Message::Error { text: text.clone() });
                Err(CliError::Usage(text))
            }
            _ => Err(CliError::Usage("the peer is not srdma-cli perf".to_owned())),
        }
    }

    /// Says one thing.
    pub(super) fn say(&mut self, message: &Message) -> Result<()> {
        let json = serde_json::to_string(message);
        let mut line = json.map_err(|_| CliError::garbled("program", "message"))?;
        line.push('\n');
        // A peer that is gone may have said why before it went.
        match self.stream.write_all(line.as_bytes()) {
            Ok(()) => Ok(()),
            Err(_) if self.alarm() => self.hear(PATIENCE).and(Err(CliError::PeerGone)),
            Err(_) => Err(CliError::PeerGone),
        }
    }

    /// The next thing that the peer says. Its errors are ours.
    pub(super) fn hear(&mut self, within: Duration) -> Result<Message> {
        let heard = match self.lines.recv_timeout(within) {
            Ok(heard) => heard,
            Err(RecvTimeoutError::Timeout) => return Err(CliError::PeerSilent { within }),
            Err(RecvTimeoutError::Disconnected) => return Err(CliError::PeerGone),
        };
        self.heard += 1;
        match heard {
            Some(Message::Error { text }) => Err(CliError::Peer { text }),
            Some(message) => Ok(message),
            None => Err(CliError::PeerGone),
        }
    }

    /// Something was said, or the connection has ended. Cost: a load.
    pub(super) fn alarm(&self) -> bool {
        self.said.load(Ordering::Acquire) != self.heard
    }

    /// What the peer said in the middle of a measurement, as an error.
    pub(super) fn interruption(&mut self) -> CliError {
        match self.hear(PATIENCE) {
            Ok(message) => CliError::garbled("peer", &format!("{message:?}")),
            Err(error) => error,
        }
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        // Fails only if the peer closed it before.
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
    }
}

/// Hands on what comes, line by line; `None` for the end, or for what is no line of ours.
fn listen(stream: TcpStream, lines: &Sender<Option<Message>>, said: &AtomicU64) {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    loop {
        line.clear();
        let read = reader.by_ref().take(MAX_LINE).read_line(&mut line);
        let whole = read.is_ok() && line.ends_with('\n');
        let message = if whole {
            serde_json::from_str(&line).ok()
        } else {
            None
        };
        let over = message.is_none();
        said.fetch_add(1, Ordering::Release);
        if lines.send(message).is_err() || over {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    /// A connection to a peer that says `lines` and closes.
    fn peer(lines: &'static str) -> Result<Control> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let thread = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(lines.as_bytes()).unwrap();
            let mut greeting = String::new();
            BufReader::new(stream).read_line(&mut greeting).unwrap();
            assert!(greeting.contains(MAGIC));
        });
        let control = Control::open(TcpStream::connect(addr).unwrap());
        thread.join().unwrap();
        control
    }

    #[test]
    fn other_versions_and_other_programs_are_refused() {
        let error = peer(
            "{\"say\":\"hello\",\"magic\":\"srdma-perf\",\"version\":9,\"program\":\"7.7\"}\n",
        );
        let text = error.unwrap_err().to_string();
        assert!(
            text.contains("srdma-cli 7.7") && text.contains("version 9"),
            "{text}"
        );
        for other in [
            "SSH-2.0-OpenSSH\n",
            "",
            "{\"say\":\"go\"}\n",
            "{\"say\":\"hello",
        ] {
            peer(other).unwrap_err();
        }
    }

    #[test]
    fn errors_and_the_end_are_heard() {
        let mut control = peer(concat!(
            "{\"say\":\"hello\",\"magic\":\"srdma-perf\",\"version\":2,\"program\":\"0\"}\n",
            "{\"say\":\"error\",\"text\":\"no memory\"}\n"
        ))
        .unwrap();
        let text = control.hear(PATIENCE).unwrap_err().to_string();
        assert!(text.contains("no memory"), "{text}");
        assert!(matches!(control.hear(PATIENCE), Err(CliError::PeerGone)));
        assert!(!control.alarm());
    }
}
