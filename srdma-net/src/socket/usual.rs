//! Traffic class and hop limit of what a socket sends. What most packets ask for is an option of
//! the socket; what others ask for goes along with each message, which costs: more control
//! messages than one need memory of the kernel each time.

use crate::sys::sockopt;
use std::cell::Cell;
use std::io;
use std::os::fd::BorrowedFd;

/// So many messages in a row have to ask for the same before it is made the socket's own.
const STREAK: u8 = 16;

/// Traffic class and hop limit.
pub(crate) type Marks = (u8, u8);

/// What a socket has, and what it should have.
#[derive(Debug)]
pub(super) struct Usual {
    own: Cell<Marks>,
    /// What the last messages asked for that asked for something else, and how many.
    other: Cell<(Marks, u8)>,
}

impl Usual {
    pub(super) const fn new(own: Marks) -> Self {
        Self {
            own: Cell::new(own),
            other: Cell::new((own, 0)),
        }
    }

    /// A message asks for `marks`: what the socket has of its own.
    #[inline]
    pub(super) fn asked(&self, marks: Marks) -> Marks {
        let own = self.own.get();
        let (other, times) = self.other.get();
        if marks == own {
            if times != 0 {
                self.other.set((own, 0));
            }
        } else if marks == other {
            self.other.set((marks, times.saturating_add(1)));
        } else {
            self.other.set((marks, 1));
        }
        own
    }

    /// Gives the socket what the last messages asked for, if there were enough of them.
    #[inline]
    pub(super) fn adapt(&self, fd: BorrowedFd<'_>, v6: bool) {
        let (marks, times) = self.other.get();
        if times >= STREAK {
            self.other.set((marks, 0));
            // Where the kernel refuses, each message goes on telling.
            if set(fd, v6, marks).is_ok() {
                self.own.set(marks);
            }
        }
    }
}

fn set(fd: BorrowedFd<'_>, v6: bool, (tclass, hop_limit): Marks) -> io::Result<()> {
    let (level, class, hops) = if v6 {
        let hops = libc::IPV6_UNICAST_HOPS;
        (libc::IPPROTO_IPV6, libc::IPV6_TCLASS, hops)
    } else {
        (libc::IPPROTO_IP, libc::IP_TOS, libc::IP_TTL)
    };
    sockopt::set_int(fd, level, class, tclass.into())?;
    sockopt::set_int(fd, level, hops, hop_limit.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::os::fd::AsFd;

    #[test]
    fn what_is_asked_for_again_and_again_becomes_the_sockets_own() {
        for (address, v6) in [("127.0.0.1:0", false), ("[::1]:0", true)] {
            let socket = UdpSocket::bind(address).unwrap();
            let usual = Usual::new((0, 64));
            let ask = |marks, times: u8| {
                for _ in 0..times {
                    usual.asked(marks);
                    usual.adapt(socket.as_fd(), v6);
                }
                usual.asked(marks)
            };
            assert_eq!(ask((0, 255), STREAK - 1), (0, 64));
            // Another in between starts it over.
            assert_eq!(ask((0, 64), 1), (0, 64));
            assert_eq!(ask((0, 255), STREAK - 1), (0, 64));
            assert_eq!(ask((8, 255), STREAK - 1), (0, 64));
            assert_eq!(ask((8, 255), 2), (8, 255));
            let (level, class, hops) = if v6 {
                let hops = libc::IPV6_UNICAST_HOPS;
                (libc::IPPROTO_IPV6, libc::IPV6_TCLASS, hops)
            } else {
                (libc::IPPROTO_IP, libc::IP_TOS, libc::IP_TTL)
            };
            let has = |option| sockopt::get_int(socket.as_fd(), level, option).unwrap();
            assert_eq!((has(class), has(hops)), (8, 255));
            assert_eq!(ask((0, 64), 3), (8, 255));
        }
    }
}
