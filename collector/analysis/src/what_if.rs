//! Predicts the latency of requests if segments took less or more time (The Mystery Machine, §5.2).
//!
//! A request is replayed. Each segment starts its wait when the last of its predecessors has ended
//! in the replay, and then takes its new duration. A segment that only waits does not keep its
//! length: it ends when the awaited event occurs, see [`WaitModel`]. Waits for unknown events, such
//! as the time between the last segment and the answer, keep their lengths. Waits that are part of
//! changed own time are an exception. If nothing changes, the replayed latency equals the recorded
//! one.
//!
//! A segment that first works and then waits shows when its wait ended, but not when the wait
//! began. The work before the wait is at most as long as the shortest time before the awaited event
//! in any request. The result is therefore a range, see [`ReplayedLatency`].

mod contention;
mod ends;
mod follows;
mod join;
mod load;
mod queue;
mod range;
mod replay;
mod sample;
mod shared_queues;
mod shown;
mod visits;
mod waiting;
mod waits;

pub use range::{ExpectedChange, ReplaySample, STATISTICS};
pub use sample::{SAMPLE_TRACES_MAX, WaitingSample};
pub use shared_queues::ChangedWaits;
pub use waiting::WaitModel;

use crate::critical_path::TracePath;
use crate::distribution::Distribution;
use crate::label::{Labels, SegmentId, SegmentLabel};
use crate::model::Relations;
use crate::sampling::{Weight, WeightedCount};
use crate::segment::{Segment, SegmentedTrace};
use crate::task_path;
use replay::Lengths;
use rustc_hash::FxHashSet;
use shared_queues::{QueueWait, wait_of};
use std::borrow::Cow;
use std::cmp::Ordering;
use waits::Waits;

/// Hypothetical change of a segment's duration.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Change {
    /// Multiplies the duration, and rounds it to whole nanoseconds. NaN and negative factors count
    /// as 0.
    Scale(f64),
    /// Limits the duration to this many nanoseconds.
    CapNs(u64),
    /// Adds this many nanoseconds.
    AddNs(u64),
}

impl Change {
    /// Returns the new duration.
    pub fn of(self, duration_ns: u64) -> u64 {
        match self {
            // This is exact; floating point would round long durations.
            Change::Scale(1.0) => duration_ns,
            // The cast saturates, and converts NaN to 0.
            Change::Scale(factor) => (duration_ns as f64 * factor).round() as u64,
            Change::CapNs(cap_ns) => duration_ns.min(cap_ns),
            Change::AddNs(more_ns) => duration_ns.saturating_add(more_ns),
        }
    }
}

/// Latency of a request after a change, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplayedLatency {
    /// Latency if segments did no work before an awaited event where this work is unknown.
    pub latency_ns: u64,
    /// Latency if segments worked for as long as possible before an awaited event where this work
    /// is unknown.
    pub longest_ns: u64,
    /// Least latency that the model allows.
    pub least_ns: u64,
    /// Greatest latency that the model allows.
    pub most_ns: u64,
}

/// Assumption about facts that the recorded requests do not show.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Assumption {
    /// No assumption beyond the relations and waits inferred from requests.
    AsTold,
    /// Segments worked for as long as possible before an awaited event where this is unknown.
    WorkedBefore,
    /// Unchanged segments that always end at nearly the same time after the request's start wait
    /// for that time.
    WaitsIfUndecided,
    /// Waits in shared queues keep their lengths.
    QueuesKept,
    /// Segments have the least length that the changed load allows. In the next variant, they have
    /// the greatest.
    LeastLoad,
    MostLoad,
}

/// Uncertainty of the effect of shared queues, as a fraction of the effect. The instants at which
/// waits begin are partly drawn at random.
const QUEUES_UNSURE: f64 = 0.1;

/// Replays requests with changed segments. A function chooses the change of each label.
pub struct WhatIf<'a, F> {
    waiting: &'a WaitModel,
    queues: Option<&'a ChangedWaits>,
    change: F,
    /// Change of each segment, by segment id; `None` if the segment is unchanged.
    decided: Vec<Option<Change>>,
    /// Part of each segment's length that is due to load, by segment id; `None` if the change has
    /// no known effect on the segment by load.
    loads: Vec<Option<LoadedPart>>,
}

/// Share (0 to 1) of a segment's length that is due to other concurrent visits to the operation
/// that the segment belongs to or calls. `factor` is the factor by which the total length of the
/// changed segments changes.
#[derive(Clone, Copy, Debug)]
struct LoadedPart {
    share: f64,
    factor: f64,
}

