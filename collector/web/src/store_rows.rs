//! Kinds of requests and lost records, as rows of tables.

use stroboscope_analysis::by_root::{ByRoot, RootStatistics};
use stroboscope_present::page::path_segment;
use stroboscope_present::rows;
use stroboscope_present::show::Cell;

/// Requests of one kind.
#[derive(Debug)]
pub(crate) struct KindRow<'a> {
    pub(crate) root: &'a str,
    pub(crate) of: &'a RootStatistics,
    pub(crate) share_of_time: f64,
}

impl<'a> KindRow<'a> {
    /// Those that somebody waits for first.
    pub(crate) fn all(roots: &'a ByRoot) -> Vec<Self> {
        let ranked = roots.ranked().into_iter();
        ranked
            .map(|(root, of)| Self {
                root,
                of,
                share_of_time: roots.share(root),
            })
            .collect()
    }
}

rows! {
    KindRow<'_> as row, "kinds": "Requests of one root operation.";
    {
        let latency = row.of.latency.percentiles();
        let has_any = row.of.latency.count() > 0;
        let ns = |ns: u64| Cell::from(has_any.then_some(ns as f64));
    }
    root: Text, "requests by root operation" =
        Cell::Linked(row.root.to_owned(), format!("/critical-path?root={}", path_segment(row.root)));
    requests: Count, "recorded" = row.of.requests().rounded();
    complete: Count, "complete" = row.of.complete.rounded();
    p50_ns: DurationNs, "p50" = ns(latency.p50_ns);
    p95_ns: DurationNs, "p95" = ns(latency.p95_ns);
    p99_ns: DurationNs, "p99" = ns(latency.p99_ns);
    share_of_time: Share, "of all time" = row.share_of_time;
}

/// Records that a service lost, by cause.
#[derive(Debug)]
pub(crate) struct LossRow<'a> {
    pub(crate) service: &'a str,
    pub(crate) cause: &'a str,
    pub(crate) records: u64,
}

rows! {
    LossRow<'_> as row, "losses": "Records that processes lost, as they counted them.";
    service: Text, "lost by" = row.service;
    cause: Text, "cause" = row.cause;
    records: Count, "records" = row.records;
}
