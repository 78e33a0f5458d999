//! What goes wrong in a verbs call: the verb, the reason, and the `errno` that C knows it by.
//!
//! ```text
//! create_qp: more than 4063 send work requests            EINVAL
//! ╰─verb──╯  ╰────────── reason ─────────────╯            errno()
//! ```
//!
//! Errors of work requests are not here: they come as completions ([`crate::WcStatus`]).

use crate::device::ConfigError;
use core::fmt;
use srdma_core::hca::vectors::TooFew;
use srdma_core::hw::cqp::CqpMinor;
use srdma_core::hw::wqe::WqeError;
use srdma_core::mem::{AccessFault, HostFault, KeyFault};
use srdma_core::qp::attr::{AttrError, AttrMask, QpState, QpType};
use srdma_net::NetError;

/// A verbs call that failed. Nothing was changed, unless the reason says otherwise.
#[derive(Debug)]
#[allow(
    clippy::error_impl_error,
    reason = "the one error of this crate, as programs name it: verbs::Error"
)]
pub struct Error {
    verb: &'static str,
    reason: Reason,
}

/// The result of a verbs call.
pub type Result<T> = core::result::Result<T, Error>;

impl Error {
    pub(crate) const fn new(verb: &'static str, reason: Reason) -> Self {
        Self { verb, reason }
    }

    /// The reason, to be reported of another verb.
    pub(crate) fn into_reason(self) -> Reason {
        self.reason
    }

    /// The call that failed, by its name in this crate.
    #[must_use]
    pub const fn verb(&self) -> &'static str {
        self.verb
    }

    /// Why it failed.
    #[must_use]
    pub const fn reason(&self) -> &Reason {
        &self.reason
    }

    /// The number that the C interface reports.
    #[must_use]
    pub fn errno(&self) -> i32 {
        self.reason.errno()
    }

    /// True if the call would have had to wait.
    #[must_use]
    pub const fn is_would_block(&self) -> bool {
        matches!(self.reason, Reason::WouldBlock)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.verb, self.reason)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        std::error::Error::source(&self.reason)
    }
}

/// Something that a call was given, for the text of an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Arg {
    /// Entries of a completion queue.
    Cqe,
    /// The completion vector.
    CompVector,
    /// Send work requests.
    SendWr,
    /// Receive work requests.
    RecvWr,
    /// Scatter/gather entries of a send.
    SendSge,
    /// Scatter/gather entries of a receive.
    RecvSge,
    /// Inline bytes.
    Inline,
    /// Limit of a shared receive queue.
    SrqLimit,
    /// Index into the GID table.
    GidIndex,
    /// Index into the partition table.
    PkeyIndex,
    /// Port number.
    Port,
    /// Length of a region.
    Length,
    /// The address.
    Address,
    /// A queue key with the privileged bit.
    Qkey,
    /// Moderation of a completion queue.
    Moderation,
    /// Where callbacks run.
    PollContext,
}

impl fmt::Display for Arg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cqe => "number of completion queue entries",
            Self::CompVector => "completion vector",
            Self::SendWr => "number of send work requests",
            Self::RecvWr => "number of receive work requests",
            Self::SendSge => "number of scatter/gather entries of a send",
            Self::RecvSge => "number of scatter/gather entries of a receive",
            Self::Inline => "number of inline bytes",
            Self::SrqLimit => "limit of the shared receive queue",
            Self::GidIndex => "GID index",
            Self::PkeyIndex => "partition key index",
            Self::Port => "port number",
            Self::Length => "length",
            Self::Address => "address",
            Self::Qkey => "queue key",
            Self::Moderation => "moderation",
            Self::PollContext => "poll context",
        })
    }
}

