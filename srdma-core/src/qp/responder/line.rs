//! Which message a packet belongs to that came ahead of its turn, and where its payload goes.
//!
//! ```text
//! WRITE   its first packet says how many follow, and where they go
//! SEND    a peer of our kind tells in each packet how many come before it; of another we know that
//!         one packet cannot be both the last of a message and the first of the next, so what is
//!         one behind the other, or two, is of one message, or of two that follow each other
//! ```
//!
//! A message in line follows the one before without doubt, and nothing but SENDs and WRITEs lies
//! between it and the one in progress. Memory changes in the order of the messages: where the
//! payload of one would go before that of an earlier one, it waits.
//! [E810 8.6.4, RoCEv2 6.3]

use super::Message;
use crate::hca::ctx::Ctx;
use crate::hw::RqCmd;
use crate::limits::MAX_MSG_BYTES;
use crate::mem::{Access, Claim, Sge};
use crate::num::Psn;
use crate::puda::line::{InLine, Target};
use crate::puda::reorder::{Part, Reorder, What};
use crate::qp::Qp;
use crate::qp::window::packets_of;
use crate::wire::{FAR, Packet, Position, Verb};

/// Where a payload goes: into what, and how far.
#[derive(Clone, Copy, Debug)]
pub(super) enum Place {
    /// The receive WQE that is taken, for the message in progress.
    Taken(u64),
    /// What is known of a WRITE, or of a message in line.
    Known(Target, u64),
}

/// The message in progress.
#[derive(Clone, Copy)]
struct Present {
    first: Psn,
    /// Of a WRITE.
    packets: Option<u32>,
}

/// The packet before one that came ahead.
#[derive(Clone, Copy)]
struct Before {
    psn: Psn,
    /// First packet of its message, if that is known.
    first: Option<Psn>,
    /// It is the last of its message.
    ends: bool,
}

/// Address and bytes of what a WRITE named, in the host's memory.
fn memory_of_claim(ctx: &Ctx<'_>, claim: &Claim) -> Option<(u64, u64)> {
    let len = usize::try_from(claim.len()).ok()?;
    let grant = ctx.regions.renew(claim, 0, len).ok()?;
    Some((grant.addr(), claim.len()))
}

impl Qp {
    /// The message in progress, if there is one.
    fn present(&self) -> Option<Present> {
        let packets = match self.rsp.message? {
            Message::Send { .. } => None,
            Message::Write { len, .. } => Some(packets_of(len, self.conn.mtu)),
        };
        let first = self.rsp.first;
        Some(Present { first, packets })
    }

    /// True if the message in progress began with `first`.
    pub(super) fn is_present(&self, first: Psn) -> bool {
        self.rsp.message.is_some() && self.rsp.first == first
    }

    fn before(&self, early: &Reorder, index: usize) -> Before {
        match early.before(index) {
            Some(held) => Before {
                psn: held.psn,
                first: held.first,
                ends: held
                    .part
                    .is_some_and(|part| part.position == Position::Last),
            },
            None => Before {
                psn: self.rsp.epsn.prev(),
                first: self.present().map(|present| present.first),
                ends: false,
            },
        }
    }

    /// As [`message_of`](Self::message_of), for what comes most: the packet behind the last one
    /// that is held, in the middle of the message in progress.
    pub(super) fn message_of_next(&self, packet: &Packet<'_>, index: usize) -> Option<Psn> {
        let held = self.early.as_deref()?.before(index)?;
        let (psn, present) = (packet.psn(), self.present()?);
        let (part, before) = (Part::of(packet)?, held.part?);
        let middle = |part: Part| part.position == Position::Middle;
        let ahead = u32::try_from(psn.since(present.first)).ok()?;
        // The last packet of a WRITE is no middle one.
        let goes_on = present.packets.is_none_or(|packets| ahead + 1 < packets);
        let follows = held.first == Some(present.first)
            && psn == held.psn.add(1)
            && middle(part)
            && middle(before)
            && part.write == present.packets.is_some();
        (follows && goes_on).then_some(present.first)
    }

    /// First packet of the message that a packet is of, which comes at `index` of the list; `None`
    /// if that is not sure. A first packet whose message follows what is known is put in line.
    pub(super) fn message_of(
        &mut self,
        ctx: &Ctx<'_>,
        packet: &Packet<'_>,
        index: usize,
    ) -> Option<Psn> {
        let part = Part::of(packet)?;
        let (psn, present) = (packet.psn(), self.present()?);
        let before = self.before(self.early.as_deref()?, index);
        if part.position == Position::First {
            let message = self.in_line(ctx, packet, (present, before))?;
            return self.put_in_line(message);
        }
        self.membership((psn, part), (present, before))
    }