impl<'a, F: Fn(SegmentId, &SegmentLabel) -> Option<Change>> WhatIf<'a, F> {
    /// Creates a replay that changes the segments for which `change` returns a change. The replay
    /// calls `change` once for each label.
    pub fn new(waiting: &'a WaitModel, change: F) -> WhatIf<'a, F> {
        WhatIf {
            waiting,
            queues: None,
            change,
            decided: Vec::new(),
            loads: Vec::new(),
        }
    }

    /// Applies the waits in shared queues that [`WaitModel::changed_queues`] computed for the same
    /// change.
    pub fn with_queues(self, queues: &'a ChangedWaits) -> Self {
        let queues = Some(queues).filter(|queues| !queues.is_empty());
        WhatIf { queues, ..self }
    }

    /// Returns the request's new latency. [`analyse`](crate::critical_path::analyse) must have
    /// computed `path` from `trace` and the relations from which the [`WaitModel`] was made. Every
    /// call must pass the labels that the trace was cut with.
    pub fn replay(
        &mut self,
        trace: &SegmentedTrace,
        path: &TracePath,
        labels: &Labels,
    ) -> ReplayedLatency {
        self.decide(labels);
        let waits = self.queues.and_then(|queues| queues.of_trace(trace.id));
        let lengths = |assuming| {
            let waits = waits.unwrap_or(&[]);
            ChangedLengths {
                trace,
                waiting: self.waiting,
                decided: &self.decided,
                assuming,
                waits: match assuming {
                    Assumption::QueuesKept => waits.iter().map(|wait| wait.kept()).collect(),
                    _ => waits.into(),
                },
                others: self.queues.filter(|_| waits.is_empty()),
                loads: &self.loads,
            }
        };
        let latency = |assuming| replay::replay(&self.waiting.own, trace, path, &lengths(assuming));
        // Skip the replay if nothing changes.
        let told = lengths(Assumption::AsTold);
        let is_changed = |segment: &Segment| told.is_affected(segment.id);
        if !trace.segments.iter().any(is_changed) && waits.is_none() {
            return ReplayedLatency {
                latency_ns: path.latency_ns,
                longest_ns: path.latency_ns,
                least_ns: path.latency_ns,
                most_ns: path.latency_ns,
            };
        }
        let latency_ns = latency(Assumption::AsTold);
        let longest_ns = latency(Assumption::WorkedBefore).max(latency_ns);
        let (mut least_ns, mut most_ns) = (latency_ns, longest_ns);
        if waits.is_some() {
            let by_queues_ns = latency_ns.abs_diff(latency(Assumption::QueuesKept));
            let unsure_ns = (by_queues_ns as f64 * QUEUES_UNSURE) as u64;
            least_ns = least_ns.saturating_sub(unsure_ns);
            most_ns = most_ns.saturating_add(unsure_ns);
        }
        let mut widen = |assuming| {
            let ns = latency(assuming);
            (least_ns, most_ns) = (least_ns.min(ns), most_ns.max(ns));
        };
        let label_is = |is: &dyn Fn(usize) -> bool| trace.segments.iter().any(|s| is(s.id.index()));
        if label_is(&|label| {
            self.waiting
                .own
                .shown
                .get(label)
                .is_some_and(|shown| shown.undecided)
        }) {
            widen(Assumption::WaitsIfUndecided);
        }
        if label_is(&|label| self.loads.get(label).is_some_and(Option::is_some)) {
            widen(Assumption::LeastLoad);
            widen(Assumption::MostLoad);
        }
        ReplayedLatency {
            latency_ns,
            longest_ns,
            least_ns,
            most_ns,
        }
    }

    /// Determines the changes of labels added since the last call, and their effect on load.
    fn decide(&mut self, labels: &Labels) {
        let known = self.decided.len();
        if known == labels.len() {
            return;
        }
        let new = labels.iter().skip(known);
        self.decided
            .extend(new.map(|(id, label)| (self.change)(id, label)));
        // The load changes for all services on the paths to the changed segments.
        let (mut services, mut was_ns, mut is_ns) = (FxHashSet::default(), 0.0, 0.0);
        for ((_, label), change) in labels.iter().zip(&self.decided) {
            if change.is_some() {
                let on_the_way = label.task.split(task_path::JOINT);
                services.extend(on_the_way.filter_map(|component| component.split(':').next()));
            }
        }
        for (shown, change) in self.waiting.own.shown.iter().zip(&self.decided) {
            if let Some(change) = change {
                was_ns += f64::from(shown.count) * shown.mean_ns;
                is_ns += f64::from(shown.count) * change.of(shown.mean_ns as u64) as f64;
            }
        }
        self.loads = vec![None; self.decided.len()];
        let factor = if was_ns > 0.0 { is_ns / was_ns } else { 1.0 };
        for (id, share) in self.waiting.load.of_services(&services) {
            if let Some(load) = self.loads.get_mut(id.index()) {
                *load = Some(LoadedPart { share, factor });
            }
        }
    }
}

/// Lengths of one request's segments, and of the waits before them, after the changes.
struct ChangedLengths<'a> {
    trace: &'a SegmentedTrace,
    waiting: &'a WaitModel,
    decided: &'a [Option<Change>],
    assuming: Assumption,
    /// Waits of this request in shared queues; empty if none are known.
    waits: Cow<'a, [QueueWait]>,
    /// Changed waits of other requests, from which the waits of this request are estimated; `None`
    /// if `waits` has entries, or without changed waits.
    others: Option<&'a ChangedWaits>,
    loads: &'a [Option<LoadedPart>],
}

