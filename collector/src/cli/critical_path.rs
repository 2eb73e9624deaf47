//! `critical-path`

use clap::Args;
use serde_json::{Value, json};
use stroboscope_analysis::aggregate::PathStatistics;
use stroboscope_analysis::distribution::Distribution;
use stroboscope_analysis::label::{Labels, SegmentId};
use tokio::runtime::Runtime;

use super::arguments::{CategoryArguments, ReadingArguments};
use super::infer::prepare;
use super::output::{Table, print, print_json};
use super::strata::{path_cdfs_json, path_cdfs_text, strata_json, strata_text};
use super::{Failure, Status, notes};
use crate::figures::{duration, percent};
use crate::import::trace_id;
use crate::query::{
    CategoryTotals, Inference, Notes, Paths, Selection, Source, StrataRule, TraceAnswer, aggregate_by,
    breakdown, each_path,
};

/// Say what requests' latency is made of
///
/// Without --trace: for each segment, in how many requests it is critical, its mean share of the critical path, and
/// how long it takes; and the same by category: a client span's own time is network, what is below a server's span is
/// server, all else client. Summed delay adds up all segments, whatever ran at once.
///
/// With --by: requests are put into strata by the value of an attribute, or by quantiles of one that is a number.
///
/// With --trace: one request, segment by segment.
#[derive(Debug, Args)]
pub struct CriticalPath {
    #[command(flatten)]
    reading: ReadingArguments,
    /// One trace, by its id or the name its source gave it
    #[arg(long, value_name = "ID", conflicts_with = "each")]
    trace: Option<String>,
    /// Every trace: one JSON document a line, with or without --json
    #[arg(long)]
    each: bool,
    /// Show latency and categories for each value of this attribute of requests; of one that is a number and has many
    /// values, for each fifth of them
    #[arg(long, value_name = "ATTRIBUTE", conflicts_with_all = ["trace", "each"])]
    by: Option<String>,
    /// With --by, show so many quantiles of the attribute
    #[arg(long, value_name = "COUNT", requires = "by", value_parser = clap::value_parser!(u8).range(2..=50))]
    quantiles: Option<u8>,
    /// Show the distributions of latency and of each category's share of the critical path
    #[arg(long, conflicts_with_all = ["trace", "each"])]
    cdf: bool,
    #[command(flatten)]
    categories: CategoryArguments,
    /// Show so many segments; 0 shows all
    #[arg(long, value_name = "COUNT", default_value_t = 25)]
    top: usize,
}

impl CriticalPath {
    pub(super) fn run(self, runtime: &Runtime) -> Result<Status, Failure> {
        let (source, selection, inference) = prepare(&self.reading, runtime)?;
        if let Some(trace) = &self.trace {
            return self.one(trace, &source, &inference);
        }
        if self.each {
            return each(&source, selection, &inference);
        }
        if self.by.is_some() || self.cdf {
            return self.broken_down(&source, selection, &inference);
        }
        let rule = self.categories.rule();
        let paths = aggregate_by(&source, selection, &inference, &rule).map_err(Failure::of)?;
        if self.reading.json {
            print_json(&aggregate_json(&paths, &inference))?;
        } else {
            print(&aggregate_text(&paths, inference.model.labels(), self.top))?;
        }
        Ok(notes::tell(&paths.notes))
    }

    fn broken_down(
        &self,
        source: &Source,
        selection: Selection,
        inference: &Inference,
    ) -> Result<Status, Failure> {
        let by = self
            .by
            .clone()
            .map(|attribute| StrataRule { attribute, quantiles: self.quantiles.map(usize::from) });
        let rule = self.categories.rule();
        let report = breakdown(source, selection, inference, &rule, by.as_ref()).map_err(Failure::of)?;
        if self.reading.json {
            let mut keys = notes::keys(&report.notes);
            keys.insert("used_traces".into(), report.whole.requests.into());
            keys.insert("latency".into(), distribution_json(&report.whole.latency));
            if let Some(by) = &by {
                keys.insert("by".into(), strata_json(&report, &by.attribute));
            }
            if self.cdf {
                keys.insert("cdf".into(), path_cdfs_json(&report));
            }
            print_json(&keys.into())?;
        } else {
            let mut parts = vec![format!("{} requests", report.whole.requests)];
            parts.extend(by.map(|by| strata_text(&report, &by.attribute)));
            parts.extend(self.cdf.then(|| path_cdfs_text(&report)));
            print(&parts.join("\n\n"))?;
        }
        Ok(notes::tell(&report.notes))
    }

