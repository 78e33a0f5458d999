//! Which devices there are: those that the user named, or the usual ones.
//!
//! ```text
//! SRDMA_DEVICES ─┐ else
//! a file ────────┤ else        the user's list: nothing else is offered to programs
//! srdma0 ────────┘             loopback: nobody reaches it from outside
//!                              Rust programs are also told of one device for each interface
//! ```
//!
//! Addresses of interfaces are looked up each time, so a list is as true as the moment it was made.

use super::spec::{Place, Spec};
use super::{DeviceConfig, Options, file, guid, spec};
use crate::error::{Reason, Result};
use srdma_net::interface::{self, Interface};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Name of the loopback device.
pub(super) const LOOPBACK: &str = "srdma0";
/// What calls fail in.
const VERB: &str = "devices";

/// A device that could be opened.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct DeviceInfo {
    /// What [`open`](crate::open) takes.
    pub name: String,
    /// Its addresses, in the order of the GID table; none if its interface has none.
    pub addrs: Vec<IpAddr>,
    /// Interfaces that it stands on, whose further addresses it gets.
    pub(super) interfaces: Vec<String>,
    pub(super) options: Options,
    /// Addresses that may be left out where the machine lacks their family.
    pub(super) lenient: bool,
}

impl DeviceInfo {
    /// The number that the device has when it is open.
    #[must_use]
    pub fn guid(&self) -> u64 {
        guid(&self.addrs)
    }

    /// What [`open`](crate::open) opens it with.
    pub fn config(&self) -> DeviceConfig {
        let addrs = self.addrs.iter();
        let config = DeviceConfig::new().named(&self.name).with(&self.options);
        let config = addrs.fold(config, |config, addr| config.addr(*addr));
        let interfaces = self.interfaces.iter();
        interfaces.fold(config, |config, name| config.follow_interface(name))
    }

    fn usual(name: &str, addrs: Vec<IpAddr>) -> Self {
        Self {
            name: name.to_owned(),
            addrs,
            interfaces: Vec::new(),
            options: Options::default(),
            lenient: false,
        }
    }

    /// The device of an interface.
    fn of_interface(name: &str, addrs: Vec<IpAddr>) -> Self {
        Self {
            interfaces: vec![name.to_owned()],
            ..Self::usual(name, addrs)
        }
    }

    /// 127.0.0.1, and ::1 where there is one.
    fn loopback(interfaces: &[Interface]) -> Self {
        let six = IpAddr::from(Ipv6Addr::LOCALHOST);
        let has_six = interfaces.iter().any(|interface| interface.addr == six);
        let addrs = [Ipv4Addr::LOCALHOST.into()].into_iter();
        let addrs = addrs.chain(has_six.then_some(six)).collect();
        Self {
            lenient: true,
            ..Self::usual(LOOPBACK, addrs)
        }
    }
}

/// The devices of this machine: those that the user named, else loopback, then one for each
/// interface with an address.
pub fn devices() -> Result<Vec<DeviceInfo>> {
    if let Some(named) = named()? {
        return Ok(named);
    }
    let interfaces = interfaces()?;
    let mut devices = vec![DeviceInfo::loopback(&interfaces)];
    for interface in interfaces
        .into_iter()
        .filter(|i| !i.loopback && !i.link_local)
    {
        let known = devices
            .iter_mut()
            .find(|device| device.name == interface.name);
        match known {
            Some(device) => device.addrs.push(interface.addr),
            None => devices.push(DeviceInfo::of_interface(
                &interface.name,
                vec![interface.addr],
            )),
        }
    }
    Ok(devices)
}

/// The devices that programs find without asking for one: those that the user named by
/// `SRDMA_DEVICES` or a file, else loopback alone.
pub fn offered_devices() -> Result<Vec<DeviceInfo>> {
    match named()? {
        Some(named) => Ok(named),
        None => Ok(vec![DeviceInfo::loopback(&interfaces()?)]),
    }
}

/// The device of this name: of the user's list, the loopback device, or an interface.
pub(super) fn find(name: &str) -> Result<Option<DeviceInfo>> {
    let named = named()?.unwrap_or_default();
    if let Some(device) = named.into_iter().find(|device| device.name == name) {
        return Ok(Some(device));
    }
    let interfaces = interfaces()?;
    if name == LOOPBACK {
        return Ok(Some(DeviceInfo::loopback(&interfaces)));
    }
    let addrs = addrs_of(name, &interfaces);
    Ok((!addrs.is_empty()).then(|| DeviceInfo::of_interface(name, addrs)))
}

/// What the user named; `None` if nothing was said.
fn named() -> Result<Option<Vec<DeviceInfo>>> {
    let Some(specs) = specs().map_err(|error| Reason::Config(error).of(VERB))? else {
        return Ok(None);
    };
    let interfaces = interfaces()?;
    let devices = specs.into_iter().map(|spec| resolve(spec, &interfaces));
    Ok(Some(devices.collect()))
}

fn specs() -> core::result::Result<Option<Vec<Spec>>, spec::ConfigError> {
    if let Some(value) = std::env::var_os(spec::VARIABLE) {
        let specs = spec::parse(&value.to_string_lossy())?;
        if !specs.is_empty() {
            return Ok(Some(specs));
        }
    }
    let Some((path, needed)) = file::path(|name| std::env::var_os(name)) else {
        return Ok(None);
    };
    let specs = file::read(&path, needed)?;
    Ok(specs.filter(|specs| !specs.is_empty()))
}

fn interfaces() -> Result<Vec<Interface>> {
    interface::all().map_err(|error| Reason::Io(error).of(VERB))
}

fn addrs_of(name: &str, interfaces: &[Interface]) -> Vec<IpAddr> {
    let own = |interface: &&Interface| interface.name == name && !interface.link_local;
    interfaces.iter().filter(own).map(|i| i.addr).collect()
}

/// Puts addresses in the place of interfaces. An address that is named twice counts once.
fn resolve(spec: Spec, interfaces: &[Interface]) -> DeviceInfo {
    let mut addrs = Vec::new();
    for place in &spec.places {
        let found = match place {
            Place::Addr(addr) => vec![*addr],
            Place::Interface(name) => addrs_of(name, interfaces),
        };
        for addr in found {
            if !addrs.contains(&addr) {
                addrs.push(addr);
            }
        }
    }
    let interfaces = spec.places.iter().filter_map(|place| match place {
        Place::Interface(name) => Some(name.clone()),
        Place::Addr(_) => None,
    });
    DeviceInfo {
        name: spec.name,
        addrs,
        interfaces: interfaces.collect(),
        options: spec.options,
        lenient: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_become_addresses() {
        let lo = interface::of(Ipv4Addr::LOCALHOST.into()).expect("there is loopback");
        let text = format!("x={}+127.0.0.2+127.0.0.1, y=nosuch0", lo.name);
        let specs = spec::parse(&text).expect("legal");
        let all = interface::all().expect("the system lists them");
        let devices: Vec<_> = specs.into_iter().map(|spec| resolve(spec, &all)).collect();
        let [x, y] = &devices[..] else {
            panic!("{devices:?}")
        };
        let two = IpAddr::from(Ipv4Addr::new(127, 0, 0, 2));
        assert!(x.addrs.contains(&Ipv4Addr::LOCALHOST.into()) && x.addrs.contains(&two));
        let ones = x.addrs.iter().filter(|addr| **addr == Ipv4Addr::LOCALHOST);
        assert_eq!(ones.count(), 1);
        assert_eq!(y.addrs, Vec::<IpAddr>::new());
        assert_ne!(x.guid(), y.guid());
    }
}
