//! Attributes of a queue pair: what a modify call sets and a query gives back.
//!
//! ```text
//! QpAttr::to(QpState::Rtr).path(..).path_mtu(..).dest_qp(..).rq_psn(..) …
//!        ╰─ every setter also puts its bit into the mask ─╯
//! ```
//!
//! Which attributes a transition needs is a table in the core (`qp::attr`); here only the values
//! are looked at. What this does *not* do: change anything.

use crate::error::Reason;
use crate::path::Path;
use srdma_core::limits::MAX_RD_ATOMIC;
use srdma_core::mem::Access;
use srdma_core::num::{Psn, Qkey, Qpn};
use srdma_core::obj::port::{Gid, Mtu};
use srdma_core::qp::attr::{AttrMask, QpState};

/// Attributes and the mask that says which of them are meant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QpAttr {
    pub(crate) mask: AttrMask,
    pub(crate) state: QpState,
    pub(crate) cur_state: QpState,
    pub(crate) sqd_notify: bool,
    pub(crate) access: Access,
    pub(crate) pkey_index: u16,
    pub(crate) port: u8,
    pub(crate) qkey: Qkey,
    pub(crate) path: Path,
    pub(crate) path_mtu: Mtu,
    pub(crate) timeout: u8,
    pub(crate) retry_cnt: u8,
    pub(crate) rnr_retry: u8,
    pub(crate) min_rnr_timer: u8,
    pub(crate) rq_psn: Psn,
    pub(crate) sq_psn: Psn,
    pub(crate) max_rd_atomic: u8,
    pub(crate) max_dest_rd_atomic: u8,
    pub(crate) dest_qp: Qpn,
    pub(crate) peer_rx: u32,
}

impl Default for QpAttr {
    fn default() -> Self {
        Self::new()
    }
}

