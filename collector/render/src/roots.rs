//! Requests by root operation, as JSON and as parts of sentences.

use serde_json::{Value, json};
use stroboscope_analysis::by_root::{ByRoot, RootStatistics};
use stroboscope_analysis::distribution::Distribution;
use stroboscope_analysis::sampling::WeightedCount;

use crate::humanise::counted;

/// Names the requests that a latency in a headline covers if no root operation is selected.
pub fn headline_is_of(roots: &ByRoot) -> &'static str {
    if roots.is_mixed() {
        "requests with a caller"
    } else {
        "all requests"
    }
}

/// Formats a number of requests; with sampling weights, adds the numbers behind the estimate.
pub fn requests_text(requests: WeightedCount) -> String {
    let all = counted(requests.rounded(), "request");
    if requests.is_weighted() {
        let (recorded, effective) = (requests.recorded(), requests.effective());
        format!("{all} ({recorded} recorded, effective sample {effective:.1})")
    } else {
        all
    }
}

/// Returns the value of the key `roots` in JSON documents. Root operations with callers come first.
/// Within both groups, the order is by total latency, the largest first.
pub fn roots_json(roots: &ByRoot) -> Value {
    let root = |(root, of): (&str, &RootStatistics)| {
        json!({
            "root": root,
            "requests": of.requests().rounded(),
            "complete": of.complete.rounded(),
            "incomplete": of.incomplete.rounded(),
            "with_caller": of.with_caller.rounded(),
            "share_of_time": roots.share(root),
            "latency": times_json(&of.latency),
            "after_answer_requests": of.after_answer.weighted_count().rounded(),
            "after_answer": times_json(&of.after_answer),
        })
    };
    let roots: Vec<Value> = roots.ranked().into_iter().map(root).collect();
    roots.into()
}

fn times_json(times: &Distribution) -> Value {
    let percentiles = times.percentiles();
    json!({
        "mean_ns": times.mean_ns(),
        "p50_ns": percentiles.p50_ns,
        "p95_ns": percentiles.p95_ns,
        "p99_ns": percentiles.p99_ns,
        "max_ns": times.max_ns(),
    })
}
