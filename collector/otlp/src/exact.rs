//! Keeps the exact form of values that JSON cannot express.
//!
//! Bytes are stored as hex digits, and infinity and NaN as their names, which could also be texts.
//! A map with duplicate keys loses some of its values. The attribute `otel.exact` contains such
//! values a second time, by key, in the notation of OTLP's JSON. Log records mostly lack it.

use serde_json::{Map, Value, json};

use super::message::{AnyKind, AnyValue, KeyValue};
use crate::{Attributes, standard_base64};

/// Attribute with the exact values, by key.
pub(super) const EXACT: &str = "otel.exact";

/// Reports whether JSON expresses the value exactly.
fn is_exact(value: &AnyValue) -> bool {
    let all = |pairs: &[KeyValue]| {
        pairs
            .iter()
            .all(|pair| pair.value.as_ref().is_none_or(is_exact))
    };
    match &value.kind {
        None | Some(AnyKind::Text(_) | AnyKind::Bool(_) | AnyKind::Int(_)) => true,
        Some(AnyKind::Double(double)) => double.is_finite(),
        Some(AnyKind::Array(array)) => array.values.iter().all(is_exact),
        Some(AnyKind::Map(map)) => !has_twice(&map.values) && all(&map.values),
        Some(AnyKind::Bytes(_)) => false,
    }
}

fn has_twice(pairs: &[KeyValue]) -> bool {
    let keys: std::collections::BTreeSet<&str> = pairs.iter().map(|pair| &*pair.key).collect();
    keys.len() < pairs.len()
}

/// Adds a value to [`EXACT`] if JSON does not express it exactly. Otherwise removes the former
/// value of its key from there.
pub(super) fn note_inexact(attributes: &mut Attributes, key: &str, value: Option<&AnyValue>) {
    if let Some(value) = value.filter(|value| !is_exact(value)) {
        let exact = attributes.entry(EXACT).or_insert_with(|| Map::new().into());
        if let Value::Object(exact) = exact {
            exact.insert(key.to_owned(), any_json(value));
        }
    } else if let Some(Value::Object(exact)) = attributes.get_mut(EXACT) {
        exact.remove(key);
        if exact.is_empty() {
            attributes.remove(EXACT);
        }
    }
}

/// Converts a value to OTLP's JSON.
#[must_use]
pub fn any_json(value: &AnyValue) -> Value {
    match &value.kind {
        None => json!({}),
        Some(AnyKind::Text(text)) => json!({"stringValue": text}),
        Some(AnyKind::Bool(bool)) => json!({"boolValue": bool}),
        Some(AnyKind::Int(int)) => json!({"intValue": int.to_string()}),
        Some(AnyKind::Double(double)) if double.is_nan() => json!({"doubleValue": "NaN"}),
        Some(AnyKind::Double(double)) if double.is_infinite() => {
            let sign = if *double > 0.0 { "" } else { "-" };
            json!({"doubleValue": format!("{sign}Infinity")})
        }
        Some(AnyKind::Double(double)) => json!({"doubleValue": double}),
        Some(AnyKind::Array(array)) => {
            let values: Vec<Value> = array.values.iter().map(any_json).collect();
            json!({"arrayValue": {"values": values}})
        }
        Some(AnyKind::Map(map)) => json!({"kvlistValue": {"values": pairs_json(&map.values)}}),
        Some(AnyKind::Bytes(bytes)) => json!({"bytesValue": standard_base64(bytes)}),
    }
}

/// Converts attributes to OTLP's JSON.
#[must_use]
pub fn pairs_json(pairs: &[KeyValue]) -> Value {
    let pair = |pair: &KeyValue| match &pair.value {
        Some(value) => json!({"key": pair.key, "value": any_json(value)}),
        None => json!({"key": pair.key}),
    };
    pairs.iter().map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exact_form_is_that_of_the_last_value() {
        let mut attributes = Attributes::new();
        let mut note = |key: &str, kind: AnyKind| {
            let value = AnyValue { kind: Some(kind) };
            note_inexact(&mut attributes, key, Some(&value));
            attributes.get(EXACT).cloned()
        };
        let infinity = json!({"doubleValue": "Infinity"});
        note("twice", AnyKind::Bytes(vec![1]));
        note("once", AnyKind::Double(f64::INFINITY));
        let exact = note("twice", AnyKind::Text("text".to_owned()));
        assert_eq!(exact, Some(json!({"once": infinity})));
        assert_eq!(note("once", AnyKind::Int(1)), None);
    }
}
