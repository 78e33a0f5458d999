//! Lines of several processes, put in order of their times.
//!
//! Each process writes what it recorded every few milliseconds, so a line may come behind younger
//! ones of others. Lines are held until everybody has had time to write.

use std::collections::BTreeMap;
use std::io::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How long a line waits for older ones.
const HOLD: Duration = Duration::from_millis(100);

/// Puts lines in order and prints them.
pub(super) struct Merger {
    out: Box<dyn Write>,
    /// The beginning of a line whose end has not come.
    partial: Vec<u8>,
    /// By time, then by arrival.
    held: BTreeMap<(u64, u64), Vec<u8>>,
    count: u64,
}

impl Merger {
    pub(super) fn new(out: Box<dyn Write>) -> Self {
        let (partial, held) = (Vec::new(), BTreeMap::new());
        Self {
            out,
            partial,
            held,
            count: 0,
        }
    }

    /// Takes what was written meanwhile, and prints what is old enough; at the `end` everything.
    /// False if nobody reads any more.
    pub(super) fn feed(&mut self, text: &[u8], end: bool) -> bool {
        let mut whole = std::mem::take(&mut self.partial);
        whole.extend(text);
        for line in whole.split_inclusive(|byte| *byte == b'\n') {
            if line.ends_with(b"\n") {
                self.count += 1;
                self.held.insert((time_of(line), self.count), line.to_vec());
            } else {
                self.partial = line.to_vec();
            }
        }
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let until = since.saturating_sub(HOLD).as_nanos();
        let until = u64::try_from(until).unwrap_or(u64::MAX);
        while let Some(first) = self.held.first_entry()
            && (end || first.key().0 < until)
        {
            if self.out.write_all(&first.remove()).is_err() {
                return false;
            }
        }
        self.out.flush().is_ok()
    }
}

/// The digits that a line's time is made of: `seconds.nanoseconds`, or `{"time_ns":N`.
fn time_of(line: &[u8]) -> u64 {
    let line = line.strip_prefix(b"{\"time_ns\":").unwrap_or(line);
    let mut time = 0u64;
    for byte in line.iter().filter(|byte| **byte != b'.') {
        if !byte.is_ascii_digit() {
            break;
        }
        time = time
            .saturating_mul(10)
            .saturating_add(u64::from(byte - b'0'));
    }
    time
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::rc::Rc;

    #[derive(Clone, Default)]
    struct Page(Rc<RefCell<Vec<u8>>>);

    impl Write for Page {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.borrow_mut().write(bytes)
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_come_in_order_of_time() {
        let page = Page::default();
        let mut merger = Merger::new(Box::new(page.clone()));
        let said = || String::from_utf8(page.0.borrow().clone()).unwrap();
        merger.feed(b"0000000002.000000000 b\n0000000001.0000", false);
        assert_eq!(said(), "0000000002.000000000 b\n", "old lines do not wait");
        merger.feed(b"00000 a\n9999999999.000000002 y\n", false);
        merger.feed(b"9999999999.000000001 x\n9999999999.000000002 z\n", false);
        assert_eq!(said().lines().count(), 2, "young lines wait");
        merger.feed(b"", true);
        let last: Vec<_> = said().lines().map(|line| line.chars().last()).collect();
        assert_eq!(last, ['b', 'a', 'x', 'y', 'z'].map(Some));
        assert_eq!(time_of(b"{\"time_ns\":17,"), 17);
    }
}