    fn one(&self, trace: &str, source: &Source, inference: &Inference) -> Result<Status, Failure> {
        let id = trace_id(trace);
        let mut found = None;
        // Asked for by name, an incomplete trace is shown too, and said to be incomplete.
        let selection = Selection { include_incomplete: true, ..Selection::default() };
        let noted = each_path(source, selection, inference, |answer| {
            if answer.id.0 == id {
                found = Some(answer);
            }
            found.is_none()
        });
        let noted: Notes = noted.map_err(Failure::of)?;
        let Some(answer) = found else {
            let no_such =
                crate::query::QueryError::NoSuchTrace { trace: trace.to_owned(), data: source.name() };
            return Err(Failure::of(no_such));
        };
        if self.reading.json {
            print_json(&trace_json(&answer, inference.model.labels()))?;
        } else {
            print(&trace_text(&answer, inference.model.labels()))?;
        }
        Ok(if noted.damage.is_empty() { Status::Done } else { notes::tell(&noted) })
    }
}

fn each(source: &Source, selection: Selection, inference: &Inference) -> Result<Status, Failure> {
    let mut failure = None;
    let noted = each_path(source, selection, inference, |answer| {
        failure = print_json(&trace_json(&answer, inference.model.labels())).err();
        failure.is_none()
    });
    let noted = noted.map_err(Failure::of)?;
    failure.map_or_else(|| Ok(notes::tell(&noted)), Err)
}

fn trace_json(answer: &TraceAnswer, labels: &Labels) -> Value {
    let segments: Vec<Value> = answer
        .path
        .segments
        .iter()
        .map(|timing| {
            let label = labels.get(timing.segment);
            json!({
                "segment": timing.segment.0,
                "task": label.map(|label| &*label.task),
                "start": label.map(|label| &*label.start),
                "end": label.map(|label| &*label.end),
                "start_ns": timing.start_ns,
                "end_ns": timing.end_ns,
                "wait_ns": timing.wait_ns,
                "critical": timing.critical,
                "slack_ns": timing.slack_ns,
            })
        })
        .collect();
    json!({
        "trace": answer.label(),
        "trace_id": answer.id.to_string(),
        "latency_ns": answer.path.latency_ns,
        "critical_path_ns": answer.path.critical_path_ns,
        "tail_wait_ns": answer.path.tail_wait_ns,
        "segments": segments,
    })
}

fn trace_text(answer: &TraceAnswer, labels: &Labels) -> String {
    let path = &answer.path;
    let first_ns = path.segments.first().map_or(0, |timing| timing.start_ns);
    let mut table = Table::new(&["from", "takes", "after waiting", "slack", "critical", "segment"]);
    for timing in &path.segments {
        table.row(vec![
            duration((timing.start_ns - first_ns) as f64),
            duration(timing.duration_ns() as f64),
            duration(timing.wait_ns as f64),
            duration(timing.slack_ns as f64),
            if timing.critical { "*".to_owned() } else { String::new() },
            name(labels, timing.segment),
        ]);
    }
    let tail = match path.tail_wait_ns {
        0 => String::new(),
        tail_ns => format!("\nAfter the last segment, the request went on for {}.", duration(tail_ns as f64)),
    };
    format!("Trace {}: {}\n{}{tail}", answer.label(), duration(path.latency_ns as f64), table.render())
}

pub(super) fn name(labels: &Labels, id: SegmentId) -> String {
    labels.get(id).map_or_else(|| format!("segment {}", id.0), ToString::to_string)
}

pub(super) fn distribution_json(distribution: &Distribution) -> Value {
    let percentiles = distribution.percentiles();
    json!({
        "mean_ns": distribution.mean_ns(),
        "p50_ns": percentiles.p50_ns,
        "p95_ns": percentiles.p95_ns,
        "p99_ns": percentiles.p99_ns,
        "max_ns": distribution.max_ns(),
    })
}

/// Sums over many requests fit into JSON's integers up to 584 years.
fn to_json_ns(sum_ns: u128) -> u64 {
    u64::try_from(sum_ns).unwrap_or(u64::MAX)
}

