//! A trace as it is stored, row by row: for who hands it on as it came, with the types of its attributes.

use std::sync::Arc;

use stroboscope_analysis::record::SpanRecord;

use super::attach::EventRead;
use super::attributes::AttributeValues;
use super::traces::TraceReader;
use crate::limits::RECORDS_PER_TRACE_MAX;

/// One row of spans.
#[derive(Clone, Debug)]
pub struct SpanRead {
    /// Without its events.
    pub record: SpanRecord,
    /// Those that were asked for.
    pub attributes: AttributeValues,
}

/// The rows of one trace.
#[derive(Debug, Default)]
pub struct TraceRows {
    pub id: u128,
    /// As its source wrote it, if that was not hex.
    pub name: Option<Arc<str>>,
    /// In order of time.
    pub spans: Vec<SpanRead>,
    /// In order of time and number; those of spans and those of event logs.
    pub events: Vec<EventRead>,
}

impl TraceReader {
    /// The next trace as its rows; `None` at the end. Beyond [`RECORDS_PER_TRACE_MAX`] they are left out, and counted.
    pub fn next_rows(&mut self) -> Option<TraceRows> {
        let mut found = TraceRows {
            id: self.next_id()?,
            ..TraceRows::default()
        };
        let (id, mut over) = (found.id, 0);
        self.spans
            .take(id, &mut self.context, |rows, row, name, context| {
                if found.spans.len() >= RECORDS_PER_TRACE_MAX {
                    over += 1;
                    return;
                }
                found.spans.push(rows.span(row, context));
                if found.name.is_none() {
                    found.name = name.cloned();
                }
            });
        let room = RECORDS_PER_TRACE_MAX.saturating_sub(found.spans.len());
        self.events
            .take(id, &mut self.context, |rows, row, name, context| {
                if found.events.len() >= room {
                    over += 1;
                    return;
                }
                found.events.push(rows.event(row, name, context));
            });
        self.left_out.over_trace_limit += over;
        // As they are sorted within a file, so that it does not matter which files they came in.
        let key = |span: &SpanRead| {
            (
                span.record.start_ns,
                span.record.span_id,
                span.record.process,
            )
        };
        found.spans.sort_by_key(key);
        found.events.sort_by_key(|event| (event.time_ns, event.seq));
        Some(found)
    }
}
