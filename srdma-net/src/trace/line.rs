//! One line a record: text, or a JSON value.
//!
//! ```text
//! 1700000000.000000001 4711 srdma0 doorbell  queue=Sq(Qpn(0x012001))
//! {"time_ns":1700000000000000001,"pid":4711,"device":"srdma0","what":"doorbell","fields":{…},…}
//! ```
//!
//! The time stands first and has a fixed width, so that lines of several processes can be merged.

use srdma_core::trace::{Field, Record, Shown, show};
use std::fmt::Write;

/// The line of `record`, with its end.
pub(super) fn line(record: &Record<'_>, process: u32, device: &str, json: bool) -> String {
    let shown = show(record);
    if json {
        return json_line(record.time_ns, process, device, &shown);
    }
    let (secs, nanos) = (
        record.time_ns / 1_000_000_000,
        record.time_ns % 1_000_000_000,
    );
    format!(
        "{secs:010}.{nanos:09} {process} {device} {}\n",
        shown.text()
    )
}

fn json_line(time_ns: u64, process: u32, device: &str, shown: &Shown) -> String {
    let mut line = format!("{{\"time_ns\":{time_ns:019},\"pid\":{process},\"device\":");
    string(&mut line, device);
    line.push_str(",\"what\":");
    string(&mut line, shown.what);
    line.push_str(",\"fields\":{");
    for (at, field) in shown.fields.iter().enumerate() {
        line.push_str(if at == 0 { "" } else { "," });
        json_field(&mut line, field);
    }
    line.push('}');
    if !shown.words.is_empty() {
        line.push_str(",\"words\":[");
        for (at, word) in shown.words.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            let _ = write!(line, "{comma}\"{word:#018x}\"");
        }
        line.push(']');
    }
    if !shown.bytes.is_empty() {
        let _ = write!(line, ",\"bytes\":\"{}\"", shown.byte_text());
    }
    line.push_str("}\n");
    line
}

/// Name without bits; numbers and yes or no as such, everything else as a string.
fn json_field(line: &mut String, field: &Field) {
    let name = field.name.split('[').next().unwrap_or_default();
    string(line, name);
    line.push(':');
    let value = field.value.trim_matches('"');
    let number = !value.is_empty()
        && value.len() <= 15
        && value.bytes().all(|byte| byte.is_ascii_digit())
        && (value == "0" || !value.starts_with('0'));
    if number || matches!(value, "true" | "false") {
        line.push_str(value);
    } else {
        string(line, value);
    }
}

fn string(line: &mut String, text: &str) {
    line.push('"');
    for c in text.chars() {
        match c {
            '"' => line.push_str("\\\""),
            '\\' => line.push_str("\\\\"),
            c if c < ' ' => {
                let _ = write!(line, "\\u{:04x}", u32::from(c));
            }
            c => line.push(c),
        }
    }
    line.push('"');
}
