//! Paths: from where, to where, and how, as the IP layer will carry a packet.
//!
//! Paths are interned, so that packets of several QPs to one peer share a GSO run by comparing one
//! number. Each names the peer whose socket budget its packets count against.

use crate::wire::flow::FlowTuple;
use crate::wire::icrc::IcrcFlow;
use slab::Slab;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

/// What makes two paths the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PathKey {
    /// The peer's address, and the port of the process there.
    pub(crate) target: SocketAddr,
    pub(crate) local: IpAddr,
    pub(crate) source_port: u16,
    pub(crate) tclass: u8,
    pub(crate) hop_limit: u8,
}

/// One interned path.
#[derive(Debug)]
pub(crate) struct Path {
    pub(crate) id: u32,
    pub(crate) target: SocketAddr,
    pub(crate) local: IpAddr,
    pub(crate) tclass: u8,
    pub(crate) hop_limit: u8,
    /// Index of the peer in the peer table.
    pub(crate) peer: u32,
    pub(crate) icrc: IcrcFlow,
    users: u32,
    pub(crate) key: PathKey,
}

/// All paths in use, counted.
#[derive(Debug, Default)]
pub(crate) struct PathTable {
    paths: Slab<Path>,
    by_key: HashMap<PathKey, u32>,
}

impl PathTable {
    /// The path of `key`, shared with others that use it. `peer` gives the peer's index.
    pub(crate) fn acquire(&mut self, key: PathKey, peer: impl FnOnce() -> u32) -> u32 {
        if let Some(&id) = self.by_key.get(&key) {
            if let Some(path) = self.paths.get_mut(id as usize) {
                path.users += 1;
            }
            return id;
        }
        let peer = peer();
        let entry = self.paths.vacant_entry();
        let id = u32::try_from(entry.key()).unwrap_or(u32::MAX);
        let flow = FlowTuple {
            source: key.local,
            target: key.target.ip(),
            source_port: key.source_port,
            target_port: key.target.port(),
        };
        entry.insert(Path {
            id,
            target: key.target,
            local: key.local,
            tclass: key.tclass,
            hop_limit: key.hop_limit,
            peer,
            icrc: IcrcFlow::new(&flow),
            users: 1,
            key,
        });
        self.by_key.insert(key, id);
        id
    }

    /// Gives one use back; the last one forgets the path and returns its peer.
    pub(crate) fn release(&mut self, id: u32) -> Option<u32> {
        let path = self.paths.get_mut(id as usize)?;
        path.users -= 1;
        if path.users > 0 {
            return None;
        }
        let path = self.paths.remove(id as usize);
        self.by_key.remove(&path.key);
        Some(path.peer)
    }

    pub(crate) fn get(&self, id: u32) -> Option<&Path> {
        self.paths.get(id as usize)
    }
}
