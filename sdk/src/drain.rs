//! Converts the threads' records into batches: ticks into wall time, begins and ends into spans.
//! Trims records made within the guard times, outside of the exact window.
//!
//! - Records of sampled requests are kept.
//! - Other records are kept if their time is inside a window. A span that is still open when its
//!   window closes ends there with the flag `CUT_CLOSE`; a span that began before the window is not
//!   recorded.
//! - A sampled span open longer than [`Limits::span_ns_max`] is closed with flag `UNFINISHED`.

#[cfg(feature = "tracing")]
mod elapsed;
#[cfg(feature = "tracing")]
mod event_names;
mod open_spans;
pub(crate) mod rings;
mod unended;

use rustc_hash::FxHashMap;
use stroboscope_proto::v1::{self, SpanFlag};

#[cfg(feature = "tracing")]
use crate::adapter::conventions;
use crate::batch::{BatchBuilder, Fields, FinishedSpan, TimedEvent};
use crate::callsite::Callsite;
#[cfg(feature = "tracing")]
use crate::callsite::Role;
use crate::clock::{Anchor, ClockSource, ClockStep, Line, Timeline};
use crate::gate::foresight;
use crate::gate::window_log::Snapshot;
use crate::loss::{LOSSES, LossCause};
use crate::record::{self, FieldValue, Head, Lineage, Record, RecordKind};
use crate::thread;
#[cfg(test)]
pub(crate) use open_spans::ORDER_SPARE;
use open_spans::{EndOutcome, OpenSpan, OpenSpans};

/// Limits of open spans and of batches.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Maximum number of spans whose end is outstanding.
    pub(crate) open_spans_max: usize,
    /// Age in ns at which an open sampled span is shipped as unfinished.
    pub(crate) span_ns_max: i64,
    /// Number of records at which a batch is full.
    pub(crate) batch_records: usize,
    /// Approximate number of bytes at which a batch is full.
    pub(crate) batch_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            open_spans_max: 65_536,
            span_ns_max: 60_000_000_000,
            batch_records: 8_192,
            batch_bytes: 1 << 20,
        }
    }
}

/// Reader of this process's rings.
pub(crate) struct Drain {
    /// Buffers for words of the rings: the words being processed, and those to process next. Both
    /// are empty between passes.
    raw: (Vec<u64>, Vec<u64>),
    timeline: Timeline,
    /// Line of the timeline at the previous record. Most records need the same line again.
    line: Option<Line>,
    steps: Vec<ClockStep>,
    open: OpenSpans,
    /// Number of this turn's FIELDS records that are not yet processed, by span id. They may come
    /// from a ring that follows the ring with the span's end.
    awaited_fields: FxHashMap<u64, u32>,
    /// Ends that this pass read without the begin, or before fields that another thread wrote.
    early_ends: Vec<End>,
    /// Fields by span id that this pass read while the span was unknown.
    early_fields: FxHashMap<u64, Fields>,
    /// Ends and fields that the last pass read without their begin; it may be in a newer ring.
    overdue_ends: Vec<End>,
    overdue_fields: FxHashMap<u64, Fields>,
    builder: BatchBuilder,
    #[cfg(feature = "tracing")]
    event_names: event_names::EventNames,
    limits: Limits,
    counts: Counts,
}

/// Number of spans and events added to batches, and of trimmed records, since recording started.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) spans: u64,
    pub(crate) events: u64,
    /// Spans, events and provenance logs outside the exact windows, of unsampled requests.
    pub(crate) trimmed: u64,
}

#[derive(Debug)]
struct End {
    flags: u16,
    ticks: u64,
    span_id: u64,
    fields: Fields,
}

impl Drain {
    pub(crate) fn new(clock: &dyn ClockSource, limits: Limits) -> Self {
        let mut timeline = Timeline::default();
        timeline.push(Anchor::take(clock));
        Self {
            raw: <(Vec<u64>, Vec<u64>)>::default(),
            timeline,
            line: None,
            steps: Vec::new(),
            open: OpenSpans::with_max(limits.open_spans_max),
            early_ends: Vec::new(),
            early_fields: FxHashMap::default(),
            awaited_fields: FxHashMap::default(),
            overdue_ends: Vec::new(),
            overdue_fields: FxHashMap::default(),
            builder: BatchBuilder::default(),
            #[cfg(feature = "tracing")]
            event_names: event_names::EventNames::default(),
            limits,
            counts: Counts::default(),
        }
    }

