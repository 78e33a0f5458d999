//! `doctor`: what this machine offers to the device, and how to improve it.
//!
//! ```text
//! ok    GSO       128 packets in one send
//! warn  rmem_max  212992 bytes …
//!                 → sysctl -w net.core.rmem_max=…
//! fail  port      127.0.0.1: UDP 4791 is in use …
//! ```
//!
//! It opens sockets and closes them again; it changes nothing. The exit code is a failure only if
//! a device could not work at all.

mod checks;
mod host;

use crate::error::{CliError, Result};
use crate::out;
use serde::Serialize;

/// `doctor`.
#[derive(clap::Args, Debug, Clone)]
pub(crate) struct DoctorArgs {
    /// One JSON object a line
    #[arg(long)]
    json: bool,
}

/// How a check ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    /// As good as it gets.
    Ok,
    /// Works, and could be better.
    Warn,
    /// A device cannot work.
    Fail,
}

/// One line of the report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Finding {
    verdict: Verdict,
    check: &'static str,
    found: String,
    /// What to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    advice: Option<String>,
}

impl Finding {
    fn ok(check: &'static str, found: impl Into<String>) -> Self {
        Self {
            verdict: Verdict::Ok,
            check,
            found: found.into(),
            advice: None,
        }
    }

    fn warn(check: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        let advice = Some(advice.into());
        Self {
            verdict: Verdict::Warn,
            check,
            found: found.into(),
            advice,
        }
    }

    fn fail(check: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        let advice = Some(advice.into());
        Self {
            verdict: Verdict::Fail,
            check,
            found: found.into(),
            advice,
        }
    }
}

/// Runs the command.
pub(crate) fn run(args: &DoctorArgs) -> Result<()> {
    let findings = checks::all();
    for finding in &findings {
        if args.json {
            let line = serde_json::to_string(finding);
            out::line(line.map_err(|_| CliError::garbled("program", "json"))?);
        } else {
            let word = match finding.verdict {
                Verdict::Ok => "ok",
                Verdict::Warn => "warn",
                Verdict::Fail => "fail",
            };
            out::line(format_args!(
                "{word:5} {:10} {}",
                finding.check, finding.found
            ));
            if let Some(advice) = &finding.advice {
                out::line(format_args!("{:16} → {advice}", ""));
            }
        }
    }
    if findings
        .iter()
        .any(|finding| finding.verdict == Verdict::Fail)
    {
        return Err(CliError::Usage(
            "a device cannot work here until `fail` is mended".to_owned(),
        ));
    }
    Ok(())
}
