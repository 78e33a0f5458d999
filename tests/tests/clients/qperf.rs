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
        let port = free_port().to_string();
        let mut server = Running::start(place.server.command(&["qperf", "-lp", &port]));
        server.listens(port.parse().unwrap()).unwrap();
        let try_once = |test: &str| {
            let words = [place.target.as_str(), "-lp", &port, "-t", "1", test];
            let words = [&["qperf"], &words[..]].concat();
            let mut client = Running::start(place.client.command(&words));
            client.wait().expect("qperf hangs");
            client.said()
        };
        // After a refusal the server may miss the next client's first words: its own affair.
        let ask = |test: &str| {
            let mut said = try_once(test);
            for _ in 0..2 {
                if said.contains("failed to receive node information") {
                    said = try_once(test);
                }
            }
            said
        };
        assert!(ask("conf").contains("loc_qperf"), "{}", place.name);
        for test in ["rc_lat", "rc_bw", "rc_rdma_write_bw", "uc_lat"] {
            let said = ask(test);
            assert!(
                said.contains("modify QP to RTR: Invalid argument"),
                "{said}"
            );
        }
        for test in ["ud_lat", "ud_bw"] {
            let said = ask(test);
            let refusal = "create address handle: Invalid argument";
            assert!(said.contains(refusal), "{said}");
        }
        ask("quit");
        server.wait().expect("qperf does not quit");
    }
}
