//! What a user may say about devices, and the short form of it: `SRDMA_DEVICES`.
//!
//! ```text
//! SRDMA_DEVICES="srdma1=eth0, host2=127.0.0.2, both=10.0.0.1+fd99::1"
//!                name   │     name  address    name address + address
//!                       └ interface: all of its addresses but link-local ones
//! ```
//!
//! The long form, with settings, is a file: `file.rs`. Nothing here looks at the machine.

use super::{Options, WireMode};
use core::fmt;
use srdma_core::hw::Dialect;
use srdma_core::obj::arm::ArmModel;
use srdma_core::puda::IeqMode;
use std::ffi::OsString;
use std::net::IpAddr;

/// The variable that names devices.
pub(crate) const VARIABLE: &str = "SRDMA_DEVICES";
/// The variable that says what becomes of packets out of order, where nothing else does.
pub(crate) const IEQ_VARIABLE: &str = "SRDMA_IEQ";
/// The variable that says what arming does about completions that are there, where nothing else
/// does.
pub(crate) const ARM_VARIABLE: &str = "SRDMA_ARM";
/// The variable that says whose words devices use, where nothing else does.
pub(crate) const DIALECT_VARIABLE: &str = "SRDMA_DIALECT";
/// The variable that says whether devices of our own kind tell each other more than the
/// specification has, where nothing else does.
pub(crate) const WIRE_VARIABLE: &str = "SRDMA_WIRE";
/// Devices that may be named: far more than one machine plays hosts.
const MAX_DEVICES: usize = 256;
/// Bytes of a device's name; programs written in C have room for 63 and a zero.
const MAX_NAME: usize = 63;
/// Bytes of an interface's name.
const MAX_INTERFACE: usize = libc::IFNAMSIZ - 1;

/// Why the list of devices that the user gave cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A part of it makes no sense.
    #[error("{place}: `{part}`: {why}")]
    Part {
        /// `SRDMA_DEVICES`, or the path of the file.
        place: String,
        /// The part, as it was written.
        part: String,
        /// What is wrong with it.
        why: Fault,
    },
    /// The file cannot be read.
    #[error("cannot read {path}")]
    Unreadable {
        /// The file.
        path: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// The file is no TOML, or holds what is not known.
    #[error("{path}: {text}")]
    Syntax {
        /// The file.
        path: String,
        /// Line, column, and what is wrong there.
        text: String,
    },
    /// Two devices have one name.
    #[error("{place}: two devices are called `{name}`")]
    Twice {
        /// `SRDMA_DEVICES`, or the path of the file.
        place: String,
        /// Their name.
        name: String,
    },
    /// More devices than anybody has.
    #[error("{place}: more than {MAX_DEVICES} devices")]
    TooMany {
        /// `SRDMA_DEVICES`, or the path of the file.
        place: String,
    },
}

/// What is wrong with a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// There is no `=`.
    NoEquals,
    /// The name of the device cannot be one.
    Name,
    /// The device stands on nothing.
    Nowhere,
    /// Neither an address nor a possible name of an interface.
    Place,
    /// An address that no device can have.
    Address,
    /// A share that is not between 0 and 1.
    Share,
    /// No way to treat packets out of order.
    Ieq,
    /// No model of arming.
    Arm,
    /// No dialect.
    Dialect,
    /// Nothing that can be on the wire.
    Wire,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoEquals => "expected NAME=INTERFACE or NAME=ADDRESS, as in srdma1=eth0",
            Self::Name => {
                "a device's name has 1 to 63 letters, digits, `_`, `-` or `.`, begins with a \
                 letter, and is no address"
            }
            Self::Nowhere => "expected an interface or an address, or several joined by `+`",
            Self::Place => "neither an address nor the name of an interface",
            Self::Address => "a device needs an address of its own: not 0.0.0.0, ::, or multicast",
            Self::Share => "expected a share from 0 to 1",
            Self::Ieq => "expected off, reorder or capture",
            Self::Arm => "expected strict, compare or report",
            Self::Dialect => "expected e810, mlx5 or hns",
            Self::Wire => "expected own, plain or bridge",
        })
    }
}

/// Where a device stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// An address.
    Addr(IpAddr),
    /// The addresses of an interface.
    Interface(String),
}

/// A device as the user describes it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Spec {
    pub(crate) name: String,
    pub(crate) places: Vec<Place>,
    pub(crate) options: Options,
}

/// Reads the value of `SRDMA_DEVICES`.
pub(crate) fn parse(text: &str) -> Result<Vec<Spec>, ConfigError> {
    let parts = text.split(',').map(str::trim);
    let mut specs = Vec::new();
    for part in parts.filter(|part| !part.is_empty()) {
        let spec = parse_one(part).map_err(|(part, why)| fault(VARIABLE, part, why))?;
        specs.push(spec);
    }
    check_all(VARIABLE, &specs)?;
    Ok(specs)
}

