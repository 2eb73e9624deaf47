//! Jaeger's JSON; `format.rs` recognises it.
//!
//! Accepted input: responses of its query API (`{"data": [trace…]}`), single traces (`{"traceID",
//! "spans", "processes"}`), lists of traces or spans, and single spans with their `process` inside,
//! as its Elasticsearch indexes store them. Also its domain model: ids in base64, times of RFC
//! 3339, durations with units, tags by `vType`. Whole spans that exports embed in `references` are
//! ignored.
//!
//! - The parent is the first reference of type `CHILD_OF` to a span of the trace, or else the first
//!   of type `FOLLOWS_FROM`, or else `parentSpanID`. For `FOLLOWS_FROM`, the attribute
//!   `follows_from` is true. Other references become the attribute `links`, with the ids of the
//!   stored trace and span.
//! - The host is the process's tag `hostname`, `host.name` or `ip`, the first in this order that is
//!   a text.
//! - The tag `span.kind` becomes a flag of the span if its value is `client` or `server`. Tags of
//!   the process get the prefix `resource.`.
//! - A log becomes an event. Its name is the field `event` or else `message`, the first that is a
//!   text and not empty, or otherwise `event`.

mod message;
mod time;

use std::borrow::Cow;
use std::collections::HashMap;

use serde_json::{Map, Value};
use stroboscope_proto::v1::SpanFlag;

use super::BadLine;
use super::json_error::reason_of;
use super::take::Take;
use message::{Log, Process, Reference, Span, Tag, Trace};
use stroboscope_otlp::BadSpan;
use stroboscope_otlp::LinesBefore;
use stroboscope_otlp::typed::parse;
use stroboscope_otlp::{Attributes, ForeignEvent, ForeignSpan, own_span_id, span_number};
use stroboscope_otlp::{base64_of, hex, trace_id};
use time::{instant_ns, length_ns};

/// Passes on the spans of one record, a trace or a span, which begins on line `line`.
///
/// # Errors
/// Fails if the record is neither; the error has the line within the record, from 0.
pub(super) fn spans_of(line: u64, record: &str, take: &mut dyn Take) -> Result<(), (u64, BadLine)> {
    // Most keys of a single span are unknown to a trace. `span_of` reports those that a span does
    // not have either.
    let mut of_trace = Vec::new();
    let trace: Trace<'_> = parse(record, "trace", &mut |name| of_trace.push(name.to_owned()))
        .map_err(|error| reason_of(&error))?;
    let mut processes = trace.processes.unwrap_or_default();
    let mapped = trace.process_map.into_iter().flatten();
    processes.extend(mapped.map(|each| (each.id, each.process)));
    let Some(spans) = trace.spans else {
        return span_of(line, record, "", &processes, take);
    };
    for name in &of_trace {
        take.not_taken(line, name, 1);
    }
    take.not_taken(line, "trace.warnings", u64::from(trace.warnings.0));
    let mut lines = LinesBefore::of(record);
    for raw in spans {
        let first_line = line + lines.before(raw.get());
        if let Err((offset, reason)) =
            span_of(first_line, raw.get(), &trace.trace_id, &processes, take)
        {
            take.span(first_line + offset, Err(reason));
        }
    }
    Ok(())
}

fn span_of(
    line: u64,
    record: &str,
    trace_id: &str,
    processes: &HashMap<Cow<'_, str>, Process<'_>>,
    take: &mut dyn Take,
) -> Result<(), (u64, BadLine)> {
    let mut ignored = |name: &str| take.not_taken(line, name, 1);
    let span: Span<'_> = parse(record, "span", &mut ignored).map_err(|error| reason_of(&error))?;
    take.not_taken(line, "span.flags", u64::from(span.flags.0));
    take.not_taken(line, "span.warnings", u64::from(span.warnings.0));
    let foreign = foreign(line, span, trace_id, processes, take);
    take.span(line, foreign);
    Ok(())
}

/// Converts an id to hexadecimal, as the query API writes it, if it is in padded base64, as the
/// domain model writes it. Returns any other text unchanged.
fn id(text: &str) -> Cow<'_, str> {
    base64_of(text, true).map_or(Cow::Borrowed(text), |bytes| Cow::Owned(hex(&bytes)))
}

fn foreign(
    line: u64,
    span: Span<'_>,
    trace_id: &str,
    processes: &HashMap<Cow<'_, str>, Process<'_>>,
    take: &mut dyn Take,
) -> Result<ForeignSpan, BadLine> {
    let listed = span.process_id.as_ref().and_then(|id| processes.get(id));
    let process = listed.or(span.process.as_ref());
    let own_trace = span.trace_id.as_deref().filter(|id| !id.is_empty());
    let trace = own_trace.unwrap_or(trace_id);
    let start_ns = instant_ns("startTime", span.start_time.get())?;
    let duration_ns = match span.duration {
        Some(raw) => length_ns(raw.get())?,
        // The domain model follows protobuf's JSON mapping and omits a duration of 0; the other
        // forms always contain it.
        None if span.start_time.get().starts_with('"') => 0,
        None => return Err(BadLine::Json("missing field `duration`".to_owned())),
    };
    let out_of_range = BadSpan::TimeOutOfRange {
        field: "duration",
        value: duration_ns.unsigned_abs(),
        unit: "ns",
    };
    let service = process.map(|process| process.service_name.clone().into_owned());
    let mut foreign = ForeignSpan {
        trace: id(trace).into_owned(),
        span_id: own_span_id(&id(&span.span_id))?,
        service: service.unwrap_or_default(),
        name: span.operation_name.into_owned(),
        start_ns,
        end_ns: start_ns.checked_add(duration_ns).ok_or(out_of_range)?,
        ..ForeignSpan::default()
    };
    let mut insert = |attributes: &mut Attributes, key: String, value: Value| {
        if attributes.get(&key).is_some_and(|former| *former != value) {
            take.not_taken(line, &format!("tag {key}, given twice"), 1);
        }
        attributes.insert(key, value);
    };
    for (key, value) in tags(span.tags.as_deref(), span.tag.as_ref()) {
        match value.as_str() {
            Some("client") if key == "span.kind" => foreign.flags |= SpanFlag::Client as u32,
            Some("server") if key == "span.kind" => foreign.flags |= SpanFlag::Server as u32,
            _ => insert(&mut foreign.attributes, key, value),
        }
    }
    if let Some(process) = process {
        let process_tags = tags(process.tags.as_deref(), process.tag.as_ref());
        foreign.host = host(&process_tags);
        for (key, value) in process_tags {
            insert(&mut foreign.attributes, format!("resource.{key}"), value);
        }
    }
    let parent_span_id = span.parent_span_id.as_deref().unwrap_or_default();
    let references = span.references.as_deref().unwrap_or_default();
    set_parent(&mut foreign, references, &id(parent_span_id));
    let events = span.logs.iter().flatten().map(event);
    foreign.events = events.collect::<Result<_, _>>()?;
    Ok(foreign)
}

