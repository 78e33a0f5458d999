//! Bridges of several devices in one process, which is all the same to shared memory.

mod bad;

use super::inbox::{BYTES, RECORDS};
use super::outbox::{Crossed, LOOKS, YARDS};
use super::yard::*;
use super::*;
use crate::share;
use crate::sys::lock;
use crate::sys::ppoll::sleep_on;
use crate::testing::{Script, address, config};
use srdma_core::rx::RxMeta;
use std::collections::HashSet;
use std::net::IpAddr;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

struct Side {
    bridge: Bridge,
    sockets: Vec<RoceSocket>,
    share: Arc<Share>,
}

impl Side {
    fn on(addr: IpAddr) -> Self {
        let (sockets, share) = share::open(&[addr], &config(true, true)).unwrap();
        let share = share.unwrap();
        Self {
            bridge: Bridge::open(&share, &sockets).unwrap(),
            sockets,
            share,
        }
    }

    fn new() -> Self {
        Self::on(address())
    }

    fn addr(&self) -> SocketAddr {
        SocketAddr::new(self.sockets[0].local(), self.sockets[0].tx_port())
    }

    /// Adds a run from here to `to`.
    fn write(&self, script: &mut Script, to: &Self, first: u8, lens: &[usize]) {
        let run = script.run(self.addr().ip(), to.addr().ip(), first, lens);
        run.target = to.addr();
        run.tclass = first & 0xfc | 2;
        run.hop_limit = 255;
    }

    fn script(&self, to: &Self, lens: &[usize]) -> Script {
        let mut script = Script::new();
        self.write(&mut script, to, 7, lens);
        script
    }

    /// What becomes of the runs of a batch; `runs` also counts those that are left to sockets.
    fn send(&mut self, script: &Script) -> Crossed {
        script.lend(|batch| {
            let mut done = Crossed {
                runs: 0,
                full: false,
            };
            for _ in 0..2 * batch.runs.len() {
                done.runs += self.bridge.lets_pass(&self.sockets, batch, done.runs);
                let crossed = self.bridge.outbox.send(&self.sockets, batch, done.runs);
                done.runs += crossed.runs;
                done.full = crossed.full;
                if done.full || done.runs == batch.runs.len() {
                    return done;
                }
            }
            panic!("no end: {done:?}");
        })
    }

    /// Sends until it does not cross; how often it did.
    fn fill(&mut self, script: &Script) -> usize {
        let room = RING / 64;
        let sent = (0..=room).position(|_| self.send(script).full);
        sent.expect("it is full some time")
    }

    /// Waits until nothing is held any more.
    fn wait(&mut self) {
        let mut held = (0..4000).map(|_| {
            std::thread::sleep(Duration::from_millis(5));
            self.bridge.outbox.is_held()
        });
        assert!(held.any(|held| !held), "it is waited for without end");
    }

    /// A run of one packet to `to`: whether it crossed.
    fn say(&mut self, to: &Self, first: u8) -> bool {
        let before = self.bridge.outbox.counters().runs;
        let mut script = Script::new();
        self.write(&mut script, to, first, &[64]);
        assert_eq!(self.send(&script).runs, 1);
        self.bridge.outbox.counters().runs > before
    }

    fn take_once(&mut self) -> Vec<(RxMeta, Vec<u8>)> {
        let mut all = Vec::new();
        let inbox = &mut self.bridge.inbox;
        inbox.notice();
        inbox.greet();
        inbox.take(|meta, bytes, _| all.push((*meta, bytes.to_vec())));
        all
    }

    fn take(&mut self) -> Vec<(RxMeta, Vec<u8>)> {
        let mut all = Vec::new();
        for _ in 0..RING / 64 {
            if !self.bridge.inbox.rang() {
                break;
            }
            all.extend(self.take_once());
        }
        all
    }

    fn own(&self) -> Arc<OwnYard> {
        Arc::clone(self.bridge.inbox.own())
    }

    fn link(&self) -> std::path::PathBuf {
        self.share.bridge_link(self.addr())
    }

    fn refused(&self) -> u64 {
        self.bridge.inbox.counters().refused
    }
}

