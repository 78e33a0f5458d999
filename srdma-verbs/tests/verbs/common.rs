//! Devices, connected pairs, and waiting for completions.

use core::time::Duration;
use srdma_verbs::{
    Access, CompChannel, Completion, Context, Cq, DeviceConfig, Mr, Pd, Qp, QpBuilder, QpType,
    WcStatus, WrId,
};
use std::io::Read;
use std::net::Ipv4Addr;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Instant;

/// Looks that follow each other at once, and then those with a pause of a millisecond between them,
/// after which something counts as missing: what others have to do gets the processor, however
/// crowded that is.
const QUICK_LOOKS: u32 = 20_000;
const SLOW_LOOKS: u32 = 60_000;

/// A run takes seconds. One that has not ended by then never will: what it was doing is told.
const PATIENCE: Duration = Duration::from_secs(300);

static NEXT: AtomicU8 = AtomicU8::new(2);

/// A device on a loopback address that no other test has.
pub fn config() -> DeviceConfig {
    let [a, b, ..] = std::process::id().to_le_bytes();
    let last = NEXT.fetch_add(1, Ordering::Relaxed);
    DeviceConfig::new().addr(Ipv4Addr::new(127, 16 + a % 200, b, last).into())
}

/// The four ways to use the kernel's offloads.
pub const OFFLOADS: [(bool, bool); 4] =
    [(true, true), (true, false), (false, true), (false, false)];

pub struct Side {
    pub ctx: Context,
    pub pd: Pd,
    pub cq: Cq,
}

impl Side {
    pub fn new(config: DeviceConfig) -> Self {
        let ctx = config.open().unwrap();
        let pd = ctx.alloc_pd().unwrap();
        let cq = ctx.create_cq(256).build().unwrap();
        Self { ctx, pd, cq }
    }

    pub fn qp(&self, qp_type: QpType) -> QpBuilder<'_> {
        self.pd
            .create_qp(qp_type)
            .send_cq(&self.cq)
            .recv_cq(&self.cq)
            .max_send_sge(4)
    }

    pub fn mr(&self, len: usize) -> Mr {
        let all = Access::LOCAL_WRITE | Access::REMOTE | Access::MW_BIND;
        self.pd.register(vec![0; len], all).unwrap()
    }

    pub fn pattern(&self, len: usize, seed: u8) -> Mr {
        let mr = self.mr(len);
        mr.write(0, &pattern(len, seed)).unwrap();
        mr
    }
}

/// Bytes that differ from place to place.
pub fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len)
        .map(|at| (at as u8).wrapping_mul(31) ^ (at >> 8) as u8 ^ seed)
        .collect()
}

pub struct Pair {
    pub a: Side,
    pub b: Side,
    pub qa: Qp,
    pub qb: Qp,
}

pub fn sides() -> (Side, Side) {
    (Side::new(config()), Side::new(config()))
}

pub fn connect(a: &QpBuilder<'_>, b: &QpBuilder<'_>) -> (Qp, Qp) {
    let (a, b) = (a.clone().build().unwrap(), b.clone().build().unwrap());
    let (ea, eb) = (a.endpoint(), b.endpoint());
    (a.connect(&eb).unwrap(), b.connect(&ea).unwrap())
}

pub fn pair(qp_type: QpType) -> Pair {
    pair_with(qp_type, (true, true))
}

pub fn pair_with(qp_type: QpType, (gso, gro): (bool, bool)) -> Pair {
    let a = Side::new(config().gso(gso).gro(gro));
    let b = Side::new(config().gso(gso).gro(gro));
    let (qa, qb) = connect(&a.qp(qp_type), &b.qp(qp_type));
    Pair { a, b, qa, qb }
}

/// `a` sends to `b`, which receives into a queue with a channel.
pub struct Watched {
    pub a: Side,
    pub b: Side,
    pub channel: CompChannel,
    pub cq: Cq,
    pub qa: Qp,
    pub qb: Qp,
}

/// `b` receives into a queue with a channel, by this completion vector.
pub fn watched(b: Side, vector: u16) -> Watched {
    let a = Side::new(config());
    let channel = b.ctx.create_comp_channel().unwrap();
    let cq = b.ctx.create_cq(64).on_channel(&channel).comp_vector(vector);
    let cq = cq.build().unwrap();
    let (qa, qb) = connect(&a.qp(QpType::Rc), &b.qp(QpType::Rc).recv_cq(&cq));
    Watched {
        a,
        b,
        channel,
        cq,
        qa,
        qb,
    }
}

