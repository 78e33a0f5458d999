//! `sendmmsg` and `recvmmsg` over header arrays that are set up once.
//!
//! ```text
//! SendRing   headers[i] → name, control: ours · gather list: the batch's, by cast, or `vectors`
//! RecvRing   headers[i] → name, control, vector → a slot of `data`, all ours
//! ```
//!
//! A single message goes by `sendmsg` or `recvmsg`, which cost less. No allocation per call. What
//! errors mean is decided elsewhere.

#![allow(
    trivial_numeric_casts,
    reason = "some field types depend on the C library"
)]

use super::addr::Name;
use super::cmsg::{RxControl, RxInfo, TxControl, TxOptions};
use super::slab::Slabs;
use core::fmt;
use srdma_core::tx::Seg;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;

// A gather list is handed to the kernel as it is. `Seg` is `repr(C)`, pointer first.
const _: () = assert!(size_of::<Seg<'static>>() == size_of::<libc::iovec>());
const _: () = assert!(align_of::<Seg<'static>>() == align_of::<libc::iovec>());
const _: () = assert!(core::mem::offset_of!(libc::iovec, iov_base) == 0);
const _: () = assert!(core::mem::offset_of!(libc::iovec, iov_len) == size_of::<usize>());

/// Not waiting, as wide as an argument of a system call.
const MSG_DONTWAIT: usize = libc::MSG_DONTWAIT.cast_unsigned() as usize;
/// Gather entries for messages that are a part of a gather list.
const SCRATCH: usize = 4096;
/// One message to send.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outgoing<'a> {
    /// Where to.
    pub(crate) target: SocketAddr,
    /// The gather list.
    pub(crate) segs: &'a [Seg<'a>],
    /// The part of the gather list's bytes to send, as offset and length; `None` for all.
    pub(crate) part: Option<(usize, usize)>,
    /// Control messages.
    pub(crate) options: TxOptions,
}

/// Headers for outgoing messages.
pub(crate) struct SendRing {
    headers: Vec<libc::mmsghdr>,
    names: Vec<Name>,
    controls: Vec<TxControl>,
    vectors: Vec<libc::iovec>,
}

// SAFETY: why needed: headers hold raw pointers. Why sound: pointers to our own arrays, which move
// with us, and stale pointers that are rewritten before each use.
unsafe impl Send for SendRing {}

impl SendRing {
    /// Room for `messages` at a time.
    pub(crate) fn new(messages: usize) -> Self {
        Self {
            headers: vec![empty_header(); messages],
            names: vec![Name::EMPTY; messages],
            controls: vec![TxControl::EMPTY; messages],
            vectors: Vec::with_capacity(SCRATCH),
        }
    }

    /// Sends messages with one call; returns how many of the first ones left.
    ///
    /// Takes as many as there is room for; zero only if there were none. An error concerns the
    /// first message; one that concerns a later message is found by the next call.
    pub(crate) fn send<'a>(
        &mut self,
        fd: BorrowedFd<'_>,
        messages: impl Iterator<Item = Outgoing<'a>>,
    ) -> io::Result<usize> {
        self.vectors.clear();
        let mut count: libc::c_uint = 0;
        let slots = self
            .headers
            .iter_mut()
            .zip(&mut self.names)
            .zip(&mut self.controls);
        for (message, ((header, name), control)) in messages.zip(slots) {
            let Some((iov, iovlen)) = gather(&mut self.vectors, &message) else {
                break;
            };
            control.set(message.target.is_ipv6(), &message.options);
            let header = &mut header.msg_hdr;
            header.msg_namelen = name.set(&message.target);
            header.msg_name = (&raw mut *name).cast();
            header.msg_iov = iov;
            header.msg_iovlen = iovlen as _;
            header.msg_controllen = control.bytes().len() as _;
            header.msg_control = match header.msg_controllen {
                0 => core::ptr::null_mut(),
                _ => control.bytes().as_ptr().cast_mut().cast(),
            };
            count += 1;
        }
        if count == 0 {
            return Ok(0);
        }
        let (fd, headers) = (fd.as_raw_fd(), self.headers.as_mut_ptr());
        // Not through the C library, whose wrappers are cancellation points and cost more; and for
        // one message, the common case of a round trip, the cheaper call.
        let (call, count_or_flags) = match count {
            1 => (libc::SYS_sendmsg, MSG_DONTWAIT),
            _ => (libc::SYS_sendmmsg, count as usize),
        };
        // SAFETY: why needed: headers are raw pointers. Why sound: the first `count` headers were
        // filled just above: name and control are ours, gather entries are the batch's (borrowed
        // as `'a`, which covers this call; `Seg` has the layout of `iovec`, asserted above) or in
        // `vectors`, which does not grow beyond its capacity. The kernel only reads them.
        let sent = syscall!(unsafe {
            // The fourth argument is one of `sendmmsg` alone.
            libc::syscall(call, fd, headers, count_or_flags, MSG_DONTWAIT)
        })?;
        let sent = if count == 1 { 1 } else { sent };
        Ok(usize::try_from(sent).unwrap_or(0))
    }
}

