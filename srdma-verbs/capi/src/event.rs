//! Asynchronous events.

use crate::context::Context;
use crate::cq::Cq;
use crate::ffi;
use crate::handle::{Errno, Kind, borrow, borrow_raw, minus_one};
use crate::qp::Qp;
use crate::srq::Srq;
use crate::types::{Ptr, ibv_async_event};
use core::ffi::c_int;
use core::mem::MaybeUninit;
use core::ptr;
use srdma_verbs::{AsyncKind, Element};

/// The C object of an element; `None` if C does not know it (any more).
fn find(context: &Context, element: &Element) -> Option<Ptr> {
    match element {
        Element::Cq(cq) => context
            .find(Kind::Cq, cq.id().value(), |known: &Cq| known.verbs == *cq)
            .map(<*mut Cq>::cast),
        Element::Qp(qp) => context
            .find(Kind::Qp, qp.qp_num().value(), |known: &Qp| {
                known.verbs == *qp
            })
            .map(<*mut Qp>::cast),
        Element::Srq(srq) => context
            .find(Kind::Srq, srq.id().value(), |known: &Srq| {
                known.verbs.id() == srq.id()
            })
            .map(<*mut Srq>::cast),
        Element::Port(number) => Some(ptr::without_provenance_mut(usize::from(*number))),
        _ => Some(ptr::null_mut()),
    }
}

fn ack(element: &Element) {
    match element {
        Element::Cq(cq) => cq.ack_async_events(1),
        Element::Qp(qp) => qp.ack_async_events(1),
        Element::Srq(srq) => srq.ack_async_events(1),
        _ => {}
    }
}

/// `ibv_get_async_event`: waits, unless the program made the descriptor non-blocking.
pub(crate) extern "C" fn get_async_event(
    context: Option<&Context>,
    event: Option<&mut MaybeUninit<ibv_async_event>>,
) -> c_int {
    minus_one((|| {
        let context = borrow(context)?;
        let event = event.ok_or(Errno::INVAL)?;
        context.check_process()?;
        loop {
            let found = if ffi::is_nonblocking(context.async_fd()) {
                context.verbs.try_async_event()?
            } else {
                context.verbs.wait_async_event()
            };
            let (kind, about) = found.defer_ack();
            if let Some(element) = find(context, &about) {
                event.write(ibv_async_event {
                    element,
                    event_type: kind.value(),
                });
                return Ok(());
            }
            ack(&about);
        }
    })())
}

/// `ibv_ack_async_event`
pub(crate) extern "C" fn ack_async_event(event: Option<&ibv_async_event>) {
    let Some(event) = event else { return };
    let element = event.element.cast_const();
    let kind = AsyncKind::ALL
        .iter()
        .find(|kind| kind.value() == event.event_type);
    match kind {
        Some(AsyncKind::CqErr) => {
            if let Ok(cq) = borrow_raw::<Cq>(element.cast()) {
                cq.verbs.ack_async_events(1);
            }
        }
        Some(AsyncKind::SrqErr | AsyncKind::SrqLimitReached) => {
            if let Ok(srq) = borrow_raw::<Srq>(element.cast()) {
                srq.verbs.ack_async_events(1);
            }
        }
        Some(
            AsyncKind::QpFatal
            | AsyncKind::QpReqErr
            | AsyncKind::QpAccessErr
            | AsyncKind::CommEst
            | AsyncKind::SqDrained
            | AsyncKind::QpLastWqeReached,
        ) => {
            if let Ok(qp) = borrow_raw::<Qp>(element.cast()) {
                qp.verbs.ack_async_events(1);
            }
        }
        // Of the whole device, or of none.
        _ => {}
    }
}
