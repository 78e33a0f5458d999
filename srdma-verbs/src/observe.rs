//! Who looks on, and who disturbs, as variables say: `SRDMA_TRACE`, `SRDMA_PCAP`, `SRDMA_FAULTS`.
//!
//! They are read when a process opens its first device, so programs need not know of them. See
//! `docs/tracing.md`.

use crate::device::ConfigError;
use crate::error::Reason;
use core::sync::atomic::{AtomicU32, Ordering};
use srdma_net::fault::{FaultConfig, FaultSyntax};
use srdma_net::trace::{self, TraceConfig};

/// Where lines go.
const TRACE: &str = "SRDMA_TRACE";
/// Where packets go.
const CAPTURE: &str = "SRDMA_PCAP";

/// What goes wrong: rules, or `@` and a file of them.
const FAULTS: &str = "SRDMA_FAULTS";

/// The process that has read the variables; a child reads them again.
static READ_BY: AtomicU32 = AtomicU32::new(0);

/// Does what the variables say, once a process.
pub(crate) fn start() {
    let process = std::process::id();
    if READ_BY.swap(process, Ordering::SeqCst) == process {
        return;
    }
    let set = |name| Some(std::env::var_os(name)?.to_string_lossy().into_owned());
    let (lines, capture) = (set(TRACE), set(CAPTURE));
    let config = TraceConfig::from_variables(lines.as_deref(), capture.as_deref());
    if config == TraceConfig::default() {
        return;
    }
    if let Err(error) = trace::start(&config) {
        // The program has asked for a device, and can have it.
        eprintln!("srdma: {TRACE} or {CAPTURE}: nothing is written: {error}");
    }
}

/// The faults that the variable wants for devices that have none of their own. What makes no sense
/// fails the device: a test under faults that are none would prove nothing.
pub(crate) fn faults() -> Result<Option<FaultConfig>, Reason> {
    let Some(text) = std::env::var_os(FAULTS).filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    let text = text.to_string_lossy();
    faults_of(&text).map(Some).map_err(|text| {
        Reason::Config(ConfigError::Syntax {
            path: FAULTS.to_owned(),
            text,
        })
    })
}

/// What is wrong with the text of a variable `SRDMA_FAULTS`, if anything.
pub fn check_faults(text: &str) -> Result<(), String> {
    faults_of(text).map(drop)
}

/// Reads rules, or the file that `@` names: TOML if it is called so, else lines of rules.
fn faults_of(text: &str) -> Result<FaultConfig, String> {
    #[derive(serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct File {
        #[serde(default)]
        seed: u64,
        rules: Vec<String>,
    }
    let Some(path) = text.strip_prefix('@') else {
        return text.parse().map_err(|error: FaultSyntax| error.to_string());
    };
    let read = std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
    if !path.ends_with(".toml") {
        return read.parse().map_err(|error| format!("{path}: {error}"));
    }
    let file: File = toml::from_str(&read).map_err(|error| format!("{path}: {error}"))?;
    let mut config = FaultConfig {
        seed: file.seed,
        ..FaultConfig::default()
    };
    for rule in &file.rules {
        config
            .add(rule)
            .map_err(|error| format!("{path}: {error}"))?;
    }
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_come_from_text_and_files() {
        let path = std::env::temp_dir().join(format!("srdma-faults-{}.toml", std::process::id()));
        let toml = |text: &str| {
            std::fs::write(&path, text).expect("a file can be written");
            faults_of(&format!("@{}", path.display()))
        };
        let config = toml("seed = 3\nrules = [\"drop 1%\", \"out drop nth=2\"]\n").expect("legal");
        assert_eq!((config.seed, config.rules.len()), (3, 2));
        assert!(
            toml("rules = [\"dorp\"]\n")
                .expect_err("no action")
                .contains("dorp")
        );
        assert!(toml("rule = []\n").expect_err("a typo").contains("rule"));
        std::fs::remove_file(&path).expect("it was there");
        assert_eq!(
            faults_of("drop 1%; corrupt 1%").expect("legal").rules.len(),
            2
        );
        assert!(
            faults_of("@/no/such/file")
                .expect_err("no file")
                .contains("/no/such")
        );
    }
}
