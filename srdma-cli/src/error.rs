//! What can go wrong in a command, and what to do about it.
//!
//! Errors of the layers below are passed on as they are: they say what to do themselves.

use std::io;
use std::time::Duration;

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CliError {
    /// The sockets.
    #[error(transparent)]
    Net(#[from] srdma_net::NetError),
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
    /// Options that do not fit together.
    #[error("{0}")]
    Usage(String),
}

impl CliError {
    /// Names what was tried when a system call failed.
    pub(crate) const fn io(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { what, source }
    }

    /// `line` of `role` could not be understood.
    pub(crate) fn garbled(role: &'static str, line: &str) -> Self {
        let line = line.chars().take(120).collect();
        Self::Garbled { role, line }
    }
}

/// The result of a command.
pub(crate) type Result<T> = core::result::Result<T, CliError>;
