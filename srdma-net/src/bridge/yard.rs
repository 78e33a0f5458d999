//! The memory that a device receives in, as both ends see it.

use crate::sys::addr::{narrow, widen};
use crate::sys::lock::{self, Mode};
use crate::sys::shm::{Map, Shm};
use core::ops::Range;
use std::fs::File;
use std::io;
use std::net::{Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering, fence};

const MAGIC: u64 = u64::from_le_bytes(*b"srdma\0y1");
pub(super) const OPEN_AT: usize = 0;
const RUNG_AT: usize = 64;
const SLEEPERS_AT: usize = 128;
pub(super) const USED_AT: usize = 192;
const DOORS_AT: usize = 256;
const DOOR: usize = 32;
pub(super) const DOORS: usize = srdma_core::limits::MAX_GIDS;
pub(super) const LANES_AT: usize = 4096;
pub(super) const LANE: usize = 256;
/// Senders at a time; further ones use sockets.
pub(super) const LANES: usize = 64;
/// A multiple of the size of any page.
const RINGS_AT: usize = 65536;
/// Bytes of a ring, a power of two: more than what reliable services have under way to one peer,
/// so that these never find a lane full.
pub(super) const RING: usize = 1 << 22;
const SIZE: usize = RINGS_AT + LANES * RING;
/// Locked while the owner lives.
pub(super) const LOCK_LIFE: i64 = 1 << 20;
/// What records begin at multiples of, so that both sides do not write to one cache line.
pub(super) const ALIGN: usize = 64;
/// The word before the packets of a record.
pub(super) const HEADER: usize = 8;

const _: () = assert!(DOORS_AT + DOORS * DOOR <= LANES_AT);
const _: () = assert!(LANES_AT + LANES * LANE <= RINGS_AT);
const _: () = assert!(RING.is_power_of_two() && RING <= u32::MAX as usize && LANES <= 64);
// No file of huge pages has this size: those can fail to be there when they are used.
const _: () = assert!(!SIZE.is_multiple_of(1 << 21));

/// Who sleeps on the sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sleeper {
    /// The background thread.
    Thread,
    /// A program thread that is parked.
    Parked,
}

impl Sleeper {
    const fn bit(self) -> u64 {
        match self {
            Self::Thread => 1,
            Self::Parked => 2,
        }
    }
}

/// The memory that a device receives in.
#[derive(Debug)]
pub(super) struct Yard(Shm);

