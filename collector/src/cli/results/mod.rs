//! What more than one verb gives: no verb knows another one's file.

pub(super) mod anomalies;
pub(super) mod clock_pairs;
pub(super) mod compare;
pub(super) mod critical_path;
pub(super) mod explain;
pub(super) mod figures;
mod flow_graph;
pub(super) mod flows;
pub(super) mod pipelines;
pub(super) mod slack;
pub(super) mod strata;
pub(super) mod tradeoffs;

use stroboscope_analysis::distribution::Distribution;
use stroboscope_present::humanise::counted;

/// Why nothing can be said of the server's slack, where no request has any, and what to do about it.
pub(super) fn no_slack(slack: &Distribution) -> Option<String> {
    (slack.count() > 0 && slack.max_ns() == 0).then(|| {
        format!(
            "The last server segment of each request ({}) is what its answer waited for, so that it has no slack: \
             always so where the request's root is that server itself. (`slack` alone says which segments have slack.) A \
             server's slack shows where its caller was recorded, and has other work meanwhile; --category-by and --server \
             choose whose part of the time is meant.",
            counted(slack.count(), "request")
        )
    })
}
