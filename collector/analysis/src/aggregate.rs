//! Aggregates critical paths and slack over many requests (The Mystery Machine, §4.4.1 and §4.4.2):
//! how often each segment is critical, its share of the critical path, and its duration.
//!
//! Shares are rounded down to multiples of 2⁻⁶² and summed in fixed point. Sums therefore do not
//! depend on the order of traces, and aggregates of parts merge to exactly the aggregate of the
//! whole. A group's share is exactly the sum of its members' shares. Every count, sum and
//! distribution counts a trace with its [`Weight`].

use crate::critical_path::TracePath;
use crate::distribution::Distribution;
use crate::label::{Labels, SegmentId};
use crate::sampling::{Weight, WeightedCount};
use std::collections::BTreeMap;

/// Share of a whole critical path, in units of 2⁻⁶².
const WHOLE: u128 = 1 << 62;

/// Weighted sum over traces of shares of their critical paths. A trace of weight 1 adds at most 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ShareSum(u128);

impl ShareSum {
    fn of(part_ns: u64, whole_ns: u64, weight: Weight) -> ShareSum {
        let share = u128::from(part_ns) * WHOLE / u128::from(whole_ns.max(1));
        ShareSum(share * u128::from(weight.units()))
    }

    /// Returns the mean share over this number of traces, 0 to 1.
    pub fn mean(self, traces: WeightedCount) -> f64 {
        let whole = WHOLE as f64 * Weight::ONE.units() as f64;
        traces.mean(self.0 as f64 / whole)
    }
}

impl std::ops::Add for ShareSum {
    type Output = ShareSum;

    fn add(self, other: ShareSum) -> ShareSum {
        // The sum has room for nearly 2⁵⁰ requests of weight 1.
        ShareSum(self.0.saturating_add(other.0))
    }
}

impl std::ops::AddAssign for ShareSum {
    fn add_assign(&mut self, other: ShareSum) {
        *self = *self + other;
    }
}

impl std::iter::Sum for ShareSum {
    fn sum<I: Iterator<Item = ShareSum>>(sums: I) -> ShareSum {
        sums.fold(ShareSum::default(), |a, b| a + b)
    }
}

/// Statistics of one segment over the [traces](PathAggregate::traces) that took time.
#[derive(Clone, Debug, PartialEq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct PathStatistics {
    /// Number of traces in which the segment occurs.
    pub traces: WeightedCount,
    /// Number of the segment's instances in these traces.
    pub occurrences: WeightedCount,
    /// Number of instances that ended after the answer.
    pub after_answer_occurrences: WeightedCount,
    /// Total duration of the instances that ended after the answer.
    pub after_answer_ns: u128,
    /// Number of traces in which an instance is critical.
    pub critical_traces: WeightedCount,
    /// Total duration of the critical instances.
    pub critical_duration_ns: u128,
    /// Total wait before the critical instances.
    pub critical_wait_ns: u128,
    /// Share of the critical path that the critical instances take, summed over traces.
    pub duration_shares: ShareSum,
    /// Share of the critical path that waits before critical instances take, summed over traces.
    pub wait_shares: ShareSum,
    /// Durations of the instances.
    pub duration: Distribution,
    /// Slack of the instances that ended by the answer.
    pub slack: Distribution,
}

impl PathStatistics {
    /// Returns the segment's share of the critical path, duration plus wait, summed over traces.
    pub fn shares(&self) -> ShareSum {
        self.duration_shares + self.wait_shares
    }

    fn merge(&mut self, other: &PathStatistics) {
        self.traces += other.traces;
        self.critical_traces += other.critical_traces;
        self.occurrences += other.occurrences;
        self.after_answer_occurrences += other.after_answer_occurrences;
        self.after_answer_ns += other.after_answer_ns;
        self.critical_duration_ns += other.critical_duration_ns;
        self.critical_wait_ns += other.critical_wait_ns;
        self.duration_shares += other.duration_shares;
        self.wait_shares += other.wait_shares;
        self.duration.merge(&other.duration);
        self.slack.merge(&other.slack);
    }
}

