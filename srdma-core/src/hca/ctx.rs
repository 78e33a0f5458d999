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
    /// It waited for this room, and lets the next one try after its turn.
    pub(crate) waited: Option<Room>,
}

/// What a queue pair can wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    /// Room in the socket of a peer.
    Peer(u32),
    /// READ credit.
    Reads,
}

/// Those who wait for room, in order.
///
/// One of them at a time is woken, and after its turn the next one, until one is refused. So what
/// is given back costs as many turns as find room and one more, however many wait.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    list: VecDeque<Slot>,
    /// One was woken and has not had its turn.
    woken: bool,
    /// Somebody was refused since: what is in flight has to come back first.
    refused: bool,
}

impl Waiting {
    /// Lets `qp` wait.
    pub(crate) fn push(&mut self, qp: Slot) {
        self.list.push_back(qp);
    }

    /// Somebody found no room.
    pub(crate) const fn refuse(&mut self) {
        self.refused = true;
    }

    /// Room was given back. With `idle` nothing more will be: then somebody is woken in any case.
    pub(crate) fn wake(&mut self, idle: bool, room: Room, ready: &mut VecDeque<Turn>) {
        if (idle || !self.woken)
            && let Some(turn) = self.next(room)
        {
            ready.push_back(turn);
        }
    }

    /// The one that was woken has had its turn: the next one has his, before those who did not
    /// wait.
    pub(crate) fn pass_on(&mut self, room: Room, ready: &mut VecDeque<Turn>) {
        self.woken = false;
        if !self.refused
            && let Some(turn) = self.next(room)
        {
            ready.push_front(turn);
        }
    }

    fn next(&mut self, room: Room) -> Option<Turn> {
        let qp = self.list.pop_front()?;
        (self.woken, self.refused) = (true, false);
        let waited = Some(room);
        Some(Turn { qp, waited })
    }
}

/// Budget of READ responses in flight towards our own sockets, over all queue pairs.
#[derive(Debug)]
pub(crate) struct ReadCredit {
    limit: u32,
    in_flight: u32,
    waiting: Waiting,
}

impl ReadCredit {
    pub(crate) fn new(limit: u32) -> Self {
        Self {
            limit,
            in_flight: 0,
            waiting: Waiting::default(),
        }
    }

    /// Takes `cost`; false if there is no room. One request always fits an idle device.
    pub(crate) const fn charge(&mut self, cost: u32) -> bool {
        if self.in_flight > 0 && self.in_flight.saturating_add(cost) > self.limit {
            self.waiting.refuse();
            return false;
        }
        self.in_flight += cost;
        true
    }

    /// Gives `cost` back; who waits may try again.
    pub(crate) fn refund(&mut self, cost: u32, ready: &mut VecDeque<Turn>) {
        debug_assert!(self.in_flight >= cost, "refund of more than was charged");
        self.in_flight = self.in_flight.saturating_sub(cost);
        self.waiting.wake(self.in_flight == 0, Room::Reads, ready);
    }

    /// Lets `qp` wait for room.
    pub(crate) fn wait(&mut self, qp: Slot) {
        self.waiting.push(qp);
    }

    /// Who was woken has had its turn.
    pub(crate) fn pass_on(&mut self, ready: &mut VecDeque<Turn>) {
        self.waiting.pass_on(Room::Reads, ready);
    }

    /// The whole budget, in bytes.
    pub(crate) const fn limit(&self) -> u32 {
        self.limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(index: u32) -> Slot {
        let generation = 1;
        Slot { index, generation }
    }

    /// Turns as the device gives them: each asks for `cost`, as often as `times` says.
    fn turns(credit: &mut ReadCredit, ready: &mut VecDeque<Turn>, cost: u32) -> (u32, u32) {
        let (mut served, mut refused) = (0, 0);
        while let Some(turn) = ready.pop_front() {
            if credit.charge(cost) {
                served += 1;
            } else {
                refused += 1;
                credit.wait(turn.qp);
            }
            if turn.waited.is_some() {
                credit.pass_on(ready);
            }
        }
        (served, refused)
    }

    #[test]
    fn room_costs_as_many_turns_as_find_some_and_one() {
        let mut credit = ReadCredit::new(40);
        let mut ready: VecDeque<Turn> = (0..1000)
            .map(|n| Turn {
                qp: slot(n),
                waited: None,
            })
            .collect();
        assert_eq!(turns(&mut credit, &mut ready, 10), (4, 996));
        for _ in 0..2 {
            credit.refund(10, &mut ready);
        }
        assert_eq!(ready.len(), 1, "one at a time is woken");
        assert_eq!(turns(&mut credit, &mut ready, 10), (2, 1));
        for _ in 0..3 {
            credit.refund(10, &mut ready);
        }
        assert_eq!(turns(&mut credit, &mut ready, 10), (3, 1));
    }

    #[test]
    fn whoever_waits_is_woken_at_last_though_turns_are_lost() {
        let mut credit = ReadCredit::new(10);
        let mut ready = VecDeque::new();
        assert!(credit.charge(10));
        for n in 0..3 {
            assert!(!credit.charge(10));
            credit.wait(slot(n));
        }
        credit.refund(5, &mut ready);
        assert_eq!(ready.pop_front().map(|turn| turn.qp), Some(slot(0)));
        // That turn never comes, but nothing is in flight any more.
        credit.refund(5, &mut ready);
        assert_eq!(ready.pop_front().map(|turn| turn.qp), Some(slot(1)));
        // This one has nothing to send: the next has his turn.
        credit.pass_on(&mut ready);
        assert_eq!(ready.pop_front().map(|turn| turn.qp), Some(slot(2)));
        credit.pass_on(&mut ready);
        assert!(ready.is_empty());
    }
}
