//! The registry of one address: which process has which block of queue pair numbers.
//!
//! ```text
//! file     magic 0..8 | next block 8..12 | … | 64: entry 0 | entry 1 | … | entry 4095
//! entry    UDP port | receive buffer, 4 KiB | complement of both   16, 16, 32 bits, low end first
//! locks    1 MiB + block   alone: that block is taken          (bytes beyond the file's end)
//!          2 MiB           shared: the file is in use; alone: it is being made or removed
//!          2 MiB + 1       alone: somebody takes the next block
//! ```
//!
//! Locks say what is true, bytes only where to send. A lock goes with the process that has it, so
//! what a killed process had is free at once, and nothing that is dead can hold anybody up: no call
//! here waits for a lock, it tries a number of times. The file is read and written and never
//! mapped, since it could be cut short under a mapping. Whatever stands in it is input.

use crate::error::NetError;
use crate::sys::lock::{self, Mode};
use srdma_core::hca::ports::{BLOCKS, Home};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

const MAGIC: [u8; 8] = *b"srdma\0r2";
const NEXT_AT: u64 = 8;
const ENTRIES_AT: u64 = 64;
const ENTRY: u64 = 8;
/// What receive buffers are counted in, bytes.
const RX_UNIT: u32 = 4096;
const SIZE: u64 = ENTRIES_AT + BLOCKS as u64 * ENTRY;
const LOCK_BLOCKS: i64 = 1 << 20;
const LOCK_LIFE: i64 = 2 << 20;
const LOCK_NEXT: i64 = LOCK_LIFE + 1;
/// How often something is tried that another process is about to finish, a millisecond apart.
const TRIES: u32 = 200;

/// An open registry.
#[derive(Debug)]
pub(super) struct Registry {
    file: File,
    path: PathBuf,
}

/// Who has a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holder {
    Nobody,
    /// A process that receives there.
    At(Home),
    /// Somebody, but the file does not say who: it is damaged, or being written.
    Unknown,
}

impl Holder {
    pub(super) const fn port(self) -> Option<u16> {
        match self {
            Self::At(home) => Some(home.port),
            Self::Nobody | Self::Unknown => None,
        }
    }
}

/// How an attempt to open a registry ended.
enum Attempt {
    Open,
    /// Somebody is making or removing it.
    Busy,
    /// It cannot be made anew while others use it.
    Damaged,
}

impl Registry {
    /// Opens the registry at `path` to take blocks in it; makes it if it is not there or damaged.
    pub(super) fn open(path: &Path) -> Result<Self, NetError> {
        let fail = |source| NetError::Registry {
            path: path.to_owned(),
            source,
        };
        let mut damaged = false;
        for _ in 0..TRIES {
            let mut options = options();
            let options = options.write(true).create(true).truncate(false).mode(0o600);
            let this = Self {
                file: options.open(path).map_err(fail)?,
                path: path.to_owned(),
            };
            match this.attempt().map_err(fail)? {
                Attempt::Open => return Ok(this),
                Attempt::Busy => {}
                Attempt::Damaged => damaged = true,
            }
            drop(this);
            std::thread::sleep(Duration::from_micros(fastrand::u64(500..1500)));
        }
        let path = path.to_owned();
        Err(if damaged {
            NetError::RegistryDamaged { path }
        } else {
            NetError::Registry {
                path,
                source: io::ErrorKind::TimedOut.into(),
            }
        })
    }

    /// The registry at `path`, to look something up; `None` if there is none.
    pub(super) fn look(path: &Path) -> Option<Self> {
        let file = options().open(path).ok()?;
        Some(Self {
            file,
            path: PathBuf::new(),
        })
    }

