//! Cuts a trace into segments (The Mystery Machine, §4.1).
//!
//! [`from_events`] cuts event logs between consecutive events of a task. [`from_spans`] cuts spans
//! at their events, and where their own work stops and starts. A trace with both gets the segments
//! of both.
//!
//! **The answer.** The caller has the answer at the end of the root span (of several roots, the one
//! that ends last). Latency is measured up to the answer. Work that ends later continues *after the
//! answer*. The time of the answer is unknown without a root, as in an event log, or if the end of
//! a root was not recorded; then the last event of the request counts as the answer. If a segment
//! ends after the answer, but not certainly, its times after the answer are moved to the answer.
//! For pairs of segments, the model uses the recorded times in [`SegmentedTrace::moved`]. The
//! recorded order of two instants on one clock is more certain than their order after both were
//! moved.

mod elements;
pub mod from_events;
pub mod from_spans;
mod name_cache;
mod outline;
mod pieces;
mod span_tree;
mod thread_step;
mod waiting;

use crate::diagnostic::Diagnostic;
use crate::label::{Labels, SegmentId};
use crate::record::{HostClock, TraceId, TraceRecords};
use elements::Elements;
use from_events::EventCutter;
use from_spans::SpanCutter;
pub use outline::{OutlineSpan, owners};
use pieces::{Instant, Pieces};
pub(crate) use span_tree::SpanTree;
use std::cell::{Cell, RefCell};
use std::sync::Arc;
pub use thread_step::ThreadStep;

/// The clock that took a timestamp, as an index into [`SegmentedTrace::clocks`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClockId(pub u16);

impl ClockId {
    /// A clock without errors.
    pub const EXACT: ClockId = ClockId(u16::MAX);
}

/// Error bounds of a clock's timestamps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct ClockBounds {
    /// Maximum distance of a timestamp from the common time of the clock's island, in nanoseconds.
    pub error_ns: u64,
    /// Maximum distance, in nanoseconds, of two timestamps of this clock that may have been taken
    /// in either order.
    pub tick_ns: u64,
    /// Number of the clock's island. The order of timestamps from different islands is unknown.
    pub island: u32,
}

impl ClockBounds {
    /// Creates the bounds of a clock whose error is at most `error_ns`, and whose own timestamps
    /// are always in the right order.
    pub const fn within(error_ns: u64) -> ClockBounds {
        ClockBounds {
            error_ns,
            tick_ns: 0,
            island: 0,
        }
    }

    /// Returns the bounds of a host's clock.
    pub fn of(clock: &HostClock) -> ClockBounds {
        let HostClock {
            error_ns,
            resolution_ns,
            island,
            ..
        } = *clock;
        let tick_ns = if resolution_ns > 1 { resolution_ns } else { 0 };
        ClockBounds {
            error_ns,
            tick_ns,
            island,
        }
    }

    /// Returns the maximum distance, in nanoseconds, of two timestamps that may have been taken in
    /// either order; `u64::MAX` for clocks of different islands. Errors do not matter if one clock
    /// took both. A distance of a whole tick shows no order, on one clock or on two: an end that is
    /// a truncated start plus a truncated duration may be almost two ticks early.
    pub fn tolerance_ns(self, other: ClockBounds, is_one_clock: bool) -> u64 {
        let tick_ns = self.tick_ns.max(other.tick_ns);
        if is_one_clock {
            return tick_ns;
        }
        if self.island != other.island {
            return u64::MAX;
        }
        self.error_ns
            .saturating_add(other.error_ns)
            .saturating_add(tick_ns)
    }
}

/// A data element of a trace, numbered within that trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ElementId(pub u32);

impl ElementId {
    /// Stands for no element.
    pub const NONE: ElementId = ElementId(u32::MAX);
}

/// Interval between two consecutive events of a task, or two boundaries of a span's own time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Number of the segment's label.
    pub id: SegmentId,
    /// The clock of `start_ns`.
    pub start_clock: ClockId,
    /// The clock of `end_ns`. It may differ from `start_clock`, for example if the segment ends
    /// where a child on another host starts.
    pub end_clock: ClockId,
    /// The data element that the segment processes; [`ElementId::NONE`] if there is none.
    pub element: ElementId,
    /// Position in the thread of control. Segments of a thread follow each other regardless of the
    /// clocks.
    pub step: ThreadStep,
    /// Start, nanoseconds since the Unix epoch.
    pub start_ns: i64,
    /// End, nanoseconds since the Unix epoch; in a [`SegmentedTrace`], never before `start_ns`.
    pub end_ns: i64,
}

