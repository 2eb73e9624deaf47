//! Redacts OTLP requests in JSON: parses and rewrites them.

use std::borrow::Cow;

use serde_json::{Map, Value};
use stroboscope_otlp::standard_bytes;

use super::{ALL_MASKS, Action, NotWalked, Place, Redaction, Verdict, whole};

/// Members with texts that the store keeps as attributes.
const TEXTS: &[(&str, &str)] = &[
    ("traceState", "w3c.tracestate"),
    ("trace_state", "w3c.tracestate"),
    ("severityText", "log.severity_text"),
    ("severity_text", "log.severity_text"),
];
/// Members of a span's status with texts that the store keeps as attributes.
const STATUS_TEXTS: &[(&str, &str)] = &[("message", "otel.status_description")];

pub(super) fn redacted(redaction: &Redaction, request: &[u8]) -> Result<Vec<u8>, NotWalked> {
    let mut request: Value = serde_json::from_slice(request).map_err(|_| NotWalked)?;
    walk(redaction, &mut request, "");
    serde_json::to_vec(&request).map_err(|_| NotWalked)
}

/// Redacts a value and everything in it. Attributes are in lists named `attributes`. `of` is the
/// prefix of their keys in the store.
fn walk(redaction: &Redaction, value: &mut Value, of: &'static str) {
    match value {
        Value::Array(elements) => {
            for element in elements {
                walk(redaction, element, of);
            }
        }
        Value::Object(members) => object(redaction, members, of, TEXTS),
        leaf => mask(redaction, leaf, ALL_MASKS),
    }
}

fn object(
    redaction: &Redaction,
    members: &mut Map<String, Value>,
    of: &'static str,
    texts: &[(&str, &str)],
) {
    for (name, key) in texts {
        text(redaction, members, name, key);
    }
    body(redaction, members);
    for (name, member) in members.iter_mut() {
        match (name.as_str(), member) {
            ("attributes", member) => pairs(redaction, member, Place::of(of)),
            ("status", Value::Object(status)) => object(redaction, status, "", STATUS_TEXTS),
            ("resource", member) => walk(redaction, member, "resource."),
            ("scope" | "instrumentationLibrary" | "instrumentation_library", member) => {
                walk(redaction, member, "scope.");
            }
            ("body", _) => {}
            (name, _) if texts.iter().any(|text| text.0 == name) => {}
            (name, Value::String(_) | Value::Number(_)) if !is_text(name) => {}
            (_, member) => walk(redaction, member, ""),
        }
    }
}

/// Reports whether masks apply to a text or number in a member of this name. They do not apply to
/// ids, times, counts, codes, kinds, severity numbers or flags.
fn is_text(name: &str) -> bool {
    let name = name.replace('_', "").to_ascii_lowercase();
    let is_number = ["unixnano", "count", "code"]
        .iter()
        .any(|end| name.ends_with(end));
    let others = [
        "traceid",
        "spanid",
        "parentspanid",
        "kind",
        "severitynumber",
        "flags",
    ];
    !is_number && !others.contains(&&*name)
}

/// Masks a text or a whole number; a masked number becomes a text.
fn mask(redaction: &Redaction, leaf: &mut Value, masks: usize) {
    if let Some(masked) = leaf_text(leaf).and_then(|text| redaction.masked(&text, masks)) {
        *leaf = masked.into();
    }
}

/// Returns the text of a string or a whole number.
fn leaf_text(leaf: &Value) -> Option<Cow<'_, str>> {
    match leaf {
        Value::String(text) => Some(text.into()),
        Value::Number(number) if number.is_f64() => number.as_f64().and_then(whole).map(Cow::Owned),
        Value::Number(number) => Some(number.to_string().into()),
        _ => None,
    }
}

/// Redacts the body of a log record, an `AnyValue`.
fn body(redaction: &Redaction, members: &mut Map<String, Value>) {
    const KEY: &str = "log.body";
    let Some(any) = members.get_mut("body") else {
        return;
    };
    let Verdict { action, masks } = redaction.verdict(Place::PLAIN, KEY);
    match action {
        Action::Keep => {
            let place = Place {
                of: "",
                inside: "log.body.",
                masks,
            };
            inside(redaction, any, place);
        }
        Action::Drop => drop(members.shift_remove("body")),
        Action::Hash => *any = serde_json::json!({"stringValue": redaction.hash(&any_text(any))}),
    }
}

/// Redacts the member `name` of an object, which the store keeps as the attribute `key`.
fn text(redaction: &Redaction, members: &mut Map<String, Value>, name: &str, key: &str) {
    let Some(value) = members.get_mut(name) else {
        return;
    };
    let Verdict { action, masks } = redaction.verdict(Place::PLAIN, key);
    match action {
        Action::Keep => mask(redaction, value, masks),
        Action::Drop => drop(members.shift_remove(name)),
        Action::Hash => *value = redaction.hash(&text_of(value)).into(),
    }
}

