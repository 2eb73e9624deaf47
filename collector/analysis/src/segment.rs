//! Cutting a trace into segments (The Mystery Machine, §4.1).
//!
//! Event logs are cut between consecutive events of a task, see [`from_events`]; spans are cut where their own work
//! stops and starts, see [`from_spans`]. A trace that has both gets the segments of both.
//!
//! **The answer.** A request ends when its caller has its answer: when its root span ends (of several roots, the last).
//! Latency is up to there, and what ends later went on *after the answer*. Without a root, as in an event log, and where
//! recording ended before the root did, nothing says when that was, and the request ends with its last event. What ends
//! after the root by no more than their clocks may be off ended by the answer, and its times are moved there. The model
//! goes by what was recorded all the same: that of two things on one clock is surer than where both were moved to.

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

/// Which clock took a timestamp: an index into [`SegmentedTrace::clocks`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClockId(pub u16);

impl ClockId {
    /// A clock that is right.
    pub const EXACT: ClockId = ClockId(u16::MAX);
}

/// What is known about a clock's timestamps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ClockBounds {
    /// How far a timestamp may be off the common time of the clock's island.
    pub error_ns: u64,
    /// Two timestamps of this clock that are at most so far apart may have been taken in either order.
    pub tick_ns: u64,
    /// Between clocks of different islands, orders are unknown.
    pub island: u32,
}

impl ClockBounds {
    /// Of a clock that is right up to so much, and exact among its own timestamps.
    pub const fn within(error_ns: u64) -> ClockBounds {
        ClockBounds {
            error_ns,
            tick_ns: 0,
            island: 0,
        }
    }

    fn of(clock: &HostClock) -> ClockBounds {
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

    /// How far apart timestamps of two different clocks may be and yet have been taken in either order.
    fn tolerance_ns(self, other: ClockBounds) -> u64 {
        if self.island != other.island {
            return u64::MAX;
        }
        self.error_ns
            .saturating_add(other.error_ns)
            .saturating_add(self.tick_ns.max(other.tick_ns))
    }
}

/// A data element of a trace, by a number of that trace's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ElementId(pub u32);

impl ElementId {
    /// No element.
    pub const NONE: ElementId = ElementId(u32::MAX);
}

/// The interval between two consecutive events of one task in which the task itself is active.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Which segment.
    pub id: SegmentId,
    /// The clock that `start_ns` is of.
    pub start_clock: ClockId,
    /// The clock that `end_ns` is of: another one where the task went to another host meanwhile.
    pub end_clock: ClockId,
    /// The data element that it works on.
    pub element: ElementId,
    /// Its place in the thread of control that it is of, whose segments follow each other whatever the clocks say.
    pub step: ThreadStep,
    /// Nanoseconds since the Unix epoch.
    pub start_ns: i64,
    /// Nanoseconds since the Unix epoch; never before `start_ns`.
    pub end_ns: i64,
}

impl Segment {
    /// A segment whose times are exact, and that works on no element.
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

    /// How long the segment took.
    pub fn duration_ns(&self) -> u64 {
        interval_ns(self.start_ns, self.end_ns)
    }
}

/// One request as the analyses see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentedTrace {
    /// The trace's id.
    pub id: TraceId,
    /// The id as its source wrote it, when that was not hexadecimal.
    pub name: Option<Arc<str>>,
    /// The first event of the request, in nanoseconds since the Unix epoch.
    pub start_ns: i64,
    /// When the request's caller had its answer: where its latency ends. Between `start_ns` and `end_ns`.
    pub answer_ns: i64,
    /// The last event of the request: the answer, or what went on after it.
    pub end_ns: i64,
    /// Sorted by (start, end, id). Whoever fills this by hand goes through [`SegmentedTrace::new`].
    pub segments: Vec<Segment>,
    /// What is known about each clock's timestamps. Clocks that are not listed are exact.
    pub clocks: Vec<ClockBounds>,
    /// The instants that were moved within the clocks' errors, as recorded. The last so many of `clocks` stand for them, one
    /// each: where they were moved to they may be off by what both clocks may be.
    pub moved: Vec<(i64, ClockId)>,
}

