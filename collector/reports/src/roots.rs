//! Requests by root operation.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;
use stroboscope_analysis::by_root::ByRoot;
use stroboscope_analysis::sampling::WeightedCount;

use crate::latency::Latency;
use crate::output::Table;
use stroboscope_present::humanise::{duration, percent};
use stroboscope_present::page::path_segment;
use stroboscope_present::roots::headline_is_of;
use stroboscope_present::rows;
use stroboscope_present::show::{Cell, Doc};

/// Root operations shown.
const ROOTS_SHOWN: usize = 20;

/// The table; nothing where there is no request.
pub(crate) fn roots_text(roots: &ByRoot) -> String {
    let ranked = roots.ranked();
    let mut table = Table::new(&[
        "requests",
        "complete",
        "p50",
        "p95",
        "p99",
        "of all time",
        "after the answer",
        "caller",
        "root operation",
    ]);
    for (root, of) in ranked.iter().take(ROOTS_SHOWN) {
        let latency = of.latency.percentiles();
        let shown = |ns: u64| {
            if of.latency.count() == 0 {
                String::new()
            } else {
                duration(ns as f64)
            }
        };
        let after = match of.after_answer.weighted_count().rounded() {
            0 => String::new(),
            count => format!("{} in {count}", duration(of.after_answer.mean_ns())),
        };
        table.row(vec![
            of.requests().rounded().to_string(),
            of.complete.rounded().to_string(),
            shown(latency.p50_ns),
            shown(latency.p95_ns),
            shown(latency.p99_ns),
            percent(roots.share(root)),
            after,
            if of.has_caller() {
                "yes".to_owned()
            } else {
                "?".to_owned()
            },
            (*root).to_owned(),
        ]);
    }
    if ranked.is_empty() {
        return String::new();
    }
    let more = match ranked.len().saturating_sub(ROOTS_SHOWN) {
        0 => String::new(),
        more => format!("{more} more root operations are not shown.\n"),
    };
    format!("Requests by root operation\n{}\n{more}", table.render())
}

/// What is said of latency where root operations are not told apart.
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

/// Requests of one root operation.
#[derive(Debug, Serialize, JsonSchema)]
pub struct RootRow {
    root: String,
    requests: u64,
    complete: u64,
    incomplete: u64,
    with_caller: u64,
    /// Requests among those used whose root failed; absent where attributes are not read.
    #[serde(skip_serializing_if = "Option::is_none")]
    failed: Option<u64>,
    share_of_time: f64,
    latency: Latency,
    after_answer_requests: u64,
    after_answer: Latency,
    /// How many requests were recorded, where they have sampling weights,
    #[serde(skip_serializing_if = "Option::is_none")]
    recorded: Option<u64>,
    /// and the size of an unweighted sample as certain as those with a latency (Kish).
    #[serde(skip_serializing_if = "Option::is_none")]
    effective_sample: Option<f64>,
}

fn weighted(requests: WeightedCount) -> Option<WeightedCount> {
    requests.is_weighted().then_some(requests)
}

/// Those with callers first, the ones with the most time first. `failed` has the number of failed requests by root, where that
/// is known.
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
    has_caller: Flag, "somebody waits" = row.with_caller > 0;
}