impl Yard {
    /// A new one, open.
    pub(super) fn create() -> io::Result<Self> {
        let this = Self(Shm::create(SIZE, RINGS_AT)?);
        if !lock::try_lock(this.fd(), LOCK_LIFE, 1, Mode::Alone)? {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        this.word(OPEN_AT).store(MAGIC, Ordering::Release);
        Ok(this)
    }

    /// The one that the link at `path` leads to, if its owner lives.
    fn follow(path: &Path) -> io::Result<Self> {
        let this = Self(Shm::attach(open(path)?, SIZE, RINGS_AT)?);
        if this.is_open() && this.lives() {
            Ok(this)
        } else {
            Err(io::ErrorKind::NotFound.into())
        }
    }

    /// Somebody else's, which receives for `target`, by the link at `path`.
    pub(super) fn attach(path: &Path, target: SocketAddr) -> io::Result<Self> {
        let this = Self::follow(path)?;
        if (0..DOORS).any(|door| this.addr(door_at(door)) == Some(target)) {
            Ok(this)
        } else {
            Err(io::ErrorKind::NotFound.into())
        }
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.0.fd()
    }

    #[inline]
    pub(super) fn word(&self, at: usize) -> &AtomicU64 {
        word(self.0.head(), at)
    }

    pub(super) fn is_open(&self) -> bool {
        self.word(OPEN_AT).load(Ordering::Relaxed) == MAGIC
    }

    /// The owner has not died. Costs a system call; for others than the owner.
    pub(super) fn lives(&self) -> bool {
        lock::is_locked(self.fd(), LOCK_LIFE, 1).unwrap_or(false)
    }

    /// Tells the owner of records. True: it sleeps, and has to be woken.
    pub(super) fn ring(&self) -> bool {
        self.word(RUNG_AT).fetch_add(1, Ordering::SeqCst);
        // Pairs with the fence in `lie_down`: either it sees the ring, or we see it asleep.
        fence(Ordering::SeqCst);
        self.sleeps()
    }

    fn sleeps(&self) -> bool {
        self.word(SLEEPERS_AT).load(Ordering::Relaxed) != 0
    }

    /// It receives for `addr` at door `index`.
    pub(super) fn set_door(&self, index: usize, addr: SocketAddr) {
        self.set_addr(door_at(index), addr);
    }

    /// The address and port that stand at `at`.
    pub(super) fn addr(&self, at: usize) -> Option<SocketAddr> {
        let [head, high, low] = [0, 8, 16].map(|off| self.word(at + off).load(Ordering::Relaxed));
        let wide = Ipv6Addr::from(u128::from(high) << 64 | u128::from(low));
        let port = u16::try_from(head & 0xffff).ok()?;
        let family = u8::try_from(head >> 16).ok()?;
        Some(SocketAddr::new(narrow(family, wide)?, port))
    }

    pub(super) fn set_addr(&self, at: usize, addr: SocketAddr) {
        let (family, ip) = widen(addr.ip());
        let [a, b, c, d, e, f, g, h] = ip.segments().map(u64::from);
        let [high, low] = [[a, b, c, d], [e, f, g, h]].map(|four| {
            let joined = four.into_iter().reduce(|high, low| high << 16 | low);
            joined.unwrap_or(0)
        });
        let words = [u64::from(family) << 16 | u64::from(addr.port()), high, low];
        for (word, off) in words.into_iter().zip([0, 8, 16]) {
            self.word(at + off).store(word, Ordering::Relaxed);
        }
    }

    /// The words of lane `index`.
    pub(super) const fn lane(&self, index: usize) -> LaneWords<'_> {
        LaneWords {
            yard: self,
            at: LANES_AT + index * LANE,
        }
    }

    /// The ring of lane `index`.
    pub(super) fn map_ring(&self, index: usize) -> io::Result<Ring> {
        Ok(Ring(self.0.window(RINGS_AT + index * RING, RING)?))
    }
}

const fn door_at(index: usize) -> usize {
    DOORS_AT + index * DOOR
}

fn word(map: &Map, at: usize) -> &AtomicU64 {
    static NOWHERE: AtomicU64 = AtomicU64::new(0);
    map.word(at).unwrap_or(&NOWHERE)
}

/// What both ends know of a lane.
pub(super) struct LaneWords<'a> {
    yard: &'a Yard,
    at: usize,
}

impl<'a> LaneWords<'a> {
    /// Written by the sender: bytes put in; how many senders there were; where it is, and to whom
    /// it sends.
    const END: usize = 0;
    const TURN: usize = 128;
    const SOURCE: usize = 136;
    const TARGET: usize = 160;
    /// Written by the owner: bytes taken out; the turn of the last sender that it refused.
    const START: usize = 64;
    // Not beside `start`: senders look at it with each record, and that changes with each.
    const REFUSED: usize = 192;

    pub(super) fn end(&self) -> &'a AtomicU64 {
        self.yard.word(self.at + Self::END)
    }

    pub(super) fn start(&self) -> &'a AtomicU64 {
        self.yard.word(self.at + Self::START)
    }

    pub(super) fn turn(&self) -> &'a AtomicU64 {
        self.yard.word(self.at + Self::TURN)
    }

    pub(super) fn refused(&self) -> &'a AtomicU64 {
        self.yard.word(self.at + Self::REFUSED)
    }

    pub(super) const fn source(&self) -> usize {
        self.at + Self::SOURCE
    }

    pub(super) const fn target(&self) -> usize {
        self.at + Self::TARGET
    }
}

/// The bytes of a lane.
#[derive(Debug)]
pub(super) struct Ring(Map);

