//! Memory that processes share: sealed, so that nobody can cut it short under our mapping.
//!
//! ```text
//! owner    memfd_create ─► size ─► seals: no shrinking, no growing, no more seals ─► map
//! other    an open file of the owner's ─► seals and size as they must be? ─► map
//! ```
//!
//! Words are atomics. Bytes are copied in and out, and never borrowed: another process may change
//! them at any time.

use srdma_core::tx::Seg;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

/// What keeps the size as it is.
const SEALS: libc::c_int = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;

/// Shared memory: its file, and the mapping of how it begins.
#[derive(Debug)]
pub(crate) struct Shm {
    head: Map,
    file: File,
}

impl Shm {
    /// New memory of `len` bytes, all zero, of which `head` are mapped. Pages take memory when they
    /// are first used.
    pub(crate) fn create(len: usize, head: usize) -> io::Result<Self> {
        // A file that is too long for this process would end it by a signal.
        if file_limit() < len as u64 {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        // SAFETY: why needed: no safe wrapper in the standard library. Why sound: the name is a
        // constant that ends with a zero.
        let fd = syscall!(unsafe { libc::memfd_create(c"srdma".as_ptr(), flags) })?;
        // SAFETY: why needed: takes ownership of a raw descriptor. Why sound: just opened, nobody
        // else knows it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let file = File::from(fd);
        file.set_len(len as u64)?;
        // SAFETY: why needed: no safe wrapper. Why sound: no pointers.
        syscall!(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, SEALS) })?;
        let head = Map::new(&file, 0, head)?;
        Ok(Self { head, file })
    }

    /// The memory behind a file of somebody else's; refused unless its size is `len` for ever.
    pub(crate) fn attach(file: File, len: usize, head: usize) -> io::Result<Self> {
        // SAFETY: why needed: no safe wrapper. Why sound: no pointers.
        let seals = syscall!(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) })?;
        if seals & SEALS != SEALS || file.metadata()?.len() != len as u64 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let head = Map::new(&file, 0, head)?;
        Ok(Self { head, file })
    }

    /// Another part of it.
    pub(crate) fn window(&self, at: usize, len: usize) -> io::Result<Map> {
        Map::new(&self.file, at, len)
    }

    /// How it begins.
    #[inline]
    pub(crate) const fn head(&self) -> &Map {
        &self.head
    }

    /// For locks on it.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Most bytes of a file that this process makes.
fn file_limit() -> u64 {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: why needed: no safe wrapper. Why sound: the limit is ours, and outlives the call,
    // which writes it.
    let got = unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) };
    if got == 0 { limit.rlim_cur } else { u64::MAX }
}

/// A part of shared memory, mapped.
#[derive(Debug)]
pub(crate) struct Map {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: why needed: a raw pointer. Why sound: the mapping belongs to the value alone and goes
// with it; it is used by atomics, and by copies that other processes may race with as well.
unsafe impl Send for Map {}
// SAFETY: why needed: as above. Why sound: as above; `put` and `get` take no references into it.
unsafe impl Sync for Map {}

impl Map {
    /// Maps `len` bytes of a sealed file from `at` on, a multiple of the size of a page.
    fn new(file: &File, at: usize, len: usize) -> io::Result<Self> {
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        let (none, fd) = (core::ptr::null_mut(), file.as_raw_fd());
        let at = libc::off_t::try_from(at).map_err(|_| io::ErrorKind::InvalidInput)?;
        let past = u64::try_from(at)
            .ok()
            .and_then(|at| at.checked_add(len as u64));
        if past.is_none_or(|past| file.metadata().map_or(0, |about| about.len()) < past) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        // SAFETY: why needed: no safe wrapper. Why sound: a new mapping at a place of the kernel's
        // choice. The file has all of it and keeps its length, so every page stays there.
        let base = unsafe { libc::mmap(none, len, prot, libc::MAP_SHARED, fd, at) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: why needed: no safe wrapper. Why sound: the mapping just made; nothing in it
        // changes. Where the kernel refuses, dumps are larger.
        let _ = unsafe { libc::madvise(base, len, libc::MADV_DONTDUMP) };
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { base, len })
    }

    /// The word at byte `at`, a multiple of eight; `None` where there is none.
    #[inline]
    pub(crate) fn word(&self, at: usize) -> Option<&AtomicU64> {
        let place = self.place(at, 8)?.cast::<AtomicU64>();
        if !place.is_aligned() {
            return None;
        }
        // SAFETY: why needed: a word of the mapping. Why sound: within it, and aligned, as just
        // checked; the borrow of `self` keeps it mapped; atomics may be changed by others.
        Some(unsafe { place.as_ref() })
    }

