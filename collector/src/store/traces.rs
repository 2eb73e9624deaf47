//! Whole traces in order of their ids: two merges, of spans and of events, walked side by side.

use std::collections::HashMap;
use std::sync::Arc;

use stroboscope_analysis::record::{
    AttributeRecord, ElementRecord, EventRecord, PointEvent, RecordOwner, TraceId, TraceRecords,
};

use super::attributes::{AttributeKeys, ELEMENT, Said};
use super::merge::{Merge, Run};
use super::objects::{Store, StoreError};
use super::partition::Table;
use super::reader::{Damage, Share, TableReader};
use super::runs::{BATCH_COLUMNS, BatchRead, EVENT_COLUMNS, EventRead, FileRun, SPAN_COLUMNS, SpanRead};
use crate::limits::RECORDS_PER_TRACE_MAX;

/// What reading traces left out, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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

/// Streams whole traces in order of trace id; memory is bounded by the number of files and the largest trace.
#[derive(Debug)]
pub struct TraceReader {
    spans: Merge<FileRun<SpanRead>>,
    events: Merge<FileRun<EventRead>>,
    left_out: LeftOut,
    files: usize,
}

/// Rows of all files of a table, in order.
pub type TraceRows<Row> = Merge<FileRun<Row>>;

fn open<Row>(
    store: &Store,
    table: Table,
    columns: &[&str],
    keys: &AttributeKeys,
) -> Result<TraceRows<Row>, StoreError>
where
    FileRun<Row>: Run<Row = Row>,
{
    let files = store.list(table)?;
    let share = Share::of(files.len());
    let attributes = (!keys.is_empty()).then_some("attributes");
    let columns: Vec<&str> = columns.iter().copied().chain(attributes).collect();
    let open = |object| FileRun::new(TableReader::open(store, table, object, &columns, share), keys);
    Ok(Merge::new(files.iter().map(open).collect()))
}

/// All batches, in order of process and sequence.
///
/// # Errors
/// When the store cannot be listed.
pub fn read_batches(store: &Store) -> Result<TraceRows<BatchRead>, StoreError> {
    open(store, Table::Batches, &BATCH_COLUMNS, &AttributeKeys::none())
}

/// All spans, in order of trace and start.
///
/// # Errors
/// When the store cannot be listed.
pub fn read_spans(store: &Store) -> Result<TraceRows<SpanRead>, StoreError> {
    open(store, Table::Spans, &SPAN_COLUMNS, &AttributeKeys::none())
}

/// The damage met so far in the files of a table.
#[must_use]
pub fn damage_of<Row>(rows: &TraceRows<Row>) -> Vec<Damage>
where
    FileRun<Row>: Run<Row = Row>,
{
    rows.runs().iter().filter_map(|run| run.damage().cloned()).collect()
}

impl TraceReader {
    /// Opens all files of spans and events; of attributes, none are read.
    ///
    /// # Errors
    /// When the store cannot be listed.
    pub fn open(store: &Store) -> Result<Self, StoreError> {
        Self::open_with(store, &AttributeKeys::none())
    }

    /// As [`TraceReader::open`], with these attributes in [`TraceRecords::attributes`]; if [`ELEMENT`] is one of them,
    /// what spans and events of event logs say of it is in [`TraceRecords::elements`] instead.
    ///
    /// # Errors
    /// When the store cannot be listed.
    pub fn open_with(store: &Store, keys: &AttributeKeys) -> Result<Self, StoreError> {
        let spans: TraceRows<SpanRead> = open(store, Table::Spans, &SPAN_COLUMNS, keys)?;
        let events: TraceRows<EventRead> = open(store, Table::Events, &EVENT_COLUMNS, keys)?;
        let files = spans.runs().len() + events.runs().len();
        Ok(Self { spans, events, left_out: LeftOut::default(), files })
    }

    /// Files opened.
    #[must_use]
    pub fn files(&self) -> usize {
        self.files
    }

    /// What was left out so far.
    #[must_use]
    pub fn left_out(&self) -> LeftOut {
        let spans = self.spans.runs().iter().map(FileRun::unreadable_attributes);
        let events = self.events.runs().iter().map(FileRun::unreadable_attributes);
        LeftOut { unreadable_attributes: spans.chain(events).sum(), ..self.left_out }
    }

    /// The damage met so far.
    #[must_use]
    pub fn damage(&self) -> Vec<Damage> {
        let mut damage = damage_of(&self.spans);
        damage.extend(damage_of(&self.events));
        damage
    }

