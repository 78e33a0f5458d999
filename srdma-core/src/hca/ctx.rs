//! The split borrow that queue pair code gets of the device: everything but the queue pairs.

use crate::hca::counters::Counters;
use crate::hca::events::Events;
use crate::hca::peer::PeerTable;
use crate::hca::ports::Ports;
use crate::mem::MrTable;
use crate::obj::ah::AhTable;
use crate::obj::cq::CqTable;
use crate::obj::port::Port;
use crate::obj::srq::SrqTable;
use crate::obj::table::Slot;
use crate::puda::ieq::Ieq;
use crate::time::Instant;
use crate::tx::path::PathTable;
use std::collections::VecDeque;

/// What a step of a queue pair may touch.
pub(crate) struct Ctx<'a> {
    /// The time of this pass.
    pub(crate) now: Instant,
    /// Keys and memory.
    pub(crate) regions: &'a mut MrTable,
    /// Completions.
    pub(crate) cqs: &'a mut CqTable,
    /// Shared receive queues.
    pub(crate) srqs: &'a mut SrqTable,
    /// Completion and asynchronous events, interrupts.
    pub(crate) events: &'a mut Events,
    /// Interned paths.
    pub(crate) paths: &'a mut PathTable,
    /// Socket budgets of peers.
    pub(crate) peers: &'a mut PeerTable,
    /// Ports of processes on this machine.
    pub(crate) ports: &'a mut Ports,
    /// Address handles.
    pub(crate) ahs: &'a AhTable,
    /// GIDs, P_Keys, link.
    pub(crate) port: &'a mut Port,
    /// Named counters.
    pub(crate) counters: &'a mut Counters,
    /// Queue pairs that have something to send.
    pub(crate) ready: &'a mut VecDeque<Turn>,
    /// Queue pairs that owe an acknowledgement and nothing else.
    pub(crate) acks: &'a mut VecDeque<Slot>,
    /// Those that may owe one that was not asked for.
    pub(crate) acks_late: &'a mut VecDeque<Slot>,
    /// What our own socket can still take of READ responses.
    pub(crate) read_credit: &'a mut ReadCredit,
    /// Packets out of order.
    pub(crate) ieq: &'a mut Ieq,
}

/// An entry of the ready list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turn {
    /// Who.
    pub(crate) qp: Slot,
    /// It comes from a list of those who waited for room.
    pub(crate) waited: bool,
}

/// Moves everybody who waited into the ready list.
pub(crate) fn wake(waiting: &mut VecDeque<Slot>, ready: &mut VecDeque<Turn>) {
    ready.extend(waiting.drain(..).map(|qp| Turn { qp, waited: true }));
}

/// Budget of READ responses in flight towards our own sockets, over all queue pairs.
#[derive(Debug)]
pub(crate) struct ReadCredit {
    limit: u32,
    in_flight: u32,
    waiting: VecDeque<Slot>,
}

impl ReadCredit {
    pub(crate) const fn new(limit: u32) -> Self {
        Self {
            limit,
            in_flight: 0,
            waiting: VecDeque::new(),
        }
    }

    /// Takes `cost`; false if there is no room. One request always fits an idle device.
    pub(crate) const fn charge(&mut self, cost: u32) -> bool {
        if self.in_flight > 0 && self.in_flight.saturating_add(cost) > self.limit {
            return false;
        }
        self.in_flight += cost;
        true
    }

    /// Gives `cost` back; those who waited may try again.
    pub(crate) fn refund(&mut self, cost: u32, ready: &mut VecDeque<Turn>) {
        debug_assert!(self.in_flight >= cost, "refund of more than was charged");
        self.in_flight = self.in_flight.saturating_sub(cost);
        wake(&mut self.waiting, ready);
    }

    /// Lets `qp` wait for room.
    pub(crate) fn wait(&mut self, qp: Slot) {
        self.waiting.push_back(qp);
    }

    /// The whole budget, in bytes.
    pub(crate) const fn limit(&self) -> u32 {
        self.limit
    }
}
