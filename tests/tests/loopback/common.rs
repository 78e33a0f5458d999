//! Devices, connected pairs, and waiting for completions.

use srdma_verbs::{
    Access, Completion, Context, Cq, DeviceConfig, Mr, Pd, Qp, QpBuilder, QpType, WcStatus,
};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

/// What an untuned machine gives a socket.
pub(crate) const SMALL_BUFFER: u32 = 212_992;

/// Looks that give way only, then looks a millisecond apart, after which something counts as
/// missing.
const QUICK_LOOKS: u32 = 20_000;
const SLOW_LOOKS: u32 = 30_000;

/// How a device uses its sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sockets {
    pub(crate) gso: bool,
    pub(crate) gro: bool,
    pub(crate) small: bool,
}

impl Sockets {
    pub(crate) const DEFAULT: Self = Self {
        gso: true,
        gro: true,
        small: false,
    };

    /// All eight ways.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        (0..8).map(|bits| Self {
            gso: bits & 1 == 0,
            gro: bits & 2 == 0,
            small: bits & 4 != 0,
        })
    }

    pub(crate) fn on(self, addr: IpAddr) -> DeviceConfig {
        let config = DeviceConfig::new().addr(addr).gso(self.gso).gro(self.gro);
        if self.small {
            config.receive_buffer_cap(SMALL_BUFFER)
        } else {
            config
        }
    }
}

/// A loopback address that nothing else has: not in this process, nor in another.
pub(crate) fn address() -> IpAddr {
    static NEXT: AtomicU8 = AtomicU8::new(2);
    let [low, high, ..] = std::process::id().to_le_bytes();
    let last = NEXT.fetch_add(1, Ordering::Relaxed);
    assert!(last < 255, "out of addresses");
    Ipv4Addr::new(127, 64 + (high & 0x7f), low, last).into()
}

pub(crate) struct Side {
    pub(crate) ctx: Context,
    pub(crate) pd: Pd,
    pub(crate) cq: Cq,
}

impl Side {
    pub(crate) fn new(config: DeviceConfig) -> Self {
        let ctx = config.open().unwrap();
        let pd = ctx.alloc_pd().unwrap();
        let cq = ctx.create_cq(8192).build().unwrap();
        Self { ctx, pd, cq }
    }

    pub(crate) fn qp(&self, qp_type: QpType) -> QpBuilder<'_> {
        self.pd
            .create_qp(qp_type)
            .send_cq(&self.cq)
            .recv_cq(&self.cq)
            .max_send_sge(4)
            // A second: what a busy machine delays is not sent twice, and so cannot fill a socket.
            .timeout(18)
    }

    pub(crate) fn mr(&self, len: usize) -> Mr {
        let all = Access::LOCAL_WRITE | Access::REMOTE;
        let memory = srdma_verbs::Buffer::zeroed(len).unwrap();
        self.pd.register(memory, all).unwrap()
    }

    pub(crate) fn pattern(&self, len: usize, seed: u8) -> Mr {
        let mr = self.mr(len);
        mr.write(0, &pattern(len, seed)).unwrap();
        mr
    }

    /// Packets that the kernel dropped because our socket was full.
    pub(crate) fn dropped(&self) -> u64 {
        self.link("socket_rx_dropped_full")
    }

    pub(crate) fn link(&self, name: &str) -> u64 {
        let counters = self.ctx.link_counters();
        let found = counters.iter().find(|(known, _)| *known == name);
        found.unwrap_or_else(|| panic!("no counter {name}")).1
    }
}

/// Bytes that differ from place to place.
pub(crate) fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len)
        .map(|at| (at as u8).wrapping_mul(31) ^ (at >> 8) as u8 ^ (at >> 16) as u8 ^ seed)
        .collect()
}

pub(crate) struct Pair {
    pub(crate) a: Side,
    pub(crate) b: Side,
    pub(crate) qa: Qp,
    pub(crate) qb: Qp,
}

pub(crate) fn connect(a: &QpBuilder<'_>, b: &QpBuilder<'_>) -> (Qp, Qp) {
    let (a, b) = (a.clone().build().unwrap(), b.clone().build().unwrap());
    let (ea, eb) = (a.endpoint(), b.endpoint());
    (a.connect(&eb).unwrap(), b.connect(&ea).unwrap())
}

pub(crate) fn pair(qp_type: QpType, sockets: Sockets, addrs: (IpAddr, IpAddr)) -> Pair {
    let a = Side::new(sockets.on(addrs.0));
    let b = Side::new(sockets.on(addrs.1));
    let (qa, qb) = connect(&a.qp(qp_type), &b.qp(qp_type));
    Pair { a, b, qa, qb }
}

/// The next completion of `cq`, if one comes.
pub(crate) fn wait(cq: &Cq) -> Option<Completion> {
    for look in 0..QUICK_LOOKS + SLOW_LOOKS {
        if let Some(wc) = cq.poll().next() {
            return Some(wc.to_completion());
        }
        if look < QUICK_LOOKS {
            std::thread::yield_now();
        } else {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    None
}

/// The next completion of `cq`.
pub(crate) fn next(cq: &Cq) -> Completion {
    wait(cq).unwrap_or_else(|| panic!("no completion in {cq:?}"))
}

/// The next completion, which must be a success.
pub(crate) fn done(cq: &Cq) -> Completion {
    let completion = next(cq);
    assert!(completion.is_ok(), "{completion:?}");
    completion
}

/// Waits until `check` holds.
pub(crate) fn until(what: &str, mut check: impl FnMut() -> bool) {
    for _ in 0..SLOW_LOOKS {
        if check() {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("waited in vain for: {what}");
}

pub(crate) fn assert_flushed(cq: &Cq, ids: impl IntoIterator<Item = u64>) {
    for id in ids {
        let completion = next(cq);
        assert_eq!(completion.status(), WcStatus::WrFlushErr, "{completion:?}");
        assert_eq!(completion.wr_id().0, id);
    }
}

pub(crate) fn assert_quiet(cq: &Cq) {
    for _ in 0..100 {
        if let Some(wc) = cq.poll().next() {
            panic!("unexpected {:?}", wc.to_completion());
        }
    }
}
