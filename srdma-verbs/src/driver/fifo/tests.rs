//! Order, readiness and counts.

use super::*;
use core::time::Duration;
use std::sync::Arc;

fn readable(fifo: &Fifo<u32>) -> bool {
    use std::os::fd::AsRawFd;
    let fd = fifo.fd().unwrap().as_raw_fd();
    let mut poll = mio::Poll::new().unwrap();
    let mut source = mio::unix::SourceFd(&fd);
    poll.registry()
        .register(&mut source, mio::Token(0), mio::Interest::READABLE)
        .unwrap();
    let mut events = mio::Events::with_capacity(1);
    poll.poll(&mut events, Some(Duration::ZERO)).unwrap();
    !events.is_empty()
}

#[test]
fn the_descriptor_is_readable_while_records_are_there() {
    let fifo = Fifo::default();
    fifo.push(1);
    assert!(readable(&fifo));
    fifo.push(2);
    assert_eq!(fifo.pop(|r| r), Some(1));
    assert!(readable(&fifo));
    assert_eq!(fifo.pop(|r| r), Some(2));
    assert!(!readable(&fifo));
    assert_eq!(fifo.pop(|r| r), None);
    fifo.push(3);
    fifo.push(4);
    fifo.purge(|r| *r == 3);
    assert!(readable(&fifo));
    fifo.purge(|_| true);
    assert!(!readable(&fifo));
    assert_eq!(fifo.pop_within(Duration::ZERO, |r| r), None);
}

#[test]
fn a_sleeper_is_woken() {
    let fifo = Arc::new(Fifo::default());
    let sleeper = std::thread::spawn({
        let fifo = Arc::clone(&fifo);
        move || fifo.pop_wait(|r: u32| r)
    });
    fifo.push(7);
    assert_eq!(sleeper.join().unwrap(), 7);
}

#[test]
fn waiting_ends_with_the_last_acknowledgement() {
    let owed = Arc::new(Owed::default());
    owed.wait();
    owed.give();
    owed.give();
    let waiter = std::thread::spawn({
        let owed = Arc::clone(&owed);
        move || owed.wait()
    });
    owed.ack(1);
    owed.ack(1);
    waiter.join().unwrap();
}

/// Edges that `poll` sees, which asks for edges.
fn edges(poll: &mut mio::Poll) -> usize {
    let mut events = mio::Events::with_capacity(8);
    poll.poll(&mut events, Some(Duration::ZERO)).unwrap();
    events.iter().count()
}

#[test]
fn every_record_is_an_edge() {
    // proves: event-3
    use std::os::fd::AsRawFd;
    let fifo = Fifo::default();
    let fd = fifo.fd().unwrap().as_raw_fd();
    let mut poll = mio::Poll::new().unwrap();
    poll.registry()
        .register(
            &mut mio::unix::SourceFd(&fd),
            mio::Token(0),
            mio::Interest::READABLE,
        )
        .unwrap();
    assert_eq!(edges(&mut poll), 0);
    fifo.push(1);
    fifo.push(2);
    assert_eq!(edges(&mut poll), 1);
    assert_eq!(fifo.pop(|r| r), Some(1));
    assert_eq!(edges(&mut poll), 0, "one is left, and nothing new");
    fifo.push(3);
    assert_eq!(edges(&mut poll), 1, "also behind one that was left");
    assert_eq!((fifo.pop(|r| r), fifo.pop(|r| r)), (Some(2), Some(3)));
    assert_eq!(edges(&mut poll), 0);
}

#[test]
fn counts_wrap() {
    // proves: event-33
    for start in [u32::MAX, u32::MAX - 1, u32::MAX - 2, 0] {
        let owed = Owed {
            counts: Mutex::new(Counts {
                given: start,
                acked: start,
            }),
            ..Owed::default()
        };
        for _ in 0..3 {
            owed.give();
        }
        owed.ack(1);
        owed.ack(2);
        owed.wait();
    }
}