fn aggregate_json(paths: &Paths, inference: &Inference) -> Value {
    let (labels, traces) = (inference.model.labels(), paths.aggregate.traces());
    let segment = |(id, statistics): (SegmentId, &PathStatistics)| {
        let label = labels.get(id);
        json!({
            "segment": id.0,
            "task": label.map(|label| &*label.task),
            "start": label.map(|label| &*label.start),
            "end": label.map(|label| &*label.end),
            "traces": statistics.traces,
            "occurrences": statistics.occurrences,
            "critical_traces": statistics.critical_traces,
            "mean_share": statistics.shares().mean(traces),
            "mean_duration_share": statistics.duration_shares.mean(traces),
            "mean_wait_share": statistics.wait_shares.mean(traces),
            "duration": distribution_json(&statistics.duration),
            "slack": distribution_json(&statistics.slack),
        })
    };
    let operations: Vec<Value> = operations(paths, labels)
        .into_iter()
        .map(|(name, share, occurrences)| json!({"operation": name, "mean_share": share, "occurrences": occurrences}))
        .collect();
    let category = |totals: &CategoryTotals| {
        json!({
            "category": totals.category,
            "mean_share": totals.shares.mean(traces),
            "critical_ns": to_json_ns(totals.critical_ns()),
            "critical_duration_ns": to_json_ns(totals.critical_duration_ns),
            "critical_wait_ns": to_json_ns(totals.critical_wait_ns),
            "summed_delay_ns": to_json_ns(totals.summed_delay_ns),
        })
    };
    let mut keys = notes::keys(&paths.notes);
    keys.insert("used_traces".into(), traces.into());
    keys.insert("latency".into(), distribution_json(paths.aggregate.latency()));
    keys.insert("mean_tail_share".into(), paths.aggregate.tail_wait().1.mean(traces).into());
    keys.insert("segments".into(), paths.aggregate.segments().map(segment).collect::<Vec<_>>().into());
    keys.insert("categories".into(), paths.categories.iter().map(category).collect::<Vec<_>>().into());
    keys.insert("operations".into(), operations.into());
    keys.into()
}

/// Operations with their mean share of the critical path, largest first.
fn operations(paths: &Paths, labels: &Labels) -> Vec<(String, f64, u64)> {
    let traces = paths.aggregate.traces();
    let share = |operation: stroboscope_analysis::aggregate::OperationStatistics| {
        let share = (operation.duration_shares + operation.wait_shares).mean(traces);
        (operation.operation, share, operation.occurrences)
    };
    let mut operations: Vec<_> = paths.aggregate.by_operation(labels).into_iter().map(share).collect();
    operations.sort_by(|a, b| b.1.total_cmp(&a.1));
    operations
}

/// Categories with their part of the critical path and, beside it, what their segments sum up to.
fn categories_text(paths: &Paths) -> String {
    let traces = paths.aggregate.traces();
    let per_request = |sum_ns: u128| duration(sum_ns as f64 / traces.max(1) as f64);
    let mut table = Table::new(&["share", "critical", "of it waiting", "summed delay", "category"]);
    for totals in &paths.categories {
        table.row(vec![
            percent(totals.shares.mean(traces)),
            per_request(totals.critical_ns()),
            per_request(totals.critical_wait_ns),
            per_request(totals.summed_delay_ns),
            totals.category.clone(),
        ]);
    }
    table.render()
}

fn aggregate_text(paths: &Paths, labels: &Labels, top: usize) -> String {
    let traces = paths.aggregate.traces();
    let top = if top == 0 { usize::MAX } else { top };
    let latency = paths.aggregate.latency().percentiles();
    let mut by_operation = Table::new(&["share", "operation"]);
    for (name, share, _) in operations(paths, labels).into_iter().take(top) {
        by_operation.row(vec![percent(share), name]);
    }
    let mut segments: Vec<_> = paths.aggregate.segments().collect();
    segments.sort_by(|a, b| b.1.shares().mean(traces).total_cmp(&a.1.shares().mean(traces)));
    let mut by_segment = Table::new(&["share", "of it waiting", "critical in", "p50", "p99", "segment"]);
    for (id, statistics) in segments.iter().take(top) {
        let duration_of = statistics.duration.percentiles();
        by_segment.row(vec![
            percent(statistics.shares().mean(traces)),
            percent(statistics.wait_shares.mean(traces)),
            percent(statistics.critical_traces as f64 / traces.max(1) as f64),
            duration(duration_of.p50_ns as f64),
            duration(duration_of.p99_ns as f64),
            name(labels, *id),
        ]);
    }
    format!(
        "{traces} requests; latency p50 {}, p95 {}, p99 {}\n\nBy category, for a mean request\n{}\n\nShare of the critical path, by operation\n{}\n\nBy \
         segment ({} of {} shown)\n{}",
        duration(latency.p50_ns as f64),
        duration(latency.p95_ns as f64),
        duration(latency.p99_ns as f64),
        categories_text(paths),
        by_operation.render(),
        segments.len().min(top),
        segments.len(),
        by_segment.render()
    )
}
