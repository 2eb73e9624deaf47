//! Learns where requests wait, inside segments and before them, and which events end the waits. A
//! replay then does not keep the length of time that was only a wait.
//!
//! Work takes its own time, but a wait ends when an awaited event occurs. Suppose that segment A
//! lasts `y`, and segment B ends `x` after A starts. Many requests together show whether A waits
//! for B. If A waits, each nanosecond of `x` makes `y` longer by one nanosecond (slope 1). If A
//! works, `y` does not depend on `x`. The same test applies to the time before a segment, counted
//! from the latest end of its predecessors. A segment may wait for:
//!
//! * segments that never ended later than it in any request; of several, the last to end;
//! * the last end of any segment before the end of the wait, if the two ends are far closer than by
//!   chance, as when a place in a pool is released;
//! * a timer: a fixed time after the request's start.
//!
//! Before a segment starts, only the last two are considered.
//!
//! In addition, relations are removed that only reflect in which requests a segment occurs. A span
//! has own time between two children only in requests in which no third child runs meanwhile. The
//! third child therefore always seems to end before this own time. If the third child does not end
//! before the child that follows the own time, the relation is false, because happens-before is
//! transitive.

use super::contention::contended;
use super::ends::{LabelSet, Orders, by_end, for_each_end, has, put};
use super::follows::{Fit, POINTS_MIN, fit, is_close};
use super::join::{Join, joins};
use super::queue::WaitPlace;
use super::sample::WaitingSample;
use super::shown::{LabelTimes, shown};
use crate::critical_path::Predecessors;
use crate::label::{Labels, SegmentId};
use crate::model::Relations;
use crate::segment::{SegmentedTrace, interval_ns};
use crate::task_path;
use rustc_hash::FxHashMap;

/// Inverse of the minimum fraction of observations in which a label must be the last awaited label
/// to end.
const OFTEN_ENOUGH: usize = 100;
/// Number of observations from which it is not chance that one segment always ends before another.
const SURE_POINTS: usize = 100;
/// Maximum number of labels that may exclude a label. A label with more keeps its recorded order in
/// a replay.
const RIVALS_MAX: usize = 16;

/// Event that ends a wait.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Releaser {
    /// The last end of segments with these labels.
    Segments(LabelSet),
    /// The last end of any segment before the end of the wait.
    Next,
    /// A timer that expires at a fixed time after the request's start.
    Timer,
}

/// A learned wait. It is part of an interval: a segment, or the time from the end of a segment's
/// predecessors to its start.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Wait {
    pub(super) releaser: Releaser,
    /// Usual time from the releasing event (for a timer, from the request's start) to the end of
    /// the interval, in nanoseconds; see [`Fit`].
    pub(super) usual_gap_ns: u64,
    /// Shortest time from the start of the interval to the releasing event, in nanoseconds; 0 for a
    /// timer. For other events, work before the wait took no longer.
    pub(super) least_ns: u64,
    /// Mean time that a segment works before it waits, in nanoseconds; `None` if requests do not
    /// show it.
    pub(super) work_before_ns: Option<u64>,
}

/// Waits within the requests of one model.
#[derive(Clone, Debug)]
pub(super) struct Waits {
    pub(super) relations: Relations,
    /// Wait inside each label's segments; `None` if none is known.
    pub(super) ends: Vec<Option<Wait>>,
    /// Wait before each label's segments; `None` if none is known.
    pub(super) starts: Vec<Option<Wait>>,
    /// For the label of a span's first segment, the label of the parent's own time that leads to
    /// the span, or else any label of the parent's task. For own time that a child may hide, the
    /// label itself. `None` if there is no such label.
    pub(super) leads: Vec<Option<SegmentId>>,
    /// Calls that each label's segments wait for; `None` unless they are known to join several.
    pub(super) joins: Vec<Option<Join>>,
    /// Labels that exclude each label because of a lock. In a replay, their order may differ from
    /// the recorded one.
    pub(super) rivals: Vec<Vec<SegmentId>>,
    /// Statistics of the lengths and ends of each label's segments.
    pub(super) shown: Vec<LabelTimes>,
}

impl Waits {
    /// Creates an empty set of waits, from the relations alone. A replay then keeps the lengths of
    /// all unchanged segments.
    pub(super) fn unknown(relations: &Relations) -> Waits {
        let nothing = vec![None; relations.labels()];
        let (ends, starts, leads) = (nothing.clone(), nothing, vec![None; relations.labels()]);
        Waits {
            relations: relations.clone(),
            ends,
            starts,
            leads,
            joins: vec![None; relations.labels()],
            rivals: vec![Vec::new(); relations.labels()],
            shown: vec![LabelTimes::default(); relations.labels()],
        }
    }

