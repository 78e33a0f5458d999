//! Address handles of the local queue, kept for the next datagram to the same peer.
//!
//! ```text
//! find ─► there: used once more
//!      └► not there: the longest unused goes, a new one is asked for ─► made ─► sends leave
//! ```
//!
//! Event handlers cannot execute commands, so a handle is made by whoever has the control queue
//! next, and what needs it waits. There are so many and no more, whatever peers do.

use super::super::cmd::Later;
use super::super::ids::IdPool;
use super::PudaKind;
use super::queue::Readiness;
use srdma_core::hw::cqp::CreateAh;
use srdma_core::num::AhId;
use srdma_core::obj::ah::AddressVector;

/// Handles that are kept.
const HANDLES: usize = 64;

#[derive(Debug)]
struct Handle {
    av: AddressVector,
    id: AhId,
    /// `None` while it is being made.
    made: Option<bool>,
    /// Sends that name it.
    users: u32,
    /// When it was asked for last.
    used: u64,
}

/// The handles.
#[derive(Debug, Default)]
pub(super) struct Handles {
    list: Vec<Handle>,
    clock: u64,
}

impl Handles {
    /// A handle for `av`, held once more until [`done`](Self::done); `None` if all are held. And
    /// what the control queue has to do, once no lock is held.
    pub(super) fn find(&mut self, ids: &IdPool, av: &AddressVector) -> (Option<AhId>, Vec<Later>) {
        self.clock += 1;
        let known = self.list.iter_mut().find(|handle| handle.av == *av);
        if let Some(handle) = known.filter(|handle| handle.made != Some(false)) {
            handle.users += 1;
            handle.used = self.clock;
            return (Some(handle.id), Vec::new());
        }
        let mut later = Vec::new();
        if self.list.len() >= HANDLES {
            let idle = self.list.iter().enumerate();
            let idle = idle.filter(|(_, handle)| handle.users == 0 && handle.made.is_some());
            let Some((at, _)) = idle.min_by_key(|(_, handle)| handle.used) else {
                return (None, later);
            };
            later.push(Later::DestroyAh(self.list.swap_remove(at).id));
        }
        let Some(id) = ids.take().map(AhId) else {
            return (None, later);
        };
        self.list.push(Handle {
            av: *av,
            id,
            made: None,
            users: 1,
            used: self.clock,
        });
        later.push(Later::CreateAh(CreateAh {
            id,
            pd: PudaKind::Ilq.pd(),
            av: *av,
        }));
        (Some(id), later)
    }

    /// A send that named the handle is over.
    pub(super) fn done(&mut self, id: AhId) {
        if let Some(handle) = self.list.iter_mut().find(|handle| handle.id == id) {
            handle.users = handle.users.saturating_sub(1);
        }
    }

    /// The handle was made, or could not be.
    pub(super) fn made(&mut self, id: AhId, done: bool) {
        if let Some(handle) = self.list.iter_mut().find(|handle| handle.id == id) {
            handle.made = Some(done);
        }
    }

    /// Whether a send may name the handle.
    pub(super) fn readiness(&self, id: AhId) -> Readiness {
        let handle = self.list.iter().find(|handle| handle.id == id);
        match handle.map(|handle| handle.made) {
            Some(Some(true)) => Readiness::Ready,
            Some(None) => Readiness::Wait,
            Some(Some(false)) | None => Readiness::Never,
        }
    }

    /// All of them.
    pub(super) fn ids(&self) -> Vec<AhId> {
        self.list.iter().map(|handle| handle.id).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::IpAddr;

    fn av(last: u8) -> AddressVector {
        let at = |n| IpAddr::from([10, 0, 0, n]);
        AddressVector::new(at(last), at(1))
    }

    #[test]
    fn there_are_so_many_and_no_more() {
        let ids = IdPool::new(1, 1000);
        let mut handles = Handles::default();
        let mut find = |n: u8| handles.find(&ids, &av(n));
        let (first, later) = find(0);
        assert!(matches!(later[..], [Later::CreateAh(_)]));
        assert_eq!(find(0).0, first, "the same peer");
        for n in 1..64 {
            assert!(find(n).0.is_some());
        }
        assert_eq!(find(100).0, None, "all are held");
        let first = first.unwrap();
        assert_eq!(handles.readiness(first), Readiness::Wait);
        handles.made(first, true);
        assert_eq!(handles.readiness(first), Readiness::Ready);
        handles.done(first);
        assert_eq!(handles.find(&ids, &av(100)).0, None, "held once more");
        handles.done(first);
        let (id, later) = handles.find(&ids, &av(100));
        assert!(matches!(later[..], [Later::DestroyAh(gone), Later::CreateAh(_)] if gone == first));
        handles.made(id.unwrap(), false);
        assert_eq!(handles.readiness(id.unwrap()), Readiness::Never);
        assert_eq!(handles.readiness(first), Readiness::Never);
        assert_eq!(handles.ids().len(), 64);
    }
}