/// Statistics of one operation's segments over the [traces](PathAggregate::traces) that took time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OperationStatistics {
    /// `service:name`, or an event log's task: see
    /// [`SegmentLabel::operation`](crate::label::SegmentLabel::operation).
    pub operation: String,
    /// The operation's segments.
    pub segments: Vec<SegmentId>,
    /// Number of instances of the operation's segments.
    pub occurrences: WeightedCount,
    /// Total duration of the critical instances.
    pub critical_duration_ns: u128,
    /// Total wait before the critical instances.
    pub critical_wait_ns: u128,
    /// Sum of the segments' [`duration_shares`](PathStatistics::duration_shares).
    pub duration_shares: ShareSum,
    /// Sum of the segments' [`wait_shares`](PathStatistics::wait_shares).
    pub wait_shares: ShareSum,
    /// Durations of the segments' instances. A span's segments exclude waits for its children.
    pub duration: Distribution,
    /// Slack of the instances that ended by the answer.
    pub slack: Distribution,
}

/// Aggregate of the critical paths of many traces. One set of [`Labels`] must number all segments.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct PathAggregate {
    traces: WeightedCount,
    without_length: WeightedCount,
    latency: Distribution,
    after_answer: Distribution,
    tail_wait_ns: u128,
    tail_shares: ShareSum,
    /// Statistics of each segment, by its number.
    segments: Vec<Option<Box<PathStatistics>>>,
    /// For each segment, the numbers of the last observed trace in which it occurred and of the
    /// last one in which it was critical. 0 means none, as for merged and deserialized traces.
    #[cfg_attr(feature = "serde", serde(skip))]
    counted: Vec<(u64, u64)>,
}

impl PartialEq for PathAggregate {
    /// Compares the statistics of traces that took time, without `without_length` and `counted`.
    fn eq(&self, other: &PathAggregate) -> bool {
        let whole = |of: &PathAggregate| (of.traces, of.tail_wait_ns, of.tail_shares);
        whole(self) == whole(other)
            && (&self.latency, &self.after_answer) == (&other.latency, &other.after_answer)
            && self.segments().eq(other.segments())
    }
}

impl PathAggregate {
    /// Creates an aggregate of no traces.
    pub fn new() -> PathAggregate {
        PathAggregate::default()
    }

    /// Counts one trace. A trace in which no time passes up to the answer, such as a single event,
    /// has no critical path. Only [`without_length`](Self::without_length) counts it.
    pub fn observe(&mut self, path: &TracePath, weight: Weight) {
        if path.critical_path_ns == 0 {
            self.without_length.count(weight);
            return;
        }
        self.traces.count(weight);
        let trace = self.traces.recorded();
        self.latency.record_weighted(path.latency_ns, weight);
        if let Some(after) = &path.after_answer {
            self.after_answer.record_weighted(after.duration_ns, weight);
        }
        self.tail_wait_ns += weight.times(path.tail_wait_ns);
        let share = |part_ns| ShareSum::of(part_ns, path.critical_path_ns, weight);
        self.tail_shares += share(path.tail_wait_ns);
        for timing in &path.segments {
            let index = timing.segment.index();
            if self.counted.len() <= index {
                let size = self.segments.len().max(index + 1);
                self.segments.resize_with(size, || None);
                self.counted.resize(size, (0, 0));
            }
            let statistics = self.segments[index].get_or_insert_default();
            let (counted, critical) = &mut self.counted[index];
            // A trace counts once, however often the segment occurs in it.
            if std::mem::replace(counted, trace) != trace {
                statistics.traces.count(weight);
            }
            let duration_ns = timing.duration_ns();
            statistics.occurrences.count(weight);
            statistics.duration.record_weighted(duration_ns, weight);
            if timing.after_answer {
                statistics.after_answer_occurrences.count(weight);
                statistics.after_answer_ns += weight.times(duration_ns);
            } else {
                statistics.slack.record_weighted(timing.slack_ns, weight);
            }
            if timing.critical {
                if std::mem::replace(critical, trace) != trace {
                    statistics.critical_traces.count(weight);
                }
                statistics.critical_duration_ns += weight.times(duration_ns);
                statistics.critical_wait_ns += weight.times(timing.wait_ns);
                statistics.duration_shares += share(duration_ns);
                statistics.wait_shares += share(timing.wait_ns);
            }
        }
    }

