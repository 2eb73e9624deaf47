//! Finds a column of a record batch by its name and type.

use arrow_array::{Array, RecordBatch};

/// Returns column `name` of a record batch as an array of type `A`.
pub(super) fn column<A: Array + Clone + 'static>(
    batch: &RecordBatch,
    name: &str,
) -> Result<A, String> {
    optional_column(batch, name)?.ok_or_else(|| format!("it has no column {name}"))
}

/// Returns column `name` of a record batch as an array of type `A`; `None` if it does not exist.
pub(super) fn optional_column<A: Array + Clone + 'static>(
    batch: &RecordBatch,
    name: &str,
) -> Result<Option<A>, String> {
    let Some(column) = batch.column_by_name(name) else {
        return Ok(None);
    };
    let typed = column.as_any().downcast_ref::<A>().cloned();
    typed
        .map(Some)
        .ok_or_else(|| format!("column {name} is of type {}", column.data_type()))
}
