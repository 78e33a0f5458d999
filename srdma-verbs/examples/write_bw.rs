//! How many bytes a second RDMA WRITE moves between two devices of this process.
//!
//! ```text
//! cargo run --release -p srdma-verbs --example write_bw
//! ```
//!
//! The target does nothing: its background thread runs its device.

use srdma_verbs::{Access, Context, Cq, DeviceConfig, QpType, Result, WrId};
use std::net::Ipv4Addr;
use std::time::Instant;

const SIZE: usize = 1 << 20;
const WRITES: u64 = 2_000;
/// Writes outstanding at a time.
const DEPTH: u64 = 8;

fn open(last: u8) -> Result<(Context, Cq)> {
    let [a, b, ..] = std::process::id().to_le_bytes();
    let ctx = DeviceConfig::new()
        .addr(Ipv4Addr::new(127, a, b, last).into())
        .open()?;
    let cq = ctx.create_cq(64).build()?;
    Ok((ctx, cq))
}

fn main() -> Result<()> {
    let ((here, cq), (there, peer_cq)) = (open(2)?, open(3)?);
    let (pd, peer_pd) = (here.alloc_pd()?, there.alloc_pd()?);
    let qp = pd.create_qp(QpType::Rc).send_cq(&cq).recv_cq(&cq).build()?;
    let peer = peer_pd
        .create_qp(QpType::Rc)
        .send_cq(&peer_cq)
        .recv_cq(&peer_cq)
        .build()?;
    let (ours, theirs) = (qp.endpoint(), peer.endpoint());
    let (qp, _peer) = (qp.connect(&theirs)?, peer.connect(&ours)?);

    let source = pd.register(vec![0x5a; SIZE], Access::LOCAL_READ)?;
    let rights = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    let target = peer_pd.register(vec![0; SIZE], rights)?;

    let start = Instant::now();
    let (mut posted, mut done) = (0, 0);
    while done < WRITES {
        if posted < WRITES && posted - done < DEPTH {
            let mut batch = qp.post_send();
            while posted < WRITES && posted - done < DEPTH {
                batch
                    .write(WrId(posted))
                    .local(source.sge(..))
                    .remote(target.addr(), target.rkey())
                    .signaled();
                posted += 1;
            }
            batch.ring()?;
        }
        let mut poll = cq.poll();
        while let Some(wc) = poll.next() {
            assert!(wc.is_ok(), "{}", wc.status());
            done += 1;
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    assert_eq!(target.to_vec(SIZE - 1, 1)?, [0x5a]);
    let gigabytes = (WRITES << 20) as f64 / 1e9;
    println!("{WRITES} writes of 1 MiB: {:.2} GB/s", gigabytes / seconds);
    Ok(())
}
