//! What commands print, and how they show that they are at work.
//!
//! A closed pipe (`srdma-cli perf | head`) ends the program quietly. The progress bar is drawn on
//! standard error, on a terminal only, and only between measurements: drawing takes time too.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::fmt::Display;
use std::io::{IsTerminal, Write};

/// What figures are taken on.
pub(crate) fn machine() -> String {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let version = env!("CARGO_PKG_VERSION");
    format!("srdma {version}; {cpus} CPUs, Linux {}", kernel.trim())
}

/// Prints one line.
pub(crate) fn line(text: impl Display) {
    let mut out = std::io::stdout().lock();
    if writeln!(out, "{text}").and_then(|()| out.flush()).is_err() {
        std::process::exit(0);
    }
}

/// Steps of a longer command.
#[derive(Debug)]
pub(crate) struct Progress(ProgressBar);

impl Progress {
    /// A bar of `steps` steps; nothing at all where there is no terminal.
    pub(crate) fn new(steps: u64) -> Self {
        if !std::io::stderr().is_terminal() {
            return Self(ProgressBar::hidden());
        }
        let bar = ProgressBar::with_draw_target(Some(steps), ProgressDrawTarget::stderr());
        if let Ok(style) = ProgressStyle::with_template("{bar:24} {pos:>2}/{len} {msg}") {
            bar.set_style(style);
        }
        Self(bar)
    }

    /// Says what is measured next.
    pub(crate) fn now(&self, what: impl Into<std::borrow::Cow<'static, str>>) {
        self.0.set_message(what);
        self.0.tick();
    }

    /// Prints a line above the bar.
    pub(crate) fn line(&self, text: impl Display) {
        self.0.suspend(|| line(text));
    }

    /// One step is done.
    pub(crate) fn step(&self) {
        self.0.inc(1);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
