//! Several processes on one address, without a daemon.
//!
//! ```text
//!                  addr:4791  ("the door": all bind it, the kernel gives the first one everything)
//!                      │ for others ─ passed on ─┐
//!   process A  addr:51003  blocks 17, 90         ▼          local peers send here directly
//!   process B  addr:49811  block 18          B's own port
//! ```
//!
//! Queue pair numbers are divided into 4,096 blocks of 4,096. A process takes a block when it opens
//! a device, and more as it needs them; the registry of the address says which port a block's
//! packets go to. A sender on this machine looks there; peers elsewhere send to 4791.
//!
//! | who dies | who notices |
//! |---|---|
//! | any process | its locks go, so its blocks are free; a sender looks again after a time-out |
//! | the one at the door | the kernel, which gives the door to the process that came last |
//! | a process in the middle of a change | nobody: locks are tried, never waited for |
//!
//! What this file does not do: pass packets on (`door.rs`).

pub(crate) mod door;
pub(crate) mod owner;
mod place;
mod registry;

use crate::error::NetError;
use crate::socket::{ROCE_PORT, RoceSocket, SocketConfig};
use place::Place;
use registry::{Holder, Registry};
use srdma_core::hca::ports::{BLOCK_BITS, BLOCKS, Home, Lookup};
use std::collections::HashSet;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

/// Blocks that nobody takes: numbers 0 and 1 are in the first, that of multicast in the last.
const RESERVED: [u16; 2] = [0, BLOCKS - 1];
/// How often to look again while processes come and go at the door, a millisecond apart.
const DOOR_TRIES: u32 = 200;

/// One address of the device.
#[derive(Debug)]
struct Member {
    addr: IpAddr,
    home: Home,
    registry: Registry,
}

/// What a device has in the registries of its addresses.
#[derive(Debug)]
pub(crate) struct Share {
    place: Place,
    members: RwLock<Vec<Arc<Member>>>,
    /// Blocks or addresses are being added.
    growing: Mutex<()>,
    /// Our own blocks, a bit each.
    own: [AtomicU64; BLOCKS as usize / 64],
}

/// Opens the sockets of all addresses and takes the first block. No `Share`: this system has no
/// place for a registry, and the device has its addresses alone.
pub(crate) fn open(
    addrs: &[IpAddr],
    settings: &SocketConfig,
) -> Result<(Vec<RoceSocket>, Option<Arc<Share>>), NetError> {
    let mut sockets = Vec::new();
    for addr in addrs {
        sockets.push(RoceSocket::open_private(*addr, settings)?);
    }
    let Some(place) = Place::find()? else {
        for socket in &mut sockets {
            socket.open_door(false)?;
        }
        return Ok((sockets, None));
    };
    place.sweep();
    let mut members = Vec::new();
    for socket in &sockets {
        members.push(Arc::new(Member::of(socket, &place)?));
    }
    let share = Share {
        place,
        members: RwLock::new(members),
        growing: Mutex::default(),
        own: [const { AtomicU64::new(0) }; _],
    };
    if share.claim()?.is_none() {
        return Err(NetError::NoBlock);
    }
    for (socket, member) in sockets.iter_mut().zip(&*share.members()) {
        enter(socket, &member.registry)?;
    }
    Ok((sockets, Some(Arc::new(share))))
}

/// Opens the sockets of one more address of a device that is open.
///
/// Fails if one of our blocks is another process's there: then that address cannot be ours too.
pub(crate) fn join(
    share: Option<&Arc<Share>>,
    addr: IpAddr,
    settings: &SocketConfig,
) -> Result<RoceSocket, NetError> {
    let mut socket = RoceSocket::open_private(addr, settings)?;
    match share {
        None => socket.open_door(false)?,
        Some(share) => share.join(&mut socket)?,
    }
    Ok(socket)
}

