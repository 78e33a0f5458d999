//! Sleeping instead of polling: a completion channel, and what no completion can tell.
//!
//! ```text
//! cargo run --release -p srdma-verbs --example events
//! ```

use srdma_verbs::{
    Access, AsyncKind, CompChannel, Context, Cq, DeviceConfig, QpType, Result, WrId,
};
use std::net::Ipv4Addr;

const MESSAGES: u32 = 1_000;

fn open(last: u8) -> Result<Context> {
    let [a, b, ..] = std::process::id().to_le_bytes();
    DeviceConfig::new()
        .addr(Ipv4Addr::new(127, a, b, last).into())
        .open()
}

/// Takes `count` messages, asleep whenever there is none; says how often it was woken.
fn receive(channel: &CompChannel, cq: &Cq, count: u32) -> Result<u32> {
    let (mut received, mut woken) = (0, 0);
    loop {
        // Arm first, then look: what came before the arm is found here, and raises no event.
        cq.arm(false)?;
        let mut poll = cq.poll();
        while let Some(wc) = poll.next() {
            assert!(wc.is_ok(), "{}", wc.status());
            received += 1;
        }
        drop(poll);
        if received == count {
            return Ok(woken);
        }
        // The event is acknowledged when it is dropped.
        let event = channel.wait();
        assert_eq!(event.cq(), cq);
        woken += 1;
    }
}

fn main() -> Result<()> {
    let (here, there) = (open(2)?, open(3)?);
    let channel = there.create_comp_channel()?;
    let peer_cq = there.create_cq(2048).on_channel(&channel).build()?;
    let cq = here.create_cq(64).build()?;
    let (pd, peer_pd) = (here.alloc_pd()?, there.alloc_pd()?);
    let qp = pd.create_qp(QpType::Rc).send_cq(&cq).recv_cq(&cq).build()?;
    let peer = peer_pd
        .create_qp(QpType::Rc)
        .send_cq(&peer_cq)
        .recv_cq(&peer_cq)
        .max_recv_wr(MESSAGES)
        .build()?;
    let (ours, theirs) = (qp.endpoint(), peer.endpoint());
    let (qp, peer) = (qp.connect(&theirs)?, peer.connect(&ours)?);

    let memory = peer_pd.register(vec![0; 64], Access::LOCAL_WRITE)?;
    let mut batch = peer.post_recv();
    for id in 0..MESSAGES {
        batch.recv(WrId(id.into())).local(memory.sge(..));
    }
    batch.ring()?;
    let sleeper = std::thread::spawn(move || receive(&channel, &peer_cq, MESSAGES));
    for id in 0..MESSAGES {
        let mut batch = qp.post_send();
        batch.send(WrId(id.into())).inline(b"wake up").signaled();
        batch.ring()?;
        while cq.poll().next().is_none() {}
    }
    let woken = sleeper.join().unwrap_or(Ok(0))?;
    println!("{MESSAGES} messages received, woken {woken} times");

    // A WRITE that the peer does not allow: we see a completion, the peer an asynchronous event.
    let source = pd.register(vec![0; 8], Access::LOCAL_READ)?;
    let mut batch = qp.post_send();
    batch
        .write(WrId(1))
        .local(source.sge(..))
        .remote(memory.addr(), memory.rkey());
    batch.ring()?;
    let status = loop {
        if let Some(wc) = cq.poll().next() {
            break wc.status();
        }
    };
    let event = there.wait_async_event();
    assert_eq!(event.kind(), AsyncKind::QpAccessErr);
    println!(
        "a write without the right to: here \"{status}\", there {:?}",
        event.kind()
    );
    Ok(())
}
