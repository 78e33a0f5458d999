//! What the rules say of a packet.

use super::rule::{DeviceFault, Direction, FaultAction, FaultRule};
use bytes::{Bytes, BytesMut};
use fastrand::Rng;
use srdma_core::num::Qpn;
use srdma_core::trace::PacketNote;
use srdma_core::wire::Opcode;

/// What becomes of a packet.
#[derive(Debug, Default)]
pub(super) struct Decision {
    pub(super) dropped: bool,
    pub(super) twice: bool,
    pub(super) delay_ns: u64,
    /// Its bytes, some bits of them flipped.
    pub(super) flipped: Option<Bytes>,
    pub(super) note: PacketNote,
    pub(super) device: Vec<DeviceFault>,
}

impl Decision {
    /// The packet goes on as it is, at once, and nothing comes with it but maybe a copy.
    pub(super) const fn is_prompt(&self) -> bool {
        !self.dropped && self.delay_ns == 0 && self.flipped.is_none() && self.device.is_empty()
    }

    /// What is said of the copy.
    pub(super) fn copy_note() -> PacketNote {
        PacketNote::NONE.with_duplicated(true)
    }

    /// The packet, and its duplicate, which nothing else happens to: bytes, note, delay, and
    /// whether it is the first.
    pub(super) fn copies(
        &self,
        bytes: Bytes,
    ) -> impl Iterator<Item = (Bytes, PacketNote, u64, bool)> {
        // A clone makes the memory shared, which only one of many packets needs.
        let second = self
            .twice
            .then(|| (bytes.clone(), Self::copy_note(), 0, false));
        let first = self.flipped.clone().unwrap_or(bytes);
        [(first, self.note, self.delay_ns, true)]
            .into_iter()
            .chain(second)
    }
}

/// Rules, and how often each has fitted.
#[derive(Debug)]
pub(super) struct Judge {
    rules: Vec<Counted>,
    random: Rng,
}

#[derive(Debug)]
struct Counted {
    rule: FaultRule,
    opcodes: Option<Vec<bool>>,
    fitted: u64,
    taken: u64,
    /// Packets that chance passes over before it takes one, once it was drawn.
    misses: Option<u64>,
}

/// The parts of a BTH that rules look at.
struct Bth {
    opcode: u8,
    dest: Qpn,
    psn: u32,
}

impl Bth {
    fn of(bytes: &[u8]) -> Option<Self> {
        let &[opcode, _, _, _, _, a, b, c, _, d, e, f, ..] = bytes else {
            return None;
        };
        let dest = Qpn::new(u32::from_be_bytes([0, a, b, c]));
        let psn = u32::from_be_bytes([0, d, e, f]);
        Some(Self { opcode, dest, psn })
    }
}

/// The queue pair that a packet is for.
pub(crate) fn dest_of(bytes: &[u8]) -> Qpn {
    Bth::of(bytes).map_or(Qpn::new(0), |bth| bth.dest)
}

impl Counted {
    fn fits(&self, bth: Option<&Bth>) -> bool {
        let to = &self.rule.to;
        let Some(bth) = bth else {
            return self.opcodes.is_none() && to.qp.is_none() && to.psn.is_none();
        };
        let opcode = |list: &Vec<bool>| list.get(usize::from(bth.opcode)) == Some(&true);
        self.opcodes.as_ref().is_none_or(opcode)
            && to.qp.is_none_or(|qp| qp == bth.dest)
            && to.psn.as_ref().is_none_or(|psns| psns.contains(&bth.psn))
    }

    fn takes(&mut self, random: &mut Rng) -> bool {
        let to = &self.rule.to;
        self.fitted += 1;
        let taken = to.nth.is_none_or(|nth| nth == self.fitted)
            && to
                .every
                .is_none_or(|every| self.fitted.is_multiple_of(every.max(1)))
            && to.times.is_none_or(|times| self.taken < times)
            && to
                .chance
                .is_none_or(|odds| by_chance(&mut self.misses, odds, random));
        self.taken += u64::from(taken);
        taken
    }

    /// So many packets will not be taken, whatever they are.
    fn passes_over(&mut self, random: &mut Rng) -> u64 {
        let to = &self.rule.to;
        if to.times.is_some_and(|times| self.taken >= times) {
            return u64::MAX;
        }
        let blind = self.opcodes.is_none() && to.qp.is_none() && to.psn.is_none();
        match to.chance {
            Some(odds) if blind && to.nth.is_none() && to.every.is_none() => {
                *self.misses.get_or_insert_with(|| misses(odds, random))
            }
            _ => 0,
        }
    }

    /// So many packets were not taken.
    fn pass_over(&mut self, count: u64) {
        self.fitted += count;
        if let Some(misses) = &mut self.misses {
            *misses = misses.saturating_sub(count);
        }
    }
}

