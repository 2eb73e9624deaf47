//! Spans of OTLP.
//!
//! The service is the resource's `service.name`, the host its `host.name` or `host.id`, or `k8s.pod.name`. Resource
//! attributes get the prefix `resource.`; the scope's name and version become `otel.scope.name` and
//! `otel.scope.version`. Kinds client and server become flags, other kinds the attribute `span.kind`. A status of
//! error becomes `error: true`, with its message in `otel.status_description`. Links become the attribute `links`.

use serde_json::{Map, Value};
use stroboscope_proto::v1::SpanFlag;

use super::BadLine;
use super::foreign_span::{Attributes, ForeignEvent, ForeignSpan};
use super::json_error::reason_of;
use super::otlp_message::{
    AnyKind, AnyValue, Event, ExportRequest, KeyValue, Link, ResourceSpans, Scope, Span,
};

/// `Status.code` of an error.
const STATUS_ERROR: i32 = 2;

/// Hands on the spans of one JSON record: a request (`is_request`), or one element of its `resourceSpans`.
///
/// # Errors
/// When the record is neither.
pub(super) fn spans_of_json(
    record: &str,
    is_request: bool,
    take: &mut dyn FnMut(Result<ForeignSpan, BadLine>),
) -> Result<(), (u64, BadLine)> {
    let wrong = |error: serde_json::Error| reason_of(&error);
    if is_request {
        let request: ExportRequest = serde_json::from_str(record).map_err(wrong)?;
        request.resource_spans.iter().for_each(|of_resource| spans_of(of_resource, take));
    } else {
        let of_resource: ResourceSpans = serde_json::from_str(record).map_err(wrong)?;
        spans_of(&of_resource, take);
    }
    Ok(())
}

/// Hands on the spans of one resource.
pub(super) fn spans_of(of_resource: &ResourceSpans, take: &mut dyn FnMut(Result<ForeignSpan, BadLine>)) {
    let resource = of_resource.resource.as_ref().map(|resource| &resource.attributes[..]).unwrap_or_default();
    let named = |keys: &[&str]| keys.iter().find_map(|key| text_of(resource, key)).unwrap_or_default();
    let service = named(&["service.name"]);
    let host = named(&["host.name", "host.id", "k8s.pod.name"]);
    for of_scope in &of_resource.scope_spans {
        let mut shared = Attributes::new();
        resource.iter().filter(|pair| pair.key != "service.name").for_each(|pair| {
            shared.insert(format!("resource.{}", pair.key), value(pair.value.as_ref()));
        });
        of_scope.scope.iter().for_each(|scope| insert_scope(&mut shared, scope));
        for span in &of_scope.spans {
            take(foreign(span, &service, &host, &shared));
        }
    }
}

fn text_of(attributes: &[KeyValue], key: &str) -> Option<String> {
    let found = attributes.iter().find(|pair| pair.key == key)?;
    match value(found.value.as_ref()) {
        Value::String(text) if !text.is_empty() => Some(text),
        _ => None,
    }
}

fn insert_scope(attributes: &mut Attributes, scope: &Scope) {
    for (key, text) in [("otel.scope.name", &scope.name), ("otel.scope.version", &scope.version)] {
        if !text.is_empty() {
            attributes.insert(key.to_owned(), text.as_str().into());
        }
    }
    insert_all(attributes, &scope.attributes);
}

fn insert_all(attributes: &mut Attributes, pairs: &[KeyValue]) {
    for pair in pairs {
        attributes.insert(pair.key.clone(), value(pair.value.as_ref()));
    }
}

