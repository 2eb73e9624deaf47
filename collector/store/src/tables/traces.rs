//! Reads whole traces in the order of their ids, by merging the files of spans and of events.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::sync::Arc;

use foldhash::HashSet;
use stroboscope_analysis::record::{SpanRecord, TraceId, TraceRecords};
use stroboscope_analysis::sampling::TraceSampling;

use super::attach::{EventAttacher, EventRead};
use super::attributes::AttributeKeys;
use super::columns::DeclaredTable;
use super::cursor::{Cursor, ReadContext, RowLayout};
use super::id_range::IdRange;
use super::left_out::LeftOut;
use super::objects::{Store, StoreError};
use super::read_budget::ReadBudget;
use super::reader::{Damage, TableFile, TableReader};
use super::schema::{Events, Spans};
use super::trace_files::TraceFiles;
use super::trace_room::TraceRoom;
use crate::limits::RECORDS_PER_TRACE_MAX;

/// K-way merge of a table's files by trace, with a heap of the next trace of each file.
#[derive(Debug)]
pub(super) struct MergeByTrace<T: DeclaredTable> {
    cursors: Vec<Cursor<T>>,
    next: BinaryHeap<Reverse<(u128, usize)>>,
}

impl<T: DeclaredTable> MergeByTrace<T> {
    fn of(
        files: &[TableFile],
        budget: ReadBudget,
        range: &IdRange,
        context: &mut ReadContext,
    ) -> Self {
        let columns = RowLayout::<T>::columns(&context.keys);
        let mut merge = Self {
            cursors: Vec::new(),
            next: BinaryHeap::with_capacity(files.len()),
        };
        for (at, file) in files.iter().enumerate() {
            let reader = TableReader::of(file, &columns, &context.keys, budget, range);
            let mut cursor = Cursor::new(reader);
            cursor.skip_to(range.from, context);
            let first = cursor.trace_id(context);
            merge.next.extend(first.map(|id| Reverse((id, at))));
            merge.cursors.push(cursor);
        }
        merge
    }

    fn next_id(&self) -> Option<u128> {
        self.next.peek().map(|Reverse((id, _))| *id)
    }

    /// Passes all rows of a trace to `visit`, file by file, and returns the number of files that
    /// contain rows of it. Does nothing and returns 0 if the next trace is another one.
    pub(super) fn take(
        &mut self,
        id: u128,
        context: &mut ReadContext,
        mut visit: impl FnMut(&RowLayout<T>, usize, Option<&Arc<str>>, &mut ReadContext),
    ) -> usize {
        let mut files = 0;
        while let Some(mut top) = self.next.peek_mut().filter(|top| top.0.0 == id) {
            let cursor = &mut self.cursors[top.0.1];
            cursor.take(id, context, &mut visit);
            files += 1;
            match cursor.trace_id(context) {
                Some(next) => top.0.0 = next,
                None => _ = PeekMut::pop(top),
            }
        }
        files
    }
}

/// Reader that streams whole traces in the order of trace ids. It holds one trace, and the pages
/// that it reads ahead from its files. At most a few hundred files are open together.
#[derive(Debug)]
pub struct TraceReader {
    pub(super) spans: MergeByTrace<Spans>,
    pub(super) events: MergeByTrace<Events>,
    below: Option<u128>,
    /// Ids of the traces to read, in order; others are skipped. `None` for all.
    wanted: Option<Arc<[u128]>>,
    /// Damage that opening the files found; empty in a reader of a range.
    unopened: Vec<Damage>,
    pub(super) context: ReadContext,
    pub(super) left_out: LeftOut,
    attacher: EventAttacher,
    /// Events of the current trace. The list is reused to keep its memory.
    read: Vec<EventRead>,
}

impl TraceFiles {
    /// Creates a reader of the traces in `range`. `together` is the number of ranges that are read
    /// at the same time.
    #[must_use]
    pub fn read(&self, range: &IdRange, together: usize) -> TraceReader {
        let budget = ReadBudget::of(self.side_by_side() * together.max(1));
        let mut context = ReadContext::of(self.keys());
        let spans = MergeByTrace::of(self.span_files(), budget, range, &mut context);
        let events = MergeByTrace::of(self.event_files(), budget, range, &mut context);
        TraceReader {
            spans,
            events,
            below: range.below,
            wanted: self.wanted(),
            unopened: Vec::new(),
            context,
            left_out: LeftOut::default(),
            attacher: EventAttacher::default(),
            read: Vec::new(),
        }
    }
}

impl TraceReader {
    /// Opens all files of spans and events, to read all traces without attributes.
    ///
    /// # Errors
    /// Returns an error if the store cannot be listed, or temporary files cannot be written.
    pub fn open(store: &Store) -> Result<Self, StoreError> {
        Self::open_with(store, &AttributeKeys::none())
    }