    /// Adds the statistics of `other`, whose segments the same [`Labels`] must number. The
    /// operation is commutative and associative.
    pub fn merge(&mut self, other: &PathAggregate) {
        self.traces += other.traces;
        self.without_length += other.without_length;
        self.latency.merge(&other.latency);
        self.after_answer.merge(&other.after_answer);
        self.tail_wait_ns += other.tail_wait_ns;
        self.tail_shares += other.tail_shares;
        let size = self.segments.len().max(other.segments.len());
        self.segments.resize_with(size, || None);
        // Numbers in `counted` are this aggregate's own, so no later trace collides with `other`.
        self.counted.resize(size, (0, 0));
        for (id, statistics) in other.segments() {
            let own = self.segments[id.index()].get_or_insert_default();
            own.merge(statistics);
        }
    }

    /// Returns the number of traces that took time up to the answer, to which mean shares refer.
    pub fn traces(&self) -> WeightedCount {
        self.traces
    }

    /// Returns the number of traces in which no time passed up to the answer.
    pub fn without_length(&self) -> WeightedCount {
        self.without_length
    }

    /// Returns the latencies of the [traces](Self::traces) up to their answers.
    pub fn latency(&self) -> &Distribution {
        &self.latency
    }

    /// Returns the times for which requests continued after their answer. Omits requests that ended
    /// with their answer, and requests in which no time passed up to the answer.
    pub fn after_answer(&self) -> &Distribution {
        &self.after_answer
    }

    /// Returns the total of [`TracePath::tail_wait_ns`], and the sum of its shares of paths.
    pub fn tail_wait(&self) -> (u128, ShareSum) {
        (self.tail_wait_ns, self.tail_shares)
    }

    /// Returns a sum of times on critical paths, in ns, as a share (0 to 1) of all requests' time.
    pub fn share_of_time(&self, sum_ns: u128) -> f64 {
        sum_ns as f64 / self.latency.sum_ns().max(1) as f64
    }

    /// Iterates over the segments that occurred in traces that took time, in order of number.
    pub fn segments(&self) -> impl Iterator<Item = (SegmentId, &PathStatistics)> {
        let numbered = self.segments.iter().enumerate();
        numbered.filter_map(|(index, statistics)| {
            Some((SegmentId(index as u32), statistics.as_deref()?))
        })
    }

    /// Returns the statistics of one segment, or `None` if no trace that took time had it.
    pub fn segment(&self, id: SegmentId) -> Option<&PathStatistics> {
        self.segments.get(id.index())?.as_deref()
    }

    /// Groups the statistics by operation, in order of name. Omits segments that `labels` lacks.
    pub fn by_operation(&self, labels: &Labels) -> Vec<OperationStatistics> {
        let mut operations = BTreeMap::<String, OperationStatistics>::new();
        for (id, statistics) in self.segments() {
            let Some(label) = labels.get(id) else {
                continue;
            };
            let operation = label.operation();
            let group = operations.entry(operation.clone()).or_default();
            group.operation = operation;
            group.segments.push(id);
            group.occurrences += statistics.occurrences;
            group.critical_duration_ns += statistics.critical_duration_ns;
            group.critical_wait_ns += statistics.critical_wait_ns;
            group.duration_shares += statistics.duration_shares;
            group.wait_shares += statistics.wait_shares;
            group.duration.merge(&statistics.duration);
            group.slack.merge(&statistics.slack);
        }
        operations.into_values().collect()
    }
}