#[test]
fn runs_cross_whole_and_in_order() {
    // proves: bridge-1
    let (mut a, mut b) = (Side::new(), Side::new());
    for seed in 0..4u64 {
        println!("seed {seed}");
        let mut rng = fastrand::Rng::with_seed(seed);
        for round in 0..60u8 {
            let mut script = Script::new();
            let mut want = Vec::new();
            for run in 0..rng.u8(1..30) {
                let (packets, stride) = (rng.usize(1..=15), rng.usize(16..=4136));
                let mut lens = vec![stride; packets];
                lens[packets - 1] = rng.usize(16..=stride);
                let first = run.wrapping_mul(16).wrapping_add(round);
                a.write(&mut script, &b, first, &lens);
                let bytes = lens.iter().enumerate().flat_map(|(k, len)| {
                    std::iter::repeat_n(first.wrapping_add(u8::try_from(k).unwrap()), *len)
                });
                let bytes: Vec<u8> = bytes.collect();
                let stride = if packets > 1 { stride } else { bytes.len() };
                want.push((first, stride, bytes));
            }
            assert_eq!(a.send(&script).runs, want.len());
            let got = b.take();
            assert_eq!(got.len(), want.len());
            for ((meta, bytes), (first, stride, want)) in got.into_iter().zip(want) {
                assert!(bytes == want, "round {round}");
                let from = (meta.source, meta.stride, meta.first);
                assert_eq!(from, (a.addr(), stride, 0));
                assert_eq!((meta.local, meta.port), (b.addr().ip(), b.addr().port()));
                assert_eq!((meta.tclass, meta.hop_limit), (first & 0xfc | 2, 255));
                assert_eq!(meta.ecn, srdma_core::wire::flow::Ecn::Ect0);
            }
        }
    }
    let (crossed, came) = (a.bridge.outbox.counters(), b.bridge.inbox.counters());
    assert!(came.bytes > 8 * RING as u64, "wrapped");
    assert_eq!(
        (crossed.runs, crossed.full, crossed.lost),
        (came.records, 0, 0)
    );
}

#[test]
fn a_pass_takes_so_much_of_each_sender() {
    let (mut a, mut b, mut c) = (Side::new(), Side::new(), Side::new());
    let small = a.script(&b, &[64]);
    for _ in 0..100 {
        a.send(&small);
    }
    assert!(c.say(&b, 1));
    let from_a = |got: &[(RxMeta, Vec<u8>)]| {
        let from_a = got.iter().filter(|(meta, _)| meta.source == a.addr());
        from_a.count()
    };
    let got = b.take_once();
    assert_eq!((from_a(&got), got.len()), (RECORDS, RECORDS + 1));
    assert_eq!(b.take().len(), 100 - RECORDS);
    let large = a.script(&b, &[4112; 15]);
    for _ in 0..10 {
        a.send(&large);
    }
    let bytes: usize = b.take_once().iter().map(|(_, bytes)| bytes.len()).sum();
    assert!((BYTES..BYTES + 15 * 4112).contains(&bytes), "{bytes}");
}

#[test]
fn a_full_lane_is_waited_for_and_nothing_is_lost() {
    let (mut a, mut b) = (Side::new(), Side::new());
    let script = a.script(&b, &[4112; 15]);
    let most = RING / (15 * 4112 + HEADER).next_multiple_of(ALIGN);
    assert_eq!(a.fill(&script), most);
    assert!(a.bridge.outbox.is_held());
    assert!(!b.take_once().is_empty());
    assert!(!a.bridge.outbox.is_held(), "there is room");
    assert!(!a.send(&script).full);
    assert_eq!(b.take().len() + BYTES.div_ceil(15 * 4112), most + 1);
    assert_eq!(a.bridge.outbox.counters().lost, 0);
}

#[test]
fn who_takes_nothing_for_long_loses_what_comes_and_may_come_back() {
    // proves: bridge-3
    let (mut a, mut b, mut c) = (Side::new(), Side::new(), Side::new());
    let script = a.script(&b, &[4112; 15]);
    for lost in 1..3 {
        a.fill(&script);
        assert!(a.bridge.outbox.is_held(), "it has all the time again");
        a.wait();
        assert!(!a.send(&script).full, "nobody else is held up");
        assert_eq!(a.bridge.outbox.counters().lost, lost);
        assert!(a.say(&c, 1) && c.take().len() == 1);
        assert!(b.take().len() > 50);
        assert!(a.say(&b, 2));
        assert_eq!(b.take().len(), 1, "it takes again");
    }
}

