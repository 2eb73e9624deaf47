//! Reads the rows of a trace as they are stored, without attaching events to spans.

use std::collections::HashSet;
use std::sync::Arc;

use stroboscope_analysis::record::SpanRecord;

use super::attach::EventRead;
use super::attributes::AttributeValues;
use super::traces::TraceReader;
use crate::limits::RECORDS_PER_TRACE_MAX;
use crate::query_memory::{QueryLack, QueryShare};

/// Row of the spans table as it is read.
#[derive(Clone, Debug)]
pub struct SpanRead {
    /// Span without its events.
    pub record: SpanRecord,
    /// Attributes of the span that are selected or needed for weights.
    pub attributes: AttributeValues,
}

/// Rows of one trace from the tables of spans and of events.
#[derive(Debug, Default)]
pub struct TraceRows {
    pub id: u128,
    /// Trace id as its source wrote it; `None` if that is the id in 32 lower-case hexadecimal
    /// digits, or if the trace has no spans.
    pub name: Option<Arc<str>>,
    /// Spans in order of time.
    pub spans: Vec<SpanRead>,
    /// Events of spans and lines of logs, in order of time and number.
    pub events: Vec<EventRead>,
    /// Number of spans of the trace, including those that were left out.
    pub spans_in_store: u64,
}

/// Error for a trace that does not fit into memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceTooLarge {
    pub spans: u64,
    pub lack: QueryLack,
}

/// Row with an approximate size in memory, in bytes.
trait RowBytes {
    fn bytes(&self) -> usize;
}

impl RowBytes for SpanRead {
    fn bytes(&self) -> usize {
        size_of::<Self>() + attribute_bytes(&self.attributes)
    }
}

impl RowBytes for EventRead {
    fn bytes(&self) -> usize {
        size_of::<Self>() + attribute_bytes(&self.attributes)
    }
}

fn attribute_bytes(attributes: &AttributeValues) -> usize {
    /// Bytes for the pointers, reference counts and allocator overhead of two texts.
    const PAIR: usize = 96;
    let bytes = |(key, value): &(Arc<str>, Arc<str>)| PAIR + key.len() + value.len();
    attributes.iter().map(bytes).sum()
}

/// Rows that are kept as long as there is memory for them. If memory runs out, all are dropped.
struct KeptRows<'a, T> {
    rows: Vec<T>,
    share: &'a mut QueryShare,
    /// Bytes to take from the share per byte of a row.
    forms: usize,
    lack: Option<QueryLack>,
}

impl<T: RowBytes> KeptRows<'_, T> {
    fn push(&mut self, row: T) {
        if self.lack.is_some() {
            return;
        }
        match self.share.take(self.forms * row.bytes()) {
            Ok(()) => self.rows.push(row),
            Err(lack) => {
                self.lack = Some(lack);
                self.rows = Vec::new();
            }
        }
    }

    /// Keeps the first `most` rows in the order of `key`.
    fn truncate<K: Ord>(&mut self, most: usize, key: impl FnMut(&T) -> K) {
        self.rows.sort_by_key(key);
        let over = self.rows.drain(most.min(self.rows.len())..);
        let bytes: usize = over.map(|row| row.bytes()).sum();
        self.share.give_back(self.forms * bytes);
    }
}

impl TraceReader {
    /// Returns the rows of the next trace; `None` at the end. If it has over `spans_max` spans,
    /// keeps only the first ones and their events. Takes `forms` bytes of `share` per byte of row,
    /// because the caller converts rows to other forms. Leaves out and counts rows beyond
    /// [`RECORDS_PER_TRACE_MAX`].
    ///
    /// # Errors
    /// Returns an error if there is too little memory.
    pub fn next_rows(
        &mut self,
        spans_max: usize,
        forms: usize,
        share: &mut QueryShare,
    ) -> Option<Result<TraceRows, TraceTooLarge>> {
        let mut found = TraceRows {
            id: self.next_id()?,
            ..TraceRows::default()
        };
        let lack = self.take_first_spans(&mut found, spans_max, forms, share);
        let lack = lack.or_else(|| self.take_events_of(&mut found, forms, share));
        let spans = found.spans_in_store;
        Some(match lack {
            None => Ok(found),
            Some(lack) => Err(TraceTooLarge { spans, lack }),
        })
    }

    fn take_first_spans(
        &mut self,
        found: &mut TraceRows,
        spans_max: usize,
        forms: usize,
        share: &mut QueryShare,
    ) -> Option<QueryLack> {
        let spans_max = spans_max.min(RECORDS_PER_TRACE_MAX);
        // Sorts like a file, so that the result does not depend on the distribution of rows over
        // files.
        let key = |span: &SpanRead| {
            let record = &span.record;
            (record.start_ns, record.span_id, record.process)
        };
        let mut spans = KeptRows {
            rows: Vec::new(),
            share,
            forms,
            lack: None,
        };
        self.spans
            .take(found.id, &mut self.context, |rows, row, name, context| {
                found.spans_in_store += 1;
                if spans.lack.is_some() {
                    return;
                }
                spans.push(rows.span(row, context));
                if spans.rows.len() >= 2 * spans_max {
                    spans.truncate(spans_max, key);
                }
                if found.name.is_none() {
                    found.name = name.cloned();
                }
            });
        spans.truncate(spans_max, key);
        let spans_in_store = found.spans_in_store;
        let over = spans_in_store.saturating_sub(RECORDS_PER_TRACE_MAX as u64);
        self.left_out.over_trace_limit += over;
        found.spans = spans.rows;
        spans.lack
    }

    fn take_events_of(
        &mut self,
        found: &mut TraceRows,
        forms: usize,
        share: &mut QueryShare,
    ) -> Option<QueryLack> {
        let is_whole = found.spans_in_store == found.spans.len() as u64;
        let of_part = found.spans.iter().filter(|_| !is_whole);
        let part: HashSet<u64> = of_part.map(|span| span.record.span_id).collect();
        let room = RECORDS_PER_TRACE_MAX.saturating_sub(found.spans.len());
        let mut events = KeptRows {
            rows: Vec::new(),
            share,
            forms,
            lack: None,
        };
        let mut over = 0;
        self.events
            .take(found.id, &mut self.context, |rows, row, name, context| {
                if events.rows.len() >= room {
                    over += 1;
                } else if events.lack.is_none() {
                    let event = rows.event(row, name, context);
                    if is_whole || part.contains(&event.span_id) {
                        events.push(event);
                    }
                }
            });
        self.left_out.over_trace_limit += over;
        events.rows.sort_by_key(|event| (event.time_ns, event.seq));
        found.events = events.rows;
        events.lack
    }
}
