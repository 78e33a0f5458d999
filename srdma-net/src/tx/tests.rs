//! Sending through the real kernel.

use super::*;
use crate::offload::GSO_PACKETS;
use crate::rx::RxRing;
use crate::socket::SocketConfig;
use crate::testing::{Script, address, config, door, drain, open, packets};
use std::net::IpAddr;

/// One run of five packets, the last one short, sent with and without each offload.
fn exchange(gso: bool, gro: bool) -> (Vec<usize>, Vec<usize>, TxCounters) {
    let (a, b) = (open(&config(gso, gro)), open(&config(gso, gro)));
    let mut script = Script::new();
    script.run(a.local(), b.local(), 10, &[1040, 1040, 1040, 1040, 16]);
    script.run(a.local(), b.local(), 20, &[600]);
    let sockets = [a];
    let mut sender = Sender::new(gso);
    let sent = script.lend(|batch| sender.send(&sockets, batch));
    assert_eq!(
        sent,
        Sent {
            runs: 2,
            blocked: false
        }
    );
    let got = drain(&mut RxRing::new(16), &b);
    let bytes = packets(&got);
    let firsts: Vec<_> = bytes.iter().map(|packet| packet[0]).collect();
    assert_eq!(firsts, [10, 11, 12, 13, 14, 20]);
    assert!(
        bytes
            .iter()
            .all(|packet| packet.iter().all(|&byte| byte == packet[0]))
    );
    let lens = bytes.iter().map(Vec::len).collect();
    let buffers = got.iter().map(|(_, bytes)| bytes.len()).collect();
    (buffers, lens, *sender.counters())
}

#[test]
fn every_mix_of_offloads_delivers_the_same_packets() {
    // proves: roce-159
    let want = [1040, 1040, 1040, 1040, 16, 600];
    for (gso, gro) in [(true, true), (true, false), (false, true), (false, false)] {
        let (buffers, lens, counters) = exchange(gso, gro);
        assert_eq!(lens, want, "gso {gso} gro {gro}");
        assert_eq!(
            (counters.runs, counters.packets, counters.bytes),
            (2, 6, 4776)
        );
        assert_eq!(counters.calls, 1, "one system call for a batch");
        if gso && gro {
            assert_eq!(buffers, [4176, 600], "a run arrives as one buffer");
        } else {
            assert_eq!(buffers, want);
        }
    }
}

#[test]
fn a_target_that_refuses_gso_gets_packets_one_by_one() {
    let (a, b) = (open(&config(true, true)), open(&config(true, true)));
    let mut script = Script::new();
    script.run(a.local(), b.local(), 1, &[64]);
    let too_many = vec![32; usize::from(GSO_PACKETS) + 1];
    script.run(a.local(), b.local(), 2, &too_many);
    script.run(a.local(), b.local(), 3, &[64, 64]);
    let sockets = [a];
    let mut sender = Sender::new(true);
    let sent = script.lend(|batch| sender.send(&sockets, batch));
    assert_eq!(
        sent,
        Sent {
            runs: 3,
            blocked: false
        }
    );
    assert_eq!(sender.offload().lowered(), [b.local()]);
    assert_eq!(sender.counters().gso_lowered, 1);
    let got = drain(&mut RxRing::new(16), &b);
    let lens: Vec<_> = got.iter().map(|(_, bytes)| bytes.len()).collect();
    assert_eq!(lens.len(), 1 + too_many.len() + 2);
    assert!(got.iter().all(|(meta, bytes)| meta.stride == bytes.len()));
    assert_eq!(sender.counters().packets, 1 + too_many.len() as u64 + 2);
}

