//! A storm: random operations on two devices over a bad network, and an oracle that knows what
//! memory and completions must hold.
//!
//! ```text
//! device A                          device B
//!   QP k ── SEND WRITE READ CAS … ──► region k   [ writes | constants | counters | words ]
//! ```
//!
//! Every byte is checked: receives when they complete, READs and atomics against the oracle when
//! they complete, the whole region when the queue pair has drained. The same seed gives the same
//! storm and the same network.

mod lane;

use crate::fabric::{Fabric, FabricConfig};
use fastrand::Rng;
use lane::Lane;
use srdma_net::clock::{Clock, ManualClock};
use srdma_verbs::{Completion, Context, DeviceConfig, Dialect, IeqMode, PudaKind, Result};
use std::net::{IpAddr, SocketAddr};

/// What kind of storm.
#[derive(Clone, Copy, Debug)]
pub struct StormConfig {
    /// Operations to complete, over all queue pairs.
    pub operations: u64,
    /// Queue pairs.
    pub qps: usize,
    /// The network.
    pub network: FabricConfig,
    /// IPv6 instead of IPv4.
    pub v6: bool,
    /// What the two devices do with packets out of order.
    pub ieq: [IeqMode; 2],
    /// Whose words the two devices use.
    pub dialects: [Dialect; 2],
}

/// What a storm did.
#[derive(Clone, Copy, Debug, Default)]
pub struct StormReport {
    /// Operations completed.
    pub operations: u64,
    /// Bytes checked.
    pub bytes: u64,
    /// Packets of both devices.
    pub packets: u64,
    /// Times that a requester went back.
    pub retries: u64,
    /// Requests that came ahead of their turn.
    pub ahead: u64,
    /// Of those, handed to the driver.
    pub captured: u64,
}

/// Two devices, their network, and the lanes between them.
struct World {
    clock: ManualClock,
    fabric: Fabric,
    a: Context,
    b: Context,
    lanes: Vec<Lane>,
    rng: Rng,
    report: StormReport,
}

/// Runs one storm.
///
/// # Panics
///
/// If any byte, completion or status is not what the oracle says, or nothing moves any more.
pub fn run(config: &StormConfig) -> Result<StormReport> {
    let mut world = World::new(config)?;
    let per_lane = config.operations / config.qps as u64;
    let mut idle = 0u32;
    loop {
        let mut moved = false;
        let mut open = false;
        for index in 0..world.lanes.len() {
            moved |= world.post(index, per_lane)?;
            moved |= world.reap(index)?;
            open |= world
                .lanes
                .get(index)
                .is_some_and(|lane| lane.done() < per_lane);
        }
        if !open {
            break;
        }
        moved |= world.fabric.step();
        if moved {
            idle = 0;
            continue;
        }
        idle += 1;
        assert!(idle < 100_000, "nothing moves any more");
        let limit = [world.a.next_deadline(), world.b.next_deadline()]
            .into_iter()
            .flatten()
            .min();
        assert!(world.fabric.advance(limit), "nothing is due any more");
    }
    world.finish()?;
    Ok(world.report)
}

