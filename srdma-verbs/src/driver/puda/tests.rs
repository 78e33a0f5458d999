//! A send queue that failed sends again.

use super::*;
use crate::driver::engine::{EngineConfig, Transport};
use crate::mad::MAD_BYTES;
use srdma_core::hca::LocalAddr;
use srdma_core::obj::ah::AddressVector;
use srdma_core::qp::attr::QpState;
use srdma_net::clock::{Clock, ManualClock};
use srdma_net::wire_link::WireLink;
use std::net::{IpAddr, SocketAddr};

#[test]
fn an_address_that_goes_away_costs_what_was_sent_from_it_and_no_more() {
    // proves: puda-13
    let clock = ManualClock::new();
    let ip = IpAddr::from([10, 0, 0, 1]);
    let link = WireLink::new(&[SocketAddr::new(ip, 0xc001)], 1 << 10, false);
    let mut config = EngineConfig::default();
    config.addrs = vec![ip];
    config.background = false;
    config.transport = Transport::Wire(Arc::clone(&link));
    config.clock = Clock::manual(&clock);
    let driver = Driver::open(config, 1024).unwrap();
    driver.handle_mads(7, Arc::new(|_, _| ())).unwrap();
    // How many datagrams leave after one to a peer was posted.
    let send = |last: u8| {
        let av = AddressVector::new(IpAddr::from([10, 0, 0, last]), ip);
        driver
            .send_mad(&av, Qpn::GSI, &[7; MAD_BYTES])
            .expect("room");
        for _ in 0..10 {
            driver.engine.drive();
            clock.advance_to(clock.now().after(100_000));
        }
        std::iter::from_fn(|| link.take()).count()
    };
    let address = |addr: Option<LocalAddr>| {
        driver.engine.with(|hca| hca.follow_gids([(0, addr)]));
    };
    assert_eq!((send(2), send(3)), (1, 1));
    address(None);
    assert_eq!(send(2), 0, "from an address that is not there");
    address(Some(LocalAddr {
        ip,
        source_port: 0xc001,
    }));
    assert_eq!((send(3), send(2)), (1, 1), "it sends again");
    let state = || driver.engine.with(|hca| hca.qp_state(Qpn::GSI));
    assert_eq!(state(), Some(QpState::Rts));
    let stats = driver.puda.ilq.stats();
    assert_eq!(stats.total, stats.available + stats.posted, "{stats:?}");
    driver.unhandle_mads(7);
    assert_eq!(state(), None);
}
