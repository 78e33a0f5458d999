//! Which programs run, with which options. `docs/drop-in.md` shows the same table.

/// A program, its transports, and its options: each with each.
pub(crate) struct Row {
    pub(crate) program: &'static str,
    pub(crate) transports: &'static [&'static str],
    pub(crate) options: &'static [&'static str],
}

impl Row {
    /// Every line of this row.
    pub(crate) fn lines(&self, long: bool) -> Vec<Line> {
        let mut lines = Vec::new();
        for transport in self.transports {
            // A run of all sizes takes ten seconds: perftest looks for the clock rate each time.
            let brief = |options: &str| {
                let first = self.transports.first() == Some(transport);
                let short = self.program.ends_with("_bw") || self.program == "ib_send_lat";
                long || !options.contains("-a") || (first && short)
            };
            // perftest refuses the one with the other.
            let allowed = |options: &str| !(options.contains("--odp") && *transport == "UC");
            let chosen = self
                .options
                .iter()
                .filter(|line| brief(line) && allowed(line));
            lines.extend(chosen.map(|options| Line {
                words: self.words(transport, options, long),
                everywhere: long || Some(options) == self.options.first(),
            }));
        }
        lines
    }

    fn words(&self, transport: &str, options: &str, long: bool) -> Vec<String> {
        let mut words = vec![self.program];
        let perftest = self.program.starts_with("ib_");
        if perftest {
            words.extend(["-F", "-c", transport, "-u", PATIENCE]);
        }
        words.extend(options.split_whitespace());
        let mut words: Vec<_> = words.into_iter().map(str::to_owned).collect();
        if perftest && !words.iter().any(|word| word == "-n") {
            words.extend(["-n".to_owned(), iterations(options, long).to_string()]);
        }
        words
    }
}

/// A program with its options.
pub(crate) struct Line {
    pub(crate) words: Vec<String>,
    /// It runs in every place, not in one.
    pub(crate) everywhere: bool,
}

/// The ACK timeout, as its exponent: a second. perftest takes 67 ms; a peer that waits for a
/// processor of a busy machine can miss all eight.
const PATIENCE: &str = "18";

/// Messages of a run that does not say how many.
fn iterations(options: &str, long: bool) -> u32 {
    match (options.contains("-a"), long) {
        (true, false) => 20,
        (false, false) | (true, true) => 1000,
        (false, true) => 10_000,
    }
}

