//! Timelines: a row for each task, the critical path marked.

use plotters::element::{PathElement, Rectangle};
use plotters::style::Color as _;

use super::palette::{CRITICAL, FAINT, GREY, INK, series_color};
use super::svg::{Canvas, Drawn, Picture, PictureError, TEXT, label, write};
use crate::humanise::duration;
use crate::show::{Ink, Interval, Timeline};

const WIDTH_PX: u32 = 1080;
const NAMES_PX: i32 = 330;
const ROW_PX: i32 = 19;
const TOP_PX: i32 = 34;
/// Below the rows.
const LEGEND_PX: i32 = 34;
const NAME_CHARS: usize = 42;
/// What is deeper is indented no further.
const DEPTH_MAX: usize = 12;
/// Steps of the axis.
const TICKS: i32 = 8;
/// The series whose colour intervals beside the critical path have.
const BESIDE: usize = 4;

/// Draws a timeline. `title` is for the error.
pub(super) fn draw(title: &str, timeline: &Timeline) -> Result<Picture, PictureError> {
    let bars_px = f64::from(WIDTH_PX as i32 - NAMES_PX - 20);
    let all_ns = timeline.length_ns.max(1) as f64;
    let x = |ns: u64| NAMES_PX + (ns as f64 / all_ns * bars_px).round().clamp(0.0, bars_px) as i32;
    let height_px = TOP_PX + timeline.rows.len() as i32 * ROW_PX + LEGEND_PX;
    Picture::draw(title, (WIDTH_PX, height_px as u32), |canvas| {
        for tick in 0..=TICKS {
            let at_ns = all_ns * f64::from(tick) / f64::from(TICKS);
            let at = NAMES_PX + (bars_px * f64::from(tick) / f64::from(TICKS)) as i32;
            let line = vec![(at, TOP_PX - 6), (at, height_px - LEGEND_PX + 4)];
            canvas.draw(&PathElement::new(line, FAINT.stroke_width(1)))?;
            write(canvas, &duration(at_ns), (at - 22, 8), TEXT - 2)?;
        }
        for (at_ns, name) in &timeline.marks {
            let at = x(*at_ns);
            let line = vec![(at, TOP_PX - 6), (at, height_px - LEGEND_PX + 4)];
            canvas.draw(&PathElement::new(line, INK.stroke_width(1)))?;
            write(canvas, name, (at + 3, TOP_PX - 14), TEXT - 3)?;
        }
        for (row, y) in timeline
            .rows
            .iter()
            .zip((TOP_PX..).step_by(ROW_PX as usize))
        {
            let depth = row.depth.min(DEPTH_MAX);
            let text = label(&row.name, NAME_CHARS - depth);
            write(canvas, &text, (6 + depth as i32 * 7, y + 1), TEXT - 2)?;
            row.intervals
                .iter()
                .try_for_each(|interval| draw_interval(canvas, interval, y, &x))?;
        }
        let mut x = NAMES_PX;
        for (ink, what) in timeline.legend() {
            draw_ink(canvas, ink, (x, height_px - 20))?;
            write(canvas, what, (x + 24, height_px - 21), TEXT - 3)?;
            x += 44 + what.chars().count() as i32 * 8;
        }
        Ok(())
    })
}

/// As intervals are drawn.
fn draw_ink(canvas: &Canvas<'_>, ink: Ink, (x, y): (i32, i32)) -> Drawn {
    let line = [(x, y + 6), (x + 18, y + 6)].to_vec();
    let bar = [(x, y), (x + 18, y + 12)];
    match ink {
        Ink::Critical => {
            canvas.draw(&Rectangle::new(bar, CRITICAL.filled()))?;
            canvas.draw(&Rectangle::new(bar, INK.stroke_width(1)))?;
        }
        Ink::Beside => canvas.draw(&Rectangle::new(bar, series_color(BESIDE).filled()))?,
        Ink::Waited => canvas.draw(&PathElement::new(line, CRITICAL.stroke_width(2)))?,
        Ink::Slack => canvas.draw(&PathElement::new(line, GREY.stroke_width(1)))?,
    }
    Ok(())
}

fn draw_interval(
    canvas: &Canvas<'_>,
    interval: &Interval,
    y: i32,
    x: &impl Fn(u64) -> i32,
) -> Drawn {
    let (from, to) = (x(interval.from_ns), x(interval.to_ns));
    if interval.is_critical && interval.waited_ns > 0 {
        let waits = [
            (
                x(interval.from_ns.saturating_sub(interval.waited_ns)),
                y + 7,
            ),
            (from, y + 7),
        ];
        canvas.draw(&PathElement::new(waits.to_vec(), CRITICAL.stroke_width(2)))?;
    }
    // The shortest are one px wide, so that they can be seen.
    let corners = [(from, y + 2), (to.max(from + 1), y + ROW_PX - 4)];
    let color = if interval.is_critical {
        CRITICAL
    } else {
        series_color(BESIDE)
    };
    canvas.draw(&Rectangle::new(corners, color.filled()))?;
    if interval.is_critical && to - from > 3 {
        // Not by colour alone.
        canvas.draw(&Rectangle::new(corners, INK.stroke_width(1)))?;
    }
    if !interval.is_critical {
        let slack_end = x(interval.to_ns.saturating_add(interval.slack_ns));
        let middle = y + ROW_PX / 2 - 1;
        let line = vec![(to, middle), (slack_end, middle)];
        canvas.draw(&PathElement::new(line, GREY.stroke_width(1)))?;
    }
    Ok(())
}
