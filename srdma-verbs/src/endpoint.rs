//! What a peer must know of a queue pair to connect to it: exchanged out of band, as text or bytes.
//!
//! ```json
//! {"gid":"::ffff:127.0.0.1","qpn":4660,"psn":77,"mtu":4096,"rd_atomic":16,
//!  "rx_buffer":0,"service":"RC"}
//! ```

use core::fmt;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use srdma_core::num::{Psn, Qpn};
use srdma_core::obj::port::{Gid, Mtu};
use srdma_core::qp::attr::QpType;
use std::net::Ipv6Addr;

/// One end of a connection to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QpEndpoint {
    pub(crate) gid: Gid,
    pub(crate) qpn: Qpn,
    pub(crate) psn: Psn,
    pub(crate) mtu: Mtu,
    pub(crate) rd_atomic: u8,
    pub(crate) rx_buffer: u32,
    pub(crate) qp_type: QpType,
}

impl QpEndpoint {
    /// From its parts, for peers of another kind; 16 READs and atomics at a time.
    #[must_use]
    pub const fn new(qp_type: QpType, gid: Gid, qpn: Qpn, psn: Psn, mtu: Mtu) -> Self {
        Self {
            gid,
            qpn,
            psn,
            mtu,
            rd_atomic: 16,
            rx_buffer: 0,
            qp_type,
        }
    }

    /// READs and atomics that the other end may have outstanding here.
    #[must_use]
    pub const fn with_rd_atomic(mut self, count: u8) -> Self {
        self.rd_atomic = count;
        self
    }

    /// The address.
    #[must_use]
    pub const fn gid(&self) -> Gid {
        self.gid
    }

    /// The queue pair's number.
    #[must_use]
    pub const fn qpn(&self) -> Qpn {
        self.qpn
    }

    /// The first PSN that it sends.
    #[must_use]
    pub const fn psn(&self) -> Psn {
        self.psn
    }

    /// The largest path MTU that it takes.
    #[must_use]
    pub const fn mtu(&self) -> Mtu {
        self.mtu
    }

    /// READs and atomics that the other end may have outstanding here.
    #[must_use]
    pub const fn rd_atomic(&self) -> u8 {
        self.rd_atomic
    }

    /// The transport service.
    #[must_use]
    pub const fn qp_type(&self) -> QpType {
        self.qp_type
    }
}

/// The endpoint as it is written down.
#[derive(Serialize, Deserialize)]
struct Wire {
    gid: Ipv6Addr,
    qpn: u32,
    psn: u32,
    mtu: u16,
    rd_atomic: u8,
    /// Receive buffer of its socket in bytes; 0 or absent if not known.
    #[serde(default)]
    rx_buffer: u32,
    service: Service,
}

#[derive(Serialize, Deserialize, Clone, Copy)]
enum Service {
    #[serde(rename = "RC")]
    Rc,
    #[serde(rename = "UC")]
    Uc,
    #[serde(rename = "UD")]
    Ud,
    #[serde(rename = "GSI")]
    Gsi,
    #[serde(rename = "XRC_SEND")]
    XrcSend,
    #[serde(rename = "XRC_RECV")]
    XrcRecv,
}

/// Why text or bytes are no endpoint.
#[derive(Debug)]
struct BadField(&'static str);

impl fmt::Display for BadField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is out of range", self.0)
    }
}

impl Serialize for QpEndpoint {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let service = match self.qp_type {
            QpType::Rc => Service::Rc,
            QpType::Uc => Service::Uc,
            QpType::Gsi => Service::Gsi,
            QpType::XrcSend => Service::XrcSend,
            QpType::XrcRecv => Service::XrcRecv,
            _ => Service::Ud,
        };
        let wire = Wire {
            gid: Ipv6Addr::from(self.gid.0),
            qpn: self.qpn.value(),
            psn: self.psn.value(),
            mtu: self.mtu.bytes(),
            rd_atomic: self.rd_atomic,
            rx_buffer: self.rx_buffer,
            service,
        };
        wire.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for QpEndpoint {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use serde::de::Error;
        let wire = Wire::deserialize(deserializer)?;
        let number = |name, value: u32| {
            if value < 1 << 24 {
                Ok(value)
            } else {
                Err(D::Error::custom(BadField(name)))
            }
        };
        let mtu = Mtu::from_bytes(wire.mtu).ok_or_else(|| D::Error::custom(BadField("mtu")))?;
        Ok(Self {
            gid: Gid(wire.gid.octets()),
            qpn: Qpn::new(number("qpn", wire.qpn)?),
            psn: Psn::new(number("psn", wire.psn)?),
            mtu,
            rd_atomic: wire.rd_atomic,
            rx_buffer: wire.rx_buffer,
            qp_type: match wire.service {
                Service::Rc => QpType::Rc,
                Service::Uc => QpType::Uc,
                Service::Ud => QpType::Ud,
                Service::Gsi => QpType::Gsi,
                Service::XrcSend => QpType::XrcSend,
                Service::XrcRecv => QpType::XrcRecv,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn endpoints_survive_text() {
        let gid = Gid::from(Ipv4Addr::new(127, 0, 0, 1));
        let end = QpEndpoint::new(QpType::Rc, gid, Qpn::new(4660), Psn::new(77), Mtu::B4096);
        let text = serde_json::to_string(&end).unwrap();
        let expected = concat!(
            r#"{"gid":"::ffff:127.0.0.1","qpn":4660,"psn":77,"#,
            r#""mtu":4096,"rd_atomic":16,"rx_buffer":0,"service":"RC"}"#
        );
        assert_eq!(text, expected);
        let older = text.replace(r#""rx_buffer":0,"#, "");
        assert_eq!(serde_json::from_str::<QpEndpoint>(&older).unwrap(), end);
        assert_eq!(serde_json::from_str::<QpEndpoint>(&text).unwrap(), end);
        for (from, to) in [
            ("4660", "16777216"),
            ("4096", "4095"),
            ("RC", "XX"),
            (":77", ":-1"),
        ] {
            let bad = text.replace(from, to);
            assert!(serde_json::from_str::<QpEndpoint>(&bad).is_err(), "{bad}");
        }
    }
}
