//! Who is woken for what crossed the bridge.

use super::link::tests::{Peer, on_the_bridge};
use super::*;
use crate::testing::address;
use std::net::SocketAddr;

/// A device on the bridge, where it receives, and its yard.
fn bridged() -> (Engine, SocketAddr, Arc<OwnYard>) {
    let here = address();
    let engine = Engine::open(on_the_bridge(here)).unwrap();
    let local = engine.shared.lock().link.carrier.local(0).unwrap();
    let own = Arc::clone(engine.shared.yard.as_ref().unwrap());
    (engine, SocketAddr::new(here, local.source_port), own)
}

#[test]
fn whoever_leaves_records_behind_wakes_who_sleeps() {
    // proves: bridge-4
    let (engine, here, own) = bridged();
    let shared = &*engine.shared;
    let mut peer = Peer::new();
    for by in [By::Poller, By::Waiter, By::Armer, By::Anyone, By::Thread] {
        own.lie_down(Sleeper::Thread);
        peer.cross(here, 0..40);
        let mut wakes = 0;
        for _ in 0..10 {
            shared.planned.store(7, Ordering::Relaxed);
            shared.run(shared.lock(), by);
            // The thread of this engine, if it had one, would have been woken.
            wakes += u32::from(shared.planned.load(Ordering::Relaxed) == 0);
        }
        assert!(!own.has_left_a_sleeper(), "all was taken");
        // The background thread finds others asleep, too: a program thread that is parked.
        assert_eq!(wakes, 2, "{by:?}");
        own.get_up(Sleeper::Thread);
    }
}

#[test]
fn who_sleeps_says_so_and_gets_up_again() {
    // proves: bridge-4
    let (engine, here, own) = bridged();
    let shared = &*engine.shared;
    let mut peer = Peer::new();
    for who in [Sleeper::Thread, Sleeper::Parked] {
        shared.sleep(who, std::iter::empty(), Some(0));
        peer.cross(here, 0..1);
        assert!(!own.has_left_a_sleeper(), "it is awake");
        // What came before nobody is woken for.
        let (start, limit) = (std::time::Instant::now(), 60_000_000_000);
        shared.sleep(who, std::iter::empty(), Some(limit));
        assert!(
            u128::from(limit) > 2 * start.elapsed().as_nanos(),
            "{who:?} slept"
        );
        shared.run(shared.lock(), By::Anyone);
        // And what comes later wakes.
        let over = AtomicBool::new(false);
        let slept = std::thread::scope(|scope| {
            let peer = scope.spawn(|| {
                while !own.sleeps() {
                    if over.load(Ordering::Relaxed) {
                        return false;
                    }
                    std::thread::yield_now();
                }
                peer.cross(here, 0..1);
                true
            });
            shared.sleep(who, std::iter::empty(), Some(limit));
            over.store(true, Ordering::Relaxed);
            peer.join().unwrap()
        });
        assert!(slept, "{who:?}: something old had woken it");
        assert!(
            u128::from(limit) > 2 * start.elapsed().as_nanos(),
            "{who:?} was not woken"
        );
        shared.run(shared.lock(), By::Anyone);
    }
}
