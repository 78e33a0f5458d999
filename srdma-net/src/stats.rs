//! Counters of running processes, for those who ask: a socket for each process, its user's alone.
//!
//! ```text
//! /dev/shm/srdma-1000/stats/4711       in the folder of the registries, open to nobody else
//!   connect ─► one JSON value: process, program, devices, each with its counters ─► closed
//! ```
//!
//! The numbers are read from the device when somebody asks, so they are never old, and a device
//! that nobody asks about pays nothing. A thread of ours sleeps in `accept`. Files of processes
//! that are gone refuse the connection, and are removed by whoever finds them: who asks, and each
//! process that starts.

use crate::engine::WeakEngine;
use crate::share;
use crate::sys::exit::leave_signals_alone;
use socket2::SockRef;
use std::fmt::Write as _;
use std::fs::DirBuilder;
use std::io::{self, Read};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long one who asks, or is asked, may take.
const PATIENCE: Duration = Duration::from_millis(500);
/// Bytes of an answer at most.
const MAX_ANSWER: u64 = 1 << 20;

/// What somebody else counts of a device: names and values.
pub type Counting = dyn Fn() -> Vec<(&'static str, u64)> + Send + Sync;

/// A device of this process.
#[derive(Clone)]
struct Device {
    name: String,
    engine: WeakEngine,
    /// What its driver counts.
    driver: Option<Arc<Counting>>,
}

/// Devices of this process.
static DEVICES: Mutex<Vec<Device>> = Mutex::new(Vec::new());
/// The process that answers; a child is another.
static SERVED_BY: AtomicU32 = AtomicU32::new(0);
/// Where it answers.
static SERVED_AT: Mutex<Option<PathBuf>> = Mutex::new(None);

fn devices() -> MutexGuard<'static, Vec<Device>> {
    DEVICES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Enters a device, and answers from here on. Where no socket can be had, nobody can ask.
pub(crate) fn enter(name: String, engine: WeakEngine) {
    let process = std::process::id();
    let mut devices = devices();
    if SERVED_BY.load(Ordering::SeqCst) != process {
        // Those of a parent are not ours.
        devices.clear();
    }
    devices.retain(|device| device.engine.is_alive());
    devices.push(Device {
        name,
        engine,
        driver: None,
    });
    drop(devices);
    if SERVED_BY.swap(process, Ordering::SeqCst) != process {
        // Without a socket the device is as good as with one.
        let _ = serve();
    }
}

/// From here on those who ask are told what the device's driver counts, too.
pub(crate) fn also(engine: &WeakEngine, driver: &Arc<Counting>) {
    for device in devices().iter_mut() {
        if device.engine.is_same(engine) {
            device.driver = Some(Arc::clone(driver));
        }
    }
}

fn folder() -> Option<PathBuf> {
    share::folder().map(|folder| folder.join("stats"))
}

fn serve() -> io::Result<()> {
    let folder = folder().ok_or(io::ErrorKind::NotFound)?;
    match DirBuilder::new().mode(0o700).create(&folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let path = folder.join(std::process::id().to_string());
    // A process that is gone had our number.
    let _ = std::fs::remove_file(&path);
    let listener = UnixListener::bind(&path)?;
    std::thread::Builder::new()
        .name("srdma-stats".into())
        .spawn(move || {
            leave_signals_alone();
            sweep(&folder);
            answer_all(&listener);
        })?;
    *SERVED_AT.lock().unwrap_or_else(PoisonError::into_inner) = Some(path);
    crate::sys::exit::at_exit(leave);
    Ok(())
}

fn leave() {
    if SERVED_BY.load(Ordering::SeqCst) == std::process::id()
        && let Ok(Some(path)) = SERVED_AT.try_lock().as_deref()
    {
        let _ = std::fs::remove_file(path);
    }
}

fn answer_all(listener: &UnixListener) {
    for stream in listener.incoming() {
        match stream {
            Ok(stream) => {
                let _ = stream.set_write_timeout(Some(PATIENCE));
                let _ = say(&stream, answer().as_bytes());
            }
            // Out of descriptors, most likely: the program's matter.
            Err(_) => std::thread::sleep(PATIENCE),
        }
    }
}

/// Writes without the signal that ends a program whose reader has left: it is none of the
/// program's matter.
fn say(stream: &UnixStream, mut text: &[u8]) -> io::Result<()> {
    while !text.is_empty() {
        let sent = SockRef::from(stream).send_with_flags(text, libc::MSG_NOSIGNAL)?;
        text = text.get(sent..).unwrap_or_default();
    }
    Ok(())
}

/// Processes that can be asked, or could be before they were killed, and their files.
fn processes(folder: &Path) -> impl Iterator<Item = (u32, PathBuf)> + use<> {
    let files = std::fs::read_dir(folder).into_iter().flatten();
    files.flatten().filter_map(|file| {
        let process = file.file_name().to_str()?.parse().ok()?;
        Some((process, file.path()))
    })
}

/// Removes files of processes that were killed. One that is not to be seen here may run in another
/// container, and is asked first.
fn sweep(folder: &Path) {
    for (process, file) in processes(folder) {
        if !Path::new("/proc").join(process.to_string()).exists()
            && UnixStream::connect(&file).is_err_and(|error| is_gone(&error))
        {
            let _ = std::fs::remove_file(file);
        }
    }
}

/// Nobody answers any more.
fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::ConnectionRefused
}

/// What this process says.
fn answer() -> String {
    let known: Vec<_> = devices().clone();
    let program = std::fs::read_to_string("/proc/self/comm").unwrap_or_default();
    let mut text = format!("{{\"pid\":{},\"program\":", std::process::id());
    quote(&mut text, program.trim());
    text.push_str(",\"devices\":[");
    let mut first = true;
    for device in known {
        let Some(mut counters) = device.engine.counters() else {
            continue;
        };
        counters.extend(device.driver.iter().flat_map(|count| count()));
        text.push_str(if first { "{\"name\":" } else { ",{\"name\":" });
        first = false;
        quote(&mut text, &device.name);
        text.push_str(",\"counters\":{");
        for (at, (name, value)) in counters.into_iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            let _ = write!(text, "{comma}\"{name}\":{value}");
        }
        text.push_str("}}");
    }
    text.push_str("]}\n");
    text
}

fn quote(text: &mut String, value: &str) {
    let plain = value
        .chars()
        .filter(|c| !c.is_control() && !matches!(c, '"' | '\\'));
    text.push('"');
    text.extend(plain);
    text.push('"');
}

/// What every process of this user says, one JSON value each, in order of process numbers.
#[must_use]
pub fn ask_all() -> Vec<String> {
    let mut said: Vec<(u32, String)> = Vec::new();
    for (process, file) in folder().iter().flat_map(|folder| processes(folder)) {
        match ask(&file) {
            Ok(text) => said.push((process, text)),
            Err(error) if is_gone(&error) => {
                let _ = std::fs::remove_file(file);
            }
            Err(_) => {}
        }
    }
    said.sort_unstable();
    said.into_iter().map(|(_, text)| text).collect()
}

fn ask(path: &Path) -> io::Result<String> {
    let stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut text = String::new();
    stream.take(MAX_ANSWER).read_to_string(&mut text)?;
    // It was killed before it had said all.
    if !text.ends_with('\n') {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(text.trim().to_owned())
}
