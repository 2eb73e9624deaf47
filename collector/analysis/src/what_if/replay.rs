//! Replays one request with other lengths of work.

use super::ends::{by_end, for_each_end, has};
use super::join::{Join, last_of_labels};
use super::waits::{Releaser, Wait, Waits};
use crate::critical_path::{Predecessors, TracePath};
use crate::label::SegmentId;
use crate::segment::{Segment, SegmentedTrace, interval_ns};
use rustc_hash::FxHashMap;
use std::cell::RefCell;

/// New lengths, in nanoseconds, of the segments of a request and of the waits before them in a
/// replay.
pub(super) trait Lengths {
    /// Returns the new length of segment `index`'s own work, which was `ns` long.
    fn work_ns(&self, index: usize, ns: u64) -> u64;
    /// Returns the new length of the wait before segment `index`, which was `ns` long.
    fn wait_ns(&self, index: usize, ns: u64) -> u64;
    /// Returns the fraction, 0 to 1, by which time counts as work if it may be work or waiting.
    fn unknown_as_work(&self) -> f64;
    /// Reports whether unchanged segments that always end at nearly the same time after the
    /// request's start are assumed to wait for that time.
    fn waits_if_undecided(&self) -> bool {
        false
    }
}

/// Recorded time of the event that ended a wait, and the index of the segment whose end was this
/// event. The index is `None` for a timer.
struct WaitRelease {
    at_ns: i64,
    by: Option<usize>,
}

/// Maximum number of rounds of a replay after the first. Rounds repeat until the ends of segments
/// no longer change.
const ROUNDS_MAX: usize = 16;

struct Replay<'a, L> {
    waiting: &'a Waits,
    trace: &'a SegmentedTrace,
    by_end: &'a [u32],
    lengths: &'a L,
    rivals: &'a [Rival],
    /// Index of each label's last instance; empty if no segment of the trace joins several calls.
    last: FxHashMap<SegmentId, usize>,
}

/// Two segments of a trace that exclude each other, in their recorded order.
struct Rival {
    first: usize,
    second: usize,
    /// True if the first segment was ready no later than the second. In a replay, the segment that
    /// is ready first then goes first.
    in_turn: bool,
}

/// Result of one round.
struct Round {
    /// End of each segment, in nanoseconds after the request's start.
    ends: Vec<u64>,
    /// New latest end of each segment's predecessors, in nanoseconds after the request's start.
    ready: Vec<u64>,
}

/// Returns the request's new latency, in nanoseconds.
pub(super) fn replay(
    waiting: &Waits,
    trace: &SegmentedTrace,
    path: &TracePath,
    lengths: &impl Lengths,
) -> u64 {
    let ends = ends(waiting, trace, lengths);
    // The caller did not wait for a segment that ended after the answer, nor for other segments of
    // a label for which this ever happened.
    let is_inside = |(index, _): &(usize, u64)| {
        let shown = waiting.shown.get(trace.segments[*index].id.index());
        !path.segments[*index].after_answer && !shown.is_some_and(|shown| shown.outlasts)
    };
    let was_ns = trace.segments.iter();
    let was_ns = was_ns.map(|segment| interval_ns(trace.start_ns, segment.end_ns));
    let was_ns = was_ns.enumerate().filter(is_inside).map(|(_, ns)| ns);
    let is_ns = ends.iter().copied().enumerate().filter(is_inside);
    let is_ns = is_ns.map(|(_, ns)| ns);
    match (was_ns.max(), is_ns.max()) {
        (Some(was_ns), Some(is_ns)) => is_ns.saturating_add(path.latency_ns.saturating_sub(was_ns)),
        _ => path.latency_ns,
    }
}

/// Returns the new end of each segment, in nanoseconds after the request's start.
pub(super) fn ends(waiting: &Waits, trace: &SegmentedTrace, lengths: &impl Lengths) -> Vec<u64> {
    let by_end = by_end(&trace.segments);
    let predecessors = Predecessors::of(trace, &waiting.relations);
    let rivals = rivals(waiting, trace, &predecessors);
    let joins = |segment: &Segment| {
        waiting
            .joins
            .get(segment.id.index())
            .is_some_and(Option::is_some)
    };
    let last = if trace.segments.iter().any(joins) {
        last_of_labels(trace)
    } else {
        FxHashMap::default()
    };
    let again = Replay {
        waiting,
        trace,
        by_end: &by_end,
        lengths,
        rivals: &rivals,
        last,
    };
    let mut round = again.round(&predecessors, None);
    for _ in 0..if rivals.is_empty() { 0 } else { ROUNDS_MAX } {
        let next = again.round(&predecessors, Some(&round));
        let is_settled = next.ends == round.ends;
        round = next;
        if is_settled {
            break;
        }
    }
    round.ends
}

