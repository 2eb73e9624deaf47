//! Converts OTLP's messages to its JSON: ids as hex digits, 64-bit integers as texts, enumerations
//! as numbers, lower camel case. Most unset fields are omitted.

use serde_json::{Map, Value, json};

use super::exact::pairs_json;
use super::message::{Event, Link, ResourceSpans, Scope, ScopeSpans, Span};
use crate::hex;

/// Builds one element of `resourceSpans`.
#[must_use]
pub fn resource_spans_json(message: &ResourceSpans) -> Value {
    let mut json = Map::new();
    if let Some(resource) = &message.resource {
        let mut of_resource = Map::new();
        of_resource.insert("attributes".to_owned(), pairs_json(&resource.attributes));
        let dropped = resource.dropped_attributes_count;
        say_count(&mut of_resource, "droppedAttributesCount", dropped);
        json.insert("resource".to_owned(), of_resource.into());
    }
    let scopes = message.scope_spans.iter().map(scope_spans_json);
    json.insert("scopeSpans".to_owned(), scopes.collect());
    say_text(&mut json, "schemaUrl", &message.schema_url);
    json.into()
}

fn scope_spans_json(message: &ScopeSpans) -> Value {
    let mut json = Map::new();
    let scope = message.scope.as_ref().map_or(json!({}), scope_json);
    json.insert("scope".to_owned(), scope);
    let spans = message.spans.iter().map(span_json);
    json.insert("spans".to_owned(), spans.collect());
    say_text(&mut json, "schemaUrl", &message.schema_url);
    json.into()
}

fn scope_json(scope: &Scope) -> Value {
    let mut json = Map::new();
    say_text(&mut json, "name", &scope.name);
    say_text(&mut json, "version", &scope.version);
    say_list(&mut json, "attributes", pairs_json(&scope.attributes));
    let dropped = scope.dropped_attributes_count;
    say_count(&mut json, "droppedAttributesCount", dropped);
    json.into()
}

fn span_json(span: &Span) -> Value {
    let mut json = Map::new();
    json.insert("traceId".to_owned(), hex(&span.trace_id).into());
    json.insert("spanId".to_owned(), hex(&span.span_id).into());
    say_text(&mut json, "traceState", &span.trace_state);
    say_text(&mut json, "parentSpanId", &hex(&span.parent_span_id));
    say_count(&mut json, "flags", span.flags);
    json.insert("name".to_owned(), span.name.as_str().into());
    if span.kind != 0 {
        json.insert("kind".to_owned(), span.kind.into());
    }
    let times = [
        ("startTimeUnixNano", span.start_time_unix_nano),
        ("endTimeUnixNano", span.end_time_unix_nano),
    ];
    for (key, time) in times {
        json.insert(key.to_owned(), time.to_string().into());
    }
    say_list(&mut json, "attributes", pairs_json(&span.attributes));
    say_list(
        &mut json,
        "events",
        span.events.iter().map(event_json).collect(),
    );
    say_list(
        &mut json,
        "links",
        span.links.iter().map(link_json).collect(),
    );
    for (key, dropped) in [
        ("droppedAttributesCount", span.dropped_attributes_count),
        ("droppedEventsCount", span.dropped_events_count),
        ("droppedLinksCount", span.dropped_links_count),
    ] {
        say_count(&mut json, key, dropped);
    }
    let mut of_status = Map::new();
    if let Some(status) = &span.status {
        say_text(&mut of_status, "message", &status.message);
        if status.code != 0 {
            of_status.insert("code".to_owned(), status.code.into());
        }
        if status.deprecated_code != 0 {
            of_status.insert("deprecatedCode".to_owned(), status.deprecated_code.into());
        }
    }
    json.insert("status".to_owned(), of_status.into());
    json.into()
}

fn event_json(event: &Event) -> Value {
    let mut json = Map::new();
    let time = event.time_unix_nano.to_string();
    json.insert("timeUnixNano".to_owned(), time.into());
    json.insert("name".to_owned(), event.name.as_str().into());
    say_list(&mut json, "attributes", pairs_json(&event.attributes));
    let dropped = event.dropped_attributes_count;
    say_count(&mut json, "droppedAttributesCount", dropped);
    json.into()
}

fn link_json(link: &Link) -> Value {
    let mut json = Map::new();
    json.insert("traceId".to_owned(), hex(&link.trace_id).into());
    json.insert("spanId".to_owned(), hex(&link.span_id).into());
    say_text(&mut json, "traceState", &link.trace_state);
    say_list(&mut json, "attributes", pairs_json(&link.attributes));
    let dropped = link.dropped_attributes_count;
    say_count(&mut json, "droppedAttributesCount", dropped);
    say_count(&mut json, "flags", link.flags);
    json.into()
}

fn say_text(json: &mut Map<String, Value>, key: &str, text: &str) {
    if !text.is_empty() {
        json.insert(key.to_owned(), text.into());
    }
}

fn say_count(json: &mut Map<String, Value>, key: &str, count: u32) {
    if count > 0 {
        json.insert(key.to_owned(), count.into());
    }
}

fn say_list(json: &mut Map<String, Value>, key: &str, list: Value) {
    if list.as_array().is_some_and(|list| !list.is_empty()) {
        json.insert(key.to_owned(), list);
    }
}
