//! The driver's own queues in whole devices: management datagrams by class, what a flood of them
//! cannot do, and exceptions that the driver sorts: programs see the same in every mode.
//! [E810 8]

#![cfg(test)]

use srdma_core::wire::FlowTuple;
use srdma_net::clock::{Clock, ManualClock};
use srdma_tests::fabric::{Fabric, FabricConfig};
use srdma_tests::storm::{StormConfig, check_exceptions, run};
use srdma_tests::wire_dsl::datagram;
use srdma_verbs::{
    Access, Context, Datagram, DeviceConfig, Gid, IeqMode, MAD_BYTES, Mad, MadHandler, Path,
    PudaKind, Qkey, QpType, Qpn, Reason, WireLink, WrId,
};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};

const CM: u8 = 0x07;

/// Two devices and a network.
struct World {
    fabric: Fabric,
    a: Context,
    b: Context,
    link_b: Arc<WireLink>,
}

impl World {
    fn new() -> Self {
        Self::with(FabricConfig::default(), IeqMode::Reorder)
    }

    fn with(network: FabricConfig, ieq: IeqMode) -> Self {
        let clock = ManualClock::new();
        let mut fabric = Fabric::new(network, &clock);
        let mut device = |last: u8| {
            let ip = IpAddr::from([10, 0, 0, last]);
            let link = fabric.attach(&[SocketAddr::new(ip, 0xc000 + u16::from(last))]);
            let config = DeviceConfig::new().addr(ip).background(false).ieq(ieq);
            let config = config.wire(Arc::clone(&link), Clock::manual(&clock));
            (config.open().expect("a device on a wire"), link)
        };
        let ((a, _), (b, link_b)) = (device(1), device(2));
        Self {
            fabric,
            a,
            b,
            link_b,
        }
    }

    /// A datagram for queue pair 1 of b arrives.
    fn deliver_to_b(&self, psn: u32, payload: &[u8]) {
        let source: SocketAddr = "10.0.0.1:49153".parse().expect("an address");
        let flow = FlowTuple::to_roce(source.ip(), source.port(), IpAddr::from([10, 0, 0, 2]));
        let frame = datagram(psn, 0x8001_0000, 1, payload).to(Qpn::GSI);
        self.link_b.deliver(Datagram {
            source,
            target: "10.0.0.2:4791".parse().expect("an address"),
            tclass: 0,
            hop_limit: 64,
            ip_id: 0,
            bytes: frame.bytes(&flow).into(),
        });
    }

    /// Lets everything happen that is under way.
    fn run(&mut self) {
        let mut idle = 0;
        while idle < 3 {
            self.a.drive();
            self.b.drive();
            let moved = self.fabric.step();
            let limit = [self.a.next_deadline(), self.b.next_deadline()];
            let limit = limit.into_iter().flatten().min();
            let on_the_way = !moved && self.fabric.advance(limit);
            idle = if moved || on_the_way { 0 } else { idle + 1 };
        }
    }
}

fn to(last: u8) -> Path {
    Path::new(Gid::from(IpAddr::from([10, 0, 0, last])), 0)
}

/// A MAD of a class with a number in it.
fn mad(class: u8, number: u32) -> [u8; MAD_BYTES] {
    let mut bytes = [0; MAD_BYTES];
    bytes[..4].copy_from_slice(&[1, class, 2, 3]);
    bytes[8..12].copy_from_slice(&number.to_be_bytes());
    bytes[255] = 0x5a;
    bytes
}

fn number(mad: &Mad) -> u32 {
    u32::from_be_bytes([mad.bytes[8], mad.bytes[9], mad.bytes[10], mad.bytes[11]])
}

type Seen = Arc<Mutex<Vec<Mad>>>;

/// Notes what comes.
fn noting() -> (Seen, Arc<MadHandler>) {
    let seen = Seen::default();
    let note = Arc::clone(&seen);
    let handler = move |mad: &Mad, _: &_| note.lock().expect("no panic").push(mad.clone());
    (seen, Arc::new(handler))
}

fn numbers(seen: &Seen) -> Vec<u32> {
    seen.lock().expect("no panic").iter().map(number).collect()
}

