//! The port follows its interface: a device on one end of a cable, as `devinfo` shows it.

use super::{FAMILIES, hosts};
use serde_json::Value;
use srdma_tests::program::program;
use std::time::Duration;

/// What is shown when the state is this one: the kernel may tell of a change a second late.
fn settled(show: &impl Fn() -> Value, state: &str) -> Value {
    for _ in 0..100 {
        let shown = show();
        if shown["state"] == state {
            return shown;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    show()
}

#[test]
fn a_port_follows_its_interface() {
    let program = program();
    let Some([a, b]) = hosts("port", 2500) else {
        return;
    };
    let show = || -> Value {
        let mut command = a.command(&program);
        command.args(["devinfo", "--json"]);
        command.env("SRDMA_DEVICES", "left=cable");
        let output = command.output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{errors}"))
    };
    let up = settled(&show, "active");
    assert_eq!(up["state"], "active", "{up}");
    assert_eq!(up["mtu"], 2048, "{up}");
    assert_eq!(
        up["addrs"],
        serde_json::json!([FAMILIES[0][0], FAMILIES[1][0]])
    );
    // The other end goes: no carrier. IPv6 addresses stay.
    b.ip(&["link", "set", "cable", "down"]).unwrap();
    let down = settled(&show, "down");
    assert_eq!(down["state"], "down", "{down}");
    b.ip(&["link", "set", "cable", "up", "mtu", "9000"])
        .unwrap();
    a.ip(&["link", "set", "cable", "mtu", "9000"]).unwrap();
    let again = settled(&show, "active");
    assert_eq!(
        (&again["state"], &again["mtu"]),
        (&"active".into(), &4096.into())
    );
}
