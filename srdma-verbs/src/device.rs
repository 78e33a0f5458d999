//! Opening a device, and everything that can be chosen about it.
//!
//! ```text
//! "srdma0"           127.0.0.1, and ::1 where there is IPv6
//! "eth0"             all addresses of that interface (link-local ones left out)
//! "10.0.0.7", "::1"  that address
//! "host2"            what the user calls so: SRDMA_DEVICES, or a file
//! DeviceConfig       anything else, and everything that can be set
//! ```
//!
//! A device is a set of local addresses. Opening the same set, or the same name, twice in one
//! process gives two contexts on one device. Other processes of the same user may have the same
//! addresses open, and so may another device of this process: packets find the one that they are
//! for.

mod file;
mod list;
mod spec;

pub use list::{DeviceInfo, devices, offered_devices};
pub use spec::{ConfigError, Fault as ConfigFault};

use crate::context::Context;
use crate::driver::Driver;
use crate::driver::engine::{EngineConfig, Transport};
use crate::driver::ids::lock;
use crate::error::{Reason, Result};
use srdma_core::hw::Dialect;
use srdma_core::obj::arm::ArmModel;
use srdma_core::puda::IeqMode;
use srdma_net::NetError;
use srdma_net::clock::Clock;
use srdma_net::fault::FaultConfig;
use srdma_net::wire_link::WireLink;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex, Weak};

/// Interrupt vectors of the usual hardware.
const USUAL_MSIX: u32 = 1024;

/// What goes between devices of our own kind, and by which way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum WireMode {
    /// UDP packets; they tell each other more than the specification has: see `docs/roce.md`.
    #[default]
    Own,
    /// UDP packets with nothing but what the specification has, as between strangers.
    Plain,
    /// As `Own`, but what goes to a device on this machine that wants it too crosses memory that
    /// both share, and no socket: see `docs/bridge.md`.
    Bridge,
}

/// What a user may set for a device.
#[derive(Clone, Debug, PartialEq)]
struct Options {
    gso: bool,
    gro: bool,
    rcvbuf_cap: Option<u32>,
    fault: Option<FaultConfig>,
    ieq: Option<IeqMode>,
    arm: Option<ArmModel>,
    dialect: Option<Dialect>,
    wire_mode: Option<WireMode>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            gso: true,
            gro: true,
            rcvbuf_cap: None,
            fault: None,
            ieq: None,
            arm: None,
            dialect: None,
            wire_mode: None,
        }
    }
}

/// Opens a device by its name, an interface's name, or one address.
pub fn open(name: &str) -> Result<Context> {
    const VERB: &str = "open";
    if let Ok(addr) = name.parse::<IpAddr>() {
        return DeviceConfig::new().addr(addr).named(name).open();
    }
    let device = list::find(name)?.ok_or_else(|| Reason::NoDevice.of(VERB))?;
    if device.addrs.is_empty() {
        return Err(Reason::NoAddress.of(VERB));
    }
    match device.config().open() {
        // A machine without IPv6 still has the rest of its loopback.
        Err(error) if device.lenient && lacks_family(error.reason()) => {
            let v4 = device.addrs.iter().copied().filter(IpAddr::is_ipv4);
            let config = DeviceConfig {
                addrs: v4.collect(),
                ..device.config()
            };
            config.open()
        }
        opened => opened,
    }
}

fn lacks_family(reason: &Reason) -> bool {
    matches!(
        reason,
        Reason::Net(NetError::NoSuchAddress { local } | NetError::NoFamily { local, .. })
            if local.is_ipv6()
    )
}

/// Everything that can be chosen about a device.
#[derive(Clone, Debug)]
#[must_use]
pub struct DeviceConfig {
    name: String,
    addrs: Vec<IpAddr>,
    interfaces: Vec<String>,
    gso: bool,
    gro: bool,
    rcvbuf_cap: Option<u32>,
    fault: Option<FaultConfig>,
    wire: Option<(Arc<WireLink>, Clock)>,
    arm_model: Option<ArmModel>,
    dialect: Option<Dialect>,
    ieq: Option<IeqMode>,
    wire_mode: Option<WireMode>,
    msix: u32,
    background: bool,
}

impl Default for DeviceConfig {
    fn default() -> Self {
        Self::new()
    }
}

