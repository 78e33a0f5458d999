//! Event queues: room for every CQ, AEQ credits and overflow, vectors.

use super::*;
use crate::mem::HostBuf;
use crate::ring::Consumer;

const T0: Instant = Instant(0);

fn words(count: usize) -> HostWords {
    HostBuf::new(count * 8).unwrap().words()
}

fn qp_event(id: u32) -> Aeqe {
    Aeqe {
        code: AeCode::LLP_TOO_MANY_RETRIES,
        source: AeSource::SQ,
        id,
        state: HwQpState::ERROR,
        ..Aeqe::default()
    }
}

#[test]
fn a_ceq_has_room_for_every_cq() {
    let mut events = Events::new(1);
    events
        .create_ceq(CeqId(5), MsixVector(0), words(2), 2)
        .unwrap();
    assert_eq!(events.attach_cq(CeqId(5)), Ok(()));
    assert_eq!(events.attach_cq(CeqId(5)), Ok(()));
    assert_eq!(events.attach_cq(CeqId(5)), Err(EventFault::Full));
    assert_eq!(events.destroy_ceq(CeqId(5)), Err(EventFault::InUse));
    // An entry of a CQ that is gone takes its room until the driver has passed it.
    let position = events.raise_ce(CeqId(5), 2).unwrap();
    events.detach_cq(CeqId(5), Some(position));
    assert_eq!(events.attach_cq(CeqId(5)), Err(EventFault::Full));
    let next = events.raise_ce(CeqId(5), 4).unwrap();
    assert_eq!(events.raise_ce(CeqId(5), 6), None, "never written over");
    events.ack_ce(CeqId(5), next);
    assert_eq!(events.attach_cq(CeqId(5)), Ok(()));
    events.detach_cq(CeqId(5), None);
    events.detach_cq(CeqId(5), None);
    assert_eq!(events.destroy_ceq(CeqId(5)), Ok(()));
    assert_eq!(events.attach_cq(CeqId(5)), Err(EventFault::NotFound));
}

#[test]
fn ceq_0_keeps_an_entry_for_the_ccq() {
    let mut events = Events::new(1);
    events
        .create_ceq(CeqId(0), MsixVector(0), words(2), 2)
        .unwrap();
    assert_eq!(events.attach_cq(CeqId(0)), Ok(()));
    assert_eq!(events.attach_cq(CeqId(0)), Err(EventFault::Full));
    events.retire_ccq(CeqId(0), None);
    assert_eq!(events.attach_cq(CeqId(0)), Err(EventFault::Full));
    let again = events.create_ceq(CeqId(0), MsixVector(0), words(2), 2);
    assert_eq!(again, Err(EventFault::Exists));
    let far = events.create_ceq(CeqId(1), MsixVector(1), words(2), 2);
    assert_eq!(far, Err(EventFault::NoVector));
    let out = events.create_ceq(CeqId(1024), MsixVector(0), words(2), 2);
    assert_eq!(out, Err(EventFault::NotFound));
}

/// Something about a queue pair that goes on.
fn qp_news(id: u32) -> Aeqe {
    Aeqe {
        code: AeCode::LLP_CONNECTION_ESTABLISHED,
        source: AeSource::NONE,
        state: HwQpState::RTR,
        ..qp_event(id)
    }
}

#[test]
fn the_end_of_a_queue_pair_is_told_however_late() {
    // proves: irq-4
    let (mut events, memory) = (Events::new(1), words(4 * 2));
    events.create_aeq(MsixVector(0), memory.clone(), 4).unwrap();
    let mut aeq = Consumer::<Aeqe>::new(memory, 4).unwrap();
    let room = 4 + u32::try_from(AE_BACKLOG).unwrap() - 1;
    for id in 0..room {
        events.raise_ae(&qp_news(id));
    }
    for id in [7000, 5000, 5000, 6000] {
        events.raise_ae(&qp_event(id));
    }
    events.forget_qp(Qpn::new(6000));
    events.forget_qp(Qpn::new(3));
    events.forget_qp(Qpn::new(9));
    let mut seen = Vec::new();
    while let Some(event) = aeq.pop() {
        seen.push(event.id);
        events.ack_aeq(1);
    }
    // The third was written before its queue pair went.
    let told = (0..room).filter(|id| *id != 9).chain([5000, 7000]);
    assert!(seen.iter().copied().eq(told), "{seen:?}");
    assert_eq!(
        events.stats().aeqes_lost,
        1,
        "the second end of one queue pair"
    );
}

#[test]
fn aeq_waits_for_credits_and_tells_of_losses() {
    // proves: e810-24
    let (mut events, memory) = (Events::new(1), words(4 * 2));
    events.raise_ae(&qp_event(0));
    assert_eq!(events.stats().aeqes_lost, 1, "no AEQ yet");
    events.create_aeq(MsixVector(0), memory.clone(), 4).unwrap();
    let mut aeq = Consumer::<Aeqe>::new(memory, 4).unwrap();
    let kept = u32::try_from(AE_BACKLOG).unwrap() - 1;
    // Four in the ring, the backlog but one place, three lost; a CQ error has the last place.
    for id in 0..4 + kept + 3 {
        events.raise_ae(&qp_news(id));
    }
    events.raise_cq_error(CqId(9), 0x900);
    assert_eq!(events.stats().aeqes_lost, 1 + 3);
    let mut seen = Vec::new();
    loop {
        let batch: Vec<Aeqe> = core::iter::from_fn(|| aeq.pop()).collect();
        if batch.is_empty() {
            break;
        }
        assert!(batch.len() <= 4, "never more than there are credits");
        events.ack_aeq(u32::try_from(batch.len()).unwrap());
        seen.extend(batch);
    }
    let (last, before) = seen.split_last().unwrap();
    assert!(
        before.iter().map(|event| event.id).eq(0..4 + kept),
        "in order, none twice"
    );
    assert!(before.iter().all(|event| !event.overflow));
    assert_eq!(
        (last.code, last.id, last.overflow),
        (AeCode::CQ_OPERATION_ERROR, 9, true)
    );
    events.raise_ae(&qp_event(1));
    assert!(!aeq.pop().unwrap().overflow, "told once");
}

