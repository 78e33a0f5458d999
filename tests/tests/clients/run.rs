//! One server and one client: started, waited for, and judged.

use crate::place::{Host, Place};
use std::fs::File;
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Looks, a hundredth of a second apart, after which a program is taken to hang.
const PATIENCE: u32 = 12_000;
/// What is shown of a program's output: its end.
const SHOWN: usize = 1500;

/// A program that runs, and what it says. Killed when dropped.
pub(crate) struct Running {
    child: Child,
    log: PathBuf,
    words: String,
    /// Its process group was killed.
    gone: bool,
}

impl Running {
    /// Starts `command`; it dies with this thread.
    pub(crate) fn start(mut command: Command) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("srdma-client-{}-{number}", std::process::id());
        let log = std::env::temp_dir().join(name);
        let output = File::create(&log).unwrap();
        let words: Vec<_> = command
            .get_args()
            .map(|word| word.to_string_lossy())
            .collect();
        let words = words.join(" ");
        command
            .stdout(output.try_clone().unwrap())
            .stderr(Stdio::from(output))
            .process_group(0);
        let child = command.spawn().unwrap();
        Self {
            child,
            log,
            words,
            gone: false,
        }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Everything it has said so far.
    pub(crate) fn said(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// Has it ended? Nothing that it started is left then.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        let status = self.child.try_wait().unwrap();
        if status.is_some() {
            self.end_group();
        }
        status
    }

    /// Kills its process group: qperf has a process for each client, which outlives it.
    fn end_group(&mut self) {
        if !std::mem::replace(&mut self.gone, true) {
            let kill = format!("kill -KILL -{} 2>/dev/null", self.id());
            // Fails if all have ended.
            let _ = Command::new("sh").args(["-c", &kill]).status();
        }
    }

    /// Waits for its end; `None` if it hangs, and then it is killed.
    pub(crate) fn wait(&mut self) -> Option<ExitStatus> {
        for _ in 0..PATIENCE {
            if let Some(status) = self.ended() {
                return Some(status);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        self.kill();
        None
    }

    /// kill -9, with everything that it started.
    pub(crate) fn kill(&mut self) {
        self.end_group();
        // Fails only if it has ended before.
        let _ = self.child.kill();
        self.child.wait().unwrap();
    }

    /// Waits for a good end.
    pub(crate) fn finish(&mut self) -> Result<(), String> {
        match self.wait() {
            Some(status) if status.success() => Ok(()),
            Some(status) => Err(self.report(&format!("ended with {status}"))),
            None => Err(self.report("hangs")),
        }
    }

    /// What became of it, with the end of what it said.
    pub(crate) fn report(&self, fate: &str) -> String {
        let said = self.said();
        let from = said
            .char_indices()
            .map(|(at, _)| at)
            .find(|at| said.len() - at <= SHOWN)
            .unwrap_or(said.len());
        format!(
            "{} {fate}:\n{}",
            self.words,
            said.get(from..).unwrap_or_default()
        )
    }

    /// Waits until it listens on `port`.
    pub(crate) fn listens(&mut self, port: u16) -> Result<(), String> {
        let wanted = format!(":{port:04X}");
        for _ in 0..PATIENCE {
            if let Some(status) = self.ended() {
                return Err(self.report(&format!("ended before it listened, with {status}")));
            }
            let tables = ["tcp", "tcp6"].map(|table| format!("/proc/{}/net/{table}", self.id()));
            let listens = tables.iter().any(|table| {
                let table = std::fs::read_to_string(table).unwrap_or_default();
                table.lines().any(|line| {
                    let mut words = line.split_whitespace().skip(1);
                    words.next().is_some_and(|local| local.ends_with(&wanted))
                        && words.nth(1) == Some("0A")
                })
            });
            if listens {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Err(self.report("does not listen"))
    }
}

impl Running {
    /// Waits until it has said `words`.
    pub(crate) fn says(&mut self, words: &str) -> Result<(), String> {
        for _ in 0..PATIENCE {
            if self.said().contains(words) {
                return Ok(());
            }
            if let Some(status) = self.ended() {
                return Err(self.report(&format!("ended with {status}")));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Err(self.report(&format!("does not say {words:?}")))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
        let _ = std::fs::remove_file(&self.log);
    }
}

/// Is there such a program?
pub(crate) fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).exists())
}

/// A TCP port that nobody has.
pub(crate) fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

/// Starts the server of `line`, and waits until it listens.
pub(crate) fn serve(host: &Host, line: &[String], port: u16) -> Result<Running, String> {
    let mut words = line.to_vec();
    words.extend(["-p".to_owned(), port.to_string()]);
    let mut server = Running::start(host.command(&words));
    server.listens(port)?;
    Ok(server)
}

/// Starts the client of `line`.
pub(crate) fn visit(host: &Host, line: &[String], port: u16, target: &str) -> Running {
    let mut words = line.to_vec();
    words.extend(["-p".to_owned(), port.to_string(), target.to_owned()]);
    Running::start(host.command(&words))
}

/// Runs both sides to their good ends, and looks at what they say.
pub(crate) fn pair(place: &Place, line: &[String]) -> Result<(), String> {
    let port = free_port();
    let mut server = serve(&place.server, line, port)?;
    let mut client = visit(&place.client, line, port, &place.target);
    let ends = [client.finish(), server.finish()];
    if ends.iter().any(Result::is_err) {
        let both = [&client, &server].map(|side| side.report("said"));
        let ends: Vec<_> = ends.into_iter().filter_map(Result::err).collect();
        return Err(format!(
            "{}: {}\n{}",
            place.name,
            ends.join("\n"),
            both.join("\n")
        ));
    }
    let judged = match line.first() {
        Some(program) if program.starts_with("ibv_") => pingpong(&client, &server),
        _ => perftest(&client, line),
    };
    judged.map_err(|text| format!("{}: {text}", place.name))
}

/// Both sides counted their bytes. What arrived they have compared themselves, with `-c`.
fn pingpong(client: &Running, server: &Running) -> Result<(), String> {
    for side in [client, server] {
        let said = side.said();
        if !said.contains(" bytes in ") && !said.ends_with("success\n") {
            return Err(side.report("did not count"));
        }
        if said.contains("invalid data") {
            return Err(side.report("got wrong data"));
        }
    }
    Ok(())
}

/// What perftest says, in the middle of a line, when it could not tell how fast its clock runs. All
/// figures of a size are zero then.
const NO_CLOCK: &str = "Correlation coefficient";

/// The table has a line for each size, and its figures are not all zero (a busy machine rounds
/// small ones down to it).
fn perftest(client: &Running, line: &[String]) -> Result<(), String> {
    let sizes = if !line.iter().any(|word| word == "-a") {
        1
    } else if line.iter().any(|word| word == "UD") {
        // 2 B to the path MTU.
        12
    } else {
        // 2 B to 8 MiB.
        23
    };
    let said = client.said();
    let rows: Vec<Vec<f64>> = said
        .lines()
        .map(|row| row.split(NO_CLOCK).next().unwrap_or(row))
        .map(|row| row.split_whitespace().map(str::parse).collect())
        .filter_map(Result::ok)
        .filter(|row: &Vec<f64>| row.len() >= 4)
        .collect();
    let counts = |row: &Vec<f64>| row.iter().skip(2).any(|at| *at > 0.0);
    if rows.len() < sizes || !(said.contains(NO_CLOCK) || rows.iter().all(counts)) {
        return Err(client.report(&format!("has no {sizes} rows of figures")));
    }
    Ok(())
}
