//! The arm truth table, repeated sequences, promotion.

use super::*;
use crate::hw::dialect::e810;
use crate::hw::shadow::CqArmWord;

/// The arm word of the `seq`-th arm.
fn bits(seq: u8, solicited_only: bool) -> u64 {
    CqArmWord::ZERO
        .with_seq(seq.wrapping_sub(1))
        .armed(solicited_only)
        .bits()
}

fn word(seq: u8, solicited_only: bool) -> Option<ArmRequest> {
    Some(e810::arm_request(bits(seq, solicited_only)))
}

fn armed(solicited_only: bool) -> ArmState {
    let mut arm = ArmState::default();
    assert_eq!(
        arm.look(word(1, solicited_only), Kind::Nothing),
        Kind::Nothing
    );
    arm
}

#[test]
fn truth_table() {
    // proves: roce-119
    // proves: e810-18
    for (state, kind, event) in [
        (None, Kind::Plain, false),
        (None, Kind::Solicited, false),
        (Some(true), Kind::Plain, false),
        (Some(true), Kind::Solicited, true),
        (Some(false), Kind::Plain, true),
        (Some(false), Kind::Solicited, true),
    ] {
        let mut arm = state.map_or_else(ArmState::default, armed);
        assert_eq!(arm.published(kind), event, "{state:?} {kind:?}");
        assert_eq!(arm.fire(), event);
        assert_eq!(arm.armed() == Armed::Nothing, event || state.is_none());
    }
}

#[test]
fn repeated_sequence_is_ignored() {
    // proves: e810-17
    let mut arm = armed(false);
    assert!(arm.published(Kind::Plain) && arm.fire());
    assert_eq!(arm.look(word(1, false), Kind::Nothing), Kind::Nothing);
    assert_eq!(
        arm.armed(),
        Armed::Nothing,
        "the same word again is the old arm"
    );
    // Four arms on, the two bits are where they were: only a count above them tells.
    let wide = e810::arm_request(bits(1, false) + (1 << 18));
    assert_eq!(arm.look(Some(wide), Kind::Nothing), Kind::Nothing);
    assert_eq!(arm.armed(), Armed::Any);
    let mut wrapped = ArmState::default();
    for seq in [1, 2, 3, 0, 1] {
        wrapped.look(word(seq, true), Kind::Nothing);
        assert!(wrapped.published(Kind::Solicited) && wrapped.fire());
    }
}

#[test]
fn strength_only_grows() {
    // proves: event-15, event-16
    let mut arm = armed(true);
    arm.look(word(2, false), Kind::Nothing);
    assert_eq!(arm.armed(), Armed::Any);
    arm.look(word(3, true), Kind::Nothing);
    assert_eq!(arm.armed(), Armed::Any, "a weaker arm does not demote");
    assert!(arm.published(Kind::Plain) && arm.fire());
    assert!(!arm.published(Kind::Plain), "two arms, one event");
}

#[test]
fn a_held_event_is_not_forgotten() {
    let mut arm = armed(false);
    assert!(arm.published(Kind::Plain));
    assert!(
        arm.is_held() && arm.armed() == Armed::Any,
        "left armed until it is taken"
    );
    arm.look(word(2, false), Kind::Nothing);
    assert!(arm.published(Kind::Plain));
    assert!(arm.fire());
    assert!(!arm.fire(), "all arms before it had this one event");
}

#[test]
fn only_completions_since_the_last_look_count() {
    let mut arm = ArmState::default();
    arm.published(Kind::Plain);
    assert!(arm.owes_look());
    assert_eq!(
        arm.look(Some(e810::arm_request(0)), Kind::Nothing),
        Kind::Nothing
    );
    let met = arm.look(word(1, false), Kind::Nothing);
    assert_eq!(
        met,
        Kind::Nothing,
        "seen by the driver's poll after its arm"
    );
    arm.published(Kind::Plain);
    assert!(arm.fire());
    // The arm came while the pass was writing completions: nobody knows which was first.
    arm.published(Kind::Plain);
    assert_eq!(arm.look(word(2, false), Kind::Nothing), Kind::Plain);
    assert!(arm.fire());
    arm.published(Kind::Plain);
    let met = arm.look(word(3, true), Kind::Nothing);
    assert_eq!(met, Kind::Nothing, "not what a solicited arm waits for");
}

#[test]
fn compare_counts_the_backlog() {
    let mut arm = ArmState::default();
    assert_eq!(arm.look(word(1, false), Kind::Plain), Kind::Plain);
    assert!(arm.fire());
    assert_eq!(arm.look(word(2, true), Kind::Plain), Kind::Nothing);
    assert_eq!(arm.look(word(3, true), Kind::Solicited), Kind::Solicited);
}
