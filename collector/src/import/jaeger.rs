//! Jaeger's JSON.
//!
//! What is understood: answers of its query API (`{"data": [trace…]}`), single traces (`{"traceID", "spans",
//! "processes"}`), lists of traces or spans, and single spans with their `process` inside, as its Elasticsearch indexes
//! hold them. Exports that embed whole parent spans in `references` are read as if they did not.
//!
//! - The parent is the first reference of type `CHILD_OF`, or else the first `FOLLOWS_FROM` (the attribute
//!   `follows_from` then is true), or `parentSpanID`. Other references become the attribute `links`.
//! - The host is the process's tag `hostname`, `host.name` or `ip`, whichever is there first in this order.
//! - `span.kind` of `client` and `server` becomes the flag. Tags of the process get the prefix `resource.`.
//! - A log becomes an event, named by its field `event`, or else `message`.

use std::borrow::Cow;
use std::collections::HashMap;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use stroboscope_proto::v1::SpanFlag;

use super::BadLine;
use super::foreign_span::{Attributes, ForeignEvent, ForeignSpan, from_us, own_span_id, span_number};
use super::json_error::reason_of;

/// A trace, or a list of them or of spans, or one span: whatever can be an element of a document.
#[derive(Deserialize)]
struct Trace<'a> {
    #[serde(rename = "traceID", borrow, default)]
    trace_id: Cow<'a, str>,
    #[serde(borrow)]
    spans: Option<Vec<&'a RawValue>>,
    #[serde(borrow)]
    processes: Option<HashMap<Cow<'a, str>, Process<'a>>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Process<'a> {
    #[serde(borrow, default)]
    service_name: Cow<'a, str>,
    #[serde(borrow)]
    tags: Option<Vec<Tag<'a>>>,
}

#[derive(Deserialize)]
struct Tag<'a> {
    #[serde(borrow)]
    key: Cow<'a, str>,
    #[serde(rename = "type", borrow, default)]
    kind: Cow<'a, str>,
    #[serde(default)]
    value: Value,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Reference<'a> {
    #[serde(borrow, default)]
    ref_type: Cow<'a, str>,
    #[serde(rename = "traceID", borrow)]
    trace_id: Option<Cow<'a, str>>,
    #[serde(rename = "spanID", borrow)]
    span_id: Cow<'a, str>,
}

#[derive(Deserialize)]
struct Log<'a> {
    timestamp: u64,
    #[serde(borrow, default)]
    fields: Vec<Tag<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Span<'a> {
    #[serde(rename = "traceID", borrow)]
    trace_id: Option<Cow<'a, str>>,
    #[serde(rename = "spanID", borrow)]
    span_id: Cow<'a, str>,
    #[serde(rename = "parentSpanID", borrow)]
    parent_span_id: Option<Cow<'a, str>>,
    #[serde(borrow)]
    operation_name: Cow<'a, str>,
    #[serde(borrow)]
    references: Option<Vec<Reference<'a>>>,
    start_time: u64,
    duration: u64,
    #[serde(borrow)]
    tags: Option<Vec<Tag<'a>>>,
    #[serde(borrow)]
    logs: Option<Vec<Log<'a>>>,
    #[serde(rename = "processID", borrow)]
    process_id: Option<Cow<'a, str>>,
    #[serde(borrow)]
    process: Option<Process<'a>>,
}

/// Hands the spans of one record on, each with the line on which it begins, counted from the record's first line, 0.
///
/// # Errors
/// When the record is no trace.
pub(super) fn spans_of(
    record: &str,
    take: &mut dyn FnMut(u64, Result<ForeignSpan, BadLine>),
) -> Result<(), (u64, BadLine)> {
    if !record.starts_with('[') {
        return spans_of_object(record, take);
    }
    let items: Vec<&RawValue> = serde_json::from_str(record).map_err(|error| reason_of(&error))?;
    let mut lines = LinesBefore::of(record);
    for item in items {
        let first_line = lines.before(item.get());
        let told = spans_of_object(item.get(), &mut |line, span| take(first_line + line, span));
        if let Err((line, reason)) = told {
            take(first_line + line, Err(reason));
        }
    }
    Ok(())
}

/// A trace with its spans, or one span by itself.
fn spans_of_object(
    record: &str,
    take: &mut dyn FnMut(u64, Result<ForeignSpan, BadLine>),
) -> Result<(), (u64, BadLine)> {
    let trace: Trace<'_> = serde_json::from_str(record).map_err(|error| reason_of(&error))?;
    let processes = trace.processes.unwrap_or_default();
    let Some(spans) = trace.spans else {
        let span: Span<'_> = serde_json::from_str(record).map_err(|error| reason_of(&error))?;
        take(0, foreign(span, "", &processes));
        return Ok(());
    };
    let mut lines = LinesBefore::of(record);
    for raw in spans {
        let first_line = lines.before(raw.get());
        match serde_json::from_str::<Span<'_>>(raw.get()) {
            Ok(span) => take(first_line, foreign(span, &trace.trace_id, &processes)),
            Err(error) => {
                let (line, reason) = reason_of(&error);
                take(first_line + line, Err(reason));
            }
        }
    }
    Ok(())
}

/// Counts the line ends before the parts of a record, which are asked for in their order: each byte is looked at once.
struct LinesBefore<'a> {
    record: &'a str,
    at: usize,
    lines: u64,
}

impl<'a> LinesBefore<'a> {
    fn of(record: &'a str) -> Self {
        Self { record, at: 0, lines: 0 }
    }

