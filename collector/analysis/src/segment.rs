//! Cutting a trace into segments (The Mystery Machine, §4.1).
//!
//! Event logs are cut between consecutive events of a task, see [`from_events`]; spans are cut where their own work
//! stops and starts, see [`from_spans`]. A trace that has both gets the segments of both.

pub mod from_events;
pub mod from_spans;
mod name_cache;
mod span_tree;

use crate::diagnostic::Diagnostic;
use crate::label::{Labels, SegmentId};
use crate::record::{TraceId, TraceRecords};
use from_spans::SpanCutter;
use std::sync::Arc;

/// The interval between two consecutive events of one task in which the task itself is active.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Which segment.
    pub id: SegmentId,
    /// Nanoseconds since the Unix epoch.
    pub start_ns: i64,
    /// Nanoseconds since the Unix epoch; never before `start_ns`.
    pub end_ns: i64,
}

impl Segment {
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
            segment.end_ns = segment.end_ns.max(segment.start_ns);
        }
        segments.sort_unstable_by_key(|s| (s.start_ns, s.end_ns, s.id));
        let start_ns = segments.first().map_or(start_ns, |first| first.start_ns.min(start_ns));
        let end_ns = segments.iter().fold(end_ns.max(start_ns), |end_ns, s| end_ns.max(s.end_ns));
        SegmentedTrace { id, name, start_ns, end_ns, segments }
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
}

impl Segmenter {
    /// As [`segment`](segment()). The labels may be others each time, though it is fastest with the same.
    pub fn segment(
        &mut self,
        records: &TraceRecords,
        labels: &mut Labels,
    ) -> (SegmentedTrace, Vec<Diagnostic>) {
        let mut pieces = Pieces { labels, segments: Vec::new(), refused: 0, diagnostics: Vec::new() };
        from_events::cut(&records.events, &mut pieces);
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
        (SegmentedTrace::new(records.id, records.name.clone(), start_ns, end_ns, segments), diagnostics)
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
    segments: Vec<Segment>,
    refused: u32,
    diagnostics: Vec<Diagnostic>,
}

impl Pieces<'_> {
    fn push(&mut self, id: Option<SegmentId>, start_ns: i64, end_ns: i64) {
        match id {
            Some(id) => self.segments.push(Segment { id, start_ns, end_ns }),
            None => self.refused = self.refused.saturating_add(1),
        }
    }
}
