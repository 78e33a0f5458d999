//! The receiving end: what lies in our own yard, for the device.

use super::yard::{
    DOORS, HEADER, LANES, LOCK_LIFE, LaneWords, OPEN_AT, OwnYard, RING, Ring, USED_AT, room_of,
};
use crate::offload::GSO_PACKETS;
use crate::rx::ecn;
use crate::sys::lock;
use crate::sys::slab::{SLOT, Slabs};
use srdma_core::rx::RxMeta;
use srdma_core::wire::BTH_LEN;
use srdma_core::wire::flow::Ecn;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

/// Records of one lane in one pass …
pub(super) const RECORDS: usize = 16;
/// … and about so many bytes of them: then it is time for acknowledgements, for which the sender
/// waits.
pub(super) const BYTES: usize = 128 << 10;

/// What has come over the bridge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct InboxCounters {
    /// Records taken.
    pub(super) records: u64,
    /// Bytes of packets in them.
    pub(super) bytes: u64,
    /// Senders that came.
    pub(super) senders: u64,
    /// Senders whose lane held something that makes no sense, and that were not heard any more.
    pub(super) refused: u64,
}

/// What we know of a lane.
#[derive(Debug, Default)]
struct Lane {
    /// The sender that we hear, by its turn.
    turn: u64,
    /// The one that has come.
    noticed: u64,
    start: u64,
    ring: Option<Ring>,
    /// Who sends, to whom; `None` if it is not heard.
    meta: Option<RxMeta>,
}

impl Lane {
    /// Its sender is not heard any more, and told so. Whoever has the lane next begins where we
    /// stand, whatever stood there meanwhile.
    fn refuse(&mut self, words: &LaneWords<'_>) {
        self.meta = None;
        words.start().store(self.start, Ordering::Relaxed);
        words.refused().store(self.turn, Ordering::Release);
    }
}

/// A device's own yard.
#[derive(Debug)]
pub(crate) struct Inbox {
    own: Arc<OwnYard>,
    lanes: [Lane; LANES],
    doors: Vec<SocketAddr>,
    links: Vec<PathBuf>,
    /// Where the links lead.
    place: PathBuf,
    /// Whoever made it: a child after a fork does not close it.
    process: u32,
    slabs: Slabs,
    counters: InboxCounters,
}

impl Inbox {
    pub(super) fn open() -> io::Result<Self> {
        let own = Arc::new(OwnYard::create()?);
        let process = std::process::id();
        let fd = own.yard.fd().as_raw_fd();
        Ok(Self {
            own,
            lanes: std::array::from_fn(|_| Lane::default()),
            doors: Vec::new(),
            links: Vec::new(),
            place: format!("/proc/{process}/fd/{fd}").into(),
            process,
            slabs: Slabs::new(1),
            counters: InboxCounters::default(),
        })
    }

    pub(crate) const fn own(&self) -> &Arc<OwnYard> {
        &self.own
    }

    pub(super) const fn counters(&self) -> &InboxCounters {
        &self.counters
    }

    /// The addresses and ports that it receives for.
    #[cfg(test)]
    pub(super) fn doors(&self) -> &[SocketAddr] {
        &self.doors
    }

    /// Records that were kept for what waits in them.
    pub(super) const fn kept(&self) -> u64 {
        self.slabs.replaced()
    }

    /// Receives for `at` as well, which others find by a link at `path`.
    pub(super) fn receive_for(&mut self, at: SocketAddr, path: PathBuf) -> io::Result<()> {
        let door = self.doors.len();
        if door >= DOORS {
            return Err(io::ErrorKind::StorageFull.into());
        }
        // Whoever finds the link finds the door.
        self.own.yard.set_door(door, at);
        // What is there is of a process that is gone: the port is ours.
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        std::os::unix::fs::symlink(&self.place, &path)?;
        self.doors.push(at);
        self.links.push(path);
        Ok(())
    }

    /// True if something has come.
    #[inline]
    pub(crate) fn rang(&self) -> bool {
        self.own.rang().is_some()
    }

    fn used(&self) -> u64 {
        self.own.yard.word(USED_AT).load(Ordering::Acquire)
    }

    /// Looks for new senders. True if there are some: what they sent before lies in the sockets,
    /// and has to be taken before they are [greeted](Self::greet).
    pub(crate) fn notice(&mut self) -> bool {
        let mut any = false;
        for index in bits(self.used()) {
            let turn = self.own.yard.lane(index).turn().load(Ordering::Acquire);
            if let Some(lane) = self.lanes.get_mut(index) {
                // An odd one is being made known.
                if turn.is_multiple_of(2) {
                    lane.noticed = turn;
                    any |= lane.turn != turn;
                }
            }
        }
        any
    }

