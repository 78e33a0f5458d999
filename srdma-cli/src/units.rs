//! Numbers for people: bytes, rates and times with three digits and a unit.
//!
//! Decimal units: 1 GB/s is 10^9 bytes a second. Sizes of messages are binary (1 MiB), as they are
//! asked for.

/// `1234567890` as `1.23 GB/s`.
pub(crate) fn bytes_per_sec(value: f64) -> String {
    scaled(value, &["B/s", "kB/s", "MB/s", "GB/s", "TB/s"])
}

/// `1234567` as `1.23 M msg/s`.
pub(crate) fn msgs_per_sec(value: f64) -> String {
    scaled(value, &["msg/s", "k msg/s", "M msg/s", "G msg/s"])
}

/// `1234567` as `1.23 M/s`.
pub(crate) fn per_sec(value: f64) -> String {
    scaled(value, &["/s", "k/s", "M/s", "G/s"])
}

/// `12345` nanoseconds as `12.3 µs`.
pub(crate) fn nanos(value: u64) -> String {
    #[allow(
        clippy::cast_precision_loss,
        reason = "three digits are shown, and 2^53 ns are a hundred days"
    )]
    let value = value as f64;
    scaled(value, &["ns", "µs", "ms", "s"])
}

/// `65536` as `64 KiB`.
pub(crate) fn size(bytes: u32) -> String {
    let units = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    let unit = units
        .iter()
        .find(|&&(unit, _)| bytes >= unit && bytes.is_multiple_of(unit));
    unit.map_or_else(
        || format!("{bytes} B"),
        |(unit, name)| format!("{} {name}", bytes / unit),
    )
}

/// Three significant digits, with the largest unit of a step of 1000 that leaves at least 1.
fn scaled(mut value: f64, units: &[&str]) -> String {
    let mut names = units.iter();
    let mut name = names.next().copied().unwrap_or_default();
    // 999.5 would be rounded to 1000.
    while value >= 999.5
        && let Some(next) = names.next()
    {
        value /= 1000.0;
        name = next;
    }
    let digits = match value {
        v if v >= 99.95 => 0,
        v if v >= 9.995 => 1,
        _ => 2,
    };
    format!("{value:.digits$} {name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits_and_a_unit() {
        assert_eq!(bytes_per_sec(3_214_000_000.0), "3.21 GB/s");
        assert_eq!(msgs_per_sec(12_340_000.0), "12.3 M msg/s");
        assert_eq!(msgs_per_sec(0.0), "0.00 msg/s");
        assert_eq!(per_sec(20_000.0), "20.0 k/s");
        assert_eq!(nanos(999), "999 ns");
        assert_eq!(nanos(4_213), "4.21 µs");
        assert_eq!(nanos(999_600), "1.00 ms");
        assert_eq!(size(64), "64 B");
        assert_eq!(size(65_536), "64 KiB");
        assert_eq!(size(1 << 20), "1 MiB");
        assert_eq!(size(1_000_000), "1000000 B");
    }
}
