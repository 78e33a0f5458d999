//! Every operation, with every combination of GSO, GRO and the size of socket buffers.
//!
//! Data is compared byte by byte. On a reliable connection no packet may be lost in a socket,
//! however small its buffer: what is in flight is bounded by what it holds.

use crate::common::*;
use crate::peer;
use srdma_tests::netns::{Namespace, NetnsError};
use srdma_verbs::{Path, Qkey, QpType, WcOpcode, WrId};
use std::net::IpAddr;
use std::sync::atomic::Ordering;
use std::time::Duration;

const SIZES: [usize; 11] = [0, 1, 3, 64, 513, 1024, 4096, 4097, 65_536, 100_003, 1 << 20];
const MIB: usize = 1 << 20;

fn fresh() -> (IpAddr, IpAddr) {
    (address(), address())
}

#[test]
fn reliable_connections() {
    for sockets in Sockets::all() {
        rc(sockets, fresh());
    }
}

#[test]
fn unreliable_connections() {
    for sockets in Sockets::all() {
        uc(sockets, fresh());
    }
}

#[test]
fn datagrams() {
    for sockets in Sockets::all() {
        ud(sockets, fresh());
    }
}

#[test]
fn events_wake_a_sleeper() {
    for sockets in Sockets::all() {
        events(sockets, fresh());
    }
}

/// Two addresses of IPv6 are there only in a namespace of our own, so these run in a child.
#[test]
fn ipv6_in_a_namespace() {
    if peer::role() == Some("ipv6") {
        let addrs = ("fd00::1".parse().unwrap(), "fd00::2".parse().unwrap());
        for sockets in Sockets::all() {
            rc(sockets, addrs);
            uc(sockets, addrs);
            ud(sockets, addrs);
            events(sockets, addrs);
        }
        return;
    }
    let namespace = match Namespace::new("v6") {
        Ok(namespace) => namespace,
        Err(NetnsError::Forbidden(why)) => {
            println!("skip: network namespaces are forbidden here ({why}); no IPv6 pair tested");
            return;
        }
        Err(error) => panic!("{error}"),
    };
    for addr in ["fd00::1/128", "fd00::2/128"] {
        let made = namespace.ip(&["-6", "addr", "add", addr, "dev", "lo", "nodad"]);
        made.unwrap();
    }
    let mut command = namespace.command(&std::env::current_exe().unwrap());
    let status = command
        .args(["--exact", "ops::ipv6_in_a_namespace", "--nocapture"])
        .env(peer::ROLE, "ipv6")
        .status()
        .unwrap();
    assert!(status.success(), "{status}");
}

/// Both ends on the one loopback address of IPv6, which is one device.
#[test]
fn a_device_talks_to_itself_over_ipv6() {
    let here: IpAddr = "::1".parse().unwrap();
    let side = match Sockets::DEFAULT.on(here).open() {
        Ok(_) => Side::new(Sockets::DEFAULT.on(here)),
        Err(error) => {
            println!("skip: ::1 cannot be used ({error}); no IPv6 loopback tested");
            return;
        }
    };
    let (qa, _qb) = connect(&side.qp(QpType::Rc), &side.qp(QpType::Rc));
    let (source, target) = (side.pattern(MIB, 3), side.mr(MIB));
    let mut batch = qa.post_send();
    batch
        .write(WrId(1))
        .local(source.sge(..))
        .remote(target.addr(), target.rkey())
        .signaled();
    batch.ring().unwrap();
    assert_eq!(done(&side.cq).wr_id(), WrId(1));
    assert!(target.to_vec(0, MIB).unwrap() == pattern(MIB, 3));
    assert_eq!(side.dropped(), 0);
}