/// The buffers of the local queue are all somewhere, and at rest none is on its way.
fn check_buffers(device: &Context) {
    // proves: puda-1
    let stats = device.puda_stats(PudaKind::Ilq);
    let known = stats.available + stats.posted + stats.sending + stats.held;
    assert_eq!(stats.total, known, "{stats:?}");
    assert_eq!(stats.sending, 0, "{stats:?}");
}

#[test]
fn a_datagram_reaches_the_handler_of_its_class_which_may_answer() {
    // proves: puda-7
    let mut world = World::new();
    let answer: Arc<MadHandler> = Arc::new(|mad, sender| {
        let mut bytes = mad.bytes;
        bytes[3] |= 0x80;
        sender.send(&mad.path, mad.source, &bytes).expect("room");
    });
    let (heard, note) = noting();
    let (others, note_others) = noting();
    let agent = world.a.handle_mads(CM, note).expect("free");
    let _sa = world.a.handle_mads(0x03, note_others).expect("free");
    let _cm = world.b.handle_mads(CM, answer).expect("free");
    let refused = world.b.handle_mads(CM, noting().1).expect_err("taken");
    assert!(matches!(refused.reason(), Reason::Busy));
    for n in 0..3 {
        agent
            .sender()
            .send(&to(2), Qpn::GSI, &mad(CM, n))
            .expect("room");
    }
    agent
        .sender()
        .send(&to(2), Qpn::GSI, &mad(0x04, 9))
        .expect("room");
    world.run();
    assert_eq!(numbers(&heard), [0, 1, 2]);
    assert_eq!(numbers(&others), []);
    {
        let heard = heard.lock().expect("no panic");
        assert_eq!((heard[0].method(), heard[0].source), (0x83, Qpn::GSI));
        assert_eq!((heard[0].class(), heard[0].bytes[255]), (CM, 0x5a));
        assert_eq!(heard[0].path, to(2));
    }
    let stats = world.b.puda_stats(PudaKind::Ilq);
    assert_eq!((stats.pkt_rcvd, stats.unclaimed, stats.pkt_sent), (4, 1, 3));
    check_buffers(&world.a);
    check_buffers(&world.b);
    // The last class takes the queue along.
    drop(agent);
    drop(_sa);
    assert_eq!(world.a.puda_stats(PudaKind::Ilq).total, 0);
    let before = world.a.counters().unknown_qpn;
    let sender = _cm.sender();
    sender.send(&to(1), Qpn::GSI, &mad(CM, 7)).expect("room");
    world.run();
    assert_eq!(world.a.counters().unknown_qpn, before + 1);
}

#[test]
fn what_finds_no_room_waits_in_order_and_what_finds_no_buffer_is_refused() {
    // proves: puda-4, puda-1
    let mut world = World::new();
    let (heard, note) = noting();
    let agent = world.a.handle_mads(CM, noting().1).expect("free");
    let _other = world.b.handle_mads(CM, note).expect("free");
    let mut sent = 0;
    // The wire takes some thousand and then no more: the queue fills, then the list behind it.
    let refused = loop {
        match agent.sender().send(&to(2), Qpn::GSI, &mad(CM, sent)) {
            Ok(()) => sent += 1,
            Err(error) => break error,
        }
        assert!(sent < 100_000, "never full");
    };
    assert!(matches!(refused.reason(), Reason::Exhausted), "{refused}");
    let stats = world.a.puda_stats(PudaKind::Ilq);
    assert!(
        stats.sent_pkt_q > 0 && stats.buf_alloc_fail == 1,
        "{stats:?}"
    );
    assert_eq!(stats.sending, 512);
    world.run();
    let stats = world.a.puda_stats(PudaKind::Ilq);
    assert_eq!(stats.pkt_sent, u64::from(sent), "{stats:?}");
    let heard = numbers(&heard);
    assert!(heard.is_sorted(), "in order");
    let came = heard.len() as u64 + world.b.counters().no_recv_wqe;
    assert_eq!(came, u64::from(sent), "all of them left");
    check_buffers(&world.a);
    check_buffers(&world.b);
    agent
        .sender()
        .send(&to(2), Qpn::GSI, &mad(CM, 0))
        .expect("room again");
}

