//! Arming against completing, in every order that the memory model allows.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p srdma-core --release --lib loom`

use super::{ArmState, Kind};
use crate::hw::CqeInfo;
use crate::ring::loom_tests::memory;
use crate::ring::{CqConsumer, CqProducer, CqShadow};
use crate::sync::{Ordering, fence};
use loom::thread;

/// The driver finds nothing, arms, and polls once more; the device completes, closes its pass, and
/// only later takes the doorbell. Either the poll finds the completion, or there is an event.
#[test]
fn loom_no_wakeup_is_lost() {
    // proves: e810-26
    loom::model(|| {
        let (words, shadow) = (memory(8), CqShadow::new(memory(8)).unwrap());
        let mut device = CqProducer::new(words.clone(), 2, false, shadow.clone(), 0).unwrap();
        let mut driver = CqConsumer::new(words, 2, false, shadow).unwrap();
        let pass = thread::spawn(move || {
            let mut arm = ArmState::default();
            device.push(&CqeInfo::default()).unwrap();
            let met = arm.published(Kind::Plain);
            fence(Ordering::SeqCst);
            let seen = arm.look(device.request(3), Kind::Nothing);
            // The doorbell, in the next pass.
            fence(Ordering::SeqCst);
            let late = arm.look(device.request(3), Kind::Nothing);
            met || seen != Kind::Nothing || late != Kind::Nothing
        });
        driver.shadow().arm(false);
        let polled = driver.peek().is_some();
        let told = pass.join().unwrap();
        assert!(polled || told, "the driver sleeps and nobody wakes it");
    });
}
