//! Peers: how many bytes of its memory each remote socket may hold of ours.
//!
//! A receiving socket drops silently when it is full, and most users cannot make it larger. So what
//! is in flight towards one socket, over all QPs, stays within what a socket of the usual size
//! holds. A QP that finds no room waits in the peer's list and is taken up in order.
//!
//! The charge of a packet is what the kernel charges the socket: the bytes and an overhead.

use crate::hca::ctx::{Room, Turn, Waiting};
use crate::limits::DEFAULT_RMEM;
use crate::obj::table::Slot;
use slab::Slab;
use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;

/// Bytes that the kernel charges for a packet besides its payload.
pub(crate) const PACKET_OVERHEAD: u32 = 768;

/// Largest budget: more only fills caches.
const MAX_BUDGET: u32 = 1 << 20;
/// Smallest: a few full packets, whatever the peer says.
const MIN_BUDGET: u32 = 4 * (4096 + PACKET_OVERHEAD);

/// What one packet of `len` payload bytes costs at the receiver's socket.
pub(crate) const fn packet_cost(len: u32) -> u32 {
    len + PACKET_OVERHEAD
}

/// What became of the room that a packet asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Charge {
    /// There is none.
    Refused,
    /// It is taken.
    Taken,
    /// It is taken, and a full packet would have to wait: whoever took the last room asks for an
    /// acknowledgement, or nobody may.
    Last,
}

#[derive(Debug)]
struct Peer {
    addr: SocketAddr,
    users: u32,
    /// Bytes that it may hold of ours.
    budget: u32,
    in_flight: u32,
    waiting: Waiting,
}

/// All peers with a path.
#[derive(Debug)]
pub(crate) struct PeerTable {
    peers: Slab<Peer>,
    by_addr: HashMap<SocketAddr, u32>,
    budget: u32,
}

impl PeerTable {
    /// `budget`: bytes of socket memory that one peer may hold of ours.
    pub(crate) fn new(budget: u32) -> Self {
        Self {
            peers: Slab::new(),
            by_addr: HashMap::new(),
            budget,
        }
    }

    /// The peer at `addr`, counted.
    pub(crate) fn acquire(&mut self, addr: SocketAddr) -> u32 {
        if let Some(&id) = self.by_addr.get(&addr) {
            if let Some(peer) = self.peers.get_mut(id as usize) {
                peer.users += 1;
            }
            return id;
        }
        let peer = Peer {
            addr,
            users: 1,
            budget: self.budget,
            in_flight: 0,
            waiting: Waiting::default(),
        };
        let id = u32::try_from(self.peers.insert(peer)).unwrap_or(u32::MAX);
        self.by_addr.insert(addr, id);
        id
    }

    /// The peer has told how much its socket holds. The budget grows or shrinks as much as that
    /// differs from a socket of the usual size.
    pub(crate) fn learn(&mut self, id: u32, rx_bytes: u32) {
        let Some(peer) = self.peers.get_mut(id as usize) else {
            return;
        };
        if rx_bytes == 0 {
            return;
        }
        let scaled = u64::from(self.budget) * u64::from(rx_bytes) / u64::from(DEFAULT_RMEM);
        peer.budget = u32::try_from(scaled)
            .unwrap_or(MAX_BUDGET)
            .clamp(MIN_BUDGET, MAX_BUDGET);
    }

    /// Gives one use back.
    pub(crate) fn release(&mut self, id: u32) {
        let Some(peer) = self.peers.get_mut(id as usize) else {
            return;
        };
        peer.users -= 1;
        if peer.users == 0 {
            let addr = peer.addr;
            self.peers.remove(id as usize);
            self.by_addr.remove(&addr);
        }
    }

    /// Takes `cost` of the budget, and says whether a packet that costs `next` would have to wait
    /// now. One packet always fits an idle peer.
    #[inline]
    pub(crate) fn charge(&mut self, id: u32, cost: u32, next: u32) -> Charge {
        let Some(peer) = self.peers.get_mut(id as usize) else {
            return Charge::Taken;
        };
        if peer.in_flight > 0 && peer.in_flight + cost > peer.budget {
            peer.waiting.refuse();
            return Charge::Refused;
        }
        peer.in_flight += cost;
        if peer.in_flight + next > peer.budget {
            Charge::Last
        } else {
            Charge::Taken
        }
    }

    /// Gives `cost` back; who waits may go on.
    pub(crate) fn refund(&mut self, id: u32, cost: u32, ready: &mut VecDeque<Turn>) {
        let Some(peer) = self.peers.get_mut(id as usize) else {
            return;
        };
        debug_assert!(peer.in_flight >= cost, "refund of more than was charged");
        peer.in_flight = peer.in_flight.saturating_sub(cost);
        if peer.in_flight < peer.budget {
            let idle = peer.in_flight == 0;
            peer.waiting.wake(idle, Room::Peer(id), ready);
        }
    }

    /// Who was woken has had its turn.
    pub(crate) fn pass_on(&mut self, id: u32, ready: &mut VecDeque<Turn>) {
        if let Some(peer) = self.peers.get_mut(id as usize) {
            peer.waiting.pass_on(Room::Peer(id), ready);
        }
    }

    /// Lets `qp` wait for room.
    pub(crate) fn wait(&mut self, id: u32, qp: Slot) {
        if let Some(peer) = self.peers.get_mut(id as usize) {
            peer.waiting.push(qp);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: u32 = packet_cost(4096);

    /// True if a packet that costs `next` does not fit beside what is in flight.
    fn is_full(peers: &mut PeerTable, id: u32, next: u32) -> bool {
        let room = peers.charge(id, 0, next);
        room != Charge::Taken
    }

    #[test]
    fn a_peer_with_a_larger_socket_may_hold_more_and_a_liar_not_without_bound() {
        let mut peers = PeerTable::new(DEFAULT_RMEM / 2);
        let id = peers.acquire(SocketAddr::from(([10, 0, 0, 1], 4791)));
        assert_eq!(peers.charge(id, DEFAULT_RMEM / 2, 0), Charge::Taken);
        assert!(is_full(&mut peers, id, 1));
        peers.learn(id, 2 * DEFAULT_RMEM);
        assert!(!is_full(&mut peers, id, DEFAULT_RMEM / 2));
        peers.learn(id, u32::MAX);
        assert!(is_full(&mut peers, id, MAX_BUDGET));
        peers.learn(id, 1);
        assert!(is_full(&mut peers, id, 1));
        peers.refund(id, DEFAULT_RMEM / 2, &mut VecDeque::new());
        assert!(!is_full(&mut peers, id, FULL));
    }

    #[test]
    fn whoever_takes_the_last_room_knows_it() {
        let mut peers = PeerTable::new(3 * FULL + 10);
        let id = peers.acquire(SocketAddr::from(([10, 0, 0, 1], 4791)));
        for charge in [Charge::Taken, Charge::Taken, Charge::Last, Charge::Refused] {
            assert_eq!(peers.charge(id, FULL, FULL), charge);
        }
        peers.refund(id, FULL, &mut VecDeque::new());
        assert_eq!(peers.charge(id, 0, FULL), Charge::Taken);
    }
}