    /// Learns waits from a sample of requests. The sample must be cut with the labels that the
    /// relations refer to.
    pub(super) fn learn(sample: &WaitingSample, relations: &Relations, labels: &Labels) -> Waits {
        let mut waits = Waits::unknown(relations);
        let orders = Orders::of(sample, relations.labels());
        let children = children(labels);
        waits.leads = leads(labels, &children, relations.labels());
        waits.leave_out_what_only_occurs_after(&orders, labels, &children);
        let mut seen = vec![LabelObservations::default(); relations.labels()];
        for trace in sample.spread() {
            waits.look_at(trace, &orders, &mut seen);
        }
        waits.take_rivals(sample);
        for (label, seen) in seen.iter().enumerate() {
            waits.ends[label] = seen.end(relations.labels());
            // This own time only becomes visible when a child ends; it does not wait for the child.
            let shows = waits.leads[label].is_some_and(|lead| lead.index() == label);
            waits.starts[label] = if shows { None } else { seen.start() };
        }
        waits.tell_work_before(sample);
        waits.joins = joins(sample, labels, relations.labels());
        waits.shown = shown(sample, relations.labels());
        waits
    }

    /// Removes the wait of a label at this place, and the calls that the label's segments wait for.
    pub(super) fn forget(&mut self, id: SegmentId, place: WaitPlace) {
        let waits = match place {
            WaitPlace::Before => &mut self.starts,
            WaitPlace::End | WaitPlace::Start => &mut self.ends,
        };
        if let Some(wait) = waits.get_mut(id.index()) {
            *wait = None;
        }
        if let Some(join) = self.joins.get_mut(id.index()) {
            *join = None;
        }
    }

    /// Removes mutual exclusions from the relations. Exclusions due to a lock become rivals, whose
    /// order each replay decides anew. The others count as chance. Labels with more than
    /// `RIVALS_MAX` rivals keep their exclusions.
    fn take_rivals(&mut self, sample: &WaitingSample) {
        let pairs = self
            .relations
            .all_mutual_exclusion()
            .iter()
            .map(|pair| (pair.first, pair.second));
        let pairs: Vec<_> = pairs.collect();
        let mut rivals = vec![Vec::new(); self.relations.labels()];
        for (a, b) in contended(sample, &pairs) {
            rivals[a.index()].push(b);
            rivals[b.index()].push(a);
        }
        let few: Vec<bool> = rivals
            .iter()
            .map(|rivals| rivals.len() <= RIVALS_MAX)
            .collect();
        for (a, b) in pairs {
            if few[a.index()] && few[b.index()] {
                self.relations.drop_exclusion(a, b);
                self.relations.drop_exclusion(b, a);
            }
        }
        for (label, rivals) in rivals.iter_mut().enumerate() {
            rivals.retain(|rival| few[label] && few[rival.index()]);
        }
        self.rivals = rivals;
    }

    /// Estimates the work of segments before they wait. A segment shows its whole work if the
    /// awaited event occurred before it started. Segments that waited long show the work after the
    /// wait. The difference is the work before the wait. Only waits for segments of given labels
    /// get an estimate, if enough instances never waited.
    fn tell_work_before(&mut self, sample: &WaitingSample) {
        let mut never_waited = vec![(0.0, 0usize); self.ends.len()];
        for trace in sample.spread() {
            let by_end = by_end(&trace.segments);
            for (index, segment) in trace.segments.iter().enumerate() {
                let Some(Some(wait)) = self.ends.get(segment.id.index()) else {
                    continue;
                };
                let ended = |stretch| wait.released_by(trace, &by_end, index, stretch).is_some();
                if !ended((segment.start_ns, segment.end_ns)) && ended((i64::MIN, segment.start_ns))
                {
                    let (sum_ns, count) = &mut never_waited[segment.id.index()];
                    *sum_ns += segment.duration_ns() as f64;
                    *count += 1;
                }
            }
        }
        for (wait, (sum_ns, count)) in self.ends.iter_mut().zip(never_waited) {
            if let Some(wait) = wait
                .as_mut()
                .filter(|wait| matches!(wait.releaser, Releaser::Segments(_)))
                && count >= POINTS_MIN
            {
                let mean_ns = sum_ns / count as f64;
                wait.work_before_ns = Some((mean_ns - wait.usual_gap_ns as f64).max(0.0) as u64);
            }
        }
    }

