//! One span with its attributes, as JSON.

use serde_json::{Value, json};
use stroboscope_analysis::record::{AttributeRecord, RecordOwner, SpanRecord};

/// Maximum number of attributes of the span, and also of those of its events.
const ATTRIBUTES_MAX: usize = 500;
/// Maximum number of characters of an attribute's value.
const VALUE_CHARS_MAX: usize = 10_000;

/// Encodes a span. `start_ns` is the recorded start of the request; times of events count from it.
pub(super) fn span_json(span: &SpanRecord, attributes: &[AttributeRecord], start_ns: i64) -> Value {
    let own = |attribute: &&AttributeRecord| matches!(attribute.owner, RecordOwner::Span(_));
    let (mut of_span, mut of_events): (Vec<_>, Vec<_>) = attributes.iter().partition(own);
    let by_key =
        |a: &&AttributeRecord, b: &&AttributeRecord| (&a.key, &a.value).cmp(&(&b.key, &b.value));
    of_span.sort_by(by_key);
    of_events.sort_by(by_key);
    let pairs = |attributes: &[&AttributeRecord]| -> Value {
        let taken = attributes.iter().take(ATTRIBUTES_MAX);
        taken
            .map(|one| json!([&*one.key, shortened(&one.value)]))
            .collect()
    };
    let mut events: Vec<_> = span.events.iter().collect();
    events.sort_by(|a, b| (a.time_ns, &a.name).cmp(&(b.time_ns, &b.name)));
    let event = |event: &&stroboscope_analysis::record::PointEvent| {
        json!({
            "name": &*event.name,
            "at_ns": event.time_ns.saturating_sub(start_ns),
            "attributes": [],
        })
    };
    json!({
        "span": format!("{:016x}", span.span_id),
        "parent": format!("{:016x}", span.parent_id),
        "service": &*span.service,
        "name": &*span.name,
        "host": &*span.host,
        "start_ns": span.start_ns,
        "end_ns": span.end_ns,
        "attributes": pairs(&of_span),
        "event_attributes": pairs(&of_events),
        "left_out": attributes.len().saturating_sub(2 * ATTRIBUTES_MAX),
        "events": events.iter().map(event).collect::<Value>(),
    })
}

fn shortened(value: &str) -> String {
    match value.char_indices().nth(VALUE_CHARS_MAX) {
        Some((end, _)) => format!("{}… ({} bytes)", &value[..end], value.len()),
        None => value.to_owned(),
    }
}
