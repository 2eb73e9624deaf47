//! One request as a timeline: a row for each task, its critical path marked.

use std::collections::BTreeMap;
use std::sync::Arc;

use plotters::element::{PathElement, Rectangle};
use plotters::style::Color as _;
use stroboscope_analysis::critical_path::{SegmentTiming, TracePath};
use stroboscope_analysis::label::Labels;

use stroboscope_present::humanise::duration;
use stroboscope_present::picture::chart::{TEXT, write};
use stroboscope_present::picture::palette::{CRITICAL, FAINT, GREY, INK, series_color};
use stroboscope_present::picture::{Picture, PictureError, label};

/// Tasks shown.
pub(super) const TASKS_MAX: usize = 40;
/// Of these, tasks on the critical path; the others are beside it, so that something is seen of both.
const CRITICAL_TASKS_MAX: usize = 30;
const WIDTH_PX: u32 = 1080;
const NAMES_PX: i32 = 330;
const ROW_PX: i32 = 19;
const TOP_PX: i32 = 34;
const NAME_CHARS: usize = 42;
/// Steps of the axis.
const TICKS: i32 = 8;

/// Draws a request; also, how many of its tasks there was no room for.
pub(super) fn draw(path: &TracePath, labels: &Labels) -> Result<(Picture, usize), PictureError> {
    let (tasks, left_out) = rows(path, labels);
    let start_ns = path.segments.iter().map(|timing| timing.start_ns).min().unwrap_or(0);
    let bars_px = f64::from(WIDTH_PX as i32 - NAMES_PX - 20);
    // Latency includes the tail, which no segment has.
    let after_ns = path.after_answer.as_ref().map_or(0, |after| after.duration_ns);
    let all_ns = path.latency_ns.saturating_add(after_ns).max(1) as f64;
    let answer = NAMES_PX + (path.latency_ns as f64 / all_ns * bars_px).round() as i32;
    let x = |ns: i64| {
        NAMES_PX
            + ((ns.saturating_sub(start_ns)) as f64 / all_ns * bars_px).round().clamp(0.0, bars_px) as i32
    };
    let height_px = TOP_PX + tasks.len() as i32 * ROW_PX + 12;
    let picture = Picture::draw("a timeline", (WIDTH_PX, height_px as u32), |canvas| {
        for tick in 0..=TICKS {
            let at_ns = all_ns * f64::from(tick) / f64::from(TICKS);
            let at = NAMES_PX + (bars_px * f64::from(tick) / f64::from(TICKS)) as i32;
            canvas.draw(&PathElement::new(
                vec![(at, TOP_PX - 6), (at, height_px - 8)],
                FAINT.stroke_width(1),
            ))?;
            write(canvas, &duration(at_ns), (at - 22, 8), TEXT - 2)?;
        }
        if after_ns > 0 {
            canvas.draw(&PathElement::new(
                vec![(answer, TOP_PX - 6), (answer, height_px - 8)],
                INK.stroke_width(1),
            ))?;
            write(canvas, "answer", (answer + 3, TOP_PX - 14), TEXT - 3)?;
        }
        for (row, (task, timings)) in tasks.iter().enumerate() {
            let y = TOP_PX + row as i32 * ROW_PX;
            let (outer, name) = task.rsplit_once(" > ").unwrap_or(("", task));
            let depth = if outer.is_empty() { 0 } else { outer.split(" > ").count().min(12) };
            let text = label(name, NAME_CHARS - depth);
            write(canvas, &text, (6 + depth as i32 * 7, y + 1), TEXT - 2)?;
            for timing in timings {
                let (from, to) = (x(timing.start_ns), x(timing.end_ns));
                if timing.critical && timing.wait_ns > 0 {
                    let waits =
                        [(x(timing.start_ns.saturating_sub_unsigned(timing.wait_ns)), y + 7), (from, y + 7)];
                    canvas.draw(&PathElement::new(waits.to_vec(), CRITICAL.stroke_width(2)))?;
                }
                // The shortest segments are one px wide, so that they can be seen.
                let corners = [(from, y + 2), (to.max(from + 1), y + ROW_PX - 4)];
                let color = if timing.critical { CRITICAL } else { series_color(4) };
                canvas.draw(&Rectangle::new(corners, color.filled()))?;
                if timing.critical && to - from > 3 {
                    // Not by colour alone.
                    canvas.draw(&Rectangle::new(corners, INK.stroke_width(1)))?;
                }
                if !timing.critical {
                    let slack_end = x(timing.end_ns.saturating_add_unsigned(timing.slack_ns));
                    let middle = y + ROW_PX / 2 - 1;
                    canvas.draw(&PathElement::new(
                        vec![(to, middle), (slack_end, middle)],
                        GREY.stroke_width(1),
                    ))?;
                }
            }
        }
        Ok(())
    })?;
    Ok((picture, left_out))
}

type Row<'a> = (Arc<str>, Vec<&'a SegmentTiming>);

/// The tasks with the most of the critical path, then the longest; shown in order of their start.
fn rows<'a>(path: &'a TracePath, labels: &Labels) -> (Vec<Row<'a>>, usize) {
    let mut tasks: BTreeMap<Arc<str>, Vec<&SegmentTiming>> = BTreeMap::new();
    for timing in &path.segments {
        if let Some(label) = labels.get(timing.segment) {
            tasks.entry(label.task.clone()).or_default().push(timing);
        }
    }
    let mut rows: Vec<Row<'a>> = tasks.into_iter().collect();
    rows.sort_by_key(|(_, timings)| {
        let critical_ns: u64 =
            timings.iter().filter(|timing| timing.critical).map(|timing| timing.weight_ns()).sum();
        let is_critical = timings.iter().any(|timing| timing.critical);
        let longest_ns = timings.iter().map(|timing| timing.duration_ns()).max();
        std::cmp::Reverse((is_critical, critical_ns, longest_ns))
    });
    let left_out = rows.len().saturating_sub(TASKS_MAX);
    let beside = rows.iter().position(|(_, timings)| !timings.iter().any(|timing| timing.critical));
    let others = rows.len() - beside.unwrap_or(rows.len());
    let critical_max = CRITICAL_TASKS_MAX.max(TASKS_MAX.saturating_sub(others));
    if let Some(beside) = beside.filter(|beside| *beside > critical_max) {
        rows.drain(critical_max..beside);
    }
    rows.truncate(TASKS_MAX);
    rows.sort_by_key(|(task, timings)| (timings.iter().map(|timing| timing.start_ns).min(), task.clone()));
    (rows, left_out)
}
