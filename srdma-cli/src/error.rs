//! What can go wrong in a command, and what to do about it.
//!
//! Errors of the layers below are passed on as they are: they say what to do themselves.

use srdma_net::NetError;
use srdma_verbs::WcStatus;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CliError {
    /// The sockets.
    #[error(transparent)]
    Net(#[from] NetError),
    /// A verbs call.
    #[error(transparent)]
    Verbs(#[from] srdma_verbs::Error),
    /// A work request failed.
    #[error("a work request failed: {status} (vendor code {vendor:#x}){}", hint(*.status))]
    Completion {
        /// The status.
        status: WcStatus,
        /// The device's own code.
        vendor: u32,
    },
    /// Nothing moves any more.
    #[error("nothing has completed for {} s", within.as_secs())]
    Stalled {
        /// How long we waited.
        within: Duration,
    },
    /// Nobody listens.
    #[error(
        "no perf server at {host} ({cause}): start `srdma-cli perf server` there, and open TCP \
         port {port}"
    )]
    NoServer {
        /// As it was asked for.
        host: String,
        /// The control port.
        port: u16,
        /// The system's error; the text says it already.
        cause: io::Error,
    },
    /// The peer closed the control connection.
    #[error("the peer is gone: it ended, was killed, or lost its network")]
    PeerGone,
    /// The peer does not answer.
    #[error("the peer said nothing for {} s; is it busy with another client?", within.as_secs())]
    PeerSilent {
        /// How long we waited.
        within: Duration,
    },
    /// The peer has a problem.
    #[error("the peer reports: {text}")]
    Peer {
        /// What it said.
        text: String,
    },
    /// The system refused something.
    #[error("cannot {what}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// A process that we started said nothing in time.
    #[error("the {role} process said nothing for {} s and was ended", within.as_secs())]
    ChildSilent {
        /// What it was started for.
        role: &'static str,
        /// How long we waited.
        within: Duration,
    },
    /// A process that we started ended too early.
    #[error("the {role} process ended early ({status}); its own message stands above")]
    ChildEnded {
        /// What it was started for.
        role: &'static str,
        /// Its exit status.
        status: String,
    },
    /// A process or peer said something that we do not understand.
    #[error("cannot make sense of what the {role} said: {line}")]
    Garbled {
        /// Who.
        role: &'static str,
        /// What it said, cut short.
        line: String,
    },
    /// A measurement found its data damaged.
    #[error("{what}: {bad} packets or messages arrived damaged")]
    Damaged {
        /// What was measured.
        what: &'static str,
        /// How many.
        bad: u64,
    },
    /// Nothing arrived.
    #[error("{what}: nothing arrived; is a firewall between the two addresses?")]
    NothingArrived {
        /// What was measured.
        what: &'static str,
    },
    /// One of several measurements failed.
    #[error("{case}")]
    Case {
        /// Which.
        case: String,
        /// Why.
        source: Box<Self>,
    },
    /// A program did not start.
    #[error("cannot run {program}")]
    Exec {
        /// Its name.
        program: String,
        /// The system's error.
        source: io::Error,
    },
    /// There is no place for libraries and files.
    #[error(
        "cannot use {} for what programs are shown (XDG_CACHE_HOME names another place)",
        path.display()
    )]
    Place {
        /// The path.
        path: PathBuf,
        /// The system's error, or what is wrong with it.
        source: io::Error,
    },
    /// A shared library is missing.
    #[error(
        "no {name} at {}: build it with `cargo build --release`, or say where it is in SRDMA_LIB",
        looked.display()
    )]
    NoLibrary {
        /// Its name.
        name: &'static str,
        /// Where it should be.
        looked: PathBuf,
    },
    /// Options that do not fit together.
    #[error("{0}")]
    Usage(String),
}

impl CliError {
    /// Names what was tried when a system call failed.
    pub(crate) const fn io(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { what, source }
    }

    /// The exit status of `run` for this error, as `env` and shells have it.
    pub(crate) fn run_status(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::Exec { source, .. } if source.kind() == io::ErrorKind::NotFound => 127,
            Self::Exec { .. } => 126,
            _ => 125,
        })
    }

    /// `line` of `role` could not be understood.
    pub(crate) fn garbled(role: &'static str, line: &str) -> Self {
        let line = line.chars().take(120).collect();
        Self::Garbled { role, line }
    }
}

/// What may lie behind a failed work request.
const fn hint(status: WcStatus) -> &'static str {
    match status {
        WcStatus::RetryExcErr => {
            "; the peer is gone, or the network drops UDP port 4791, or carries only smaller \
             packets (try --mtu 1024)"
        }
        _ => "",
    }
}

/// An error with all its causes, in one line.
pub(crate) fn chain(error: &CliError) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        // A transparent error says what its source says.
        if !text.ends_with(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}

/// The result of a command.
pub(crate) type Result<T> = core::result::Result<T, CliError>;
