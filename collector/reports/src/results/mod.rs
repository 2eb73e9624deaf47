//! Results of reports. Several subcommands share most of them.

pub mod anomalies;
pub mod clock_pairs;
pub mod compare;
pub mod critical_path;
pub mod explain;
pub mod figures;
mod flow_graph;
pub mod flows;
pub mod pipelines;
pub mod slack;
pub mod strata;
pub mod tradeoffs;

use stroboscope_analysis::distribution::Distribution;
use stroboscope_render::humanise::counted;

/// Explains why no request's server has slack, with advice. Returns `None` if some request has
/// slack, or if there are no requests.
pub fn no_slack(slack: &Distribution) -> Option<String> {
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
