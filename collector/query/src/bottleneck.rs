//! Operation that requests wait for most, by time on the critical path.
//!
//! Operations are ranked by their total time, not by their mean share of a request. A mean of
//! shares would weigh a request of a millisecond as much as a request of a second. If the main root
//! operations wait for different operations, each has its own bottleneck.

use schemars::JsonSchema;
use serde::Serialize;
use stroboscope_analysis::aggregate::PathAggregate;
use stroboscope_analysis::label::Labels;

use super::paths::Paths;

/// Minimum share (0 to 1) of the total latency at which a root operation gets a bottleneck of its
/// own.
const TIME_SHARE_MIN: f64 = 0.05;
/// Maximum number of root operations with a bottleneck of their own.
const ROOTS_MAX: usize = 3;

/// Operation that requests wait for most.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Bottleneck {
    /// Root operation of the requests, if the main root operations have different bottlenecks;
    /// `None` if the bottleneck is that of all requests. At most three root operations count as
    /// main, each with at least 5 % of the total latency.
    pub root: Option<String>,
    /// `service:name`.
    pub operation: String,
    /// Operation's time on the critical path, including waits for it, divided by the summed latency
    /// of the requests (0 to 1).
    pub share_of_time: f64,
    /// Mean time of the operation on the critical path per request, including waits for it, in ns.
    pub mean_ns: f64,
}

/// Time of an operation on critical paths.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct OperationTime {
    /// `service:name`.
    pub operation: String,
    /// Time on critical paths divided by the summed latency of all requests, 0 to 1.
    pub share_of_time: f64,
    /// Mean time on the critical path per request, in ns.
    pub mean_ns: f64,
}

/// Returns the operations in descending order of their time on critical paths, which includes waits
/// for them.
#[must_use]
pub fn by_time(paths: &PathAggregate, labels: &Labels) -> Vec<OperationTime> {
    let requests = paths.traces();
    let of = paths.by_operation(labels).into_iter().map(|of| {
        let sum_ns = of.critical_duration_ns + of.critical_wait_ns;
        OperationTime {
            operation: of.operation,
            share_of_time: paths.share_of_time(sum_ns),
            mean_ns: requests.mean(sum_ns as f64),
        }
    });
    let mut operations: Vec<OperationTime> = of.collect();
    operations.sort_by(|a, b| b.share_of_time.total_cmp(&a.share_of_time));
    operations
}

/// Returns the bottleneck of each main root operation if they differ: at most three, each with at
/// least 5 % of the total latency. Otherwise returns the bottleneck of all requests, or an empty
/// list if no request that took time has a segment.
#[must_use]
pub fn bottlenecks(paths: &Paths, labels: &Labels) -> Vec<Bottleneck> {
    let of = |root: Option<&str>, paths: &PathAggregate| {
        let most = by_time(paths, labels).into_iter().next()?;
        Some(Bottleneck {
            root: root.map(str::to_owned),
            operation: most.operation,
            share_of_time: most.share_of_time,
            mean_ns: most.mean_ns,
        })
    };
    let all_ns = paths.aggregate.latency().sum_ns() as f64;
    let is_main = |of: &PathAggregate| of.latency().sum_ns() as f64 >= TIME_SHARE_MIN * all_ns;
    let roots = paths.by_root.iter().filter(|(_, of)| is_main(of));
    let mut roots: Vec<&(String, PathAggregate)> = roots.collect();
    roots.sort_by_key(|(_, of)| std::cmp::Reverse(of.latency().sum_ns()));
    let roots = roots.into_iter().take(ROOTS_MAX);
    let of_roots: Vec<Bottleneck> = roots
        .filter_map(|(root, paths)| of(Some(root), paths))
        .collect();
    if of_roots
        .windows(2)
        .any(|pair| pair[0].operation != pair[1].operation)
    {
        of_roots
    } else {
        of(None, &paths.aggregate).into_iter().collect()
    }
}

/// Describes a bottleneck in a phrase.
#[must_use]
pub fn bottleneck_text(bottleneck: &Bottleneck) -> String {
    let of = bottleneck.root.as_ref();
    let of = of.map_or_else(
        || "all requests".to_owned(),
        |root| format!("requests of {root}"),
    );
    format!(
        "{}, {:.0} % of the time of {of}",
        bottleneck.operation,
        bottleneck.share_of_time * 100.0
    )
}
