//! Redacts OTLP requests in JSON: parses and rewrites them.

use serde_json::{Map, Value};

use super::{Action, NotWalked, Place, Redaction};

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
        Value::Object(members) => {
            for (name, key) in [
                ("traceState", "w3c.tracestate"),
                ("trace_state", "w3c.tracestate"),
                ("severityText", "log.severity_text"),
                ("severity_text", "log.severity_text"),
            ] {
                text(redaction, members, name, key);
            }
            body(redaction, members);
            for (name, member) in members.iter_mut() {
                match name.as_str() {
                    "attributes" => pairs(redaction, member, Place { of, inside: "" }),
                    "status" => {
                        if let Value::Object(status) = member {
                            text(redaction, status, "message", "otel.status_description");
                        }
                    }
                    "resource" => walk(redaction, member, "resource."),
                    "scope" | "instrumentationLibrary" | "instrumentation_library" => {
                        walk(redaction, member, "scope.");
                    }
                    _ => walk(redaction, member, ""),
                }
            }
        }
        _ => {}
    }
}

/// Redacts the body of a log record, an `AnyValue`.
fn body(redaction: &Redaction, members: &mut Map<String, Value>) {
    const KEY: &str = "log.body";
    let Some(any) = members.get_mut("body") else {
        return;
    };
    match redaction.action(Place::PLAIN, KEY) {
        Action::Keep => {
            let place = Place {
                of: "",
                inside: "log.body.",
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
    match redaction.action(Place::PLAIN, key) {
        Action::Keep => {}
        Action::Drop => drop(members.shift_remove(name)),
        Action::Hash => *value = redaction.hash(&text_of(value)).into(),
    }
}

/// Redacts a list of `KeyValue`.
fn pairs(redaction: &Redaction, list: &mut Value, place: Place<'_>) {
    let Value::Array(list) = list else {
        return;
    };
    list.retain_mut(|pair| {
        let Value::Object(pair) = pair else {
            return true;
        };
        let key = pair.get("key").and_then(Value::as_str).unwrap_or_default();
        let key = key.to_owned();
        match redaction.action(place, &key) {
            Action::Drop => return false,
            Action::Hash => {
                let value = pair.get("value").map(any_text).unwrap_or_default();
                let hash = redaction.hash(&value);
                pair.clear();
                pair.insert("key".to_owned(), key.into());
                pair.insert("value".to_owned(), serde_json::json!({"stringValue": hash}));
            }
            Action::Keep => {
                if let Some(value) = pair.get_mut("value") {
                    let around = format!("{}{key}.", place.inside);
                    let place = Place {
                        inside: &around,
                        ..place
                    };
                    inside(redaction, value, place);
                }
            }
        }
        true
    });
}

/// Redacts the lists and maps inside an `AnyValue` that is itself kept.
fn inside(redaction: &Redaction, any: &mut Value, place: Place<'_>) {
    let Value::Object(any) = any else {
        return;
    };
    for (name, value) in any.iter_mut() {
        let Some(values) = value.get_mut("values") else {
            continue;
        };
        match name.as_str() {
            "kvlistValue" | "kvlist_value" => pairs(redaction, values, place),
            "arrayValue" | "array_value" => {
                for element in values.as_array_mut().into_iter().flatten() {
                    inside(redaction, element, place);
                }
            }
            _ => {}
        }
    }
}

/// Returns an `AnyValue` as text. For strings, numbers and booleans, the text is identical to that
/// in other encodings.
fn any_text(any: &Value) -> Vec<u8> {
    let first = any.as_object().and_then(|any| any.iter().next());
    let Some((name, value)) = first else {
        return Vec::new();
    };
    let double: Option<f64> = match (name.as_str(), value) {
        // Protobuf's JSON has infinity and NaN as strings.
        ("doubleValue" | "double_value", Value::String(text)) => text.parse().ok(),
        ("doubleValue" | "double_value", number) => number.as_f64(),
        _ => None,
    };
    double.map_or_else(|| text_of(value), |double| double.to_string().into_bytes())
}

fn text_of(value: &Value) -> Vec<u8> {
    match value {
        Value::String(text) => text.clone().into_bytes(),
        other => other.to_string().into_bytes(),
    }
}