#[test]
fn a_packet_that_is_too_long_is_lost_and_the_rest_goes_on() {
    // proves: roce-4 (nothing is sent in fragments)
    let (a, b) = (open(&config(true, true)), open(&config(true, true)));
    let mut script = Script::new();
    script.run(a.local(), b.local(), 1, &[64]);
    script.run(a.local(), b.local(), 2, &[65_508]);
    script.run(a.local(), b.local(), 3, &[64]);
    let sockets = [a];
    let mut sender = Sender::new(true);
    let sent = script.lend(|batch| sender.send(&sockets, batch));
    assert_eq!(
        sent,
        Sent {
            runs: 3,
            blocked: false
        }
    );
    assert_eq!(sender.counters().lost_too_long, 1);
    assert_eq!(sender.counters().calls, 3, "sent one; refused; sent one");
    let firsts: Vec<_> = drain(&mut RxRing::new(4), &b)
        .iter()
        .map(|(_, b)| b[0])
        .collect();
    assert_eq!(firsts, [1, 3]);
}

#[test]
fn each_run_leaves_from_the_socket_of_its_address() {
    let (a, b, c) = (
        open(&config(true, true)),
        open(&config(true, true)),
        address(),
    );
    let to = open(&config(true, true));
    let mut script = Script::new();
    script.run(a.local(), to.local(), 1, &[64]);
    script.run(b.local(), to.local(), 2, &[64]);
    script.run(c, to.local(), 3, &[64]);
    script.run(a.local(), to.local(), 4, &[64]);
    let sockets = [a, b];
    let mut sender = Sender::new(true);
    let sent = script.lend(|batch| sender.send(&sockets, batch));
    assert_eq!(
        sent,
        Sent {
            runs: 4,
            blocked: false
        }
    );
    assert_eq!(sender.counters().lost_no_socket, 1);
    let [a, b] = sockets;
    let got = drain(&mut RxRing::new(4), &to);
    let seen: Vec<_> = got
        .iter()
        .map(|(meta, bytes)| (meta.source.ip(), bytes[0]))
        .collect();
    assert_eq!(seen, [(a.local(), 1), (b.local(), 2), (a.local(), 4)]);
}

#[test]
fn large_batches_take_several_calls() {
    let (a, b) = (open(&config(true, true)), open(&config(true, true)));
    let mut script = Script::new();
    for k in 0..MESSAGES + 44 {
        script.run(a.local(), b.local(), u8::try_from(k & 0xff).unwrap(), &[8]);
    }
    let sockets = [a];
    let mut sender = Sender::new(true);
    let sent = script.lend(|batch| sender.send(&sockets, batch));
    assert_eq!((sent.runs, sender.counters().calls), (MESSAGES + 44, 2));
    let got = drain(&mut RxRing::new(16), &b);
    assert_eq!(got.len(), MESSAGES + 44);
}

