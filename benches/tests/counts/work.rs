//! What is counted: two devices of this process on a wire in memory, one message after the other.

use srdma_verbs::{
    Access, Buffer, Clock, Completion, Context, Cq, DeviceConfig, ManualClock, Mr, Pd, PreparedQp,
    Qp, QpType, WireLink, WrId,
};
use std::net::SocketAddr;
use std::sync::Arc;

/// Says to a process which workload it is.
pub(crate) const ROLE: &str = "SRDMA_COUNTS";

/// A workload: batches of messages, of which the last reports its completion.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Work {
    name: &'static str,
    size: usize,
    send: bool,
    batch: u32,
    batches: u32,
}

impl Work {
    pub(crate) const ALL: [Self; 2] = [
        Self {
            name: "send_64",
            size: 64,
            send: true,
            batch: 32,
            batches: 200,
        },
        Self {
            name: "write_1m",
            size: 1 << 20,
            send: false,
            batch: 1,
            batches: 40,
        },
    ];

    pub(crate) const fn name(&self) -> &'static str {
        self.name
    }

    pub(crate) const fn messages(&self) -> u64 {
        self.batch as u64 * self.batches as u64
    }
}

/// One end.
struct Side {
    _context: Context,
    pd: Pd,
    cq: Cq,
    mr: Mr,
}

impl Side {
    fn open(work: &Work, addr: SocketAddr, link: &Arc<WireLink>, clock: &ManualClock) -> Self {
        let config = DeviceConfig::new().addr(addr.ip()).background(false);
        let context = config
            .wire(Arc::clone(link), Clock::manual(clock))
            .open()
            .unwrap();
        let pd = context.alloc_pd().unwrap();
        let cq = context.create_cq(1024).build().unwrap();
        let access = Access::LOCAL_WRITE | Access::REMOTE;
        let mr = pd
            .register(Buffer::zeroed(work.size).unwrap(), access)
            .unwrap();
        Self {
            _context: context,
            pd,
            cq,
            mr,
        }
    }

    fn qp(&self) -> PreparedQp {
        let qp = self
            .pd
            .create_qp(QpType::Rc)
            .send_cq(&self.cq)
            .recv_cq(&self.cq);
        qp.max_send_wr(128).max_recv_wr(256).build().unwrap()
    }
}

/// Runs it.
pub(crate) fn workload(work: &Work) {
    let clock = ManualClock::new();
    let addrs: [SocketAddr; 2] = ["10.0.0.1:50000", "10.0.0.2:50001"].map(|a| a.parse().unwrap());
    let links = addrs.map(|addr| WireLink::new(&[addr], 4096, true));
    let [a, b] = [0, 1].map(|n| Side::open(work, addrs[n], &links[n], &clock));
    let (here, there) = (a.qp(), b.qp());
    let (ours, theirs) = (here.endpoint(), there.endpoint());
    let (qp, peer) = (
        here.connect(&theirs).unwrap(),
        there.connect(&ours).unwrap(),
    );
    let mut done = [Completion::EMPTY; 64];
    for _ in 0..work.batches {
        if work.send {
            receives(&peer, &b, work);
        }
        count_post(&qp, &a, &b, work);
        let (mut sent, mut received) = (0, 0);
        let expected = if work.send { work.batch as usize } else { 0 };
        while sent < 1 || received < expected {
            carry(&links);
            received += count_poll(&b.cq, &mut done);
            carry(&links);
            sent += count_poll(&a.cq, &mut done);
            clock.advance(1000);
        }
    }
}

fn carry(links: &[Arc<WireLink>; 2]) {
    for (from, to) in [(0, 1), (1, 0)] {
        while let Some(datagram) = links[from].take() {
            links[to].deliver(datagram);
        }
    }
}

fn receives(qp: &Qp, side: &Side, work: &Work) {
    let mut batch = qp.post_recv();
    for number in 0..work.batch {
        drop(
            batch
                .recv(WrId(number.into()))
                .local(side.mr.sge(..work.size)),
        );
    }
    batch.ring().unwrap();
}

/// Counted: requests are written and rung.
#[inline(never)]
fn count_post(qp: &Qp, side: &Side, peer: &Side, work: &Work) {
    let mut batch = qp.post_send();
    for number in 0..work.batch {
        let last = number + 1 == work.batch;
        macro_rules! post {
            ($wr:expr) => {{
                let wr = $wr;
                if last {
                    drop(wr.signaled());
                }
            }};
        }
        let sge = side.mr.sge(..work.size);
        if work.send {
            post!(batch.send(WrId(number.into())).local(sge));
        } else {
            let (addr, key) = (peer.mr.addr(), peer.mr.rkey());
            post!(
                batch
                    .write(WrId(number.into()))
                    .local(sge)
                    .remote(addr, key)
            );
        }
    }
    batch.ring().unwrap();
}

/// Counted: completions are taken, all of them good.
#[inline(never)]
fn count_poll(cq: &Cq, done: &mut [Completion; 64]) -> usize {
    let got = cq.poll_into(done);
    assert!(done.iter().take(got).all(Completion::is_ok));
    got
}