    /// Reads all rings and processes their records. Passes full batches to `ship`.
    ///
    /// Threads that record fast fill their rings while earlier records are processed, so all turns
    /// but the last read the rings again after each full batch, for the next turn. The pass ends
    /// when a turn leaves no records, and at the latest after [`TURNS_MAX`] turns. Each turn calls
    /// `windows` first, so that the result includes every window of the turn's records.
    ///
    /// Returns the fill of the fullest ring when the pass began, see [`rings::read_all`].
    pub(crate) fn pass(
        &mut self,
        clock: &dyn ClockSource,
        windows: impl Fn() -> Snapshot,
        ship: &mut dyn FnMut(v1::Batch),
    ) -> usize {
        thread::prepare_rings();
        let (mut raw, mut next) = std::mem::take(&mut self.raw);
        let fullest = rings::read_all(&mut raw);
        for turn in 1..=TURNS_MAX {
            self.line = None;
            if let Some(step) = self.timeline.push(Anchor::take(clock)) {
                self.steps.push(step);
            }
            let windows = windows();
            self.await_fields(&raw);
            let mut lineage = Lineage::UNKNOWN;
            let mut rest = raw.as_slice();
            while !rest.is_empty() {
                let (this, others) = rest.split_at(record::length(rest));
                self.take(record::read(this, &mut lineage), &windows);
                rest = others;
                if self.ship_full(ship) && turn < TURNS_MAX {
                    rings::read_all(&mut next);
                }
            }
            raw.clear();
            std::mem::swap(&mut raw, &mut next);
            if raw.is_empty() {
                break;
            }
        }
        if raw.capacity() + next.capacity() <= RAW_WORDS_KEPT {
            self.raw = (raw, next);
        }
        #[cfg(feature = "provenance")]
        self.take_provenance(windows, ship);
        self.settle_early(ship);
        self.close_due(clock.ticks(), ship);
        rings::forget_finished();
        fullest
    }

    /// Adds the provenance logs of sampled requests, and of those that began to be tracked in a
    /// window.
    #[cfg(feature = "provenance")]
    fn take_provenance(&mut self, windows: impl Fn() -> Snapshot, ship: &mut dyn FnMut(v1::Batch)) {
        let pending = crate::tracked::take();
        if pending.is_empty() {
            return;
        }
        // Taken after the logs, so that it includes their windows.
        let windows = windows();
        self.line = None;
        for pending in pending {
            let time_ns = self.wall_ns(pending.ticks);
            if !pending.is_sampled && windows.find(time_ns).is_none() {
                self.counts.trimmed += 1;
            } else if let Some(log) = pending.encode() {
                self.builder.provenance(v1::ProvenanceLog {
                    trace_id: pending.trace_id.to_be_bytes().to_vec(),
                    span_id: pending.span_id,
                    time_ns: time_ns.max(0).cast_unsigned(),
                    log,
                });
                self.ship_full(ship);
            }
        }
    }

    /// Counts the records that add fields, by span id.
    fn await_fields(&mut self, mut raw: &[u64]) {
        self.awaited_fields.clear();
        while !raw.is_empty() {
            let (this, others) = raw.split_at(record::length(raw));
            if let Some(span_id) = record::added_to(this) {
                *self.awaited_fields.entry(span_id).or_default() += 1;
            }
            raw = others;
        }
    }

    /// Passes the open batch to `ship` if it is full. Returns `false` if it is not.
    fn ship_full(&mut self, ship: &mut dyn FnMut(v1::Batch)) -> bool {
        let is_full = self.builder.records() >= self.limits.batch_records
            || self.builder.bytes() >= self.limits.batch_bytes;
        if is_full {
            ship(self.builder.finish(&[]));
        }
        is_full
    }

    fn take(&mut self, record: Record<'_>, windows: &Snapshot) {
        match record {
            Record::End {
                flags,
                ticks,
                span_id,
            } => {
                let fields = Fields::new();
                self.end_or_keep(End {
                    flags,
                    ticks,
                    span_id,
                    fields,
                });
            }
            Record::Full { head, fields } => match head.kind {
                RecordKind::Begin => self.begin(&head, fields, windows),
                RecordKind::Event => self.event(&head, fields, windows),
                RecordKind::Fields => {
                    if let Some(awaited) = self.awaited_fields.get_mut(&head.span_id) {
                        *awaited -= 1;
                        if *awaited == 0 {
                            self.awaited_fields.remove(&head.span_id);
                        }
                    }
                    self.open.add_flags(head.span_id, u32::from(head.flags));
                    let added = match head.name() {
                        Some(name) => fields.map(|(_, value)| (name, value.into())).collect(),
                        None => owned(head.callsite, fields),
                    };
                    self.add_fields(head.span_id, added);
                }
                RecordKind::Close => self.end_or_keep(End {
                    flags: head.flags,
                    ticks: head.ticks,
                    span_id: head.span_id,
                    fields: owned(head.callsite, fields),
                }),
                _ => {}
            },
            Record::Context | Record::Broken => {}
        }
    }