impl fmt::Debug for SendRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SendRing({} messages)", self.headers.len())
    }
}

/// How many buffers to ask for after `got` of `asked` came, of a ring of `most`.
fn next_ask(asked: usize, got: usize, most: usize) -> usize {
    if got >= asked {
        (asked * 4).min(most)
    } else if got * 4 <= asked {
        (asked / 2).max(1)
    } else {
        asked
    }
}

/// The gather list of one message; `None` if the scratch entries are used up.
fn gather(
    scratch: &mut Vec<libc::iovec>,
    message: &Outgoing<'_>,
) -> Option<(*mut libc::iovec, usize)> {
    let Some((mut skip, mut left)) = message.part else {
        let list = message.segs.as_ptr().cast::<libc::iovec>().cast_mut();
        return Some((list, message.segs.len()));
    };
    let first = scratch.len();
    for seg in message.segs {
        if skip >= seg.len() {
            skip -= seg.len();
            continue;
        }
        let len = left.min(seg.len() - skip);
        if len == 0 {
            break;
        }
        // A growing vector would move the entries that earlier messages point to.
        if scratch.len() == scratch.capacity() {
            scratch.truncate(first);
            return None;
        }
        let base = seg.base().wrapping_add(skip).cast_mut().cast();
        scratch.push(libc::iovec {
            iov_base: base,
            iov_len: len,
        });
        (skip, left) = (0, left - len);
    }
    let count = scratch.len() - first;
    Some((scratch.as_mut_ptr().wrapping_add(first), count))
}

/// One received buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Incoming<'a> {
    /// The sender; `None` if the kernel named none that we understand.
    pub(crate) source: Option<SocketAddr>,
    /// What the control messages said.
    pub(crate) info: RxInfo,
    /// The bytes.
    pub(crate) bytes: &'a [u8],
    /// Bytes or control messages did not fit.
    pub(crate) truncated: bool,
}

/// Headers and buffers for incoming messages.
pub(crate) struct RecvRing {
    headers: Vec<libc::mmsghdr>,
    names: Vec<Name>,
    controls: Vec<RxControl>,
    vectors: Vec<libc::iovec>,
    slabs: Slabs,
    filled: usize,
    /// Buffers to ask for: as many as lately came, so that a single packet costs a single look.
    ask: usize,
}

// SAFETY: why needed: headers hold raw pointers. Why sound: they point into our own arrays on the
// heap, which move with us.
unsafe impl Send for RecvRing {}

impl RecvRing {
    /// A ring of `buffers` buffers.
    pub(crate) fn new(buffers: usize) -> Self {
        let slabs = Slabs::new(buffers);
        let mut names = vec![Name::EMPTY; buffers];
        let mut controls = vec![RxControl::EMPTY; buffers];
        let mut vectors: Vec<_> = slabs.ring.iter().map(whole).collect();
        let mut headers = vec![empty_header(); buffers];
        let (name_base, control_base) = (names.as_mut_ptr(), controls.as_mut_ptr());
        let vector_base = vectors.as_mut_ptr();
        for (i, header) in headers.iter_mut().enumerate() {
            header.msg_hdr.msg_name = name_base.wrapping_add(i).cast();
            header.msg_hdr.msg_iov = vector_base.wrapping_add(i);
            header.msg_hdr.msg_iovlen = 1;
            header.msg_hdr.msg_control = control_base.wrapping_add(i).cast();
        }
        Self {
            headers,
            names,
            controls,
            vectors,
            slabs,
            filled: buffers,
            ask: 1,
        }
    }

