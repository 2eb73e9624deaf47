//! Reads the attribute columns of a record batch row by row.

use std::sync::Arc;

use arrow_array::types::Int32Type;
use arrow_array::{
    Array, BooleanArray, DictionaryArray, Float64Array, Int64Array, RecordBatch, StringArray,
};

use super::members::real_text;
use super::name::{AttributeColumn, ValueType};
use crate::tables::attributes::{AttributeKeys, AttributeValues};
use crate::tables::batch_column::column;
use crate::tables::texts::{StringInterner, TextIndex, TextReader};

/// Selected attribute columns of a record batch.
#[derive(Debug, Default)]
pub(in crate::tables) struct ShreddedColumns {
    columns: Vec<(Arc<str>, Values)>,
    /// True if texts are returned as JSON strings.
    as_json: bool,
}

#[derive(Debug)]
enum Values {
    Bool(BooleanArray),
    Int(Int64Array),
    Real(Float64Array),
    Text(Vec<TextIndex>),
}

impl ShreddedColumns {
    /// Opens the attribute columns whose keys are read.
    pub(in crate::tables) fn open(
        batch: &RecordBatch,
        keys: &AttributeKeys,
        texts: &mut TextReader<'_>,
    ) -> Result<Self, String> {
        let mut columns = Vec::new();
        if keys.is_empty() && !keys.are_weighted() {
            return Ok(Self::default());
        }
        for field in batch.schema_ref().fields() {
            let name = field.name().as_str();
            let Some(found) = AttributeColumn::of_name(name) else {
                continue;
            };
            let Some(key) = keys.get(&found.key, |key| texts.names.get(key)) else {
                continue;
            };
            let values = match found.value_type {
                ValueType::Bool => Values::Bool(column(batch, name)?),
                ValueType::Int => Values::Int(column(batch, name)?),
                ValueType::Real => Values::Real(column(batch, name)?),
                ValueType::Text => Values::Text(text_indexes(batch, name, texts)?),
            };
            columns.push((key, values));
        }
        Ok(Self {
            columns,
            as_json: keys.are_json(),
        })
    }

    /// Adds a row's attributes to `values`, in the form of [`AttributeValues`]. `texts` are the
    /// texts that the text columns refer to.
    pub(in crate::tables) fn add_values(
        &self,
        row: usize,
        texts: &[Arc<str>],
        names: &mut StringInterner,
        values: &mut AttributeValues,
    ) {
        for (key, column) in &self.columns {
            let value = match column {
                Values::Bool(column) => column
                    .is_valid(row)
                    .then(|| names.get(if column.value(row) { "true" } else { "false" })),
                Values::Int(column) => column
                    .is_valid(row)
                    .then(|| names.get(&column.value(row).to_string())),
                Values::Real(column) => column
                    .is_valid(row)
                    .then(|| names.get(&real_text(column.value(row)))),
                Values::Text(column) if self.as_json => column[row].of(texts).map(|text| {
                    let quoted = serde_json::Value::from(&*text).to_string();
                    names.get(&quoted)
                }),
                Values::Text(column) => column[row].of(texts),
            };
            values.extend(value.map(|value| (key.clone(), value)));
        }
    }
}

/// Returns the text indexes of a column, which is a dictionary if this program read it, or plain
/// text if another engine did.
fn text_indexes(
    batch: &RecordBatch,
    name: &str,
    texts: &mut TextReader<'_>,
) -> Result<Vec<TextIndex>, String> {
    if let Ok(plain) = column::<StringArray>(batch, name) {
        return Ok(texts.of_plain(&plain));
    }
    let column: DictionaryArray<Int32Type> = column(batch, name)?;
    let indexes = texts.of_dictionary(&column);
    indexes.map_err(|reason| format!("column {name}: {reason}"))
}