impl DeviceConfig {
    /// No address yet; everything that the kernel offers is used.
    pub const fn new() -> Self {
        Self {
            name: String::new(),
            addrs: Vec::new(),
            interfaces: Vec::new(),
            gso: true,
            gro: true,
            rcvbuf_cap: None,
            fault: None,
            wire: None,
            arm_model: None,
            dialect: None,
            ieq: None,
            wire_mode: None,
            msix: USUAL_MSIX,
            background: true,
        }
    }

    /// Adds an address. Its place in the GID table is the order of these calls.
    pub fn addr(mut self, addr: IpAddr) -> Self {
        self.addrs.push(addr);
        self
    }

    /// Addresses that this interface gets while the device is open become the device's too. Those
    /// that it has already are to be added by [`addr`](Self::addr).
    pub fn follow_interface(mut self, name: &str) -> Self {
        self.interfaces.push(name.to_owned());
        self
    }

    /// The name that [`Context::name`] gives back.
    pub fn named(mut self, name: &str) -> Self {
        name.clone_into(&mut self.name);
        self
    }

    /// Whether one system call may send many packets as one (UDP GSO).
    pub const fn gso(mut self, on: bool) -> Self {
        self.gso = on;
        self
    }

    /// Whether the kernel may merge packets that it received (UDP GRO).
    pub const fn gro(mut self, on: bool) -> Self {
        self.gro = on;
        self
    }

    /// Uses no more than this many bytes of socket buffer, even if the system gives more.
    pub const fn receive_buffer_cap(mut self, bytes: u32) -> Self {
        self.rcvbuf_cap = Some(bytes);
        self
    }

    /// A bad network and a bad device, by rules, chance and seed: see `docs/faults.md`.
    pub fn fault(mut self, fault: FaultConfig) -> Self {
        self.fault = Some(fault);
        self
    }

    /// Uses a wire in memory in place of sockets, with the time of `clock`.
    pub fn wire(mut self, link: Arc<WireLink>, clock: Clock) -> Self {
        self.wire = Some((link, clock));
        self
    }

    /// What arming a completion queue does about completions that are there already; else
    /// `SRDMA_ARM` says, else nothing in the E810's dialect, and in others an event if the program
    /// has not read them.
    pub const fn arm_model(mut self, model: ArmModel) -> Self {
        self.arm_model = Some(model);
        self
    }

    /// Whose words the device and its driver half use for completions and events; else
    /// `SRDMA_DIALECT` says, else they are an E810's. Programs see no difference.
    pub const fn dialect(mut self, dialect: Dialect) -> Self {
        self.dialect = Some(dialect);
        self
    }

    /// What becomes of packets that arrive out of order; else `SRDMA_IEQ` says, else they are kept.
    pub const fn ieq(mut self, mode: IeqMode) -> Self {
        self.ieq = Some(mode);
        self
    }

    /// What goes between devices of our own kind; else `SRDMA_WIRE` says, else [`WireMode::Own`].
    pub const fn wire_mode(mut self, mode: WireMode) -> Self {
        self.wire_mode = Some(mode);
        self
    }

    /// How many interrupt vectors the hardware has. Of these a network driver takes its own; of the
    /// rest there is one for each processor and one for asynchronous events, or fewer:
    /// see `docs/events.md`. With too few to begin with, the device does not open.
    pub const fn msix(mut self, vectors: u16) -> Self {
        self.msix = vectors as u32;
        self
    }

    /// Whether a thread runs the device when no call does. Without it nothing happens between
    /// calls.
    pub const fn background(mut self, on: bool) -> Self {
        self.background = on;
        self
    }

    /// What a user has set.
    fn with(self, options: &Options) -> Self {
        let config = self.gso(options.gso).gro(options.gro);
        Self {
            rcvbuf_cap: options.rcvbuf_cap,
            fault: options.fault.clone(),
            ieq: options.ieq,
            wire_mode: options.wire_mode,
            arm_model: options.arm,
            dialect: options.dialect,
            ..config
        }
    }

    /// A device on a loopback address of its own, for examples in documentation.
    #[doc(hidden)]
    pub fn doc_test() -> Result<Self> {
        let [a, b, ..] = std::process::id().to_le_bytes();
        let [c, ..] = crate::driver::random_key().to_le_bytes();
        Ok(Self::new().addr(Ipv4Addr::new(127, a, b, c.clamp(2, 254)).into()))
    }