fn value(value: Option<&AnyValue>) -> Value {
    let list = |pairs: &[KeyValue]| {
        let mut map = Map::new();
        insert_all(&mut map, pairs);
        map.into()
    };
    match value.and_then(|value| value.kind.as_ref()) {
        None => Value::Null,
        Some(AnyKind::Text(text)) => text.as_str().into(),
        Some(AnyKind::Bool(bool)) => (*bool).into(),
        Some(AnyKind::Int(int)) => (*int).into(),
        // JSON has no infinity; as text it is at least not lost.
        Some(AnyKind::Double(double)) if !double.is_finite() => double.to_string().into(),
        Some(AnyKind::Double(double)) => (*double).into(),
        Some(AnyKind::Array(array)) => array.values.iter().map(|item| self::value(Some(item))).collect(),
        Some(AnyKind::Map(map)) => list(&map.values),
        Some(AnyKind::Bytes(bytes)) => hex(bytes).into(),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn number<const BYTES: usize>(field: &'static str, id: &[u8]) -> Result<[u8; BYTES], BadLine> {
    match <[u8; BYTES]>::try_from(id) {
        Ok(id) if id != [0; BYTES] => Ok(id),
        _ => Err(BadLine::Id { field, id: hex(id), digits: BYTES * 2 }),
    }
}

fn time(field: &'static str, ns: u64) -> Result<i64, BadLine> {
    i64::try_from(ns).map_err(|_| BadLine::TimeOutOfRange { field, value: ns, unit: "ns" })
}

fn foreign(span: &Span, service: &str, host: &str, shared: &Attributes) -> Result<ForeignSpan, BadLine> {
    let parent_id = match &span.parent_span_id[..] {
        [] | [0, 0, 0, 0, 0, 0, 0, 0] => 0,
        id => u64::from_be_bytes(number("parentSpanId", id)?),
    };
    let mut foreign = ForeignSpan {
        trace: hex(&number::<16>("traceId", &span.trace_id)?),
        span_id: u64::from_be_bytes(number("spanId", &span.span_id)?),
        parent_id,
        service: service.to_owned(),
        name: span.name.clone(),
        host: host.to_owned(),
        start_ns: time("startTimeUnixNano", span.start_time_unix_nano)?,
        end_ns: time("endTimeUnixNano", span.end_time_unix_nano)?,
        attributes: shared.clone(),
        ..ForeignSpan::default()
    };
    if span.end_time_unix_nano == 0 {
        foreign.end_ns = foreign.start_ns;
        foreign.flags |= SpanFlag::Unfinished as u32;
    }
    insert_all(&mut foreign.attributes, &span.attributes);
    match span.kind {
        2 => foreign.flags |= SpanFlag::Server as u32,
        3 => foreign.flags |= SpanFlag::Client as u32,
        kind => {
            let name = [None, Some("internal"), None, None, Some("producer"), Some("consumer")];
            if let Some(name) = usize::try_from(kind).ok().and_then(|kind| *name.get(kind)?) {
                foreign.attributes.insert("span.kind".to_owned(), name.into());
            }
        }
    }
    if let Some(status) = span.status.as_ref().filter(|status| status.code == STATUS_ERROR) {
        foreign.attributes.insert("error".to_owned(), true.into());
        if !status.message.is_empty() {
            foreign.attributes.insert("otel.status_description".to_owned(), status.message.as_str().into());
        }
    }
    if !span.links.is_empty() {
        let links: Value = span.links.iter().map(link).collect();
        foreign.attributes.insert("links".to_owned(), links);
    }
    foreign.events = span.events.iter().map(event).collect::<Result<_, _>>()?;
    Ok(foreign)
}

fn link(link: &Link) -> Value {
    let mut map = Map::new();
    map.insert("trace_id".to_owned(), hex(&link.trace_id).into());
    map.insert("span_id".to_owned(), hex(&link.span_id).into());
    insert_all(&mut map, &link.attributes);
    map.into()
}

fn event(event: &Event) -> Result<ForeignEvent, BadLine> {
    let mut attributes = Attributes::new();
    insert_all(&mut attributes, &event.attributes);
    let name = if event.name.is_empty() { "event" } else { &event.name };
    Ok(ForeignEvent {
        time_ns: time("timeUnixNano", event.time_unix_nano)?,
        name: name.to_owned(),
        attributes,
    })
}