macro_rules! attrs {
    ($( $(#[$doc:meta])* $bit:ident: $set:ident / $get:ident: $ty:ty => $field:ident; )*) => {
        impl QpAttr {
            $(
                $(#[$doc])*
                #[must_use]
                pub const fn $set(mut self, value: $ty) -> Self {
                    self.mask = self.mask.with(AttrMask::$bit);
                    self.$field = value;
                    self
                }

                #[doc = concat!("The value set with [`Self::", stringify!($set), "`].")]
                #[must_use]
                pub const fn $get(&self) -> $ty {
                    self.$field
                }
            )*

            /// Takes over the attributes that `other` names.
            pub(crate) fn merge(&mut self, other: &Self) {
                $( if other.mask.contains(AttrMask::$bit) { self.$field = other.$field; } )*
                // Told with the path, and without a bit of its own.
                if other.mask.contains(AttrMask::AV) {
                    self.peer_rx = other.peer_rx;
                }
            }
        }
    };
}

attrs! {
    /// Goes to this state.
    STATE: state / current_state: QpState => state;
    /// The state that the program believes the queue pair to be in.
    CUR_STATE: if_state / assumed_state: QpState => cur_state;
    /// Raises an event when the send queue has drained.
    EN_SQD_ASYNC_NOTIFY: notify_drained / notifies_drained: bool => sqd_notify;
    /// What the peer may do through this queue pair: remote rights, and `MW_BIND`.
    ACCESS_FLAGS: access / allowed_access: Access => access;
    /// Index into the partition table; 0 is the only one.
    PKEY_INDEX: pkey_index / used_pkey_index: u16 => pkey_index;
    /// The port; 1 is the only one.
    PORT: port / used_port: u8 => port;
    /// Queue key that datagrams must bring.
    QKEY: qkey / own_qkey: Qkey => qkey;
    /// The way to the peer.
    AV: path / used_path: Path => path;
    /// Payload bytes of a full packet.
    PATH_MTU: path_mtu / used_path_mtu: Mtu => path_mtu;
    /// ACK timeout code: 4.096 µs · 2^code, 0 for never.
    TIMEOUT: timeout / timeout_code: u8 => timeout;
    /// How often to send again before giving up, 0..=7.
    RETRY_CNT: retry_cnt / retries: u8 => retry_cnt;
    /// How often to wait for a peer without receives, 0..=6; 7 is for ever.
    RNR_RETRY: rnr_retry / rnr_retries: u8 => rnr_retry;
    /// Code of the shortest time that a peer waits after our RNR NAK.
    MIN_RNR_TIMER: min_rnr_timer / rnr_timer_code: u8 => min_rnr_timer;
    /// The first PSN expected from the peer.
    RQ_PSN: rq_psn / first_rq_psn: Psn => rq_psn;
    /// The first PSN to send.
    SQ_PSN: sq_psn / first_sq_psn: Psn => sq_psn;
    /// READs and atomics that may be outstanding to the peer.
    MAX_QP_RD_ATOMIC: max_rd_atomic / outbound_rd_atomic: u8 => max_rd_atomic;
    /// READs and atomics that the peer may have outstanding here.
    MAX_DEST_RD_ATOMIC: max_dest_rd_atomic / inbound_rd_atomic: u8 => max_dest_rd_atomic;
    /// The peer's queue pair number.
    DEST_QPN: dest_qp / peer_qp: Qpn => dest_qp;
}

impl QpAttr {
    /// No attribute.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            mask: AttrMask::NONE,
            state: QpState::Reset,
            cur_state: QpState::Reset,
            sqd_notify: false,
            access: Access::LOCAL_READ,
            pkey_index: 0,
            port: 1,
            qkey: Qkey(0),
            path: Path::new(Gid([0; 16]), 0),
            path_mtu: Mtu::B1024,
            timeout: 14,
            retry_cnt: 7,
            rnr_retry: 7,
            min_rnr_timer: 12,
            rq_psn: Psn::new(0),
            sq_psn: Psn::new(0),
            max_rd_atomic: 0,
            max_dest_rd_atomic: 0,
            dest_qp: Qpn::new(0),
            peer_rx: 0,
        }
    }

    /// How much the peer's socket holds, for the path: more may then be in flight. Not an attribute
    /// of verbs, so it has no bit.
    pub(crate) const fn peer_rx(mut self, bytes: u32) -> Self {
        self.peer_rx = bytes;
        self
    }

    /// Goes to `state`, and nothing else yet.
    #[must_use]
    pub const fn to(state: QpState) -> Self {
        Self::new().state(state)
    }

    /// Names further attributes by their bits, for those that have no value here.
    #[must_use]
    pub const fn also(mut self, bits: AttrMask) -> Self {
        self.mask = self.mask.with(bits);
        self
    }

    /// The attributes that are named.
    #[must_use]
    pub const fn mask(&self) -> AttrMask {
        self.mask
    }

    /// Refuses values that no queue pair can have.                    [RoCEv2 4.1]
    pub(crate) fn check_values(&self, max_mtu: Mtu) -> Result<(), Reason> {
        let limits = [
            (AttrMask::PORT, self.port == 1),
            (AttrMask::PKEY_INDEX, self.pkey_index == 0),
            (AttrMask::TIMEOUT, self.timeout <= 31),
            (AttrMask::RETRY_CNT, self.retry_cnt <= 7),
            (AttrMask::RNR_RETRY, self.rnr_retry <= 7),
            (AttrMask::MIN_RNR_TIMER, self.min_rnr_timer <= 31),
            (AttrMask::PATH_MTU, self.path_mtu <= max_mtu),
            (
                AttrMask::MAX_QP_RD_ATOMIC,
                self.max_rd_atomic <= MAX_RD_ATOMIC,
            ),
            (
                AttrMask::MAX_DEST_RD_ATOMIC,
                self.max_dest_rd_atomic <= MAX_RD_ATOMIC,
            ),
            (AttrMask::QKEY, self.qkey.value() >> 31 == 0),
            // Path migration has no meaning on Ethernet.
            (AttrMask::ALT_PATH, false),
            (
                AttrMask::CUR_STATE,
                matches!(
                    self.cur_state,
                    QpState::Rtr | QpState::Rts | QpState::Sqd | QpState::Sqe
                ),
            ),
        ];
        match limits
            .iter()
            .find(|(bit, fits)| self.mask.contains(*bit) && !fits)
        {
            Some((bit, _)) => Err(Reason::AttrValue(*bit)),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use srdma_core::obj::port::Gid;

    #[test]
    fn setters_name_what_they_set_and_merge_takes_only_that() {
        let attr = QpAttr::to(QpState::Rts).timeout(9).sq_psn(Psn::new(77));
        assert_eq!(
            attr.mask(),
            AttrMask::STATE | AttrMask::TIMEOUT | AttrMask::SQ_PSN
        );
        let mut current = QpAttr::new().retry_cnt(3).timeout(1);
        current.merge(&attr);
        assert_eq!((current.timeout, current.retry_cnt), (9, 3));
        assert_eq!(current.sq_psn, Psn::new(77));
    }

    #[test]
    fn what_the_peers_socket_holds_comes_with_the_path() {
        let path = Path::new(Gid::from(std::net::Ipv4Addr::new(127, 0, 0, 9)), 0);
        let mut current = QpAttr::new();
        current.merge(&QpAttr::to(QpState::Rtr).path(path).peer_rx(1 << 20));
        assert_eq!(current.peer_rx, 1 << 20);
        current.merge(&QpAttr::to(QpState::Rts).timeout(9));
        assert_eq!(current.peer_rx, 1 << 20, "no path, no news of the peer");
        current.merge(&QpAttr::new().path(path));
        assert_eq!(current.peer_rx, 0, "a path to an unknown peer");
    }

    #[test]
    fn values_out_of_range_are_named() {
        let cases = [
            (QpAttr::new().port(2), AttrMask::PORT),
            (QpAttr::new().pkey_index(1), AttrMask::PKEY_INDEX),
            (QpAttr::new().timeout(32), AttrMask::TIMEOUT),
            (QpAttr::new().retry_cnt(8), AttrMask::RETRY_CNT),
            (QpAttr::new().rnr_retry(8), AttrMask::RNR_RETRY),
            (QpAttr::new().min_rnr_timer(32), AttrMask::MIN_RNR_TIMER),
            (QpAttr::new().path_mtu(Mtu::B4096), AttrMask::PATH_MTU),
            (QpAttr::new().max_rd_atomic(129), AttrMask::MAX_QP_RD_ATOMIC),
            (QpAttr::new().qkey(Qkey(1 << 31)), AttrMask::QKEY),
            (QpAttr::new().also(AttrMask::ALT_PATH), AttrMask::ALT_PATH),
            (QpAttr::new().if_state(QpState::Init), AttrMask::CUR_STATE),
        ];
        for (attr, bit) in cases {
            let Err(Reason::AttrValue(named)) = attr.check_values(Mtu::B2048) else {
                panic!("{bit} passed");
            };
            assert_eq!(named, bit);
        }
        let fits = QpAttr::new().timeout(31).path_mtu(Mtu::B2048);
        fits.check_values(Mtu::B2048).unwrap();
    }
}