impl Ring {
    /// The word of the record that begins at position `at`.
    #[inline]
    pub(super) fn header(&self, at: u64) -> &AtomicU64 {
        word(&self.0, place_in(at))
    }

    /// Where the bytes are.
    pub(super) const fn map(&self) -> &Map {
        &self.0
    }

    /// The parts of `len` bytes from position `at` on: what lies before the end of the ring, and
    /// what behind it, as offset into the bytes and place in the ring.
    pub(super) fn parts(at: u64, len: usize) -> [(Range<usize>, usize); 2] {
        let at = place_in(at);
        let first = len.min(RING - at);
        [(0..first, at), (first..len, 0)]
    }
}

/// Where position `at` lies in a ring.
fn place_in(at: u64) -> usize {
    usize::try_from(at % RING as u64).unwrap_or(0)
}

/// What a record of `len` bytes of packets takes up.
pub(super) fn room_of(len: usize) -> u64 {
    (HEADER + len).next_multiple_of(ALIGN) as u64
}

/// A device's own yard, and how far it has looked.
#[derive(Debug)]
pub(crate) struct OwnYard {
    pub(super) yard: Yard,
    /// The rings up to which everything has been taken.
    seen: AtomicU64,
}

impl OwnYard {
    pub(super) fn create() -> io::Result<Self> {
        Ok(Self {
            yard: Yard::create()?,
            seen: AtomicU64::new(0),
        })
    }

    /// How often it was rung, if that is news.
    #[inline]
    pub(super) fn rang(&self) -> Option<u64> {
        let rung = self.yard.word(RUNG_AT).load(Ordering::Acquire);
        (rung != self.seen.load(Ordering::Relaxed)).then_some(rung)
    }

    /// All that was there at ring `rung` has been taken.
    pub(super) fn saw(&self, rung: u64) {
        self.seen.store(rung, Ordering::Relaxed);
    }

    /// For who is about to sleep on the sockets: senders will wake it. True: something has come
    /// already.
    // rule: bridge-4
    pub(crate) fn lie_down(&self, who: Sleeper) -> bool {
        let sleepers = self.yard.word(SLEEPERS_AT);
        sleepers.fetch_or(who.bit(), Ordering::Relaxed);
        fence(Ordering::SeqCst);
        self.rang().is_some()
    }

    /// It is awake.
    pub(crate) fn get_up(&self, who: Sleeper) {
        let sleepers = self.yard.word(SLEEPERS_AT);
        sleepers.fetch_and(!who.bit(), Ordering::Relaxed);
    }

    /// Somebody sleeps.
    #[cfg(test)]
    pub(crate) fn sleeps(&self) -> bool {
        self.yard.sleeps()
    }

    /// Something lies there while somebody sleeps: whoever has looked at the sockets meanwhile may
    /// have taken what was to wake the sleeper.
    #[inline]
    pub(crate) fn has_left_a_sleeper(&self) -> bool {
        self.rang().is_some() && self.yard.sleeps()
    }
}

/// True if the link at `path` surely leads to no yard of a process that lives.
pub(crate) fn is_dead(path: &Path) -> bool {
    let file = match open(path) {
        Ok(file) => file,
        Err(error) => return error.kind() == io::ErrorKind::NotFound,
    };
    match Shm::attach(file, SIZE, RINGS_AT).map(Yard) {
        Ok(yard) => !yard.is_open() || !yard.lives(),
        // It has no seals. Others may be yards of another build, or cannot be mapped just now.
        Err(error) => error.kind() == io::ErrorKind::InvalidInput,
    }
}

/// Whatever the link at `path` leads to now is opened and nothing else: it does not wait, and
/// becomes nobody's terminal.
fn open(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    let flags = libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOCTTY;
    let options = options.read(true).write(true).custom_flags(flags);
    options.open(path)
}

/// Makes memory and finds it as another process would; fails where devices cannot share any.
pub(crate) fn check() -> io::Result<()> {
    let ours = Yard::create()?;
    let path = format!("/proc/{}/fd/{}", std::process::id(), ours.fd().as_raw_fd());
    Yard::follow(Path::new(&path)).map(drop)
}