impl Segment {
    /// Creates a segment with exact times and without an element.
    pub const fn new(id: SegmentId, start_ns: i64, end_ns: i64) -> Segment {
        let exact = ClockId::EXACT;
        let (element, step) = (ElementId::NONE, ThreadStep::NONE);
        Segment {
            id,
            start_clock: exact,
            end_clock: exact,
            element,
            step,
            start_ns,
            end_ns,
        }
    }

    /// Returns the duration of the segment.
    pub fn duration_ns(&self) -> u64 {
        interval_ns(self.start_ns, self.end_ns)
    }
}

/// One request, cut into segments for the analyses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentedTrace {
    /// Id of the trace.
    pub id: TraceId,
    /// Id as the source wrote it; `None` if that is `id` in 32 lower-case hexadecimal digits.
    pub name: Option<Arc<str>>,
    /// Time of the first event of the request, nanoseconds since the Unix epoch.
    pub start_ns: i64,
    /// Instant at which the request's caller had the answer, nanoseconds since the Unix epoch;
    /// `end_ns` if it is unknown. It ends the latency and is never before `start_ns`.
    pub answer_ns: i64,
    /// Time of the last event of the request, nanoseconds since the Unix epoch: the answer, or the
    /// end of work after it.
    pub end_ns: i64,
    /// Segments sorted by (start, end, id). [`SegmentedTrace::new`] sorts them.
    pub segments: Vec<Segment>,
    /// Error bounds of each clock's timestamps. Clocks that are not listed are exact.
    pub clocks: Vec<ClockBounds>,
    /// Recorded instants of timestamps that were moved to an instant of another clock, within
    /// the clocks' errors. The last entries of `clocks` have the bounds of the moved timestamps, in
    /// the same order. A moved timestamp may be off by the errors of both clocks.
    pub moved: Vec<(i64, ClockId)>,
}

impl SegmentedTrace {
    /// Creates a trace of these segments, which may be in any order. The answer is the end of the
    /// trace. To keep the fields' invariants, segments that end before they start get length zero,
    /// and the request's interval is widened to include every segment.
    pub fn new(
        id: TraceId,
        name: Option<Arc<str>>,
        start_ns: i64,
        end_ns: i64,
        mut segments: Vec<Segment>,
    ) -> SegmentedTrace {
        for segment in &mut segments {
            if segment.end_ns < segment.start_ns {
                // The end becomes the start, with the start's clock.
                (segment.end_ns, segment.end_clock) = (segment.start_ns, segment.start_clock);
            }
        }
        sort(&mut segments);
        let start_ns = segments
            .first()
            .map_or(start_ns, |first| first.start_ns.min(start_ns));
        let end_ns = segments
            .iter()
            .fold(end_ns.max(start_ns), |end_ns, s| end_ns.max(s.end_ns));
        let (answer_ns, clocks, moved) = (end_ns, Vec::new(), Vec::new());
        SegmentedTrace {
            id,
            name,
            start_ns,
            answer_ns,
            end_ns,
            segments,
            clocks,
            moved,
        }
    }

    /// Returns the trace with this instant as its answer, clamped to the trace's interval.
    #[must_use]
    pub fn answered_at(self, answer_ns: i64) -> SegmentedTrace {
        SegmentedTrace {
            answer_ns: answer_ns.clamp(self.start_ns, self.end_ns),
            ..self
        }
    }

    /// Sorts the segments again, after their times were changed.
    pub(crate) fn sort(&mut self) {
        sort(&mut self.segments);
    }

    /// Reports whether all listed clocks are exact, and on island 0.
    pub fn is_exact(&self) -> bool {
        self.clocks
            .iter()
            .all(|clock| *clock == ClockBounds::default())
    }

    /// Returns the tolerance between any two timestamps of the trace, in nanoseconds; `None` if it
    /// may differ from pair to pair.
    pub fn uniform_tolerance_ns(&self) -> Option<u64> {
        let Some(first) = self.clocks.first() else {
            return Some(0);
        };
        let alike = |clock: &ClockBounds| clock.error_ns == 0 && clock == first;
        let is_one = self.clocks.len() == 1 || self.clocks.iter().all(alike);
        let listed = |clock: ClockId| usize::from(clock.0) < self.clocks.len();
        let all_listed = || {
            self.segments
                .iter()
                .all(|s| listed(s.start_clock) && listed(s.end_clock))
        };
        // A clock that is not listed is exact, so it equals the listed clocks if these are exact.
        (is_one && (*first == ClockBounds::default() || all_listed())).then_some(first.tick_ns)
    }