    /// Removes relations that only reflect in which requests a segment occurs, see the
    /// [module](self).
    fn leave_out_what_only_occurs_after(
        &mut self,
        orders: &Orders,
        labels: &Labels,
        children: &FxHashMap<(&str, &str), Vec<SegmentId>>,
    ) {
        for (id, label) in labels.iter().take(self.relations.labels()) {
            let Some(component) = label.end.strip_prefix('→') else {
                continue;
            };
            let Some(opened) = children.get(&(&*label.task, component)) else {
                continue;
            };
            for child in opened {
                if !self.relations.happens_before(id, *child) {
                    continue;
                }
                if self
                    .relations
                    .drop_predecessors(id, &orders.ends_after_start[child.index()])
                {
                    // The time before this segment is also own time of its span; a child that still
                    // runs hides it.
                    self.leads[id.index()] = Some(id);
                }
            }
        }
    }

    fn look_at(&self, trace: &SegmentedTrace, orders: &Orders, seen: &mut [LabelObservations]) {
        let by_end = by_end(&trace.segments);
        let predecessors = Predecessors::of(trace, &self.relations);
        predecessors.for_each_latest(|index, latest| {
            let segment = &trace.segments[index];
            let label = segment.id.index();
            let Some(seen) = seen.get_mut(label) else {
                return;
            };
            let ready_ns = latest.map_or(trace.start_ns, |latest| trace.segments[latest].end_ns);
            seen.starts_timed.push((
                -(interval_ns(trace.start_ns, ready_ns) as f64),
                interval_ns(ready_ns, segment.start_ns) as f64,
            ));
            seen.ends_timed.push((
                -(interval_ns(trace.start_ns, segment.start_ns) as f64),
                segment.duration_ns() as f64,
            ));
            let wait_ns = interval_ns(ready_ns, segment.start_ns) as f64;
            let mut ended = 0;
            let mut next = None;
            for_each_end(
                trace,
                &by_end,
                (ready_ns, segment.start_ns),
                index,
                |_, x_ns| {
                    ended += 1;
                    next = next.or(Some(x_ns as f64));
                    true
                },
            );
            if let Some(x_ns) = next {
                seen.starts_next.push((x_ns, wait_ns, ended));
            }
            let y_ns = segment.duration_ns() as f64;
            let later = &orders.ends_after_end[label];
            let (mut ended, mut next, mut last) = (0, None, None);
            for_each_end(
                trace,
                &by_end,
                (segment.start_ns, segment.end_ns),
                index,
                |at, x_ns| {
                    let (other, x_ns) = (trace.segments[at].id.index(), x_ns as f64);
                    ended += 1;
                    next = next.or(Some(x_ns));
                    if !has(later, other) {
                        if last.is_none() {
                            *seen.times_last.entry(other).or_default() += 1;
                            last = Some(x_ns);
                        }
                        seen.single.entry(other).or_default().push((x_ns, y_ns));
                    }
                    true
                },
            );
            if let Some(x_ns) = next {
                seen.ends_next.push((x_ns, y_ns, ended));
            }
            if let Some(x_ns) = last {
                seen.ends_last.push((x_ns, y_ns));
            }
        });
    }
}

/// Returns the labels of the first segments of spans below a task, by that task and the span's
/// component.
fn children(labels: &Labels) -> FxHashMap<(&str, &str), Vec<SegmentId>> {
    let mut children: FxHashMap<(&str, &str), Vec<SegmentId>> = FxHashMap::default();
    for (id, label) in labels.iter().filter(|(_, label)| &*label.start == "start") {
        let component = task_path::last_component(&label.task);
        if let Some(parent) = label
            .task
            .len()
            .checked_sub(component.len() + task_path::JOINT.len())
        {
            children
                .entry((&label.task[..parent], component))
                .or_default()
                .push(id);
        }
    }
    children
}

fn leads(
    labels: &Labels,
    children: &FxHashMap<(&str, &str), Vec<SegmentId>>,
    known: usize,
) -> Vec<Option<SegmentId>> {
    let mut leads = vec![None; known];
    for (id, label) in labels.iter() {
        let Some(component) = label.end.strip_prefix('→') else {
            continue;
        };
        for child in children
            .get(&(&*label.task, component))
            .into_iter()
            .flatten()
        {
            if let Some(lead) = leads.get_mut(child.index()) {
                *lead = lead.or(Some(id));
            }
        }
    }
    // If another child always hides the parent's own time, take any label of the parent's task.
    let mut of_task: FxHashMap<&str, SegmentId> = FxHashMap::default();
    for (id, label) in labels.iter() {
        of_task.entry(&*label.task).or_insert(id);
    }
    for ((task, _), children) in children {
        for child in children {
            if let Some(lead) = leads.get_mut(child.index()) {
                *lead = lead.or(of_task.get(task).copied());
            }
        }
    }
    leads
}