impl SegmentedTrace {
    /// A trace of these segments, which may come in any order, and whose end is the answer. Segments that end before
    /// they start get length zero, and the request's interval is widened to hold every segment, so that the fields'
    /// promises hold.
    pub fn new(
        id: TraceId,
        name: Option<Arc<str>>,
        start_ns: i64,
        end_ns: i64,
        mut segments: Vec<Segment>,
    ) -> SegmentedTrace {
        for segment in &mut segments {
            if segment.end_ns < segment.start_ns {
                // The end is the start now, and just as uncertain.
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

    /// The same, answered at this instant.
    #[must_use]
    pub fn answered_at(self, answer_ns: i64) -> SegmentedTrace {
        SegmentedTrace {
            answer_ns: answer_ns.clamp(self.start_ns, self.end_ns),
            ..self
        }
    }

    /// Puts the segments in order again, after their times were changed.
    pub(crate) fn sort(&mut self) {
        sort(&mut self.segments);
    }

    /// Whether all timestamps are exact.
    pub fn is_exact(&self) -> bool {
        self.clocks
            .iter()
            .all(|clock| *clock == ClockBounds::default())
    }

    /// The one tolerance between any two timestamps of the trace; `None`, if it differs from pair to pair.
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
        // A clock that is not listed is exact, and so no different from those that are.
        (is_one && (*first == ClockBounds::default() || all_listed())).then_some(first.tick_ns)
    }

    /// Two timestamps of these clocks that are at most so far apart may have been taken in either order.
    pub fn tolerance_ns(&self, a: ClockId, b: ClockId) -> u64 {
        let (of_a, of_b) = (self.clock_bounds(a), self.clock_bounds(b));
        if a == b {
            of_a.tick_ns
        } else {
            of_a.tolerance_ns(of_b)
        }
    }

    /// A segment with its times and clocks as recorded: not moved for what holds on their own axis, by evidence that is less
    /// sure than an order on one clock. It may end before it starts where the two are of different clocks.
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

    /// What is known about a clock's timestamps.
    pub fn clock_bounds(&self, clock: ClockId) -> ClockBounds {
        self.clocks
            .get(usize::from(clock.0))
            .copied()
            .unwrap_or_default()
    }

    /// The request's end-to-end latency: from its first event to its answer.
    pub fn latency_ns(&self) -> u64 {
        interval_ns(self.start_ns, self.answer_ns)
    }

    /// For how long the request went on after its answer.
    pub fn after_answer_ns(&self) -> u64 {
        interval_ns(self.answer_ns, self.end_ns)
    }
}

fn sort(segments: &mut [Segment]) {
    segments.sort_unstable_by_key(|s| {
        (
            s.start_ns,
            s.end_ns,
            s.id,
            s.element,
            s.start_clock,
            s.end_clock,
            s.step,
        )
    });
}

/// Cuts one trace into segments, interning their labels. What is wrong with the records is said, and everything
/// else is used. The result does not depend on the order of `records.spans` and `records.events`.
///
/// Whoever cuts many traces keeps a [`Segmenter`], which is several times faster.
pub fn segment(records: &TraceRecords, labels: &mut Labels) -> (SegmentedTrace, Vec<Diagnostic>) {
    Segmenter::default().segment(records, labels)
}

/// Cuts traces into segments, and remembers the names it has seen. Its memory is bounded by some 64 MiB and the
/// largest trace; what it returns never depends on what it has seen before.
#[derive(Clone, Debug, Default)]
pub struct Segmenter {
    spans: SpanCutter,
    events: EventCutter,
}

impl Segmenter {
    /// One that also takes the trailing token of an event-log event's name for the element that it is about, see
    /// [`from_events`].
    pub fn with_trailing_elements() -> Segmenter {
        Segmenter {
            spans: SpanCutter::default(),
            events: EventCutter::with_trailing_elements(),
        }
    }

    /// The spans of a trace in the tree by which they are cut: each before those below it, siblings in order of start. Of
    /// several spans of one id, one.
    pub fn outline(&mut self, records: &TraceRecords) -> Vec<OutlineSpan> {
        self.spans.outline(records)
    }

    /// As [`segment`](segment()). The labels may be others each time, though it is fastest with the same.
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

/// From a request's first event to its last one, as moved within the clocks' errors.
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

/// From when to when a request was: its first event, and when its caller had the answer. As [`segment`](segment()) finds them,
/// without cutting anything.
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

/// `to - from` where `from <= to`, without overflow; 0 otherwise.
pub(crate) fn interval_ns(from_ns: i64, to_ns: i64) -> u64 {
    // The wrapped difference of ordered i64 is their true distance as u64.
    if from_ns < to_ns {
        to_ns.wrapping_sub(from_ns) as u64
    } else {
        0
    }
}