    /// Returns the maximum distance, in nanoseconds, of two timestamps of these clocks that may
    /// have been taken in either order.
    pub fn tolerance_ns(&self, a: ClockId, b: ClockId) -> u64 {
        self.clock_bounds(a)
            .tolerance_ns(self.clock_bounds(b), a == b)
    }

    /// Returns a segment with the recorded instants of [`SegmentedTrace::moved`]. The evidence for
    /// moving timestamps is less certain than an order on one clock. The result may end before it
    /// starts if the two times are of different clocks.
    pub fn as_recorded(&self, segment: &Segment) -> Segment {
        let recorded = |at: Instant| {
            let first = self.clocks.len().saturating_sub(self.moved.len());
            usize::from(at.1.0)
                .checked_sub(first)
                .and_then(|at| self.moved.get(at))
                .copied()
                .unwrap_or(at)
        };
        let (start_ns, start_clock) = recorded((segment.start_ns, segment.start_clock));
        let (end_ns, end_clock) = recorded((segment.end_ns, segment.end_clock));
        Segment {
            start_ns,
            start_clock,
            end_ns,
            end_clock,
            ..*segment
        }
    }

    /// Returns the error bounds of a clock's timestamps; zeros for a clock that is not listed.
    pub fn clock_bounds(&self, clock: ClockId) -> ClockBounds {
        self.clocks
            .get(usize::from(clock.0))
            .copied()
            .unwrap_or_default()
    }

    /// Returns the request's end-to-end latency, from its first event to its answer, in
    /// nanoseconds.
    pub fn latency_ns(&self) -> u64 {
        interval_ns(self.start_ns, self.answer_ns)
    }

    /// Returns the time that the request continued after its answer, in nanoseconds.
    pub fn after_answer_ns(&self) -> u64 {
        interval_ns(self.answer_ns, self.end_ns)
    }
}

/// Number of bits for the index of a segment in the keys by which [`sort`] sorts.
const INDEX_BITS: u32 = 20;

fn sort(segments: &mut Vec<Segment>) {
    let of_equal_start = |s: &Segment| {
        (
            s.end_ns,
            s.id,
            s.element,
            s.start_clock,
            s.end_clock,
            s.step,
        )
    };
    let starts = || segments.iter().map(|s| s.start_ns);
    let (first_ns, last_ns) = (starts().min().unwrap_or(0), starts().max().unwrap_or(0));
    let fits = last_ns.abs_diff(first_ns) >> (u64::BITS - INDEX_BITS) == 0
        && segments.len() >> INDEX_BITS == 0;
    if !fits {
        segments.sort_unstable_by_key(|s| (s.start_ns, of_equal_start(s)));
        return;
    }
    // Sorting numbers and moving each segment once takes less than half the time of sorting the
    // segments.
    let key =
        |(at, s): (usize, &Segment)| (s.start_ns.abs_diff(first_ns) << INDEX_BITS) | at as u64;
    let mut keys: Vec<u64> = segments.iter().enumerate().map(key).collect();
    keys.sort_unstable();
    let index = |key: &u64| (key & ((1 << INDEX_BITS) - 1)) as usize;
    let mut sorted: Vec<Segment> = keys.iter().map(|key| segments[index(key)]).collect();
    for alike in sorted.chunk_by_mut(|a, b| a.start_ns == b.start_ns) {
        alike.sort_unstable_by_key(of_equal_start);
    }
    *segments = sorted;
}

/// Cuts one trace into segments, and interns their labels. Returns diagnostics for flaws of the
/// records; the rest of the records is used. The result does not depend on the order of
/// `records.spans` and `records.events`.
///
/// To cut many traces, keep a [`Segmenter`], which is several times faster.
pub fn segment(records: &TraceRecords, labels: &mut Labels) -> (SegmentedTrace, Vec<Diagnostic>) {
    Segmenter::default().segment(records, labels)
}

/// Cuts traces into segments, with a cache of names. Between traces, it empties a cache of span
/// names above about 32 MiB, and a cache of event names above 65,536 names. Its results never
/// depend on earlier traces.
#[derive(Clone, Debug, Default)]
pub struct Segmenter {
    spans: SpanCutter,
    events: EventCutter,
}

impl Segmenter {
    /// Creates a segmenter that also takes the trailing token of an event's name in an event log as
    /// the event's element, see [`from_events`].
    pub fn with_trailing_elements() -> Segmenter {
        Segmenter {
            spans: SpanCutter::default(),
            events: EventCutter::with_trailing_elements(),
        }
    }

