//! Reads spans and log records of OTLP, and converts stored spans to OTLP.
//!
//! The service is the resource's `service.name`, the host its `host.name`, `host.id` or
//! `k8s.pod.name`. The kinds client and server become flags. Fields without a counterpart become
//! attributes. Their names are those that OpenTelemetry defines for other formats ("Mapping to
//! non-OTLP formats"), where it defines one. If a key occurs twice, the last value counts; for
//! service and host, the first.
//!
//! | of OTLP | attribute |
//! |---|---|
//! | resource: attributes, schema URL, dropped attributes | `resource.KEY`, `otel.resource.schema_url`, `otel.resource.dropped_attributes_count` |
//! | scope: name, version, schema URL, attributes, dropped attributes | `otel.scope.name`, `.version`, `.schema_url`, `.dropped_attributes_count`; `scope.KEY` |
//! | status: error, ok, other; description | `error: true`, `otel.status_code: "OK"`, its number; `otel.status_description` |
//! | old status code 2; others but 0 | `error: true` if unset; also `otel.deprecated_status_code` |
//! | kinds internal, producer, consumer, other | `span.kind`, a text or its number |
//! | trace state, flags | `w3c.tracestate`, `otel.flags` |
//! | dropped attributes, events, links (also an event's attributes) | `otel.dropped_attributes_count`, … |
//! | links | `links`, a list of objects: `trace_id`, `span_id`, and if present `trace_state`, `flags`, `dropped_attributes_count`, `attributes` |
//! | values that JSON cannot express, such as bytes and infinity | bytes as hex digits, infinity as its name; and in `otel.exact` as in OTLP's JSON |
//! | a span's own attributes with names that those in this table may have; an event's own `otel.…` | unchanged, with their names in `otel.own_names`; if both exist, in `otel.shadowed` |
//! | events without a name | `event`, with `otel.event_name: ""` |
//! | original name of a span that is named by its statement (see `query`) or gets its module as a prefix, such as `get::apply` (see `code_place`) | `otel.span_name` |
//! | a resource's service name that is empty or not a text | `resource.service.name` |
//!
//! [`StoredSpan::parts`] is the inverse, with the exceptions that its module names.
//!
//! Some modules serve importers of other formats, too, such as `foreign_span`, `typed` (JSON),
//! `wire` (protobuf) and `id_text`.
#![allow(
    missing_docs,
    reason = "what is known by its name needs no sentence; the users are the crates beside this one"
)]

mod bad_span;
mod code_place;
mod decimal;
mod direct;
mod exact;
mod foreign_span;
mod id_text;
mod json;
mod json_error;
mod lines_before;
mod logs;
pub mod message;
mod message_json;
mod operation_name;
mod own_names;
mod plain;
mod query;
mod statement;
mod stored;
mod texts;
mod to_json;
mod trace_name;
pub mod typed;
pub mod unknown_fields;
pub mod wire;

use serde_json::{Map, Value};
use stroboscope_proto::v1::SpanFlag;

use exact::note_inexact;
use json_error::reason_of;
use message::{
    AnyKind, AnyValue, Event, KeyValue, Link, Resource, ResourceSpans, STATUS_ERROR, STATUS_OK,
    Scope, Span, Status,
};
use message_json::{ResourceSpansText, ScopeSpansText};
use operation_name::NameSources;
use own_names::{is_made_of_event, is_made_of_span, put_own};
use typed::parse;

pub use bad_span::BadSpan;
pub use decimal::{decimal, whole_number};
pub use direct::{PlainEvent, PlainSpan, TakePlain, plain_spans_of};
pub use exact::{any_json, pairs_json};
pub use foreign_span::{
    Attributes, ForeignEvent, ForeignSpan, SpanLimits, TakeSpans, check_count, check_text, hashed,
    own_span_id, span_number,
};
pub use id_text::{base64_of, bytes_of, hex, hex_bytes, standard_base64, standard_bytes};
pub use json_error::without_line_number;
pub use lines_before::LinesBefore;
pub use logs::{ForeignLog, LogRecord, ResourceLogs, ScopeLogs, logs_of, logs_of_json};
pub use operation_name::SPAN_NAME;
pub use plain::{is_plain, plain_records};
pub use query::Query;
pub use stored::{
    SpanParts, StoredAttributes, StoredEvent, StoredSpan, any_of_json, resource_spans,
};
pub use texts::{HasTexts, with_valid_texts};
pub use to_json::resource_spans_json;
pub use trace_name::{trace_id, trace_label};

