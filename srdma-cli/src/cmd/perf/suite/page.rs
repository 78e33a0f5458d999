//! The page of `--html`: a table of all rows and four plots, in one file that loads nothing.

use super::group::Plot;
use super::plot::{Chart, Series, escape, put};
use super::result::Row;
use super::sample::Metric;
use crate::units;

/// Everything between `<style>` and `</style>`.
const STYLE: &str = "
body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:74rem;padding:0 1rem;color:#222}
h1{font-size:1.5rem}h2{font-size:1.1rem;margin-top:2rem}
table{border-collapse:collapse;width:100%}td,th{padding:.2rem .6rem;text-align:left}
tbody tr:nth-child(odd){background:#f4f6f8}th.group{padding-top:1rem;background:#fff}
td.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
.holds{color:#2c7a43}.missed{color:#b3372a}.none{color:#777}
.plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(30rem,1fr));gap:1rem}
figure{margin:0;border:1px solid #ddd;padding:.5rem}figcaption span{margin-right:1rem}
svg{width:100%;height:auto}svg text{font-size:12px;fill:#444}svg .title{font-size:15px;fill:#222}
svg .y{text-anchor:end}svg .x{text-anchor:middle}svg .grid{stroke:#e4e4e4}
svg .axis{fill:none;stroke:#888}svg .line{fill:none;stroke-width:2}
";

/// The whole page.
pub(super) fn page(heading: &str, rows: &[Row]) -> String {
    let mut out = String::from("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n");
    put(
        &mut out,
        format_args!(
            "<meta charset=\"utf-8\"/>\n<title>srdma perf suite</title>\n<style>{STYLE}</style>\n\
             </head>\n<body>\n<h1>srdma perf suite</h1>\n<p>{}; {}</p>\n",
            escape(heading),
            today()
        ),
    );
    out.push_str("<div class=\"plots\">\n");
    for chart in charts(rows) {
        out.push_str(&chart.svg());
    }
    out.push_str("</div>\n");
    table(&mut out, rows);
    out.push_str(
        "<p>Limit: what a figure is compared with in the same round, bare sockets for most. Ratio: \
         figure divided by limit, the median of all rounds, and in brackets the lowest and the \
         highest.</p>\n</body>\n</html>\n",
    );
    out
}

/// The day, in UTC.
fn today() -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let days = now.map_or(0, |since| since.as_secs() / 86_400);
    let (year, month, day) = civil(days);
    format!("{year:04}-{month:02}-{day:02}")
}

/// The date of a day after 1970-01-01: years begin in March, so that leap days come last.
const fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 {
        (month + 3, 0)
    } else {
        (month - 9, 1)
    };
    (year + era * 400 + next, month, day)
}

fn table(out: &mut String, rows: &[Row]) {
    out.push_str(
        "<h2>Figures and goals</h2>\n<table>\n<thead><tr><th></th><th>figure</th><th>limit</th>\
         <th>against</th><th>ratio</th><th>goal</th><th></th></tr></thead>\n<tbody>\n",
    );
    let mut group = "";
    for row in rows {
        if row.group != group {
            group = row.group;
            let title = escape(group);
            put(
                out,
                format_args!("<tr><th class=\"group\" colspan=\"7\">{title}</th></tr>\n"),
            );
        }
        line(out, row);
    }
    out.push_str("</tbody>\n</table>\n");
}

fn line(out: &mut String, row: &Row) {
    let name = escape(&row.row);
    if let Some(why) = row.skipped.as_ref().or(row.failed.as_ref()) {
        let what = if row.skipped.is_some() {
            "skipped"
        } else {
            "failed"
        };
        let why = escape(why);
        put(
            out,
            format_args!(
                "<tr><td>{name}</td><td class=\"none\" colspan=\"6\">{what}: {why}</td></tr>\n"
            ),
        );
        return;
    }
    let show = |value: Option<f64>| value.map_or_else(String::new, |value| row.metric.show(value));
    let ratio = row
        .ratio
        .map_or_else(String::new, |ratio| format!("{ratio:.2}"));
    let spread = row.spread.filter(|_| row.rounds > 1);
    let spread = spread.map_or_else(String::new, |[low, high]| format!(" [{low:.2}, {high:.2}]"));
    let (class, verdict) = match row.holds {
        Some(true) => ("holds", "holds"),
        Some(false) => ("missed", "missed"),
        None => ("none", ""),
    };
    let cells = [show(row.figure), show(row.limit)].map(|text| escape(&text));
    let [figure, limit] = cells;
    let against = escape(row.against.unwrap_or_default());
    let goal = escape(row.goal.as_deref().unwrap_or_default());
    put(
        out,
        format_args!(
            "<tr><td>{name}</td><td class=\"n\">{figure}</td><td class=\"n\">{limit}</td>\
             <td>{against}</td><td class=\"n\">{ratio}{spread}</td><td class=\"n\">{goal}</td>\
             <td class=\"{class}\">{verdict}</td></tr>\n"
        ),
    );
}

/// The plots, with what rows say where they stand.
fn charts(rows: &[Row]) -> [Chart; 4] {
    let chart = |plot, title, x_name, show_x, metric: fn(f64) -> String, log_y| Chart {
        title,
        x_name,
        show_x,
        show_y: metric,
        log_y,
        series: series(rows, plot),
    };
    [
        chart(
            Plot::Throughput,
            "Throughput by size",
            "bytes of a message",
            show_size,
            |y| Metric::Bytes.show(y),
            true,
        ),
        chart(
            Plot::Latency,
            "Round trip by size, polling",
            "bytes of a message",
            show_size,
            |y| Metric::P50.show(y),
            true,
        ),
        chart(
            Plot::Rate,
            "Message rate by queue pairs",
            "queue pairs",
            |x| format!("{x:.0}"),
            |y| Metric::Messages.show(y),
            false,
        ),
        chart(
            Plot::Goodput,
            "Goodput by loss",
            "packets lost in each direction",
            |x| {
                if x > 0.01 {
                    format!("{x} %")
                } else {
                    "none".to_owned()
                }
            },
            |y| Metric::Bytes.show(y),
            false,
        ),
    ]
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "it was a u32 before it was drawn"
)]
fn show_size(x: f64) -> String {
    units::size(x as u32)
}

/// Lines of a plot: figures by their names, then what they are compared with.
fn series(rows: &[Row], plot: Plot) -> Vec<Series> {
    let mut figures: Vec<Series> = Vec::new();
    let mut limits: Vec<Series> = Vec::new();
    for row in rows {
        let Some((_, name, x)) = row.point.filter(|(of, ..)| *of == plot) else {
            continue;
        };
        if let Some(figure) = row.figure {
            add(&mut figures, name, (x, figure), false);
        }
        if let (Some(limit), Some(against)) = (row.limit, row.against) {
            add(&mut limits, against, (x, limit), true);
        }
    }
    figures.append(&mut limits);
    figures
}

/// Adds a point to the line of that name. Of two at one place the first stays.
fn add(all: &mut Vec<Series>, name: &str, point: (f64, f64), is_limit: bool) {
    let at = all.iter().position(|series| series.name == name);
    let at = at.unwrap_or_else(|| {
        all.push(Series {
            name: name.to_owned(),
            is_limit,
            points: Vec::new(),
        });
        all.len() - 1
    });
    let Some(series) = all.get_mut(at).filter(|_| point.1 > 0.0) else {
        return;
    };
    let place = series
        .points
        .binary_search_by(|old| old.0.total_cmp(&point.0));
    if let Err(place) = place {
        series.points.insert(place, point);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::perf::suite::group::{Against, Goal, Group};
    use crate::cmd::perf::suite::result;
    use crate::cmd::perf::suite::sample::{Missing, Sample};

    fn rows() -> Vec<Row> {
        let mut group = Group::new("bandwidth & <more>", 1);
        for (number, size) in [(1, 64.0), (2, 4096.0)] {
            let against = Against::Measure(0, "pump");
            let line = group.line("WRITE \"x\"", number, Metric::Bytes, against);
            line.goal(Goal::AtLeast(0.9))
                .point(Plot::Throughput, "WRITE", size);
        }
        let found = |bytes| vec![Ok(Sample::default().with(Metric::Bytes, bytes))];
        let missing = vec![Err(Missing::Skipped("no <network>".to_owned()))];
        let mut rows = result::rows(&group, &[found(4e9), found(1e9), found(3.7e9)]);
        rows.extend(result::rows(&group, &[found(4e9), missing, found(3e9)]));
        rows
    }

    /// Every element is closed in its order, and every attribute quoted.
    fn check_form(page: &str) {
        let mut open = Vec::new();
        let body = page.strip_prefix("<!DOCTYPE html>").unwrap();
        let mut rest = body;
        while let Some(start) = rest.find('<') {
            let (text, tag) = rest.split_at(start);
            assert!(!text.contains('>'), "a bare > in {text}");
            let end = tag.find('>').unwrap();
            let inside = &tag[1..end];
            rest = &tag[end + 1..];
            let name = inside
                .trim_start_matches('/')
                .split([' ', '/'])
                .next()
                .unwrap();
            if inside.starts_with('/') {
                assert_eq!(open.pop().as_deref(), Some(name), "near {inside}");
                continue;
            }
            assert_eq!(inside.matches('"').count() % 2, 0, "{inside}");
            let quoted = inside.split('"').step_by(2).collect::<String>();
            let values = quoted.matches('=').count();
            assert_eq!(values, inside.matches("=\"").count(), "{inside}");
            if !inside.ends_with('/') {
                open.push(name.to_owned());
            }
        }
        assert!(open.is_empty(), "not closed: {open:?}");
    }

    #[test]
    fn the_page_is_well_formed_and_loads_nothing() {
        let page = page("1 CPU, Linux <x>", &rows());
        check_form(&page);
        for word in ["http", "src=", "href=", "url(", "@import", "<script"] {
            assert!(!page.contains(word), "{word}");
        }
        assert!(page.contains("bandwidth &amp; &lt;more&gt;"));
        assert!(page.contains("skipped: no &lt;network&gt;"));
        assert_eq!(
            page.matches("<svg").count(),
            1,
            "plots without points are left out"
        );
    }

    #[test]
    #[should_panic(expected = "not closed")]
    fn the_check_sees_what_is_open() {
        check_form("<!DOCTYPE html><p><b>x</b>");
    }

    #[test]
    fn lines_are_drawn_by_name_with_their_limits() {
        let lines = series(&rows(), Plot::Throughput);
        let line = |at: usize| {
            (
                lines[at].name.as_str(),
                lines[at].is_limit,
                &lines[at].points[..],
            )
        };
        assert_eq!(
            line(0),
            ("WRITE", false, &[(64.0, 1e9), (4096.0, 3.7e9)][..])
        );
        assert_eq!(line(1), ("pump", true, &[(64.0, 4e9), (4096.0, 4e9)][..]));
        assert_eq!(lines.len(), 2);
        assert!(series(&rows(), Plot::Goodput).is_empty());
    }

    #[test]
    fn days_have_dates() {
        assert_eq!(civil(0), (1970, 1, 1));
        assert_eq!(civil(11_016), (2000, 2, 29));
        assert_eq!(civil(20_787), (2026, 11, 30));
    }
}