/// Returns the pairs of segments of a trace that exclude each other.
fn rivals(waiting: &Waits, trace: &SegmentedTrace, predecessors: &Predecessors<'_>) -> Vec<Rival> {
    let mut of_label: FxHashMap<SegmentId, Vec<usize>> = FxHashMap::default();
    let has_rivals = |id: SegmentId| {
        waiting
            .rivals
            .get(id.index())
            .is_some_and(|rivals| !rivals.is_empty())
    };
    let mut ready_ns = Vec::new();
    for (index, segment) in trace
        .segments
        .iter()
        .enumerate()
        .filter(|(_, segment)| has_rivals(segment.id))
    {
        of_label.entry(segment.id).or_default().push(index);
    }
    if of_label.len() < 2 {
        return Vec::new();
    }
    predecessors.for_each_latest(|_, latest| {
        ready_ns.push(latest.map_or(trace.start_ns, |latest| trace.segments[latest].end_ns));
    });
    let mut found = Vec::new();
    for (second, segment) in trace
        .segments
        .iter()
        .enumerate()
        .filter(|(_, segment)| has_rivals(segment.id))
    {
        for rival in waiting.rivals[segment.id.index()]
            .iter()
            .filter_map(|rival| of_label.get(rival))
            .flatten()
        {
            if *rival < second && trace.segments[*rival].end_ns <= segment.start_ns {
                let in_turn = ready_ns[*rival] <= ready_ns[second];
                found.push(Rival {
                    first: *rival,
                    second,
                    in_turn,
                });
            }
        }
    }
    found
}

