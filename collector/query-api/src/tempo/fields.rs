//! Fields of TraceQL: which attributes of the store they are.

use std::collections::BTreeSet;
use std::sync::Arc;

use stroboscope_analysis::record::{AttributeRecord, RecordOwner, SpanFlags, TraceRecords};
use stroboscope_foreign::otlp::message::{AnyKind, AnyValue};

use crate::trace::TraceSpan;

/// As [`parse_traceql`](stroboscope_search::parse_traceql) names them.
const STATUS: &str = "span:status";
const OF_ANY: &str = "any:";

/// The attributes that are kept under a field's name.
pub(super) fn kept_names(field: &str) -> Vec<String> {
    match (field, field.strip_prefix(OF_ANY)) {
        (STATUS, _) => vec!["error".to_owned(), "otel.status_code".to_owned()],
        (_, Some(key)) => vec![key.to_owned(), format!("resource.{key}")],
        (field, None) => vec![field.to_owned()],
    }
}

/// Adds to a trace what fields that have no attribute of their own say of each span.
pub(super) fn add_fields(records: &mut TraceRecords, fields: &[String]) {
    let mut added = Vec::new();
    for field in fields {
        let key: Arc<str> = field.as_str().into();
        if field == STATUS {
            for span in &records.spans {
                let said = |key: &str| said(records, span.span_id, key);
                let is_error = span.flags.contains(SpanFlags::PANICKED)
                    || said("error").is_some_and(|value| **value == *"true");
                let is_ok = said("otel.status_code").is_some_and(|value| **value == *"OK");
                added.push((span.span_id, key.clone(), status(is_error, is_ok).into()));
            }
        } else if field.starts_with(OF_ANY) {
            let names = kept_names(field);
            for span in &records.spans {
                let found = names
                    .iter()
                    .find_map(|name| said(records, span.span_id, name));
                added.extend(found.map(|value| (span.span_id, key.clone(), value.clone())));
            }
        }
    }
    let record = |(span_id, key, value)| AttributeRecord {
        owner: RecordOwner::Span(span_id),
        key,
        value,
    };
    records.attributes.extend(added.into_iter().map(record));
}

fn said<'a>(records: &'a TraceRecords, span_id: u64, key: &str) -> Option<&'a Arc<str>> {
    let owner = RecordOwner::Span(span_id);
    let is_it = |said: &&AttributeRecord| said.owner == owner && *said.key == *key;
    records
        .attributes
        .iter()
        .find(is_it)
        .map(|said| &said.value)
}

fn status(is_error: bool, is_ok: bool) -> &'static str {
    match (is_error, is_ok) {
        (true, _) => "error",
        (_, true) => "ok",
        _ => "unset",
    }
}

/// What a span says of fields, by the names that readers know: each once.
pub(super) fn told(span: &TraceSpan, fields: &[String]) -> Vec<(String, AnyValue)> {
    let mut known = BTreeSet::new();
    let mut told = Vec::new();
    for field in fields {
        let Some((name, value)) = one(span, field) else {
            continue;
        };
        if known.insert(name.clone()) {
            told.push((name, value));
        }
    }
    told
}

fn one(span: &TraceSpan, field: &str) -> Option<(String, AnyValue)> {
    let text = |name: &str, text: &str| {
        let kind = Some(AnyKind::Text(text.to_owned()));
        Some((name.to_owned(), AnyValue { kind }))
    };
    match field {
        "name" | "span:name" | "duration" | "span:duration" => return None,
        "service.name" | "resource.service.name" | "any:service.name" => {
            return text("service.name", &span.stored.service);
        }
        "kind" | "span.kind" | "span:kind" => {
            let kind = span.stored.parts().span.kind;
            return text("kind", crate::trace::kind_name(kind));
        }
        STATUS => {
            let code = span
                .stored
                .parts()
                .span
                .status
                .map_or(0, |status| status.code);
            return text("status", status(span.is_error(), code == 1));
        }
        _ => {}
    }
    let names = kept_names(field.strip_prefix("span.").unwrap_or(field));
    let found = names.iter().find_map(|name| {
        let mut attributes = span.stored.attributes.iter();
        attributes.find(|(key, _)| key == name)
    })?;
    let name = found.0.strip_prefix("resource.").unwrap_or(&found.0);
    Some((name.to_owned(), found.1.clone()))
}
