//! Finds queues that requests share, and computes the waits in them after a change.

use super::load::Load;
use super::queue::{Queue, Turns, Visit, WaitPlace};
use super::replay::{self, Lengths};
use super::sample::{SampledTrace, WaitingSample};
use super::visits::{AllVisits, Spans, Visits};
use super::waits::Waits;
use crate::label::{Labels, SegmentId};
use crate::record::TraceId;
use crate::segment::SegmentedTrace;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeMap;

/// Maximum number of rounds until waits are settled. Each round propagates a change from one queue
/// to the next.
const ROUNDS_MAX: usize = 24;
/// Relative change of waits up to which they are settled.
const SETTLED: f64 = 1e-3;
/// Maximum relative error of the sum of a queue's waits in a replay without changes.
const UNEXPLAINED_MAX: f64 = 0.1;

/// Queues found in a [`WaitingSample`].
#[derive(Clone, Debug, Default)]
pub(super) struct SharedQueues {
    /// Requests that visit a queue, or visited one that was removed.
    traces: Vec<SegmentedTrace>,
    queues: Vec<Queue>,
    /// Waits that a replay of all requests yields without changes.
    unchanged: ChangedWaits,
}

/// A wait in a queue, with its recorded length and its length in the replay, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueueWait {
    segment: usize,
    place: WaitPlace,
    was_ns: u64,
    pub(super) is_ns: u64,
}

/// Waits in shared queues after a change.
#[derive(Clone, Debug, Default)]
pub struct ChangedWaits {
    of_trace: foldhash::HashMap<TraceId, Vec<QueueWait>>,
    /// Lengths of the segments that contain a wait, by label and place of the wait: as recorded and
    /// after the change, both in ascending order. They serve requests without waits in
    /// `of_trace`.
    of_label: FxHashMap<(SegmentId, WaitPlace), (Vec<u64>, Vec<u64>)>,
}

/// Recorded lengths, except for these waits in shared queues.
struct UnchangedLengths(Vec<QueueWait>);

impl Lengths for UnchangedLengths {
    fn work_ns(&self, index: usize, ns: u64) -> u64 {
        wait_of(&self.0, index, false).map_or(ns, |wait| wait.stretched(ns, |ns| ns))
    }

    fn wait_ns(&self, index: usize, ns: u64) -> u64 {
        wait_of(&self.0, index, true).map_or(ns, |wait| wait.stretched(ns, |ns| ns))
    }

    fn unknown_as_work(&self) -> f64 {
        0.0
    }
}

impl SharedQueues {
    /// Finds the queues that requests share, and the segments that take longer under load although
    /// no queue explains it.
    pub(super) fn find(
        sample: &WaitingSample,
        waiting: &Waits,
        labels: &Labels,
    ) -> (SharedQueues, Load) {
        let spans = Spans::of(labels);
        let sampled: Vec<&SampledTrace> = sample.sampled().collect();
        let AllVisits {
            of_spans,
            of_stretches,
        } = spans.visits(sample, waiting);
        let mut found = Vec::new();
        // Operations that enter a service may share its workers.
        let mut of_service: BTreeMap<(&str, u32), Vec<&Visits>> = BTreeMap::new();
        for ((operation, process), visits) in &of_spans {
            if visits.enter_service {
                let service = spans.service(*operation);
                let all = of_service.entry((service, *process)).or_default();
                all.push(visits);
            } else if !visits.is_root {
                found.extend(Queue::before_visits(visits.all.clone()));
            }
        }
        for group in of_service.values() {
            let alone = group
                .iter()
                .filter_map(|visits| Queue::before_visits(visits.all.clone()));
            let alone: Vec<Queue> = alone.collect();
            let all = || group.iter().flat_map(|visits| &visits.all).cloned();
            let together = Some(group).filter(|group| group.len() > 1);
            let together = together.and_then(|_| Queue::before_visits(all().collect()));
            let waited = alone.iter().map(|queue| queue.waited).sum::<usize>();
            match together.filter(|together| together.waited > waited) {
                Some(together) => found.push(together),
                None => found.extend(alone),
            }
        }
        // Queues in which visits wait inside: the shortest visits come first. A queue is left out
        // if its visits enclose visits that are known to wait.
        let inner = of_spans.values().map(|visits| visits.all.clone());
        let inner = of_stretches.into_values().chain(inner);
        let mut inner: Vec<Queue> = inner.filter_map(Queue::inside_visits).collect();
        inner.sort_by_key(|queue| queue.total_ns() / queue.visits.len() as u64);
        for queue in inner {
            if !found.iter().any(|found| queue.encloses(found)) {
                found.push(queue);
            }
        }
        let traces: Vec<&SegmentedTrace> = sampled.iter().map(|sampled| &sampled.trace).collect();
        let queues = SharedQueues::of(&traces, found).that_explain(waiting);
        let mut load = Load::default();
        let explained: FxHashSet<SegmentId> = queues.waits().map(|(id, _)| id).collect();
        for ((operation, _), mut visits) in of_spans {
            let segment = |visit: &Visit, at: usize| &sampled[visit.request].trace.segments[at];
            let own = |visit: &Visit| {
                let mut own = spans.own(sampled[visit.request], visit);
                own.retain(|at| !explained.contains(&segment(visit, *at).id));
                own
            };
            load.observe(spans.service(operation), &mut visits.all, segment, own);
        }
        load.leave_out(&explained);
        (queues, load)
    }

