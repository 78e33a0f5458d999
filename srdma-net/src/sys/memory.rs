//! Memory of this process by address, where it may be absent or protected: the kernel is asked, and
//! says so without a signal.
//!
//! ```text
//! copies       process_vm_readv, process_vm_writev on ourselves
//! atomics      MADV_POPULATE_WRITE on the page, then the step itself
//! check_range  MADV_POPULATE_READ or _WRITE for small ranges; else /proc/self/maps
//! ```
//!
//! A copy is safe against another thread that unmaps meanwhile. An atomic step has a window between
//! the question and the step.

use srdma_core::mem::{AtomicStep, Pager};
use std::io;
use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;

/// Bytes of the smallest page.
const PAGE: u64 = 4096;
/// Ranges up to this many bytes are populated, as a NIC's driver pins them; larger ones are only
/// looked up, since a program may register far more than it uses.
const POPULATE: u64 = 4 << 20;

/// The address space of this process.
#[derive(Clone, Copy, Debug)]
pub struct ProcessMemory(());

impl ProcessMemory {
    /// Lets the holder read and write any address that is mapped.
    ///
    /// # Safety
    ///
    /// Whoever is given the value uses it only for addresses whose content the program lets the
    /// device change at any time, from any thread: no Rust reference to them is live.
    #[must_use]
    pub const unsafe fn new() -> Self {
        Self(())
    }

    /// True if the kernel lets a process copy its own memory so (some sandboxes do not).
    #[must_use]
    pub fn is_available() -> bool {
        static AVAILABLE: OnceLock<bool> = OnceLock::new();
        *AVAILABLE.get_or_init(|| {
            let (source, mut target) = ([0x5au8; 8], [0u8; 8]);
            let read = copy(source.as_ptr().addr() as u64, &mut target) && target == source;
            // Writing what is there already to memory of our own changes nothing.
            read && paste(target.as_mut_ptr().expose_provenance() as u64, &source)
        })
    }
}

impl Pager for ProcessMemory {
    fn read(&self, addr: u64, bytes: &mut [u8]) -> bool {
        copy(addr, bytes)
    }

    fn write(&self, addr: u64, bytes: &[u8]) -> bool {
        paste(addr, bytes)
    }

    fn prefetch(&self, addr: u64, len: u64, write: bool) -> bool {
        check_range(addr, len, write).is_ok()
    }

    fn atomic(&self, addr: u64, step: AtomicStep) -> Option<u64> {
        let place = usize::try_from(addr).ok().filter(|at| at % 8 == 0)?;
        check_range(addr, 8, true).ok()?;
        let word = core::ptr::with_exposed_provenance_mut::<u64>(place);
        // SAFETY: why needed: an atomic step on a word of the program. Why sound: aligned and
        // mapped for writing, as the kernel just said; the maker of `self` promised that the
        // program lets it change.
        Some(step.run(unsafe { AtomicU64::from_ptr(word) }))
    }
}

/// Fills `bytes` from our own memory at `addr`; false if not all of it can be read.
fn copy(addr: u64, bytes: &mut [u8]) -> bool {
    let local = libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    };
    let Some(remote) = remote(addr, bytes.len()) else {
        return false;
    };
    // SAFETY: why needed: the kernel copies, since the source may be absent. Why sound: the target
    // is the slice; the source is only an address to the kernel, which fails where nothing is.
    let done =
        unsafe { libc::process_vm_readv(own_pid(), &raw const local, 1, &raw const remote, 1, 0) };
    usize::try_from(done) == Ok(bytes.len())
}

/// Puts `bytes` into our own memory at `addr`; false if not all of it can be written.
fn paste(addr: u64, bytes: &[u8]) -> bool {
    let local = libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    let Some(remote) = remote(addr, bytes.len()) else {
        return false;
    };
    // SAFETY: why needed: the kernel copies, since the target may be absent. Why sound: the source
    // is the slice, which is only read; the target was promised to be the device's to change
    // (`ProcessMemory::new`), and the kernel fails where nothing is.
    let done =
        unsafe { libc::process_vm_writev(own_pid(), &raw const local, 1, &raw const remote, 1, 0) };
    usize::try_from(done) == Ok(bytes.len())
}

/// This process; a child after a fork is another one.
fn own_pid() -> i32 {
    std::process::id().cast_signed()
}

fn remote(addr: u64, len: usize) -> Option<libc::iovec> {
    let addr = usize::try_from(addr).ok()?;
    addr.checked_add(len)?;
    Some(libc::iovec {
        iov_base: core::ptr::without_provenance_mut(addr),
        iov_len: len,
    })
}

/// Refuses a range that is not mapped for reading, and with `write` for writing, all of it: EFAULT,
/// as registering it with a NIC gives; EINVAL if it passes the end of the address space.
pub fn check_range(addr: u64, len: u64, write: bool) -> io::Result<()> {
    if len == 0 {
        return Ok(());
    }
    let end = addr.checked_add(len);
    let end = end.and_then(|end| end.checked_next_multiple_of(PAGE));
    let end = end.ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))?;
    let start = addr & !(PAGE - 1);
    if end - start <= POPULATE && populate(start, end - start, write) {
        return Ok(());
    }
    // An old kernel, a special mapping, a large range, or nothing there.
    match std::fs::read_to_string("/proc/self/maps") {
        Ok(maps) if covers(&maps, start, end, write) => Ok(()),
        Ok(_) => Err(io::Error::from_raw_os_error(libc::EFAULT)),
        // Without it nobody can tell.
        Err(_) => Ok(()),
    }
}

