//! Work completions: what became of a work request.
//!
//! ```text
//! Completion   plain values, may be kept
//! Wc<'a>       the same, borrowed from the poll that found it
//! ```
//!
//! Of a completion that failed, only the status, the id, the queue pair and the vendor code mean
//! something. Who turns queue entries into completions: `driver::reap`.

use core::fmt;
use core::ops::Deref;
use srdma_core::num::{Qpn, Rkey};

/// The program's own number of a work request; comes back in its completion.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct WrId(pub u64);

macro_rules! verbs_enum {
    (
        $(#[$doc:meta])*
        $name:ident: $repr:ty { $( $(#[$vdoc:meta])* $variant:ident = $value:literal, )* }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[non_exhaustive]
        #[repr($repr)]
        pub enum $name { $($(#[$vdoc])* $variant = $value,)* }

        impl $name {
            /// Every value.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The number of this value in verbs.
            #[must_use]
            pub const fn value(self) -> $repr {
                self as $repr
            }
        }
    };
}
pub(crate) use verbs_enum;

verbs_enum! {
    /// What became of a work request, with the numbers of verbs.     [RoCEv2 4.7]
    WcStatus: u32 {
        /// Done.
        Success = 0,
        /// A receive buffer was too short, or a message longer than the path takes.
        LocLenErr = 1,
        /// The work request itself was impossible.
        LocQpOpErr = 2,
        /// Not used on Ethernet.
        LocEecOpErr = 3,
        /// A local key did not open the memory named.
        LocProtErr = 4,
        /// Not executed, because the queue failed before.
        WrFlushErr = 5,
        /// A window could not be bound.
        MwBindErr = 6,
        /// The peer's answer made no sense.
        BadRespErr = 7,
        /// A receive found memory that it may not write.
        LocAccessErr = 8,
        /// The peer says that the request was invalid.
        RemInvReqErr = 9,
        /// The peer's memory may not be reached that way.
        RemAccessErr = 10,
        /// The peer could not carry out the request.
        RemOpErr = 11,
        /// The peer did not answer, however often it was asked.
        RetryExcErr = 12,
        /// The peer had no receive posted, however often it was asked.
        RnrRetryExcErr = 13,
        /// Not used on Ethernet.
        LocRddViolErr = 14,
        /// Not used on Ethernet.
        RemInvRdReqErr = 15,
        /// The peer gave up the operation.
        RemAbortErr = 16,
        /// Not used on Ethernet.
        InvEecnErr = 17,
        /// Not used on Ethernet.
        InvEecStateErr = 18,
        /// The queue pair broke down.
        FatalErr = 19,
        /// No response in time.
        RespTimeoutErr = 20,
        /// Anything else.
        GeneralErr = 21,
    }
}

impl fmt::Display for WcStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Success => "success",
            Self::LocLenErr => "local length error",
            Self::LocQpOpErr => "local QP operation error",
            Self::LocEecOpErr => "local EE context operation error",
            Self::LocProtErr => "local protection error",
            Self::WrFlushErr => "flushed",
            Self::MwBindErr => "window bind error",
            Self::BadRespErr => "bad response",
            Self::LocAccessErr => "local access error",
            Self::RemInvReqErr => "remote invalid request",
            Self::RemAccessErr => "remote access error",
            Self::RemOpErr => "remote operation error",
            Self::RetryExcErr => "retries exhausted",
            Self::RnrRetryExcErr => "receiver-not-ready retries exhausted",
            Self::LocRddViolErr => "local RDD violation",
            Self::RemInvRdReqErr => "remote invalid RD request",
            Self::RemAbortErr => "remote abort",
            Self::InvEecnErr => "invalid EE context number",
            Self::InvEecStateErr => "invalid EE context state",
            Self::FatalErr => "fatal error",
            Self::RespTimeoutErr => "response timeout",
            Self::GeneralErr => "general error",
        })
    }
}

verbs_enum! {
    /// What kind of work request completed, with the numbers of verbs.
    WcOpcode: u32 {
        /// SEND, with or without immediate or invalidate.
        Send = 0,
        /// RDMA WRITE, with or without immediate.
        RdmaWrite = 1,
        /// RDMA READ.
        RdmaRead = 2,
        /// Compare and swap.
        CompSwap = 3,
        /// Fetch and add.
        FetchAdd = 4,
        /// Window bind.
        BindMw = 5,
        /// Local invalidate.
        LocalInv = 6,
        /// ATOMIC WRITE.
        AtomicWrite = 9,
        /// Nothing, done with success. Ours: verbs have no number for it.
        Nop = 64,
        /// A SEND came in.
        Recv = 128,
        /// A WRITE with immediate came in.
        RecvRdmaWithImm = 129,
    }
}

/// What else a completion says, with the bits of verbs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct WcFlags(pub u32);

impl WcFlags {
    /// The first 40 bytes of the buffer hold the network header.
    pub const GRH: Self = Self(1);
    /// An immediate came along.
    pub const WITH_IMM: Self = Self(2);
    /// A key was invalidated by the peer.
    pub const WITH_INV: Self = Self(8);

    /// True if every flag of `other` is set.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// The values of one completion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Completion {
    pub(crate) wr_id: WrId,
    pub(crate) status: WcStatus,
    pub(crate) opcode: WcOpcode,
    pub(crate) byte_len: u32,
    pub(crate) vendor_err: u32,
    pub(crate) imm: Option<u32>,
    pub(crate) invalidated: Option<Rkey>,
    pub(crate) src_qp: Option<Qpn>,
    pub(crate) qp_num: Qpn,
    pub(crate) solicited: bool,
    pub(crate) grh: bool,
    pub(crate) ipv4: bool,
    pub(crate) timestamp: Option<u64>,
}

impl Completion {
    /// A completion of nothing, to be filled by [`crate::Cq::poll_into`].
    pub const EMPTY: Self = Self {
        wr_id: WrId(0),
        status: WcStatus::Success,
        opcode: WcOpcode::Nop,
        byte_len: 0,
        vendor_err: 0,
        imm: None,
        invalidated: None,
        src_qp: None,
        qp_num: Qpn::new(0),
        solicited: false,
        grh: false,
        ipv4: false,
        timestamp: None,
    };

    /// The number that the program gave the work request.
    #[inline]
    #[must_use]
    pub const fn wr_id(&self) -> WrId {
        self.wr_id
    }

    /// What became of it.
    #[inline]
    #[must_use]
    pub const fn status(&self) -> WcStatus {
        self.status
    }

    /// True for success.
    #[inline]
    #[must_use]
    pub const fn is_ok(&self) -> bool {
        matches!(self.status, WcStatus::Success)
    }

    /// The kind of work request.
    #[inline]
    #[must_use]
    pub const fn opcode(&self) -> WcOpcode {
        self.opcode
    }

    /// Bytes sent, read or received. A datagram receive counts the 40 bytes of its header area.
    #[inline]
    #[must_use]
    pub const fn byte_len(&self) -> u32 {
        self.byte_len
    }

    /// The device's own error code: major in the high half, minor in the low one. [E810 3.4]
    #[inline]
    #[must_use]
    pub const fn vendor_err(&self) -> u32 {
        self.vendor_err
    }

    /// The immediate of a receive, as the number that the sender gave.
    #[inline]
    #[must_use]
    pub const fn imm(&self) -> Option<u32> {
        self.imm
    }

    /// The key that the peer invalidated with its SEND.
    #[inline]
    #[must_use]
    pub const fn invalidated(&self) -> Option<Rkey> {
        self.invalidated
    }

    /// The queue pair that a datagram came from.
    #[inline]
    #[must_use]
    pub const fn src_qp(&self) -> Option<Qpn> {
        self.src_qp
    }

    /// The queue pair that the work request was posted to; with a shared receive queue, the one
    /// that the message came in on.
    #[inline]
    #[must_use]
    pub const fn qp_num(&self) -> Qpn {
        self.qp_num
    }

    /// True if the sender asked for a solicited event.
    #[inline]
    #[must_use]
    pub const fn is_solicited(&self) -> bool {
        self.solicited
    }

    /// True if the network header in front of a datagram is IPv4 (in bytes 20..40).
    #[inline]
    #[must_use]
    pub const fn is_ipv4(&self) -> bool {
        self.ipv4
    }

    /// When it came, in nanoseconds of [`crate::Context::raw_clock`], from a queue with timestamps.
    #[inline]
    #[must_use]
    pub const fn timestamp(&self) -> Option<u64> {
        self.timestamp
    }

    /// The flags of verbs.
    #[inline]
    #[must_use]
    pub const fn flags(&self) -> WcFlags {
        let grh = if self.grh { WcFlags::GRH.0 } else { 0 };
        let imm = if self.imm.is_some() {
            WcFlags::WITH_IMM.0
        } else {
            0
        };
        let inv = if self.invalidated.is_some() {
            WcFlags::WITH_INV.0
        } else {
            0
        };
        WcFlags(grh | imm | inv)
    }
}

/// A completion, lent out by [`crate::Poll::next`] until the next one is asked for.
#[derive(Debug)]
pub struct Wc<'a> {
    completion: &'a mut Completion,
}

impl<'a> Wc<'a> {
    #[inline]
    pub(crate) const fn new(completion: &'a mut Completion) -> Self {
        Self { completion }
    }

    /// The values, to be kept.
    #[inline]
    #[must_use]
    pub const fn to_completion(&self) -> Completion {
        *self.completion
    }
}

impl Deref for Wc<'_> {
    type Target = Completion;

    #[inline]
    fn deref(&self) -> &Completion {
        self.completion
    }
}