impl Member {
    fn of(socket: &RoceSocket, place: &Place) -> Result<Self, NetError> {
        let addr = socket.local();
        Ok(Self {
            addr,
            home: Home {
                port: socket.tx_port(),
                rx_bytes: socket.told_rx(),
            },
            registry: Registry::open(&place.file(addr))?,
        })
    }
}

/// Binds port 4791 beside the processes that the registry knows. Whoever else has it is none that
/// we could share it with.
fn enter(socket: &mut RoceSocket, registry: &Registry) -> Result<(), NetError> {
    let mut tries = 0;
    loop {
        let entered = if registry.has_others() {
            socket.open_door(true)
        } else {
            // Alone it must be free: a door that is open to others would also let in whom we do
            // not know of.
            socket.try_door().and_then(|()| socket.open_door(true))
        };
        match entered {
            // Somebody who comes, and makes sure of the same, or goes.
            Err(NetError::PortInUse { .. }) if tries < DOOR_TRIES => {
                tries += 1;
                std::thread::sleep(Duration::from_millis(1));
            }
            entered => return entered,
        }
    }
}

impl Share {
    fn members(&self) -> Vec<Arc<Member>> {
        let members = self.members.read().unwrap_or_else(PoisonError::into_inner);
        members.clone()
    }

    /// Takes our blocks on one more address, and enters its door.
    fn join(&self, socket: &mut RoceSocket) -> Result<(), NetError> {
        let _growing = self.growing.lock().unwrap_or_else(PoisonError::into_inner);
        let member = Member::of(socket, &self.place)?;
        let own = (0..BLOCKS).filter(|block| self.has(*block));
        let mut taken = Vec::new();
        let mut joined = Ok(());
        for block in own {
            match member.registry.claim(block, member.home) {
                Ok(true) => taken.push(block),
                Ok(false) => joined = Err(NetError::NoBlock),
                Err(source) => {
                    let path = self.place.file(member.addr);
                    joined = Err(NetError::Registry { path, source });
                }
            }
        }
        let joined = joined.and_then(|()| enter(socket, &member.registry));
        if joined.is_err() {
            taken
                .into_iter()
                .for_each(|block| member.registry.release(block));
            return joined;
        }
        let mut members = self.members.write().unwrap_or_else(PoisonError::into_inner);
        members.push(Arc::new(member));
        Ok(())
    }

    /// Takes a block on all addresses, and returns its numbers; `None` if all are taken.
    pub(crate) fn claim(&self) -> Result<Option<RangeInclusive<u32>>, NetError> {
        let _growing = self.growing.lock().unwrap_or_else(PoisonError::into_inner);
        let members = self.members();
        let Some(first) = members.first() else {
            return Ok(None);
        };
        for _ in 0..BLOCKS {
            let block = first.registry.next();
            if !RESERVED.contains(&block) && self.claim_one(&members, block)? {
                self.note(block);
                return Ok(Some(numbers(block)));
            }
        }
        Ok(None)
    }

    fn claim_one(&self, members: &[Arc<Member>], block: u16) -> Result<bool, NetError> {
        if self.has(block) {
            return Ok(false);
        }
        for (at, member) in members.iter().enumerate() {
            let claimed = member.registry.claim(block, member.home);
            if !matches!(claimed, Ok(true)) {
                let taken = members.get(..at).unwrap_or_default();
                taken.iter().for_each(|other| other.registry.release(block));
                return claimed.map_err(|source| NetError::Registry {
                    path: self.place.file(member.addr),
                    source,
                });
            }
        }
        Ok(true)
    }

    fn note(&self, block: u16) {
        if let Some(word) = self.own.get(usize::from(block / 64)) {
            word.fetch_or(1 << (block % 64), Ordering::Release);
        }
    }

    /// The block is ours.
    pub(crate) fn has(&self, block: u16) -> bool {
        let word = self.own.get(usize::from(block / 64));
        word.is_some_and(|word| word.load(Ordering::Acquire) >> (block % 64) & 1 == 1)
    }

