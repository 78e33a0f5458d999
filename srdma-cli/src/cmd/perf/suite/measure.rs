//! Measuring one thing: the processes that it takes, and where they run.
//!
//! Each measurement has a server and a client of its own, so nothing is left of the one before. All
//! of them go through the options of `perf client`, so each can be made again by hand.

use super::cable::Cable;
use super::perftest::{self, Program};
use super::probe::{self, Probe};
use super::sample::{Metric, Missing, Sample, float};
use crate::child::{Child, Place};
use crate::cmd::limit::{self, Kind, Setup};
use crate::cmd::perf::case::Case;
use crate::cmd::perf::options::case_args;
use crate::cmd::perf::row::Figures;
use crate::cmd::perf::table::{LIMIT, start_server};
use crate::cmd::{DeviceArgs, SocketArgs, run};
use crate::error::{CliError, Result};
use std::net::IpAddr;
use std::time::Duration;

/// How long a process may take beyond what it measures: ten thousand queue pairs are made.
const PATIENCE: Duration = Duration::from_secs(60);
/// The receive buffer that a machine grants on which nobody has changed it.
const USUAL_BUFFER: u32 = 212_992;

/// One thing to measure.
#[derive(Clone, Debug)]
pub(super) enum Measure {
    /// What bare sockets do.
    Limit {
        kind: Kind,
        /// Payload of a packet.
        mtu: u16,
        setting: Setting,
    },
    /// What we do.
    Case { case: Case, setting: Setting },
    /// A program of perftest, on our library.
    Perftest(Program),
    /// What one process does alone.
    Probe(Probe),
    /// The size of the library.
    Library,
}

/// How network and sockets are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Setting {
    /// As the options say.
    Plain,
    /// With the receive buffer that most users have.
    Capped,
    /// Both sides lose this share of what they receive.
    Loss(f64),
    /// Two hosts with a cable of 1500 bytes between them.
    Cable,
}

/// What measurements have in common.
#[derive(Debug)]
pub(super) struct Bench {
    local: IpAddr,
    remote: IpAddr,
    duration: Duration,
    sockets: SocketArgs,
    /// Made when it is first asked for.
    cable: Option<core::result::Result<Cable, String>>,
}

/// Two places with their addresses.
#[derive(Clone, Copy, Debug)]
struct Ends {
    addrs: [IpAddr; 2],
    places: [Place; 2],
}

impl Bench {
    /// Between these addresses of loopback.
    pub(super) const fn new(
        [local, remote]: [IpAddr; 2],
        duration: Duration,
        sockets: SocketArgs,
    ) -> Self {
        Self {
            local,
            remote,
            duration,
            sockets,
            cable: None,
        }
    }

    /// Measures.
    pub(super) fn measure(&mut self, measure: &Measure) -> core::result::Result<Sample, Missing> {
        let addrs = [self.local, self.remote];
        match measure {
            Measure::Limit { kind, mtu, setting } => {
                let ends = self.ends(*setting)?;
                Ok(self.limit(*kind, *mtu, &ends)?)
            }
            Measure::Case { case, setting } => {
                let ends = self.ends(*setting)?;
                Ok(self.case(case, *setting, &ends)?)
            }
            Measure::Perftest(program) => perftest::measure(program, addrs, self.duration),
            Measure::Probe(probe) => Ok(probe::measure(probe, addrs, self.sockets)?),
            Measure::Library => run::library_size().map_or_else(
                || Err(Missing::Skipped("this program was only checked".to_owned())),
                |size| Ok(Sample::default().with(Metric::FileBytes, float(size))),
            ),
        }
    }

    fn ends(&mut self, setting: Setting) -> core::result::Result<Ends, Missing> {
        if setting != Setting::Cable {
            return Ok(Ends {
                addrs: [self.local, self.remote],
                places: [Place::Here; 2],
            });
        }
        match self.cable.get_or_insert_with(Cable::lay) {
            Ok(cable) => Ok(Ends {
                addrs: Cable::ADDRS,
                places: cable.places(),
            }),
            Err(why) => Err(Missing::Skipped(why.clone())),
        }
    }

    fn limit(&self, kind: Kind, mtu: u16, ends: &Ends) -> Result<Sample> {
        let [local, remote] = ends.addrs;
        let report = limit::measure(
            kind,
            &Setup {
                local,
                remote,
                mtu,
                duration: LIMIT.min(self.duration),
                sockets: self.sockets,
                places: ends.places,
            },
        )?;
        Ok(report.into())
    }

    fn case(&self, case: &Case, setting: Setting, ends: &Ends) -> Result<Sample> {
        case.check().map_err(CliError::Usage)?;
        let mut device = DeviceArgs {
            sockets: self.sockets,
            ..DeviceArgs::default()
        };
        match setting {
            Setting::Plain | Setting::Cable => {}
            Setting::Capped => device.sockets.rcvbuf_cap = Some(USUAL_BUFFER),
            Setting::Loss(share) => device.loss = share,
        }
        let ([local, remote], [here, there]) = (ends.addrs, ends.places);
        let (server, listening) = start_server(there, remote, &device)?;
        let host = listening.addr.to_string();
        let local = local.to_string();
        let mut args: Vec<String> = ["perf", "client", &host, "--address", &local, "--json"]
            .map(str::to_owned)
            .into();
        args.extend(case_args(case));
        args.extend(device.to_args());
        let mut client = Child::start_at(here, "client", &args)?;
        let figures: Figures = client.hear(2 * case.duration() + PATIENCE)?;
        client.finish(PATIENCE)?;
        server.finish(PATIENCE)?;
        Ok(figures.into())
    }
}
