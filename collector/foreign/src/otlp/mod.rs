//! Spans of OTLP.
//!
//! The service is the resource's `service.name`, the host its `host.name` or `host.id`, or `k8s.pod.name`. Resource
//! attributes get the prefix `resource.`; the scope's name and version become `otel.scope.name` and
//! `otel.scope.version`. Kinds client and server become flags, other kinds the attribute `span.kind`. A status of
//! error becomes `error: true`, with its message in `otel.status_description`. Links become the attribute `links`.

use serde_json::{Map, Value};
use stroboscope_proto::v1::SpanFlag;

pub mod fields;
mod json;
pub mod message;

use crate::typed::parse;
use crate::{
    Attributes, BadSpan, ForeignEvent, ForeignSpan, LinesBefore, TakeSpans, hex,
    without_line_number,
};
use json::{ResourceSpansText, ScopeSpansText};
use message::{
    AnyKind, AnyValue, Event, KeyValue, Link, Resource, ResourceSpans, Scope, Span, Status,
};

/// `Status.code` of an error.
const STATUS_ERROR: i32 = 2;

/// The reason, and in how manieth line of the text it is, from 0.
fn reason_of(error: &serde_json::Error) -> (u64, BadSpan) {
    (
        error.line().saturating_sub(1) as u64,
        BadSpan::Json(without_line_number(error)),
    )
}

/// Hands on the spans of one JSON record, an element of `resourceSpans`, which begins on line `line`.
///
/// # Errors
/// When the record is none.
pub fn spans_of_json(
    line: u64,
    record: &str,
    take: &mut dyn TakeSpans,
) -> Result<(), (u64, BadSpan)> {
    let mut ignored = |name: &str| take.not_taken(line, name, 1);
    let text: ResourceSpansText<'_> =
        parse(record, "resourceSpans[]", &mut ignored).map_err(|error| reason_of(&error))?;
    let of_resource = OfResource::new(text.resource.as_ref(), &text.schema_url, line, take);
    let mut lines = LinesBefore::of(record);
    for of_scope in text
        .scope_spans
        .iter()
        .chain(&text.instrumentation_library_spans)
        .flatten()
    {
        let ScopeSpansText {
            scope,
            spans,
            schema_url,
        } = of_scope;
        let shared = of_resource.shared(scope.as_ref(), schema_url, line, take);
        for span in spans.iter().flatten() {
            let span_line = line + lines.before(span.get());
            match parse::<Span>(span.get(), "span", &mut |name| {
                take.not_taken(span_line, name, 1);
            }) {
                Ok(span) => of_resource.take(span_line, &span, &shared, take),
                Err(error) => {
                    let (offset, reason) = reason_of(&error);
                    take.span(span_line + offset, Err(reason));
                }
            }
        }
    }
    Ok(())
}

/// Hands on the spans of one resource, message `number` of a file.
pub fn spans_of(number: u64, message: &ResourceSpans, take: &mut dyn TakeSpans) {
    let of_resource = OfResource::new(message.resource.as_ref(), &message.schema_url, number, take);
    for of_scope in message
        .scope_spans
        .iter()
        .chain(&message.instrumentation_library_spans)
    {
        let shared =
            of_resource.shared(of_scope.scope.as_ref(), &of_scope.schema_url, number, take);
        for span in &of_scope.spans {
            of_resource.take(number, span, &shared, take);
        }
    }
}

/// What the spans of a resource share.
struct OfResource {
    service: String,
    host: String,
    attributes: Attributes,
}

impl OfResource {
    fn new(
        resource: Option<&Resource>,
        schema_url: &str,
        line: u64,
        take: &mut dyn TakeSpans,
    ) -> Self {
        let pairs = resource
            .map(|resource| &resource.attributes[..])
            .unwrap_or_default();
        let named = |keys: &[&str]| {
            keys.iter()
                .find_map(|key| text_of(pairs, key))
                .unwrap_or_default()
        };
        let mut attributes = Attributes::new();
        for pair in pairs.iter().filter(|pair| pair.key != "service.name") {
            insert(
                &mut attributes,
                format!("resource.{}", pair.key),
                value(pair.value.as_ref()),
                line,
                take,
            );
        }
        let dropped = resource.map_or(0, |resource| resource.dropped_attributes_count);
        take.not_taken(
            line,
            "resource.droppedAttributesCount",
            u64::from(dropped > 0),
        );
        take.not_taken(
            line,
            "resourceSpans[].schemaUrl",
            u64::from(!schema_url.is_empty()),
        );
        Self {
            service: named(&["service.name"]),
            host: named(&["host.name", "host.id", "k8s.pod.name"]),
            attributes,
        }
    }