/// Why a verbs call failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// There is no such device, address or interface.
    #[error("no device, address or interface of that name")]
    NoDevice,
    /// The device stands on an interface that is not there, or has no address.
    #[error("its interface does not exist or has no address")]
    NoAddress,
    /// The user's list of devices cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The sockets below could not be opened.
    #[error(transparent)]
    Net(#[from] NetError),
    /// The system refused.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// Memory could not be had or reached.
    #[error(transparent)]
    Host(#[from] HostFault),
    /// The rights contradict each other.
    #[error(transparent)]
    Access(#[from] AccessFault),
    /// The transition or its attributes are not in the table.
    #[error(transparent)]
    Attr(#[from] AttrError),
    /// The value of an attribute is out of its range.
    #[error("value of {0} is out of range")]
    AttrValue(AttrMask),
    /// An argument is out of its range.
    #[error("{arg} is out of range (limit {limit})")]
    Range {
        /// What.
        arg: Arg,
        /// The largest legal value.
        limit: u64,
    },
    /// The work request cannot be written as a queue entry.
    #[error(transparent)]
    Wqe(#[from] WqeError),
    /// The work request names nothing to do, or its parts contradict each other.
    #[error("the work request is incomplete")]
    IncompleteWr,
    /// The queue pair is in a state that does not allow the call.
    #[error("queue pair is in state {0}")]
    State(QpState),
    /// The builder was not given both completion queues.
    #[error("a queue pair needs completion queues for sends and for receives")]
    MissingCq,
    /// This type of queue pair cannot do that.
    #[error("not possible on a {0} queue pair")]
    QpType(QpType),
    /// The queue has no room; poll completions first.
    #[error("the queue is full")]
    Full,
    /// All numbers of that kind are in use.
    #[error("no free object number is left")]
    Exhausted,
    /// The device has too few interrupt vectors for completions and asynchronous events.
    #[error(transparent)]
    Vectors(#[from] TooFew),
    /// Other objects still use this one.
    #[error("still in use by other objects")]
    Busy,
    /// The object was destroyed before.
    #[error("the object is destroyed")]
    Destroyed,
    /// The objects belong to different devices or protection domains.
    #[error("the objects belong to different devices or protection domains")]
    Foreign,
    /// The two ends of a connection do not fit: address families or types differ.
    #[error("the remote endpoint does not fit this queue pair")]
    Endpoint,
    /// The receives of this queue pair come from a shared queue.
    #[error("receives belong to the shared receive queue")]
    SharedReceives,
    /// An XRC domain is missing, or it does not fit the type of the queue pair or of its shared
    /// receive queue.
    #[error("XRC domain, shared receive queue and type of queue pair do not fit")]
    Xrc,
    /// The file has no XRC domain.
    #[error("no XRC domain is bound to the file")]
    NoXrcd,
    /// The file has an XRC domain.
    #[error("an XRC domain is bound to the file already")]
    XrcdExists,
    /// The XRC domain has no such target.
    #[error("the XRC domain has no target of that number")]
    NoTarget,
    /// Nothing is there, and the call does not wait.
    #[error("nothing is there yet")]
    WouldBlock,
    /// The device refused the command.
    #[error("the device refused: {0:?}")]
    Refused(CqpMinor),
    /// A region of device memory whose addresses would not count from 0.
    #[error("regions of device memory are zero based")]
    NotZeroBased,
    /// A key does not open the memory it was used for.
    #[error(transparent)]
    Key(#[from] KeyFault),
    /// This device, or the system it runs on, does not have that.
    #[error("not supported")]
    Unsupported,
    /// The device did not answer a command.
    #[error("the device does not answer")]
    Timeout,
}

impl Reason {
    /// The number that the C interface reports.
    #[must_use]
    pub fn errno(&self) -> i32 {
        match self {
            Self::NoDevice => libc::ENODEV,
            Self::NoAddress => libc::EADDRNOTAVAIL,
            Self::Net(error) => net_errno(error),
            Self::Io(error) => error.raw_os_error().unwrap_or(libc::EIO),
            Self::Host(HostFault::OutOfMemory)
            | Self::Full
            | Self::Exhausted
            | Self::Vectors(_) => libc::ENOMEM,
            Self::Host(HostFault::Absent) => libc::EFAULT,
            Self::Busy => libc::EBUSY,
            Self::WouldBlock | Self::NoXrcd => libc::EAGAIN,
            Self::Refused(minor) => refusal_errno(*minor),
            Self::Key(fault) => key_errno(*fault),
            Self::Unsupported => libc::EOPNOTSUPP,
            Self::Timeout => libc::ETIMEDOUT,
            _ => libc::EINVAL,
        }
    }

    /// The error of `verb` for this reason.
    pub(crate) const fn of(self, verb: &'static str) -> Error {
        Error::new(verb, self)
    }
}

/// What C calls a wrong key.
const fn key_errno(fault: KeyFault) -> i32 {
    match fault {
        KeyFault::BadPd | KeyFault::Rights | KeyFault::BadQp => libc::EPERM,
        KeyFault::Bounds | KeyFault::Wrap | KeyFault::Absent => libc::EFAULT,
        _ => libc::ENOENT,
    }
}

/// What C calls a refusal of the device.
const fn refusal_errno(minor: CqpMinor) -> i32 {
    match minor {
        CqpMinor::INVALID_MEMORY => libc::EFAULT,
        CqpMinor::IN_USE => libc::EBUSY,
        CqpMinor::NO_ROOM => libc::ENOMEM,
        CqpMinor::EXISTS => libc::EEXIST,
        CqpMinor::FATAL => libc::EIO,
        _ => libc::EINVAL,
    }
}

/// What C calls a failure to open sockets.
fn net_errno(error: &NetError) -> i32 {
    match error {
        NetError::PortInUse { .. } | NetError::OtherUser { .. } | NetError::NoSourcePort { .. } => {
            libc::EADDRINUSE
        }
        NetError::RegistryUnsafe { .. } => libc::EACCES,
        NetError::NoBlock => libc::ENOMEM,
        NetError::NoSuchAddress { .. } | NetError::LinkLocal { .. } => libc::EADDRNOTAVAIL,
        NetError::NotAllowed { .. } => libc::EACCES,
        NetError::NoFamily { .. } => libc::EAFNOSUPPORT,
        NetError::OutOfMemory => libc::ENOMEM,
        _ => libc::EIO,
    }
}