impl World {
    fn new(config: &StormConfig) -> Result<Self> {
        let clock = ManualClock::new();
        let mut fabric = Fabric::new(config.network, &clock);
        let mut device = |last: u8, ieq: IeqMode, dialect: Dialect| -> Result<Context> {
            let ip: IpAddr = if config.v6 {
                IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, u16::from(last)])
            } else {
                IpAddr::from([10, 0, 0, last])
            };
            let link = fabric.attach(&[SocketAddr::new(ip, 0xc000 + u16::from(last))]);
            DeviceConfig::new()
                .addr(ip)
                .wire(link, Clock::manual(&clock))
                .background(false)
                .ieq(ieq)
                .dialect(dialect)
                .open()
        };
        let ([ieq_a, ieq_b], [a, b]) = (config.ieq, config.dialects);
        let (a, b) = (device(1, ieq_a, a)?, device(2, ieq_b, b)?);
        let mut rng = Rng::with_seed(config.network.seed);
        let (pd_a, pd_b) = (a.alloc_pd()?, b.alloc_pd()?);
        let mut lanes = Vec::new();
        for index in 0..config.qps {
            // Every other lane goes the other way, so that both devices do everything.
            let lane = if index % 2 == 0 {
                Lane::new((&a, &pd_a), (&b, &pd_b), &mut rng)?
            } else {
                Lane::new((&b, &pd_b), (&a, &pd_a), &mut rng)?
            };
            lanes.push(lane);
        }
        let report = StormReport::default();
        Ok(Self {
            clock,
            fabric,
            a,
            b,
            lanes,
            rng,
            report,
        })
    }

    fn post(&mut self, index: usize, per_lane: u64) -> Result<bool> {
        let rng = &mut self.rng;
        let Some(lane) = self.lanes.get_mut(index) else {
            return Ok(false);
        };
        let mut any = false;
        // Receives come late now and then, so that senders meet an empty queue.
        if rng.u32(0..8) != 0 {
            any |= lane.post_recvs()?;
        }
        let batch = lane.room(per_lane).min(rng.u64(0..6));
        for _ in 0..batch {
            lane.post_one(rng)?;
            any = true;
        }
        Ok(any)
    }

    fn reap(&mut self, index: usize) -> Result<bool> {
        let Some(lane) = self.lanes.get_mut(index) else {
            return Ok(false);
        };
        let mut done = [Completion::EMPTY; 16];
        let got = lane.poll(&mut done);
        for completion in done.iter().take(got) {
            self.report.bytes += lane.check_done(completion)?;
            self.report.operations += 1;
        }
        let received = lane.poll_peer(&mut done);
        for completion in done.iter().take(received) {
            self.report.bytes += lane.check_recv(completion)?;
        }
        Ok(got + received > 0)
    }

    /// Drains receives that are still on their way, and compares memory.
    fn finish(&mut self) -> Result<()> {
        let until = self.clock.now().after(10_000_000_000);
        while self.lanes.iter().any(|lane| lane.owes_receives()) {
            for index in 0..self.lanes.len() {
                if let Some(lane) = self.lanes.get_mut(index) {
                    lane.post_recvs()?;
                }
                self.reap(index)?;
            }
            if !self.fabric.step() {
                assert!(self.clock.now() < until, "receives are missing");
                let limit = [self.a.next_deadline(), self.b.next_deadline()];
                self.fabric.advance(limit.into_iter().flatten().min());
            }
        }
        for lane in &self.lanes {
            self.report.bytes += lane.check_region()?;
        }
        for device in [&self.a, &self.b] {
            check_exceptions(device);
            let counters = device.counters();
            self.report.packets += counters.sent_pkts;
            self.report.retries +=
                counters.completer_retry_err + counters.ack_timeouts + counters.implied_nak;
            self.report.ahead += counters.ieq_total;
            self.report.captured += counters.ieq_captured;
        }
        Ok(())
    }
}

/// Every packet that came ahead of its turn is in one place, and every buffer too. [E810 8.6.6]
///
/// # Panics
///
/// If it is not.
pub fn check_exceptions(device: &Context) {
    let c = device.counters();
    let placed = c.ieq_dropped + c.ieq_out_of_order + c.ieq_captured;
    let refused = c.ieq_dup_held + c.ieq_bad_seq_num + c.ieq_no_rx_bufs;
    assert_eq!(c.ieq_total, placed + refused, "{c:?}");
    let ended = c.ieq_reinjected + c.ieq_discarded;
    assert!(c.ieq_out_of_order + c.ieq_returned >= ended, "{c:?}");
    let puda = device.puda_stats(PudaKind::Ieq);
    let buffers = puda.available + puda.posted + puda.sending + puda.held;
    assert_eq!(puda.total, buffers, "{puda:?}");
    let ended = puda.returned + puda.discarded + puda.dup_held + puda.no_room + puda.stale;
    assert_eq!(puda.captured, ended + puda.held, "{puda:?}");
    assert_eq!(puda.bad_qp_id + puda.rcvd_pkt_err, 0, "{puda:?}");
}
