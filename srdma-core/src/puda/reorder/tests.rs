//! The list alone: its order, its limits, what it counts.

use super::*;
use crate::limits::IEQ_BUFFERS;
use crate::puda::IeqMode;

struct Rig {
    list: Reorder,
    ieq: Ieq,
    counters: Counters,
}

impl Rig {
    fn new() -> Self {
        Self {
            list: Reorder::default(),
            ieq: Ieq::new(IeqMode::Reorder, 200_000, 0),
            counters: Counters::default(),
        }
    }

    fn admit(&mut self, epsn: Psn, ahead: u32) -> Admission {
        let psn = epsn.add(ahead);
        let bytes = psn.value().to_be_bytes();
        let (ieq, counters) = (&mut self.ieq, &mut self.counters);
        let place = match self.list.find((psn, ahead), counters) {
            Ok(place) => place,
            Err(admission) => return admission,
        };
        let room = self.list.make_room(place, ieq, counters);
        let what = room.then(|| Reorder::keep(&bytes, ieq)).flatten();
        let at = Instant(u64::from(ahead));
        match what {
            Some(what) => self.list.insert(
                place,
                Held {
                    psn,
                    at,
                    part: None,
                    first: None,
                    what,
                },
                counters,
            ),
            None => self.list.refuse(counters),
        }
    }

    fn take(&mut self, epsn: Psn) -> Option<u32> {
        let taken = self.list.take(epsn, &mut self.ieq, &mut self.counters)?;
        let What::Whole(buf) = taken else {
            panic!("{taken:?} was kept whole");
        };
        let bytes = <[u8; 4]>::try_from(&*buf).expect("four bytes");
        self.ieq.pool.put(buf);
        Some(u32::from_be_bytes(bytes))
    }

    /// What was taken in was served, given up, or is here; and so are the buffers.
    fn check(&self) {
        let stats = self.list.stats();
        let gone = stats.fpdu_processed + stats.discarded;
        assert_eq!(stats.out_of_order, gone + stats.list_len);
        assert_eq!(self.ieq.pool.out() as u64, stats.list_len);
        assert_eq!(self.ieq.pool.available() + self.ieq.pool.out(), IEQ_BUFFERS);
    }
}

#[test]
fn any_order_comes_out_in_the_order_of_psns() {
    // proves: ieq-2
    for seed in 0..50 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut rig = Rig::new();
        let epsn = Psn::new(0xff_ffe0);
        let mut ahead: Vec<u32> = (1..100).collect();
        rng.shuffle(&mut ahead);
        for distance in &ahead {
            assert_eq!(rig.admit(epsn, *distance), Admission::Held, "seed {seed}");
            assert_eq!(rig.admit(epsn, *distance), Admission::Copy, "seed {seed}");
            rig.check();
        }
        for distance in 1..100 {
            let psn = epsn.add(distance);
            assert_eq!(rig.take(psn), Some(psn.value()), "seed {seed}");
        }
        assert!(rig.list.is_empty());
        rig.check();
        let stats = rig.list.stats();
        assert_eq!(
            (stats.dup_held, stats.pmode_count, stats.list_max),
            (99, 1, 99)
        );
    }
}

#[test]
fn what_was_served_otherwise_goes() {
    let mut rig = Rig::new();
    let epsn = Psn::new(10);
    for ahead in [1, 2, 5] {
        rig.admit(epsn, ahead);
    }
    assert_eq!(rig.take(epsn), None);
    assert_eq!(rig.take(Psn::new(15)), Some(15));
    assert_eq!(rig.list.stats().discarded, 2);
    rig.check();
}

#[test]
fn a_full_list_keeps_what_is_needed_first() {
    // proves: ieq-3, roce-155
    let mut rig = Rig::new();
    let epsn = Psn::new(0);
    let cap = u32::try_from(IEQ_HELD_PER_QP).expect("small");
    for ahead in 0..cap {
        assert_eq!(rig.admit(epsn, ahead + 2), Admission::Held);
    }
    assert_eq!(rig.admit(epsn, IEQ_WINDOW + 1), Admission::Refused);
    assert_eq!(rig.admit(epsn, cap + 2), Admission::Refused, "the farthest");
    assert_eq!(rig.admit(epsn, 1), Admission::Held, "the nearest");
    rig.check();
    let stats = rig.list.stats();
    assert_eq!((stats.list_len, stats.discarded), (u64::from(cap), 1));
    assert_eq!((stats.bad_seq_num, stats.no_rx_bufs), (1, 1));
    rig.list.discard(&mut rig.ieq, &mut rig.counters);
    rig.check();
    assert_eq!(rig.ieq.pool.available(), IEQ_BUFFERS);
}

#[test]
fn all_lists_together_leave_buffers_for_others() {
    // proves: ieq-4, roce-155
    let mut rig = Rig::new();
    let mut lists = Vec::new();
    for _ in 0..IEQ_BUFFERS / IEQ_HELD_PER_QP + 1 {
        rig.list = Reorder::default();
        for ahead in 1..600 {
            rig.admit(Psn::new(0), ahead);
        }
        lists.push(std::mem::take(&mut rig.list));
    }
    assert_eq!(rig.ieq.pool.available(), IEQ_LOW_WATER);
    assert!(rig.counters.ieq_no_rx_bufs > 0);
    for mut list in lists {
        list.discard(&mut rig.ieq, &mut rig.counters);
    }
    assert_eq!(rig.ieq.pool.out(), 0);
    let counters = &rig.counters;
    assert_eq!(counters.ieq_out_of_order, counters.ieq_discarded);
}

#[test]
fn patience_grows_with_late_packets_and_shrinks_with_lost_ones() {
    let mut patience = Patience::default();
    let first = patience.wait_ns(200_000);
    patience.filled(Psn::new(1), 30_000, (false, None));
    assert_eq!(patience.wait_ns(200_000), 60_000);
    assert_eq!(patience.wait_ns(50_000), 50_000, "never above the limit");
    for psn in 2..80 {
        patience.filled(Psn::new(psn), 500_000, (true, Some(100_000)));
    }
    assert_eq!(patience.wait_ns(200_000), 0, "losses: no use in waiting");
    assert_eq!(patience.repeat_ns(), LEAST_REPEAT_NS);
    patience.copy_of(Psn::new(3), 200_000);
    assert_eq!(patience.wait_ns(200_000), 0, "an old copy means nothing");
    patience.copy_of(Psn::new(79), 200_000);
    assert_eq!(patience.wait_ns(200_000), 200_000, "it was only late");
    assert!(first > 0);
}
