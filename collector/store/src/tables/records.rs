//! Converts rows to the records that the analysis uses.

use std::sync::Arc;

use arrow_array::RecordBatch;
use stroboscope_analysis::record::{RecordOwner, SpanFlags, SpanRecord, TraceRecords};

use super::attach::{EventRead, attach_attributes};
use super::attributes::{AttributeKeys, AttributeValues, TRACE_STATE};
use super::columns::DeclaredTable;
use super::cursor::{ReadContext, RowLayout};
use super::schema::{EventCells, Events, SpanCells, Spans};
use super::texts::TextIndex;
use super::trace_rows::SpanRead;
use crate::record::{EventRow, SpanRow};

impl SpanCells {
    /// Returns the span without its events. `texts` contains the texts that the cells refer to.
    fn record(&self, texts: &[Arc<str>]) -> SpanRecord {
        let text = |index: TextIndex| index.of(texts).unwrap_or_default();
        SpanRecord {
            span_id: self.span_id,
            parent_id: self.parent_id,
            service: text(self.service),
            name: text(self.name),
            host: text(self.host),
            process: self.process,
            start_ns: self.start_ns,
            end_ns: self.end_ns,
            flags: SpanFlags(self.flags),
            events: Vec::new(),
        }
    }
}

impl EventCells {
    /// Returns the event. `texts` contains the texts that the cells refer to.
    fn record(
        &self,
        texts: &[Arc<str>],
        trace_name: Option<Arc<str>>,
        attributes: AttributeValues,
    ) -> EventRead {
        let text = |index: TextIndex| index.of(texts).unwrap_or_default();
        EventRead {
            trace_name,
            span_id: self.span_id,
            time_ns: self.time_ns,
            seq: self.seq,
            host: text(self.host),
            task: self.task.of(texts),
            name: text(self.name),
            attributes,
        }
    }
}

/// Converts a row that is not stored yet to a span. `texts` are the interned strings to which the
/// ids in the row refer, in the order of the ids.
#[must_use]
pub fn span_record(row: &SpanRow, texts: &[Arc<str>]) -> SpanRecord {
    Spans::cells_of(row).record(texts)
}

/// Converts a row that is not stored yet to an event with the given attributes. `texts` are as for
/// [`span_record`].
#[must_use]
pub fn event_read(row: &EventRow, texts: &[Arc<str>], attributes: AttributeValues) -> EventRead {
    let trace_name = row.trace_name.and_then(|id| TextIndex::from(id).of(texts));
    Events::cells_of(row).record(texts, trace_name, attributes)
}

/// Adds a span to its trace, with its attributes. If `keys` include weights, also adds the sampling
/// data in its `tracestate`, and drops this attribute unless it is selected.
pub fn add_span(
    trace: &mut TraceRecords,
    span: SpanRecord,
    mut attributes: AttributeValues,
    keys: &AttributeKeys,
) {
    if keys.are_weighted()
        && let Some(at) = attributes.iter().position(|(key, _)| **key == *TRACE_STATE)
    {
        let sampling = &mut trace.sampling;
        sampling.observe(span.parent_id == 0, &attributes[at].1);
        if !keys.asks(TRACE_STATE) {
            attributes.remove(at);
        }
    }
    attach_attributes(trace, RecordOwner::Span(span.span_id), attributes);
    trace.spans.push(span);
}

impl RowLayout<Spans> {
    /// Returns the span of a row with its attributes that are selected or needed for weights.
    pub(super) fn span(&self, row: usize, context: &mut ReadContext) -> SpanRead {
        SpanRead {
            record: self.cells[row].record(&self.texts),
            attributes: self.attributes(row, context),
        }
    }

    pub(super) fn add_span(&self, row: usize, trace: &mut TraceRecords, context: &mut ReadContext) {
        let span = self.span(row, context);
        add_span(trace, span.record, span.attributes, &context.keys);
    }
}

impl RowLayout<Events> {
    pub(super) fn event(
        &self,
        row: usize,
        trace_name: Option<&Arc<str>>,
        context: &mut ReadContext,
    ) -> EventRead {
        let attributes = self.attributes(row, context);
        self.cells[row].record(&self.texts, trace_name.cloned(), attributes)
    }
}

/// Decoder of rows from another engine. The rows must have the columns of
/// [`StoreTable::record_columns`](super::StoreTable::record_columns).
#[derive(Debug, Default)]
pub struct RecordDecoder {
    context: ReadContext,
    spans: RowLayout<Spans>,
    events: RowLayout<Events>,
}

impl RecordDecoder {
    /// Creates a decoder that reads the selected attributes.
    #[must_use]
    pub fn new(keys: AttributeKeys) -> Self {
        Self {
            context: ReadContext {
                keys,
                ..ReadContext::default()
            },
            ..Self::default()
        }
    }

    /// Adds rows of spans to their trace.
    ///
    /// # Errors
    /// Returns a description of a column that is missing or has another type.
    pub fn add_spans(
        &mut self,
        rows: &RecordBatch,
        trace: &mut TraceRecords,
    ) -> Result<(), String> {
        let (context, spans) = (&mut self.context, &mut self.spans);
        spans.fill(rows, context)?;
        (0..rows.num_rows()).for_each(|row| spans.add_span(row, trace, context));
        Ok(())
    }

    /// Appends rows of events to `read`.
    ///
    /// # Errors
    /// Returns a description of a column that is missing or has another type.
    pub fn add_events(
        &mut self,
        rows: &RecordBatch,
        read: &mut Vec<EventRead>,
    ) -> Result<(), String> {
        let (context, events) = (&mut self.context, &mut self.events);
        events.fill(rows, context)?;
        read.extend((0..rows.num_rows()).map(|row| events.event(row, None, context)));
        Ok(())
    }
}