    /// Opens all files like [`TraceReader::open`], to read traces with the selected attributes (see
    /// [`TraceFiles::open`]).
    ///
    /// # Errors
    /// Returns an error if the store cannot be listed, or temporary files cannot be written.
    pub fn open_with(store: &Store, keys: &AttributeKeys) -> Result<Self, StoreError> {
        Ok(Self::of(&TraceFiles::open(store, keys)?))
    }

    /// Creates a reader of all traces of `files`.
    #[must_use]
    pub fn of(files: &TraceFiles) -> Self {
        let reader = files.read(&IdRange::ALL, 1);
        Self {
            unopened: files.damage().to_vec(),
            ..reader
        }
    }

    /// Returns the numbers of records that were left out so far.
    #[must_use]
    pub fn left_out(&self) -> LeftOut {
        LeftOut {
            unreadable_attributes: self.context.unreadable_attributes,
            ..self.left_out
        }
    }

    /// Returns the damage found so far. For a reader of a range, this does not include the damage
    /// that opening the files found, which [`TraceFiles::damage`] returns.
    #[must_use]
    pub fn damage(&self) -> Vec<Damage> {
        let spans = self.spans.cursors.iter().filter_map(Cursor::damage);
        let events = self.events.cursors.iter().filter_map(Cursor::damage);
        let all = self.unopened.iter().chain(spans).chain(events);
        all.cloned().collect()
    }

    /// Replaces the content of `trace` with the next trace. Returns `false` at the end.
    pub fn next_into(&mut self, trace: &mut TraceRecords) -> bool {
        self.next_within(trace, |_| true)
    }

    /// Reads the next trace like [`TraceReader::next_into`]. While a large trace grows, calls
    /// `room` with the bytes to reserve for it, in steps of 1 MiB or more. If `room` returns false,
    /// skips and counts the trace.
    pub fn next_within(
        &mut self,
        trace: &mut TraceRecords,
        mut room: impl FnMut(usize) -> bool,
    ) -> bool {
        while let Some(id) = self.next_id() {
            if self.take_trace(id, trace, usize::MAX, &mut room).is_ok() {
                return true;
            }
            self.left_out.large_traces += 1;
        }
        false
    }

    /// Replaces the content of `trace` with trace `id` or, if this has more than `spans_max` spans,
    /// with that many of them and their events. These are the spans that start first if `spans_max`
    /// is below [`RECORDS_PER_TRACE_MAX`]. Attributes and elements of other spans may remain.
    /// Trace `id` must be the next one. Calls `room` like [`TraceReader::next_within`]. Returns the
    /// number of all spans of the trace, without dropped copies. Copies of spans that it leaves out
    /// may count.
    ///
    /// # Errors
    /// Returns this number if `room` returned false.
    pub fn first_of(
        &mut self,
        id: u128,
        spans_max: usize,
        trace: &mut TraceRecords,
        mut room: impl FnMut(usize) -> bool,
    ) -> Result<u64, u64> {
        self.take_trace(id, trace, spans_max, &mut room)
    }

    fn take_trace(
        &mut self,
        id: u128,
        trace: &mut TraceRecords,
        spans_max: usize,
        room: &mut dyn FnMut(usize) -> bool,
    ) -> Result<u64, u64> {
        trace.id = TraceId(id);
        trace.name = None;
        trace.divided_from = None;
        trace.spans.clear();
        trace.events.clear();
        trace.clocks.clear();
        trace.elements.clear();
        trace.attributes.clear();
        trace.sampling = TraceSampling::default();
        let mut room = TraceRoom::of(room);
        let spans = self.take_spans(trace, spans_max, &mut room);
        self.take_events(trace, spans, &mut room);
        if room.is_there {
            return Ok(spans);
        }
        *trace = TraceRecords::default();
        Err(spans)
    }

    /// Returns the id of the next trace; `None` at the end. Skips and counts records outside any
    /// request.
    pub fn next_id(&mut self) -> Option<u128> {
        self.skip_outside_requests();
        loop {
            let next = self.spans.next_id().into_iter();
            let next = next.chain(self.events.next_id()).min();
            let id = next.filter(|id| self.below.is_none_or(|below| *id < below))?;
            let is_it = |wanted: &Arc<[u128]>| wanted.binary_search(&id).is_ok();
            if self.wanted.as_ref().is_none_or(is_it) {
                return Some(id);
            }
            self.skip_trace(id);
        }
    }

    /// Skips all records of a trace, which must be the next one.
    pub(super) fn skip_trace(&mut self, id: u128) {
        let context = &mut self.context;
        self.spans.take(id, context, |_, _, _, _| {});
        self.events.take(id, context, |_, _, _, _| {});
    }

