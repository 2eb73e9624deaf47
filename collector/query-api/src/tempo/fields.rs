//! Values of TraceQL's fields, in the form that clients of Tempo expect.

use std::collections::BTreeSet;

use stroboscope_otlp::message::{AnyKind, AnyValue, KeyValue};
use stroboscope_search::Field;

use crate::trace::{TraceSpan, is_error_message};

fn status(is_error: bool, is_ok: bool) -> &'static str {
    match (is_error, is_ok) {
        (true, _) => "error",
        (_, true) => "ok",
        _ => "unset",
    }
}

/// Returns a span's service, kind, status and attributes, as far as `fields` lists them, by the
/// names that clients expect. Each name occurs once.
pub(super) fn told(span: &TraceSpan, fields: &[Field]) -> Vec<(String, AnyValue)> {
    let mut known = BTreeSet::new();
    let told = fields.iter().filter_map(|field| one(span, field));
    let told = told.filter(|(name, _)| known.insert(name.clone()));
    told.collect()
}

fn one(span: &TraceSpan, field: &Field) -> Option<(String, AnyValue)> {
    let text = |name: &str, text: &str| {
        let kind = Some(AnyKind::Text(text.to_owned()));
        Some((name.to_owned(), AnyValue { kind }))
    };
    match field {
        Field::Service => return text("service.name", &span.stored.service),
        Field::Kind => {
            let kind = span.stored.parts().span.kind;
            return text("kind", crate::trace::kind_name(kind));
        }
        Field::Status => {
            let parts = span.stored.parts().span;
            let code = parts.status.map_or(0, |status| status.code);
            let is_own = |pair: &KeyValue| pair.key == "error" && !is_error_message(pair);
            let is_own = parts.attributes.iter().any(is_own);
            let is_error = code == 2 || (span.is_error() && !is_own);
            return text("status", status(is_error, code == 1));
        }
        _ => {}
    }
    let found = field.asked_keys().into_iter().find_map(|name| {
        let mut attributes = span.stored.attributes.iter();
        attributes.find(|(key, _)| *key == name)
    })?;
    let name = match field {
        // Fields of events are not returned.
        Field::Event(_) => return None,
        _ => found.0.strip_prefix("resource.").unwrap_or(&found.0),
    };
    Some((name.to_owned(), found.1.clone()))
}