    /// Returns the spans of a trace in the order of the tree by which they are cut: parents before
    /// children, siblings in order of start. Of several spans with the same id, the result has one.
    pub fn outline(&mut self, records: &TraceRecords) -> Vec<OutlineSpan> {
        self.spans.outline(records)
    }

    /// Cuts one trace like [`segment`](segment()). The labels may differ between calls, but reusing
    /// the same labels is fastest.
    pub fn segment(
        &mut self,
        records: &TraceRecords,
        labels: &mut Labels,
    ) -> (SegmentedTrace, Vec<Diagnostic>) {
        let mut pieces = Pieces {
            labels,
            clocks: &records.clocks,
            last_clock: Cell::new(None),
            elements: Elements::of(records),
            answer: None,
            moved: RefCell::default(),
            segments: Vec::new(),
            refused: 0,
            diagnostics: Vec::new(),
        };
        pieces.answer = waiting::answer(&records.spans, &pieces);
        self.events.cut(&records.events, &mut pieces);
        self.spans.cut(&records.spans, &mut pieces);
        let (start_ns, end_ns) = whole_interval(records, &pieces);
        let Pieces {
            segments,
            answer,
            moved,
            refused,
            mut diagnostics,
            ..
        } = pieces;
        if refused > 0 {
            diagnostics.push(Diagnostic::LabelsFull { segments: refused });
        }
        let trace =
            SegmentedTrace::new(records.id, records.name.clone(), start_ns, end_ns, segments);
        let mut trace = match answer {
            Some((answer_ns, _)) => trace.answered_at(answer_ns),
            None => trace,
        };
        let (bounds, moved): (Vec<ClockBounds>, _) = moved.into_inner().into_iter().unzip();
        trace.clocks = records
            .clocks
            .iter()
            .map(ClockBounds::of)
            .chain(bounds)
            .collect();
        trace.moved = moved;
        (trace, diagnostics)
    }
}

/// Returns the interval from a request's first event to its last; (0, 0) without records. The last
/// event is moved to the answer if it is not certainly later.
fn whole_interval(records: &TraceRecords, pieces: &Pieces<'_>) -> (i64, i64) {
    let end_ns = |at_ns: i64, host: &Arc<str>| pieces.by_answer((at_ns, pieces.clock(host))).0;
    let of_events = records
        .events
        .iter()
        .map(|e| (e.ts_ns, end_ns(e.ts_ns, &e.host)));
    let of_spans = records
        .spans
        .iter()
        .map(|s| (s.start_ns, end_ns(s.end_ns.max(s.start_ns), &s.host)));
    of_events
        .chain(of_spans)
        .reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
        .unwrap_or((0, 0))
}

/// Returns the interval from a request's first event to its answer, as [`segment`](segment())
/// computes it, without cutting anything.
pub fn answered_interval(records: &TraceRecords) -> (i64, i64) {
    let mut labels = Labels::default();
    let mut pieces = Pieces {
        labels: &mut labels,
        clocks: &records.clocks,
        last_clock: Cell::new(None),
        elements: Elements::default(),
        answer: None,
        moved: RefCell::default(),
        segments: Vec::new(),
        refused: 0,
        diagnostics: Vec::new(),
    };
    pieces.answer = waiting::answer(&records.spans, &pieces);
    let (start_ns, end_ns) = whole_interval(records, &pieces);
    let answer_ns = pieces.answer.map_or(end_ns, |(answer_ns, _)| answer_ns);
    (start_ns, answer_ns.clamp(start_ns, end_ns))
}

/// Returns `to - from` if `from <= to`, without overflow; 0 otherwise.
pub(crate) fn interval_ns(from_ns: i64, to_ns: i64) -> u64 {
    // The wrapped difference of ordered i64 is their true distance as u64.
    if from_ns < to_ns {
        to_ns.wrapping_sub(from_ns) as u64
    } else {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn segments_sort_as_by_all_fields(
            times in proptest::collection::vec((0i64..9, 0i64..3, 0u32..3), 0..60),
            step_ns in prop_oneof![1i64..1 << 40, Just(i64::MAX / 9)],
        ) {
            let segment = |(start, end, id): &(i64, i64, u32)| {
                Segment::new(SegmentId(*id), (start - 4) * step_ns, *end)
            };
            let mut sorted: Vec<Segment> = times.iter().map(segment).collect();
            let mut expected = sorted.clone();
            expected.sort_by_key(|s| (s.start_ns, s.end_ns, s.id));
            sort(&mut sorted);
            prop_assert_eq!(sorted, expected);
        }
    }
}