/// Makes all pages of a range present; false if some cannot be.
fn populate(start: u64, len: u64, write: bool) -> bool {
    let advice = if write {
        libc::MADV_POPULATE_WRITE
    } else {
        libc::MADV_POPULATE_READ
    };
    let (Ok(start), Ok(len)) = (usize::try_from(start), usize::try_from(len)) else {
        return false;
    };
    let base = core::ptr::without_provenance_mut(start);
    // SAFETY: why needed: the question whether memory is there. Why sound: pages are made present,
    // their content does not change; the kernel fails where nothing is mapped.
    unsafe { libc::madvise(base, len, advice) == 0 }
}

/// True if the mappings, in the format of `/proc/self/maps`, hold all of `start..end`.
fn covers(maps: &str, start: u64, end: u64, write: bool) -> bool {
    let mut at = start;
    for line in maps.lines() {
        let Some((range, rest)) = line.split_once(' ') else {
            continue;
        };
        let Some((from, to)) = range.split_once('-') else {
            continue;
        };
        let hex = |text| u64::from_str_radix(text, 16);
        let (Ok(from), Ok(to)) = (hex(from), hex(to)) else {
            continue;
        };
        if to <= at {
            continue;
        }
        let allowed = rest.starts_with("rw") || (!write && rest.starts_with('r'));
        if from > at || !allowed {
            return false;
        }
        at = to;
        if at >= end {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pages that go away with the value: the second read-only, the third a hole.
    struct Pages(usize);

    impl Pages {
        fn new() -> Self {
            let prot = libc::PROT_READ | libc::PROT_WRITE;
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            // SAFETY: why needed: pages with gaps. Why sound: a new mapping.
            let base = unsafe { libc::mmap(core::ptr::null_mut(), 4 * 4096, prot, flags, -1, 0) };
            assert_ne!(base, libc::MAP_FAILED);
            let page = |index: usize| base.wrapping_byte_add(index * 4096);
            // SAFETY: why needed: as above. Why sound: pages of the mapping just made.
            unsafe {
                assert_eq!(libc::mprotect(page(1), 4096, libc::PROT_READ), 0);
            }
            // SAFETY: why needed: as above. Why sound: as above.
            unsafe {
                assert_eq!(libc::munmap(page(2), 4096), 0);
            }
            Self(base.expose_provenance())
        }

        fn at(&self, offset: usize) -> u64 {
            (self.0 + offset) as u64
        }
    }

    impl Drop for Pages {
        fn drop(&mut self) {
            let base = core::ptr::with_exposed_provenance_mut(self.0);
            // SAFETY: why needed: gives the pages back. Why sound: nobody refers to them.
            unsafe { libc::munmap(base, 4 * 4096) };
        }
    }

    fn memory() -> ProcessMemory {
        // SAFETY: why needed: the pager under test. Why sound: used for pages of the test only.
        unsafe { ProcessMemory::new() }
    }

    #[test]
    fn copies_fail_where_nothing_is_mapped_and_write_nothing_that_is_protected() {
        assert!(ProcessMemory::is_available());
        let (pages, memory) = (Pages::new(), memory());
        let mut bytes = [0; 16];
        assert!(memory.write(pages.at(100), b"sixteen bytes ok"));
        assert!(memory.read(pages.at(100), &mut bytes));
        assert_eq!(&bytes, b"sixteen bytes ok");
        assert!(
            memory.read(pages.at(4090), &mut bytes),
            "read-only is readable"
        );
        assert!(!memory.write(pages.at(4096), &bytes));
        assert!(!memory.read(pages.at(8190), &mut bytes), "ends in the hole");
        assert!(!memory.write(pages.at(8192), &bytes));
        assert!(!memory.read(0, &mut bytes));
        assert!(!memory.read(u64::MAX - 3, &mut bytes));
    }

    #[test]
    fn atomics_ask_first() {
        let (pages, memory) = (Pages::new(), memory());
        assert_eq!(memory.atomic(pages.at(8), AtomicStep::FetchAdd(5)), Some(0));
        assert_eq!(memory.atomic(pages.at(8), AtomicStep::Store(1)), Some(5));
        for addr in [pages.at(9), pages.at(4096), pages.at(8192), 0, 8] {
            assert_eq!(
                memory.atomic(addr, AtomicStep::FetchAdd(1)),
                None,
                "{addr:#x}"
            );
        }
    }

    #[test]
    fn ranges_are_checked_as_a_nic_checks_them() {
        let pages = Pages::new();
        let errno = |offset, len, write| {
            let checked = check_range(pages.at(offset), len, write);
            checked.err().map(|error| error.raw_os_error().unwrap())
        };
        assert_eq!(errno(0, 4096, true), None);
        assert_eq!(errno(0, 8192, false), None);
        assert_eq!(errno(10, 4087, true), Some(libc::EFAULT));
        assert_eq!(errno(4096, 4097, false), Some(libc::EFAULT));
        assert_eq!(errno(0, 1 << 40, false), Some(libc::EFAULT));
        assert_eq!(errno(0, 0, true), None);
        let wraps = check_range(u64::MAX - 10, 100, false).unwrap_err();
        assert_eq!(wraps.raw_os_error(), Some(libc::EINVAL));
    }

    #[test]
    fn mappings_side_by_side_are_one_range() {
        let maps = "1000-3000 rw-p 0 00:00 0\n3000-4000 r--p 0 00:00 0 x\n5000-6000 rw-p 0 0 0";
        assert!(covers(maps, 0x1000, 0x3000, true));
        assert!(covers(maps, 0x1000, 0x4000, false));
        assert!(!covers(maps, 0x1000, 0x4000, true));
        assert!(!covers(maps, 0x3000, 0x5000, false));
        assert!(!covers(maps, 0, 0x2000, false));
        assert!(!covers(maps, 0x5000, 0x7000, false));
    }
}