/// Reads the value of `SRDMA_IEQ`; the usual mode if it is not set.
pub(crate) fn usual_ieq(value: Option<OsString>) -> Result<IeqMode, ConfigError> {
    usual(
        IEQ_VARIABLE,
        value,
        IeqMode::named,
        Fault::Ieq,
        IeqMode::default(),
    )
}

/// Reads the value of `SRDMA_ARM`; the usual model of the dialect if it is not set.
pub(crate) fn usual_arm(
    value: Option<OsString>,
    dialect: Dialect,
) -> Result<ArmModel, ConfigError> {
    let usual_model = if dialect.compares_index() {
        ArmModel::Compare
    } else {
        ArmModel::Strict
    };
    usual(
        ARM_VARIABLE,
        value,
        ArmModel::named,
        Fault::Arm,
        usual_model,
    )
}

fn usual<T>(
    variable: &str,
    value: Option<OsString>,
    named: impl Fn(&str) -> Option<T>,
    why: Fault,
    usual: T,
) -> Result<T, ConfigError> {
    let Some(value) = value.filter(|value| !value.is_empty()) else {
        return Ok(usual);
    };
    let text = value.to_string_lossy();
    named(text.trim()).ok_or_else(|| fault(variable, &text, why))
}

/// Reads the value of `SRDMA_DIALECT`; an E810's if it is not set.
pub(crate) fn usual_dialect(value: Option<OsString>) -> Result<Dialect, ConfigError> {
    usual(
        DIALECT_VARIABLE,
        value,
        Dialect::named,
        Fault::Dialect,
        Dialect::default(),
    )
}

impl WireMode {
    /// What a word says of the wire.
    pub(crate) fn named(word: &str) -> Option<Self> {
        match word {
            "own" => Some(Self::Own),
            "plain" => Some(Self::Plain),
            "bridge" => Some(Self::Bridge),
            _ => None,
        }
    }
}

/// Reads the value of `SRDMA_WIRE`.
pub(crate) fn usual_wire(value: Option<OsString>) -> Result<WireMode, ConfigError> {
    usual(
        WIRE_VARIABLE,
        value,
        WireMode::named,
        Fault::Wire,
        WireMode::Own,
    )
}

/// Reads `name=place+place`; the error names the part that is wrong.
fn parse_one(part: &str) -> Result<Spec, (&str, Fault)> {
    let (name, places) = part.split_once('=').ok_or((part, Fault::NoEquals))?;
    let name = name.trim();
    check_name(name).map_err(|why| (part, why))?;
    if places.trim().is_empty() {
        return Err((part, Fault::Nowhere));
    }
    let places = places.split('+').map(str::trim);
    let places: Result<_, _> = places
        .map(|text| place(text).map_err(|why| (if text.is_empty() { part } else { text }, why)))
        .collect();
    Ok(Spec {
        name: name.to_owned(),
        places: places?,
        options: Options::default(),
    })
}

/// The error for `part`, which was found in `place`.
pub(crate) fn fault(place: &str, part: &str, why: Fault) -> ConfigError {
    ConfigError::Part {
        place: place.to_owned(),
        part: part.chars().take(80).collect(),
        why,
    }
}

/// What has to be true of a list as a whole.
pub(crate) fn check_all(place: &str, specs: &[Spec]) -> Result<(), ConfigError> {
    let place = || place.to_owned();
    if specs.len() > MAX_DEVICES {
        return Err(ConfigError::TooMany { place: place() });
    }
    let mut names: Vec<&str> = specs.iter().map(|spec| &*spec.name).collect();
    names.sort_unstable();
    let twice = names.windows(2).find(|pair| pair.first() == pair.last());
    if let Some([name, ..]) = twice {
        return Err(ConfigError::Twice {
            place: place(),
            name: (*name).to_owned(),
        });
    }
    Ok(())
}

/// A name becomes a file name, and must not be taken for an address.
pub(crate) fn check_name(name: &str) -> Result<(), Fault> {
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    let begins = name.chars().next().is_some_and(|c| c.is_ascii_alphabetic());
    if begins && name.len() <= MAX_NAME && name.chars().all(legal) {
        Ok(())
    } else {
        Err(Fault::Name)
    }
}

