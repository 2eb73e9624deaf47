//! Critical paths and slack over many requests (The Mystery Machine, §4.4.1): how often a segment is critical, what
//! share of the critical path it is, and how long it takes.
//!
//! Shares are summed in fixed point, in units of 2⁻⁶², so that sums do not depend on the order of traces, the parts of
//! a range merge to exactly the whole, and a group's share is exactly the sum of its members'. A trace counts as often as
//! its [`Weight`] says: in numbers of traces, in sums and in distributions.

use crate::critical_path::TracePath;
use crate::distribution::Distribution;
use crate::label::{Labels, SegmentId};
use crate::sampling::{Weight, WeightedCount};
use std::collections::BTreeMap;

/// A whole critical path, as a share.
const WHOLE: u128 = 1 << 62;

/// A sum of shares of critical paths, one whole per trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ShareSum(u128);

impl ShareSum {
    fn add(&mut self, part_ns: u64, whole_ns: u64, weight: Weight) {
        if whole_ns > 0 && part_ns > 0 {
            let share = u128::from(part_ns) * WHOLE / u128::from(whole_ns);
            // Room for 2⁵⁰ requests.
            self.0 = self.0.saturating_add(share * u128::from(weight.units()));
        }
    }

    /// The mean share over so many traces, 0 to 1.
    pub fn mean(self, traces: WeightedCount) -> f64 {
        let whole = WHOLE as f64 * Weight::ONE.units() as f64;
        traces.mean(self.0 as f64 / whole)
    }
}

impl std::ops::Add for ShareSum {
    type Output = ShareSum;

    fn add(self, other: ShareSum) -> ShareSum {
        ShareSum(self.0.saturating_add(other.0))
    }
}

impl std::iter::Sum for ShareSum {
    fn sum<I: Iterator<Item = ShareSum>>(sums: I) -> ShareSum {
        sums.fold(ShareSum::default(), |a, b| a + b)
    }
}

/// One segment over all traces.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct PathStatistics {
    /// Traces in which it occurs.
    pub traces: WeightedCount,
    /// Instances, over all traces.
    pub occurrences: WeightedCount,
    /// Of these, instances that ended after the answer,
    pub after_answer_occurrences: WeightedCount,
    /// and how long these took, summed.
    pub after_answer_ns: u128,
    /// Traces in which it is critical.
    pub critical_traces: WeightedCount,
    /// Its duration while critical, summed.
    pub critical_duration_ns: u128,
    /// What was waited for it while critical, summed.
    pub critical_wait_ns: u128,
    /// Its share of each trace's critical path by its duration, summed.
    pub duration_shares: ShareSum,
    /// Its share of each trace's critical path by its wait, summed.
    pub wait_shares: ShareSum,
    /// How long an instance takes.
    pub duration: Distribution,
    /// An instance's slack, of those that ended by the answer.
    pub slack: Distribution,
}

impl PathStatistics {
    /// Its share of the critical path, duration and wait, summed over traces.
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
        self.duration_shares = self.duration_shares + other.duration_shares;
        self.wait_shares = self.wait_shares + other.wait_shares;
        self.duration.merge(&other.duration);
        self.slack.merge(&other.slack);
    }
}

/// One operation's part in the critical paths.
#[derive(Clone, Debug, PartialEq)]
pub struct OperationStatistics {
    /// `service:name`, or an event log's task: see [`SegmentLabel::operation`](crate::label::SegmentLabel::operation).
    pub operation: String,
    /// Its segments.
    pub segments: Vec<SegmentId>,
    /// Its segments' instances.
    pub occurrences: WeightedCount,
    /// Their duration while critical, summed.
    pub critical_duration_ns: u128,
    /// What was waited for them while critical, summed.
    pub critical_wait_ns: u128,
    /// Their shares by duration, summed: exactly the sum over the segments.
    pub duration_shares: ShareSum,
    /// Their shares by wait, summed: exactly the sum over the segments.
    pub wait_shares: ShareSum,
    /// How long an instance of a segment takes: a stretch of the operation's own work, without what it calls.
    pub duration: Distribution,
    /// An instance's slack, of those that ended by the answer.
    pub slack: Distribution,
}

/// Critical paths of many traces. All must be numbered by the same labels.
#[derive(Clone, Debug, Default)]
pub struct PathAggregate {
    traces: WeightedCount,
    without_length: WeightedCount,
    latency: Distribution,
    after_answer: Distribution,
    tail_wait_ns: u128,
    tail_shares: ShareSum,
    /// By number.
    segments: Vec<Option<Box<PathStatistics>>>,
    /// By number: the last trace that counted for the segment, and the last in which it was critical.
    counted: Vec<(u64, u64)>,
}

