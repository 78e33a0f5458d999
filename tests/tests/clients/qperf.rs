//! qperf: what it can do without a connection manager, and how it is refused the rest.
//!
//! Without one it exchanges no GIDs and gives no global route, and an Ethernet port has no other
//! address. So its connections and address handles are refused, as drivers of the kernel do.

use crate::place::places;
use crate::run::{Running, free_port, is_installed};

#[test]
fn qperf_is_refused_as_on_every_ethernet_port() {
    if !is_installed("qperf") {
        println!("skip: qperf is not installed");
        return;
    }
    for place in places() {
        // A server each: one whose partner was refused may wait for that partner still.
        let ask = |test: &str| {
            let port = free_port().to_string();
            let mut server = Running::start(place.server.command(&["qperf", "-lp", &port]));
            server.listens(port.parse().unwrap()).unwrap();
            let words = [place.target.as_str(), "-lp", &port, "-t", "1", test];
            let words = [&["qperf"], &words[..]].concat();
            let mut client = Running::start(place.client.command(&words));
            client.wait().expect("qperf hangs");
            if test == "quit" {
                server.wait().expect("qperf does not quit");
            }
            client.said()
        };
        assert!(ask("conf").contains("loc_qperf"), "{}", place.name);
        // Its two sides tell each other of a refusal, and one may end before it has told why.
        let refused = |test: &str, why: &str| {
            let told = (0..8).any(|_| {
                let said = ask(test);
                assert!(!said.contains(" = "), "{test} has a result: {said}");
                said.contains(why)
            });
            assert!(told, "{}: {test} is not refused with {why}", place.name);
        };
        for test in ["rc_lat", "rc_bw", "rc_rdma_write_bw", "uc_lat"] {
            refused(test, "modify QP to RTR: Invalid argument");
        }
        for test in ["ud_lat", "ud_bw"] {
            refused(test, "create address handle: Invalid argument");
        }
        ask("quit");
    }
}
