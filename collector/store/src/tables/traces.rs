//! Whole traces in order of their ids: the files of spans and of events, walked side by side.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::RangeInclusive;
use std::sync::Arc;

use stroboscope_analysis::record::{TraceId, TraceRecords};
use stroboscope_analysis::sampling::TraceSampling;

use super::attach::{EventAttacher, EventRead};
use super::attributes::AttributeKeys;
use super::columns::DeclaredTable;
use super::cursor::{Cursor, ReadContext, RowLayout};
use super::id_range::{IdRange, cut};
use super::objects::{Store, StoreError};
use super::partition::StoreTable;
use super::reader::{Damage, ReadBudget, TableFile, TableReader};
use super::schema::{Events, Spans};
use super::spill::{FILES_MAX, Wanted, open_files};
use crate::limits::RECORDS_PER_TRACE_MAX;

/// Files that all ranges together have open: each range opens them all, and each that is open takes up to a MiB.
const CURSORS_MAX: usize = 2_048;

/// What reading traces left out, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct LeftOut {
    /// Records outside any request.
    pub outside_requests: u64,
    /// Records of a trace beyond [`RECORDS_PER_TRACE_MAX`].
    pub over_trace_limit: u64,
    /// Events whose span is not in the store.
    pub span_missing: u64,
    /// Events in a request, but in no span and of no task.
    pub no_span_no_task: u64,
    /// Records whose attributes name one that was asked for, but are not a JSON object.
    pub unreadable_attributes: u64,
}

impl LeftOut {
    /// Adds what another reader left out.
    pub fn merge(&mut self, other: Self) {
        self.outside_requests += other.outside_requests;
        self.over_trace_limit += other.over_trace_limit;
        self.span_missing += other.span_missing;
        self.no_span_no_task += other.no_span_no_task;
        self.unreadable_attributes += other.unreadable_attributes;
    }
}

/// The files of spans and events, opened to be read range by range.
#[derive(Clone, Debug)]
pub struct TraceFiles {
    spans: Vec<TableFile>,
    events: Vec<TableFile>,
    damage: Vec<Damage>,
    read: usize,
    skipped: usize,
    keys: AttributeKeys,
    /// Only these traces are read, in order; none: all of them.
    wanted: Option<Arc<[u128]>>,
}

impl TraceFiles {
    /// Opens all files. The traces read from them have these attributes in [`TraceRecords::attributes`]; if
    /// `element` is one of them, what spans and events of event logs say of it is in [`TraceRecords::elements`]
    /// instead, and what events inside spans say of it in those events.
    ///
    /// # Errors
    /// When the store cannot be listed.
    pub fn open(store: &Store, keys: &AttributeKeys) -> Result<Self, StoreError> {
        Self::open_between(store, keys, i64::MIN..=i64::MAX)
    }

    /// As [`TraceFiles::open`], without the files of which no row begins at one of these instants (ns since the Unix epoch), by the statistics in
    /// their footers. Rows of the other files may begin at any time.
    ///
    /// # Errors
    /// When the store cannot be listed.
    pub fn open_between(
        store: &Store,
        keys: &AttributeKeys,
        times_ns: RangeInclusive<i64>,
    ) -> Result<Self, StoreError> {
        Self::open_bounded(store, keys, times_ns, &IdRange::ALL, FILES_MAX)
    }

    /// As [`TraceFiles::open_between`], of which only traces of this range will be read; of each table, at most `files_max`
    /// files are read side by side: where there are more, the smallest are merged to temporary files first.
    ///
    /// # Errors
    /// When the store cannot be listed, or temporary files cannot be written.
    pub fn open_bounded(
        store: &Store,
        keys: &AttributeKeys,
        times_ns: RangeInclusive<i64>,
        range: &IdRange,
        files_max: usize,
    ) -> Result<Self, StoreError> {
        // As of one moment: no events are seen whose spans were deleted meanwhile.
        let mut objects = store
            .list_together(&[StoreTable::Spans, StoreTable::Events])?
            .into_iter();
        let wanted = |table, columns| Wanted {
            store,
            table,
            columns,
            keys,
            times_ns: times_ns.clone(),
            range: *range,
            files_max,
        };
        let columns = RowLayout::<Spans>::columns(keys);
        let spans = open_files::<Spans>(
            &wanted(StoreTable::Spans, &columns),
            objects.next().unwrap_or_default(),
        )?;
        let columns = RowLayout::<Events>::columns(keys);
        let events = open_files::<Events>(
            &wanted(StoreTable::Events, &columns),
            objects.next().unwrap_or_default(),
        )?;
        Ok(Self {
            spans: spans.files,
            events: events.files,
            damage: spans.damage.into_iter().chain(events.damage).collect(),
            read: spans.read + events.read,
            skipped: spans.skipped + events.skipped,
            keys: keys.clone(),
            wanted: None,
        })
    }