const DROPPED_ATTRIBUTES: &str = "otel.dropped_attributes_count";
/// Attribute that marks an event without a name in its source.
const EVENT_NAME: &str = "otel.event_name";

/// Passes the spans of a JSON element of `resourceSpans`, which begins on line `line`, to `take`.
///
/// # Errors
/// Returns an error, with its line within the record, if the record is no such element.
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

/// Passes the spans of one resource, message `number` of a file or request, to `take`.
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

/// Values that the spans or log records of a resource share.
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
        let service = named(&["service.name"]);
        let has_service = !service.is_empty();
        for pair in pairs
            .iter()
            .filter(|pair| !(has_service && pair.key == "service.name"))
        {
            let key = format!("resource.{}", pair.key);
            insert(&mut attributes, key, pair.value.as_ref(), line, take);
        }
        let dropped = resource.map_or(0, |resource| resource.dropped_attributes_count);
        say_text(&mut attributes, "otel.resource.schema_url", schema_url);
        say_count(
            &mut attributes,
            "otel.resource.dropped_attributes_count",
            dropped,
        );
        Self {
            service,
            host: named(&["host.name", "host.id", "k8s.pod.name"]),
            attributes,
        }
    }

    /// Returns the attributes of the resource and of one scope, which the scope's records share.
    fn shared(
        &self,
        scope: Option<&Scope>,
        schema_url: &str,
        line: u64,
        take: &mut dyn TakeSpans,
    ) -> Attributes {
        let mut shared = self.attributes.clone();
        say_text(&mut shared, "otel.scope.schema_url", schema_url);
        let Some(scope) = scope else { return shared };
        say_text(&mut shared, "otel.scope.name", &scope.name);
        say_text(&mut shared, "otel.scope.version", &scope.version);
        say_count(
            &mut shared,
            "otel.scope.dropped_attributes_count",
            scope.dropped_attributes_count,
        );
        for pair in &scope.attributes {
            let key = format!("scope.{}", pair.key);
            insert(&mut shared, key, pair.value.as_ref(), line, take);
        }
        shared
    }

    fn take(&self, line: u64, span: &Span, shared: &Attributes, take: &mut dyn TakeSpans) {
        let foreign = self.foreign(line, span, shared, take);
        take.span(line, foreign);
    }
}

/// Inserts a text, unless it is empty.
fn say_text(attributes: &mut Attributes, key: &str, text: &str) {
    if !text.is_empty() {
        attributes.insert(key.to_owned(), text.into());
    }
}

/// Inserts a number, unless it is 0.
fn say_count(attributes: &mut Attributes, key: &str, count: u32) {
    if count > 0 {
        attributes.insert(key.to_owned(), count.into());
    }
}

fn text_of(attributes: &[KeyValue], key: &str) -> Option<String> {
    let found = attributes.iter().find(|pair| pair.key == key)?;
    match found.value.as_ref()?.kind.as_ref()? {
        AnyKind::Text(text) if !text.is_empty() => Some(text.clone()),
        _ => None,
    }
}

/// Inserts an attribute. If a key occurs twice with different values, the last value counts, and
/// `take` is notified.
fn insert(
    attributes: &mut Attributes,
    key: String,
    said: Option<&AnyValue>,
    line: u64,
    take: &mut dyn TakeSpans,
) {
    note_inexact(attributes, &key, said);
    put(attributes, key, value(said), line, take);
}

fn put(
    attributes: &mut Attributes,
    key: String,
    value: Value,
    line: u64,
    take: &mut dyn TakeSpans,
) {
    let is_other = attributes.get(&key).is_some_and(|former| *former != value);
    if is_other {
        take.not_taken(line, &format!("attribute {key}, given twice"), 1);
    }
    attributes.insert(key, value);
}

