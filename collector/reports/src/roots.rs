//! Requests by root operation.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;
use stroboscope_analysis::by_root::ByRoot;
use stroboscope_analysis::sampling::WeightedCount;

use crate::latency::Latency;
use stroboscope_render::humanise::duration;
use stroboscope_render::page::path_segment;
use stroboscope_render::roots::headline_is_of;
use stroboscope_render::rows;
use stroboscope_render::show::{Cell, Doc};

const ROOTS_SHOWN: usize = 20;

/// Describes the latency of requests whose root operation has known callers, or of all requests if
/// no such operation has latencies.
pub(crate) fn latency_text(roots: &ByRoot) -> String {
    let latency = roots.headline().percentiles();
    let (p50, p95, p99) = (
        duration(latency.p50_ns as f64),
        duration(latency.p95_ns as f64),
        duration(latency.p99_ns as f64),
    );
    let of = if roots.is_mixed() {
        format!(" of {}", headline_is_of(roots))
    } else {
        String::new()
    };
    format!("latency{of} p50 {p50}, p95 {p95}, p99 {p99}")
}

/// Figures of the requests of one root operation.
#[derive(Debug, Serialize, JsonSchema)]
pub struct RootRow {
    root: String,
    requests: u64,
    complete: u64,
    incomplete: u64,
    with_caller: u64,
    /// Number of failed roots among the used requests; absent if they were not counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    failed: Option<u64>,
    share_of_time: f64,
    latency: Latency,
    after_answer_requests: u64,
    after_answer: Latency,
    /// Number of recorded requests, if requests have sampling weights.
    #[serde(skip_serializing_if = "Option::is_none")]
    recorded: Option<u64>,
    /// Size of an unweighted sample as certain as the weighted requests with a latency (Kish).
    #[serde(skip_serializing_if = "Option::is_none")]
    effective_sample: Option<f64>,
}

fn weighted(requests: WeightedCount) -> Option<WeightedCount> {
    requests.is_weighted().then_some(requests)
}

/// Returns the rows of root operations: first those with callers, and in each group those with the
/// most time first. `failed` has the number of failed requests by root, if known.
pub(crate) fn root_rows(
    roots: &ByRoot,
    failed: Option<&BTreeMap<String, WeightedCount>>,
) -> Vec<RootRow> {
    let ranked = roots.ranked().into_iter();
    let row = ranked.map(|(root, of)| RootRow {
        root: root.to_owned(),
        requests: of.requests().rounded(),
        complete: of.complete.rounded(),
        incomplete: of.incomplete.rounded(),
        with_caller: of.with_caller.rounded(),
        failed: failed.map(|failed| failed.get(root).map_or(0, |failed| failed.rounded())),
        share_of_time: roots.share(root),
        latency: Latency::of(&of.latency),
        after_answer_requests: of.after_answer.weighted_count().rounded(),
        after_answer: Latency::of(&of.after_answer),
        recorded: weighted(of.requests()).map(WeightedCount::recorded),
        effective_sample: weighted(of.latency.weighted_count()).map(WeightedCount::effective),
    });
    row.collect()
}

pub(crate) fn show_roots(rows: &[RootRow], doc: &mut Doc) {
    doc.table("Requests by root operation", rows, ROOTS_SHOWN);
}

rows! {
    RootRow as row, "roots": "Requests of one root operation.";
    {
        let ns = |ns: u64| Cell::from((row.complete > 0).then_some(ns as f64));
        let after = (row.after_answer_requests > 0).then_some(row.after_answer_requests);
    }
    root: Text, "root operation" =
        Cell::Linked(row.root.clone(), format!("/critical-path?root={}", path_segment(&row.root)));
    requests: Count, "requests" = row.requests;
    complete: Count, "complete" = row.complete;
    incomplete: Count, "incomplete" = (row.incomplete > 0).then_some(row.incomplete);
    failed: Count, "failed" = row.failed.filter(|failed| *failed > 0);
    latency_p50_ns: DurationNs, "p50" = ns(row.latency.p50_ns);
    latency_p95_ns: DurationNs, "p95" = ns(row.latency.p95_ns);
    latency_p99_ns: DurationNs, "p99" = ns(row.latency.p99_ns);
    share_of_time: Share, "of all time" = row.share_of_time;
    after_answer_mean_ns: DurationNs, "after the answer" = after.map(|_| row.after_answer.mean_ns);
    after_answer_requests: Count, "in so many" = after;
    has_caller: Flag, "caller waits" = row.with_caller > 0;
}