/// Runs `inner` in a network namespace of its own, where a neighbour never answers.
#[test]
fn a_full_send_buffer_blocks_and_loses_nothing() {
    let set_up = "ip link set lo up && ip link add v0 type veth peer name v1 \
                  && ip addr add 10.99.0.1/24 dev v0 && ip link set v0 up && ip link set v1 up \
                  && exec \"$0\" --exact tx::tests::blocked_inner --ignored --nocapture";
    let Ok(output) = std::process::Command::new("unshare")
        .args(["--user", "--map-root-user", "--net", "sh", "-c", set_up])
        .arg(std::env::current_exe().unwrap())
        .output()
    else {
        return eprintln!("not checked: `unshare` is not installed");
    };
    let text = String::from_utf8_lossy(&output.stdout);
    if text.contains("running 1 test") {
        assert!(
            output.status.success(),
            "{text}{}",
            String::from_utf8_lossy(&output.stderr)
        );
    } else {
        eprintln!(
            "not checked: no namespaces: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

#[test]
#[ignore = "run by `a_full_send_buffer_blocks_and_loses_nothing`, in a namespace"]
fn blocked_inner() {
    let local: IpAddr = "10.99.0.1".parse().unwrap();
    let target: IpAddr = "10.99.0.2".parse().unwrap();
    let small = SocketConfig {
        tx_buffer: Some(16_384),
        ..SocketConfig::default()
    };
    let sockets = [RoceSocket::open(local, &small).unwrap()];
    let mut script = Script::new();
    for k in 0..100 {
        script.run(local, target, k, &[1000]);
    }
    let mut sender = Sender::new(true);
    let sent = script.lend(|batch| sender.send(&sockets, batch));
    assert!(sent.blocked && sent.runs > 0 && sent.runs < 100, "{sent:?}");
    assert_eq!(sender.counters().calls, 2, "a short send, then the reason");
    assert_eq!(sender.counters().blocked, 1);
}

/// Processor time of this thread in ns, whatever else the machine does.
fn on_cpu_ns() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    text.split(' ').next().unwrap().parse().unwrap()
}

/// Cost of the calls, one thread being both ends:
/// `cargo test --release -p srdma-net --lib cost -- --ignored --nocapture`.
#[test]
#[ignore = "a measurement"]
fn cost() {
    const ROUNDS: u32 = 20_000;
    let (a, b) = (open(&config(true, true)), open(&config(true, true)));
    let mut small = Script::new();
    small.run(a.local(), b.local(), 1, &[80]);
    let mut large = Script::new();
    large.run(a.local(), b.local(), 1, &[4112; 15]);
    let sockets = [a];
    let (mut sender, mut ring) = (Sender::new(true), RxRing::new(16));
    let time = |name: &str, each: &mut dyn FnMut()| {
        let start = on_cpu_ns();
        for _ in 0..ROUNDS {
            each();
        }
        let ns = (on_cpu_ns() - start) / f64::from(ROUNDS);
        println!("{name}: {ns:.0} ns");
    };
    let (c, d) = (address(), address());
    let plain = std::net::UdpSocket::bind((c, 0)).unwrap();
    let peer = std::net::UdpSocket::bind((d, 0)).unwrap();
    let (to, mut bytes) = (peer.local_addr().unwrap(), [0; 80]);
    time("bare sockets: send and receive 80 B", &mut || {
        plain.send_to(&bytes, to).unwrap();
        peer.recv_from(&mut bytes).unwrap();
    });
    peer.set_nonblocking(true).unwrap();
    time("bare sockets: receive nothing", &mut || {
        drop(peer.recv_from(&mut bytes).unwrap_err());
    });
    time("receive nothing", &mut || {
        assert_eq!(ring.receive(door(&b)), 0);
    });
    for (name, script) in [("80 B", &small), ("15 × 4112 B", &large)] {
        script.lend(|batch| {
            time(&format!("send and receive {name}"), &mut || {
                assert_eq!(sender.send(&sockets, batch).runs, 1);
                assert_eq!(ring.receive(door(&b)), 1);
            });
        });
    }
}

/// What nobody acknowledges waits for room in a socket of this machine, so nothing is lost; what is
/// acknowledged has a window of its own, and goes.
#[test]
fn unreliable_runs_wait_for_a_full_receiver() {
    let small = SocketConfig {
        rx_buffer: Some(212_992),
        ..config(true, true)
    };
    let (a, b) = (open(&config(true, true)), open(&small));
    let mut script = Script::new();
    let rounds = 200u8;
    for k in 0..rounds {
        let run = script.run(a.local(), b.local(), k, &[4096; 14]);
        run.target.set_port(b.tx_port());
        run.unreliable = true;
    }
    let sockets = [a];
    let mut sender = Sender::new(true);
    let mut rx = RxRing::new(16);
    let (mut left, mut got) = (0, 0);
    while left < script.runs.len() {
        let sent = script.lend(|batch| {
            let rest = TxBatch {
                runs: &batch.runs[left..],
                ..*batch
            };
            sender.send(&sockets, &rest)
        });
        left += sent.runs;
        if sent.blocked {
            got += packets(&drain(&mut rx, &b)).len();
        }
    }
    got += packets(&drain(&mut rx, &b)).len();
    if sender.counters().held == 0 {
        println!("skip: no sock_diag for UDP, so a full receiver cannot be seen");
        return;
    }
    assert_eq!(got, usize::from(rounds) * 14, "packets were lost");
    // Reliable runs do not ask.
    let held = sender.counters().held;
    script.runs.truncate(8);
    for run in &mut script.runs {
        run.unreliable = false;
    }
    let sent = script.lend(|batch| sender.send(&sockets, batch));
    assert_eq!((sent.runs, sent.blocked), (8, false));
    assert_eq!(sender.counters().held, held);
}