fn rc(sockets: Sockets, addrs: (IpAddr, IpAddr)) {
    let p = pair(QpType::Rc, sockets, addrs);
    for (n, size) in SIZES.into_iter().enumerate() {
        sends(&p, size, n as u8, sockets);
        writes(&p, size, n as u8, sockets);
        reads(&p, size, n as u8, sockets);
    }
    atomics(&p);
    both_ways(&p, sockets);
    assert_quiet(&p.a.cq);
    assert_quiet(&p.b.cq);
    let counters = [p.a.ctx.counters(), p.b.ctx.counters()];
    let lost = [p.a.dropped(), p.b.dropped()];
    assert_eq!(lost, [0, 0], "lost in sockets: {sockets:?} {counters:?}");
}

fn sends(p: &Pair, size: usize, seed: u8, sockets: Sockets) {
    let source = p.a.pattern(size, seed);
    let targets = [p.b.mr(size + 1), p.b.mr(size + 1)];
    let mut batch = p.qb.post_recv();
    for (id, target) in (1..).zip(&targets) {
        batch.recv(WrId(id)).local(target.sge(..));
    }
    batch.ring().unwrap();
    let mut batch = p.qa.post_send();
    let cut = size / 3;
    batch
        .send(WrId(10))
        .local(source.sge(..cut))
        .local(source.sge(cut..))
        .signaled();
    batch
        .send_imm(WrId(11), 0xfeed_0000 | u32::from(seed))
        .local(source.sge(..))
        .solicited()
        .signaled();
    batch.ring().unwrap();
    for (id, target) in (1..).zip(&targets) {
        let wc = done(&p.b.cq);
        assert_eq!((wc.wr_id().0, wc.opcode()), (id, WcOpcode::Recv));
        assert_eq!(wc.byte_len() as usize, size);
        assert_eq!(wc.imm().is_some(), id == 2);
        let got = target.to_vec(0, size + 1).unwrap();
        assert!(got[..size] == pattern(size, seed)[..], "{size} {sockets:?}");
        assert_eq!(got[size], 0, "one byte too many");
    }
    assert_eq!(done(&p.a.cq).wr_id(), WrId(10));
    assert_eq!(done(&p.a.cq).wr_id(), WrId(11));
}

fn writes(p: &Pair, size: usize, seed: u8, sockets: Sockets) {
    let source = p.a.pattern(size, !seed);
    let target = p.b.mr(2 * size + 8);
    let mut batch = p.qb.post_recv();
    batch.recv(WrId(7));
    batch.ring().unwrap();
    let mut batch = p.qa.post_send();
    batch
        .write(WrId(20))
        .local(source.sge(..))
        .remote(target.addr(), target.rkey())
        .signaled();
    batch
        .write_imm(WrId(21), 0xabcd)
        .local(source.sge(..))
        .remote(target.addr() + size as u64, target.rkey())
        .signaled();
    batch.ring().unwrap();
    let wc = done(&p.b.cq);
    assert_eq!((wc.wr_id().0, wc.imm()), (7, Some(0xabcd)));
    assert_eq!(wc.opcode(), WcOpcode::RecvRdmaWithImm);
    let mut expected = pattern(size, !seed).repeat(2);
    expected.extend([0; 8]);
    let got = target.to_vec(0, 2 * size + 8).unwrap();
    assert!(got == expected, "{size} {sockets:?}");
    assert_eq!(done(&p.a.cq).wr_id(), WrId(20));
    assert_eq!(done(&p.a.cq).wr_id(), WrId(21));
}

fn reads(p: &Pair, size: usize, seed: u8, sockets: Sockets) {
    let source = p.b.pattern(size, seed ^ 0x55);
    let target = p.a.mr(size + 1);
    let mut batch = p.qa.post_send();
    batch
        .read(WrId(30))
        .local(target.sge(..size))
        .remote(source.addr(), source.rkey())
        .signaled();
    batch.ring().unwrap();
    let wc = done(&p.a.cq);
    assert_eq!((wc.wr_id().0, wc.opcode()), (30, WcOpcode::RdmaRead));
    let got = target.to_vec(0, size + 1).unwrap();
    let same = got[..size] == pattern(size, seed ^ 0x55)[..];
    assert!(same && got[size] == 0, "{size} {sockets:?}");
}

