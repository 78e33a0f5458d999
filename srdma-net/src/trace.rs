//! Who looks on: the records of all devices of this process, as text, JSON lines and captures.
//!
//! ```text
//! probes ─► ring ─► writer (a thread, every few milliseconds, and at exit) ─► text or JSON lines
//!                                                                        └──► pcapng
//! ```
//!
//! Nothing here runs on the data path: a probe leaves its record in the ring and goes on; if the
//! writer falls behind, records are lost, counted, and said to be so. Several processes may write
//! one file: a line, and a packet of a capture, is one append.

mod capture;
mod line;
mod out;

pub use crate::sys::exit::outlive_interrupts;
pub use capture::Capture;
pub use srdma_core::trace::{doorbell, enter, on};

pub(crate) use out::{gather_run, send};

use crate::sys::exit::{self, LastCall};
use srdma_core::trace::{self as probes, Kind, Record};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How often the writer looks.
const PERIOD: Duration = Duration::from_millis(5);

/// What is written, and where.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TraceConfig {
    /// Lines go to this file, at its end; `-` is standard error.
    pub lines: Option<PathBuf>,
    /// Lines are JSON values.
    pub json: bool,
    /// Packets go to this file, in pcapng.
    pub capture: Option<PathBuf>,
}

impl TraceConfig {
    /// What `SRDMA_TRACE` (`FILE` or `-`, maybe with `,json` behind) and `SRDMA_PCAP` (a file) say.
    #[must_use]
    pub fn from_variables(trace: Option<&str>, capture: Option<&str>) -> Self {
        let trace = trace.filter(|text| !text.is_empty());
        let (lines, json) = match trace.map(|text| (text, text.strip_suffix(",json"))) {
            None => (None, false),
            Some((_, Some(path))) => (Some(path), true),
            Some((path, None)) => (Some(path), false),
        };
        Self {
            lines: lines.map(PathBuf::from),
            json,
            capture: capture.filter(|text| !text.is_empty()).map(PathBuf::from),
        }
    }
}

struct Writer {
    lines: Option<Box<dyn Write + Send>>,
    json: bool,
    capture: Option<Capture>,
    process: u32,
}

static WRITER: Mutex<Option<Writer>> = Mutex::new(None);
/// The process that the thread is of; a child has none until it opens a device.
static THREAD_OF: AtomicU32 = AtomicU32::new(0);
static LAST_CALL: LastCall = LastCall::new();
/// Grows while the writer gets somewhere.
static WRITTEN: AtomicU64 = AtomicU64::new(0);
static NAMES: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Enters a device; its number in records.
pub(crate) fn register(name: &str) -> u8 {
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    let number = u8::try_from(names.len() + 1).unwrap_or(u8::MAX);
    if number < u8::MAX {
        names.push(name.to_owned());
    }
    drop(names);
    enter(number);
    probes::device(name);
    number
}

fn name_of(device: u8) -> String {
    let names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    let name = names.get(usize::from(device).wrapping_sub(1));
    name.map_or_else(|| "-".to_owned(), Clone::clone)
}

/// Starts to look on. What was looked on before in this process ends.
pub fn start(config: &TraceConfig) -> io::Result<()> {
    let lines: Option<Box<dyn Write + Send>> = match &config.lines {
        None => None,
        Some(path) if path == Path::new("-") => Some(Box::new(io::stderr())),
        Some(path) => Some(Box::new(append(path)?)),
    };
    let capture = config.capture.as_deref().map(Capture::open).transpose()?;
    let mut writer = writer();
    if THREAD_OF.load(Ordering::SeqCst) != std::process::id() {
        // What a parent has recorded is the parent's to write.
        probes::drain(|_| ());
    }
    let process = std::process::id();
    *writer = Some(Writer {
        lines,
        json: config.json,
        capture,
        process,
    });
    drop(writer);
    probes::start(now, probes::RING_WORDS);
    if THREAD_OF.swap(process, Ordering::SeqCst) != process {
        exit::at_exit(leave);
        std::thread::Builder::new()
            .name("srdma-trace".into())
            .spawn(write_for_ever)?;
    }
    Ok(())
}

/// Stops looking on; what was recorded is written.
pub fn stop() {
    probes::stop();
    flush();
    *writer() = None;
}

/// Writes what was recorded until now.
pub fn flush() {
    // A child has a copy of the lock as it was, and nothing of its own to write.
    if THREAD_OF.load(Ordering::SeqCst) != std::process::id() {
        return;
    }
    if let Some(writer) = &mut *writer()
        && writer.process == std::process::id()
    {
        writer.write();
    }
}

/// The end of the process: its thread writes what there is.
fn leave() {
    if THREAD_OF.load(Ordering::SeqCst) == std::process::id() {
        LAST_CALL.make(|| (), || WRITTEN.load(Ordering::Relaxed));
    }
}

fn write_for_ever() {
    exit::leave_signals_alone();
    loop {
        std::thread::sleep(PERIOD);
        if LAST_CALL.is_waiting() {
            LAST_CALL.answer(|| {
                flush();
                true
            });
        } else {
            flush();
        }
    }
}

fn writer() -> MutexGuard<'static, Option<Writer>> {
    WRITER.lock().unwrap_or_else(PoisonError::into_inner)
}

fn append(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).open(path)
}

/// Nanoseconds since 1970, which processes of one machine can compare; within a process it never
/// goes back.
fn now() -> u64 {
    static ORIGIN: OnceLock<(u64, Instant)> = OnceLock::new();
    let (start, origin) = ORIGIN.get_or_init(|| {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let start = since.map_or(0, |since| u64::try_from(since.as_nanos()).unwrap_or(0));
        (start, Instant::now())
    });
    start + u64::try_from(origin.elapsed().as_nanos()).unwrap_or(0)
}

impl Writer {
    fn write(&mut self) {
        let mut round: Vec<(u64, String, Vec<u8>)> = Vec::new();
        probes::drain(|record| {
            let line = if self.lines.is_some() {
                line::line(record, self.process, &name_of(record.device), self.json)
            } else {
                String::new()
            };
            let block = match &self.capture {
                Some(capture) => capture.block(record, &name_of(record.device)),
                None => Vec::new(),
            };
            round.push((record.time_ns, line, block));
            WRITTEN.fetch_add(1, Ordering::Relaxed);
        });
        let lost = probes::take_lost();
        if lost != 0 {
            let record = Record {
                kind: Kind::LOST,
                device: 0,
                time_ns: now(),
                words: &[lost],
                bytes: Vec::new(),
            };
            let line = line::line(&record, self.process, "-", self.json);
            round.push((record.time_ns, line, Vec::new()));
        }
        // Threads take their time before their place: neighbours may have changed places.
        round.sort_by_key(|(time, ..)| *time);
        for (_, line, block) in round {
            WRITTEN.fetch_add(1, Ordering::Relaxed);
            // Who reads has gone, or the disk is full: the program goes on.
            if let Some(lines) = &mut self.lines {
                let _ = lines.write_all(line.as_bytes());
            }
            if let Some(capture) = &mut self.capture {
                capture.append(&block);
            }
        }
    }
}

#[cfg(test)]
mod tests;