    /// The same, of which only these traces will be read; of the files, only pages that may hold some of them.
    #[must_use]
    pub fn only(mut self, mut traces: Vec<u128>) -> Self {
        traces.sort_unstable();
        traces.dedup();
        let wanted: Arc<[u128]> = traces.into();
        let files = self.spans.iter_mut().chain(&mut self.events);
        files.for_each(|file| file.only(&wanted));
        self.wanted = Some(wanted);
        self
    }

    pub(super) fn span_files(&self) -> &[TableFile] {
        &self.spans
    }

    pub(super) fn event_files(&self) -> &[TableFile] {
        &self.events
    }

    /// The attributes that are read.
    pub(super) fn keys(&self) -> &AttributeKeys {
        &self.keys
    }

    /// As [`TraceFiles::open_between`], to read traces of this range only.
    ///
    /// # Errors
    /// When the store cannot be listed, or temporary files cannot be written.
    pub fn open_of(
        store: &Store,
        keys: &AttributeKeys,
        times_ns: RangeInclusive<i64>,
        range: &IdRange,
    ) -> Result<Self, StoreError> {
        Self::open_bounded(store, keys, times_ns, range, FILES_MAX)
    }

    /// Files of the store that will be read.
    #[must_use]
    pub fn files(&self) -> usize {
        self.read
    }

    /// Files that are read side by side.
    fn side_by_side(&self) -> usize {
        self.spans.len() + self.events.len()
    }

    /// Files that will not be read, as all their rows begin at other times.
    #[must_use]
    pub fn skipped(&self) -> usize {
        self.skipped
    }

    /// Files that could not be opened.
    #[must_use]
    pub fn damage(&self) -> &[Damage] {
        &self.damage
    }

    /// At most so many ranges of traces, of about equally many rows, and not much fewer than `rows_min` each.
    #[must_use]
    pub fn ranges(&self, parts: usize, rows_min: u64) -> Vec<IdRange> {
        let groups: Vec<_> = self
            .spans
            .iter()
            .chain(&self.events)
            .flat_map(TableFile::row_groups)
            .collect();
        let rows: u64 = groups.iter().map(|group| group.rows).sum();
        let most = usize::try_from(rows / rows_min.max(1)).unwrap_or(usize::MAX);
        let parts = parts.min(CURSORS_MAX / self.side_by_side().max(1));
        cut(&groups, parts.min(most).max(1))
    }

    /// Reads the traces of a range, one of so many that are read at the same time.
    #[must_use]
    pub fn read(&self, range: &IdRange, together: usize) -> TraceReader {
        let budget = ReadBudget::of(self.side_by_side() * together.max(1));
        let mut context = ReadContext {
            keys: self.keys.clone(),
            ..ReadContext::default()
        };
        let spans = MergeByTrace::of(&self.spans, budget, range, &mut context);
        let events = MergeByTrace::of(&self.events, budget, range, &mut context);
        TraceReader {
            spans,
            events,
            below: range.below,
            wanted: self.wanted.clone(),
            unopened: Vec::new(),
            context,
            left_out: LeftOut::default(),
            attacher: EventAttacher::default(),
            read: Vec::new(),
        }
    }
}

/// The k-way merge of a table's files by trace: a heap of the next trace of each.
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
            let mut cursor = Cursor::new(TableReader::of(
                file,
                &columns,
                &context.keys,
                budget,
                range,
            ));
            cursor.skip_to(range.from, context);
            merge
                .next
                .extend(cursor.trace_id(context).map(|id| Reverse((id, at))));
            merge.cursors.push(cursor);
        }
        merge
    }

    fn next_id(&self) -> Option<u128> {
        self.next.peek().map(|Reverse((id, _))| *id)
    }

    /// Hands all rows of a trace, which is the next, to `visit`, file by file; of how many files they were.
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
                None => {
                    std::collections::binary_heap::PeekMut::pop(top);
                }
            }
        }
        files
    }
}

/// Streams whole traces in order of trace id; memory is bounded by the files read side by side, which are
/// never more than some hundred, and the largest trace.
#[derive(Debug)]
pub struct TraceReader {
    pub(super) spans: MergeByTrace<Spans>,
    pub(super) events: MergeByTrace<Events>,
    below: Option<u128>,
    /// Others are passed over.
    wanted: Option<Arc<[u128]>>,
    /// Damage known before, where this reader is the only one.
    unopened: Vec<Damage>,
    pub(super) context: ReadContext,
    pub(super) left_out: LeftOut,
    attacher: EventAttacher,
    /// The events of a trace; kept for its memory.
    read: Vec<EventRead>,
}

