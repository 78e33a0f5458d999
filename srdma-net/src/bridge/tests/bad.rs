//! Links that lead elsewhere, and memory that makes no sense.

use super::*;
use crate::sys::shm::Shm;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::symlink;
use std::path::Path;

fn place_of(fd: BorrowedFd<'_>) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

#[test]
fn links_to_anything_else_lead_nowhere_and_are_swept_up() {
    // proves: bridge-2
    let (mut a, mut b) = (Side::new(), Side::new());
    let c = Side::new();
    let link = b.link();
    let other = Shm::create(1 << 20, 4096).unwrap();
    let here = [
        place_of(c.own().yard.fd()),
        place_of(other.fd()),
        place_of(c.sockets[0].tx_fd()),
    ];
    let nowhere = ["/nowhere", "/dev/null", "/proc/self/exe"].map(str::to_owned);
    for target in here.iter().chain(&nowhere) {
        let _ = std::fs::remove_file(&link);
        let mut d = Side::new();
        symlink(target, &link).unwrap();
        assert!(!d.say(&b, 1), "{target}");
        // Whoever opens a device sweeps (other tests do, too), but only what surely is dead.
        drop(Side::new());
        let left = link.symlink_metadata().is_ok();
        let dead = ["/nowhere", "/dev/null"].contains(&target.as_str());
        assert_eq!(left, !dead, "{target}");
    }
    let killed = Side::new();
    let _ = std::fs::remove_file(&link);
    symlink(place_of(killed.own().yard.fd()), &link).unwrap();
    lock::unlock(killed.own().yard.fd(), LOCK_LIFE, 1).unwrap();
    drop(Side::new());
    assert!(link.symlink_metadata().is_err(), "its owner has died");
    // Whoever opens the port makes it right.
    b.bridge.inbox.receive_for(b.addr(), link.clone()).unwrap();
    assert!(a.say(&b, 1));
    assert_eq!(b.take().len(), 1);
    // One that says that it is closed.
    b.own().yard.word(OPEN_AT).store(0, Ordering::Relaxed);
    assert!(!Side::new().say(&b, 2) && !a.say(&b, 2));
    // Who goes leaves alone what is not its own.
    let _ = std::fs::remove_file(&link);
    symlink(&here[0], &link).unwrap();
    drop(b);
    assert_eq!(std::fs::read_link(&link).unwrap(), Path::new(&here[0]));
    std::fs::remove_file(&link).unwrap();
}

#[test]
fn a_record_that_makes_no_sense_ends_its_lane_and_no_other() {
    // proves: bridge-2
    const LEN: u64 = 3 * 1000;
    let header = |len: u64, stride: u64| stride << 32 | len;
    let bad = [
        (header(0, 1000), 0, "no bytes"),
        (header(1 << 17, 1000), 0, "longer than any run"),
        (header(u64::from(u32::MAX), 1000), 0, "longer than all"),
        (header(LEN + 200, 1000), 0, "longer than what lies there"),
        (header(LEN, 0), 0, "without a stride"),
        (header(LEN, 15), 0, "packets that are none"),
        (header(LEN, 16), 0, "more packets than anybody sends"),
        (
            header(LEN, 1000),
            RING as u64 + 64,
            "more than the ring holds",
        ),
        (
            header(LEN, 1000),
            u64::MAX - 4096,
            "taken out before it was put in",
        ),
    ];
    for (start_too, (word, more, what)) in bad.into_iter().enumerate() {
        let (mut a, mut b, mut c) = (Side::new(), Side::new(), Side::new());
        assert!(a.say(&b, 1) && c.say(&b, 2));
        assert_eq!(b.take().len(), 2);
        let script = a.script(&b, &[1000; 3]);
        a.send(&script);
        let own = b.own();
        let (lane, ring) = (own.yard.lane(0), own.yard.map_ring(0).unwrap());
        let start = lane.start().load(Ordering::Relaxed);
        ring.header(start).store(word, Ordering::Relaxed);
        lane.end().fetch_add(more, Ordering::Relaxed);
        if start_too % 2 == 1 {
            lane.start().store(start ^ 1 << 40, Ordering::Relaxed);
        }
        assert_eq!((b.take().len(), b.refused()), (0, 1), "{what}");
        // It is told, and others go on.
        assert!(!a.say(&b, 3), "{what}");
        assert!(c.say(&b, 4) && b.take().len() == 1, "{what}");
        // The lane is as good as new for whoever has it next.
        drop(a);
        let mut d = Side::new();
        assert!(d.say(&b, 5), "{what}");
        assert_eq!(
            lane.turn().load(Ordering::Relaxed),
            4,
            "the second sender of it"
        );
        assert_eq!(b.take()[0].0.source, d.addr(), "{what}");
        assert_eq!(b.refused(), 1, "{what}");
    }
}

#[test]
fn who_lies_about_itself_is_not_heard() {
    // proves: bridge-2
    for field in 0..3 {
        let (mut a, mut b, other) = (Side::new(), Side::new(), Side::new());
        assert!(a.say(&b, 1));
        let own = b.own();
        let lane = own.yard.lane(0);
        match field {
            0 => own.yard.set_addr(lane.target(), other.addr()),
            1 => own
                .yard
                .set_addr(lane.source(), "[::1]:50000".parse().unwrap()),
            _ => own
                .yard
                .word(lane.source())
                .store(7 << 16, Ordering::Relaxed),
        }
        assert_eq!((b.take().len(), b.refused()), (0, 1));
        assert!(!a.say(&b, 2), "it is told");
    }
}

#[test]
fn garbage_stops_nobody_else() {
    // proves: bridge-2
    for seed in 0..300u64 {
        println!("seed {seed}");
        let mut rng = fastrand::Rng::with_seed(seed);
        let (mut a, mut b, mut c) = (Side::new(), Side::new(), Side::new());
        assert!(a.say(&b, 1) && c.say(&b, 2));
        assert_eq!(b.take().len(), 2);
        let own = b.own();
        let (lane, ring) = (own.yard.lane(0), own.yard.map_ring(0).unwrap());
        let mut script = Script::new();
        for _ in 0..1 + rng.usize(..4) {
            a.write(&mut script, &b, 3, &[1000, 1000, 40]);
        }
        a.send(&script);
        let word = |rng: &mut fastrand::Rng| match rng.u8(..4) {
            0 => rng.u64(..),
            1 => rng.u64(..1 << 20),
            2 => u64::MAX - rng.u64(..9000),
            _ => 0,
        };
        match rng.u8(..4) {
            0 => lane.end().store(word(&mut rng), Ordering::Relaxed),
            1 => ring
                .header(rng.u64(..4000) / 8 * 8)
                .store(word(&mut rng), Ordering::Relaxed),
            2 => {
                for _ in 0..100 {
                    let at = LANES_AT + rng.usize(..LANE) / 8 * 8;
                    own.yard.word(at).store(word(&mut rng), Ordering::Relaxed);
                }
            }
            _ => {
                for at in (0..8192).step_by(8) {
                    ring.header(at).store(word(&mut rng), Ordering::Relaxed);
                }
                own.yard.word(USED_AT).store(u64::MAX, Ordering::Relaxed);
            }
        }
        own.yard.ring();
        for _ in 0..100 {
            assert!(b.take_once().iter().all(|(_, bytes)| !bytes.is_empty()));
        }
        assert!(c.say(&b, 9));
        let heard = b.take_once();
        assert!(heard.iter().any(|(meta, _)| meta.source == c.addr()));
        // The sender does not trust the receiver either.
        for lane in [&lane, &own.yard.lane(1)] {
            lane.start().store(word(&mut rng), Ordering::Relaxed);
        }
        for _ in 0..RING / 40_000 {
            a.write(&mut script, &b, 4, &[4000; 10]);
        }
        a.send(&script);
        c.send(&script);
    }
}
