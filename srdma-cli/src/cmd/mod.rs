//! One file or folder a command, and what several of them need.

pub(crate) mod counters;
pub(crate) mod device;
pub(crate) mod devinfo;
pub(crate) mod doctor;
pub(crate) mod limit;
pub(crate) mod perf;
pub(crate) mod run;
pub(crate) mod trace;

use serde::{Deserialize, Serialize};
use srdma_verbs::Dialect;
use std::time::Duration;

/// Options of sockets, ours and bare ones.
#[derive(clap::Args, Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct SocketArgs {
    /// Send one packet a message to the kernel (no UDP segmentation)
    #[arg(long)]
    pub(crate) no_gso: bool,
    /// Receive one packet a message from the kernel (no merging)
    #[arg(long)]
    pub(crate) no_gro: bool,
    /// Receive buffer that is asked for at most; 212992 is what an untuned machine gives
    #[arg(long, value_name = "BYTES")]
    pub(crate) rcvbuf_cap: Option<u32>,
}

/// Options of a device.
#[derive(clap::Args, Clone, Copy, Debug, Default)]
pub(crate) struct DeviceArgs {
    #[command(flatten)]
    pub(crate) sockets: SocketArgs,
    /// Lose this share of what is received, 0 to 1
    #[arg(long, default_value_t = 0.0, value_name = "P", value_parser = share)]
    pub(crate) loss: f64,
    /// Receive this share twice
    #[arg(long, default_value_t = 0.0, value_name = "P", value_parser = share)]
    pub(crate) duplicate: f64,
    /// Receive this share later than what was sent after it
    #[arg(long, default_value_t = 0.0, value_name = "P", value_parser = share)]
    pub(crate) reorder: f64,
    /// Flip bits of this share
    #[arg(long, default_value_t = 0.0, value_name = "P", value_parser = share)]
    pub(crate) corrupt: f64,
    /// Seed of the four above
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub(crate) seed: u64,
    /// Whose words the device uses for completions and events: e810, mlx5 or hns; else
    /// SRDMA_DIALECT says
    #[arg(long, value_name = "NAME", value_parser = dialect)]
    pub(crate) dialect: Option<Dialect>,
    /// Between the two, packets cross memory that both share, and no socket; else SRDMA_WIRE says
    #[arg(long)]
    pub(crate) bridge: bool,
}

impl DeviceArgs {
    /// The arguments that give a child the same.
    pub(crate) fn to_args(self) -> Vec<String> {
        let mut args = Vec::new();
        for (name, value) in [
            ("--loss", self.loss),
            ("--duplicate", self.duplicate),
            ("--reorder", self.reorder),
            ("--corrupt", self.corrupt),
        ] {
            args.extend([name.to_owned(), value.to_string()]);
        }
        args.extend(["--seed".to_owned(), self.seed.to_string()]);
        if let Some(dialect) = self.dialect {
            args.extend(["--dialect".to_owned(), dialect.to_string()]);
        }
        if self.bridge {
            args.push("--bridge".to_owned());
        }
        if self.sockets.no_gso {
            args.push("--no-gso".to_owned());
        }
        if self.sockets.no_gro {
            args.push("--no-gro".to_owned());
        }
        if let Some(bytes) = self.sockets.rcvbuf_cap {
            args.extend(["--rcvbuf-cap".to_owned(), bytes.to_string()]);
        }
        args
    }
}

/// A probability, as an option.
fn share(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if (0.0..=1.0).contains(&value) => Ok(value),
        _ => Err("a number from 0 to 1".to_owned()),
    }
}

/// A dialect, as an option.
fn dialect(text: &str) -> Result<Dialect, String> {
    Dialect::named(text).ok_or_else(|| "e810, mlx5 or hns".to_owned())
}

/// A duration in seconds, as an option.
pub(crate) fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if (0.001..=3600.0).contains(&value) => Ok(value),
        _ => Err("a number of seconds from 0.001 to 3600".to_owned()),
    }
}

/// `count` in `elapsed_ns`, a second.
#[allow(
    clippy::cast_precision_loss,
    reason = "figures have three digits, and no count reaches 2^53"
)]
pub(crate) fn per_sec(count: u64, elapsed_ns: u64) -> f64 {
    count as f64 * 1e9 / (elapsed_ns.max(1) as f64)
}

/// For times in nanoseconds, up to a minute, exact to three digits.
pub(crate) fn histogram() -> hdrhistogram::Histogram<u64> {
    let top = u64::try_from(Duration::from_secs(60).as_nanos()).unwrap_or(u64::MAX);
    hdrhistogram::Histogram::new_with_bounds(1, top, 3)
        .unwrap_or_else(|_| unreachable!("constant bounds that the histogram accepts"))
}

/// Between two looks, of which `looks` in a row found nothing: gives way now and then, and always
/// on a machine with one core, where nothing happens otherwise.
///
/// A look takes a microsecond or less, so whoever is quick never gives way.
pub(crate) fn relax(looks: u32) {
    static ALONE: std::sync::LazyLock<bool> = std::sync::LazyLock::new(|| {
        std::thread::available_parallelism().is_ok_and(|n| n.get() == 1)
    });
    if looks % 256 == 255 || *ALONE {
        std::thread::yield_now();
    } else {
        std::hint::spin_loop();
    }
}