    /// Copies the bytes from `at` on out; nothing if there are not so many.
    pub(crate) fn get(&self, at: usize, bytes: &mut [u8]) {
        if let Some(place) = self.place(at, bytes.len()) {
            let (from, to) = (place.as_ptr(), bytes.as_mut_ptr());
            // SAFETY: why needed: another process may write there, so it is no slice. Why sound:
            // both ranges are there, and apart, since the target is a borrow of our own memory.
            unsafe { core::ptr::copy_nonoverlapping(from, to, bytes.len()) };
        }
    }

    /// Copies `len` bytes of a gather entry, from its byte `skip` on, to `at`; nothing if there is
    /// no room or there are not so many.
    pub(crate) fn put(&self, at: usize, seg: &Seg<'_>, skip: usize, len: usize) {
        if skip.checked_add(len).is_none_or(|end| end > seg.len()) {
            return;
        }
        if let Some(place) = self.place(at, len) {
            let from = seg.base().wrapping_add(skip);
            // SAFETY: why needed: registered memory may change under us, so it is never a slice,
            // and neither is the target. Why sound: a `Seg<'_>` is made only by the core from a
            // checked range that lives for its lifetime; no more than its length is read, and there
            // is room for as much. Should a program have registered this very mapping, the ranges
            // may overlap.
            unsafe { core::ptr::copy(from, place.as_ptr(), len) };
        }
    }

    #[inline]
    fn place(&self, at: usize, len: usize) -> Option<NonNull<u8>> {
        let end = at.checked_add(len)?;
        if end > self.len {
            return None;
        }
        // SAFETY: why needed: a place in the mapping. Why sound: `at` is not beyond its end.
        Some(unsafe { self.base.add(at) })
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: why needed: gives the mapping back. Why sound: ours alone, and nobody refers to
        // it.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    fn again(fd: BorrowedFd<'_>) -> File {
        let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
        let mut options = File::options();
        options.read(true).write(true).open(path).unwrap()
    }

    #[test]
    fn two_mappings_are_one_memory_of_one_size_for_ever() {
        let one = Shm::create(8192, 4096).unwrap();
        let two = Shm::attach(again(one.fd()), 8192, 8192).unwrap();
        let tail = one.window(4096, 4096).unwrap();
        tail.word(4088).unwrap().store(7, Ordering::Relaxed);
        let two = two.head();
        assert_eq!(two.word(8184).unwrap().load(Ordering::Relaxed), 7);
        let mut bytes = [1; 16];
        two.get(8176, &mut bytes);
        assert_eq!(bytes, [0, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0]);
        for (at, len) in [(8177, 16), (8192, 1), (usize::MAX, 16)] {
            let mut bytes = vec![9; len];
            two.get(at, &mut bytes);
            assert_eq!(bytes, vec![9; len], "{at}: nothing is there");
        }
        assert!(two.word(4).is_none() && two.word(8192).is_none());
        one.window(4096, 4097).unwrap_err();
        for len in [4096u16, 16384] {
            let sealed = again(one.fd()).set_len(len.into()).unwrap_err();
            assert_eq!(sealed.kind(), io::ErrorKind::PermissionDenied);
            Shm::attach(again(one.fd()), len.into(), 4096).unwrap_err();
        }
    }

    #[test]
    fn memory_that_could_shrink_is_refused() {
        let path = std::env::temp_dir().join(format!("srdma-shm-{}", std::process::id()));
        std::fs::write(&path, [0; 4096]).unwrap();
        let mut options = File::options();
        let file = options.read(true).write(true).open(&path).unwrap();
        let refused = Shm::attach(file, 4096, 4096);
        std::fs::remove_file(&path).unwrap();
        refused.unwrap_err();
        for seals in [
            0,
            libc::F_SEAL_GROW | libc::F_SEAL_SEAL,
            libc::F_SEAL_SHRINK,
        ] {
            let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
            // SAFETY: why needed: memory with other seals. Why sound: as in `create`.
            let fd = unsafe { libc::memfd_create(c"test".as_ptr(), flags) };
            // SAFETY: why needed: as in `create`. Why sound: as there.
            let file = File::from(unsafe { OwnedFd::from_raw_fd(fd) });
            file.set_len(4096).unwrap();
            // SAFETY: why needed: as in `create`. Why sound: as there.
            assert_eq!(unsafe { libc::fcntl(fd, libc::F_ADD_SEALS, seals) }, 0);
            let refused = Shm::attach(file, 4096, 4096).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::InvalidData, "{seals}");
        }
    }
}
