//! The long form of a list of devices: a file, with settings for each.
//!
//! ```toml
//! [[device]]
//! name = "srdma1"
//! on = ["eth0"]              # interfaces and addresses; one may stand without brackets
//! gso = true                 # the rest may be left out
//! gro = true
//! receive_buffer = 212992    # bytes, at most
//! ieq = "reorder"            # or off, capture: what becomes of packets out of order
//! arm = "strict"             # or compare, report: what arming does about completions there
//! dialect = "e810"           # or mlx5, hns: whose words completions and events are in
//! wire = "own"               # or plain: nothing but what the specification has
//! fault = { loss = 0.01, duplicate = 0.0, reorder = 0.0, corrupt = 0.0, seed = 7,
//!           delay_us = 0, reorder_us = 100, rules = ["drop nth=3 op=RC_ACKNOWLEDGE"] }
//! ```
//!
//! What is not known is an error: a word that is spelt wrong must not be a setting that is missing.

use super::spec::{ConfigError, Fault, Place, Spec, check_all, check_name, fault, place};
use super::{Options, WireMode};
use serde::Deserialize;
use srdma_core::hw::Dialect;
use srdma_core::obj::arm::ArmModel;
use srdma_core::puda::IeqMode;
use srdma_net::fault::FaultConfig;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The variable that names the file.
pub(crate) const VARIABLE: &str = "SRDMA_CONFIG";
/// Bytes that are read at most; a list of devices is short.
const MAX_BYTES: u64 = 1 << 20;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    device: Vec<Device>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Device {
    name: String,
    on: On,
    #[serde(default = "yes")]
    gso: bool,
    #[serde(default = "yes")]
    gro: bool,
    receive_buffer: Option<u32>,
    ieq: Option<String>,
    arm: Option<String>,
    dialect: Option<String>,
    wire: Option<String>,
    fault: Option<Faults>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum On {
    One(String),
    Many(Vec<String>),
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct Faults {
    loss: f64,
    duplicate: f64,
    reorder: f64,
    corrupt: f64,
    delay_us: u32,
    reorder_us: Option<u32>,
    seed: u64,
    rules: Vec<String>,
}

const fn yes() -> bool {
    true
}

/// The file that is meant, given the variables; false if it need not be there.
pub(crate) fn path(variable: impl Fn(&str) -> Option<OsString>) -> Option<(PathBuf, bool)> {
    let set = |name| variable(name).filter(|value| !value.is_empty());
    if let Some(path) = set(VARIABLE) {
        return Some((path.into(), true));
    }
    // A relative path in either variable means nothing.        [XDG base directories]
    let absolute = |value: OsString| Some(PathBuf::from(value)).filter(|path| path.is_absolute());
    let config = set("XDG_CONFIG_HOME").and_then(absolute);
    let config = config.or_else(|| Some(set("HOME").and_then(absolute)?.join(".config")));
    Some((config?.join("srdma").join("devices.toml"), false))
}

/// Reads the file; `None` if it is not there and need not be.
pub(crate) fn read(path: &Path, needed: bool) -> Result<Option<Vec<Spec>>, ConfigError> {
    use std::io::{ErrorKind, Read};
    let shown = path.display().to_string();
    let mut text = String::new();
    let read =
        std::fs::File::open(path).and_then(|file| file.take(MAX_BYTES).read_to_string(&mut text));
    match read {
        Ok(_) => parse(&shown, &text).map(Some),
        Err(error)
            if !needed
                && matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) =>
        {
            Ok(None)
        }
        Err(source) => Err(ConfigError::Unreadable {
            path: shown,
            source,
        }),
    }
}

/// Reads the text of the file `path`.
fn parse(path: &str, text: &str) -> Result<Vec<Spec>, ConfigError> {
    let file: File = toml::from_str(text).map_err(|error| ConfigError::Syntax {
        path: path.to_owned(),
        text: error.to_string().trim_end().to_owned(),
    })?;
    let specs: Result<Vec<_>, _> = file
        .device
        .into_iter()
        .map(|device| device.spec(path))
        .collect();
    let specs = specs?;
    check_all(path, &specs)?;
    Ok(specs)
}

impl Device {
    fn spec(self, path: &str) -> Result<Spec, ConfigError> {
        check_name(&self.name).map_err(|why| fault(path, &self.name, why))?;
        let on = match self.on {
            On::One(one) => vec![one],
            On::Many(many) => many,
        };
        if on.is_empty() {
            return Err(fault(path, &self.name, Fault::Nowhere));
        }
        let places: Result<Vec<Place>, _> = on
            .iter()
            .map(|text| place(text).map_err(|why| fault(path, text, why)))
            .collect();
        let faults = self.fault.map(|faults| faults.config(path)).transpose()?;
        let ieq = self
            .ieq
            .map(|text| IeqMode::named(&text).ok_or_else(|| fault(path, &text, Fault::Ieq)));
        let arm = self
            .arm
            .map(|text| ArmModel::named(&text).ok_or_else(|| fault(path, &text, Fault::Arm)));
        let dialect = self
            .dialect
            .map(|text| Dialect::named(&text).ok_or_else(|| fault(path, &text, Fault::Dialect)));
        let wire = self
            .wire
            .map(|text| WireMode::named(&text).ok_or_else(|| fault(path, &text, Fault::Wire)));
        Ok(Spec {
            name: self.name,
            places: places?,
            options: Options {
                gso: self.gso,
                gro: self.gro,
                rcvbuf_cap: self.receive_buffer,
                fault: faults,
                ieq: ieq.transpose()?,
                arm: arm.transpose()?,
                dialect: dialect.transpose()?,
                wire_mode: wire.transpose()?,
            },
        })
    }
}

impl Faults {
    fn config(&self, path: &str) -> Result<FaultConfig, ConfigError> {
        for (name, share) in [
            ("loss", self.loss),
            ("duplicate", self.duplicate),
            ("reorder", self.reorder),
            ("corrupt", self.corrupt),
        ] {
            if !(0.0..=1.0).contains(&share) {
                return Err(fault(path, &format!("{name} = {share}"), Fault::Share));
            }
        }
        let mut ruled = FaultConfig::default();
        for rule in &self.rules {
            ruled.add(rule).map_err(|error| ConfigError::Syntax {
                path: path.to_owned(),
                text: error.to_string(),
            })?;
        }
        let nanos = |micros: u32| u64::from(micros) * 1000;
        let usual = FaultConfig::default();
        Ok(FaultConfig {
            loss: self.loss,
            duplicate: self.duplicate,
            reorder: self.reorder,
            corrupt: self.corrupt,
            delay_ns: nanos(self.delay_us),
            reorder_ns: self.reorder_us.map_or(usual.reorder_ns, nanos),
            seed: self.seed,
            rules: ruled.rules,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read() {
        let text = "[[device]]\nname = \"a\"\non = \"eth0\"\n\
            [[device]]\nname = \"b\"\non = [\"127.0.0.2\", \"::1\"]\ngso = false\n\
            receive_buffer = 212992\nieq = \"off\"\narm = \"compare\"\nwire = \"plain\"\n\
            fault = { loss = 0.01, seed = 7, delay_us = 5, \
            rules = [\"out drop\"] }\n";
        let specs = parse("f", text).expect("legal");
        let [a, b] = &specs[..] else {
            panic!("{specs:?}")
        };
        assert_eq!(a.places, [Place::Interface("eth0".to_owned())]);
        assert_eq!(a.options, Options::default());
        assert_eq!((&*b.name, b.places.len()), ("b", 2));
        assert!(!b.options.gso && b.options.gro);
        assert_eq!(b.options.rcvbuf_cap, Some(212_992));
        assert_eq!(b.options.ieq, Some(IeqMode::Off));
        assert_eq!(b.options.arm, Some(ArmModel::Compare));
        assert_eq!(b.options.wire_mode, Some(WireMode::Plain));
        let fault = b.options.fault.as_ref().expect("there are faults");
        assert_eq!(
            (fault.seed, fault.delay_ns, fault.reorder_ns),
            (7, 5000, 100_000)
        );
        assert_eq!(fault.rules.len(), 1);
        assert_eq!(parse("f", "").expect("an empty list"), []);
    }

    #[test]
    fn errors_say_where() {
        let device = "[[device]]\nname = \"a\"\non = \"lo\"\n";
        for (text, says) in [
            ("[[device]]\nname = \"a\"\n", "on"),
            ("[[device]\n", "line 1"),
            (&*format!("{device}gos = true\n"), "gos"),
            (&*format!("{device}ieq = \"on\"\n"), "`on`"),
            (&*format!("{device}arm = \"lax\"\n"), "`lax`"),
            (&*format!("{device}fault = {{ los = 1 }}\n"), "los"),
            (
                &*format!("{device}fault = {{ loss = 1.5 }}\n"),
                "loss = 1.5",
            ),
            (
                &*format!("{device}fault = {{ rules = [\"dorp\"] }}\n"),
                "dorp",
            ),
            (&*format!("{device}receive_buffer = -1\n"), "receive_buffer"),
            (&*format!("{device}{device}"), "two devices"),
            ("[[device]]\nname = \"a b\"\non = \"lo\"\n", "`a b`"),
            ("[[device]]\nname = \"a\"\non = []\n", "`a`"),
            (
                "[[device]]\nname = \"a\"\non = \"1.2.3.4.5/6\"\n",
                "`1.2.3.4.5/6`",
            ),
        ] {
            let error = parse("x.toml", text).expect_err(text).to_string();
            assert!(
                error.contains(says) && error.contains("x.toml"),
                "{text}: {error}"
            );
        }
    }

    #[test]
    fn the_file_is_where_the_desktop_says() {
        let find = |vars: &[(&str, &str)]| {
            let vars: Vec<_> = vars
                .iter()
                .map(|(k, v)| (k.to_string(), v.to_string()))
                .collect();
            path(|name| Some(vars.iter().find(|(k, _)| k == name)?.1.clone().into()))
        };
        let found = |text: &str, needed| Some((PathBuf::from(text), needed));
        let home = ("HOME", "/h");
        assert_eq!(find(&[home]), found("/h/.config/srdma/devices.toml", false));
        let xdg = ("XDG_CONFIG_HOME", "/x");
        assert_eq!(find(&[home, xdg]), found("/x/srdma/devices.toml", false));
        assert_eq!(
            find(&[home, (VARIABLE, "rel.toml")]),
            found("rel.toml", true)
        );
        assert_eq!(find(&[("HOME", "rel")]), None);
        assert!(matches!(read(Path::new("/none/such"), false), Ok(None)));
        assert!(matches!(
            read(Path::new("/none/such"), true),
            Err(ConfigError::Unreadable { .. })
        ));
    }
}
