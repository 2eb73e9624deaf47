//! Folds attribute columns back into JSON, because a merged file has the columns of all its inputs
//! only up to a limit.

use std::collections::BTreeSet;

use arrow_array::types::{Float64Type, Int32Type, Int64Type};
use arrow_array::{Array, RecordBatch, StringArray, cast::AsArray as _};
use arrow_schema::Schema;

use super::members::real_text;
use super::name::{AttributeColumn, ValueType};
use crate::tables::names::ATTRIBUTES;

/// Maximum number of attribute columns in a merged file. More keys than these are probably
/// generated dynamically.
const MERGED_COLUMNS_MAX: usize = 512;

/// Returns the names of the attribute columns that a merged file drops, which are the rarest ones
/// beyond the limit. `columns` are the names of columns, each with the number of rows that have a
/// value in it.
pub(in crate::tables) fn folded(
    columns: impl IntoIterator<Item = (String, u64)>,
) -> BTreeSet<String> {
    let mut columns: Vec<_> = columns.into_iter().collect();
    columns.retain(|(name, _)| AttributeColumn::of_name(name).is_some());
    columns.sort_unstable_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    let rest = columns.into_iter().skip(MERGED_COLUMNS_MAX);
    rest.map(|(name, _)| name).collect()
}

/// Returns the JSON column of a batch, extended by the values of the attribute columns that `kept`
/// lacks. Returns `None` if `kept` has all of them.
pub(in crate::tables) fn fold(
    batch: &RecordBatch,
    kept: &Schema,
) -> Result<Option<StringArray>, String> {
    let fields = batch.schema_ref().fields().iter().zip(batch.columns());
    let gone = fields.filter_map(|(field, values)| {
        let column = AttributeColumn::of_name(field.name())?;
        kept.index_of(field.name())
            .is_err()
            .then_some((column, values))
    });
    let gone: Vec<_> = gone.collect();
    if gone.is_empty() {
        return Ok(None);
    }
    let json = batch.column_by_name(ATTRIBUTES);
    let json = json.and_then(|column| column.as_string_opt::<i32>());
    let mut members = vec![String::new(); batch.num_rows()];
    for (column, values) in &gone {
        let key = serde_json::Value::from(&*column.key).to_string();
        let of_type = || format!("column {} is not of its type", column.name());
        let mut add = |row: usize, value: &str| {
            let members = &mut members[row];
            if !members.is_empty() {
                members.push(',');
            }
            members.push_str(&key);
            members.push(':');
            members.push_str(value);
        };
        let rows = (0..batch.num_rows()).filter(|row| values.is_valid(*row));
        match column.value_type {
            ValueType::Bool => {
                let values = values.as_boolean_opt().ok_or_else(of_type)?;
                rows.for_each(|row| add(row, if values.value(row) { "true" } else { "false" }));
            }
            ValueType::Int => {
                let values = values.as_primitive_opt::<Int64Type>().ok_or_else(of_type)?;
                rows.for_each(|row| add(row, &values.value(row).to_string()));
            }
            ValueType::Real => {
                let values = values.as_primitive_opt::<Float64Type>();
                let values = values.ok_or_else(of_type)?;
                rows.for_each(|row| add(row, &real_text(values.value(row))));
            }
            ValueType::Text => {
                let values = values.as_dictionary_opt::<Int32Type>();
                let values = values.ok_or_else(of_type)?;
                let texts = values.values().as_string_opt::<i32>().ok_or_else(of_type)?;
                let text = |row| values.key(row).map_or("", |key| texts.value(key));
                rows.for_each(|row| add(row, &serde_json::Value::from(text(row)).to_string()));
            }
        }
    }
    let rows = members.into_iter().enumerate();
    let folded = rows.map(|(row, members)| {
        let said = json.filter(|json| json.is_valid(row));
        with(said.map(|json| json.value(row)), &members)
    });
    Ok(Some(folded.collect()))
}

/// Adds members to the text of a JSON object, and creates an object if there is none. Returns
/// `None` if there are neither JSON nor members.
fn with(said: Option<&str>, members: &str) -> Option<String> {
    if members.is_empty() {
        return said.map(str::to_owned);
    }
    // Replaces JSON that is not an object. This loses nothing, because such a row has no values in
    // columns.
    let inside = said.and_then(|said| said.trim().strip_prefix('{')?.strip_suffix('}'));
    Some(match inside.map(str::trim) {
        None | Some("") => format!("{{{members}}}"),
        Some(inside) => format!("{{{inside},{members}}}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_join_an_object() {
        let check = |said: Option<&str>, members: &str, expected: Option<&str>| {
            assert_eq!(with(said, members).as_deref(), expected);
        };
        check(None, "", None);
        check(Some("[]"), "", Some("[]"));
        check(None, r#""a":1"#, Some(r#"{"a":1}"#));
        check(Some("{ }"), r#""a":1"#, Some(r#"{"a":1}"#));
        check(Some(r#"{"b":{}} "#), r#""a":1"#, Some(r#"{"b":{},"a":1}"#));
    }

    #[test]
    fn the_rarest_are_folded() {
        let columns = (0..600_u64).map(|n| (format!("int:{n:03}"), n));
        let folded = folded(columns.chain([("start_ns".to_owned(), 0)]));
        assert_eq!(folded.len(), 600 - MERGED_COLUMNS_MAX);
        assert!(folded.contains("int:000") && !folded.contains("int:599"));
    }
}