    /// Where packets for a block on an address go to; `None` if that cannot be found out.
    pub(crate) fn resolve(&self, lookup: Lookup) -> Option<Home> {
        let holder = match self.member(lookup.addr) {
            Some(member) if self.has(lookup.block) => Holder::At(member.home),
            Some(member) => member.registry.holder(lookup.block),
            None => Registry::look(&self.place.file(lookup.addr))
                .map_or(Holder::Nobody, |registry| registry.holder(lookup.block)),
        };
        match holder {
            Holder::Nobody => Some(ROCE_PORT.into()),
            Holder::At(home) => Some(home),
            Holder::Unknown => None,
        }
    }

    /// The port of the other process on `addr` that has `block`.
    pub(crate) fn neighbour(&self, addr: IpAddr, block: u16) -> Option<u16> {
        self.member(addr)?.registry.holder(block).port()
    }

    /// Where the bridge to a port of an address is entered.
    pub(crate) fn bridge_link(&self, at: SocketAddr) -> PathBuf {
        self.place.bridge_link(at)
    }

    /// The numbers of one of our blocks.
    pub(crate) fn first_qpns(&self) -> RangeInclusive<u32> {
        numbers(self.name())
    }

    /// One of our own blocks, by which others know us.
    pub(crate) fn name(&self) -> u16 {
        let mut words = self.own.iter().zip(0u16..);
        let found = words.find_map(|(word, at)| {
            let bits = word.load(Ordering::Acquire);
            (bits != 0).then(|| at * 64 + u16::try_from(bits.trailing_zeros()).unwrap_or(0))
        });
        found.unwrap_or(0)
    }

    fn member(&self, addr: IpAddr) -> Option<Arc<Member>> {
        let members = self.members.read().unwrap_or_else(PoisonError::into_inner);
        members.iter().find(|member| member.addr == addr).cloned()
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        for block in (0..BLOCKS).filter(|block| self.has(*block)) {
            for member in self.members() {
                member.registry.release(block);
            }
        }
    }
}

fn numbers(block: u16) -> RangeInclusive<u32> {
    let start = u32::from(block) << BLOCK_BITS;
    start..=start + (1 << BLOCK_BITS) - 1
}

/// The folder of this user's processes, which nobody else can reach.
pub(crate) fn folder() -> Option<PathBuf> {
    Place::find().ok().flatten().map(Place::folder)
}

/// The file that processes on `addr` share; `None` where there can be none.
pub fn registry_path(addr: IpAddr) -> Result<Option<PathBuf>, NetError> {
    Ok(Place::find()?.map(|place| place.file(addr)))
}

/// Opens and closes a device on `addr`; how many others of this user are there.
pub fn check(addr: IpAddr) -> Result<usize, NetError> {
    let ports: HashSet<u16> = taken(addr)?.into_iter().map(|(_, port)| port).collect();
    open(&[addr], &SocketConfig::default())?;
    Ok(ports.len())
}

/// Whether devices of this user can share memory (`WireMode::Bridge`); else they use sockets.
pub fn check_bridge() -> Result<(), NetError> {
    if Place::find()?.is_none() {
        return Err(NetError::NoBridge(io::ErrorKind::NotFound.into()));
    }
    crate::bridge::check().map_err(NetError::NoBridge)
}

/// The blocks of queue pair numbers that processes of this user have on `addr`, each with the UDP
/// port of its process.
pub fn taken(addr: IpAddr) -> Result<Vec<(u16, u16)>, NetError> {
    let registry = Place::find()?.and_then(|place| Registry::look(&place.file(addr)));
    let Some(registry) = registry else {
        return Ok(Vec::new());
    };
    let blocks = (0..BLOCKS).filter_map(|block| Some((block, registry.holder(block).port()?)));
    Ok(blocks.collect())
}

#[cfg(test)]
mod tests;
