//! Traffic class and hop limit of what a socket sends. What many packets in a row ask for becomes
//! an option of the socket; what others ask for goes along with each message, which costs: more
//! control messages than one need memory of the kernel each time.
//!
//! What is sent without asking (questions to receivers) has the socket's own as well, so only the
//! hop limit may change, and never below the one that the socket was opened with.

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
    /// What it was opened with.
    first: Marks,
    /// What the last messages asked for that asked for something else, and how many.
    other: Cell<(Marks, u8)>,
}

impl Usual {
    pub(super) const fn new(own: Marks) -> Self {
        Self {
            own: Cell::new(own),
            first: own,
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
        } else if marks.0 == self.first.0 && marks.1 >= self.first.1 {
            self.other.set((marks, 1));
        } else {
            self.other.set((own, 0));
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
            if set(fd, v6, marks.1).is_ok() {
                self.own.set(marks);
            }
        }
    }
}

/// The option with the hop limit.
const fn option(v6: bool) -> (libc::c_int, libc::c_int) {
    if v6 {
        (libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS)
    } else {
        (libc::IPPROTO_IP, libc::IP_TTL)
    }
}

fn set(fd: BorrowedFd<'_>, v6: bool, hop_limit: u8) -> io::Result<()> {
    let (level, hops) = option(v6);
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
            assert_eq!(ask((0, 255), 2), (0, 255));
            let (level, hops) = option(v6);
            let has = || sockopt::get_int(socket.as_fd(), level, hops).unwrap();
            assert_eq!(has(), 255);
            // Never less than at first, nor another class.
            assert_eq!(ask((0, 1), 3 * STREAK), (0, 255));
            assert_eq!(ask((8, 255), 3 * STREAK), (0, 255));
            assert_eq!(ask((0, 64), STREAK + 1), (0, 64));
            assert_eq!(has(), 64);
        }
    }
}