    fn add_fields(&mut self, span_id: u64, fields: Fields) {
        if let Some(early) = self.open.add_fields(span_id, fields) {
            self.early_fields.entry(span_id).or_default().extend(early);
        }
    }

    fn wall_ns(&mut self, ticks: u64) -> i64 {
        let line = match self.line {
            Some(line) if line.holds_at(ticks) => line,
            _ => *self.line.insert(self.timeline.line_at(ticks)),
        };
        line.wall_ns(ticks)
    }

    fn begin(&mut self, head: &Head, fields: record::Fields<'_>, windows: &Snapshot) {
        let start_ns = self.wall_ns(head.ticks);
        let sampled = u32::from(head.flags) & SpanFlag::Sampled as u32 != 0;
        let window = windows.find(start_ns);
        let evicted = if sampled || window.is_some() {
            self.open.begin(OpenSpan {
                trace_id: head.trace_id,
                span_id: head.span_id,
                parent_id: head.parent_id,
                callsite: head.callsite,
                start_ticks: head.ticks,
                start_ns,
                flags: u32::from(head.flags),
                fields: owned(head.callsite, fields),
                window_close_ns: window.map(|window| window.close_ns),
            })
        } else {
            self.counts.trimmed += 1;
            self.open.begin_settled(head.span_id)
        };
        if let Some(span) = evicted {
            LOSSES.add(LossCause::OpenSpansFull, 1);
            let end_ns = span.start_ns.max(start_ns);
            self.close(*span, end_ns, SpanFlag::Unfinished as u32);
        }
    }

    fn event(&mut self, head: &Head, fields: record::Fields<'_>, windows: &Snapshot) {
        let time_ns = self.wall_ns(head.ticks);
        let sampled = u32::from(head.flags) & SpanFlag::Sampled as u32 != 0;
        if !sampled && windows.find(time_ns).is_none() {
            self.counts.trimmed += 1;
            return;
        }
        #[cfg(feature = "tracing")]
        if self.describe_span(head, &fields) || self.elapsed(head, &fields, time_ns, windows) {
            return;
        }
        #[cfg(feature = "tracing")]
        let name = self
            .event_names
            .name(head.callsite, named(head.callsite, fields.clone()));
        #[cfg(not(feature = "tracing"))]
        let name = head.callsite.name;
        self.counts.events += 1;
        let event = TimedEvent {
            trace_id: head.trace_id,
            span_id: head.span_id,
            name,
            time_ns,
        };
        self.builder.event(&event, named(head.callsite, fields));
    }

    /// Adds those fields of an event that describe its span to the span. Returns true if the event
    /// itself need not be shipped.
    #[cfg(feature = "tracing")]
    fn describe_span(&mut self, head: &Head, fields: &record::Fields<'_>) -> bool {
        let role = head.callsite.role;
        let of_span = conventions::fields_of_span(role, named(head.callsite, fields.clone()));
        match of_span.filter(|_| head.span_id != 0) {
            Some(of_span) => {
                self.add_fields(head.span_id, of_span);
                role == Role::Response
            }
            None => false,
        }
    }

    fn end_or_keep(&mut self, end: End) {
        if self.awaited_fields.contains_key(&end.span_id) {
            return self.early_ends.push(end);
        }
        if let Some(early) = self.end(end) {
            self.early_ends.push(early);
        }
    }

    /// Closes the span of an end; returns the end if the span is unknown: its begin was not read,
    /// or the span was evicted.
    fn end(&mut self, end: End) -> Option<End> {
        match self.open.end(end.span_id) {
            EndOutcome::Settled => None,
            EndOutcome::Unknown => Some(end),
            EndOutcome::Span(mut span) => {
                let end_ns = end_at(&self.timeline, &span, end.ticks);
                foresight::saw_span(end_ns.saturating_sub(span.start_ns));
                match span.cut_at_ns() {
                    Some(cut_at_ns) if end_ns >= cut_at_ns => {
                        self.close(*span, cut_at_ns, SpanFlag::CutClose as u32);
                    }
                    _ => {
                        for early in [&mut self.overdue_fields, &mut self.early_fields] {
                            if let Some(fields) = early.remove(&end.span_id) {
                                span.add_fields(fields);
                            }
                        }
                        span.add_fields(end.fields);
                        self.close(*span, end_ns, u32::from(end.flags));
                    }
                }
                None
            }
        }
    }