/// Options of both sides of a pingpong: polling and sleeping, old and new calls, sizes up to 4 MiB.
const PINGPONG_RC: &[&str] = &[
    "-g 0 -c",
    "-g 0 -c -e",
    "-g 0 -c -N",
    "-g 0 -c -e -N",
    "-g 0 -c -o",
    "-g 0 -c -O",
    "-g 0 -c -t",
    "-g 0 -c -j",
    "-g 0 -c -s 1",
    "-g 0 -c -s 1 -e -N",
    "-g 0 -c -s 65536 -m 4096",
    "-g 0 -c -s 65536 -e -N",
    "-g 0 -c -s 1048576 -n 50",
    "-g 0 -c -s 1048576 -n 50 -e",
    "-g 0 -c -s 4194304 -n 20",
    "-g 0 -c -s 4194304 -n 20 -N",
    "-g 0 -c -s 4194304 -n 20 -e -N",
];
const PINGPONG_UC: &[&str] = &[
    "-g 0 -c",
    "-g 0 -c -e",
    "-g 0 -c -s 1",
    "-g 0 -c -s 1 -e",
    "-g 0 -c -s 65536",
    "-g 0 -c -s 4194304 -n 20",
    "-g 0 -c -s 4194304 -n 20 -e",
];
const PINGPONG_UD: &[&str] = &[
    "-g 0 -c",
    "-g 0 -c -e",
    "-g 0 -c -s 1",
    "-g 0 -c -s 1 -e",
    "-g 0 -c -s 4096",
    "-g 0 -c -s 4096 -e",
];
const PINGPONG_SRQ: &[&str] = &[
    "-g 0 -c -n 200",
    "-g 0 -c -n 200 -e",
    "-g 0 -c -n 200 -o",
    "-g 0 -c -n 200 -s 1",
    "-g 0 -c -n 50 -s 65536 -q 4 -e",
    "-g 0 -c -n 10 -s 4194304 -q 2 -r 64",
];
const PINGPONG_XSRQ: &[&str] = &[
    "-g 0 -n 1000",
    "-g 0 -n 1000 -e",
    "-g 0 -n 1000 -o",
    "-g 0 -n 1000 -s 1",
    "-g 0 -n 100 -s 65536 -e",
    "-g 0 -n 20 -s 4194304",
];
const SEND_BW: &[&str] = &[
    "-n 10000",
    "-a",
    "-e",
    "-q 8",
    "-b",
    "-b -e",
    "-b -q 8",
    "--use-srq",
    "--use-srq -q 8",
    "--use_old_post_send",
    "-I 64 -s 64",
    "-l 16 -n 2048",
    "-Q 1",
    "--odp",
];
const SEND_LAT: &[&str] = &[
    "-n 10000",
    "-a",
    "-e",
    "--use-srq",
    "--use_old_post_send",
    "-I 64 -s 64",
];
const WRITE_BW: &[&str] = &[
    "-n 10000",
    "-a",
    "-q 8",
    "-b",
    "-b -q 8",
    "--use_old_post_send",
    "-I 64 -s 64",
    "-l 16 -n 2048",
    "--odp",
];
const WRITE_LAT: &[&str] = &["-s 64", "-a", "--use_old_post_send", "-I 64 -s 64"];
const READ_BW: &[&str] = &[
    "-n 10000",
    "-a",
    "-e",
    "-q 8",
    "-b",
    "-b -q 8",
    "--use_old_post_send",
    "-l 16 -n 2048",
    "--odp",
];
const READ_LAT: &[&str] = &["-n 10000", "-a", "-e", "--use_old_post_send"];
const ATOMIC_BW: &[&str] = &[
    "-n 10000",
    "-A CMP_AND_SWAP",
    "-e",
    "-q 8",
    "-b",
    "-b -q 8",
    "--use_old_post_send",
];
const ATOMIC_LAT: &[&str] = &["-n 10000", "-A CMP_AND_SWAP", "-e", "--use_old_post_send"];

const fn row(
    program: &'static str,
    transports: &'static [&'static str],
    options: &'static [&'static str],
) -> Row {
    Row {
        program,
        transports,
        options,
    }
}

/// Every row.
pub(crate) const TABLE: &[Row] = &[
    row("ibv_rc_pingpong", &["RC"], PINGPONG_RC),
    row("ibv_uc_pingpong", &["UC"], PINGPONG_UC),
    row("ibv_ud_pingpong", &["UD"], PINGPONG_UD),
    row("ibv_srq_pingpong", &["RC"], PINGPONG_SRQ),
    row("ibv_xsrq_pingpong", &["XRC"], PINGPONG_XSRQ),
    row("ib_send_bw", &["RC", "UC", "UD", "XRC"], SEND_BW),
    row("ib_send_lat", &["RC", "UC", "UD", "XRC"], SEND_LAT),
    row("ib_write_bw", &["RC", "UC", "XRC"], WRITE_BW),
    row("ib_write_lat", &["RC", "UC", "XRC"], WRITE_LAT),
    row("ib_read_bw", &["RC", "XRC"], READ_BW),
    row("ib_read_lat", &["RC", "XRC"], READ_LAT),
    row("ib_atomic_bw", &["RC", "XRC"], ATOMIC_BW),
    row("ib_atomic_lat", &["RC", "XRC"], ATOMIC_LAT),
];