    fn next_id(&self) -> Option<u128> {
        let span = self.spans.peek_key().map(|key| key.0);
        let event = self.events.peek_key().map(|key| key.0);
        span.into_iter().chain(event).min()
    }

    fn skip_outside_requests(&mut self) {
        while self.spans.peek_key().is_some_and(|key| key.0 == 0) {
            self.spans.next();
            self.left_out.outside_requests += 1;
        }
        while self.events.peek_key().is_some_and(|key| key.0 == 0) {
            self.events.next();
            self.left_out.outside_requests += 1;
        }
    }

    fn assemble(&mut self, id: u128) -> TraceRecords {
        let mut trace = TraceRecords { id: TraceId(id), ..TraceRecords::default() };
        let mut by_span_id: HashMap<u64, usize> = HashMap::new();
        let mut records = 0usize;
        while self.spans.peek_key().is_some_and(|key| key.0 == id) {
            let Some(read) = self.spans.next() else { break };
            records += 1;
            if records > RECORDS_PER_TRACE_MAX {
                self.left_out.over_trace_limit += 1;
                continue;
            }
            take_name(&mut trace.name, read.trace_name);
            note(&mut trace, RecordOwner::Span(read.span.span_id), read.attributes);
            by_span_id.entry(read.span.span_id).or_insert(trace.spans.len());
            trace.spans.push(read.span);
        }
        while self.events.peek_key().is_some_and(|key| key.0 == id) {
            let Some(read) = self.events.next() else { break };
            records += 1;
            if records > RECORDS_PER_TRACE_MAX {
                self.left_out.over_trace_limit += 1;
                continue;
            }
            self.attach(&mut trace, &by_span_id, read);
        }
        tell_events_apart(&mut trace);
        trace
    }

    fn attach(&mut self, trace: &mut TraceRecords, by_span_id: &HashMap<u64, usize>, read: EventRead) {
        take_name(&mut trace.name, read.trace_name);
        let EventRead { time_ns, name, attributes, .. } = read;
        match (read.span_id, read.task) {
            (0, Some(task)) => {
                let (host, seq) = (read.host, read.seq);
                // By place for now, see `tell_events_apart`.
                note(trace, RecordOwner::Event(trace.events.len() as u32), attributes);
                trace.events.push(EventRecord { host, ts_ns: time_ns, seq, event: name, task });
            }
            (0, None) => self.left_out.no_span_no_task += 1,
            (span_id, _) => match by_span_id.get(&span_id) {
                Some(&at) => {
                    trace.spans[at].events.push(PointEvent { time_ns, name });
                    note(trace, RecordOwner::InSpan(span_id), attributes);
                }
                None => self.left_out.span_missing += 1,
            },
        }
    }
}

fn take_name(name: &mut Option<Arc<str>>, read: Option<Arc<str>>) {
    if name.is_none() {
        *name = read;
    }
}

fn note(trace: &mut TraceRecords, owner: RecordOwner, said: Said) {
    for (key, value) in said {
        // What happens inside a span is no work on an element.
        if &*key == ELEMENT && !matches!(owner, RecordOwner::InSpan(_)) {
            trace.elements.push(ElementRecord { owner, element: value });
        } else {
            trace.attributes.push(AttributeRecord { owner, key, value });
        }
    }
}

/// What is said of an event is found by its number, which is unique within one import but not among several: where it
/// is not, the events are numbered anew, in the same order.
fn tell_events_apart(trace: &mut TraceRecords) {
    let TraceRecords { events, elements, attributes, .. } = trace;
    let mut owners: Vec<&mut RecordOwner> = elements
        .iter_mut()
        .map(|element| &mut element.owner)
        .chain(attributes.iter_mut().map(|attribute| &mut attribute.owner))
        .collect();
    if owners.is_empty() || events.is_empty() {
        return;
    }
    let mut order: Vec<usize> = (0..events.len()).collect();
    // Stable: of events with the same number, the one that is read first stays first.
    order.sort_by_key(|at| events[*at].seq);
    if order.windows(2).any(|pair| events[pair[0]].seq == events[pair[1]].seq) {
        order.iter().enumerate().for_each(|(seq, at)| events[*at].seq = seq as u32);
    }
    for owner in &mut owners {
        if let RecordOwner::Event(at) = owner {
            **owner = RecordOwner::Event(events[*at as usize].seq);
        }
    }
}

impl Iterator for TraceReader {
    type Item = TraceRecords;

    fn next(&mut self) -> Option<TraceRecords> {
        self.skip_outside_requests();
        let id = self.next_id()?;
        Some(self.assemble(id))
    }
}