    fn attempt(&self) -> io::Result<Attempt> {
        let about = self.file.metadata()?;
        if !about.is_file() || about.uid() != lock::user() {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        if !self.lock(LOCK_LIFE, 1, Mode::Shared)? {
            return Ok(Attempt::Busy);
        }
        // Whoever removed it before we had the lock left us a file without a name.
        let named = std::fs::symlink_metadata(&self.path);
        if !named.is_ok_and(|named| (named.ino(), named.dev()) == (about.ino(), about.dev())) {
            return Ok(Attempt::Busy);
        }
        if self.is_sound()? {
            return Ok(Attempt::Open);
        }
        if !self.lock(LOCK_LIFE, 1, Mode::Alone)? {
            return Ok(Attempt::Damaged);
        }
        self.file.set_len(0)?;
        self.file.set_len(SIZE)?;
        self.write_next(fastrand::u32(..))?;
        self.file.write_all_at(&MAGIC, 0)?;
        // Nobody else has it, so this does not fail for that reason.
        self.lock(LOCK_LIFE, 1, Mode::Shared)?;
        Ok(Attempt::Open)
    }

    fn is_sound(&self) -> io::Result<bool> {
        if self.file.metadata()?.len() != SIZE {
            return Ok(false);
        }
        let mut magic = [0; MAGIC.len()];
        self.file.read_exact_at(&mut magic, 0)?;
        Ok(magic == MAGIC)
    }

    /// True if another process (or device) has a block.
    pub(super) fn has_others(&self) -> bool {
        lock::is_locked(self.file.as_fd(), LOCK_BLOCKS, i64::from(BLOCKS)).unwrap_or(false)
    }

    /// The block to try next. All take turns, so that one comes back as late as possible.
    pub(super) fn next(&self) -> u16 {
        let random = fastrand::u16(..BLOCKS);
        for _ in 0..TRIES {
            match self.lock(LOCK_NEXT, 1, Mode::Alone) {
                Ok(true) => {
                    let next = self.read_next().unwrap_or_else(|_| random.into());
                    // What cannot be written now fails where the entry is.
                    let _ = self.write_next(next.wrapping_add(1));
                    let _ = lock::unlock(self.file.as_fd(), LOCK_NEXT, 1);
                    return u16::try_from(next % u32::from(BLOCKS)).unwrap_or(random);
                }
                Ok(false) => std::thread::sleep(Duration::from_micros(fastrand::u64(20..200))),
                Err(_) => break,
            }
        }
        random
    }

    /// Takes `block`, whose packets come to `home`. False: somebody else has it.
    pub(super) fn claim(&self, block: u16, home: Home) -> io::Result<bool> {
        if !self.lock(lock_of(block), 1, Mode::Alone)? {
            return Ok(false);
        }
        let written = self.write_entry(block, home);
        if written.is_err() {
            let _ = lock::unlock(self.file.as_fd(), lock_of(block), 1);
        }
        written.map(|()| true)
    }

    /// Gives `block` back.
    pub(super) fn release(&self, block: u16) {
        // The lock counts; the entry only spares others a look at it.
        let _ = self.write_entry(block, Home::from(0));
        let _ = lock::unlock(self.file.as_fd(), lock_of(block), 1);
    }

    /// Which other process (or device) has `block`.
    pub(super) fn holder(&self, block: u16) -> Holder {
        match lock::is_locked(self.file.as_fd(), lock_of(block), 1) {
            Ok(false) => Holder::Nobody,
            Ok(true) => self.read_entry(block).map_or(Holder::Unknown, Holder::At),
            Err(_) => Holder::Unknown,
        }
    }

    fn read_entry(&self, block: u16) -> Option<Home> {
        let mut entry = [0; 8];
        self.file.read_exact_at(&mut entry, entry_at(block)).ok()?;
        let [a, b, c, d, check @ ..] = entry;
        if u32::from_le_bytes([a, b, c, d]) != !u32::from_le_bytes(check) {
            return None;
        }
        let (port, units) = (u16::from_le_bytes([a, b]), u16::from_le_bytes([c, d]));
        let rx_bytes = u32::from(units) * RX_UNIT;
        (port != 0).then_some(Home { port, rx_bytes })
    }

    fn lock(&self, at: i64, len: i64, mode: Mode) -> io::Result<bool> {
        lock::try_lock(self.file.as_fd(), at, len, mode)
    }

    fn read_next(&self) -> io::Result<u32> {
        let mut next = [0; 4];
        self.file.read_exact_at(&mut next, NEXT_AT)?;
        Ok(u32::from_le_bytes(next))
    }

    fn write_next(&self, next: u32) -> io::Result<()> {
        self.file.write_all_at(&next.to_le_bytes(), NEXT_AT)
    }

    fn write_entry(&self, block: u16, home: Home) -> io::Result<()> {
        let units = u16::try_from(home.rx_bytes / RX_UNIT).unwrap_or(u16::MAX);
        let words = u32::from(units) << 16 | u32::from(home.port);
        let entry = u64::from(!words) << 32 | u64::from(words);
        self.file
            .write_all_at(&entry.to_le_bytes(), entry_at(block))
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        // The last one takes the file away: who opened it meanwhile finds that it has no name.
        if !self.path.as_os_str().is_empty()
            && self.lock(LOCK_LIFE, 1, Mode::Alone).unwrap_or(false)
        {
            let ours = self.file.metadata().map(|about| about.ino()).ok();
            let named = std::fs::symlink_metadata(&self.path).map(|about| about.ino());
            if ours.is_some() && ours == named.ok() {
                let _ = std::fs::remove_file(&self.path);
            }
        }
    }
}

/// Removes the file at `path` if no process uses it.
pub(super) fn sweep(path: &Path) {
    let mut options = options();
    if let Ok(file) = options.write(true).open(path) {
        drop(Registry {
            file,
            path: path.to_owned(),
        });
    }
}

fn options() -> OpenOptions {
    let mut options = File::options();
    options
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC | libc::O_NONBLOCK);
    options
}

fn lock_of(block: u16) -> i64 {
    LOCK_BLOCKS + i64::from(block)
}

fn entry_at(block: u16) -> u64 {
    ENTRIES_AT + u64::from(block) * ENTRY
}

#[cfg(test)]
mod tests;
