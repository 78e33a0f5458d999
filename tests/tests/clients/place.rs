//! Where server and client run: devices, namespaces, and how a program is started there.

use srdma_tests::netns::{Namespace, NetnsError};
use srdma_tests::program::program;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};

/// Of util-linux, which every Debian has.
pub(crate) const SETPRIV: &str = "setpriv";
/// The program that follows is killed when the test ends, however that is.
pub(crate) const WITH_US: [&str; 2] = ["--pdeathsig", "KILL"];

/// One side: its device, and its namespace.
pub(crate) struct Host {
    pub(crate) devices: String,
    /// Whose words its device uses, if that is not left to the user's settings.
    dialect: Option<&'static str>,
    namespace: Option<Namespace>,
}

/// The device of a side, where it does not matter that the other's has another name.
const DEVICE: &str = "here";

/// Two sides.
pub(crate) struct Place {
    pub(crate) name: &'static str,
    pub(crate) server: Host,
    pub(crate) client: Host,
    /// Where the client finds the server, for the conversation over TCP.
    pub(crate) target: String,
}

/// A loopback address that nothing else has.
pub(crate) fn address() -> String {
    static NEXT: AtomicU8 = AtomicU8::new(2);
    let [low, high, ..] = std::process::id().to_le_bytes();
    let last = NEXT.fetch_add(1, Ordering::Relaxed);
    assert!(last < 255, "out of addresses");
    format!("127.{}.{low}.{last}", 64 + (high & 0x7f))
}

impl Host {
    /// A host that is this machine.
    pub(crate) fn local(device: &str, addr: &str) -> Self {
        Self {
            devices: format!("{device}={addr}"),
            dialect: None,
            namespace: None,
        }
    }

    /// As [`local`](Self::local), in a dialect.
    fn speaking(dialect: &'static str, addr: &str) -> Self {
        let dialect = Some(dialect);
        Self {
            dialect,
            ..Self::local(DEVICE, addr)
        }
    }

    /// `words` under `srdma-cli run`, as the process that is started.
    pub(crate) fn command<S: AsRef<str>>(&self, words: &[S]) -> Command {
        let mut command = match &self.namespace {
            Some(namespace) => namespace.command(Path::new(SETPRIV)),
            None => Command::new(SETPRIV),
        };
        command
            .args(WITH_US)
            .arg(program())
            .args(["run", "--quiet", "--"])
            .args(words.iter().map(AsRef::as_ref))
            .env("SRDMA_DEVICES", &self.devices)
            .env_remove("SRDMA_LIB")
            .env_remove("SRDMA_CONFIG")
            .stdin(Stdio::null());
        if let Some(dialect) = self.dialect {
            command.env("SRDMA_DIALECT", dialect);
        }
        command
    }
}

/// The three places, after building what runs there; without the one in namespaces where those
/// are forbidden.
pub(crate) fn places() -> Vec<Place> {
    program();
    let (one, two, three) = (address(), address(), address());
    let local = |name, server: &str, client: &str| Place {
        name,
        server: Host::local(DEVICE, server),
        client: Host::local(if server == client { DEVICE } else { "there" }, client),
        target: "127.0.0.1".to_owned(),
    };
    let mut places = vec![local("one address", &one, &one), local("two", &two, &three)];
    places.extend(two_hosts());
    places
}

/// Devices of other dialects than the usual one: both of one, and of two that differ.
pub(crate) fn places_of_other_dialects() -> Vec<Place> {
    program();
    let place = |name, server, client| Place {
        name,
        server: Host::speaking(server, &address()),
        client: Host::speaking(client, &address()),
        target: "127.0.0.1".to_owned(),
    };
    vec![
        place("mlx5", "mlx5", "mlx5"),
        place("hns", "hns", "hns"),
        place("mlx5, hns", "mlx5", "hns"),
    ]
}

/// Two namespaces and a cable between them.
fn two_hosts() -> Option<Place> {
    static NEXT: AtomicU8 = AtomicU8::new(0);
    let tag = NEXT.fetch_add(1, Ordering::Relaxed);
    let a = match Namespace::new(&format!("c{tag}a")) {
        Ok(a) => a,
        Err(NetnsError::Forbidden(why)) => {
            println!("skip: network namespaces are forbidden here ({why}); two hosts not tested");
            return None;
        }
        Err(error) => panic!("{error}"),
    };
    let b = Namespace::new(&format!("c{tag}b")).unwrap();
    a.join(&b, 9000, &["10.47.92.1/24"], &["10.47.92.2/24"])
        .unwrap();
    let host = |namespace| Host {
        devices: "host=cable".to_owned(),
        dialect: None,
        namespace: Some(namespace),
    };
    Some(Place {
        name: "two hosts",
        server: host(b),
        client: host(a),
        target: "10.47.92.2".to_owned(),
    })
}
