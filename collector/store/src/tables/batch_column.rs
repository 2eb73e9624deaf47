//! One column of a batch, by its name and type.

use arrow_array::{Array, RecordBatch};

/// Column `name` of a batch as `A`.
pub(super) fn column<A: Array + Clone + 'static>(
    batch: &RecordBatch,
    name: &str,
) -> Result<A, String> {
    optional_column(batch, name)?.ok_or_else(|| format!("it has no column {name}"))
}

/// The same; none where there is no such column.
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