/// Returns the tags of a list, and after them the tags of a map. In the keys of the map, dots
/// replace `@`.
fn tags(list: Option<&[Tag<'_>]>, map: Option<&Map<String, Value>>) -> Vec<(String, Value)> {
    let listed = list.unwrap_or_default().iter();
    let listed = listed.map(|tag| (tag.key.clone().into_owned(), typed(tag)));
    let mapped = map.into_iter().flatten();
    let mapped = mapped.map(|(key, value)| (key.replace('@', "."), value.clone()));
    listed.chain(mapped).collect()
}

fn host(tags: &[(String, Value)]) -> String {
    let named = |key: &str| tags.iter().find(|tag| tag.0 == key)?.1.as_str();
    let host = ["hostname", "host.name", "ip"].into_iter().find_map(named);
    host.unwrap_or_default().to_owned()
}

/// Returns a tag's value. Elasticsearch's documents contain numbers and booleans as text, which is
/// parsed if the declared type is a number or boolean. Protobuf omits zero values.
fn typed(tag: &Tag<'_>) -> Value {
    let kind = tag.kind.to_ascii_lowercase();
    let text = match (&tag.value, &*kind) {
        (Some(Value::String(text)), "int64" | "float64" | "bool" | "long" | "double") => text,
        (Some(value), _) => return value.clone(),
        (None, "int64" | "float64" | "long" | "double") => return 0.into(),
        (None, "bool") => return false.into(),
        (None, "string") => return "".into(),
        (None, _) => return Value::Null,
    };
    match serde_json::from_str(text) {
        Ok(value @ (Value::Number(_) | Value::Bool(_))) => value,
        _ => text.as_str().into(),
    }
}

fn set_parent(foreign: &mut ForeignSpan, references: &[Reference<'_>], parent_span_id: &str) {
    let is_here = |reference: &&Reference<'_>| {
        let trace = reference.trace_id.as_deref();
        trace.is_none_or(|trace| trace.is_empty() || id(trace) == foreign.trace)
            && span_number(&id(&reference.span_id)) != 0
    };
    let of_type = |kind: &str| {
        let mut here = references.iter().filter(is_here);
        here.find(|reference| reference.ref_type == kind)
    };
    let parent = of_type("CHILD_OF").or_else(|| of_type("FOLLOWS_FROM"));
    let is_link =
        |reference: &&Reference<'_>| parent.is_none_or(|parent| !std::ptr::eq(*reference, parent));
    let links: Vec<Value> = references.iter().filter(is_link).map(link).collect();
    foreign.parent_id = parent.map_or_else(
        || span_number(parent_span_id),
        |parent| span_number(&id(&parent.span_id)),
    );
    if parent.is_some_and(|parent| parent.ref_type == "FOLLOWS_FROM") {
        let attributes = &mut foreign.attributes;
        attributes.insert("follows_from".to_owned(), true.into());
    }
    if !links.is_empty() {
        foreign.attributes.insert("links".to_owned(), links.into());
    }
}

fn link(reference: &Reference<'_>) -> Value {
    let trace = id(reference.trace_id.as_deref().unwrap_or_default());
    // Jaeger may omit the trace of a reference within the same trace.
    let trace = match trace.bytes().all(|byte| byte == b'0') {
        true => String::new(),
        false => format!("{:032x}", trace_id(&trace)),
    };
    let span = match span_number(&id(&reference.span_id)) {
        0 => String::new(),
        number => format!("{number:016x}"),
    };
    let mut link = Map::new();
    link.insert("trace_id".to_owned(), trace.into());
    link.insert("span_id".to_owned(), span.into());
    link.insert("type".to_owned(), (*reference.ref_type).into());
    link.into()
}

fn event(log: &Log<'_>) -> Result<ForeignEvent, BadLine> {
    let mut attributes = Attributes::from_iter(tags(Some(&log.fields), None));
    let is_name = |key: &str| {
        let name = attributes.get(key).and_then(Value::as_str);
        name.is_some_and(|name| !name.is_empty())
    };
    let key = ["event", "message"].into_iter().find(|key| is_name(key));
    let name = match key.and_then(|key| attributes.remove(key)) {
        Some(Value::String(name)) => name,
        _ => "event".to_owned(),
    };
    Ok(ForeignEvent {
        time_ns: instant_ns("a log's timestamp", log.timestamp.get())?,
        name,
        attributes,
    })
}