    /// With what the spans of one scope share.
    fn shared(
        &self,
        scope: Option<&Scope>,
        schema_url: &str,
        line: u64,
        take: &mut dyn TakeSpans,
    ) -> Attributes {
        let mut shared = self.attributes.clone();
        take.not_taken(
            line,
            "scopeSpans[].schemaUrl",
            u64::from(!schema_url.is_empty()),
        );
        let Some(scope) = scope else { return shared };
        for (key, text) in [
            ("otel.scope.name", &scope.name),
            ("otel.scope.version", &scope.version),
        ] {
            if !text.is_empty() {
                shared.insert(key.to_owned(), text.as_str().into());
            }
        }
        take.not_taken(
            line,
            "scope.droppedAttributesCount",
            u64::from(scope.dropped_attributes_count > 0),
        );
        insert_all(&mut shared, &scope.attributes, line, take);
        shared
    }

    fn take(&self, line: u64, span: &Span, shared: &Attributes, take: &mut dyn TakeSpans) {
        let foreign = self.foreign(line, span, shared, take);
        if foreign.is_ok() {
            unstored(line, span, take);
        }
        take.span(line, foreign);
    }
}

/// Counts what a span says and no column holds.
fn unstored(line: u64, span: &Span, take: &mut dyn TakeSpans) {
    let status = span.status.clone().unwrap_or_default();
    let Status {
        code,
        deprecated_code,
        message,
    } = &status;
    let is_error = *code == STATUS_ERROR;
    let links =
        |says: fn(&Link) -> bool| span.links.iter().filter(|link| says(link)).count() as u64;
    let dropped_of_events = span
        .events
        .iter()
        .filter(|event| event.dropped_attributes_count > 0)
        .count();
    for (name, count) in [
        ("span.traceState", u64::from(!span.trace_state.is_empty())),
        ("span.flags", u64::from(span.flags != 0)),
        (
            "span.droppedAttributesCount",
            u64::from(span.dropped_attributes_count > 0),
        ),
        (
            "span.droppedEventsCount",
            u64::from(span.dropped_events_count > 0),
        ),
        (
            "span.droppedLinksCount",
            u64::from(span.dropped_links_count > 0),
        ),
        ("span.status.code", u64::from(*code != 0 && !is_error)),
        (
            "span.status.message",
            u64::from(!message.is_empty() && !is_error),
        ),
        (
            "span.status.deprecatedCode",
            u64::from(*deprecated_code != 0 && !is_error),
        ),
        ("span.kind", u64::from(!(0..=5).contains(&span.kind))),
        (
            "span.events[].droppedAttributesCount",
            dropped_of_events as u64,
        ),
        (
            "span.links[].traceState",
            links(|link| !link.trace_state.is_empty()),
        ),
        ("span.links[].flags", links(|link| link.flags != 0)),
        (
            "span.links[].droppedAttributesCount",
            links(|link| link.dropped_attributes_count > 0),
        ),
    ] {
        take.not_taken(line, name, count);
    }
}

fn text_of(attributes: &[KeyValue], key: &str) -> Option<String> {
    let found = attributes.iter().find(|pair| pair.key == key)?;
    match value(found.value.as_ref()) {
        Value::String(text) if !text.is_empty() => Some(text),
        _ => None,
    }
}

/// Puts an attribute in; of a key that comes twice, the last is taken.
fn insert(
    attributes: &mut Attributes,
    key: String,
    value: Value,
    line: u64,
    take: &mut dyn TakeSpans,
) {
    let is_other = attributes.get(&key).is_some_and(|former| *former != value);
    if is_other {
        take.not_taken(line, &format!("attribute {key}, told twice"), 1);
    }
    attributes.insert(key, value);
}

fn insert_all(
    attributes: &mut Attributes,
    pairs: &[KeyValue],
    line: u64,
    take: &mut dyn TakeSpans,
) {
    for pair in pairs {
        insert(
            attributes,
            pair.key.clone(),
            value(pair.value.as_ref()),
            line,
            take,
        );
    }
}

fn value(value: Option<&AnyValue>) -> Value {
    let list = |pairs: &[KeyValue]| {
        let pairs = pairs
            .iter()
            .map(|pair| (pair.key.clone(), self::value(pair.value.as_ref())));
        pairs.collect::<Map<_, _>>().into()
    };
    match value.and_then(|value| value.kind.as_ref()) {
        None => Value::Null,
        Some(AnyKind::Text(text)) => text.as_str().into(),
        Some(AnyKind::Bool(bool)) => (*bool).into(),
        Some(AnyKind::Int(int)) => (*int).into(),
        // JSON has no infinity; as text it is at least not lost.
        Some(AnyKind::Double(double)) if !double.is_finite() => double.to_string().into(),
        Some(AnyKind::Double(double)) => (*double).into(),
        Some(AnyKind::Array(array)) => array
            .values
            .iter()
            .map(|item| self::value(Some(item)))
            .collect(),
        Some(AnyKind::Map(map)) => list(&map.values),
        Some(AnyKind::Bytes(bytes)) => hex(bytes).into(),
    }
}