#[test]
fn a_program_that_makes_the_gsi_queue_pair_has_it_for_itself() {
    // proves: puda-8
    let mut world = World::new();
    let (heard, note) = noting();
    let agent = world.a.handle_mads(CM, noting().1).expect("free");
    let _other = world.b.handle_mads(CM, note).expect("free");
    let (pd_a, cq_a) = (world.a.alloc_pd().expect("a domain"), world.a.create_cq(16));
    let cq_a = cq_a.build().expect("a queue");
    let own_key = Qkey(0x11);
    let ud = pd_a.create_qp(QpType::Ud).send_cq(&cq_a).recv_cq(&cq_a);
    let ud = ud
        .build()
        .expect("made")
        .activate_ud(own_key)
        .expect("ready");
    let ah = pd_a.create_ah(to(2)).expect("a handle");
    let send = |n| agent.sender().send(&to(2), Qpn::GSI, &mad(CM, n));
    send(0).expect("room");
    world.run();
    let pd = world.b.alloc_pd().expect("a domain");
    let cq = world.b.create_cq(16).build().expect("a queue");
    let mr = pd
        .register(vec![0; 512], Access::LOCAL_WRITE)
        .expect("memory");
    let gsi = pd.create_qp(QpType::Gsi).send_cq(&cq).recv_cq(&cq);
    let qp = gsi.clone().build().expect("the driver's queue steps aside");
    assert_eq!(qp.qp_num(), Qpn::GSI);
    assert!(gsi.build().is_err(), "there is one");
    assert_eq!(world.b.puda_stats(PudaKind::Ilq).total, 0);
    let refused = _other.sender().send(&to(1), Qpn::GSI, &mad(CM, 1));
    assert!(matches!(
        refused.expect_err("not ours").reason(),
        Reason::Busy
    ));
    let mut batch = qp.post_recv();
    batch.recv(WrId(1)).local(mr.sge(..));
    batch.ring().expect("room");
    let qp = qp.activate_ud(own_key).expect("ready");
    let mut batch = ud.post_send();
    let bytes = mad(CM, 1);
    batch
        .send(WrId(2))
        .inline(&bytes[..60])
        .to(&ah, Qpn::GSI, own_key);
    batch.ring().expect("room");
    world.run();
    let wc = cq.poll().next().expect("it came").to_completion();
    assert_eq!(wc.byte_len(), 40 + 60);
    assert_eq!(mr.to_vec(40, 60).expect("in range"), bytes[..60]);
    assert_eq!(numbers(&heard), [0], "handlers hear nothing meanwhile");
    qp.destroy().expect("not in use");
    send(2).expect("room");
    world.run();
    assert_eq!(numbers(&heard), [0, 2]);
    check_buffers(&world.b);
}

#[test]
fn a_flood_of_datagrams_costs_no_memory_and_does_not_stop_data() {
    // proves: puda-11
    let mut world = World::new();
    let (heard, note) = noting();
    let _agent = world.b.handle_mads(CM, note).expect("free");
    let total = world.b.puda_stats(PudaKind::Ilq).total;
    let side = |ctx: &Context| {
        let pd = ctx.alloc_pd().expect("a domain");
        let cq = ctx.create_cq(64).build().expect("a queue");
        let all = Access::LOCAL_WRITE | Access::REMOTE;
        let mr = pd.register(vec![7; 4096], all).expect("memory");
        (pd, cq, mr)
    };
    let ((pd_a, cq_a, mr_a), (pd_b, cq_b, mr_b)) = (side(&world.a), side(&world.b));
    let qp = pd_a.create_qp(QpType::Rc).send_cq(&cq_a).recv_cq(&cq_a);
    let peer = pd_b.create_qp(QpType::Rc).send_cq(&cq_b).recv_cq(&cq_b);
    let (qp, peer) = (qp.build().expect("made"), peer.build().expect("made"));
    let (ours, theirs) = (qp.endpoint(), peer.endpoint());
    let qp = qp.connect(&theirs).expect("connected");
    let _peer = peer.connect(&ours).expect("connected");
    let mut sent = 0u32;
    for round in 0..40 {
        // Some hundred more than there are receives, all at once.
        for _ in 0..400 {
            world.deliver_to_b(sent, &mad(CM, sent));
            sent += 1;
        }
        let mut batch = qp.post_send();
        let write = batch.write(WrId(round)).local(mr_a.sge(..));
        write.remote(mr_b.addr(), mr_b.rkey()).signaled();
        batch.ring().expect("room");
        world.run();
        let wc = cq_a.poll().next().expect("data goes on").to_completion();
        assert!(wc.is_ok(), "{wc:?}");
        let stats = world.b.puda_stats(PudaKind::Ilq);
        assert_eq!(stats.total, total, "not one buffer more");
    }
    let (dropped, heard) = (world.b.counters().no_recv_wqe, numbers(&heard).len() as u64);
    assert_eq!(heard + dropped, u64::from(sent));
    assert!(heard > 0 && dropped > 0, "{heard} heard, {dropped} dropped");
    check_buffers(&world.b);
}

