//! A sender that cannot see the receiver, over real sockets.

use super::*;
use crate::rx::RxRing;
use crate::socket::{RoceSocket, SocketConfig};
use crate::testing::{Script, drain, open};
use crate::tx::Sender;
use srdma_core::time::Instant as EngineTime;

/// One side's desk, and how many packets came past it.
#[derive(Default)]
struct Side {
    desk: Desk,
    packets: usize,
}

impl Side {
    /// Takes what has come to `sockets`, and answers.
    fn pass(&mut self, sockets: &[RoceSocket], sender: Option<&mut Sender>) {
        for socket in sockets {
            for (meta, bytes) in drain(&mut RxRing::new(16), socket) {
                self.desk.sift(&meta, &bytes, |meta, bytes| {
                    self.packets += bytes.len().div_ceil(meta.stride);
                });
            }
        }
        let mut sender = sender;
        self.desk.serve(EngineTime(0), sockets, |from, reply| {
            if let Some(sender) = &mut sender {
                sender.hear(from, reply);
            }
        });
    }
}

fn ask_all(sender: &mut Sender, sockets: &[RoceSocket]) -> usize {
    let asked = sender.questions().map(|question| {
        let socket = sockets.iter().find(|at| at.local() == question.local);
        ask(socket.unwrap(), &question, Qpn::new(0x1000))
    });
    asked.filter(|asked| *asked).count()
}

const RUNS: usize = 60;
const PACKETS: usize = 15;

/// Much more than the socket of `to` holds.
fn flood(from: &RoceSocket, to: &RoceSocket) -> Script {
    let mut script = Script::new();
    for _ in 0..RUNS {
        let run = script.run(from.local(), to.local(), 0, &[4112; PACKETS]);
        run.unreliable = true;
    }
    script
}

fn small_socket() -> RoceSocket {
    open(&SocketConfig {
        rx_buffer: Some(212_992),
        ..SocketConfig::default()
    })
}

#[test]
fn a_receiver_of_our_kind_gets_everything_however_slow_it_is() {
    let (a, b) = ([open(&SocketConfig::default())], [small_socket()]);
    let mut script = flood(&a[0], &b[0]);
    let mut sender = Sender::new(true);
    let (mut ours, mut theirs) = (Side::default(), Side::default());
    let mut looks = 0;
    while !script.runs.is_empty() {
        if !sender.is_held() {
            let sent = script.lend(|batch| sender.send(&a, batch));
            script.runs.drain(..sent.runs);
        }
        ask_all(&mut sender, &a);
        theirs.pass(&b, None);
        ours.pass(&a, Some(&mut sender));
        looks += 1;
    }
    theirs.pass(&b, None);
    assert_eq!(theirs.packets, RUNS * PACKETS);
    assert!(looks > 10, "it was never full: {looks}");
    assert!(sender.counters().held > 10);
    assert_eq!(ours.packets, 0, "answers are no packets");
}

#[test]
fn who_does_not_answer_is_sent_everything_after_a_while() {
    let (a, b) = ([open(&SocketConfig::default())], [small_socket()]);
    let mut script = flood(&a[0], &b[0]);
    let mut sender = Sender::new(true);
    let start = Instant::now();
    let (mut asked, mut held) = (0, 0);
    while !script.runs.is_empty() {
        if sender.is_held() {
            held += 1;
        } else {
            let sent = script.lend(|batch| sender.send(&a, batch));
            script.runs.drain(..sent.runs);
        }
        asked += ask_all(&mut sender, &a);
    }
    assert!(held > 0);
    assert!(start.elapsed() >= Duration::from_millis(100));
    assert!((1..20).contains(&asked), "{asked} questions to a stranger");
}

#[test]
fn batches_shrink_to_what_goes_and_grow_again() {
    let (a, b) = ([open(&SocketConfig::default())], [small_socket()]);
    let script = flood(&a[0], &b[0]);
    let mut room = Room::new();
    assert_eq!(room.hint(), u32::MAX);
    let went = script.lend(|batch| room.admit(batch));
    assert!(went < RUNS);
    let hint = room.hint();
    assert!((LEAST..u32::MAX / 2).contains(&hint));
    let mut other = Script::new();
    other.run(a[0].local(), b[0].local(), 0, &[64]).unreliable = true;
    // To somebody else, with room.
    other.runs[0].target.set_ip(IpAddr::from([127, 0, 0, 9]));
    assert_eq!(other.lend(|batch| room.admit(batch)), 1);
    assert_eq!(room.hint(), hint + hint / 4);
}

#[test]
fn who_speaks_plainly_asks_nobody_and_waits_for_nobody() {
    // proves: wire-1
    let (a, b) = ([open(&SocketConfig::default())], [small_socket()]);
    let script = flood(&a[0], &b[0]);
    let mut room = Room::new();
    room.speak_plainly(true);
    assert_eq!(script.lend(|batch| room.admit(batch)), RUNS);
    assert!(!room.is_held());
    assert_eq!(room.questions().count(), 0);
}
