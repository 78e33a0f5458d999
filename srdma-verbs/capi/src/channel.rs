//! Completion channels and their events.

use crate::context::{self, Context};
use crate::cq::Cq;
use crate::ffi;
use crate::handle::{
    Errno, Kind, Outcome, Tag, borrow, borrow_raw, minus_one, object, pointer, status_errno,
};
use crate::types::{Ptr, ibv_comp_channel};
use core::cell::Cell;
use core::ffi::{c_int, c_uint};
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU32, Ordering};
use std::os::fd::{AsRawFd, OwnedFd};

/// A completion channel.
#[repr(C)]
pub(crate) struct Channel {
    c: ibv_comp_channel,
    tag: Tag,
    pub(crate) verbs: srdma_verbs::CompChannel,
    /// What the program waits on. A copy: one that the program closes takes nothing of ours away.
    // rule: event-35
    _fd: OwnedFd,
    cqs: AtomicU32,
}

object!(Channel, Channel);

impl Channel {
    /// A completion queue reports here.
    pub(crate) fn add_cq(&self) {
        self.count(self.cqs.fetch_add(1, Ordering::AcqRel) + 1);
    }

    /// A completion queue is gone.
    pub(crate) fn remove_cq(&self) {
        self.count(self.cqs.fetch_sub(1, Ordering::AcqRel) - 1);
    }

    fn count(&self, cqs: u32) {
        self.c
            .refcnt
            .set(c_int::try_from(cqs).unwrap_or(c_int::MAX));
    }
}

/// `ibv_create_comp_channel`
pub(crate) extern "C" fn create_comp_channel(context: Option<&Context>) -> *mut Channel {
    pointer((|| {
        let context = borrow(context)?;
        let verbs = context.verbs.create_comp_channel()?;
        let copy = verbs.fd()?.try_clone_to_owned().map_err(|_| Errno::MFILE)?;
        let fd = copy.as_raw_fd();
        ffi::set_blocking(fd);
        Ok(ffi::own(Box::new(Channel {
            c: ibv_comp_channel {
                context: context.c(),
                fd,
                refcnt: Cell::new(0),
            },
            tag: Tag::new(Kind::Channel),
            verbs,
            _fd: copy,
            cqs: AtomicU32::new(0),
        })))
    })())
}

/// `ibv_destroy_comp_channel`
pub(crate) extern "C" fn destroy_comp_channel(handle: *mut Channel) -> c_int {
    status_errno((|| {
        let channel: &Channel = borrow_raw(handle)?;
        if channel.cqs.load(Ordering::Acquire) != 0 {
            return Err(Errno::BUSY);
        }
        ffi::release(handle);
        Ok(())
    })())
}

/// `ibv_get_cq_event`: waits, unless the program made the descriptor non-blocking.
pub(crate) extern "C" fn get_cq_event(
    channel: Option<&Channel>,
    cq: Option<&mut MaybeUninit<*mut Cq>>,
    cq_context: Option<&mut MaybeUninit<Ptr>>,
) -> c_int {
    minus_one((|| {
        let channel = borrow(channel)?;
        let (Some(cq), Some(cq_context)) = (cq, cq_context) else {
            return Err(Errno::INVAL);
        };
        let context = context::of(channel.c.context)?;
        context.check_process()?;
        let ours = channel.verbs.fd()?.as_raw_fd();
        let found = loop {
            let event = if ffi::is_nonblocking(ours) {
                channel.verbs.try_get()?
            } else {
                channel.verbs.wait()
            };
            let about = event.defer_ack();
            match context.find(Kind::Cq, about.id().value(), |cq: &Cq| cq.verbs == about) {
                Some(found) => break found,
                None => about.ack_events(1),
            }
        };
        cq_context.write(borrow_raw::<Cq>(found)?.cq_context());
        cq.write(found);
        Ok(())
    })())
}

/// `ibv_ack_cq_events`
pub(crate) extern "C" fn ack_cq_events(cq: Option<&Cq>, count: c_uint) {
    if let Ok(cq) = borrow(cq) {
        cq.verbs.ack_events(count);
    }
}

/// The channel of a completion queue to be made: none for null.
pub(crate) fn of<'a>(channel: Ptr) -> Outcome<Option<&'a Channel>> {
    if channel.is_null() {
        return Ok(None);
    }
    borrow_raw(channel.cast_const().cast()).map(Some)
}