fn number<const BYTES: usize>(field: &'static str, id: &[u8]) -> Result<[u8; BYTES], BadSpan> {
    let mut padded = [0; BYTES];
    // Ids of 64 bits are written short by some.
    if id.len() == 8 && BYTES == 16 {
        padded[8..].copy_from_slice(id);
    }
    let id = if padded == [0; BYTES] { id } else { &padded };
    match <[u8; BYTES]>::try_from(id) {
        Ok(id) if id != [0; BYTES] => Ok(id),
        _ => Err(BadSpan::Id {
            field,
            id: hex(id),
            digits: BYTES * 2,
        }),
    }
}

fn time(field: &'static str, ns: u64) -> Result<i64, BadSpan> {
    i64::try_from(ns).map_err(|_| BadSpan::TimeOutOfRange {
        field,
        value: ns,
        unit: "ns",
    })
}

impl OfResource {
    fn foreign(
        &self,
        line: u64,
        span: &Span,
        shared: &Attributes,
        take: &mut dyn TakeSpans,
    ) -> Result<ForeignSpan, BadSpan> {
        let parent_id = match &span.parent_span_id[..] {
            [] | [0, 0, 0, 0, 0, 0, 0, 0] => 0,
            id => u64::from_be_bytes(number("parentSpanId", id)?),
        };
        let mut foreign = ForeignSpan {
            trace: hex(&number::<16>("traceId", &span.trace_id)?),
            span_id: u64::from_be_bytes(number("spanId", &span.span_id)?),
            parent_id,
            service: self.service.clone(),
            name: span.name.clone(),
            host: self.host.clone(),
            start_ns: time("startTimeUnixNano", span.start_time_unix_nano)?,
            end_ns: time("endTimeUnixNano", span.end_time_unix_nano)?,
            attributes: shared.clone(),
            ..ForeignSpan::default()
        };
        if span.end_time_unix_nano == 0 {
            foreign.end_ns = foreign.start_ns;
            foreign.flags |= SpanFlag::Unfinished as u32;
        }
        insert_all(&mut foreign.attributes, &span.attributes, line, take);
        set_kind(&mut foreign, span.kind);
        if let Some(status) = span
            .status
            .as_ref()
            .filter(|status| status.code == STATUS_ERROR)
        {
            foreign.attributes.insert("error".to_owned(), true.into());
            if !status.message.is_empty() {
                let key = "otel.status_description".to_owned();
                foreign
                    .attributes
                    .insert(key, status.message.as_str().into());
            }
        }
        if !span.links.is_empty() {
            let links: Value = span
                .links
                .iter()
                .map(|each| link(each, line, take))
                .collect();
            foreign.attributes.insert("links".to_owned(), links);
        }
        foreign.events = span
            .events
            .iter()
            .map(|each| event(each, line, take))
            .collect::<Result<_, _>>()?;
        Ok(foreign)
    }
}

fn set_kind(foreign: &mut ForeignSpan, kind: i32) {
    match kind {
        2 => foreign.flags |= SpanFlag::Server as u32,
        3 => foreign.flags |= SpanFlag::Client as u32,
        kind => {
            let name = [
                None,
                Some("internal"),
                None,
                None,
                Some("producer"),
                Some("consumer"),
            ];
            if let Some(name) = usize::try_from(kind).ok().and_then(|kind| *name.get(kind)?) {
                foreign
                    .attributes
                    .insert("span.kind".to_owned(), name.into());
            }
        }
    }
}

fn link(link: &Link, line: u64, take: &mut dyn TakeSpans) -> Value {
    let mut map = Map::new();
    map.insert("trace_id".to_owned(), hex(&link.trace_id).into());
    map.insert("span_id".to_owned(), hex(&link.span_id).into());
    insert_all(&mut map, &link.attributes, line, take);
    map.into()
}

fn event(event: &Event, line: u64, take: &mut dyn TakeSpans) -> Result<ForeignEvent, BadSpan> {
    let mut attributes = Attributes::new();
    insert_all(&mut attributes, &event.attributes, line, take);
    let name = if event.name.is_empty() {
        "event"
    } else {
        &event.name
    };
    Ok(ForeignEvent {
        time_ns: time("timeUnixNano", event.time_unix_nano)?,
        name: name.to_owned(),
        attributes,
    })
}