impl Watched {
    /// A message that has completed at `a`.
    pub fn send(&self, solicited: bool) {
        receive(&self.qb, 1);
        let mut batch = self.qa.post_send();
        let wr = batch.send(WrId(2)).signaled();
        if solicited {
            wr.solicited();
        } else {
            drop(wr);
        }
        batch.ring().unwrap();
        done(&self.a.cq);
    }

    /// A message that has completed on both sides; nobody has polled it at `b`.
    pub fn message(&self) {
        self.send(false);
        until("the completion", || self.cq.pending() != 0);
    }

    pub fn event(&self) {
        let event = self.channel.wait_for(Duration::from_secs(60));
        assert_eq!(event.unwrap().cq(), &self.cq);
    }

    pub fn has_event(&self) -> bool {
        match self.channel.try_get() {
            Ok(event) => {
                assert_eq!(event.cq(), &self.cq);
                true
            }
            Err(error) => {
                assert!(error.is_would_block());
                false
            }
        }
    }

    pub fn no_event(&self) {
        self.b.ctx.drive();
        assert!(!self.has_event());
    }
}

/// Posts a receive for an empty message.
pub fn receive(qp: &Qp, id: u64) {
    let mut batch = qp.post_recv();
    batch.recv(WrId(id));
    batch.ring().unwrap();
}

/// Sends an empty message, signaled.
pub fn send(qp: &Qp, id: u64) {
    let mut batch = qp.post_send();
    batch.send(WrId(id)).signaled();
    batch.ring().unwrap();
}

/// Writes all of a region to the start of another, not signaled.
pub fn write(qp: &Qp, id: u64, source: &Mr, target: &Mr) {
    let mut batch = qp.post_send();
    batch
        .write(WrId(id))
        .local(source.sge(..))
        .remote(target.addr(), target.rkey());
    batch.ring().unwrap();
}

/// Looks until there is something, letting the devices run.
fn look<T>(mut at: impl FnMut() -> Option<T>) -> Option<T> {
    for look in 0..QUICK_LOOKS + SLOW_LOOKS {
        if let Some(found) = at() {
            return Some(found);
        }
        if look < QUICK_LOOKS {
            std::thread::yield_now();
        } else {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    None
}

/// The next completion of `cq`.
pub fn next(cq: &Cq) -> Completion {
    look(|| cq.poll().next().map(|wc| wc.to_completion()))
        .unwrap_or_else(|| panic!("no completion in {cq:?}"))
}

/// The next completion, which must be a success.
pub fn done(cq: &Cq) -> Completion {
    let completion = next(cq);
    assert!(completion.is_ok(), "{completion:?}");
    completion
}

/// Waits until `check` holds, letting the devices run.
pub fn until(what: &str, mut check: impl FnMut() -> bool) {
    assert!(
        look(|| check().then_some(())).is_some(),
        "waited in vain for: {what}"
    );
}

pub fn assert_flushed(cq: &Cq, ids: &[u64]) {
    for id in ids {
        let completion = next(cq);
        assert_eq!(completion.status(), WcStatus::WrFlushErr, "{completion:?}");
        assert_eq!(completion.wr_id().0, *id);
    }
}

pub fn assert_quiet(cq: &Cq) {
    for _ in 0..100 {
        if let Some(wc) = cq.poll().next() {
            panic!("unexpected {:?}", wc.to_completion());
        }
    }
}

/// Runs all tests of this program once more in a child that is told so, but for those that would do
/// the same.
pub fn again(told: &[(&str, &str)]) {
    let child = Command::new(std::env::current_exe().unwrap())
        .envs(told.iter().copied())
        .args(["--skip", "dialects::", "--skip", "bridge::everything"])
        .args(["--test-threads", "2"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let (status, text) = ended(child);
    match status {
        Some(status) => assert!(status.success(), "{told:?}: {text}"),
        None => panic!("{told:?}: no end after {PATIENCE:?}: {text}"),
    }
}

/// How a child ended, or nothing if it had to be ended; and what it said.
fn ended(mut child: Child) -> (Option<ExitStatus>, String) {
    let (mut out, mut err) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
    let read = |from: &mut dyn Read| {
        let mut bytes = Vec::new();
        from.read_to_end(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    std::thread::scope(|scope| {
        let said = [
            scope.spawn(move || read(&mut out)),
            scope.spawn(move || read(&mut err)),
        ];
        let deadline = Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break Some(status);
            }
            if Instant::now() > deadline {
                child.kill().unwrap();
                child.wait().unwrap();
                break None;
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        (status, said.map(|said| said.join().unwrap()).concat())
    })
}