impl ChangedLengths<'_> {
    fn change(&self, id: SegmentId) -> Option<Change> {
        self.decided.get(id.index()).copied().flatten()
    }

    /// Returns the label of the own time to which the wait before this segment belongs;
    /// `None` if it is unknown. See `Waits::leads`.
    fn lead(&self, id: SegmentId) -> Option<SegmentId> {
        self.waiting.own.leads.get(id.index()).copied().flatten()
    }

    fn is_affected(&self, id: SegmentId) -> bool {
        self.change(id).is_some()
            || self.loads.get(id.index()).is_some_and(Option::is_some)
            || self
                .others
                .is_some_and(|others| others.of_label(id, 0).is_some())
            || self
                .lead(id)
                .is_some_and(|lead| self.change(lead).is_some())
    }
}

impl Lengths for ChangedLengths<'_> {
    fn work_ns(&self, index: usize, ns: u64) -> u64 {
        let id = self.trace.segments[index].id;
        let changed = |ns| self.change(id).map_or(ns, |change| change.of(ns));
        if let Some(wait) = wait_of(&self.waits, index, false) {
            return wait.stretched(ns, changed);
        }
        let others = self
            .others
            .filter(|_| self.assuming != Assumption::QueuesKept);
        let others = others.and_then(|others| others.of_label(id, ns));
        others.unwrap_or_else(|| self.loaded_ns(id, ns, changed))
    }

    fn wait_ns(&self, index: usize, ns: u64) -> u64 {
        let id = self.trace.segments[index].id;
        if let Some(wait) = wait_of(&self.waits, index, true) {
            return wait.stretched(ns, |ns| self.own_wait_ns(id, ns));
        }
        self.own_wait_ns(id, ns)
    }

    fn unknown_as_work(&self) -> f64 {
        if self.assuming == Assumption::WorkedBefore {
            1.0
        } else {
            0.0
        }
    }

    fn waits_if_undecided(&self) -> bool {
        self.assuming == Assumption::WaitsIfUndecided
    }
}

impl ChangedLengths<'_> {
    /// Returns the new length of a segment that was `ns` long. `changed` returns the new length of
    /// work. Under `LeastLoad` and `MostLoad`, the part of the length that is due to load changes
    /// as well.
    fn loaded_ns(&self, id: SegmentId, ns: u64, changed: impl Fn(u64) -> u64) -> u64 {
        let load = self.loads.get(id.index()).copied().flatten();
        match (self.assuming, load) {
            (Assumption::LeastLoad, Some(load)) => {
                load::bounds(ns, load.share, load.factor, changed).0
            }
            (Assumption::MostLoad, Some(load)) => {
                load::bounds(ns, load.share, load.factor, changed).1
            }
            _ => changed(ns),
        }
    }

    fn own_wait_ns(&self, id: SegmentId, ns: u64) -> u64 {
        let lead = self.lead(id).filter(|_| ns > 0);
        match lead.and_then(|lead| self.change(lead)) {
            // Added time applies once, to the segment itself.
            Some(Change::AddNs(_)) if lead == Some(id) => ns,
            Some(change) => change.of(ns),
            None => ns,
        }
    }
}

/// Returns the request's latency, in nanoseconds, if segments had other durations and all waits
/// kept their lengths. `duration_ns` returns the new duration of the segment with a given index.
pub fn replay(
    trace: &SegmentedTrace,
    path: &TracePath,
    relations: &Relations,
    duration_ns: impl Fn(usize) -> u64,
) -> u64 {
    replay::replay(
        &Waits::unknown(relations),
        trace,
        path,
        &LengthFunction(duration_ns),
    )
}

struct LengthFunction<F>(F);

impl<F: Fn(usize) -> u64> Lengths for LengthFunction<F> {
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
    /// Recorded latencies.
    pub before: Distribution,
    /// Replayed latencies.
    pub after: Distribution,
    /// Number of requests that became faster.
    pub faster: WeightedCount,
    /// Number of requests that became slower.
    pub slower: WeightedCount,
}

impl LatencyChange {
    /// Adds one request with its recorded and its replayed latency.
    pub fn observe(&mut self, before_ns: u64, after_ns: u64, weight: Weight) {
        self.before.record_weighted(before_ns, weight);
        self.after.record_weighted(after_ns, weight);
        match after_ns.cmp(&before_ns) {
            Ordering::Less => self.faster.count(weight),
            Ordering::Equal => {}
            Ordering::Greater => self.slower.count(weight),
        }
    }

    /// Adds the requests of `other`.
    pub fn merge(&mut self, other: &LatencyChange) {
        self.before.merge(&other.before);
        self.after.merge(&other.after);
        self.faster += other.faster;
        self.slower += other.slower;
    }

    /// Returns the change of the latency at this quantile, in nanoseconds. It is negative if the
    /// latency falls.
    pub fn change_ns(&self, quantile: f64) -> i128 {
        i128::from(self.after.quantile_ns(quantile)) - i128::from(self.before.quantile_ns(quantile))
    }
}