impl<L: Lengths> Replay<'_, L> {
    fn round(&self, predecessors: &Predecessors<'_>, before: Option<&Round>) -> Round {
        let segments = &self.trace.segments;
        // Latest end of each segment's rivals: of those before it, as recorded; of those that now
        // overtake it, in the last round.
        let mut held_ns = vec![
            (i64::MIN, 0);
            if self.rivals.is_empty() {
                0
            } else {
                segments.len()
            }
        ];
        let mut first: Vec<Vec<usize>> = vec![Vec::new(); held_ns.len()];
        for Rival {
            first: a,
            second: b,
            in_turn,
        } in self.rivals
        {
            held_ns[*b].0 = held_ns[*b].0.max(segments[*a].end_ns);
            match before {
                Some(Round { ends, ready }) if *in_turn && ready[*b] < ready[*a] => {
                    held_ns[*a].1 = held_ns[*a].1.max(ends[*b]);
                }
                _ => first[*b].push(*a),
            }
        }
        let ready = RefCell::new(vec![0; segments.len()]);
        let ends =
            predecessors.fold_in_order(self.by_end, |index, (ready_ns, new_ready_ns), ends| {
                ready.borrow_mut()[index] = new_ready_ns;
                let (held_ns, new_held_ns) = held_ns.get(index).copied().unwrap_or((i64::MIN, 0));
                let first = first
                    .get(index)
                    .into_iter()
                    .flatten()
                    .map(|rival| ends[*rival]);
                let new_held_ns = first.fold(new_held_ns, u64::max);
                self.end_ns(
                    index,
                    (ready_ns.max(held_ns), new_ready_ns.max(new_held_ns)),
                    ends,
                )
            });
        Round {
            ends,
            ready: ready.into_inner(),
        }
    }

    /// Returns the end of a segment, in nanoseconds after the request's start. The second argument
    /// is the end of the last predecessor or rival, as recorded and in the replay.
    fn end_ns(&self, index: usize, (ready_ns, new_ready_ns): (i64, u64), ends: &[u64]) -> u64 {
        let segment = &self.trace.segments[index];
        let start_ns = self.start_ns(index, (ready_ns, new_ready_ns), ends);
        let duration_ns = segment.duration_ns();
        let work_ns = self.lengths.work_ns(index, duration_ns);
        let is_undecided = || {
            let shown = self.waiting.shown.get(segment.id.index());
            work_ns == duration_ns && shown.is_some_and(|shown| shown.undecided)
        };
        if self.lengths.waits_if_undecided() && is_undecided() {
            return start_ns.max(self.offset_ns(segment.end_ns));
        }
        let worked_ns = start_ns.saturating_add(work_ns);
        let Some(wait) = self
            .waiting
            .ends
            .get(segment.id.index())
            .and_then(Option::as_ref)
        else {
            let join = self
                .waiting
                .joins
                .get(segment.id.index())
                .and_then(Option::as_ref);
            return join.map_or(worked_ns, |join| {
                self.joined_ns(join, index, start_ns, ends)
            });
        };
        match self.released(wait, index, (segment.start_ns, segment.end_ns)) {
            Some(WaitRelease { at_ns, by }) => {
                let waited_ns = interval_ns(segment.start_ns, at_ns);
                let work_before_ns = match wait.work_before_ns {
                    Some(work_before_ns) => waited_ns.min(work_before_ns),
                    None => {
                        (waited_ns.min(wait.least_ns) as f64 * self.lengths.unknown_as_work())
                            as u64
                    }
                };
                let gap_ns = interval_ns(at_ns, segment.end_ns);
                // Added time counts once, for the work after the wait.
                let new_gap_ns = self.lengths.work_ns(index, gap_ns);
                let work_ns = self
                    .lengths
                    .work_ns(index, work_before_ns.saturating_add(gap_ns));
                let worked_ns = start_ns.saturating_add(work_ns.saturating_sub(new_gap_ns));
                let Some(by) = by else {
                    return worked_ns.max(self.offset_ns(segment.end_ns));
                };
                worked_ns
                    .max(self.last_end_ns(wait, index, by, ends))
                    .saturating_add(new_gap_ns)
            }
            // If the awaited event occurred before the segment started, it may occur later in the
            // replay.
            None => match self.released(wait, index, (i64::MIN, segment.start_ns)) {
                Some(WaitRelease { by: Some(by), .. })
                    if !matches!(wait.releaser, Releaser::Next) =>
                {
                    let gap_ns = self
                        .lengths
                        .work_ns(index, wait.usual_gap_ns.min(duration_ns));
                    worked_ns.max(
                        self.last_end_ns(wait, index, by, ends)
                            .saturating_add(gap_ns),
                    )
                }
                _ => worked_ns,
            },
        }
    }

    fn start_ns(&self, index: usize, (ready_ns, new_ready_ns): (i64, u64), ends: &[u64]) -> u64 {
        let start_ns = self.trace.segments[index].start_ns;
        let wait_ns = interval_ns(ready_ns, start_ns);
        if wait_ns > 0
            && let Some(Some(wait)) = self
                .waiting
                .starts
                .get(self.trace.segments[index].id.index())
            && let Some(released) = self.released(wait, index, (ready_ns, start_ns))
        {
            return match released.by {
                Some(by) => new_ready_ns
                    .max(ends[by])
                    .saturating_add(interval_ns(released.at_ns, start_ns)),
                None => new_ready_ns.max(self.offset_ns(start_ns)),
            };
        }
        new_ready_ns.saturating_add(self.lengths.wait_ns(index, wait_ns))
    }

    /// Returns the latest end, in the replay, of the segments that segment `index` waits for. `by`
    /// is the last of them as recorded.
    fn last_end_ns(&self, wait: &Wait, index: usize, by: usize, ends: &[u64]) -> u64 {
        let mut last_ns = ends[by];
        if let Releaser::Segments(labels) = &wait.releaser {
            let upto_ns = self.trace.segments[by].end_ns;
            for_each_end(
                self.trace,
                self.by_end,
                (i64::MIN, upto_ns),
                index,
                |at, _| {
                    if has(labels, self.trace.segments[at].id.index()) {
                        last_ns = last_ns.max(ends[at]);
                    }
                    true
                },
            );
        }
        last_ns
    }

    /// Returns the end, in nanoseconds after the request's start, of a segment that continues once
    /// several calls, and the task's own work after each of them, have ended.
    fn joined_ns(&self, join: &Join, index: usize, start_ns: u64, ends: &[u64]) -> u64 {
        let segment = &self.trace.segments[index];
        let calls = || {
            join.calls.iter().filter_map(|(call, before_ns)| {
                let at = *self.last.get(call)?;
                let end_ns = self.trace.segments[at].end_ns;
                // The work after the call took at most the time up to the segment's end.
                (end_ns <= segment.start_ns)
                    .then(|| (at, (*before_ns).min(interval_ns(end_ns, segment.end_ns))))
            })
        };
        let ready_ns = calls()
            .map(|(at, ns)| self.trace.segments[at].end_ns.saturating_add_unsigned(ns))
            .max();
        let rest_ns = interval_ns(
            ready_ns.unwrap_or(i64::MIN).max(segment.start_ns),
            segment.end_ns,
        );
        // Added time counts once, for the remaining work.
        let new_rest_ns = self.lengths.work_ns(index, rest_ns);
        let new_ready_ns = calls().map(|(at, before_ns)| {
            let new_before_ns = self
                .lengths
                .work_ns(index, before_ns + rest_ns)
                .saturating_sub(new_rest_ns);
            ends[at].saturating_add(new_before_ns)
        });
        new_ready_ns
            .fold(start_ns, u64::max)
            .saturating_add(new_rest_ns)
    }

    fn offset_ns(&self, at_ns: i64) -> u64 {
        interval_ns(self.trace.start_ns, at_ns)
    }

    /// Returns the event that ended segment `index`'s wait within `stretch`, an interval given by
    /// its start and end. Returns `None` if no awaited segment ended in the interval.
    fn released(&self, wait: &Wait, index: usize, stretch: (i64, i64)) -> Option<WaitRelease> {
        if wait.releaser == Releaser::Timer {
            return Some(WaitRelease {
                at_ns: stretch.1,
                by: None,
            });
        }
        let by = wait.released_by(self.trace, self.by_end, index, stretch)?;
        Some(WaitRelease {
            at_ns: self.trace.segments[by].end_ns,
            by: Some(by),
        })
    }
}
