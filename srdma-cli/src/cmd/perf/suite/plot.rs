//! One plot as SVG: lines over logarithmic axes, limits dashed.
//!
//! ```text
//!  ┌ title ─────────────────────┐
//!  │ tick ┼───────·───────      │  a line and a dot each measurement
//!  │ tick ┼── ── ── ── ──       │  what it is compared with
//!  │      └┬─────┬─────┬        │
//!  │     tick  tick   tick      │  legend below
//!  └────────────────────────────┘
//! ```

use std::fmt::Write;

/// Size of a plot, and of the part within its axes.
const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 340.0;
const LEFT: f64 = 84.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 64.0;
/// Colours of lines, in their order.
const COLOURS: [&str; 5] = ["#1b6ca8", "#c8553d", "#3c8d53", "#7d4f9e", "#8a6d1b"];

/// A line.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Series {
    pub(super) name: String,
    /// What others are compared with.
    pub(super) is_limit: bool,
    /// In the order of x; all above zero.
    pub(super) points: Vec<(f64, f64)>,
}

/// What is drawn.
#[derive(Clone, Debug)]
pub(super) struct Chart {
    pub(super) title: &'static str,
    pub(super) x_name: &'static str,
    pub(super) show_x: fn(f64) -> String,
    pub(super) show_y: fn(f64) -> String,
    /// Otherwise y begins at zero.
    pub(super) log_y: bool,
    pub(super) series: Vec<Series>,
}

/// From values to places on one axis.
#[derive(Clone, Copy, Debug)]
struct Axis {
    low: f64,
    high: f64,
    log: bool,
    from: f64,
    to: f64,
}

impl Axis {
    fn at(&self, value: f64) -> f64 {
        let scale = |value: f64| if self.log { value.ln() } else { value };
        let (low, high) = (scale(self.low), scale(self.high));
        let share = if high > low {
            (scale(value) - low) / (high - low)
        } else {
            0.5
        };
        self.from + share * (self.to - self.from)
    }

    /// Powers of ten, or four even steps.
    fn ticks(&self) -> Vec<f64> {
        if !self.log {
            let step = nice(self.high / 4.0);
            return (0..=8)
                .map(|n| f64::from(n) * step)
                .filter(|at| *at <= self.high)
                .collect();
        }
        let powers = (-12..=15).map(|power| 10f64.powi(power));
        powers
            .filter(|at| *at >= self.low && *at <= self.high)
            .collect()
    }
}

/// 1, 2 or 5 times a power of ten, no less than `value`.
fn nice(value: f64) -> f64 {
    let power = 10f64.powf(value.max(f64::MIN_POSITIVE).log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * power);
    let found = steps.into_iter().find(|step| *step >= value);
    found.unwrap_or(value)
}

impl Chart {
    fn axes(&self) -> Option<(Axis, Axis)> {
        let points = self.series.iter().flat_map(|series| &series.points);
        let (xs, ys): (Vec<f64>, Vec<f64>) = points.copied().unzip();
        let range = |values: &[f64]| {
            let low = values.iter().copied().reduce(f64::min)?;
            let high = values.iter().copied().reduce(f64::max)?;
            Some((low, high))
        };
        let ((x_low, x_high), (y_low, y_high)) = (range(&xs)?, range(&ys)?);
        let x = Axis {
            low: x_low,
            high: x_high,
            log: true,
            from: LEFT,
            to: WIDTH - RIGHT,
        };
        let y = Axis {
            low: if self.log_y {
                10f64.powf(y_low.log10().floor())
            } else {
                0.0
            },
            high: y_high * 1.08,
            log: self.log_y,
            from: HEIGHT - BOTTOM,
            to: TOP,
        };
        Some((x, y))
    }

    /// The whole plot; empty if there is nothing to draw.
    pub(super) fn svg(&self) -> String {
        let Some((x, y)) = self.axes() else {
            return String::new();
        };
        let mut out = format!(
            "<figure><svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{0}\">\n\
             <text class=\"title\" x=\"{LEFT}\" y=\"20\">{0}</text>\n",
            escape(self.title)
        );
        self.frame(&mut out, &x, &y);
        for (number, series) in self.series.iter().enumerate() {
            line(&mut out, series, colour(number), &x, &y);
        }
        out.push_str("</svg>\n<figcaption>");
        for (number, series) in self.series.iter().enumerate() {
            let (colour, name) = (colour(number), escape(&series.name));
            let dash = if series.is_limit { "┄" } else { "━" };
            put(
                &mut out,
                format_args!("<span><b style=\"color:{colour}\">{dash}</b> {name}</span>\n"),
            );
        }
        out.push_str("</figcaption></figure>\n");
        out
    }