    /// Removes queues for which a replay without changes does not reproduce the recorded waits.
    fn that_explain(mut self, waiting: &Waits) -> SharedQueues {
        while !self.queues.is_empty() {
            let unchanged = self.changed(waiting, |_, waits| UnchangedLengths(waits));
            let sums = |queue: &Queue| {
                let mut sums = (0.0, 0.0);
                for visit in &queue.visits {
                    let waits = unchanged.of_trace(self.traces[visit.request].id);
                    let is_before = visit.place == WaitPlace::Before;
                    let wait = waits.and_then(|w| wait_of(w, visit.segment, is_before));
                    sums.0 += visit.wait_ns as f64;
                    sums.1 += wait.map_or(0.0, |wait| wait.is_ns as f64);
                }
                (sums.1 - sums.0).abs() <= UNEXPLAINED_MAX * sums.0
            };
            let explains: Vec<bool> = self.queues.iter().map(sums).collect();
            if explains.iter().all(|explains| *explains) {
                self.unchanged = unchanged;
                break;
            }
            let mut explains = explains.into_iter();
            self.queues.retain(|_| explains.next() == Some(true));
        }
        self
    }

    /// Creates a set of queues with copies of the requests that visit them.
    fn of(traces: &[&SegmentedTrace], mut queues: Vec<Queue>) -> SharedQueues {
        let mut kept: Vec<Option<usize>> = vec![None; traces.len()];
        let mut own = Vec::new();
        for visit in queues.iter_mut().flat_map(|queue| &mut queue.visits) {
            visit.request = *kept[visit.request].get_or_insert_with(|| {
                own.push(traces[visit.request].clone());
                own.len() - 1
            });
        }
        SharedQueues {
            traces: own,
            queues,
            unchanged: ChangedWaits::default(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.queues.len()
    }

    /// Iterates over all visits of the queues, each as the label and the place of its wait. Waits
    /// of length zero are included.
    pub(super) fn waits(&self) -> impl Iterator<Item = (SegmentId, WaitPlace)> + '_ {
        self.queues
            .iter()
            .flat_map(|queue| &queue.visits)
            .map(|visit| {
                let segment = &self.traces[visit.request].segments[visit.segment];
                (segment.id, visit.place)
            })
    }

    /// Replays all requests together until the waits are settled, in at most `ROUNDS_MAX` rounds,
    /// and returns the waits. `lengths` returns the lengths of a request's segments, given its
    /// waits in the queues.
    pub(super) fn changed<'a, L: Lengths>(
        &'a self,
        waiting: &Waits,
        lengths: impl Fn(&'a SegmentedTrace, Vec<QueueWait>) -> L,
    ) -> ChangedWaits {
        let mut waits: Vec<Vec<QueueWait>> = vec![Vec::new(); self.traces.len()];
        let mut place_of: Vec<Vec<usize>> = Vec::new();
        for queue in &self.queues {
            let place = |visit: &Visit| {
                let waits = &mut waits[visit.request];
                waits.push(QueueWait {
                    segment: visit.segment,
                    place: visit.place,
                    was_ns: visit.wait_ns,
                    is_ns: visit.wait_ns,
                });
                waits.len() - 1
            };
            place_of.push(queue.visits.iter().map(place).collect());
        }
        let mut replayed: Vec<(Vec<u64>, L)> = Vec::new();
        for _ in 0..ROUNDS_MAX {
            replayed = self
                .traces
                .iter()
                .zip(&waits)
                .map(|(trace, waits)| {
                    let lengths = lengths(trace, waits.clone());
                    (replay::ends(waiting, trace, &lengths), lengths)
                })
                .collect();
            let (mut moved_ns, mut all_ns) = (0.0, 1.0);
            for (queue, place_of) in self.queues.iter().zip(&place_of) {
                let mut arrivals: Vec<(i64, usize, u64)> = Vec::with_capacity(place_of.len());
                for (index, visit) in queue.visits.iter().enumerate() {
                    let trace = &self.traces[visit.request];
                    let (ends, lengths) = &replayed[visit.request];
                    let wait = waits[visit.request][place_of[index]];
                    let (at_ns, end_ns) = wait.arrival_and_end_ns(trace, visit, ends, lengths);
                    let at_ns = trace.start_ns.saturating_add_unsigned(at_ns);
                    let end_ns = trace.start_ns.saturating_add_unsigned(end_ns);
                    let held_ns = end_ns.saturating_sub(at_ns).max(0) as u64;
                    arrivals.push((at_ns, index, held_ns.saturating_sub(wait.is_ns)));
                }
                arrivals.sort_unstable();
                let mut turns = Turns::new(queue.places);
                for (at_ns, index, held_ns) in arrivals {
                    let visit = &queue.visits[index];
                    let wait = &mut waits[visit.request][place_of[index]];
                    let is_ns = turns.wait_ns(at_ns);
                    turns.take(
                        at_ns
                            .saturating_add_unsigned(is_ns)
                            .saturating_add_unsigned(held_ns),
                    );
                    moved_ns += is_ns.abs_diff(wait.is_ns) as f64;
                    all_ns += is_ns as f64;
                    wait.is_ns = is_ns;
                }
            }
            if moved_ns <= SETTLED * all_ns {
                break;
            }
        }
        // A wait that the change does not affect keeps its recorded length instead of the replayed
        // one.
        for (trace, waits) in self.traces.iter().zip(&mut waits) {
            let unchanged = self.unchanged.of_trace(trace.id).unwrap_or(&[]);
            for (wait, unchanged) in waits.iter_mut().zip(unchanged) {
                if wait.is_ns == unchanged.is_ns {
                    wait.is_ns = wait.was_ns;
                }
            }
        }
        self.by_label(waits, &replayed)
    }

    fn by_label<L: Lengths>(
        &self,
        waits: Vec<Vec<QueueWait>>,
        replayed: &[(Vec<u64>, L)],
    ) -> ChangedWaits {
        let mut changed = ChangedWaits::default();
        for ((trace, waits), (_, lengths)) in self.traces.iter().zip(waits).zip(replayed) {
            for wait in &waits {
                if wait.place == WaitPlace::Before {
                    continue;
                }
                let segment = &trace.segments[wait.segment];
                let was_ns = segment.duration_ns();
                let (was, is) = changed
                    .of_label
                    .entry((segment.id, wait.place))
                    .or_default();
                was.push(was_ns);
                is.push(lengths.work_ns(wait.segment, was_ns));
            }
            changed.of_trace.insert(trace.id, waits);
        }
        for (was, is) in changed.of_label.values_mut() {
            was.sort_unstable();
            is.sort_unstable();
        }
        changed
    }
}

impl QueueWait {
    /// Returns the times at which the visit reaches the queue and ends, in nanoseconds after the
    /// request's start.
    fn arrival_and_end_ns(
        &self,
        trace: &SegmentedTrace,
        visit: &Visit,
        ends: &[u64],
        lengths: &impl Lengths,
    ) -> (u64, u64) {
        let segment = &trace.segments[self.segment];
        let work_ns = || lengths.work_ns(self.segment, segment.duration_ns());
        let at_ns = match self.place {
            WaitPlace::End => ends[self.segment].saturating_sub(self.is_ns),
            WaitPlace::Before => ends[self.segment].saturating_sub(work_ns() + self.is_ns),
            WaitPlace::Start => ends[self.segment].saturating_sub(work_ns()),
        };
        (at_ns, ends[visit.last])
    }

