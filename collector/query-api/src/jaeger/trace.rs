//! A trace in the JSON of Jaeger's UI.

use std::collections::{BTreeMap, HashMap};

use serde_json::{Value, json};
use stroboscope_otlp::message::{AnyKind, AnyValue, Event, KeyValue, Link};
use stroboscope_otlp::{SpanParts, any_json};
use stroboscope_otlp::{hex, standard_base64};

use crate::answer::Refusal;
use crate::trace::{StoredTrace, TraceSpan, is_error_message, kind_name};
use crate::written::ResponseBuffer;

/// Writes `{"traceID", "spans", "processes", "warnings"}`, span by span.
pub(super) fn write_trace(
    trace: &StoredTrace,
    written: &mut ResponseBuffer,
) -> Result<(), Refusal> {
    let trace_id = format!("{:032x}", trace.id);
    let mut processes: HashMap<String, usize> = HashMap::new();
    written.text(&format!(r#"{{"traceID":"{trace_id}","spans":"#))?;
    written.list(trace.spans.iter().map(|span| {
        let parts = span.stored.parts();
        let process = process_json(span, &parts).to_string();
        let next = processes.len() + 1;
        let number = *processes.entry(process).or_insert(next);
        span_json(&trace_id, span, &parts, &format!("p{number}"))
    }))?;
    written.text(r#","processes":{"#)?;
    let mut processes: Vec<(usize, String)> = processes
        .into_iter()
        .map(|(process, number)| (number, process))
        .collect();
    processes.sort_unstable();
    for (number, process) in processes {
        let comma = if number > 1 { "," } else { "" };
        written.text(&format!(r#"{comma}"p{number}":{process}"#))?;
    }
    written.text(r#"},"warnings":"#)?;
    written.json(&list_or_null(&trace.warnings))?;
    written.text("}")
}

fn list_or_null(texts: &[String]) -> Value {
    if texts.is_empty() {
        Value::Null
    } else {
        texts.into()
    }
}

fn process_json(span: &TraceSpan, parts: &SpanParts) -> Value {
    let of_service = |pair: &&KeyValue| pair.key != "service.name";
    let own = parts.resource.attributes.iter().filter(of_service);
    let tags: Vec<Value> = own.map(tag_json).collect();
    json!({"serviceName": span.stored.service, "tags": tags})
}

fn span_json(trace_id: &str, span: &TraceSpan, parts: &SpanParts, process: &str) -> Value {
    let stored = &span.stored;
    let mut references = Vec::new();
    let mut attributes = parts.span.attributes.iter();
    let follows = attributes.any(|pair| pair.key == "follows_from");
    if stored.parent_id != 0 {
        let parent = format!("{:016x}", stored.parent_id);
        let ref_type = if follows { "FOLLOWS_FROM" } else { "CHILD_OF" };
        references.push(json!({"refType": ref_type, "traceID": trace_id, "spanID": parent}));
    }
    references.extend(parts.span.links.iter().map(link_json));
    let start_us = stored.start_ns.div_euclid(1_000);
    let logs = parts.span.events.iter().map(log_json);
    let lines = span.lines.iter().map(|line| log_json(&line.message()));
    json!({
        "traceID": trace_id,
        "spanID": format!("{:016x}", stored.span_id),
        "operationName": stored.name,
        "references": references,
        "startTime": start_us,
        "duration": (stored.end_ns - stored.start_ns).max(0) / 1_000,
        "tags": tags(span, parts),
        "logs": logs.chain(lines).collect::<Vec<_>>(),
        "processID": process,
        "warnings": list_or_null(&span.warnings),
    })
}

/// Converts fields of OTLP to tags, as OpenTelemetry specifies for formats without such fields.
fn tags(span: &TraceSpan, parts: &SpanParts) -> Vec<Value> {
    let (scope, own) = (&parts.scope, &parts.span);
    let mut tags = Vec::new();
    let mut say = |key: &str, text: &str| {
        if !text.is_empty() {
            tags.push(json!({"key": key, "type": "string", "value": text}));
        }
    };
    say("otel.scope.name", &scope.name);
    say("otel.scope.version", &scope.version);
    tags.extend(scope.attributes.iter().map(tag_json));
    let is_told = |pair: &&KeyValue| pair.key != "follows_from";
    tags.extend(own.attributes.iter().filter(is_told).map(tag_json));
    let mut say = |key: &str, text: &str| {
        let said = own.attributes.iter().any(|pair| pair.key == key);
        if !text.is_empty() && !said {
            tags.push(json!({"key": key, "type": "string", "value": text}));
        }
    };
    say("span.kind", kind_name(own.kind));
    let status = own.status.clone().unwrap_or_default();
    let code = match status.code {
        1 => "OK",
        2 => "ERROR",
        _ => "",
    };
    say("otel.status_code", code);
    say("otel.status_description", &status.message);
    say("w3c.tracestate", &own.trace_state);
    // Jaeger's pages mark failed spans by this tag, and do not accept a message in it.
    let mut attributes = own.attributes.iter();
    let says_error = attributes.any(|pair| pair.key == "error" && !is_error_message(pair));
    if span.is_error() && !says_error {
        tags.push(json!({"key": "error", "type": "bool", "value": true}));
    }
    tags
}

fn link_json(link: &Link) -> Value {
    // References from Jaeger carry their type in an attribute; other links of OTLP are
    // `FOLLOWS_FROM`.
    let says_child = link.attributes.iter().any(|pair| {
        let text = pair.value.as_ref().and_then(|value| value.kind.as_ref());
        pair.key == "opentracing.ref_type"
            && matches!(text, Some(AnyKind::Text(text)) if text == "child_of")
    });
    let ref_type = if says_child {
        "CHILD_OF"
    } else {
        "FOLLOWS_FROM"
    };
    json!({"refType": ref_type, "traceID": hex(&link.trace_id), "spanID": hex(&link.span_id)})
}

fn log_json(event: &Event) -> Value {
    let mut fields = Vec::new();
    let says_event = event.attributes.iter().any(|pair| pair.key == "event");
    if !event.name.is_empty() && !says_event {
        fields.push(json!({"key": "event", "type": "string", "value": event.name}));
    }
    fields.extend(event.attributes.iter().map(tag_json));
    json!({"timestamp": event.time_unix_nano / 1_000, "fields": fields})
}

fn tag_json(pair: &KeyValue) -> Value {
    let (kind, value) = tag_value(pair.value.as_ref());
    json!({"key": pair.key, "type": kind, "value": value})
}

/// Converts a value to a type and JSON. Jaeger has no type for lists and maps, so these become JSON
/// text.
fn tag_value(value: Option<&AnyValue>) -> (&'static str, Value) {
    match value.and_then(|value| value.kind.as_ref()) {
        None => ("string", "".into()),
        Some(AnyKind::Text(text)) => ("string", text.as_str().into()),
        Some(AnyKind::Bool(bool)) => ("bool", (*bool).into()),
        Some(AnyKind::Int(int)) => ("int64", (*int).into()),
        Some(AnyKind::Double(double)) if double.is_finite() => ("float64", (*double).into()),
        Some(AnyKind::Double(double)) => ("string", double.to_string().into()),
        Some(AnyKind::Bytes(bytes)) => ("binary", standard_base64(bytes).into()),
        Some(kind @ (AnyKind::Array(_) | AnyKind::Map(_))) => {
            ("string", plain(kind).to_string().into())
        }
    }
}

/// Converts a value to JSON without types.
fn plain(kind: &AnyKind) -> Value {
    let of = |value: Option<&AnyValue>| {
        value
            .and_then(|value| value.kind.as_ref())
            .map_or(Value::Null, plain)
    };
    match kind {
        AnyKind::Array(array) => array.values.iter().map(|item| of(Some(item))).collect(),
        AnyKind::Map(map) => {
            let pairs = map.values.iter();
            let pairs: BTreeMap<&str, Value> = pairs
                .map(|pair| (&*pair.key, of(pair.value.as_ref())))
                .collect();
            json!(pairs)
        }
        AnyKind::Int(int) => (*int).into(),
        other => {
            let kind = Some(other.clone());
            let typed = any_json(&AnyValue { kind });
            let value = typed.as_object().and_then(|typed| typed.values().next());
            value.cloned().unwrap_or_default()
        }
    }
}