    /// The message that `part` is of, which does not begin one.
    fn membership(
        &self,
        (psn, part): (Psn, Part),
        (present, before): (Present, Before),
    ) -> Option<Psn> {
        let ends = part.position == Position::Last;
        if !(ends || part.position == Position::Middle) {
            return None;
        }
        let line = self.early.as_deref()?.line.all();
        if part.write {
            let within = |first: Psn, packets: Option<u32>| {
                let last = first.add(packets?.checked_sub(1)?);
                let inside = psn.since(first) > 0 && psn.since(last) <= 0;
                (inside && ends == (psn == last)).then_some(first)
            };
            let mut writes = line.iter().filter(|later| later.is_write());
            within(present.first, present.packets)
                .or_else(|| writes.find_map(|later| within(later.first, later.packets)))
        } else {
            let first = self.first_of_send((psn, part), before)?;
            let send = if first == present.first {
                present.packets.is_none()
            } else {
                let mut sends = line.iter().filter(|later| !later.is_write());
                sends.any(|later| later.first == first)
            };
            send.then_some(first)
        }
    }

    /// The PSN that the message of a SEND's packet began with, if that is sure.
    // rule: place-1
    fn first_of_send(&self, (psn, part): (Psn, Part), before: Before) -> Option<Psn> {
        let told = if self.conn.peer_is_ours() {
            part.place
        } else {
            0
        };
        if (1..FAR).contains(&told) {
            return Some(psn.back(u32::from(told)));
        }
        let first = before.first.filter(|_| !before.ends)?;
        // A message that began behind `before` would be told to have begun there.
        let near = if told == FAR { i32::from(FAR) } else { 2 };
        (psn.since(before.psn) <= near).then_some(first)
    }

    /// What is held from `index` on may be known better, now that what comes before it is.
    pub(super) fn know_more(&mut self, ctx: &Ctx<'_>, mut index: usize) {
        while let Some(first) = self.known_now(ctx, index) {
            let held = self
                .early
                .as_deref_mut()
                .and_then(|early| early.at_mut(index));
            if let Some(held) = held {
                held.first = Some(first);
            }
            index += 1;
        }
    }

    /// The message that the packet at `index` is of, which was not known before.
    fn known_now(&mut self, ctx: &Ctx<'_>, index: usize) -> Option<Psn> {
        let early = self.early.as_deref()?;
        let held = early.at(index).filter(|held| held.first.is_none())?;
        let (psn, part) = (held.psn, held.part?);
        let known = (self.present()?, self.before(early, index));
        if part.position != Position::First {
            return self.membership((psn, part), known);
        }
        let What::Whole(bytes) = &held.what else {
            return None;
        };
        let message = self.in_line(ctx, &Packet::parse(bytes).ok()?, known)?;
        self.put_in_line(message)
    }

    fn put_in_line(&mut self, message: InLine) -> Option<Psn> {
        let line = &mut self.early.as_deref_mut()?.line;
        if let Some(last) = line.last_mut() {
            last.packets = u32::try_from(message.first.since(last.first)).ok();
        }
        line.push(message);
        Some(message.first)
    }

    /// The message whose first packet this is, if it surely follows the last one that is known.
    fn in_line(
        &self,
        ctx: &Ctx<'_>,
        packet: &Packet<'_>,
        (present, before): (Present, Before),
    ) -> Option<InLine> {
        let psn = packet.psn();
        let line = &self.early.as_deref()?.line;
        let last = line.all().last();
        let (first, packets) = last.map_or((present.first, present.packets), |last| {
            (last.first, last.packets)
        });
        let follows = match packets {
            Some(packets) => psn == first.add(packets),
            None => {
                let gap = if before.ends { 1 } else { 2 };
                before.first == Some(first) && psn.since(before.psn) == gap
            }
        };
        if !follows || line.is_full() || packet.payload().len() != self.conn.mtu as usize {
            return None;
        }
        if packet.info().verb == Verb::Write {
            return self.write_in_line(ctx, packet);
        }
        let sends = present.packets.is_none() && line.all().iter().all(|m| !m.is_write());
        sends.then(|| self.send_in_line(ctx, psn, line.all().len()))?
    }