    /// Opens the device, or joins it if this process has the same addresses open already (its
    /// settings are those of the first then).
    pub fn open(self) -> Result<Context> {
        const VERB: &str = "open";
        if self.addrs.is_empty() {
            return Err(Reason::NoDevice.of(VERB));
        }
        let name = if self.name.is_empty() {
            self.addrs
                .first()
                .map(ToString::to_string)
                .unwrap_or_default()
        } else {
            self.name.clone()
        };
        let wrong = |error| Reason::Config(error).of(VERB);
        let ieq = match self.ieq {
            Some(mode) => mode,
            None => spec::usual_ieq(std::env::var_os(spec::IEQ_VARIABLE)).map_err(wrong)?,
        };
        let dialect = match self.dialect {
            Some(dialect) => dialect,
            None => spec::usual_dialect(std::env::var_os(spec::DIALECT_VARIABLE)).map_err(wrong)?,
        };
        let arm = match self.arm_model {
            Some(model) => model,
            None => {
                spec::usual_arm(std::env::var_os(spec::ARM_VARIABLE), dialect).map_err(wrong)?
            }
        };
        let mode = match self.wire_mode {
            Some(mode) => mode,
            None => spec::usual_wire(std::env::var_os(spec::WIRE_VARIABLE)).map_err(wrong)?,
        };
        let msix = self.msix;
        if self.wire.is_some() {
            let config = self.engine(ieq, arm, dialect, mode);
            let driver = Driver::open(config, msix).map_err(|reason| reason.of(VERB))?;
            return Ok(Context::create(driver, name));
        }
        let mut open = lock(&OPEN);
        if let Some(driver) = open
            .iter()
            .find_map(|known| known.same(&self.name, &self.addrs))
        {
            return Ok(Context::create(driver, name));
        }
        let config = self.clone().engine(ieq, arm, dialect, mode);
        let driver = Driver::open(config, msix).map_err(|reason| reason.of(VERB))?;
        open.retain(Opened::is_alive);
        let weak = Arc::downgrade(&driver);
        open.push(Opened {
            name: self.name,
            addrs: self.addrs,
            driver: weak,
            process: std::process::id(),
        });
        Ok(Context::create(driver, name))
    }

    // rule: dialect-3
    fn engine(self, ieq: IeqMode, arm: ArmModel, dialect: Dialect, mode: WireMode) -> EngineConfig {
        let mut config = EngineConfig::default();
        config.hca.guid = guid(&self.addrs);
        config.hca.arm_model = arm;
        config.hca.dialect = dialect;
        config.name = self.name;
        config.hca.ieq = ieq;
        config.hca.plain_wire = mode == WireMode::Plain;
        config.bridge = mode == WireMode::Bridge;
        config.addrs = self.addrs;
        config.interfaces = self.interfaces;
        (config.gso, config.gro) = (self.gso, self.gro);
        config.rcvbuf_cap = self.rcvbuf_cap;
        config.fault = self.fault;
        config.background = self.background;
        if let Some((link, clock)) = self.wire {
            config.transport = Transport::Wire(link);
            config.clock = clock;
        }
        config
    }
}

/// A number for the device: locally administered, made of its first address.
fn guid(addrs: &[IpAddr]) -> u64 {
    let bits = match addrs.first() {
        Some(IpAddr::V4(addr)) => u64::from(addr.to_bits()),
        Some(IpAddr::V6(addr)) => {
            let bits = addr.to_bits();
            u64::try_from(bits & u128::from(u64::MAX)).unwrap_or(0)
        }
        None => 0,
    };
    0x0200_00ff_fe00_0000 ^ bits
}

/// A device that this process has open, or had.
struct Opened {
    /// Empty if none was given.
    name: String,
    addrs: Vec<IpAddr>,
    driver: Weak<Driver>,
    /// A child inherits the list, but not the threads of the devices in it.
    process: u32,
}

impl Opened {
    fn is_alive(&self) -> bool {
        self.driver.strong_count() != 0 && self.process == std::process::id()
    }

    /// The device, if it is alive and has this name or these addresses.
    fn same(&self, name: &str, addrs: &[IpAddr]) -> Option<Arc<Driver>> {
        let named = !name.is_empty() && self.name == name;
        (self.is_alive() && (named || self.addrs == addrs))
            .then(|| self.driver.upgrade())
            .flatten()
    }
}

/// The devices that this process has open.
static OPEN: Mutex<Vec<Opened>> = Mutex::new(Vec::new());
