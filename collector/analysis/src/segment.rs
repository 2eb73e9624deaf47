//! Cutting a trace into segments (The Mystery Machine, §4.1).
//!
//! Event logs are cut between consecutive events of a task, see [`from_events`]; spans are cut where their own work
//! stops and starts, see [`from_spans`]. A trace that has both gets the segments of both.

mod elements;
pub mod from_events;
pub mod from_spans;
mod name_cache;
mod span_tree;

use crate::diagnostic::Diagnostic;
use crate::label::{Labels, SegmentId};
use crate::record::{HostClock, TraceId, TraceRecords};
use elements::Elements;
use from_events::EventCutter;
use from_spans::SpanCutter;
use std::sync::Arc;

/// Which clock took a timestamp: an index into [`SegmentedTrace::clock_errors_ns`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClockId(pub u16);

impl ClockId {
    /// A clock that is right.
    pub const EXACT: ClockId = ClockId(u16::MAX);
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
    /// Nanoseconds since the Unix epoch.
    pub start_ns: i64,
    /// Nanoseconds since the Unix epoch; never before `start_ns`.
    pub end_ns: i64,
}

impl Segment {
    /// A segment whose times are exact, and that works on no element.
    pub const fn new(id: SegmentId, start_ns: i64, end_ns: i64) -> Segment {
        let exact = ClockId::EXACT;
        Segment { id, start_clock: exact, end_clock: exact, element: ElementId::NONE, start_ns, end_ns }
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
    /// The last event of the request.
    pub end_ns: i64,
    /// Sorted by (start, end, id). Whoever fills this by hand goes through [`SegmentedTrace::new`].
    pub segments: Vec<Segment>,
    /// How far the timestamps of each clock may be off. Clocks that are not listed are exact; timestamps of one clock
    /// are exact among themselves.
    pub clock_errors_ns: Vec<u64>,
}

impl SegmentedTrace {
    /// A trace of these segments, which may come in any order. Segments that end before they start get length
    /// zero, and the request's interval is widened to hold every segment, so that the fields' promises hold.
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
        segments
            .sort_unstable_by_key(|s| (s.start_ns, s.end_ns, s.id, s.element, s.start_clock, s.end_clock));
        let start_ns = segments.first().map_or(start_ns, |first| first.start_ns.min(start_ns));
        let end_ns = segments.iter().fold(end_ns.max(start_ns), |end_ns, s| end_ns.max(s.end_ns));
        SegmentedTrace { id, name, start_ns, end_ns, segments, clock_errors_ns: Vec::new() }
    }

    /// Whether all timestamps are exact.
    pub fn is_exact(&self) -> bool {
        self.clock_errors_ns.iter().all(|error_ns| *error_ns == 0)
    }

    /// Two timestamps of these clocks that are at most so far apart may have been taken in either order.
    pub fn tolerance_ns(&self, a: ClockId, b: ClockId) -> u64 {
        if a == b { 0 } else { self.clock_error_ns(a).saturating_add(self.clock_error_ns(b)) }
    }

    /// How far a clock's timestamps may be off.
    pub fn clock_error_ns(&self, clock: ClockId) -> u64 {
        self.clock_errors_ns.get(usize::from(clock.0)).copied().unwrap_or(0)
    }

    /// The request's end-to-end latency: from its first event to its last.
    pub fn latency_ns(&self) -> u64 {
        interval_ns(self.start_ns, self.end_ns)
    }
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
        Segmenter { spans: SpanCutter::default(), events: EventCutter::with_trailing_elements() }
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
            elements: Elements::of(records),
            segments: Vec::new(),
            refused: 0,
            diagnostics: Vec::new(),
        };
        self.events.cut(&records.events, &mut pieces);
        self.spans.cut(&records.spans, &mut pieces);
        let Pieces { segments, refused, mut diagnostics, .. } = pieces;
        if refused > 0 {
            diagnostics.push(Diagnostic::LabelsFull { segments: refused });
        }
        let instants = records
            .events
            .iter()
            .map(|e| (e.ts_ns, e.ts_ns))
            .chain(records.spans.iter().map(|s| (s.start_ns, s.end_ns.max(s.start_ns))));
        let (start_ns, end_ns) = instants.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1))).unwrap_or((0, 0));
        let mut trace = SegmentedTrace::new(records.id, records.name.clone(), start_ns, end_ns, segments);
        trace.clock_errors_ns = records.clocks.iter().map(|clock| clock.error_ns).collect();
        (trace, diagnostics)
    }
}

/// `to - from` where `from <= to`, without overflow; 0 otherwise.
pub(crate) fn interval_ns(from_ns: i64, to_ns: i64) -> u64 {
    // The wrapped difference of ordered i64 is their true distance as u64.
    if from_ns < to_ns { to_ns.wrapping_sub(from_ns) as u64 } else { 0 }
}

/// Where the two ways of cutting put what they find.
struct Pieces<'a> {
    labels: &'a mut Labels,
    clocks: &'a [HostClock],
    elements: Elements<'a>,
    segments: Vec<Segment>,
    refused: u32,
    diagnostics: Vec<Diagnostic>,
}

/// A time, and the clock it is of.
type Instant = (i64, ClockId);

impl Pieces<'_> {
    /// The clock of a host.
    fn clock(&self, host: &str) -> ClockId {
        let at = self.clocks.binary_search_by(|clock| (*clock.host).cmp(host)).ok();
        // Hosts past what the number holds count as exact; there never are so many in one request.
        at.and_then(|at| u16::try_from(at).ok()).map_or(ClockId::EXACT, ClockId)
    }

    /// As [`SegmentedTrace::tolerance_ns`].
    fn tolerance_ns(&self, a: ClockId, b: ClockId) -> u64 {
        let error_ns = |clock: ClockId| self.clocks.get(usize::from(clock.0)).map_or(0, |c| c.error_ns);
        if a == b { 0 } else { error_ns(a).saturating_add(error_ns(b)) }
    }

    fn push(&mut self, id: Option<SegmentId>, element: ElementId, start: Instant, end: Instant) {
        match id {
            Some(id) => self.segments.push(Segment {
                start_clock: start.1,
                end_clock: end.1,
                element,
                ..Segment::new(id, start.0, end.0)
            }),
            None => self.refused = self.refused.saturating_add(1),
        }
    }
}
