//! Charts and timelines of the analysis's results.

use std::collections::BTreeMap;
use std::sync::Arc;

use stroboscope_analysis::breakdown::{Breakdown, SHARE_STEPS};
use stroboscope_analysis::convergence::ConvergencePoint;
use stroboscope_analysis::critical_path::{SegmentTiming, TracePath};
use stroboscope_analysis::distribution::Distribution;
use stroboscope_analysis::label::Labels;
use stroboscope_analysis::task_path::JOINT;

use crate::show::{Axis, Chart, Interval, Kind, Line, Timeline, TimelineRow};

/// Minimum length of an axis of durations, in ns.
const AXIS_MIN_NS: f64 = 1e3;
/// Index of the series whose line is solid.
const SOLID: usize = 2;
/// Maximum number of points in the chart of rates of change. With more points, single changes would
/// hide the trend.
const RATES_MAX: usize = 32;
/// Number of steps of a cumulative distribution of durations.
const CDF_POINTS: usize = 200;
/// Maximum number of tasks in the timeline of a request.
pub const TASKS_MAX: usize = 40;
/// Maximum number of tasks on the critical path in a timeline, if other tasks need the remaining
/// rows.
const CRITICAL_TASKS_MAX: usize = 30;

/// Plots the numbers of relations and segments against the number of traces (The Mystery Machine,
/// figure 3).
pub fn convergence(points: &[ConvergencePoint]) -> Chart {
    let of = |name: &str, style, count: fn(&ConvergencePoint) -> usize| Line {
        name: name.to_owned(),
        style,
        points: points
            .iter()
            .map(|point| (point.traces as f64, count(point) as f64))
            .collect(),
    };
    let lines = vec![
        of("mutual exclusion", 0, |point| point.mutual_exclusion),
        of("segments", 1, |point| point.segments),
        of("happens before", SOLID, |point| point.happens_before),
    ];
    let x = Axis::new("requests analysed", Kind::Count);
    let y = Axis::new("relations", Kind::Count);
    Chart::Lines { x, y, lines }
}

/// Plots new and removed relations per thousand traces against the number of traces.
pub fn changes(points: &[ConvergencePoint]) -> Chart {
    let mut before = 0;
    let (mut added, mut removed) = (Vec::new(), Vec::new());
    for some in points.chunks(points.len().div_ceil(RATES_MAX).max(1)) {
        let traces = some.last().map_or(before, |point| point.traces);
        let thousands = (traces - before).max(1) as f64 / 1e3;
        let sum =
            |count: fn(&ConvergencePoint) -> usize| some.iter().map(count).sum::<usize>() as f64;
        let rate = |sum: f64| (traces as f64, sum / thousands);
        added.push(rate(sum(|p| {
            p.changes.happens_before_added + p.changes.mutual_exclusion_added
        })));
        removed.push(rate(sum(|p| {
            p.changes.happens_before_removed + p.changes.mutual_exclusion_removed
        })));
        before = traces;
    }
    let line = |name: &str, style, points| Line {
        name: name.to_owned(),
        style,
        points,
    };
    let lines = vec![line("removed", 1, removed), line("new", SOLID, added)];
    let y = Axis {
        is_logarithmic: true,
        ..Axis::new("changes per 1000 requests", Kind::Count)
    };
    Chart::Lines {
        x: Axis::new("requests analysed", Kind::Count),
        y,
        lines,
    }
}

/// Plots a cumulative distribution of durations, up to the 99th percentile.
pub fn duration_cdf(axis: &str, distribution: &Distribution) -> Chart {
    let point = |step: usize| {
        let part = step as f64 / CDF_POINTS as f64;
        (distribution.quantile_ns(part) as f64, part)
    };
    let end_ns = distribution.quantile_ns(0.99) as f64;
    let mut points: Vec<(f64, f64)> = (0..=CDF_POINTS)
        .map(point)
        .filter(|(ns, _)| *ns <= end_ns)
        .collect();
    points.extend(
        points
            .last()
            .map(|(_, part)| (end_ns.max(AXIS_MIN_NS), *part)),
    );
    let lines = vec![Line {
        name: axis.to_owned(),
        style: SOLID,
        points,
    }];
    let x = Axis::new(axis, Kind::DurationNs);
    let y = Axis::new("of requests", Kind::Share);
    Chart::Lines { x, y, lines }
}