#[test]
fn whoever_is_gone_is_reached_by_socket() {
    // proves: bridge-2
    let mut a = Side::new();
    let b = Side::new();
    assert!(a.say(&b, 1));
    // Closed.
    let link = b.link();
    let Side {
        sockets,
        share,
        bridge,
    } = b;
    drop(bridge);
    assert!(link.symlink_metadata().is_err(), "no link is left");
    let bridge = Bridge::open(&share, &[]).unwrap();
    let mut b = Side {
        bridge,
        sockets,
        share,
    };
    assert!(!a.say(&b, 2));
    // It comes back, and is found sooner or later.
    b.bridge.add(&b.sockets[0]).unwrap();
    assert!((0..5).any(|_| a.say(&b, 3)));
    // Killed: the link stays, and the lock goes. A full lane is left at once …
    let c = Side::new();
    assert!(a.say(&c, 3));
    lock::unlock(c.own().yard.fd(), LOCK_LIFE, 1).unwrap();
    let script = a.script(&c, &[4112; 15]);
    let most = RING / (15 * 4112) + 2;
    assert!((0..most).all(|_| !a.send(&script).full));
    assert!(!a.say(&c, 4));
    assert!(!Side::new().say(&c, 5));
    // … and one that never gets full after a while.
    let d = Side::new();
    assert!(a.say(&d, 6));
    lock::unlock(d.own().yard.fd(), LOCK_LIFE, 1).unwrap();
    assert!((0..LOOKS).any(|_| !a.say(&d, 7)));
    // So is one that has been waited for when it dies.
    let e = Side::new();
    let script = a.script(&e, &[4112; 15]);
    a.fill(&script);
    lock::unlock(e.own().yard.fd(), LOCK_LIFE, 1).unwrap();
    a.wait();
    a.send(&script);
    assert_eq!(a.bridge.outbox.counters().lost, 0);
    assert!(!a.say(&e, 8));
}

#[test]
fn who_talks_to_many_keeps_few_yards_open() {
    let mut a = Side::new();
    let open = |a: &Side| a.bridge.outbox.yards();
    for _ in 0..20 {
        assert!(a.say(&Side::new(), 1));
    }
    let (b, here) = (Side::new(), address());
    assert!(a.say(&b, 1));
    assert_eq!(open(&a), 1, "those that are closed are let go");
    let many: Vec<Side> = (0..=YARDS).map(|_| Side::on(here)).collect();
    let crossed = many.iter().filter(|to| a.say(to, 2)).count();
    assert_eq!((crossed, open(&a)), (YARDS - 1, YARDS));
    drop(many);
    assert!(a.say(&Side::new(), 3), "there is room again");
}

#[test]
fn a_lane_has_one_sender_and_further_ones_use_sockets() {
    let mut b = Side::new();
    let mut senders: Vec<Side> = (0..=LANES).map(|_| Side::new()).collect();
    let crossed: Vec<bool> = senders.iter_mut().map(|a| a.say(&b, 1)).collect();
    assert_eq!(crossed.iter().filter(|crossed| **crossed).count(), LANES);
    assert!(!crossed[LANES], "the last finds none");
    let from: HashSet<_> = b.take().iter().map(|(meta, _)| meta.source).collect();
    assert_eq!(from.len(), LANES);
    drop(senders.swap_remove(0));
    let mut late = Side::new();
    assert!(late.say(&b, 2), "its lane is free again");
    let got = b.take();
    assert_eq!((got.len(), got[0].0.source), (1, late.addr()));
}