/// Observations of one label, as points (x, y) in nanoseconds. For `ends_*` and `single`, y is the
/// length of an instance. For `starts_*`, y is the time from the end of its predecessors to its
/// start. x is the time from the start of y to the end of another segment; for `*_timed`, the
/// negative time from the request's start to the start of y. `*_next` also counts the ends up to x.
#[derive(Clone, Default)]
struct LabelObservations {
    /// Number of times that each label was the last to end, among the labels that never end after
    /// this label.
    times_last: FxHashMap<usize, usize>,
    single: FxHashMap<usize, Vec<(f64, f64)>>,
    ends_last: Vec<(f64, f64)>,
    ends_next: Vec<(f64, f64, u32)>,
    ends_timed: Vec<(f64, f64)>,
    starts_next: Vec<(f64, f64, u32)>,
    starts_timed: Vec<(f64, f64)>,
}

impl LabelObservations {
    fn end(&self, labels: usize) -> Option<Wait> {
        let mut best: Option<(Fit, Releaser)> = None;
        let mut take = |found: Option<Fit>, releaser: &dyn Fn() -> Releaser| {
            if let Some(found) = found
                && best
                    .as_ref()
                    .is_none_or(|(best, _)| found.spread_ns < best.spread_ns)
            {
                best = Some((found, releaser()));
            }
        };
        // The order of labels makes the choice among equal fits deterministic.
        let mut single: Vec<_> = self.single.iter().collect();
        single.sort_unstable_by_key(|(label, _)| **label);
        let sure = |points: &[(f64, f64)]| {
            fit(points).filter(|fit| fit.is_regular() || points.len() >= SURE_POINTS)
        };
        for (label, points) in single {
            take(sure(points), &|| {
                let mut one = vec![0; labels.div_ceil(64)];
                put(&mut one, *label);
                Releaser::Segments(one)
            });
        }
        take(sure(&self.ends_last), &|| {
            let mut all = vec![0; labels.div_ceil(64)];
            let least = self.ends_last.len().div_ceil(OFTEN_ENOUGH);
            let often = self.times_last.iter().filter(|(_, times)| **times >= least);
            often.for_each(|(label, _)| put(&mut all, *label));
            Releaser::Segments(all)
        });
        take(timed(&self.ends_timed), &|| Releaser::Timer);
        take(next(&self.ends_next), &|| Releaser::Next);
        best.map(Wait::of)
    }

    fn start(&self) -> Option<Wait> {
        if let Some(found) = timed(&self.starts_timed) {
            return Some(Wait::of((found, Releaser::Timer)));
        }
        next(&self.starts_next).map(|found| Wait::of((found, Releaser::Next)))
    }
}

impl Wait {
    /// Returns the index of the awaited segment that ended last within `stretch`, an interval given
    /// by its start and end. Returns `None` if no awaited segment ended in the interval.
    pub(super) fn released_by(
        &self,
        trace: &SegmentedTrace,
        by_end: &[u32],
        index: usize,
        stretch: (i64, i64),
    ) -> Option<usize> {
        let mut found = None;
        for_each_end(trace, by_end, stretch, index, |at, _| {
            let is_one = match &self.releaser {
                Releaser::Segments(labels) => has(labels, trace.segments[at].id.index()),
                Releaser::Next | Releaser::Timer => true,
            };
            found = is_one.then_some(at);
            !is_one
        });
        found
    }

    fn of((fit, releaser): (Fit, Releaser)) -> Wait {
        Wait {
            releaser,
            usual_gap_ns: fit.usual_gap_ns,
            least_ns: fit.least_ns,
            work_before_ns: None,
        }
    }
}

/// Fits a timer. Only exact timers are accepted, because others look like coincidence.
fn timed(points: &[(f64, f64)]) -> Option<Fit> {
    fit(points).filter(|fit| fit.is_exact())
}

fn next(points: &[(f64, f64, u32)]) -> Option<Fit> {
    if !is_close(points) {
        return None;
    }
    let points: Vec<(f64, f64)> = points
        .iter()
        .map(|(x_ns, y_ns, _)| (*x_ns, *y_ns))
        .collect();
    fit(&points)
}