impl PartialEq for PathAggregate {
    /// Whether both have seen the same.
    fn eq(&self, other: &PathAggregate) -> bool {
        let whole = |of: &PathAggregate| (of.traces, of.tail_wait_ns, of.tail_shares);
        whole(self) == whole(other)
            && (&self.latency, &self.after_answer) == (&other.latency, &other.after_answer)
            && self.segments().eq(other.segments())
    }
}

impl PathAggregate {
    /// Of no trace.
    pub fn new() -> PathAggregate {
        PathAggregate::default()
    }

    /// Takes one trace into account. One in which no time passes (a single event, say) has no critical path that
    /// anything could have a share of: it is counted apart, and counts for nothing else.
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
        self.tail_shares
            .add(path.tail_wait_ns, path.critical_path_ns, weight);
        for timing in &path.segments {
            let index = timing.segment.index();
            if self.segments.len() <= index {
                self.segments.resize_with(index + 1, || None);
                self.counted.resize(index + 1, (0, 0));
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
                statistics
                    .duration_shares
                    .add(duration_ns, path.critical_path_ns, weight);
                statistics
                    .wait_shares
                    .add(timing.wait_ns, path.critical_path_ns, weight);
            }
        }
    }

    /// Adds what another one has seen, numbered by the same labels. Commutative and associative.
    pub fn merge(&mut self, other: &PathAggregate) {
        self.traces += other.traces;
        self.without_length += other.without_length;
        self.latency.merge(&other.latency);
        self.after_answer.merge(&other.after_answer);
        self.tail_wait_ns += other.tail_wait_ns;
        self.tail_shares = self.tail_shares + other.tail_shares;
        let size = self.segments.len().max(other.segments.len());
        self.segments.resize_with(size, || None);
        // Numbers of traces are this one's: none of those to come has been counted.
        self.counted.resize(size, (0, 0));
        for (id, statistics) in other.segments() {
            self.segments[id.index()]
                .get_or_insert_default()
                .merge(statistics);
        }
    }

    /// Traces observed that took any time: what shares are means over.
    pub fn traces(&self) -> WeightedCount {
        self.traces
    }

    /// Traces observed in which no time passed.
    pub fn without_length(&self) -> WeightedCount {
        self.without_length
    }

    /// End-to-end latency of the requests.
    pub fn latency(&self) -> &Distribution {
        &self.latency
    }

    /// For how long requests went on after their answer: those that did.
    pub fn after_answer(&self) -> &Distribution {
        &self.after_answer
    }

    /// Time between the last segment and the answer, summed; and its shares of the critical path, summed.
    pub fn tail_wait(&self) -> (u128, ShareSum) {
        (self.tail_wait_ns, self.tail_shares)
    }

    /// Each segment seen, in order of its number.
    pub fn segments(&self) -> impl Iterator<Item = (SegmentId, &PathStatistics)> {
        let numbered = self.segments.iter().enumerate();
        numbered.filter_map(|(index, statistics)| {
            Some((SegmentId(index as u32), statistics.as_deref()?))
        })
    }

    /// One segment, if it was seen.
    pub fn segment(&self, id: SegmentId) -> Option<&PathStatistics> {
        self.segments.get(id.index())?.as_deref()
    }

    /// The critical path by operation, in order of name. Segments that `labels` does not know are left out.
    pub fn by_operation(&self, labels: &Labels) -> Vec<OperationStatistics> {
        let mut operations = BTreeMap::<String, OperationStatistics>::new();
        for (id, statistics) in self.segments() {
            let Some(label) = labels.get(id) else {
                continue;
            };
            let operation = label.operation();
            let group =
                operations
                    .entry(operation.clone())
                    .or_insert_with(|| OperationStatistics {
                        operation,
                        segments: Vec::new(),
                        occurrences: WeightedCount::default(),
                        critical_duration_ns: 0,
                        critical_wait_ns: 0,
                        duration_shares: ShareSum::default(),
                        wait_shares: ShareSum::default(),
                        duration: Distribution::default(),
                        slack: Distribution::default(),
                    });
            group.segments.push(id);
            group.occurrences += statistics.occurrences;
            group.critical_duration_ns += statistics.critical_duration_ns;
            group.critical_wait_ns += statistics.critical_wait_ns;
            group.duration_shares = group.duration_shares + statistics.duration_shares;
            group.wait_shares = group.wait_shares + statistics.wait_shares;
            group.duration.merge(&statistics.duration);
            group.slack.merge(&statistics.slack);
        }
        operations.into_values().collect()
    }
}
