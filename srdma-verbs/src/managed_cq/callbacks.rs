//! Which closure a completion is for: a table behind the numbers of work requests.
//!
//! ```text
//! wr_id   63:32 generation │ 31:0 place + 1          0 names nothing
//! ```
//!
//! A place is used again under another generation, so a completion that comes late never calls the
//! closure of somebody else.

use super::ManagedCq;
use crate::driver::ids::lock;
use crate::wc::{Completion, WrId};
use core::fmt;
use std::sync::{Arc, Mutex, Weak};

/// What runs when a work request is done.
pub(crate) type Done = dyn Fn(&ManagedCq, &Completion) + Send + Sync;

/// The closures of one queue.
#[derive(Default)]
pub(crate) struct Callbacks {
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    places: Vec<Place>,
    free: Vec<u32>,
}

struct Place {
    generation: u32,
    done: Option<Arc<Done>>,
}

/// A closure that a managed completion queue calls for each completion whose work request carries
/// [`Self::wr_id`], any number of them. Dropping it unregisters the closure: completions that come
/// later call nothing.
#[must_use = "dropping it unregisters the closure"]
pub struct WrCqe {
    id: u64,
    callbacks: Weak<Callbacks>,
}

impl WrCqe {
    /// What work requests carry to call this closure.
    #[must_use]
    pub const fn wr_id(&self) -> WrId {
        WrId(self.id)
    }
}

impl fmt::Debug for WrCqe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WrCqe({:#x})", self.id)
    }
}

impl Drop for WrCqe {
    fn drop(&mut self) {
        if let Some(callbacks) = self.callbacks.upgrade() {
            callbacks.remove(self.id);
        }
    }
}

#[allow(clippy::cast_possible_truncation, reason = "each half of the number")]
const fn split(id: u64) -> (u32, u32) {
    ((id >> 32) as u32, id as u32)
}

impl Callbacks {
    /// Enters a closure. `None`: more than 2^32 - 1 of them.
    pub(crate) fn add(self: &Arc<Self>, done: Arc<Done>) -> Option<WrCqe> {
        let mut table = lock(&self.table);
        let place = match table.free.pop() {
            Some(place) => place,
            None => {
                let place = u32::try_from(table.places.len()).ok()?;
                place.checked_add(1)?;
                table.places.push(Place {
                    generation: 0,
                    done: None,
                });
                place
            }
        };
        let entry = table.places.get_mut(place as usize)?;
        entry.done = Some(done);
        let id = u64::from(entry.generation) << 32 | u64::from(place + 1);
        drop(table);
        Some(WrCqe {
            id,
            callbacks: Arc::downgrade(self),
        })
    }

    /// The closure of a work request, if it is still wanted.
    pub(crate) fn get(&self, id: WrId) -> Option<Arc<Done>> {
        let (generation, place) = split(id.0);
        let table = lock(&self.table);
        let entry = table.places.get(place.checked_sub(1)? as usize)?;
        if entry.generation == generation {
            entry.done.clone()
        } else {
            None
        }
    }

    fn remove(&self, id: u64) {
        let (generation, place) = split(id);
        let Some(place) = place.checked_sub(1) else {
            return;
        };
        let mut table = lock(&self.table);
        let dropped = match table.places.get_mut(place as usize) {
            Some(entry) if entry.generation == generation => {
                entry.generation = generation.wrapping_add(1);
                entry.done.take()
            }
            _ => return,
        };
        table.free.push(place);
        // What a closure owns may end objects, and unregister others: not under the lock.
        drop(table);
        drop(dropped);
    }

    /// Lets all closures go.
    pub(crate) fn clear(&self) {
        let mut table = lock(&self.table);
        let dropped: Vec<_> = table
            .places
            .iter_mut()
            .filter_map(|entry| entry.done.take())
            .collect();
        drop(table);
        drop(dropped);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn none() -> Arc<Done> {
        Arc::new(|_, _| {})
    }

    #[test]
    fn a_number_names_one_closure_for_ever() {
        // proves: mcq-3
        let callbacks = Arc::new(Callbacks::default());
        let first = callbacks.add(none()).unwrap();
        let second = callbacks.add(none()).unwrap();
        assert_ne!(first.wr_id(), second.wr_id());
        assert!(callbacks.get(first.wr_id()).is_some());
        let stale = first.wr_id();
        drop(first);
        assert!(callbacks.get(stale).is_none());
        let third = callbacks.add(none()).unwrap();
        assert!(callbacks.get(stale).is_none(), "the place has another");
        assert!(callbacks.get(third.wr_id()).is_some());
        for nothing in [0, 3, u64::MAX, 1 << 32] {
            assert!(callbacks.get(WrId(nothing)).is_none(), "{nothing:#x}");
        }
        callbacks.clear();
        assert!(callbacks.get(second.wr_id()).is_none());
        drop((second, third));
    }

    #[test]
    fn a_closure_may_own_the_next_one() {
        let callbacks = Arc::new(Callbacks::default());
        let mut last = callbacks.add(none()).unwrap();
        let ids: Vec<WrId> = (0..100)
            .map(|_| {
                let inner = std::mem::replace(&mut last, callbacks.add(none()).unwrap());
                let id = inner.wr_id();
                let owner: Arc<Done> = Arc::new(move |_, _| assert_ne!(inner.wr_id(), WrId(0)));
                last = callbacks.add(owner).unwrap();
                id
            })
            .collect();
        drop(last);
        assert!(ids.iter().all(|id| callbacks.get(*id).is_none()));
    }
}
