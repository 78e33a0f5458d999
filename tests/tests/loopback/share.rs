//! Several processes on one address: traffic between them, deaths, and strangers.
//!
//! ```text
//! one address   parent ── child A (first, so it has the door) ── kill -9
//!                      ├─ child B
//!                      └─ child C, …
//! ```
//!
//! What passes through the door comes from other hosts; that is in `hosts`.

use crate::common::*;
use crate::kill::{Line, Link, link, traffic};
use crate::peer::{self, Introduction, Peer, introduce};
use srdma_net::share;
use srdma_verbs::{Ah, DeviceConfig, Mr, Path, PreparedQp, Qkey, QpType, WcOpcode, WrId};
use std::collections::HashSet;
use std::net::IpAddr;

const KEY: Qkey = Qkey(7);
/// Nobody, on every Linux.
const NOBODY: u32 = 65_534;

fn start(side: &Side, memory: &Mr, at: IpAddr, sockets: Sockets) -> Link {
    link(side, memory, Peer::start("serve", at, sockets, 2), 10)
}

/// The blocks that are taken on `addr`, and by how many devices.
fn taken(addr: IpAddr) -> (HashSet<u16>, usize) {
    let taken = share::taken(addr).unwrap();
    let ports: HashSet<u16> = taken.iter().map(|(_, port)| *port).collect();
    (
        taken.into_iter().map(|(block, _)| block).collect(),
        ports.len(),
    )
}

#[test]
fn three_processes_talk_on_one_address() {
    for sockets in Sockets::all() {
        let here = address();
        let side = Side::new(sockets.on(here));
        let memory = side.pattern(peer::MEMORY, 1);
        let (mut a, mut b) = (
            start(&side, &memory, here, sockets),
            start(&side, &memory, here, sockets),
        );
        let mut elsewhere = start(&side, &memory, address(), sockets);
        traffic(&mut [&mut a, &mut b, &mut elsewhere], &memory, 200);
        for link in [&mut a, &mut b, &mut elsewhere] {
            link.qps.iter_mut().for_each(Line::drain);
        }
        assert_eq!(taken(here).1, 3, "{sockets:?}");
        // What they sent came directly: nothing was passed on.
        for name in ["door_passed_on", "door_taken", "door_refused"] {
            assert_eq!(side.link(name), 0, "{name} {sockets:?}");
        }
    }
}

#[test]
fn whoever_dies_the_others_go_on() {
    for sockets in [
        Sockets::DEFAULT,
        Sockets {
            gro: false,
            gso: false,
            small: true,
        },
    ] {
        let here = address();
        // The first process has the door, and is the first to die; the parent comes second.
        let first = Peer::start("serve", here, sockets, 2);
        let side = Side::new(sockets.on(here));
        let memory = side.pattern(peer::MEMORY, 1);
        let mut doomed = link(&side, &memory, first, 10);
        let (mut b, mut c) = (
            start(&side, &memory, here, sockets),
            start(&side, &memory, here, sockets),
        );
        for _ in 0..4 {
            traffic(&mut [&mut doomed, &mut b, &mut c], &memory, 100);
            doomed.peer.kill();
            for line in &mut doomed.qps {
                line.mourn(10);
            }
            assert_eq!(taken(here).1, 3, "blocks go with their process");
            traffic(&mut [&mut b, &mut c], &memory, 100);
            // A newcomer is served; then the one that has been here longest dies.
            let new = start(&side, &memory, here, sockets);
            (doomed, b, c) = (b, c, new);
        }
        for link in [&mut doomed, &mut b, &mut c] {
            link.qps.iter_mut().for_each(Line::drain);
        }
    }
}

/// A child that writes to us once and ends, or is killed before.
fn visit(side: &Side, memory: &Mr, here: IpAddr, kill: bool) -> u32 {
    let mut guest = Peer::start("brief", here, Sockets::DEFAULT, 1);
    let qpn = guest.intro.endpoints[0].qpn().value();
    if kill {
        guest.kill();
        return qpn;
    }
    let prepared: Vec<PreparedQp> = vec![side.qp(QpType::Rc).build().unwrap()];
    let ours: Introduction = introduce(&prepared, memory);
    let qps = peer::connect_all(prepared, &guest.intro);
    guest.meet(&ours);
    drop(qps);
    qpn
}

