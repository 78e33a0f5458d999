//! The device follows its interfaces: link, addresses that go and come back, and new ones.
//!
//! ```text
//! index of the GID table = index of the socket
//! address gone       entry empty; the sockets stay, and wait for its return
//! address back       the same entry again
//! new address        of an interface that the device stands on: sockets of its own, the next index
//! ```
//!
//! Whoever notices a change looks at everything anew: the background thread when the kernel tells
//! of one (`netlink.rs`), a program when it asks for the state of the port. What the change means
//! to programs is the device's (`hca/follow.rs`).

use super::{By, Engine, Shared};
use crate::interface::Listing;
use crate::share::{self, Share};
use crate::socket::{RoceSocket, SocketConfig};
use srdma_core::limits::MAX_GIDS;
use srdma_core::obj::port::LinkState;
use std::net::IpAddr;
use std::sync::{Arc, PoisonError};

/// What a device has, to be compared with what there is.
pub(super) struct Known {
    /// By index of the GID table.
    pub(super) addrs: Vec<IpAddr>,
    pub(super) listed: Vec<bool>,
    pub(super) interfaces: Vec<String>,
    pub(super) settings: SocketConfig,
    pub(super) share: Option<Arc<Share>>,
}

/// What there is.
struct Found {
    present: Vec<bool>,
    link: LinkState,
    fresh: Vec<RoceSocket>,
}

/// Which addresses an interface has, and whether one of them is up.
pub(super) fn at_start(addrs: &[IpAddr]) -> (Vec<bool>, LinkState) {
    let Ok(listing) = Listing::new() else {
        return (vec![false; addrs.len()], LinkState::Active);
    };
    let listed = addrs.iter().map(|addr| listing.of(*addr).is_some());
    let up = addrs.iter().any(|addr| listing.is_up(*addr));
    (listed.collect(), state(up))
}

const fn state(up: bool) -> LinkState {
    if up {
        LinkState::Active
    } else {
        LinkState::Down
    }
}

impl Known {
    /// Looks at the interfaces, and opens sockets of new addresses. `None`: the system says
    /// nothing.
    fn look(&self) -> Option<Found> {
        let listing = Listing::new().ok()?;
        let own = self.addrs.iter().zip(&self.listed);
        let present: Vec<bool> = own
            .map(|(addr, listed)| !listed || listing.of(*addr).is_some())
            .collect();
        let mut here = self.addrs.iter().zip(&present);
        let up = here.any(|(addr, present)| *present && listing.is_up(*addr));
        let mut fresh = Vec::new();
        for name in &self.interfaces {
            for addr in listing.addrs_of(name) {
                let room = self.addrs.len() + fresh.len() < MAX_GIDS;
                if !room || self.addrs.contains(&addr) {
                    continue;
                }
                // An address that is not ready yet, or not to be had, is tried at the next change.
                fresh.extend(share::join(self.share.as_ref(), addr, &self.settings));
            }
        }
        let any_up = up || fresh.iter().any(|socket| listing.is_up(socket.local()));
        Some(Found {
            present,
            link: state(any_up),
            fresh,
        })
    }
}

impl Engine {
    /// Gives port and GID table the state of the interfaces; a wire has none.
    pub fn follow_interfaces(&self) {
        self.shared.follow();
    }
}

impl Shared {
    pub(super) fn follow(&self) {
        // One at a time: two would open the same address.
        let _alone = self
            .following
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let known = self.lock().link.carrier.known();
        let Some(found) = known.and_then(|known| known.look()) else {
            return;
        };
        let mut core = self.lock();
        let super::Core { hca, link, .. } = &mut *core;
        let carrier = &mut link.carrier;
        let before = found.present.iter().enumerate().map(|(at, present)| {
            let index = u8::try_from(at).unwrap_or(u8::MAX);
            (index, carrier.local(at).filter(|_| *present))
        });
        let mut gids: Vec<_> = before.collect();
        let grown = !found.fresh.is_empty();
        for socket in found.fresh {
            gids.extend(carrier.add(socket).map(|(index, addr)| (index, Some(addr))));
        }
        hca.follow_gids(gids);
        if link.follows_interfaces() {
            hca.follow_link(found.link);
        }
        if grown {
            self.set_fds(link.carrier.fds());
        }
        self.run(core, By::Anyone);
        if grown {
            // Both sleep on the sockets that there were.
            self.unpark.signal();
            self.wake_thread();
        }
    }
}