    /// Returns the wait with its recorded length.
    pub(super) fn kept(self) -> QueueWait {
        QueueWait {
            is_ns: self.was_ns,
            ..self
        }
    }

    /// Returns the new length of a segment, or of the time before it, that contains this wait and
    /// was `ns` long. `of_rest` returns the new length of the rest without the wait.
    pub(super) fn stretched(&self, ns: u64, of_rest: impl Fn(u64) -> u64) -> u64 {
        of_rest(ns.saturating_sub(self.was_ns)).saturating_add(self.is_ns)
    }
}

impl ChangedWaits {
    pub(super) fn of_trace(&self, id: TraceId) -> Option<&[QueueWait]> {
        self.of_trace.get(&id).map(Vec::as_slice)
    }

    /// Returns the new length of a segment that was `ns` long, for a request that is not known to
    /// visit a queue; `None` if no segment of the label contains a wait. The segment keeps its rank
    /// among the lengths of its label in the sample.
    pub(super) fn of_label(&self, id: SegmentId, ns: u64) -> Option<u64> {
        let (was, is) = [WaitPlace::End, WaitPlace::Start]
            .into_iter()
            .find_map(|place| self.of_label.get(&(id, place)))?;
        let rank = was.partition_point(|was_ns| *was_ns < ns);
        is.get(rank).or(is.last()).copied()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.of_trace.is_empty()
    }
}

/// Returns the wait of a segment among the waits of one request; `None` if it has none. `is_before`
/// selects a wait before the segment instead of inside it.
pub(super) fn wait_of(waits: &[QueueWait], segment: usize, is_before: bool) -> Option<&QueueWait> {
    waits
        .iter()
        .find(|wait| wait.segment == segment && (wait.place == WaitPlace::Before) == is_before)
}
