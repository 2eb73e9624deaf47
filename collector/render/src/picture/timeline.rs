//! Draws timelines: rows of intervals, one row for each task, operation or service. Marks the
//! critical path.

use super::axis::{nice_step, text};
use super::svg::{Anchor, Picture, Sketch, label};
use crate::humanise::duration_spaced;
use crate::show::{Ink, Interval, Kind, Timeline};

const WIDTH_PX: f64 = 1080.0;
const NAMES_PX: f64 = 300.0;
const ROW_PX: f64 = 22.0;
const TOP_PX: f64 = 34.0;
const LEGEND_PX: f64 = 40.0;
const NAME_CHARS: usize = 40;
const DEPTH_MAX: usize = 12;
/// Approximate maximum number of steps on the axis.
const TICKS: f64 = 7.0;

pub(super) fn draw(timeline: &Timeline) -> Picture {
    let bars_px = WIDTH_PX - NAMES_PX - 24.0;
    let all_ns = timeline.length_ns.max(1) as f64;
    let x = |ns: u64| NAMES_PX + (ns as f64 / all_ns * bars_px).clamp(0.0, bars_px);
    let bottom = TOP_PX + timeline.rows.len() as f64 * ROW_PX;
    let mut sketch = Sketch::default();
    let step = nice_step(all_ns / TICKS);
    for tick in 0..=(all_ns / step).floor() as u32 {
        let at_ns = f64::from(tick) * step;
        let at = NAMES_PX + at_ns / all_ns * bars_px;
        sketch.line("grid", (at, TOP_PX - 8.0), (at, bottom + 4.0));
        sketch.text(
            "tick",
            (at, TOP_PX - 14.0),
            Anchor::Middle,
            &text(at_ns, Kind::DurationNs),
        );
    }
    for (row, place) in timeline.rows.iter().zip(0..) {
        let y = TOP_PX + f64::from(place) * ROW_PX;
        if place % 2 == 1 {
            sketch.rect("band", (0.0, y), (WIDTH_PX, ROW_PX));
        }
        let depth = row.depth.min(DEPTH_MAX);
        let name = label(&row.name, NAME_CHARS - depth);
        sketch.text(
            "label",
            (6.0 + depth as f64 * 9.0, y + 15.0),
            Anchor::Start,
            &name,
        );
        for interval in &row.intervals {
            draw_interval(&mut sketch, interval, y, &row.name, &x);
        }
    }
    for (at_ns, name) in &timeline.marks {
        let at = x(*at_ns);
        sketch.line("mark", (at, TOP_PX - 8.0), (at, bottom + 4.0));
        sketch.text("label", (at - 4.0, bottom + 14.0), Anchor::End, name);
    }
    let mut at = NAMES_PX;
    for (ink, what) in timeline.legend() {
        draw_ink(&mut sketch, ink, (at, bottom + 22.0));
        sketch.text("label", (at + 26.0, bottom + 32.0), Anchor::Start, what);
        at += 52.0 + what.chars().count() as f64 * 7.2;
    }
    sketch.into_picture(WIDTH_PX, bottom + LEGEND_PX)
}

/// Draws a sample of an interval for the legend.
fn draw_ink(sketch: &mut Sketch, ink: Ink, (x, y): (f64, f64)) {
    match ink {
        Ink::Critical => sketch.rect("critical", (x, y), (20.0, 12.0)),
        Ink::Beside => sketch.rect("beside", (x, y), (20.0, 12.0)),
        Ink::Waited => sketch.line("waited", (x, y + 6.0), (x + 20.0, y + 6.0)),
        Ink::Slack => sketch.line("slack", (x, y + 6.0), (x + 20.0, y + 6.0)),
    }
}

fn draw_interval(
    sketch: &mut Sketch,
    interval: &Interval,
    y: f64,
    of: &str,
    x: &impl Fn(u64) -> f64,
) {
    let (from, to) = (x(interval.from_ns), x(interval.to_ns));
    let middle = y + ROW_PX / 2.0;
    if interval.is_critical && interval.waited_ns > 0 {
        let since = x(interval.from_ns.saturating_sub(interval.waited_ns));
        sketch.line("waited", (since, middle), (from, middle));
    }
    if !interval.is_critical && interval.slack_ns > 0 {
        let slack_end = x(interval.to_ns.saturating_add(interval.slack_ns));
        sketch.line("slack", (to, middle), (slack_end, middle));
    }
    let took = duration_spaced(interval.to_ns.saturating_sub(interval.from_ns) as f64);
    // The shortest intervals are one px wide, so that they are visible. An edge also marks the
    // critical path.
    let class = if interval.is_critical {
        "critical"
    } else {
        "beside"
    };
    let name = format!("{of}: {took}");
    sketch.named_rect(
        class,
        (from, y + 4.0),
        ((to - from).max(1.0), ROW_PX - 8.0),
        &name,
    );
}