#[test]
fn what_is_no_management_datagram_reaches_nobody() {
    // proves: puda-7
    let mut world = World::new();
    let (heard, note) = noting();
    let _agent = world.b.handle_mads(CM, note).expect("free");
    for len in [0, 1, 255, 257, 900, 1024] {
        world.deliver_to_b(len, &vec![7; len as usize]);
        world.run();
    }
    let stats = world.b.puda_stats(PudaKind::Ilq);
    assert_eq!((stats.pkt_rcvd, stats.rcvd_pkt_err), (5, 5), "{stats:?}");
    assert_eq!(world.b.counters().ud_dropped, 1, "longer than a buffer");
    assert_eq!(numbers(&heard), []);
    check_buffers(&world.b);
}

#[test]
fn strays_can_be_looked_at() {
    // proves: puda-9
    let network = FabricConfig {
        corrupt: 1.0,
        seed: 3,
        ..FabricConfig::default()
    };
    let mut world = World::with(network, IeqMode::Capture);
    let agent = world.a.handle_mads(CM, noting().1).expect("free");
    for n in 0..20 {
        agent
            .sender()
            .send(&to(2), Qpn::GSI, &mad(CM, n))
            .expect("room");
    }
    world.run();
    let seen = world.b.exceptions();
    let stats = world.b.puda_stats(PudaKind::Ieq);
    assert_eq!((seen.len() as u64, stats.held), (stats.taps, 0));
    assert_eq!(stats.taps, world.b.counters().ieq_tapped);
    assert!(seen.len() >= 15, "{seen:?}");
    assert!(seen.iter().all(|one| one.bytes.len() == 64));
    check_exceptions(&world.b);
}

/// Storms over the same bad network in every mode: everything completes, every byte is right, and
/// every exception is in one place at the end.
#[test]
fn programs_see_the_same_in_every_mode() {
    // proves: ieq-12, ieq-15, ieq-16, puda-1, puda-12
    let seed = std::env::var("SRDMA_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok());
    for seed in seed.map_or_else(|| vec![1, 2], |seed| vec![seed]) {
        for mode in [IeqMode::Off, IeqMode::Reorder, IeqMode::Capture] {
            let network = FabricConfig {
                loss: 0.03,
                duplicate: 0.02,
                reorder: 0.05,
                corrupt: 0.01,
                seed,
                ..FabricConfig::default()
            };
            let config = StormConfig {
                operations: 8_000,
                qps: 4,
                network,
                v6: seed % 2 == 0,
                dialects: [srdma_verbs::Dialect::E810; 2],
                ieq: [mode; 2],
            };
            println!("seed {seed}, {mode:?}");
            let report = run(&config).expect("verbs calls succeed");
            println!("{report:?}");
            assert_eq!(report.operations, 8_000);
            assert!(report.ahead > 0, "nothing came ahead of its turn");
            assert_eq!(report.captured > 0, mode == IeqMode::Capture);
        }
    }
}
