//! What if a segment took less time, or more? (The Mystery Machine, §5.2.)
//!
//! A request is replayed: each segment starts its wait when the last of its predecessors has ended in the replay, and
//! then takes its new duration. What only waited ends when what it waited for does, see [`Waiting`]: it is no work, and
//! does not keep its length. Other waits and the tail stay what they were, as nobody logged what they are for. With
//! nothing changed, every segment starts and ends when it did, so the latency is exactly the request's.
//!
//! A segment that works first and then waits shows when its waiting ended, and not when it began. How long it worked is
//! only known to be no longer than the shortest such time of all requests, so the result is a range: see [`Replayed`].

mod contention;
mod ends;
mod follows;
mod join;
mod replay;
mod sample;
mod waiting;

pub use sample::{SAMPLE_TRACES_MAX, WaitingSample};
pub use waiting::Waiting;

use crate::critical_path::TracePath;
use crate::distribution::Distribution;
use crate::label::{Labels, SegmentId, SegmentLabel};
use crate::model::Relations;
use crate::segment::SegmentedTrace;
use replay::Lengths;

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

/// A request's latency after a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replayed {
    /// If segments that were seen to wait did nothing else until then.
    pub latency_ns: u64,
    /// If they worked before it for as long as they can have.
    pub longest_ns: u64,
}

/// Changes of segments, chosen by their labels.
pub struct WhatIf<'a, F> {
    waiting: &'a Waiting,
    change: F,
    /// Per segment id.
    decided: Vec<Option<Change>>,
}

impl<'a, F: Fn(SegmentId, &SegmentLabel) -> Option<Change>> WhatIf<'a, F> {
    /// Changes the segments for which this says so; it is asked once for each label.
    pub fn new(waiting: &'a Waiting, change: F) -> WhatIf<'a, F> {
        WhatIf {
            waiting,
            change,
            decided: Vec::new(),
        }
    }

    /// The request's new latency. `path` is [`analyse`](crate::critical_path::analyse)'s of the same trace and
    /// relations; the labels must be those that the trace was cut with, every time.
    pub fn replay(
        &mut self,
        trace: &SegmentedTrace,
        path: &TracePath,
        labels: &Labels,
    ) -> Replayed {
        let known = self.decided.len();
        self.decided.extend(
            labels
                .iter()
                .skip(known)
                .map(|(id, label)| (self.change)(id, label)),
        );
        let lengths = |unknown_as_work| Changed {
            trace,
            waiting: self.waiting,
            decided: &self.decided,
            unknown_as_work,
        };
        let lengths = [0.0, 1.0].map(lengths);
        // Nothing to replay where nothing changes.
        if trace
            .segments
            .iter()
            .all(|segment| !lengths[0].is_affected(segment.id))
        {
            return Replayed {
                latency_ns: path.latency_ns,
                longest_ns: path.latency_ns,
            };
        }
        let [latency_ns, most_ns] =
            lengths.map(|lengths| replay::replay(self.waiting, trace, path, &lengths));
        Replayed {
            latency_ns,
            longest_ns: most_ns.max(latency_ns),
        }
    }
}

/// The lengths of one request's stretches after the changes.
struct Changed<'a> {
    trace: &'a SegmentedTrace,
    waiting: &'a Waiting,
    decided: &'a [Option<Change>],
    unknown_as_work: f64,
}

impl Changed<'_> {
    fn change(&self, id: SegmentId) -> Option<Change> {
        self.decided.get(id.index()).copied().flatten()
    }

    /// The label whose time the wait before this one is, if it is known.
    fn lead(&self, id: SegmentId) -> Option<SegmentId> {
        self.waiting.leads.get(id.index()).copied().flatten()
    }

    fn is_affected(&self, id: SegmentId) -> bool {
        self.change(id).is_some()
            || self
                .lead(id)
                .is_some_and(|lead| self.change(lead).is_some())
    }
}

impl Lengths for Changed<'_> {
    fn work_ns(&self, index: usize, ns: u64) -> u64 {
        self.change(self.trace.segments[index].id)
            .map_or(ns, |change| change.of(ns))
    }

    fn wait_ns(&self, index: usize, ns: u64) -> u64 {
        let id = self.trace.segments[index].id;
        let lead = self.lead(id).filter(|_| ns > 0);
        match lead.and_then(|lead| self.change(lead)) {
            // What is added once is added to the segment itself.
            Some(Change::AddNs(_)) if lead == Some(id) => ns,
            Some(change) => change.of(ns),
            None => ns,
        }
    }

    fn unknown_as_work(&self) -> f64 {
        self.unknown_as_work
    }
}

/// The request's latency with these durations, by index of the segment, and all waits kept.
pub fn replay(
    trace: &SegmentedTrace,
    path: &TracePath,
    relations: &Relations,
    duration_ns: impl Fn(usize) -> u64,
) -> u64 {
    replay::replay(
        &Waiting::unknown(relations),
        trace,
        path,
        &Given(duration_ns),
    )
}

struct Given<F>(F);

impl<F: Fn(usize) -> u64> Lengths for Given<F> {
    fn work_ns(&self, index: usize, _: u64) -> u64 {
        self.0(index)
    }

    fn wait_ns(&self, _: usize, ns: u64) -> u64 {
        ns
    }

    fn unknown_as_work(&self) -> f64 {
        0.0
    }
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
