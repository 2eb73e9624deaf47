//! Converts spans of other systems, such as OpenTelemetry, to rows.

use serde_json::Value;
use stroboscope_otlp::{Attributes, ForeignEvent, ForeignSpan, trace_id, trace_label};

use crate::record::{EventRow, SpanRow, Strings};

/// Returns the row of a span and the rows of its events. The incarnation is 0, because foreign
/// spans have none.
pub fn rows_of_span(span: ForeignSpan, strings: &mut Strings) -> (SpanRow, Vec<EventRow>) {
    let id = trace_id(&span.trace);
    let row = SpanRow {
        trace_id: id,
        trace_name: trace_label(&span.trace, id).map(|name| strings.intern(name)),
        span_id: span.span_id,
        parent_id: span.parent_id,
        service: strings.intern(&span.service),
        name: strings.intern(&span.name),
        host: strings.intern(&span.host),
        process: 0,
        start_ns: span.start_ns,
        end_ns: span.end_ns,
        flags: span.flags,
        attributes: json(span.attributes),
    };
    let event = |(seq, event): (usize, ForeignEvent)| EventRow {
        trace_id: id,
        trace_name: row.trace_name,
        span_id: row.span_id,
        time_ns: event.time_ns,
        seq: u32::try_from(seq).unwrap_or(u32::MAX),
        host: row.host,
        service: row.service,
        task: None,
        name: strings.intern(&event.name),
        attributes: json(event.attributes),
    };
    let events = span.events.into_iter().enumerate().map(event).collect();
    (row, events)
}

fn json(attributes: Attributes) -> Option<Box<str>> {
    (!attributes.is_empty()).then(|| Value::Object(attributes).to_string().into())
}