    fn before(&mut self, part: &str) -> u64 {
        let offset = (part.as_ptr() as usize).saturating_sub(self.record.as_ptr() as usize);
        let passed = self.record.as_bytes().get(self.at..offset).unwrap_or_default();
        self.lines += memchr::memchr_iter(b'\n', passed).count() as u64;
        self.at = self.at.max(offset);
        self.lines
    }
}

fn foreign(
    span: Span<'_>,
    trace_id: &str,
    processes: &HashMap<Cow<'_, str>, Process<'_>>,
) -> Result<ForeignSpan, BadLine> {
    let listed = span.process_id.as_ref().and_then(|id| processes.get(id));
    let process = listed.or(span.process.as_ref());
    let trace = span.trace_id.as_deref().filter(|id| !id.is_empty()).unwrap_or(trace_id);
    let start_ns = from_us("startTime", span.start_time)?;
    let duration_ns = from_us("duration", span.duration)?;
    let out_of_range = BadLine::TimeOutOfRange { field: "duration", value: span.duration, unit: "us" };
    let mut foreign = ForeignSpan {
        trace: trace.to_owned(),
        span_id: own_span_id(&span.span_id)?,
        service: process.map_or_else(String::new, |process| process.service_name.clone().into_owned()),
        name: span.operation_name.into_owned(),
        start_ns,
        end_ns: start_ns.checked_add(duration_ns).ok_or(out_of_range)?,
        ..ForeignSpan::default()
    };
    for tag in span.tags.iter().flatten() {
        let kind = if tag.key == "span.kind" { tag.value.as_str() } else { None };
        match kind {
            Some("client") => foreign.flags |= SpanFlag::Client as u32,
            Some("server") => foreign.flags |= SpanFlag::Server as u32,
            _ => insert(&mut foreign.attributes, tag, ""),
        }
    }
    let process_tags = process.and_then(|process| process.tags.as_deref()).unwrap_or_default();
    foreign.host = host(process_tags);
    process_tags.iter().for_each(|tag| insert(&mut foreign.attributes, tag, "resource."));
    let parent_span_id = span.parent_span_id.as_deref().unwrap_or_default();
    set_parent(&mut foreign, span.references.as_deref().unwrap_or_default(), parent_span_id);
    foreign.events = span.logs.iter().flatten().map(event).collect::<Result<_, _>>()?;
    Ok(foreign)
}

fn host(tags: &[Tag<'_>]) -> String {
    let named = |key: &str| tags.iter().find(|tag| tag.key == key).and_then(|tag| tag.value.as_str());
    ["hostname", "host.name", "ip"].into_iter().find_map(named).unwrap_or_default().to_owned()
}

fn insert(attributes: &mut Attributes, tag: &Tag<'_>, prefix: &str) {
    attributes.insert(format!("{prefix}{}", tag.key), typed(tag));
}

/// Elasticsearch's documents hold numbers and booleans as text.
fn typed(tag: &Tag<'_>) -> Value {
    let text = match (&tag.value, &*tag.kind) {
        (Value::String(text), "int64" | "float64" | "bool") => text,
        (value, _) => return value.clone(),
    };
    match serde_json::from_str(text) {
        Ok(value @ (Value::Number(_) | Value::Bool(_))) => value,
        _ => tag.value.clone(),
    }
}

fn set_parent(foreign: &mut ForeignSpan, references: &[Reference<'_>], parent_span_id: &str) {
    let is_here = |reference: &&Reference<'_>| {
        reference.trace_id.as_deref().is_none_or(|id| id.is_empty() || id == foreign.trace)
            && span_number(&reference.span_id) != 0
    };
    let of_type = |kind: &str| references.iter().filter(is_here).find(|reference| reference.ref_type == kind);
    let parent = of_type("CHILD_OF").or_else(|| of_type("FOLLOWS_FROM"));
    let is_link = |reference: &&Reference<'_>| parent.is_none_or(|parent| !std::ptr::eq(*reference, parent));
    let links: Vec<Value> = references.iter().filter(is_link).map(link).collect();
    foreign.parent_id =
        parent.map_or_else(|| span_number(parent_span_id), |parent| span_number(&parent.span_id));
    if parent.is_some_and(|parent| parent.ref_type == "FOLLOWS_FROM") {
        foreign.attributes.insert("follows_from".to_owned(), true.into());
    }
    if !links.is_empty() {
        foreign.attributes.insert("links".to_owned(), links.into());
    }
}

fn link(reference: &Reference<'_>) -> Value {
    let mut link = Map::new();
    link.insert("trace_id".to_owned(), reference.trace_id.as_deref().unwrap_or_default().into());
    link.insert("span_id".to_owned(), (*reference.span_id).into());
    link.insert("type".to_owned(), (*reference.ref_type).into());
    link.into()
}

fn event(log: &Log<'_>) -> Result<ForeignEvent, BadLine> {
    let mut attributes = Attributes::new();
    log.fields.iter().for_each(|field| insert(&mut attributes, field, ""));
    let is_name =
        |key: &str| attributes.get(key).and_then(Value::as_str).is_some_and(|name| !name.is_empty());
    let key = ["event", "message"].into_iter().find(|key| is_name(key));
    let name = match key.and_then(|key| attributes.remove(key)) {
        Some(Value::String(name)) => name,
        _ => "event".to_owned(),
    };
    Ok(ForeignEvent { time_ns: from_us("a log's timestamp", log.timestamp)?, name, attributes })
}