    /// From now on the senders that were noticed are heard.
    pub(crate) fn greet(&mut self) {
        let yard = &self.own.yard;
        for (index, lane) in self.lanes.iter_mut().enumerate() {
            if lane.noticed == lane.turn {
                continue;
            }
            let words = yard.lane(index);
            let source = yard.addr(words.source());
            let target = yard.addr(words.target());
            // Pairs with that in `announce`. It has gone already, and another came: that one is
            // noticed next.
            fence(Ordering::Acquire);
            if words.turn().load(Ordering::Relaxed) != lane.noticed {
                continue;
            }
            lane.turn = lane.noticed;
            self.counters.senders += 1;
            if lane.ring.is_none() {
                lane.ring = yard.map_ring(index).ok();
            }
            let ours = target.filter(|target| self.doors.contains(target));
            lane.meta = source
                .zip(ours)
                .filter(|(source, target)| source.is_ipv4() == target.is_ipv4())
                .filter(|_| lane.ring.is_some())
                .map(|(source, target)| RxMeta {
                    source,
                    local: target.ip(),
                    port: target.port(),
                    ecn: Ecn::NotEct,
                    tclass: 0,
                    hop_limit: 0,
                    stride: 0,
                    first: 0,
                });
            if lane.meta.is_none() {
                self.counters.refused += 1;
                lane.refuse(&words);
            }
        }
    }

    /// Takes some of what has come; returns how many records that was.
    pub(crate) fn take(&mut self, mut f: impl FnMut(&RxMeta, &[u8], &Slabs)) -> usize {
        let Some(rung) = self.own.rang() else {
            return 0;
        };
        let (mut total, mut all) = (0, true);
        for index in bits(self.used()) {
            let (taken, more) = self.take_from(index, &mut f);
            total += taken;
            all &= !more;
        }
        if all {
            self.own.saw(rung);
        }
        total
    }

    /// How many records were taken from a lane, and whether there may be more.
    fn take_from(
        &mut self,
        index: usize,
        f: &mut impl FnMut(&RxMeta, &[u8], &Slabs),
    ) -> (usize, bool) {
        let Self {
            own,
            lanes,
            slabs,
            counters,
            ..
        } = self;
        let Some(lane) = lanes.get_mut(index) else {
            return (0, false);
        };
        let words = own.yard.lane(index);
        let (mut taken, mut bytes) = (0, 0);
        while taken < RECORDS && bytes < BYTES {
            let end = words.end().load(Ordering::Acquire);
            let waiting = end.wrapping_sub(lane.start);
            if waiting == 0 {
                return (taken, false);
            }
            // What another sender put in is read when it has been greeted.
            if words.turn().load(Ordering::Acquire) != lane.turn {
                return (taken, true);
            }
            let (Some(meta), Some(ring)) = (&mut lane.meta, &lane.ring) else {
                return (taken, false);
            };
            slabs.replace_lent(0);
            let Some(len) = read(ring, (lane.start, waiting), meta, slabs) else {
                counters.refused += 1;
                lane.refuse(&words);
                return (taken, false);
            };
            lane.start = lane.start.wrapping_add(room_of(len));
            words.start().store(lane.start, Ordering::Release);
            taken += 1;
            bytes += len;
            counters.records += 1;
            counters.bytes += len as u64;
            let packets = slabs.slab(0).and_then(|slab| slab.get(..len));
            f(meta, packets.unwrap_or_default(), slabs);
        }
        (taken, true)
    }
}

/// Copies the record at `start` out, of `waiting` bytes that lie there; returns its length. `None`
/// if it makes no sense.
// rule: bridge-2
fn read(
    ring: &Ring,
    (start, waiting): (u64, u64),
    meta: &mut RxMeta,
    slabs: &mut Slabs,
) -> Option<usize> {
    /// No packet is shorter.
    const LEAST: usize = BTH_LEN + 4;
    let header = ring.header(start).load(Ordering::Relaxed).to_le_bytes();
    let [a, b, c, d, s0, s1, tclass, hop_limit] = header;
    let len = usize::try_from(u32::from_le_bytes([a, b, c, d])).ok()?;
    let stride = usize::from(u16::from_le_bytes([s0, s1]));
    if len == 0 || len > SLOT || waiting > RING as u64 || room_of(len) > waiting {
        return None;
    }
    let alone = stride >= len;
    let many = stride >= LEAST && len.div_ceil(stride) <= usize::from(GSO_PACKETS);
    if !alone && !many {
        return None;
    }
    let slab = slabs.slab_mut(0)?;
    for (part, at) in Ring::parts(start.wrapping_add(HEADER as u64), len) {
        ring.map().get(at, slab.get_mut(part)?);
    }
    meta.tclass = tclass;
    meta.ecn = ecn(tclass);
    meta.hop_limit = hop_limit;
    meta.stride = stride;
    Some(len)
}

/// The numbers of the lanes of a mask.
fn bits(mut mask: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let index = (mask != 0).then(|| mask.trailing_zeros() as usize)?;
        mask &= mask - 1;
        (index < LANES).then_some(index)
    })
}

impl Drop for Inbox {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            return;
        }
        self.own.yard.word(OPEN_AT).store(0, Ordering::Release);
        // A child after a fork has the file open, too.
        let _ = lock::unlock(self.own.yard.fd(), LOCK_LIFE, 1);
        for link in &self.links {
            // Whoever has the port by now may have a link of its own there.
            if std::fs::read_link(link).is_ok_and(|place| place == self.place) {
                let _ = std::fs::remove_file(link);
            }
        }
    }
}
