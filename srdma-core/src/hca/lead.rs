//! Leading a queue pair: which path its packets take, and that they take another one.

use super::Device;
use super::ports::Home;
use crate::qp::Qp;
use crate::time::Instant;
use crate::tx::path::PathKey;
use std::net::SocketAddr;

impl Device {
    /// What counts of what a peer tells of its socket: on a plain wire, nothing.
    // rule: wire-1
    pub(crate) const fn heard(&self, peer_rx: u32) -> u32 {
        if self.config.plain_wire { 0 } else { peer_rx }
    }

    /// The queue pair's packets take this path from now on.
    pub(crate) fn lead(&mut self, qp: &mut Qp, key: PathKey) {
        let (paths, peers) = (&mut self.paths, &mut self.peers);
        let path = paths.acquire(key, || peers.acquire(key.target));
        self.disconnect(qp);
        qp.conn.path = Some(path);
        qp.conn.peer = self.paths.get(path).map_or(0, |path| path.peer);
        self.peers.learn(qp.conn.peer, qp.conn.peer_rx);
        qp.conn.remote_ip = Some(key.target.ip());
        qp.conn.local_ip = Some(key.local);
    }

    /// The process that a connected queue pair talks to is reached at `home`.
    pub(crate) fn redirect(&mut self, qp: &mut Qp, home: Home, now: Instant) {
        let path = qp.conn.path.and_then(|id| self.paths.get(id));
        let Some(key) = path.map(|path| path.key) else {
            return;
        };
        if !qp.can_receive() {
            return;
        }
        let told = self.heard(home.rx_bytes);
        if told != 0 {
            qp.conn.peer_rx = told;
        }
        if key.target.port() == home.port {
            self.peers.learn(qp.conn.peer, qp.conn.peer_rx);
            qp.make_ready(&mut self.ctx(now));
            return;
        }
        // What is in flight was charged to the socket so far.
        let una = qp.req.una;
        qp.rewind(&mut self.ctx(now), una);
        let target = SocketAddr::new(key.target.ip(), home.port);
        self.lead(qp, PathKey { target, ..key });
        // It may have waited for room at the other socket.
        qp.req.waiting = false;
        qp.make_ready(&mut self.ctx(now));
    }

    pub(crate) fn disconnect(&mut self, qp: &mut Qp) {
        if let Some(path) = qp.conn.path.take()
            && let Some(peer) = self.paths.release(path)
        {
            self.peers.release(peer);
        }
        qp.conn.remote_ip = None;
        qp.conn.local_ip = None;
        qp.conn.datagram_av = None;
    }
}
