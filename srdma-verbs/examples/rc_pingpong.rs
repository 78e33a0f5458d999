//! A message back and forth between two devices of this process: a thread each, both polling.
//!
//! ```text
//! cargo run --release -p srdma-verbs --example rc_pingpong
//! ```

use srdma_verbs::{
    Access, Context, Cq, DeviceConfig, Mr, PreparedQp, Qp, QpEndpoint, QpType, Result, WcOpcode,
    WrId,
};
use std::net::Ipv4Addr;
use std::time::Instant;

const ROUNDS: u32 = 20_000;
const SIZE: usize = 64;
/// Receives kept posted.
const RECEIVES: u64 = 4;

/// What one side has before it is connected.
struct Side {
    qp: PreparedQp,
    cq: Cq,
    outgoing: Mr,
    incoming: Mr,
}

impl Side {
    fn new(ctx: &Context) -> Result<Self> {
        let pd = ctx.alloc_pd()?;
        let cq = ctx.create_cq(64).build()?;
        let qp = pd.create_qp(QpType::Rc).send_cq(&cq).recv_cq(&cq).build()?;
        let outgoing = pd.register(vec![0; SIZE], Access::LOCAL_READ)?;
        let incoming = pd.register(vec![0; SIZE], Access::LOCAL_WRITE)?;
        Ok(Self {
            qp,
            cq,
            outgoing,
            incoming,
        })
    }

    /// Connects, and posts the first receives.
    fn connect(self, theirs: &QpEndpoint) -> Result<End> {
        let Self {
            qp,
            cq,
            outgoing,
            incoming,
        } = self;
        let end = End {
            qp: qp.connect(theirs)?,
            cq,
            outgoing,
            incoming,
        };
        for id in 0..RECEIVES {
            end.post_receive(WrId(id))?;
        }
        Ok(end)
    }
}

/// One side, connected.
struct End {
    qp: Qp,
    cq: Cq,
    outgoing: Mr,
    incoming: Mr,
}

impl End {
    fn post_receive(&self, id: WrId) -> Result<()> {
        let mut batch = self.qp.post_recv();
        batch.recv(id).local(self.incoming.sge(..));
        batch.ring()
    }

    fn send(&self, round: u32) -> Result<()> {
        let mut batch = self.qp.post_send();
        // One send in sixteen reports success, and clears the queue of those before it.
        batch
            .send(WrId(u64::from(round)))
            .local(self.outgoing.sge(..))
            .signaled_if(round.is_multiple_of(16));
        batch.ring()
    }

    /// Polls until a message is there, and posts its receive again.
    fn receive(&self) -> Result<()> {
        loop {
            let wc = self.cq.poll().next().map(|wc| wc.to_completion());
            let Some(wc) = wc else { continue };
            assert!(wc.is_ok(), "{}", wc.status());
            if wc.opcode() == WcOpcode::Recv {
                return self.post_receive(wc.wr_id());
            }
        }
    }
}

/// A device on an address of the loopback network that only this process uses.
fn open(last: u8) -> Result<Context> {
    let [a, b, ..] = std::process::id().to_le_bytes();
    DeviceConfig::new()
        .addr(Ipv4Addr::new(127, a, b, last).into())
        .open()
}

fn main() -> Result<()> {
    let (left, right) = (Side::new(&open(2)?)?, Side::new(&open(3)?)?);
    // Two programs would send each other these as text.
    let (ours, theirs) = (left.qp.endpoint(), right.qp.endpoint());
    let (left, right) = (left.connect(&theirs)?, right.connect(&ours)?);

    let echo = std::thread::spawn(move || -> Result<End> {
        for round in 0..ROUNDS {
            right.receive()?;
            right.send(round)?;
        }
        // Kept by the caller: a queue pair that is dropped no longer sends its last message.
        Ok(right)
    });
    let start = Instant::now();
    for round in 0..ROUNDS {
        left.outgoing.write(0, &round.to_le_bytes())?;
        left.send(round)?;
        left.receive()?;
    }
    let micros = start.elapsed().as_secs_f64() * 1e6 / f64::from(ROUNDS);
    println!("{ROUNDS} round trips of {SIZE} bytes: {micros:.2} us each");
    echo.join().map_or(Ok(()), |end| end.map(drop))
}
