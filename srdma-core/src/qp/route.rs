//! Where a request goes: the path of a connection, or the one that a datagram's address leads to.

use super::Qp;
use super::flush::Cause;
use crate::hca::ctx::Ctx;
use crate::hca::ports::Lookup;
use crate::hw::aeqe::AeCode;
use crate::hw::cqe::FlushCode;
use crate::num::{Qkey, Qpn};
use crate::obj::ah::{AddressVector, AhFault};
use crate::tx::path::PathKey;
use std::net::SocketAddr;

/// Path, destination and Q_Key of a message.
pub(super) type Route = (u32, Qpn, Option<Qkey>);

impl Qp {
    /// Path, destination QP and Q_Key of the current WQE. `None`: its port has to be looked up.
    #[inline]
    pub(super) fn route(&mut self, ctx: &mut Ctx<'_>) -> Result<Option<Route>, Cause> {
        if self.id.kind.is_connected()
            && let Some(path) = self.conn.path
        {
            return Ok(Some((path, self.conn.remote_qpn, None)));
        }
        self.route_datagram(ctx)
    }

    #[inline(never)]
    fn route_datagram(&mut self, ctx: &mut Ctx<'_>) -> Result<Option<Route>, Cause> {
        let lost = Cause::new(FlushCode::LOC_QP_OP, AeCode::INVALID_AH_ENTRY);
        if self.id.kind.is_connected() {
            return Err(lost);
        }
        let ud = self.req.cmd.ud;
        let av = *ctx
            .ahs
            .resolve(ud.ah, self.id.pd)
            .map_err(|fault| match fault {
                AhFault::BadPd => Cause::new(FlushCode::LOC_QP_OP, AeCode::UDA_XMIT_BAD_PD),
                _ => lost,
            })?;
        let lookup = Lookup::of(av.target, ud.dest);
        let Some(path) = self.datagram_path(ctx, &av, lookup).map_err(|()| lost)? else {
            ctx.ports.ask(lookup, self.id.slot);
            return Ok(None);
        };
        // A privileged Q_Key in the request selects the queue pair's own.  [RoCEv2 2.12]
        let qkey = if ud.qkey.0 & 0x8000_0000 == 0 {
            ud.qkey
        } else {
            self.conn.qkey
        };
        Ok(Some((path, ud.dest, Some(qkey))))
    }

    /// The path to `av`; the one used last is kept, since programs send to few. `None`: the port is
    /// not known.
    fn datagram_path(
        &mut self,
        ctx: &mut Ctx<'_>,
        av: &AddressVector,
        lookup: Lookup,
    ) -> Result<Option<u32>, ()> {
        if self.conn.datagram_av.as_ref() == Some(av)
            && self.conn.datagram_block == lookup.block
            && ctx.now < self.conn.datagram_until
        {
            return Ok(self.conn.path);
        }
        let Some(port) = ctx.ports.find(lookup, ctx.now) else {
            return Ok(None);
        };
        let (_, entry) = ctx.port.gids.find(av.local).ok_or(())?;
        let key = PathKey {
            target: SocketAddr::new(av.target, port.number),
            local: av.local,
            source_port: entry.tx_port,
            tclass: av.tclass,
            hop_limit: if av.hop_limit == 0 { 64 } else { av.hop_limit },
        };
        let (paths, peers) = (&mut *ctx.paths, &mut *ctx.peers);
        let path = paths.acquire(key, || peers.acquire(key.target));
        if let Some(old) = self.conn.path.replace(path)
            && let Some(peer) = ctx.paths.release(old)
        {
            ctx.peers.release(peer);
        }
        self.conn.datagram_av = Some(*av);
        self.conn.datagram_block = lookup.block;
        self.conn.datagram_until = port.until;
        Ok(Some(path))
    }
}
