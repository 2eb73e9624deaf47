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
    let more = |attributes: &[&AttributeRecord]| attributes.len().saturating_sub(ATTRIBUTES_MAX);
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
        "left_out": more(&of_span) + more(&of_events),
        "events": events.iter().map(event).collect::<Value>(),
    })
}

fn shortened(value: &str) -> String {
    match value.char_indices().nth(VALUE_CHARS_MAX) {
        Some((end, _)) => format!("{}… ({} bytes)", &value[..end], value.len()),
        None => value.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use stroboscope_analysis::record::SpanFlags;

    use super::*;

    #[test]
    fn attributes_beyond_either_maximum_count_as_left_out() {
        let span = SpanRecord {
            span_id: 1,
            parent_id: 0,
            service: "s".into(),
            name: "n".into(),
            host: "h".into(),
            process: 0,
            start_ns: 0,
            end_ns: 1,
            flags: SpanFlags(0),
            events: Vec::new(),
        };
        let of = |owner: RecordOwner, count: usize| {
            (0..count).map(move |number| AttributeRecord {
                owner,
                key: format!("key {number}").into(),
                value: "v".into(),
            })
        };
        let (own, inner) = (RecordOwner::Span(1), RecordOwner::InSpan(1, 0));
        for (of_span, of_events, left_out) in [(600, 1, 100), (1, 700, 200), (501, 502, 3)] {
            let all: Vec<_> = of(own, of_span).chain(of(inner, of_events)).collect();
            assert_eq!(span_json(&span, &all, 0)["left_out"], left_out);
        }
    }
}
