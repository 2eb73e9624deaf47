//! Converts Arrow types of columns to Delta's.

use arrow_schema::{DataType, Field, Fields, Schema};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Columns whose values are in the names of directories: `date=YYYY-MM-DD/hour=HH`.
pub(super) const PARTITIONS: [&str; 2] = ["date", "hour"];

/// Columns of a table, in order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct DeltaSchema {
    #[serde(rename = "type")]
    kind: StructKind,
    fields: Vec<DeltaField>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum StructKind {
    Struct,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct DeltaField {
    name: String,
    #[serde(rename = "type")]
    data_type: Value,
    nullable: bool,
    metadata: serde_json::Map<String, Value>,
}

impl DeltaField {
    /// Creates a field that may be null, as in files without this column.
    fn new(name: &str, data_type: Value) -> Self {
        Self {
            name: name.into(),
            data_type,
            nullable: true,
            metadata: serde_json::Map::new(),
        }
    }
}

/// Characters that the protocol allows in names only with a mapping of columns, which fewer readers
/// support.
const RESERVED: [char; 10] = [' ', ',', ';', '{', '}', '(', ')', '\n', '\t', '='];

impl DeltaSchema {
    /// Creates the schema of a table without files: the columns by which it is partitioned.
    pub(super) fn new() -> Self {
        let [date, hour] = PARTITIONS;
        Self {
            kind: StructKind::Struct,
            fields: vec![
                DeltaField::new(date, json!("date")),
                DeltaField::new(hour, json!("integer")),
            ],
        }
    }

    /// Parses the schema of a log.
    pub(super) fn parse(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }

    pub(super) fn json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Adds the columns of a file that the schema lacks. Calls `refuse` with the names of columns
    /// that the log cannot have: those of types that `delta_type` rejects, those with reserved
    /// characters, and those that differ from another only in ASCII case, which engines may ignore.
    pub(super) fn add(&mut self, file: &Schema, mut refuse: impl FnMut(&str)) {
        for field in file.fields() {
            let name = field.name();
            let is_alike = |known: &DeltaField| known.name.eq_ignore_ascii_case(name);
            match self.fields.iter().find(|known| is_alike(known)) {
                Some(known) if known.name == *name => continue,
                None if !name.contains(RESERVED) => {
                    if let Some(data_type) = delta_type(field.data_type()) {
                        self.fields.push(DeltaField::new(name, data_type));
                        continue;
                    }
                }
                _ => {}
            }
            refuse(name);
        }
    }
}

/// Returns Delta's type for an Arrow type, as JSON; `None` for types that the store does not use.
fn delta_type(of: &DataType) -> Option<Value> {
    Some(match of {
        DataType::Boolean => json!("boolean"),
        DataType::Int32 => json!("integer"),
        DataType::Int64 | DataType::UInt32 => json!("long"),
        // Delta has no unsigned types. Spark also reads unsigned 64-bit columns as decimals.
        DataType::UInt64 => json!("decimal(20,0)"),
        DataType::Float64 => json!("double"),
        DataType::Utf8 => json!("string"),
        DataType::Binary | DataType::FixedSizeBinary(_) => json!("binary"),
        DataType::Dictionary(_, values) => delta_type(values)?,
        DataType::List(item) => json!({
            "type": "array",
            "elementType": delta_type(item.data_type())?,
            "containsNull": item.is_nullable(),
        }),
        DataType::Struct(fields) => json!({"type": "struct", "fields": delta_fields(fields)?}),
        _ => return None,
    })
}

fn delta_fields(fields: &Fields) -> Option<Vec<DeltaField>> {
    let field = |field: &std::sync::Arc<Field>| {
        let data_type = delta_type(field.data_type())?;
        Some(DeltaField::new(field.name(), data_type))
    };
    fields.iter().map(field).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_united_and_names_that_delta_lacks_are_refused() {
        let file = |names: &[&str]| {
            let field = |name: &&str| Field::new(*name, DataType::Int64, false);
            Schema::new(names.iter().map(field).collect::<Vec<_>>())
        };
        let mut schema = DeltaSchema::new();
        let mut refused = Vec::new();
        schema.add(&file(&["a", "int:user id", "int:userId"]), |name| {
            refused.push(name.to_owned());
        });
        schema.add(&file(&["b", "int:userid", "a", "Hour"]), |name| {
            refused.push(name.to_owned());
        });
        let names: Vec<&str> = schema.fields.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(names, ["date", "hour", "a", "int:userId", "b"]);
        assert_eq!(refused, ["int:user id", "int:userid", "Hour"]);
        assert_eq!(DeltaSchema::parse(&schema.json()).unwrap(), schema);
    }
}
