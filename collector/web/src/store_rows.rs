//! Operations, kinds of requests, and what was lost, as rows of tables.

use std::borrow::Cow;

use stroboscope_analysis::by_root::{ByRoot, RootStatistics};
use stroboscope_present::page::path_segment;
use stroboscope_present::show::{Cell, Column, Kind, Row, TableSpec};
use stroboscope_query::OperationTimes;

/// An operation: how often, how long, and what requests wait for it.
#[derive(Debug)]
pub(crate) struct OperationRow<'a> {
    pub(crate) name: &'a str,
    pub(crate) times: &'a OperationTimes,
    /// Of the critical path of a mean request.
    pub(crate) share: f64,
}

impl Row for OperationRow<'_> {
    const TABLE: TableSpec = TableSpec {
        name: "operations",
        about: "An operation: how often it is done, how long it takes, and its part in what requests wait for.",
        columns: Cow::Borrowed(&[
            Column::new("operation", "operation", Kind::Text),
            Column::new("critical_share", "of what requests wait for", Kind::Share),
            Column::new("requests", "requests", Kind::Count),
            Column::new("spans", "times", Kind::Count),
            Column::new("p50_ns", "p50", Kind::DurationNs),
            Column::new("p95_ns", "p95", Kind::DurationNs),
            Column::new("p99_ns", "p99", Kind::DurationNs),
            Column::new("longest_ns", "longest", Kind::DurationNs),
            Column::new("example", "in", Kind::Request),
        ]),
    };

    fn cells(&self) -> Vec<Cell> {
        let of = self.times.duration.percentiles();
        vec![
            Cell::Linked(
                self.name.to_owned(),
                format!("/what-if?operation={}&scale=0.5", path_segment(self.name)),
            ),
            self.share.into(),
            self.times.requests.rounded().into(),
            self.times.duration.weighted_count().rounded().into(),
            (of.p50_ns as f64).into(),
            (of.p95_ns as f64).into(),
            (of.p99_ns as f64).into(),
            self.times.longest.map(|(took_ns, _)| took_ns as f64).into(),
            self.times
                .longest
                .map(|(_, id)| id.to_string())
                .as_deref()
                .into(),
        ]
    }
}

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

impl Row for KindRow<'_> {
    const TABLE: TableSpec = TableSpec {
        name: "kinds",
        about: "Requests of one root operation.",
        columns: Cow::Borrowed(&[
            Column::new("root", "requests by root operation", Kind::Text),
            Column::new("requests", "recorded", Kind::Count),
            Column::new("complete", "complete", Kind::Count),
            Column::new("p50_ns", "p50", Kind::DurationNs),
            Column::new("p95_ns", "p95", Kind::DurationNs),
            Column::new("p99_ns", "p99", Kind::DurationNs),
            Column::new("share_of_time", "of all time", Kind::Share),
        ]),
    };

    fn cells(&self) -> Vec<Cell> {
        let latency = self.of.latency.percentiles();
        let has_any = self.of.latency.count() > 0;
        let ns = |ns: u64| Cell::from(has_any.then_some(ns as f64));
        vec![
            Cell::Linked(
                self.root.to_owned(),
                format!("/critical-path?root={}", path_segment(self.root)),
            ),
            self.of.requests().rounded().into(),
            self.of.complete.rounded().into(),
            ns(latency.p50_ns),
            ns(latency.p95_ns),
            ns(latency.p99_ns),
            self.share_of_time.into(),
        ]
    }
}

/// Records that a service lost, by cause.
#[derive(Debug)]
pub(crate) struct LossRow<'a> {
    pub(crate) service: &'a str,
    pub(crate) cause: &'a str,
    pub(crate) records: u64,
}

impl Row for LossRow<'_> {
    const TABLE: TableSpec = TableSpec {
        name: "losses",
        about: "Records that processes lost, as they counted them.",
        columns: Cow::Borrowed(&[
            Column::new("service", "lost by", Kind::Text),
            Column::new("cause", "cause", Kind::Text),
            Column::new("records", "records", Kind::Count),
        ]),
    };

    fn cells(&self) -> Vec<Cell> {
        vec![self.service.into(), self.cause.into(), self.records.into()]
    }
}