    /// Takes what has arrived, without waiting; returns the number of filled buffers.
    pub(crate) fn receive(&mut self, fd: BorrowedFd<'_>) -> io::Result<usize> {
        // The kernel overwrote lengths in the headers that it used, and only in those.
        for header in self.headers.iter_mut().take(self.filled) {
            header.msg_hdr.msg_namelen = Name::ROOM;
            header.msg_hdr.msg_controllen = RxControl::ROOM as _;
            header.msg_hdr.msg_flags = 0;
        }
        for index in 0..self.filled {
            if self.slabs.replace_lent(index)
                && let (Some(vector), Some(slab)) =
                    (self.vectors.get_mut(index), self.slabs.ring.get(index))
            {
                *vector = whole(slab);
            }
        }
        self.filled = 0;
        let room = self.ask.min(self.headers.len());
        let (fd, headers) = (fd.as_raw_fd(), self.headers.as_mut_ptr());
        let forever = core::ptr::null_mut::<libc::timespec>();
        let (call, room_or_flags) = match room {
            1 => (libc::SYS_recvmsg, MSG_DONTWAIT),
            _ => (libc::SYS_recvmmsg, room),
        };
        // SAFETY: why needed: the kernel writes through the headers. Why sound: `room` headers
        // exist, at least one; name, control and vector of each point to its own part of arrays
        // that `self` owns, never resizes and has borrowed exclusively now; each vector names a
        // slab of the ring, of which nobody else has a share: one that was lent has been replaced
        // above. The lengths were reset to the room that is there. A `mmsghdr` begins with its
        // `msghdr`.
        let got = syscall!(unsafe {
            // The last two arguments are those of `recvmmsg` alone.
            libc::syscall(call, fd, headers, room_or_flags, MSG_DONTWAIT, forever)
        });
        let got = match (got, room) {
            (Ok(bytes), 1) => {
                if let Some(header) = self.headers.first_mut() {
                    header.msg_len = libc::c_uint::try_from(bytes).unwrap_or(0);
                }
                Ok(1)
            }
            (Ok(got), _) => Ok(usize::try_from(got).unwrap_or(0)),
            (Err(error), _) => Err(error),
        };
        self.filled = *got.as_ref().unwrap_or(&0);
        self.ask = next_ask(self.ask, self.filled, self.headers.len());
        got
    }

    /// Buffer `index` of those that the last [`receive`](Self::receive) filled.
    pub(crate) fn incoming(&self, index: usize) -> Option<Incoming<'_>> {
        let header = self.headers.get(..self.filled)?.get(index)?;
        let bytes = self.bytes(index);
        let header = &header.msg_hdr;
        let lost = libc::MSG_TRUNC | libc::MSG_CTRUNC;
        #[allow(clippy::unnecessary_cast, reason = "the type depends on the C library")]
        let control_len = header.msg_controllen as usize;
        Some(Incoming {
            source: self.names.get(index)?.read(header.msg_namelen),
            info: self.controls.get(index)?.parse(control_len),
            bytes,
            truncated: header.msg_flags & lost != 0,
        })
    }

    /// The bytes of buffer `index`, as in [`incoming`](Self::incoming).
    pub(crate) fn bytes(&self, index: usize) -> &[u8] {
        let Some(header) = self
            .headers
            .get(..self.filled)
            .and_then(|all| all.get(index))
        else {
            return &[];
        };
        let len = usize::try_from(header.msg_len).unwrap_or(0);
        let slab = self.slabs.ring.get(index);
        slab.map_or(&[], |slab| slab.get(..len).unwrap_or(slab))
    }

    /// The slab of buffer `index`. Who takes a share keeps its bytes; the ring goes on with
    /// another. `None` while too many are kept.
    pub(crate) fn slab(&self, index: usize) -> Option<&Arc<[u8]>> {
        self.slabs.lendable(index)
    }

    /// Slabs that were lent and replaced, since the start.
    pub(crate) const fn replaced(&self) -> u64 {
        self.slabs.replaced
    }
}

impl fmt::Debug for RecvRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "RecvRing({} buffers, {} filled)",
            self.headers.len(),
            self.filled
        )
    }
}

/// The room of a slab.
fn whole(slab: &Arc<[u8]>) -> libc::iovec {
    libc::iovec {
        iov_base: Arc::as_ptr(slab).cast_mut().cast(),
        iov_len: slab.len(),
    }
}

fn empty_header() -> libc::mmsghdr {
    // SAFETY: why needed: the C library's struct may have private padding. Why sound: integers and
    // pointers, for which zero is a value.
    unsafe { core::mem::zeroed() }
}

#[cfg(test)]
mod tests {
    use super::next_ask;

    #[test]
    fn a_single_packet_costs_a_single_look_and_a_stream_fills_the_ring() {
        let ask = |came: &[usize]| {
            came.iter()
                .fold(1, |ask, &waiting| next_ask(ask, waiting.min(ask), 16))
        };
        assert_eq!(ask(&[0, 0, 1]), 4, "there may be more");
        assert_eq!(ask(&[1, 0, 0, 1, 0, 0]), 1, "but there was not");
        assert_eq!(ask(&[20, 20, 20]), 16);
        assert_eq!(ask(&[20, 20, 20, 9, 9]), 16, "half full is still a stream");
        assert_eq!(ask(&[20, 20, 20, 1, 0, 0, 0, 0, 0]), 1);
    }
}
