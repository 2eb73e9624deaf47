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

pub use range::{Expected, ReplaySample, STATISTICS};
pub use sample::{SAMPLE_TRACES_MAX, WaitingSample};
pub use shared_queues::ChangedWaits;
pub use waiting::Waiting;

use crate::critical_path::TracePath;
use crate::distribution::Distribution;
use crate::label::{Labels, SegmentId, SegmentLabel};
use crate::model::Relations;
use crate::segment::{Segment, SegmentedTrace};
use crate::task_path;
use replay::Lengths;
use rustc_hash::FxHashSet;
use shared_queues::{QueueWait, wait_of};
use std::borrow::Cow;
use waits::Waits;

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
    /// The least that the model allows for.
    pub least_ns: u64,
    /// The most that it allows for.
    pub most_ns: u64,
}

/// What is taken for true where requests do not tell.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Assumption {
    /// What was told from requests, and nothing else.
    AsTold,
    /// What was seen to wait worked before it for as long as it can have.
    WorkedBefore,
    /// What always ends at one instant waits for that instant.
    WaitsIfUndecided,
    /// Waits in shared queues stay as long as they were.
    QueuesKept,
    /// Load does as little as it can, or as much.
    LeastLoad,
    MostLoad,
}

/// Waits in shared queues change by so much more or less than found, as where they begin is partly drawn.
const QUEUES_UNSURE: f64 = 0.1;

/// Changes of segments, chosen by their labels.
pub struct WhatIf<'a, F> {
    waiting: &'a Waiting,
    queues: Option<&'a ChangedWaits>,
    change: F,
    /// Per segment id.
    decided: Vec<Option<Change>>,
    /// Per segment id, the part of its length that is due to load that the change changes.
    loads: Vec<Option<LoadedPart>>,
}

/// A share of a length that is due to visits, and by what factor those change.
#[derive(Clone, Copy, Debug)]
struct LoadedPart {
    share: f64,
    factor: f64,
}

impl<'a, F: Fn(SegmentId, &SegmentLabel) -> Option<Change>> WhatIf<'a, F> {
    /// Changes the segments for which this says so; it is asked once for each label.
    pub fn new(waiting: &'a Waiting, change: F) -> WhatIf<'a, F> {
        WhatIf {
            waiting,
            queues: None,
            change,
            decided: Vec::new(),
            loads: Vec::new(),
        }
    }

    /// Gives waits in queues of all requests the lengths that [`Waiting::changed_queues`] found for the same change.
    pub fn with_queues(self, queues: &'a ChangedWaits) -> Self {
        let queues = Some(queues).filter(|queues| !queues.is_empty());
        WhatIf { queues, ..self }
    }

    /// The request's new latency. `path` is [`analyse`](crate::critical_path::analyse)'s of the same trace and
    /// relations; the labels must be those that the trace was cut with, every time.
    pub fn replay(
        &mut self,
        trace: &SegmentedTrace,
        path: &TracePath,
        labels: &Labels,
    ) -> Replayed {
        self.decide(labels);
        let waits = self.queues.and_then(|queues| queues.of_trace(trace.id));
        let lengths = |assuming| {
            let waits = waits.unwrap_or(&[]);
            Changed {
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
        // Nothing to replay where nothing changes.
        let told = lengths(Assumption::AsTold);
        let is_changed = |segment: &Segment| told.is_affected(segment.id);
        if !trace.segments.iter().any(is_changed) && waits.is_none() {
            return Replayed {
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
        Replayed {
            latency_ns,
            longest_ns,
            least_ns,
            most_ns,
        }
    }

    /// Asks for the changes of labels that are new.
    fn decide(&mut self, labels: &Labels) {
        let known = self.decided.len();
        if known == labels.len() {
            return;
        }
        let new = labels.iter().skip(known);
        self.decided
            .extend(new.map(|(id, label)| (self.change)(id, label)));
        // Load is that of all services on the way to what is changed.
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

/// The lengths of one request's stretches after the changes.
struct Changed<'a> {
    trace: &'a SegmentedTrace,
    waiting: &'a Waiting,
    decided: &'a [Option<Change>],
    assuming: Assumption,
    /// Those in shared queues.
    waits: Cow<'a, [QueueWait]>,
    /// Of a request that is not in the sample.
    others: Option<&'a ChangedWaits>,
    loads: &'a [Option<LoadedPart>],
}

impl Changed<'_> {
    fn change(&self, id: SegmentId) -> Option<Change> {
        self.decided.get(id.index()).copied().flatten()
    }

    /// The label whose time the wait before this one is, if it is known.
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

impl Lengths for Changed<'_> {
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

impl Changed<'_> {
    /// A stretch that load may have made longer.
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
            // What is added once is added to the segment itself.
            Some(Change::AddNs(_)) if lead == Some(id) => ns,
            Some(change) => change.of(ns),
            None => ns,
        }
    }
}

/// The request's latency with these durations, by index of the segment, and all waits kept.
pub fn replay(
    trace: &SegmentedTrace,
    path: &TracePath,
    relations: &Relations,
    duration_ns: impl Fn(usize) -> u64,
) -> u64 {
    replay::replay(&Waits::unknown(relations), trace, path, &Given(duration_ns))
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
