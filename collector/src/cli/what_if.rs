//! `what-if`

use clap::Args;
use regex::Regex;
use serde_json::{Value, json};
use std::time::Duration;
use stroboscope_analysis::label::{Labels, SegmentId, SegmentLabel};
use stroboscope_analysis::what_if::Change;
use tokio::runtime::Runtime;

use super::arguments::{CategoryArguments, ReadingArguments, parse_duration};
use super::critical_path::{distribution_json, name};
use super::infer::prepare;
use super::output::{Table, print, print_json};
use super::{Failure, Status, notes};
use crate::figures::{duration, percent};
use crate::query::{CategoryChoice, WhatIfReport, segments_of, what_if};

/// Most changed segments listed in the text.
const SEGMENTS_SHOWN: usize = 10;

/// Say how fast requests would be if a segment took less time, or more
///
/// Every request is replayed by the model: a segment starts when the last of those that must come before it has
/// ended, and waits that nobody logged stay as long as they were. The replay knows only the relations of the model:
/// what a change does to queues, caches or other requests is not in it.
#[derive(Debug, Args)]
#[command(
    group(clap::ArgGroup::new("which").required(true).args(["segment", "operation", "category"])),
    group(clap::ArgGroup::new("change").required(true).args(["scale", "cap", "add"]))
)]
pub struct WhatIfVerb {
    #[command(flatten)]
    reading: ReadingArguments,
    /// Change the segments that match: a regular expression over `task [start … end]`, as the verbs print segments
    #[arg(long, value_name = "REGEX")]
    segment: Option<Regex>,
    /// Change all segments of an operation, as `critical-path` prints operations
    #[arg(long, value_name = "NAME")]
    operation: Option<String>,
    /// Change all segments of a category, as `critical-path` prints categories
    #[arg(long, value_name = "NAME")]
    category: Option<String>,
    #[command(flatten)]
    categories: CategoryArguments,
    /// Multiply their durations
    #[arg(long, value_name = "FACTOR", value_parser = parse_factor)]
    scale: Option<f64>,
    /// Let none of them take longer
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    cap: Option<Duration>,
    /// Let each of them take so much longer
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    add: Option<Duration>,
}

fn parse_factor(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(factor) if factor.is_finite() && factor >= 0.0 => Ok(factor),
        _ => Err("a number from 0 up, such as 0.5".to_owned()),
    }
}

/// Whole nanoseconds; what is longer than 584 years counts as that.
pub(super) fn to_ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl WhatIfVerb {
    pub(super) fn run(self, runtime: &Runtime) -> Result<Status, Failure> {
        let change = self.change()?;
        let (source, selection, inference) = prepare(&self.reading, runtime)?;
        let of_category = match &self.category {
            Some(name) => {
                let choice = CategoryChoice { rule: self.categories.rule(), name: name.clone() };
                Some(segments_of(&source, selection, &inference, &choice).map_err(Failure::of)?)
            }
            None => None,
        };
        let is_chosen = |id: SegmentId, label: &SegmentLabel| {
            of_category.as_ref().is_some_and(|is_of| is_of(id))
                || self.segment.as_ref().is_some_and(|pattern| pattern.is_match(&label.to_string()))
                || self.operation.as_ref().is_some_and(|operation| *operation == label.operation())
        };
        let report = what_if(&source, selection, &inference, change, is_chosen).map_err(Failure::of)?;
        let labels = inference.model.labels();
        if self.reading.json {
            print_json(&to_json(&report, change, labels))?;
        } else {
            print(&to_text(&report, change, labels))?;
        }
        Ok(notes::tell(&report.notes))
    }

    fn change(&self) -> Result<Change, Failure> {
        match (self.scale, self.cap, self.add) {
            (Some(factor), None, None) => Ok(Change::Scale(factor)),
            (None, Some(cap), None) => Ok(Change::CapNs(to_ns(cap))),
            (None, None, Some(more)) => Ok(Change::AddNs(to_ns(more))),
            _ => Err(Failure("give one of --scale, --cap and --add".to_owned())),
        }
    }
}

fn change_json(change: Change) -> Value {
    match change {
        Change::Scale(factor) => json!({"scale": factor}),
        Change::CapNs(cap_ns) => json!({"cap_ns": cap_ns}),
        Change::AddNs(more_ns) => json!({"add_ns": more_ns}),
    }
}

fn to_json(report: &WhatIfReport, change: Change, labels: &Labels) -> Value {
    let latency = &report.latency;
    // Both latencies are below 2⁶³ ns, as they are differences of timestamps, unless a change made them longer.
    let change_ns = |quantile: f64| i64::try_from(latency.change_ns(quantile)).unwrap_or(i64::MAX);
    let segment = |id: &SegmentId| {
        let label = labels.get(*id);
        json!({
            "segment": id.0,
            "task": label.map(|label| &*label.task),
            "start": label.map(|label| &*label.start),
            "end": label.map(|label| &*label.end),
        })
    };
    let mut keys = notes::keys(&report.notes);
    keys.insert("used_traces".into(), latency.before.count().into());
    keys.insert("change".into(), change_json(change));
    keys.insert("segments".into(), report.segments.iter().map(segment).collect::<Vec<Value>>().into());
    keys.insert("before".into(), distribution_json(&latency.before));
    keys.insert("after".into(), distribution_json(&latency.after));
    keys.insert(
        "latency_change".into(),
        json!({
            "mean_ns": latency.after.mean_ns() - latency.before.mean_ns(),
            "p50_ns": change_ns(0.50),
            "p95_ns": change_ns(0.95),
            "p99_ns": change_ns(0.99),
        }),
    );
    keys.insert("faster".into(), latency.faster.into());
    keys.insert("slower".into(), latency.slower.into());
    keys.into()
}

fn to_text(report: &WhatIfReport, change: Change, labels: &Labels) -> String {
    let latency = &report.latency;
    let change = match change {
        Change::Scale(factor) => format!("took {factor} times as long"),
        Change::CapNs(cap_ns) => format!("took {} at most", duration(cap_ns as f64)),
        Change::AddNs(more_ns) => format!("took {} longer", duration(more_ns as f64)),
    };
    let mut segments: Vec<String> =
        report.segments.iter().take(SEGMENTS_SHOWN).map(|id| format!("  {}", name(labels, *id))).collect();
    if report.segments.len() > SEGMENTS_SHOWN {
        segments.push(format!("  and {} more", report.segments.len() - SEGMENTS_SHOWN));
    }
    let mut table = Table::new(&["before", "after", "change", "", "latency"]);
    for (quantile, what) in [(0.50, "p50"), (0.95, "p95"), (0.99, "p99")] {
        let (before_ns, change_ns) =
            (latency.before.quantile_ns(quantile), latency.change_ns(quantile) as f64);
        table.row(vec![
            duration(before_ns as f64),
            duration(latency.after.quantile_ns(quantile) as f64),
            duration(change_ns),
            percent(if before_ns == 0 { 0.0 } else { change_ns / before_ns as f64 }),
            what.to_owned(),
        ]);
    }
    format!(
        "If each of these {} segments {change}:\n{}\n\nOf {} requests, {} would be faster and {} slower\n{}",
        report.segments.len(),
        segments.join("\n"),
        latency.before.count(),
        latency.faster,
        latency.slower,
        table.render()
    )
}