/// Inserts the attributes whose keys cannot collide with synthesized ones, and returns the others.
fn insert_others<'a>(
    attributes: &mut Attributes,
    pairs: &'a [KeyValue],
    is_made: fn(&str) -> bool,
    line: u64,
    take: &mut dyn TakeSpans,
) -> Vec<&'a KeyValue> {
    let mut own = Vec::new();
    for pair in pairs {
        if is_made(&pair.key) {
            own.push(pair);
        } else {
            let key = pair.key.clone();
            insert(attributes, key, pair.value.as_ref(), line, take);
        }
    }
    own
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
        // JSON has no infinity and no NaN. A text at least preserves the value.
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
    // Some systems write trace ids with 64 bits.
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
        let attributes = &mut foreign.attributes;
        let own = insert_others(attributes, &span.attributes, is_made_of_span, line, take);
        set_kind(&mut foreign, span.kind);
        set_status(&mut foreign.attributes, span.status.as_ref());
        say_text(&mut foreign.attributes, "w3c.tracestate", &span.trace_state);
        for (key, count) in [
            ("otel.flags", span.flags),
            (DROPPED_ATTRIBUTES, span.dropped_attributes_count),
            ("otel.dropped_events_count", span.dropped_events_count),
            ("otel.dropped_links_count", span.dropped_links_count),
        ] {
            say_count(&mut foreign.attributes, key, count);
        }
        if let Some(name) = NameSources::of(&span.attributes).name(&span.name) {
            foreign.name = name;
            say_text(&mut foreign.attributes, SPAN_NAME, &span.name);
        }
        if !span.links.is_empty() {
            let links: Value = span
                .links
                .iter()
                .map(|each| link(each, line, take))
                .collect();
            foreign.attributes.insert("links".to_owned(), links);
        }
        put_own(&mut foreign.attributes, &own, line, take);
        foreign.events = span
            .events
            .iter()
            .map(|each| event(each, line, take))
            .collect::<Result<_, _>>()?;
        Ok(foreign)
    }
}

fn set_kind(foreign: &mut ForeignSpan, kind: i32) {
    let named: Value = match kind {
        0 => return,
        1 => "internal".into(),
        2 => {
            foreign.flags |= SpanFlag::Server as u32;
            return;
        }
        3 => {
            foreign.flags |= SpanFlag::Client as u32;
            return;
        }
        4 => "producer".into(),
        5 => "consumer".into(),
        other => other.into(),
    };
    foreign.attributes.insert("span.kind".to_owned(), named);
}

fn set_status(attributes: &mut Attributes, status: Option<&Status>) {
    let Some(Status {
        code,
        message,
        deprecated_code,
    }) = status
    else {
        return;
    };
    // Before version 0.10, `deprecated_code` was the status, and all its values but 0 were errors.
    if *code == STATUS_ERROR || (*code == 0 && *deprecated_code != 0) {
        attributes.insert("error".to_owned(), true.into());
    } else if *code == STATUS_OK {
        attributes.insert("otel.status_code".to_owned(), "OK".into());
    } else if *code != 0 {
        attributes.insert("otel.status_code".to_owned(), (*code).into());
    }
    if *deprecated_code != 0 && *deprecated_code != STATUS_ERROR {
        let code = (*deprecated_code).into();
        attributes.insert("otel.deprecated_status_code".to_owned(), code);
    }
    say_text(attributes, "otel.status_description", message);
}

fn link(link: &Link, line: u64, take: &mut dyn TakeSpans) -> Value {
    let mut map = Map::new();
    map.insert("trace_id".to_owned(), hex(&link.trace_id).into());
    map.insert("span_id".to_owned(), hex(&link.span_id).into());
    say_text(&mut map, "trace_state", &link.trace_state);
    say_count(&mut map, "flags", link.flags);
    let dropped = link.dropped_attributes_count;
    say_count(&mut map, "dropped_attributes_count", dropped);
    if !link.attributes.is_empty() {
        // The maps are separate, because a link may have an attribute with the name `otel.exact`.
        let (mut attributes, mut exact) = (Attributes::new(), Attributes::new());
        for pair in &link.attributes {
            let said = pair.value.as_ref();
            put(&mut attributes, pair.key.clone(), value(said), line, take);
            note_inexact(&mut exact, &pair.key, said);
        }
        map.insert("attributes".to_owned(), attributes.into());
        map.extend(exact);
    }
    map.into()
}

fn event(event: &Event, line: u64, take: &mut dyn TakeSpans) -> Result<ForeignEvent, BadSpan> {
    let mut attributes = Attributes::new();
    let pairs = &event.attributes;
    let own = insert_others(&mut attributes, pairs, is_made_of_event, line, take);
    let dropped = event.dropped_attributes_count;
    say_count(&mut attributes, DROPPED_ATTRIBUTES, dropped);
    let name = if event.name.is_empty() {
        attributes.insert(EVENT_NAME.to_owned(), "".into());
        "event"
    } else {
        &event.name
    };
    put_own(&mut attributes, &own, line, take);
    Ok(ForeignEvent {
        time_ns: time("timeUnixNano", event.time_unix_nano)?,
        name: name.to_owned(),
        attributes,
    })
}