#[test]
fn what_one_sender_leaves_is_its_own_and_the_next_is_heard_after_it() {
    // proves: bridge-1
    let mut b = Side::new();
    let mut first = Side::new();
    assert!(first.say(&b, 1));
    let was = first.addr();
    drop(first);
    let mut second = Side::new();
    assert!(second.say(&b, 2), "a lane of its own");
    let sources: Vec<_> = b.take().iter().map(|(meta, _)| meta.source).collect();
    assert_eq!(sources, [was, second.addr()]);
    // One that comes while others are listened to.
    assert!(second.say(&b, 3));
    let mut third = Side::new();
    let inbox = &mut b.bridge.inbox;
    assert!(!inbox.notice());
    inbox.greet();
    let mut script = Script::new();
    let run = script.run(third.addr().ip(), inbox.doors()[0].ip(), 4, &[64]);
    run.target = inbox.doors()[0];
    third.send(&script);
    assert_eq!(third.bridge.outbox.counters().runs, 1);
    assert_eq!(b.bridge.inbox.take(|_, _, _| ()), 1);
    assert!(b.bridge.inbox.rang(), "it is not forgotten");
    assert_eq!(b.take()[0].0.source, third.addr());
}

#[test]
fn a_sleeper_is_woken_and_one_that_is_late_does_not_sleep() {
    // proves: bridge-4
    let (mut a, mut b) = (Side::new(), Side::new());
    let own = b.own();
    let knocks = |a: &Side| a.bridge.outbox.counters().knocks;
    assert!(a.say(&b, 1));
    assert_eq!(knocks(&a), 0, "nobody sleeps");
    assert!(own.lie_down(Sleeper::Thread), "it has come already");
    own.get_up(Sleeper::Thread);
    b.take();
    assert!(!own.lie_down(Sleeper::Thread));
    assert!(!own.has_left_a_sleeper(), "there is nothing");
    assert!(a.say(&b, 2));
    assert_eq!(knocks(&a), 1);
    let mut rx = crate::rx::RxRing::new(1);
    assert_eq!(rx.receive(b.sockets[0].private()), 1);
    assert_eq!((rx.datagrams().count(), rx.counters().empty), (0, 1));
    // Whoever takes that and not all of the rest has to wake it.
    assert!(own.has_left_a_sleeper());
    own.get_up(Sleeper::Thread);
    assert!(!own.has_left_a_sleeper(), "it is awake");
    b.take();
    assert!(!own.lie_down(Sleeper::Parked));
    own.get_up(Sleeper::Thread);
    assert!(a.say(&b, 3));
    assert_eq!(knocks(&a), 2, "the other one still sleeps");
}

#[test]
fn no_ring_is_missed_however_close_it_comes_to_falling_asleep() {
    // proves: bridge-4
    const ROUNDS: u64 = 20_000;
    let (mut a, mut b) = (Side::new(), Side::new());
    let (taken, stop) = (AtomicU64::new(0), AtomicU64::new(0));
    let (own, script) = (b.own(), a.script(&b, &[64]));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            println!("seed 1");
            let mut rng = fastrand::Rng::with_seed(1);
            for round in 1..=ROUNDS {
                // Before, while or after the other lies down.
                for _ in 0..rng.u32(..400) {
                    std::hint::spin_loop();
                }
                assert_eq!(a.send(&script).runs, 1);
                while taken.load(Ordering::Acquire) < round {
                    if stop.load(Ordering::Relaxed) != 0 {
                        return;
                    }
                    std::thread::yield_now();
                }
            }
        });
        let mut rx = crate::rx::RxRing::new(4);
        let mut count = 0;
        while count < ROUNDS {
            count += b.take().len() as u64;
            taken.store(count, Ordering::Release);
            if count == ROUNDS || own.lie_down(Sleeper::Thread) {
                own.get_up(Sleeper::Thread);
                continue;
            }
            let socket = b.sockets[0].private();
            let limit = Duration::from_secs(20).as_nanos().try_into().unwrap();
            sleep_on([socket.fd().as_raw_fd()].into_iter(), Some(limit)).unwrap();
            own.get_up(Sleeper::Thread);
            if rx.receive(socket) == 0 {
                stop.store(1, Ordering::Relaxed);
                panic!("round {count}: nobody woke us");
            }
        }
    });
    assert!(a.bridge.outbox.counters().knocks > 100, "it did sleep");
}
