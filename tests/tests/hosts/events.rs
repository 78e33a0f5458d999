//! A program hears of its interface: cable pulled and put back, addresses added and removed.
//!
//! ```text
//! test ─ ip: link, addr ─► namespace a: this binary again, `inside`: tells every event ─► test
//! ```

use super::{FAMILIES, hosts};
use serde_json::{Value, json};
use srdma_tests::netns::Namespace;
use srdma_verbs::{Context, QpType, WrId};
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// What a line for the test begins with; the harness prints others.
const MARK: &str = "heard ";
/// An address that comes and goes.
const GUEST: &str = "10.47.91.77";

/// Port state and GID table as the program sees them.
fn shown(ctx: &Context, event: &str) -> Value {
    let gid = |index| ctx.query_gid(1, index).unwrap();
    let gids = (0..4).map(gid).map(|gid| {
        if gid.is_zero() {
            Value::Null
        } else {
            json!(gid.addr())
        }
    });
    let state = format!("{:?}", ctx.query_port(1).unwrap().state);
    json!({ "event": event, "state": state, "gids": gids.collect::<Vec<_>>() })
}

/// A message from an address of the device to itself, on queue pairs of this GID index.
fn message(ctx: &Context, index: u8) {
    let pd = ctx.alloc_pd().unwrap();
    let cq = ctx.create_cq(16).build().unwrap();
    let qp = || {
        let builder = pd.create_qp(QpType::Rc).send_cq(&cq).recv_cq(&cq);
        builder.gid_index(index).build().unwrap()
    };
    let (a, b) = (qp(), qp());
    let (ours, theirs) = (a.endpoint(), b.endpoint());
    let (a, b) = (a.connect(&theirs).unwrap(), b.connect(&ours).unwrap());
    let mut batch = b.post_recv();
    batch.recv(WrId(1));
    batch.ring().unwrap();
    let mut batch = a.post_send();
    batch.send(WrId(2)).signaled();
    batch.ring().unwrap();
    let mut done = 0;
    while done < 2 {
        if let Some(wc) = cq.poll().next() {
            assert!(wc.is_ok(), "{wc:?}");
            done += 1;
        }
    }
}

/// The program: runs inside of the namespace.
#[test]
#[ignore = "started by the test below"]
fn inside() {
    let ctx = srdma_verbs::open("cable").unwrap();
    println!("{MARK}{}", shown(&ctx, "open"));
    std::thread::spawn(|| {
        // Ends with the test, whatever becomes of it.
        let _ = std::io::stdin().read(&mut [0]);
        std::process::exit(0);
    });
    loop {
        let kind = format!("{:?}", ctx.wait_async_event().kind());
        println!("{MARK}{}", shown(&ctx, &kind));
        if ctx.query_gid(1, 2).is_ok_and(|gid| !gid.is_zero()) {
            message(&ctx, 2);
            println!("{MARK}{}", shown(&ctx, "message"));
        }
    }
}

/// The program, and what it says. Killed when dropped.
struct Program {
    child: Child,
    lines: Receiver<Value>,
}

impl Program {
    fn start(host: &Namespace) -> Self {
        let mut child = host
            .command(&std::env::current_exe().unwrap())
            .args(["--exact", "events::inside", "--ignored", "--nocapture"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (sender, lines) = channel();
        let output = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if let Some((_, said)) = line.split_once(MARK) {
                    let _ = sender.send(serde_json::from_str(said).unwrap());
                }
            }
        });
        Self { child, lines }
    }

    /// The next thing that it says.
    fn next(&self) -> Value {
        let said = self.lines.recv_timeout(Duration::from_secs(60));
        said.expect("the program hears of it")
    }

    fn heard(&self, event: &str) -> Value {
        let said = self.next();
        assert_eq!(said["event"], event, "{said}");
        said
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_program_hears_of_its_interface() {
    // proves: event-53, event-54
    let Some([a, b]) = hosts("heard", 1500) else {
        return;
    };
    let [v4, v6] = [FAMILIES[0][0], FAMILIES[1][0]];
    let program = Program::start(&a);
    let said = program.next();
    assert_eq!(said["gids"], json!([v4, v6, null, null]), "{said}");
    if said["state"] != "Active" {
        program.heard("PortActive");
    }
    for _ in 0..3 {
        b.ip(&["link", "set", "cable", "down"]).unwrap();
        assert_eq!(program.heard("PortErr")["state"], "Down");
        b.ip(&["link", "set", "cable", "up"]).unwrap();
        assert_eq!(program.heard("PortActive")["state"], "Active");
    }
    for _ in 0..2 {
        let guest = format!("{GUEST}/24");
        a.ip(&["addr", "add", &guest, "dev", "cable"]).unwrap();
        let said = program.heard("GidChange");
        assert_eq!(said["gids"], json!([v4, v6, GUEST, null]));
        program.heard("message");
        a.ip(&["addr", "del", &guest, "dev", "cable"]).unwrap();
        let said = program.heard("GidChange");
        assert_eq!(said["gids"], json!([v4, v6, null, null]), "its place stays");
    }
    a.ip(&["addr", "del", &format!("{v4}/24"), "dev", "cable"])
        .unwrap();
    let said = program.heard("GidChange");
    assert_eq!(said["gids"], json!([null, v6, null, null]));
    assert_eq!(said["state"], "Active", "there is another address");
    a.ip(&["link", "set", "cable", "down"]).unwrap();
    // With its last address goes the port; the kernel takes IPv6 addresses of what is down.
    let mut seen = vec![program.next(), program.next()];
    seen.sort_by_key(|said| said["event"].to_string());
    assert_eq!(seen[0]["event"], "GidChange", "{seen:?}");
    assert_eq!(seen[1]["event"], "PortErr", "{seen:?}");
    assert_eq!(seen[1]["state"], "Down");
}