impl TraceReader {
    /// Opens all files of spans and events, to read all traces; of attributes, none are read.
    ///
    /// # Errors
    /// When the store cannot be listed.
    pub fn open(store: &Store) -> Result<Self, StoreError> {
        Self::open_with(store, &AttributeKeys::none())
    }

    /// As [`TraceReader::open`], with attributes as [`TraceFiles::open`] says.
    ///
    /// # Errors
    /// When the store cannot be listed.
    pub fn open_with(store: &Store, keys: &AttributeKeys) -> Result<Self, StoreError> {
        Ok(Self::of(TraceFiles::open(store, keys)?))
    }

    /// Reads all traces of these files.
    #[must_use]
    pub fn of(files: TraceFiles) -> Self {
        let reader = files.read(&IdRange::ALL, 1);
        Self {
            unopened: files.damage,
            ..reader
        }
    }

    /// What was left out so far.
    #[must_use]
    pub fn left_out(&self) -> LeftOut {
        LeftOut {
            unreadable_attributes: self.context.unreadable_attributes,
            ..self.left_out
        }
    }

    /// The damage met so far. Of files that could not be opened, [`TraceFiles::damage`] tells where the reader is of a range.
    #[must_use]
    pub fn damage(&self) -> Vec<Damage> {
        let spans = self.spans.cursors.iter().filter_map(Cursor::damage);
        let events = self.events.cursors.iter().filter_map(Cursor::damage);
        self.unopened
            .iter()
            .chain(spans)
            .chain(events)
            .cloned()
            .collect()
    }

    /// Puts the next trace into `trace`, in place of what it holds; `false` at the end.
    pub fn next_into(&mut self, trace: &mut TraceRecords) -> bool {
        let Some(id) = self.next_id() else {
            return false;
        };
        trace.id = TraceId(id);
        trace.name = None;
        trace.spans.clear();
        trace.events.clear();
        trace.clocks.clear();
        trace.elements.clear();
        trace.attributes.clear();
        trace.sampling = TraceSampling::default();
        self.take_spans(trace);
        self.take_events(trace);
        true
    }

    /// The trace that is next.
    pub(super) fn next_id(&mut self) -> Option<u128> {
        self.skip_outside_requests();
        loop {
            let next = self.spans.next_id().into_iter();
            let next = next.chain(self.events.next_id()).min();
            let id = next.filter(|id| self.below.is_none_or(|below| *id < below))?;
            let is_it = |wanted: &Arc<[u128]>| wanted.binary_search(&id).is_ok();
            if self.wanted.as_ref().is_none_or(is_it) {
                return Some(id);
            }
            let Self {
                spans,
                events,
                context,
                ..
            } = self;
            spans.take(id, context, |_, _, _, _| {});
            events.take(id, context, |_, _, _, _| {});
        }
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

    fn take_spans(&mut self, trace: &mut TraceRecords) {
        let Self {
            spans,
            left_out,
            context,
            ..
        } = self;
        let files = spans.take(trace.id.0, context, |rows, row, name, context| {
            if trace.spans.len() >= RECORDS_PER_TRACE_MAX {
                left_out.over_trace_limit += 1;
                return;
            }
            rows.add_span(row, trace, context);
            if trace.name.is_none() {
                trace.name = name.cloned();
            }
        });
        if files > 1 {
            // As they are sorted within a file, so that it does not matter which files they came in.
            trace
                .spans
                .sort_by_key(|span| (span.start_ns, span.span_id, span.process));
        }
    }

    fn take_events(&mut self, trace: &mut TraceRecords) {
        let room = RECORDS_PER_TRACE_MAX.saturating_sub(trace.spans.len());
        let Self {
            events,
            left_out,
            context,
            read,
            ..
        } = self;
        let files = events.take(trace.id.0, context, |rows, row, name, context| {
            if read.len() >= room {
                left_out.over_trace_limit += 1;
                return;
            }
            read.push(rows.event(row, name, context));
        });
        if files > 1 {
            read.sort_by_key(|event| (event.time_ns, event.seq));
        }
        self.attacher.attach(trace, read, left_out);
    }
}

impl Iterator for TraceReader {
    type Item = TraceRecords;

    fn next(&mut self) -> Option<TraceRecords> {
        let mut trace = TraceRecords::default();
        self.next_into(&mut trace).then_some(trace)
    }
}