/// Plots each category's share of the critical path as a cumulative distribution (The Mystery
/// Machine, figure 6).
pub fn share_cdfs(names: &[String], breakdown: &Breakdown) -> Chart {
    let point = |(step, part): (usize, f64)| (step as f64 / SHARE_STEPS as f64, part);
    let line = |(style, name): (usize, &String)| Line {
        name: name.clone(),
        style,
        points: breakdown
            .share_cdf(style)
            .into_iter()
            .enumerate()
            .map(point)
            .collect(),
    };
    let x = Axis::new("share of the critical path", Kind::Share);
    let y = Axis::new("of requests", Kind::Share);
    let lines = names.iter().enumerate().map(line).collect();
    Chart::Lines { x, y, lines }
}

/// Builds the timeline of a request. Also returns the number of tasks for which there is no room.
pub fn request_timeline(path: &TracePath, labels: &Labels) -> (Timeline, usize) {
    let (tasks, left_out) = tasks(path, labels);
    let starts_ns = path.segments.iter().map(|timing| timing.start_ns);
    let start_ns = starts_ns.min().unwrap_or(0);
    // The timeline also covers the work after the answer, which the latency does not include.
    let after = path.after_answer.as_ref();
    let after_ns = after.map_or(0, |after| after.duration_ns);
    let since = |ns: i64| u64::try_from(ns.saturating_sub(start_ns)).unwrap_or(0);
    let interval = |timing: &&SegmentTiming| Interval {
        from_ns: since(timing.start_ns),
        to_ns: since(timing.end_ns),
        is_critical: timing.critical,
        waited_ns: timing.wait_ns,
        slack_ns: timing.slack_ns,
    };
    let row = |(task, timings): &(Arc<str>, Vec<&SegmentTiming>)| {
        let (outer, name) = task.rsplit_once(JOINT).unwrap_or(("", task));
        let depth = if outer.is_empty() {
            0
        } else {
            outer.split(JOINT).count()
        };
        TimelineRow {
            name: name.to_owned(),
            depth,
            intervals: timings.iter().map(interval).collect(),
        }
    };
    let timeline = Timeline {
        length_ns: path.latency_ns.saturating_add(after_ns),
        marks: (after_ns > 0)
            .then(|| (path.latency_ns, "answer".to_owned()))
            .into_iter()
            .collect(),
        rows: tasks.iter().map(row).collect(),
    };
    (timeline, left_out)
}

type Task<'a> = (Arc<str>, Vec<&'a SegmentTiming>);

/// Selects the tasks with the largest part of the critical path, then those with the longest
/// segments. Returns them in order of their start, and the number of those left out.
fn tasks<'a>(path: &'a TracePath, labels: &Labels) -> (Vec<Task<'a>>, usize) {
    let mut tasks: BTreeMap<Arc<str>, Vec<&SegmentTiming>> = BTreeMap::new();
    for timing in &path.segments {
        if let Some(label) = labels.get(timing.segment) {
            tasks.entry(label.task.clone()).or_default().push(timing);
        }
    }
    let mut tasks: Vec<Task<'a>> = tasks.into_iter().collect();
    tasks.sort_by_key(|(_, timings)| {
        let critical = timings.iter().filter(|timing| timing.critical);
        let critical_ns: u64 = critical.map(|timing| timing.weight_ns()).sum();
        let is_critical = timings.iter().any(|timing| timing.critical);
        let longest_ns = timings.iter().map(|timing| timing.duration_ns()).max();
        std::cmp::Reverse((is_critical, critical_ns, longest_ns))
    });
    let left_out = tasks.len().saturating_sub(TASKS_MAX);
    let beside = tasks
        .iter()
        .position(|(_, timings)| !timings.iter().any(|timing| timing.critical));
    let others = tasks.len() - beside.unwrap_or(tasks.len());
    let critical_max = CRITICAL_TASKS_MAX.max(TASKS_MAX.saturating_sub(others));
    if let Some(beside) = beside.filter(|beside| *beside > critical_max) {
        tasks.drain(critical_max..beside);
    }
    tasks.truncate(TASKS_MAX);
    tasks.sort_by_key(|(task, timings)| {
        (
            timings.iter().map(|timing| timing.start_ns).min(),
            task.clone(),
        )
    });
    (tasks, left_out)
}