#[test]
fn two_hundred_come_and_go() {
    let here = address();
    let side = Side::new(Sockets::DEFAULT.on(here));
    let memory = side.mr(peer::MEMORY);
    let mut blocks = HashSet::new();
    for guest in 0..200 {
        let qpn = visit(&side, &memory, here, guest % 3 == 0);
        assert!(
            blocks.insert(qpn >> 12),
            "guest {guest} got a block of another"
        );
    }
    assert_eq!(memory.to_vec(0, 100_000).unwrap(), pattern(100_000, 5));
    until("all blocks but ours are free", || taken(here).1 == 1);
    let path = share::registry_path(here).unwrap().unwrap();
    assert!(path.exists());
    drop((memory, side));
    assert!(!path.exists(), "the last one takes the registry away");
}

#[test]
fn thirty_two_at_once() {
    let here = address();
    let side = Side::new(Sockets::DEFAULT.on(here));
    let memory = side.mr(peer::MEMORY);
    std::thread::scope(|scope| {
        for guest in 0..32 {
            let (side, memory) = (&side, &memory);
            scope.spawn(move || visit(side, memory, here, guest % 4 == 0));
        }
    });
    until("all blocks but ours are free", || taken(here).1 == 1);
}

#[test]
fn another_user_is_told_whose_it_is() {
    let here = address();
    let side = Side::new(Sockets::DEFAULT.on(here));
    let path = share::registry_path(here).unwrap().unwrap();
    if !path.to_str().unwrap().contains("srdma-0/") {
        println!("skip: not root, so nobody else can be played");
        return;
    }
    let said = Peer::confess("intrude", here, NOBODY);
    for word in ["user root", "cannot share", "4791", &here.to_string()] {
        assert!(said.contains(word), "{word:?} is not in {said:?}");
    }
    drop(side);
}

#[test]
fn a_damaged_registry_is_refused_or_made_anew() {
    let here = address();
    let side = Side::new(Sockets::DEFAULT.on(here));
    let memory = side.pattern(peer::MEMORY, 1);
    let mut living = start(&side, &memory, here, Sockets::DEFAULT);
    let path = share::registry_path(here).unwrap().unwrap();
    for garbage in [&b""[..], b"\x01", &[0xa5; 100_000]] {
        std::fs::write(&path, garbage).unwrap();
        let error = DeviceConfig::new()
            .addr(here)
            .addr(address())
            .open()
            .unwrap_err();
        let text = error.to_string();
        assert!(text.contains("damaged") && text.contains("fuser"), "{text}");
        // Who is connected goes on.
        traffic(&mut [&mut living], &memory, 50);
    }
    living.qps.iter_mut().for_each(Line::drain);
    drop((living, memory, side));
    std::fs::write(&path, [0xa5; 100_000]).unwrap();
    let side = Side::new(Sockets::DEFAULT.on(here));
    let memory = side.pattern(peer::MEMORY, 1);
    let mut again = start(&side, &memory, here, Sockets::DEFAULT);
    traffic(&mut [&mut again], &memory, 50);
    again.qps.iter_mut().for_each(Line::drain);
}

/// Two devices of one process on one address are like two processes.
#[test]
fn datagrams_find_their_process() {
    let here = address();
    let sides = [
        Side::new(Sockets::DEFAULT.on(here)),
        Side::new(Sockets::DEFAULT.on(here).addr(address())),
        Side::new(Sockets::DEFAULT.on(here).addr(address())),
    ];
    let memories: Vec<Mr> = sides.iter().map(|side| side.pattern(1 << 16, 3)).collect();
    let qps: Vec<_> = sides
        .iter()
        .map(|side| {
            let prepared = side.qp(QpType::Ud).build().unwrap();
            prepared.activate_ud(KEY).unwrap()
        })
        .collect();
    let gid = sides[0].ctx.query_gid(1, 0).unwrap();
    let ahs: Vec<Ah> = sides
        .iter()
        .map(|side| side.pd.create_ah(Path::new(gid, 0)).unwrap())
        .collect();
    // Everybody to everybody, in turn, so that the destination always changes.
    for round in 0..50u64 {
        for (from, to) in [(0, 1), (1, 2), (2, 0), (0, 2), (1, 1)] {
            let mut batch = qps[to].post_recv();
            batch.recv(WrId(round)).local(memories[to].sge(..2000));
            batch.ring().unwrap();
            let mut batch = qps[from].post_send();
            batch
                .send(WrId(round))
                .local(memories[from].sge(..1000))
                .to(&ahs[from], qps[to].qp_num(), KEY)
                .signaled();
            batch.ring().unwrap();
            let mut wcs = vec![done(&sides[from].cq), done(&sides[to].cq)];
            wcs.retain(|wc| wc.opcode() == WcOpcode::Recv);
            assert_eq!(wcs[0].byte_len(), 1040);
        }
    }
    assert!(sides.iter().all(|side| side.link("door_passed_on") == 0));
}