/// Redacts a list of `KeyValue`.
fn pairs(redaction: &Redaction, list: &mut Value, place: Place<'_>) {
    let Value::Array(list) = list else {
        return walk(redaction, list, "");
    };
    list.retain_mut(|pair| {
        let Value::Object(pair) = pair else {
            walk(redaction, pair, "");
            return true;
        };
        let key = pair.get("key").and_then(Value::as_str).unwrap_or_default();
        let key = key.to_owned();
        let Verdict { action, masks } = redaction.verdict(place, &key);
        match action {
            Action::Drop => return false,
            Action::Hash => {
                let value = pair.get("value").map(any_text).unwrap_or_default();
                let hash = redaction.hash(&value);
                pair.clear();
                let masked = redaction.masked(&key, masks).unwrap_or(key);
                pair.insert("key".to_owned(), masked.into());
                pair.insert("value".to_owned(), serde_json::json!({"stringValue": hash}));
            }
            Action::Keep => {
                let around = format!("{}{key}.", place.inside);
                let place = Place {
                    inside: &around,
                    masks,
                    ..place
                };
                for (name, member) in pair.iter_mut() {
                    match name.as_str() {
                        "key" => mask(redaction, member, masks),
                        "value" => inside(redaction, member, place),
                        _ => walk(redaction, member, ""),
                    }
                }
            }
        }
        true
    });
}

/// Masks an `AnyValue` that is kept, and redacts the lists and maps inside it. A number or bytes
/// become a text if a mask matches.
fn inside(redaction: &Redaction, any: &mut Value, place: Place<'_>) {
    let Value::Object(any) = any else {
        return walk(redaction, any, "");
    };
    let mut masked = None;
    for (name, value) in any.iter_mut() {
        match (name.as_str(), value.get_mut("values")) {
            ("kvlistValue" | "kvlist_value", Some(values)) => pairs(redaction, values, place),
            ("arrayValue" | "array_value", Some(Value::Array(elements))) => {
                for element in elements {
                    inside(redaction, element, place);
                }
            }
            ("stringValue" | "string_value", _) => mask(redaction, value, place.masks),
            (
                "intValue" | "int_value" | "doubleValue" | "double_value" | "bytesValue"
                | "bytes_value",
                _,
            ) => {
                if let Some(text) = masked_scalar(redaction, name, value, place.masks) {
                    (masked, *value) = (Some(text), Value::Null);
                }
            }
            _ => walk(redaction, value, ""),
        }
    }
    if let Some(masked) = masked {
        any.retain(|_, value| !value.is_null());
        if !any.contains_key("string_value") {
            let text = any.entry("stringValue");
            text.or_insert(masked.into());
        }
    }
}

/// Returns the replacement of a number or of bytes in which a mask matches.
fn masked_scalar(redaction: &Redaction, name: &str, value: &Value, masks: usize) -> Option<String> {
    if redaction.masks(masks).is_empty() {
        return None;
    }
    let bytes = || standard_bytes(value.as_str()?);
    let text = match name {
        "bytesValue" | "bytes_value" => {
            if let Some(masked) = bytes().and_then(|bytes| redaction.masked_bytes(&bytes, masks)) {
                return Some(masked);
            }
            leaf_text(value)
        }
        _ => match double_of(name, value) {
            Some(double) => whole(double).map(Cow::Owned),
            None => leaf_text(value),
        },
    };
    redaction.masked(&text?, masks)
}

/// Returns an `AnyValue` as text. For strings, booleans and canonical numbers (`5`, not `05`), the
/// text is identical to that in other encodings.
fn any_text(any: &Value) -> Vec<u8> {
    let first = any.as_object().and_then(|any| any.iter().next());
    let Some((name, value)) = first else {
        return Vec::new();
    };
    double_of(name, value).map_or_else(|| text_of(value), |double| double.to_string().into_bytes())
}

/// Returns the value of a member of an `AnyValue` if it is a double.
fn double_of(name: &str, value: &Value) -> Option<f64> {
    match (name, value) {
        // Protobuf's JSON has infinity and NaN as strings.
        ("doubleValue" | "double_value", Value::String(text)) => text.parse().ok(),
        ("doubleValue" | "double_value", number) => number.as_f64(),
        _ => None,
    }
}

fn text_of(value: &Value) -> Vec<u8> {
    match value {
        Value::String(text) => text.clone().into_bytes(),
        other => other.to_string().into_bytes(),
    }
}