fn atomics(p: &Pair) {
    let (word, old) = (p.b.mr(16), p.a.mr(16));
    word.store(0, 40, Ordering::Release).unwrap();
    let mut batch = p.qa.post_send();
    batch
        .fetch_add(WrId(1), 2)
        .local(old.sge(..8))
        .remote(word.addr(), word.rkey())
        .signaled();
    batch
        .compare_swap(WrId(2), 42, 1000)
        .local(old.sge(8..))
        .remote(word.addr(), word.rkey())
        .signaled();
    batch
        .atomic_write(WrId(3), *b"8 bytes.")
        .remote(word.addr() + 8, word.rkey())
        .signaled();
    batch.ring().unwrap();
    for id in 1..=3 {
        assert_eq!(done(&p.a.cq).wr_id().0, id);
    }
    assert_eq!(old.load(0, Ordering::Acquire).unwrap(), 40);
    assert_eq!(old.load(8, Ordering::Acquire).unwrap(), 42);
    assert_eq!(word.load(0, Ordering::Acquire).unwrap(), 1000);
    assert_eq!(word.to_vec(8, 8).unwrap(), b"8 bytes.");
}

/// Everything at once: WRITEs, SENDs and READs of all sizes, as many as fit, in both directions.
fn both_ways(p: &Pair, sockets: Sockets) {
    const EACH: usize = 16;
    let size = 200_000;
    let ends = [(&p.a, &p.qa, &p.b), (&p.b, &p.qb, &p.a)];
    let source = ends.map(|(from, _, _)| from.pattern(size, 77));
    let received = ends.map(|(_, _, to)| to.mr(size * EACH));
    let written = ends.map(|(_, _, to)| to.mr(size * EACH));
    let read = ends.map(|(from, _, _)| from.mr(size * EACH));
    let cut = |at: usize| at * size..(at + 1) * size;
    for (qp, target) in [(&p.qb, &received[0]), (&p.qa, &received[1])] {
        let mut batch = qp.post_recv();
        for at in 0..EACH {
            batch.recv(WrId(5000)).local(target.sge(cut(at)));
        }
        batch.ring().unwrap();
    }
    for (end, (_, qp, _)) in ends.into_iter().enumerate() {
        let mut batch = qp.post_send();
        for at in 0..EACH {
            let (from, id) = (&source[end], WrId(at as u64));
            batch.send(id).local(from.sge(..)).signaled();
            batch
                .write(id)
                .local(from.sge(..))
                .remote(
                    written[end].addr() + (at * size) as u64,
                    written[end].rkey(),
                )
                .signaled();
            let there = &source[1 - end];
            batch
                .read(id)
                .local(read[end].sge(cut(at)))
                .remote(there.addr(), there.rkey())
                .signaled();
        }
        batch.ring().unwrap();
    }
    for (side, _, _) in ends {
        for _ in 0..4 * EACH {
            done(&side.cq);
        }
    }
    let expected = pattern(size, 77);
    for mr in received.iter().chain(&written).chain(&read) {
        for at in 0..EACH {
            assert!(
                mr.to_vec(at * size, size).unwrap() == expected,
                "{sockets:?}"
            );
        }
    }
}

fn uc(sockets: Sockets, addrs: (IpAddr, IpAddr)) {
    let p = pair(QpType::Uc, sockets, addrs);
    // Nobody acknowledges, so nobody holds back: what is too long for a socket may be lost in it.
    let most = if sockets.small { 1 << 14 } else { MIB };
    let sizes = SIZES.into_iter().filter(|size| *size <= most);
    for (n, size) in sizes.enumerate() {
        sends(&p, size, n as u8, sockets);
        writes(&p, size, n as u8, sockets);
    }
    assert_quiet(&p.a.cq);
    assert_quiet(&p.b.cq);
    assert_eq!([p.a.dropped(), p.b.dropped()], [0, 0], "{sockets:?}");
}