    fn frame(&self, out: &mut String, x: &Axis, y: &Axis) {
        let (bottom, right) = (HEIGHT - BOTTOM, WIDTH - RIGHT);
        for tick in y.ticks() {
            let (at, text) = (y.at(tick), escape(&(self.show_y)(tick)));
            put(
                out,
                format_args!(
                    "<path class=\"grid\" d=\"M{LEFT} {at:.1} H{right}\"/>\
                     <text class=\"y\" x=\"{:.1}\" y=\"{:.1}\">{text}</text>\n",
                    LEFT - 6.0,
                    at + 4.0
                ),
            );
        }
        let mut marks: Vec<f64> = Vec::new();
        let points = self.series.iter().flat_map(|series| &series.points);
        let mut xs: Vec<f64> = points.map(|point| point.0).collect();
        xs.sort_by(f64::total_cmp);
        for value in xs {
            // Every value that was measured, as long as there is room for its text.
            let at = x.at(value);
            if marks.last().is_none_or(|last| at - last > 44.0) {
                let text = escape(&(self.show_x)(value));
                put(
                    out,
                    format_args!(
                        "<text class=\"x\" x=\"{at:.1}\" y=\"{:.1}\">{text}</text>\n",
                        bottom + 18.0
                    ),
                );
                marks.push(at);
            }
        }
        put(
            out,
            format_args!(
                "<path class=\"axis\" d=\"M{LEFT} {TOP} V{bottom} H{right}\"/>\n\
                 <text class=\"x\" x=\"{:.1}\" y=\"{:.1}\">{}</text>\n",
                f64::midpoint(LEFT, right),
                HEIGHT - 22.0,
                escape(self.x_name)
            ),
        );
    }
}

fn colour(number: usize) -> &'static str {
    COLOURS
        .get(number % COLOURS.len())
        .copied()
        .unwrap_or("#000")
}

/// A line with its dots; a limit has none, and goes from edge to edge if it is one value.
fn line(out: &mut String, series: &Series, colour: &str, x: &Axis, y: &Axis) {
    let mut places: Vec<(f64, f64)> = series
        .points
        .iter()
        .map(|point| (x.at(point.0), y.at(point.1)))
        .collect();
    if series.is_limit
        && let &[(_, level)] = places.as_slice()
    {
        places = vec![(x.from, level), (x.to, level)];
    }
    let mut path = String::new();
    for (number, (x, y)) in places.iter().enumerate() {
        let step = if number == 0 { 'M' } else { 'L' };
        put(&mut path, format_args!("{step}{x:.1} {y:.1} "));
    }
    let dash = if series.is_limit {
        " stroke-dasharray=\"6 4\""
    } else {
        ""
    };
    put(
        out,
        format_args!(
            "<path class=\"line\" stroke=\"{colour}\"{dash} d=\"{}\"/>\n",
            path.trim_end()
        ),
    );
    if !series.is_limit {
        for (x, y) in places {
            put(
                out,
                format_args!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{colour}\"/>\n"),
            );
        }
    }
}

/// Appends text.
pub(super) fn put(out: &mut String, text: std::fmt::Arguments<'_>) {
    // A string takes everything.
    let _ = out.write_fmt(text);
}

/// Text that HTML takes for text.
pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axis(log: bool) -> Axis {
        Axis {
            low: if log { 1.0 } else { 0.0 },
            high: 100.0,
            log,
            from: 0.0,
            to: 200.0,
        }
    }

    #[test]
    fn values_have_their_places() {
        assert_eq!(axis(true).at(10.0), 100.0);
        assert_eq!(axis(false).at(10.0), 20.0);
        assert_eq!(axis(true).ticks(), [1.0, 10.0, 100.0]);
        assert_eq!(axis(false).ticks(), [0.0, 50.0, 100.0]);
        assert_eq!(nice(0.3), 0.5);
        assert_eq!(nice(7e9), 1e10);
    }

    #[test]
    fn limits_are_dashed_and_go_from_edge_to_edge() {
        let series = |name: &str, is_limit, points: &[(f64, f64)]| Series {
            name: name.to_owned(),
            is_limit,
            points: points.into(),
        };
        let chart = Chart {
            title: "a < b",
            x_name: "size",
            show_x: |x| format!("{x}"),
            show_y: |y| format!("{y}"),
            log_y: false,
            series: vec![
                series("ours", false, &[(1.0, 5.0), (10.0, 8.0)]),
                series("limit", true, &[(1.0, 10.0)]),
            ],
        };
        let svg = chart.svg();
        assert_eq!(svg.matches("stroke-dasharray").count(), 1);
        assert_eq!(svg.matches("<circle").count(), 2);
        assert!(svg.contains("a &lt; b"), "{svg}");
        assert!(svg.contains(&format!("d=\"M{LEFT:.1} ")), "{svg}");
        let empty = Chart {
            series: Vec::new(),
            ..chart
        };
        assert_eq!(empty.svg(), "");
    }
}