/// How many packets come before the next one that is taken, each with probability `odds`: drawn
/// once, it is as if each had been asked for.
fn misses(odds: f64, random: &mut Rng) -> u64 {
    if odds >= 1.0 {
        return 0;
    }
    // Of `1 - odds` to the n-th, at most.
    let left = 1.0 - random.f64();
    let count = left.ln() / (-odds).ln_1p();
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "not negative, and what is too large is never reached"
    )]
    if count.is_finite() && odds > 0.0 {
        count as u64
    } else {
        u64::MAX
    }
}

fn by_chance(left: &mut Option<u64>, odds: f64, random: &mut Rng) -> bool {
    let before = left.take().unwrap_or_else(|| misses(odds, random));
    *left = before.checked_sub(1);
    before == 0
}

impl Judge {
    pub(super) fn new(rules: Vec<FaultRule>, random: Rng) -> Self {
        let counted = |rule: FaultRule| Counted {
            opcodes: rule.to.opcode.as_deref().map(opcodes),
            rule,
            fitted: 0,
            taken: 0,
            misses: None,
        };
        let rules = rules.into_iter().map(counted).collect();
        Self { rules, random }
    }

    pub(super) fn has(&self, direction: Direction) -> bool {
        self.rules
            .iter()
            .any(|counted| counted.rule.direction == direction)
    }

    /// How many of the next `count` packets nothing happens to, whatever they are; they count.
    pub(super) fn pass_over(&mut self, direction: Direction, count: u64) -> u64 {
        let mut over = count;
        let ours = |counted: &&mut Counted| counted.rule.direction == direction;
        for counted in self.rules.iter_mut().filter(ours) {
            over = over.min(counted.passes_over(&mut self.random));
        }
        for counted in self.rules.iter_mut().filter(ours) {
            counted.pass_over(over);
        }
        over
    }

    /// What becomes of `bytes`. Every rule that fits counts, also behind one that drops.
    pub(super) fn decide(&mut self, direction: Direction, bytes: &[u8]) -> Decision {
        let bth = Bth::of(bytes);
        let mut decision = Decision::default();
        for counted in &mut self.rules {
            let ours = counted.rule.direction == direction && counted.fits(bth.as_ref());
            if !ours || !counted.takes(&mut self.random) {
                continue;
            }
            let note = decision.note;
            match counted.rule.action {
                FaultAction::Drop => {
                    decision.dropped = true;
                    decision.note = note.with_dropped(true);
                }
                FaultAction::Duplicate => decision.twice = true,
                FaultAction::Reorder { ns } => {
                    decision.delay_ns += self.random.u64(1..=ns.max(1));
                    decision.note = note.with_reordered(true);
                }
                FaultAction::Delay { ns } => {
                    decision.delay_ns = decision.delay_ns.saturating_add(ns);
                    decision.note = note.with_delayed(true);
                }
                FaultAction::Corrupt => {
                    decision.flipped = Some(flip_bits(bytes, &mut self.random));
                    decision.note = note.with_corrupted(true);
                }
                FaultAction::Device(fault) => decision.device.push(fault),
            }
        }
        let held_us = u32::try_from(decision.delay_ns / 1000).unwrap_or(u32::MAX);
        decision.note = decision.note.with_held_us(held_us);
        decision
    }
}

fn flip_bits(bytes: &[u8], random: &mut Rng) -> Bytes {
    let mut copy = BytesMut::from(bytes);
    for _ in 0..random.u8(1..=3) {
        let at = random.usize(..copy.len().max(1));
        if let Some(byte) = copy.get_mut(at) {
            *byte ^= 1 << random.u8(..8);
        }
    }
    copy.freeze()
}

/// Which opcodes `pattern` names: a number, or a name with `*` for any letters.
pub(super) fn opcodes(pattern: &str) -> Vec<bool> {
    let digits = pattern.strip_prefix("0x");
    let number = digits.map_or_else(|| pattern.parse(), |hex| u8::from_str_radix(hex, 16));
    let named = |opcode: Opcode| opcode.name().is_some_and(|name| like(pattern, name));
    let fits = |opcode: u8| match number {
        Ok(number) => opcode == number,
        // What everybody knows it as, whatever it has besides.
        Err(_) => {
            let known = Opcode(opcode).own();
            named(Opcode(opcode)) || known.is_some_and(|(known, _)| named(known))
        }
    };
    (0..=u8::MAX).map(fits).collect()
}

fn like(pattern: &str, name: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else {
        return pattern.eq_ignore_ascii_case(name);
    };
    let Some(head) = name.get(..start.len()) else {
        return false;
    };
    head.eq_ignore_ascii_case(start)
        && (start.len()..=name.len()).any(|at| name.get(at..).is_some_and(|tail| like(rest, tail)))
}
