//! What is different about slow requests (The Mystery Machine, §4.4.3).
//!
//! Requests slower than a threshold are outliers, by default the slowest 5 %. For each segment, its share of the
//! critical path, and its slack as a share of the latency, are compared between outliers and the others.
//!
//! Two passes: the first finds the threshold ([`outlier_threshold_ns`] of the latencies of a
//! [`PathAggregate`](crate::aggregate::PathAggregate)), the second observes every path. Memory follows the number of
//! segments, not of requests. Parts merge to the whole.

use crate::critical_path::TracePath;
use crate::distribution::Distribution;
use crate::label::SegmentId;
use crate::record::TraceId;
use crate::statistics::{Difference, ShareSample, benjamini_hochberg, welch};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// The part of requests that are outliers unless told otherwise.
pub const OUTLIER_PART: f64 = 0.05;
/// Differences with a corrected p-value of at most this are taken for sure.
pub const SIGNIFICANT_Q_VALUE: f64 = 0.05;
/// How many example requests are kept for each segment.
pub const EXAMPLES_MAX: usize = 3;

/// Requests that take longer than this are the slowest `part` (0 to 1) of all. To three significant digits; requests
/// of exactly this latency are no outliers, so there may be fewer.
pub fn outlier_threshold_ns(latency: &Distribution, part: f64) -> u64 {
    latency.quantile_ns((1.0 - part).clamp(0.0, 1.0))
}

/// One segment in one group of requests. A request without the segment counts for 0 in its share of the critical
/// path, and not at all in its slack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct GroupStatistics {
    /// Requests that have the segment.
    pub traces: u64,
    /// Requests in which it is critical.
    pub critical_traces: u64,
    /// Its shares of the critical path, duration and wait.
    pub critical_share: ShareSample,
    /// Its slack as shares of the latency; of several instances the least.
    pub slack_share: ShareSample,
}

impl GroupStatistics {
    fn merge(&mut self, other: &GroupStatistics) {
        self.traces += other.traces;
        self.critical_traces += other.critical_traces;
        self.critical_share.merge(&other.critical_share);
        self.slack_share.merge(&other.slack_share);
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Default)]
struct SegmentGroups {
    outliers: GroupStatistics,
    others: GroupStatistics,
    /// The outliers with the most time of the segment on the critical path, most first; then by id.
    examples: Vec<(Reverse<u64>, TraceId)>,
}

impl SegmentGroups {
    fn add_example(&mut self, critical_ns: u64, id: TraceId) {
        let example = (Reverse(critical_ns), id);
        let at = self.examples.partition_point(|kept| *kept < example);
        if at < EXAMPLES_MAX {
            self.examples.insert(at, example);
            self.examples.truncate(EXAMPLES_MAX);
        }
    }
}

/// A segment's part in slow and other requests.
#[derive(Clone, Debug, PartialEq)]
pub struct Anomaly {
    /// Which segment.
    pub segment: SegmentId,
    /// Slow requests.
    pub outliers: GroupStatistics,
    /// The others.
    pub others: GroupStatistics,
    /// How its share of the critical path differs: outliers minus others.
    pub critical: Difference,
    /// The p-value of that, corrected for the number of segments.
    pub critical_q_value: f64,
    /// How its slack differs.
    pub slack: Difference,
    /// The p-value of that, corrected for the number of segments.
    pub slack_q_value: f64,
    /// Slow requests in which it has the longest time on the critical path, longest first.
    pub examples: Vec<TraceId>,
}

/// Collects the two groups. See the [module](self).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Anomalies {
    threshold_ns: u64,
    outliers: u64,
    others: u64,
    segments: BTreeMap<SegmentId, SegmentGroups>,
}

impl Anomalies {
    /// Requests that take longer than `threshold_ns` are outliers.
    pub fn new(threshold_ns: u64) -> Anomalies {
        Anomalies {
            threshold_ns,
            outliers: 0,
            others: 0,
            segments: BTreeMap::new(),
        }
    }

    /// Takes one request into account. All must be numbered by the same labels.
    pub fn observe(&mut self, id: TraceId, path: &TracePath) {
        self.observe_against(self.threshold_ns, id, path);
    }