fn ud(sockets: Sockets, addrs: (IpAddr, IpAddr)) {
    const KEY: Qkey = Qkey(0x11_2233);
    const ROUND: u64 = 16;
    let (a, b) = (
        Side::new(sockets.on(addrs.0)),
        Side::new(sockets.on(addrs.1)),
    );
    let qa = a.qp(QpType::Ud).build().unwrap().activate_ud(KEY).unwrap();
    let qb = b.qp(QpType::Ud).build().unwrap().activate_ud(KEY).unwrap();
    let ah =
        a.pd.create_ah(Path::new(b.ctx.query_gid(1, 0).unwrap(), 0))
            .unwrap();
    let source = a.pattern(4096, 1);
    for size in [0, 1, 63, 64, 1000, 4096] {
        let target = b.mr(ROUND as usize * 4136);
        let place = |id: u64| id as usize * 4136;
        let mut batch = qb.post_recv();
        for id in 0..ROUND {
            batch
                .recv(WrId(id))
                .local(target.sge(place(id)..place(id) + 40 + size));
        }
        batch.ring().unwrap();
        let mut batch = qa.post_send();
        for id in 0..ROUND {
            batch
                .send(WrId(id))
                .local(source.sge(..size))
                .to(&ah, qb.qp_num(), KEY)
                .signaled();
        }
        batch.ring().unwrap();
        for id in 0..ROUND {
            assert_eq!(done(&a.cq).wr_id().0, id);
            let wc = done(&b.cq);
            assert_eq!((wc.wr_id().0, wc.byte_len() as usize), (id, 40 + size));
            let got = target.to_vec(place(id) + 40, size).unwrap();
            assert!(got == pattern(size, 1), "{size} {sockets:?}");
        }
    }
    assert_eq!(b.dropped(), 0, "{sockets:?}");
}

/// A ping-pong between two threads that sleep on their channels.
fn events(sockets: Sockets, addrs: (IpAddr, IpAddr)) {
    const TRIPS: u64 = 100;
    let (a, b) = (
        Side::new(sockets.on(addrs.0)),
        Side::new(sockets.on(addrs.1)),
    );
    let channels = [&a, &b].map(|side| side.ctx.create_comp_channel().unwrap());
    let cq = |side: &Side, channel| side.ctx.create_cq(64).on_channel(channel).build().unwrap();
    let cqs = [cq(&a, &channels[0]), cq(&b, &channels[1])];
    let qa = a.pd.create_qp(QpType::Rc).send_cq(&cqs[0]).recv_cq(&cqs[0]);
    let qb = b.pd.create_qp(QpType::Rc).send_cq(&cqs[1]).recv_cq(&cqs[1]);
    let (qa, qb) = connect(&qa, &qb);
    let memory = [a.mr(5000), b.mr(5000)];
    std::thread::scope(|scope| {
        for (end, qp) in [&qa, &qb].into_iter().enumerate() {
            let (cq, channel, mr) = (&cqs[end], &channels[end], &memory[end]);
            let post = move |trip: u64| {
                let mut batch = qp.post_recv();
                batch.recv(WrId(trip)).local(mr.sge(..));
                batch.ring().unwrap();
            };
            post(0);
            scope.spawn(move || {
                let mut ours = end == 0;
                for trip in 0..TRIPS * 2 {
                    if ours {
                        let mut batch = qp.post_send();
                        batch.send(WrId(trip)).local(mr.sge(..trip as usize * 20));
                        batch.ring().unwrap();
                    } else {
                        let wc = sleep_for(cq, channel);
                        assert_eq!(wc.byte_len() as u64, trip * 20);
                        post(trip);
                    }
                    ours = !ours;
                }
            });
        }
    });
}

/// The next completion: asleep until the event.
fn sleep_for(cq: &srdma_verbs::Cq, channel: &srdma_verbs::CompChannel) -> srdma_verbs::Completion {
    loop {
        cq.arm(false).unwrap();
        if let Some(wc) = cq.poll().next() {
            let wc = wc.to_completion();
            assert!(wc.is_ok(), "{wc:?}");
            return wc;
        }
        let event = channel.wait_for(Duration::from_secs(60));
        assert!(event.is_some(), "no event within a minute");
    }
}
