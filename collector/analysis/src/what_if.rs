//! What if a segment took less time, or more? (The Mystery Machine, §5.2.)
//!
//! A request is replayed: each segment starts its wait when the last of its predecessors has ended in the replay, and
//! then takes its new duration. Waits and the tail stay what they were, as nobody logged what they are for. With
//! nothing changed, every segment starts and ends when it did, so the latency is exactly the request's.

use crate::critical_path::{Predecessors, TracePath};
use crate::distribution::Distribution;
use crate::label::{Labels, SegmentId, SegmentLabel};
use crate::model::Relations;
use crate::segment::SegmentedTrace;

/// What becomes of a segment's duration.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Change {
    /// It is multiplied, and rounded to whole nanoseconds. What is not a number, or below 0, counts as 0.
    Scale(f64),
    /// It takes at most so long.
    CapNs(u64),
    /// It takes so much longer.
    AddNs(u64),
}

impl Change {
    /// The new duration.
    pub fn of(self, duration_ns: u64) -> u64 {
        match self {
            // Exact, where floating point would round long durations.
            Change::Scale(1.0) => duration_ns,
            // The cast saturates, and takes what is not a number for 0.
            Change::Scale(factor) => (duration_ns as f64 * factor).round() as u64,
            Change::CapNs(cap_ns) => duration_ns.min(cap_ns),
            Change::AddNs(more_ns) => duration_ns.saturating_add(more_ns),
        }
    }
}

/// Changes of segments, chosen by their labels.
pub struct WhatIf<F> {
    change: F,
    /// Per segment id.
    decided: Vec<Option<Change>>,
}

impl<F: Fn(SegmentId, &SegmentLabel) -> Option<Change>> WhatIf<F> {
    /// Changes the segments for which this says so; it is asked once for each label.
    pub fn new(change: F) -> WhatIf<F> {
        WhatIf { change, decided: Vec::new() }
    }

    /// The request's new latency. `path` is [`analyse`](crate::critical_path::analyse)'s of the same trace and
    /// relations; the labels must be those that the trace was cut with, every time.
    pub fn replay(
        &mut self,
        trace: &SegmentedTrace,
        path: &TracePath,
        relations: &Relations,
        labels: &Labels,
    ) -> u64 {
        let known = self.decided.len();
        self.decided.extend(labels.iter().skip(known).map(|(id, label)| (self.change)(id, label)));
        let decided = &self.decided;
        let change = |id: SegmentId| decided.get(id.index()).copied().flatten();
        // Nothing to replay where nothing changes.
        if path.segments.iter().all(|timing| change(timing.segment).is_none()) {
            return path.latency_ns;
        }
        replay(trace, path, relations, |index| {
            let timing = &path.segments[index];
            change(timing.segment).map_or(timing.duration_ns(), |change| change.of(timing.duration_ns()))
        })
    }
}

/// The request's latency with these durations, by index of the segment.
pub fn replay(
    trace: &SegmentedTrace,
    path: &TracePath,
    relations: &Relations,
    duration_ns: impl Fn(usize) -> u64,
) -> u64 {
    let ends = Predecessors::of(trace, relations).fold_predecessors(|index, ready_ns| {
        ready_ns.saturating_add(path.segments[index].wait_ns).saturating_add(duration_ns(index))
    });
    ends.into_iter().max().unwrap_or(0).saturating_add(path.tail_wait_ns)
}

/// Latencies before and after a change. Merging is commutative and associative.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LatencyChange {
    /// As recorded.
    pub before: Distribution,
    /// As replayed.
    pub after: Distribution,
    /// Requests that became faster.
    pub faster: u64,
    /// Requests that became slower.
    pub slower: u64,
}

impl LatencyChange {
    /// Takes one request into account.
    pub fn observe(&mut self, before_ns: u64, after_ns: u64) {
        self.before.record(before_ns);
        self.after.record(after_ns);
        self.faster += u64::from(after_ns < before_ns);
        self.slower += u64::from(after_ns > before_ns);
    }

    /// Adds what another one has seen.
    pub fn merge(&mut self, other: &LatencyChange) {
        self.before.merge(&other.before);
        self.after.merge(&other.after);
        self.faster += other.faster;
        self.slower += other.slower;
    }

    /// By how much the latency changes at this quantile, in nanoseconds: below 0, it falls.
    pub fn change_ns(&self, quantile: f64) -> i128 {
        i128::from(self.after.quantile_ns(quantile)) - i128::from(self.before.quantile_ns(quantile))
    }
}