    /// As [`observe`](Self::observe), by another threshold: that of the requests of its kind.
    pub fn observe_against(&mut self, threshold_ns: u64, id: TraceId, path: &TracePath) {
        let is_outlier = path.latency_ns > threshold_ns;
        let requests = if is_outlier {
            &mut self.outliers
        } else {
            &mut self.others
        };
        *requests += 1;
        let mut by_segment: Vec<usize> = (0..path.segments.len()).collect();
        by_segment.sort_unstable_by_key(|i| path.segments[*i].segment);
        for instances in
            by_segment.chunk_by(|a, b| path.segments[*a].segment == path.segments[*b].segment)
        {
            let instances = instances.iter().map(|i| &path.segments[*i]);
            let Some(segment) = instances.clone().next().map(|timing| timing.segment) else {
                continue;
            };
            let critical_ns: u64 = instances
                .clone()
                .filter(|timing| timing.critical)
                .map(|timing| timing.weight_ns())
                .sum();
            let is_critical = instances.clone().any(|timing| timing.critical);
            // After the answer, there is no slack that the latency could be compared with.
            let slack_ns = instances
                .filter(|timing| !timing.after_answer)
                .map(|timing| timing.slack_ns)
                .min();
            let groups = self.segments.entry(segment).or_default();
            let group = if is_outlier {
                &mut groups.outliers
            } else {
                &mut groups.others
            };
            group.traces += 1;
            group.critical_traces += u64::from(is_critical);
            group
                .critical_share
                .record(critical_ns, path.critical_path_ns);
            if let Some(slack_ns) = slack_ns {
                group.slack_share.record(slack_ns, path.latency_ns);
            }
            if is_outlier && is_critical {
                groups.add_example(critical_ns, id);
            }
        }
    }

    /// Adds what another one has seen, of the same threshold and labels. Commutative and associative.
    pub fn merge(&mut self, other: &Anomalies) {
        debug_assert_eq!(
            self.threshold_ns, other.threshold_ns,
            "groups of different thresholds do not add up"
        );
        self.outliers += other.outliers;
        self.others += other.others;
        for (segment, groups) in &other.segments {
            let own = self.segments.entry(*segment).or_default();
            own.outliers.merge(&groups.outliers);
            own.others.merge(&groups.others);
            groups
                .examples
                .iter()
                .for_each(|(Reverse(critical_ns), id)| own.add_example(*critical_ns, *id));
        }
    }

    /// How many requests are outliers, and how many are not.
    pub fn requests(&self) -> (u64, u64) {
        (self.outliers, self.others)
    }

    /// All segments: first those whose share of the critical path surely differs ([`SIGNIFICANT_Q_VALUE`]), and of
    /// these the ones with more of it in slow requests, most first.
    pub fn ranked(&self) -> Vec<Anomaly> {
        let mut anomalies: Vec<Anomaly> = self
            .segments
            .iter()
            .map(|(id, groups)| self.compare(*id, groups))
            .collect();
        let p_values = |of: fn(&Anomaly) -> f64| anomalies.iter().map(of).collect::<Vec<f64>>();
        let critical = benjamini_hochberg(&p_values(|anomaly| anomaly.critical.p_value));
        let slack = benjamini_hochberg(&p_values(|anomaly| anomaly.slack.p_value));
        for ((anomaly, critical), slack) in anomalies.iter_mut().zip(critical).zip(slack) {
            (anomaly.critical_q_value, anomaly.slack_q_value) = (critical, slack);
        }
        anomalies.sort_by(|a, b| {
            let is_unsure = |anomaly: &Anomaly| anomaly.critical_q_value > SIGNIFICANT_Q_VALUE;
            is_unsure(a)
                .cmp(&is_unsure(b))
                .then_with(|| b.critical.mean.total_cmp(&a.critical.mean))
        });
        anomalies
    }

    fn compare(&self, segment: SegmentId, groups: &SegmentGroups) -> Anomaly {
        let padded = |group: &GroupStatistics, requests: u64| GroupStatistics {
            critical_share: group.critical_share.padded_to(requests),
            ..*group
        };
        let (outliers, others) = (
            padded(&groups.outliers, self.outliers),
            padded(&groups.others, self.others),
        );
        Anomaly {
            segment,
            critical: welch(&outliers.critical_share, &others.critical_share),
            critical_q_value: 1.0,
            slack: welch(&outliers.slack_share, &others.slack_share),
            slack_q_value: 1.0,
            outliers,
            others,
            examples: groups.examples.iter().map(|(_, id)| *id).collect(),
        }
    }
}