    /// Applies the fields and ends that were read too early.
    fn settle_early(&mut self, ship: &mut dyn FnMut(v1::Batch)) {
        for (span_id, fields) in std::mem::take(&mut self.overdue_fields) {
            // If the span is still unknown, it has ended or was evicted, or its begin was lost and
            // its end counts the loss.
            let _ = self.open.add_fields(span_id, fields);
        }
        for (span_id, fields) in std::mem::take(&mut self.early_fields) {
            if let Some(early) = self.open.add_fields(span_id, fields) {
                self.overdue_fields.insert(span_id, early);
            }
        }
        for end in std::mem::take(&mut self.overdue_ends) {
            if self.end(end).is_some() {
                LOSSES.add(LossCause::EndWithoutBegin, 1);
            }
            self.ship_full(ship);
        }
        for end in std::mem::take(&mut self.early_ends) {
            let overdue = self.end(end);
            self.overdue_ends.extend(overdue);
            self.ship_full(ship);
        }
    }

    fn close(&mut self, mut span: OpenSpan, end_ns: i64, flags: u32) {
        self.counts.spans += 1;
        if span.is_sampled() && span.is_outside(end_ns) {
            span.flags |= SpanFlag::Outside as u32;
        }
        span.limit_fields();
        let name = span.callsite.name;
        #[cfg(feature = "tracing")]
        let name =
            conventions::describe(span.callsite, &mut span.fields, &mut span.flags).unwrap_or(name);
        self.builder.span(&FinishedSpan {
            trace_id: span.trace_id,
            span_id: span.span_id,
            parent_id: span.parent_id,
            name,
            start_ns: span.start_ns,
            duration_ns: end_ns.saturating_sub(span.start_ns).max(0).cast_unsigned(),
            flags: span.flags | flags,
            fields: span.fields,
        });
    }

    /// Adds a finished span that did not come through a ring.
    #[cfg(feature = "simulation")]
    pub(crate) fn record(&mut self, span: &FinishedSpan) {
        self.counts.spans += 1;
        self.builder.span(span);
    }

    /// Reports whether a batch would contain records or clock steps.
    pub(crate) fn has_something(&self) -> bool {
        self.builder.records() > 0 || !self.steps.is_empty()
    }

    /// Returns the records since the last batch, as a batch with the clock steps.
    pub(crate) fn batch(&mut self) -> v1::Batch {
        let steps = std::mem::take(&mut self.steps);
        self.builder.finish(&steps)
    }

    pub(crate) fn counts(&self) -> Counts {
        self.counts
    }

    pub(crate) fn open_spans(&self) -> &OpenSpans {
        &self.open
    }

    /// Returns the numbers of anchors, of spans awaiting their end, and of queued ids.
    #[cfg(test)]
    pub(crate) fn footprint(&self) -> [usize; 3] {
        [
            self.timeline.anchors(),
            self.open.len(),
            self.open.order_len(),
        ]
    }
}

/// Returns a span's start plus its duration up to this tick; clock steps have no effect.
fn end_at(timeline: &Timeline, span: &OpenSpan, ticks: u64) -> i64 {
    span.start_ns
        .saturating_add_unsigned(timeline.duration_ns(span.start_ticks, ticks))
}

/// Returns fields with their names.
fn named<'a>(
    callsite: &'static Callsite,
    fields: record::Fields<'a>,
) -> impl Iterator<Item = (&'static str, FieldValue<'a>)> + Clone {
    fields.filter_map(|(index, value)| Some((*callsite.fields.get(usize::from(index))?, value)))
}

/// Copies fields, with their names.
fn owned(callsite: &'static Callsite, fields: record::Fields<'_>) -> Fields {
    let named = named(callsite, fields);
    named.map(|(name, value)| (name, value.into())).collect()
}

/// Maximum number of turns in one pass, so that shipping is not delayed for long.
const TURNS_MAX: usize = 8;

/// Maximum words of the two buffers kept between passes (8 MiB); larger ones are freed.
const RAW_WORDS_KEPT: usize = 1 << 20;
