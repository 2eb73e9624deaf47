//! JSON schemas of a tool's arguments and of its answer.

use serde_json::{Map, Value, json};
use stroboscope_reports::form::{Field, FieldKind, VerbPage};
use stroboscope_reports::registry::{Entry, schema_document};

/// Returns the schema of the arguments, from the form of the report.
pub(crate) fn input_schema(form: &VerbPage) -> Map<String, Value> {
    let fields = form.fields.iter();
    let properties = fields.map(|field| (field.name.clone(), property(field)));
    let properties: Map<String, Value> = properties.collect();
    let required = form.fields.iter().filter(|field| field.is_required);
    let required: Vec<&str> = required.map(|field| &*field.name).collect();
    let mut schema = Map::new();
    schema.insert("type".to_owned(), "object".into());
    schema.insert("properties".to_owned(), properties.into());
    if !required.is_empty() {
        schema.insert("required".to_owned(), required.into());
    }
    schema.insert("additionalProperties".to_owned(), false.into());
    schema
}

fn property(field: &Field) -> Value {
    let kind = match &field.kind {
        FieldKind::Flag => json!({"type": "boolean"}),
        FieldKind::Choice(choices) => json!({"type": "string", "enum": choices}),
        FieldKind::Number | FieldKind::Factor => json!({"type": "number"}),
        FieldKind::Text(_) => json!({"type": "string"}),
    };
    let mut property = match field.is_list {
        true => json!({"type": "array", "items": kind}),
        false => kind,
    };
    if !field.help.is_empty() {
        property["description"] = (&*field.help).into();
    }
    if let Some(default) = &field.default {
        let number = match field.kind {
            FieldKind::Number | FieldKind::Factor => default.parse().ok(),
            _ => None,
        };
        property["default"] = number.map_or_else(|| default.as_str().into(), Value::Number);
    }
    property
}

/// Returns the schema of the answer; `None` if the report's type has no schema, or a schema that
/// is not a JSON object, such as `true`.
pub(crate) fn output_schema(entry: &Entry) -> Option<Map<String, Value>> {
    let schema = schema_document(entry.schema?, entry.name).to_value();
    let Value::Object(mut schema) = schema else {
        return None;
    };
    // The protocol requires this type even for a choice between objects.
    schema.insert("type".to_owned(), "object".into());
    Some(schema)
}