#[test]
fn credits_beyond_the_ring_are_cut() {
    let (mut events, memory) = (Events::new(1), words(2 * 2));
    events.create_aeq(MsixVector(0), memory.clone(), 2).unwrap();
    let mut aeq = Consumer::<Aeqe>::new(memory, 2).unwrap();
    events.ack_aeq(u32::MAX);
    for id in 0..3 {
        events.raise_ae(&qp_event(id));
    }
    assert_eq!(aeq.pop().map(|event| event.id), Some(0));
    assert_eq!(aeq.pop().map(|event| event.id), Some(1));
    assert_eq!(aeq.pop(), None);
    assert_eq!(events.destroy_aeq(), Ok(()));
    assert_eq!(events.destroy_aeq(), Err(EventFault::NotFound));
}

#[test]
fn vectors_look_again_when_enabled() {
    // proves: e810-28
    let mut events = Events::new(2);
    events
        .create_ceq(CeqId(0), MsixVector(1), words(8), 8)
        .unwrap();
    events.create_aeq(MsixVector(0), words(16), 8).unwrap();
    events.attach_cq(CeqId(0)).unwrap();
    events.control_vector(MsixVector(1), DynCtl::rearm());
    events.control_vector(MsixVector(0), DynCtl::rearm());
    assert_eq!(events.poll_interrupt(T0), None);
    let first = events.raise_ce(CeqId(0), 2).unwrap();
    events.raise_ae(&qp_event(1));
    assert_eq!(events.poll_interrupt(T0), Some(MsixVector(1)));
    assert_eq!(events.poll_interrupt(T0), Some(MsixVector(0)));
    assert_eq!(events.poll_interrupt(T0), None, "each once");
    events.ack_ce(CeqId(0), first);
    let second = events.raise_ce(CeqId(0), 2).unwrap();
    assert_eq!(events.poll_interrupt(T0), None, "firing disabled it");
    events.control_vector(MsixVector(1), DynCtl::rearm());
    assert_eq!(
        events.poll_interrupt(T0),
        Some(MsixVector(1)),
        "came after the drain"
    );
    events.ack_ce(CeqId(0), second);
    events.control_vector(MsixVector(1), DynCtl::rearm());
    assert_eq!(events.poll_interrupt(T0), None);
    events.control_vector(MsixVector(0), DynCtl::rearm());
    assert_eq!(
        events.poll_interrupt(T0),
        Some(MsixVector(0)),
        "not given back yet"
    );
    events.ack_aeq(1);
    events.control_vector(MsixVector(0), DynCtl::rearm());
    assert_eq!(events.poll_interrupt(T0), None);
    events.control_vector(MsixVector(1), DynCtl::ZERO);
    events.raise_ce(CeqId(0), 2).unwrap();
    assert_eq!(events.poll_interrupt(T0), None, "disabled");
}

#[test]
fn the_control_register_clears_what_is_pending_or_does_not() {
    // proves: irq-2
    let mut events = Events::new(1);
    let vector = MsixVector(0);
    events.create_ceq(CeqId(0), vector, words(8), 8).unwrap();
    events.attach_cq(CeqId(0)).unwrap();
    let came_and_went = |events: &mut Events| {
        events.control_vector(vector, DynCtl::ZERO);
        let position = events.raise_ce(CeqId(0), 2).unwrap();
        events.ack_ce(CeqId(0), position);
        assert_eq!(events.poll_interrupt(T0), None, "disabled");
    };
    came_and_went(&mut events);
    events.control_vector(vector, DynCtl::rearm());
    assert_eq!(events.poll_interrupt(T0), None, "cleared, and nothing new");
    came_and_went(&mut events);
    events.control_vector(vector, DynCtl::ZERO.with_enable(true));
    assert_eq!(events.poll_interrupt(T0), Some(vector), "it was pending");
    // No interval, whatever stands in the field: the one before stays.
    let none = DynCtl::rearm().with_itr_index(DynCtl::NO_ITR);
    events.control_vector(vector, none.with_interval(5));
    let next = events.raise_ce(CeqId(0), 2).unwrap();
    assert_eq!(events.poll_interrupt(T0), Some(vector), "never held back");
    events.ack_ce(CeqId(0), next);
}

#[test]
fn the_interval_of_a_ceq_vector_counts_and_that_of_the_aeq_does_not() {
    let mut events = Events::new(2);
    events
        .create_ceq(CeqId(0), MsixVector(1), words(8), 8)
        .unwrap();
    events.create_aeq(MsixVector(0), words(16), 8).unwrap();
    let control = DynCtl::rearm().with_interval(5);
    for vector in [MsixVector(0), MsixVector(1)] {
        events.control_vector(vector, control);
    }
    for (now, fires) in [(0, true), (9_999, false), (10_000, true)] {
        events.raise_ce(CeqId(0), 2).unwrap();
        events.raise_ae(&qp_event(1));
        let fired: Vec<_> = core::iter::from_fn(|| events.poll_interrupt(Instant(now))).collect();
        assert_eq!(fired.contains(&MsixVector(1)), fires, "at {now}");
        assert!(fired.contains(&MsixVector(0)), "AEQ at {now}");
        for vector in [MsixVector(0), MsixVector(1)] {
            events.control_vector(vector, control);
        }
        events.ack_aeq(1);
    }
}