/// An address, or the name of an interface.
pub(crate) fn place(text: &str) -> Result<Place, Fault> {
    if let Ok(addr) = text.parse::<IpAddr>() {
        let nobodys = addr.is_unspecified() || addr.is_multicast();
        return if nobodys {
            Err(Fault::Address)
        } else {
            Ok(Place::Addr(addr.to_canonical()))
        };
    }
    let legal = |c: char| !c.is_whitespace() && !c.is_control() && !matches!(c, '/' | ':' | '=');
    if !text.is_empty() && text.len() <= MAX_INTERFACE && text.chars().all(legal) {
        Ok(Place::Interface(text.to_owned()))
    } else if text.is_empty() {
        Err(Fault::Nowhere)
    } else {
        Err(Fault::Place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addr(text: &str) -> Place {
        Place::Addr(text.parse().expect("an address"))
    }

    #[test]
    fn the_examples_are_read() {
        let specs = parse("srdma1=eth0, host2=127.0.0.2,both=10.0.0.1+fd99::1,").expect("legal");
        let got: Vec<_> = specs.iter().map(|s| (&*s.name, s.places.clone())).collect();
        let expected = [
            ("srdma1", vec![Place::Interface("eth0".to_owned())]),
            ("host2", vec![addr("127.0.0.2")]),
            ("both", vec![addr("10.0.0.1"), addr("fd99::1")]),
        ];
        assert_eq!(got, expected);
        assert_eq!(parse(" ").expect("nothing is named"), []);
    }

    #[test]
    fn errors_name_the_part() {
        for (text, part, why) in [
            ("a=lo,srdma1", "srdma1", Fault::NoEquals),
            ("a=", "a=", Fault::Nowhere),
            ("a=lo+", "a=lo+", Fault::Nowhere),
            ("=lo", "=lo", Fault::Name),
            ("../x=lo", "../x=lo", Fault::Name),
            ("127.0.0.1=lo", "127.0.0.1=lo", Fault::Name),
            ("a=10.0.0.1+10.0.0.300/8", "10.0.0.300/8", Fault::Place),
            ("a=0.0.0.0", "0.0.0.0", Fault::Address),
            ("a=ff02::1", "ff02::1", Fault::Address),
            (
                "a=averylonginterfacename",
                "averylonginterfacename",
                Fault::Place,
            ),
        ] {
            match parse(text) {
                Err(ConfigError::Part {
                    part: p,
                    why: w,
                    place,
                }) => {
                    assert_eq!((&*p, w, &*place), (part, why, VARIABLE), "{text}");
                }
                other => panic!("{text}: {other:?}"),
            }
        }
        let long = format!("{}=lo", "n".repeat(64));
        assert!(matches!(parse(&long), Err(ConfigError::Part { .. })));
    }

    #[test]
    fn the_variable_for_packets_out_of_order_is_read() {
        let read = |text: &str| usual_ieq(Some(text.into()));
        assert_eq!(usual_ieq(None).expect("not set"), IeqMode::Reorder);
        assert_eq!(read("").expect("as good as not set"), IeqMode::Reorder);
        assert_eq!(read(" off").expect("legal"), IeqMode::Off);
        assert_eq!(read("capture").expect("legal"), IeqMode::Capture);
        let error = read("on").expect_err("not known").to_string();
        assert_eq!(error, "SRDMA_IEQ: `on`: expected off, reorder or capture");
    }

    #[test]
    fn the_variable_for_the_wire_is_read() {
        let read = |text: &str| usual_wire(Some(text.into()));
        assert_eq!(usual_wire(None).expect("not set"), WireMode::Own);
        assert_eq!(read("plain ").expect("legal"), WireMode::Plain);
        assert_eq!(read("own").expect("legal"), WireMode::Own);
        assert_eq!(read("bridge").expect("legal"), WireMode::Bridge);
        let error = read("off").expect_err("not known").to_string();
        assert_eq!(error, "SRDMA_WIRE: `off`: expected own, plain or bridge");
    }

    #[test]
    fn the_variable_for_arming_is_read() {
        let read = |text: &str| usual_arm(Some(text.into()), Dialect::E810);
        for (dialect, model) in [
            (Dialect::E810, ArmModel::Strict),
            (Dialect::Mlx5, ArmModel::Compare),
            (Dialect::Hns, ArmModel::Compare),
        ] {
            assert_eq!(usual_arm(None, dialect).expect("not set"), model);
        }
        assert_eq!(read("compare ").expect("legal"), ArmModel::Compare);
        assert_eq!(read("report").expect("legal"), ArmModel::Report);
        let error = read("lax").expect_err("not known").to_string();
        assert_eq!(
            error,
            "SRDMA_ARM: `lax`: expected strict, compare or report"
        );
    }

    #[test]
    fn the_variable_for_the_dialect_is_read() {
        let read = |text: &str| usual_dialect(Some(text.into()));
        assert_eq!(usual_dialect(None).expect("not set"), Dialect::E810);
        assert_eq!(read("").expect("as good as not set"), Dialect::E810);
        assert_eq!(read("mlx5 ").expect("legal"), Dialect::Mlx5);
        assert_eq!(read("hns").expect("legal"), Dialect::Hns);
        let error = read("MLX5").expect_err("not known").to_string();
        assert_eq!(error, "SRDMA_DIALECT: `MLX5`: expected e810, mlx5 or hns");
    }

    #[test]
    fn names_are_unique_and_countable() {
        assert!(matches!(
            parse("a=lo,b=lo,a=eth0"),
            Err(ConfigError::Twice { name, .. }) if name == "a"
        ));
        let many: Vec<_> = (0..=MAX_DEVICES).map(|i| format!("d{i}=lo")).collect();
        assert!(matches!(
            parse(&many.join(",")),
            Err(ConfigError::TooMany { .. })
        ));
    }
}