    fn write_in_line(&self, ctx: &Ctx<'_>, packet: &Packet<'_>) -> Option<InLine> {
        let reth = packet.reth()?;
        let may = self.conn.access.contains(Access::REMOTE_WRITE) && self.rsp.xrc.is_none();
        if !may || u64::from(reth.len) > MAX_MSG_BYTES || reth.len <= self.conn.mtu {
            return None;
        }
        let claim = self.claim(ctx, &reth, Access::REMOTE_WRITE).ok()??;
        Some(InLine {
            first: packet.psn(),
            packets: Some(packets_of(reth.len, self.conn.mtu)),
            memory: memory_of_claim(ctx, &claim)?,
            to: Target::Claimed(claim),
        })
    }

    /// The receive WQE that a SEND will take, if it has one fragment. What a shared queue gives to
    /// whom is known when it is taken only.
    fn send_in_line(&self, ctx: &Ctx<'_>, first: Psn, later: usize) -> Option<InLine> {
        let rq = self.rq.as_ref()?;
        let mut cmd = RqCmd::default();
        rq.read_ahead(u32::try_from(later).ok()?, &mut cmd)?.ok()?;
        let &[sge] = cmd.sges.as_slice() else {
            return None;
        };
        Some(InLine {
            first,
            packets: None,
            memory: self.memory_of_fragment(ctx, &sge)?,
            to: Target::Received(sge),
        })
    }

    /// Address and bytes of a fragment of a receive WQE, in the host's memory.
    fn memory_of_fragment(&self, ctx: &Ctx<'_>, sge: &Sge) -> Option<(u64, u64)> {
        let (pd, need) = (self.domain(), Access::LOCAL_WRITE);
        let grant = ctx
            .regions
            .check_local(sge.lkey, pd, need, sge.addr, sge.len);
        Some((grant.ok()?.addr(), u64::from(sge.len)))
    }

    /// Where the payload goes of a packet from the middle of the message that begins with `first`;
    /// `None` if it has to wait.
    // rule: ieq-18
    pub(super) fn known_place(
        &self,
        ctx: &Ctx<'_>,
        packet: &Packet<'_>,
        first: Psn,
    ) -> Option<Place> {
        let (bytes, mtu) = (packet.payload(), self.conn.mtu);
        if packet.info().position != Position::Middle || bytes.len() != mtu as usize {
            return None;
        }
        let n = u64::try_from(packet.psn().since(first)).ok()?;
        let at = n * u64::from(mtu);
        if self.is_present(first) {
            return match self.rsp.message? {
                Message::Send { .. } => Some(Place::Taken(at)),
                Message::Write { claim, .. } => Some(Place::Known(Target::Claimed(claim?), at)),
            };
        }
        let early = self.early.as_deref()?;
        let message = early.line.all().iter().find(|later| later.first == first)?;
        let (base, room) = message.memory;
        if at + u64::from(mtu) > room {
            return None;
        }
        let part = (base.checked_add(at)?, u64::from(mtu));
        let line = early.line.all();
        let earlier = line.iter().take_while(|later| later.first != first);
        let mut waits = earlier.zip(line.iter().skip(1)).filter(|(before, next)| {
            !self.is_free(early, (before.first, next.first), before.memory, part)
        });
        let free = self.is_free_of_present(ctx, early, part) && waits.next().is_none();
        free.then_some(Place::Known(message.to, at))
    }

    /// The message in progress has nothing left to put into `part`.
    fn is_free_of_present(&self, ctx: &Ctx<'_>, early: &Reorder, part: (u64, u64)) -> bool {
        let memory = || match self.rsp.message? {
            Message::Write { claim, .. } => memory_of_claim(ctx, &claim?),
            Message::Send { .. } => {
                let &[sge] = self.rsp.recv.cmd.sges.as_slice() else {
                    return None;
                };
                self.memory_of_fragment(ctx, &sge)
            }
        };
        let (Some(present), Some(next)) = (self.present(), early.line.all().first()) else {
            return false;
        };
        memory()
            .is_some_and(|memory| self.is_free(early, (present.first, next.first), memory, part))
    }

    /// The message from `first` to before `next`, which fills `memory`, has nothing left to put
    /// into `part`.
    fn is_free(
        &self,
        early: &Reorder,
        (first, next): (Psn, Psn),
        (base, room): (u64, u64),
        (addr, len): (u64, u64),
    ) -> bool {
        let ends = addr.saturating_add(len).min(base.saturating_add(room));
        let begins = addr.max(base);
        if begins >= ends {
            return true;
        }
        let mtu = u64::from(self.conn.mtu);
        ((begins - base) / mtu..=(ends - 1 - base) / mtu).all(|n| {
            let psn = first.add(u32::try_from(n).unwrap_or(u32::MAX));
            let is_of_it = psn.since(next) < 0;
            !is_of_it || psn.since(self.rsp.epsn) < 0 || early.is_placed(psn)
        })
    }
}
