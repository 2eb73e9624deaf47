//! Differences between slow requests and the others (The Mystery Machine, §4.4.3).
//!
//! Requests slower than a threshold are outliers, by default the slowest 5 %. For each segment, the
//! analysis compares its share of the critical path, and its slack as a share of the latency,
//! between outliers and the others.
//!
//! The analysis takes two passes. The first finds the threshold ([`outlier_threshold_ns`]), or one
//! for each kind of request. The second observes every path. Memory grows with the number of
//! segments, not with the number of requests. Groups that were computed for separate parts of the
//! requests can be merged.

use crate::critical_path::TracePath;
use crate::distribution::Distribution;
use crate::label::SegmentId;
use crate::record::TraceId;
use crate::sampling::{Weight, WeightedCount};
use crate::statistics::{Difference, ShareSample, benjamini_hochberg, welch};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Usual share of requests that are outliers.
pub const OUTLIER_PART: f64 = 0.05;
/// Differences with a corrected p-value of at most this are significant.
pub const SIGNIFICANT_Q_VALUE: f64 = 0.05;
/// Maximum number of example requests for each segment.
pub const EXAMPLES_MAX: usize = 3;

/// Returns the latency above which a request belongs to the slowest `part` (0 to 1) of all, with
/// the accuracy of [`Distribution::quantile_ns`]. Requests of exactly this latency are not
/// outliers, so the share of outliers may be smaller than `part`.
pub fn outlier_threshold_ns(latency: &Distribution, part: f64) -> u64 {
    latency.quantile_ns((1.0 - part).clamp(0.0, 1.0))
}

/// Statistics of one segment in one group of requests, the outliers or the others. In an
/// [`Anomaly`], a request without the segment counts as 0 in the share of the critical path, and
/// does not count in the slack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct GroupStatistics {
    /// Number of requests that have the segment.
    pub traces: WeightedCount,
    /// Number of requests in which the segment is critical.
    pub critical_traces: WeightedCount,
    /// The segment's share of the critical path in each request, duration plus wait.
    pub critical_share: ShareSample,
    /// The segment's slack as a share of the latency. Of several instances in a request, the one
    /// with the least slack counts. Instances that ended after the answer do not count.
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
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
struct SegmentGroups {
    outliers: GroupStatistics,
    others: GroupStatistics,
    /// Up to [`EXAMPLES_MAX`] outliers in which the segment takes the most time on the critical
    /// path: longest first, then by trace id.
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

/// Comparison of one segment between slow requests and the others.
#[derive(Clone, Debug, PartialEq)]
pub struct Anomaly {
    /// The segment compared.
    pub segment: SegmentId,
    /// Statistics of the segment in slow requests.
    pub outliers: GroupStatistics,
    /// Statistics of the segment in the other requests.
    pub others: GroupStatistics,
    /// Difference of the segment's share of the critical path: outliers minus others.
    pub critical: Difference,
    /// P-value of `critical`, corrected for the number of segments (Benjamini and Hochberg).
    pub critical_q_value: f64,
    /// Difference of the segment's slack as a share of the latency: outliers minus others.
    pub slack: Difference,
    /// P-value of `slack`, corrected for the number of segments (Benjamini and Hochberg).
    pub slack_q_value: f64,
    /// Up to [`EXAMPLES_MAX`] slow requests in which the segment takes the most time on the
    /// critical path, longest first.
    pub examples: Vec<TraceId>,
}

/// Statistics of each segment in both groups of requests. See the [module](self).
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Anomalies {
    threshold_ns: u64,
    outliers: WeightedCount,
    others: WeightedCount,
    segments: BTreeMap<SegmentId, SegmentGroups>,
}

impl Anomalies {
    /// Creates empty groups. For [`observe`](Self::observe), requests that take longer than
    /// `threshold_ns` are outliers.
    pub fn new(threshold_ns: u64) -> Anomalies {
        Anomalies {
            threshold_ns,
            outliers: WeightedCount::default(),
            others: WeightedCount::default(),
            segments: BTreeMap::new(),
        }
    }

    /// Counts one request. One set of labels must number the segments of all requests.
    pub fn observe(&mut self, (id, weight): (TraceId, Weight), path: &TracePath) {
        self.observe_against(self.threshold_ns, (id, weight), path);
    }

    /// Like [`observe`](Self::observe), but compares the request's latency with this threshold, for
    /// callers that have a threshold for each kind of request.
    pub fn observe_against(
        &mut self,
        threshold_ns: u64,
        (id, weight): (TraceId, Weight),
        path: &TracePath,
    ) {
        let is_outlier = path.latency_ns > threshold_ns;
        let requests = if is_outlier {
            &mut self.outliers
        } else {
            &mut self.others
        };
        requests.count(weight);
        let mut by_segment: Vec<usize> = (0..path.segments.len()).collect();
        by_segment.sort_unstable_by_key(|i| path.segments[*i].segment);
        let segment = |i: usize| path.segments[i].segment;
        for instances in by_segment.chunk_by(|a, b| segment(*a) == segment(*b)) {
            let segment = segment(instances[0]);
            let instances = instances.iter().map(|i| &path.segments[*i]);
            let critical = instances.clone().filter(|timing| timing.critical);
            let is_critical = critical.clone().next().is_some();
            let critical_ns: u64 = critical.map(|timing| timing.weight_ns()).sum();
            // A segment after the answer has no slack to compare with the latency.
            let in_time = instances.filter(|timing| !timing.after_answer);
            let slack_ns = in_time.map(|timing| timing.slack_ns).min();
            let groups = self.segments.entry(segment).or_default();
            let group = if is_outlier {
                &mut groups.outliers
            } else {
                &mut groups.others
            };
            group.traces.count(weight);
            if is_critical {
                group.critical_traces.count(weight);
            }
            let whole_ns = path.critical_path_ns;
            group.critical_share.record(critical_ns, whole_ns, weight);
            if let Some(slack_ns) = slack_ns {
                group.slack_share.record(slack_ns, path.latency_ns, weight);
            }
            if is_outlier && is_critical {
                groups.add_example(critical_ns, id);
            }
        }
    }

    /// Adds the statistics of `other`, which must have the same threshold and labels. The operation
    /// is commutative and associative.
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
            for (Reverse(critical_ns), id) in &groups.examples {
                own.add_example(*critical_ns, *id);
            }
        }
    }

    /// Returns the number of outliers, and of other requests.
    pub fn requests(&self) -> (WeightedCount, WeightedCount) {
        (self.outliers, self.others)
    }

    /// Ranks all segments. Segments whose share of the critical path differs significantly
    /// ([`SIGNIFICANT_Q_VALUE`]) come first. Among these and among the remaining segments, the
    /// largest gain of that share in slow requests comes first.
    pub fn ranked(&self) -> Vec<Anomaly> {
        let compared = |(id, groups): (&SegmentId, &SegmentGroups)| self.compare(*id, groups);
        let mut anomalies: Vec<Anomaly> = self.segments.iter().map(compared).collect();
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
        let padded = |group: &GroupStatistics, requests: WeightedCount| GroupStatistics {
            critical_share: group.critical_share.padded_to(requests),
            ..*group
        };
        let outliers = padded(&groups.outliers, self.outliers);
        let others = padded(&groups.others, self.others);
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