    fn skip_outside_requests(&mut self) {
        let Self {
            spans,
            events,
            left_out,
            context,
            ..
        } = self;
        if spans.next_id() == Some(0) {
            spans.take(0, context, |_, _, _, _| left_out.outside_requests += 1);
        }
        if events.next_id() == Some(0) {
            events.take(0, context, |_, _, _, _| left_out.outside_requests += 1);
        }
    }

    fn take_spans(
        &mut self,
        trace: &mut TraceRecords,
        spans_max: usize,
        room: &mut TraceRoom<'_>,
    ) -> u64 {
        let Self {
            spans,
            left_out,
            context,
            attacher,
            ..
        } = self;
        let (mut count, mut copies) = (0, 0);
        let spans_max = spans_max.min(RECORDS_PER_TRACE_MAX);
        let files = spans.take(trace.id.0, context, |rows, row, name, context| {
            count += 1;
            if !room.is_there {
                return;
            }
            if spans_max == RECORDS_PER_TRACE_MAX && trace.spans.len() >= spans_max {
                left_out.over_trace_limit += 1;
                return;
            }
            let attributes = trace.attributes.len();
            rows.add_span(row, trace, context);
            let texts = trace.attributes[attributes..].iter();
            room.grow(texts.map(|one| one.key.len() + one.value.len()).sum());
            if !room.is_there {
                trace.spans = Vec::new();
            }
            if trace.spans.len() >= 2 * spans_max {
                let all = trace.spans.len();
                sort_spans(&mut trace.spans);
                copies += attacher.drop_span_copies(trace);
                trace.spans.truncate(spans_max);
                room.shrink(all - trace.spans.len());
            }
            if trace.name.is_none() {
                trace.name = name.cloned();
            }
        });
        if files > 1 || trace.spans.len() > spans_max {
            // Sorts like a file, so that the order does not depend on the distribution of spans
            // over files.
            sort_spans(&mut trace.spans);
        }
        copies += attacher.drop_span_copies(trace);
        trace.spans.truncate(spans_max);
        left_out.copies += copies;
        count - copies
    }

    fn take_events(&mut self, trace: &mut TraceRecords, spans: u64, room: &mut TraceRoom<'_>) {
        let most = RECORDS_PER_TRACE_MAX.saturating_sub(trace.spans.len());
        let Self {
            events,
            left_out,
            context,
            read,
            ..
        } = self;
        let is_part = (trace.spans.len() as u64) < spans.min(RECORDS_PER_TRACE_MAX as u64);
        let of_part = trace.spans.iter().filter(|_| is_part);
        let part: HashSet<u64> = of_part.map(|span| span.span_id).collect();
        let files = events.take(trace.id.0, context, |rows, row, name, context| {
            if read.len() >= most {
                left_out.over_trace_limit += 1;
            } else if room.is_there {
                let event = rows.event(row, name, context);
                if !is_part || part.contains(&event.span_id) {
                    let texts = event.attributes.iter();
                    room.grow(texts.map(|(key, value)| key.len() + value.len()).sum());
                    read.push(event);
                }
            }
        });
        if !room.is_there {
            *read = Vec::new();
        }
        if files > 1 {
            read.sort_by_key(|event| (event.time_ns, event.seq));
        }
        self.attacher.attach(trace, read, left_out);
    }
}

/// Sorts the spans of a trace in the order of the store's files: by start, span id and process.
pub fn sort_spans(spans: &mut [SpanRecord]) {
    spans.sort_by_key(|span| (span.start_ns, span.span_id, span.process));
}

impl Iterator for TraceReader {
    type Item = TraceRecords;

    fn next(&mut self) -> Option<TraceRecords> {
        let mut trace = TraceRecords::default();
        self.next_into(&mut trace).then_some(trace)
    }
}

#[cfg(test)]
mod tests {
    use stroboscope_analysis::record::SpanFlags;

    use super::*;

    #[test]
    fn equal_times_and_ids_leave_the_order_to_the_process() {
        let span = |(process, span_id, start_ns)| SpanRecord {
            span_id,
            parent_id: 0,
            service: "s".into(),
            name: "n".into(),
            host: "h".into(),
            process,
            start_ns,
            end_ns: 9,
            flags: SpanFlags::default(),
            events: Vec::new(),
        };
        let expected = [(3, 1, 4), (1, 7, 5), (2, 7, 5), (1, 8, 5)];
        let mut spans = [2, 3, 0, 1].map(|at| span(expected[at]));
        sort_spans(&mut spans);
        let of = |span: &SpanRecord| (span.process, span.span_id, span.start_ns);
        assert_eq!(spans.iter().map(of).collect::<Vec<_>>(), expected);
    }
}
