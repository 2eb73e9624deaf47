//! Arguments of a call: from JSON to the fields of a report's form.

use serde_json::{Map, Value};
use stroboscope_reports::failure::{Failure, FailureCode};
use stroboscope_reports::form::{Field, FieldKind, VerbPage};

/// Converts the arguments of a call to names and values of the form's fields. Null, and
/// false for a flag, count as absent. The form itself rejects unknown names and wrong values.
///
/// # Errors
/// Fails if the JSON type of a value is wrong.
pub(crate) fn fields_of(
    form: &VerbPage,
    arguments: Map<String, Value>,
) -> Result<Vec<(String, String)>, Failure> {
    let mut pairs = Vec::new();
    for (name, value) in arguments {
        let field = form.fields.iter().find(|field| field.name == name);
        let wrong = |takes: &str| {
            let text = format!("the argument {name} of {} takes {takes}", form.name);
            Failure::coded(FailureCode::Asked, text)
        };
        match (value, field) {
            (Value::Null, _) => {}
            (Value::Bool(is_given), Some(field)) if field.kind == FieldKind::Flag => {
                if is_given {
                    pairs.push((name, "on".to_owned()));
                }
            }
            (_, Some(field)) if field.kind == FieldKind::Flag => {
                return Err(wrong("true or false"));
            }
            (Value::Array(items), Some(field)) if field.is_list => {
                for item in items {
                    let text = text_of(item).ok_or_else(|| wrong("a list of texts"))?;
                    pairs.push((name.clone(), text));
                }
            }
            (value, field) => {
                let text = text_of(value).ok_or_else(|| wrong(taken(field)))?;
                pairs.push((name, text));
            }
        }
    }
    Ok(pairs)
}

fn text_of(value: Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// Describes the JSON type of a field that is not a flag.
fn taken(field: Option<&Field>) -> &'static str {
    match field.map(|field| &field.kind) {
        Some(FieldKind::Number | FieldKind::Factor) => "a number",
        _ => "a text",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use stroboscope_reports::registry::tools;

    use super::*;

    #[test]
    fn values_have_the_types_of_their_fields() {
        let critical_path = tools().find(|entry| entry.name == "critical-path");
        let form = VerbPage::of(&critical_path.unwrap().page.unwrap());
        let check = |arguments: Value, expected: Result<&[(&str, &str)], &str>| {
            let Value::Object(map) = arguments else {
                unreachable!()
            };
            let found = fields_of(&form, map);
            let found = found.map_err(|failure| failure.to_string());
            match (found, expected) {
                (Ok(found), Ok(expected)) => {
                    let found: Vec<(&str, &str)> = found
                        .iter()
                        .map(|(name, value)| (&**name, &**value))
                        .collect();
                    assert_eq!(found, expected);
                }
                (Err(found), Err(expected)) => assert!(found.contains(expected), "{found}"),
                (found, expected) => panic!("{found:?} {expected:?}"),
            }
        };
        check(
            json!({"cdf": true, "include-incomplete": false, "top": 3, "root": null}),
            Ok(&[("cdf", "on"), ("top", "3")]),
        );
        check(
            json!({"request": ["web:get", "web:put"]}),
            Ok(&[("request", "web:get"), ("request", "web:put")]),
        );
        check(json!({"request": "web:get"}), Ok(&[("request", "web:get")]));
        check(
            json!({"cdf": "yes"}),
            Err("cdf of critical-path takes true or false"),
        );
        check(
            json!({"top": [1]}),
            Err("top of critical-path takes a number"),
        );
        check(
            json!({"root": {"name": "x"}}),
            Err("root of critical-path takes a text"),
        );
        check(json!({"request": [[]]}), Err("takes a list of texts"));
        // The form rejects names that it does not have.
        check(json!({"nonsense": 1}), Ok(&[("nonsense", "1")]));
    }
}
