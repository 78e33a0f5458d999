//! `counters`: what devices of running processes have counted, while they run.
//!
//! What the kernel's software device (rxe) counts has its names; the rest are ours. Only processes
//! of the same user answer.

use crate::error::{CliError, Result};
use crate::out;
use serde::Deserialize;
use std::collections::HashMap;
use std::time::Duration;

/// `counters`.
#[derive(clap::Args, Debug, Clone)]
pub(crate) struct CountersArgs {
    /// Only this process
    #[arg(long)]
    pid: Option<u32>,
    /// One JSON value a process and look
    #[arg(long)]
    json: bool,
    /// Look again every so many seconds, and show what has moved
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "1",
        value_parser = super::seconds)]
    watch: Option<f64>,
    /// Also counters that are 0
    #[arg(long)]
    all: bool,
}

/// What a process says.
#[derive(Deserialize)]
struct Process {
    pid: u32,
    program: String,
    devices: Vec<Device>,
}

#[derive(Deserialize)]
struct Device {
    name: String,
    counters: serde_json::Map<String, serde_json::Value>,
}

type Before = HashMap<(u32, String, String), u64>;

/// Shows counters, once or until interrupted.
pub(crate) fn run(args: &CountersArgs) -> Result<()> {
    let mut before = Before::new();
    let mut told = args.json;
    loop {
        let mut answers = 0;
        for text in srdma_net::stats::ask_all() {
            let process: Process =
                serde_json::from_str(&text).map_err(|_| CliError::garbled("process", &text))?;
            if args.pid.is_some_and(|pid| pid != process.pid) {
                continue;
            }
            answers += 1;
            if args.json {
                out::line(&text);
            } else {
                show(args, &process, &mut before);
            }
        }
        if answers == 0 && !told {
            eprintln!("no such process of this user has a device open");
            told = true;
        }
        let Some(period) = args.watch else {
            return Ok(());
        };
        std::thread::sleep(Duration::from_secs_f64(period));
    }
}

fn show(args: &CountersArgs, process: &Process, before: &mut Before) {
    for (at, device) in process.devices.iter().enumerate() {
        let mut lines = Vec::new();
        for (name, value) in &device.counters {
            let value = value.as_u64().unwrap_or(0);
            let key = (process.pid, format!("{at}"), name.clone());
            let then = before.insert(key, value);
            let moved = value - then.unwrap_or(0).min(value);
            match then {
                Some(_) if moved == 0 && !args.all => {}
                Some(_) => lines.push(format!("  {name:<28} {value:>14} +{moved}")),
                None if value == 0 && !args.all => {}
                None => lines.push(format!("  {name:<28} {value:>14}")),
            }
        }
        out::line(format_args!(
            "{} {} ({})",
            device.name, process.program, process.pid
        ));
        lines.iter().for_each(out::line);
    }
}
