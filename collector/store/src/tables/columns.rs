//! Rows as Arrow columns, in the order of `schema.rs`.

use std::sync::Arc;

use arrow_array::types::Int32Type;
use arrow_array::{
    ArrayRef, BooleanArray, DictionaryArray, FixedSizeBinaryArray, Int32Array, Int64Array, RecordBatch,
    StringArray, UInt32Array, UInt64Array,
};
use arrow_schema::ArrowError;

use super::StoreTable;
use super::lists::{clock_steps, losses, windows};
use super::schema::schema;
use crate::record::{BatchRow, EventRow, KernelClockRow, SpanRow, StringId, Strings};

/// Builds columns for rows that share their strings; the dictionary's values are shared by all columns.
pub(super) struct ColumnBuilder<'a> {
    strings: &'a Strings,
    values: Arc<StringArray>,
}

impl<'a> ColumnBuilder<'a> {
    pub(super) fn new(strings: &'a Strings) -> Self {
        Self { strings, values: Arc::new(StringArray::from_iter_values(strings.iter())) }
    }

    fn dictionary(&self, ids: impl Iterator<Item = Option<StringId>>) -> Result<ArrayRef, ArrowError> {
        let keys: Int32Array = ids.map(|id| id.and_then(|id| i32::try_from(id).ok())).collect();
        Ok(Arc::new(DictionaryArray::<Int32Type>::try_new(keys, self.values.clone())?))
    }

    fn names(&self, ids: impl Iterator<Item = Option<StringId>>) -> ArrayRef {
        Arc::new(ids.map(|id| id.map(|id| self.strings.text(id))).collect::<StringArray>())
    }

    pub(super) fn spans(&self, rows: &[SpanRow]) -> Result<RecordBatch, ArrowError> {
        let columns: Vec<ArrayRef> = vec![
            ids(rows.iter().map(|row| row.trace_id))?,
            self.names(rows.iter().map(|row| row.trace_name)),
            u64s(rows.iter().map(|row| row.span_id)),
            u64s(rows.iter().map(|row| row.parent_id)),
            self.dictionary(rows.iter().map(|row| Some(row.service)))?,
            self.dictionary(rows.iter().map(|row| Some(row.name)))?,
            self.dictionary(rows.iter().map(|row| Some(row.host)))?,
            ids(rows.iter().map(|row| row.process))?,
            times(rows.iter().map(|row| row.start_ns)),
            times(rows.iter().map(|row| row.end_ns)),
            u32s(rows.iter().map(|row| row.flags)),
            Arc::new(rows.iter().map(|row| row.attributes.as_deref()).collect::<StringArray>()),
        ];
        RecordBatch::try_new(schema(StoreTable::Spans), columns)
    }

    pub(super) fn events(&self, rows: &[EventRow]) -> Result<RecordBatch, ArrowError> {
        let columns: Vec<ArrayRef> = vec![
            ids(rows.iter().map(|row| row.trace_id))?,
            self.names(rows.iter().map(|row| row.trace_name)),
            u64s(rows.iter().map(|row| row.span_id)),
            times(rows.iter().map(|row| row.time_ns)),
            u32s(rows.iter().map(|row| row.seq)),
            self.dictionary(rows.iter().map(|row| Some(row.host)))?,
            self.dictionary(rows.iter().map(|row| Some(row.service)))?,
            self.dictionary(rows.iter().map(|row| row.task))?,
            self.dictionary(rows.iter().map(|row| Some(row.name)))?,
            Arc::new(rows.iter().map(|row| row.attributes.as_deref()).collect::<StringArray>()),
        ];
        RecordBatch::try_new(schema(StoreTable::Events), columns)
    }

    pub(super) fn batches(&self, rows: &[BatchRow]) -> Result<RecordBatch, ArrowError> {
        let columns: Vec<ArrayRef> = vec![
            ids(rows.iter().map(|row| row.process))?,
            u64s(rows.iter().map(|row| row.sequence)),
            self.dictionary(rows.iter().map(|row| Some(row.service)))?,
            self.dictionary(rows.iter().map(|row| Some(row.host)))?,
            u32s(rows.iter().map(|row| row.pid)),
            times(rows.iter().map(|row| row.started_ns)),
            self.dictionary(rows.iter().map(|row| Some(row.sdk_version)))?,
            times(rows.iter().map(|row| row.from_ns)),
            times(rows.iter().map(|row| row.to_ns)),
            times(rows.iter().map(|row| row.received_ns)),
            u64s(rows.iter().map(|row| row.burst_config)),
            u32s(rows.iter().map(|row| row.spans)),
            u32s(rows.iter().map(|row| row.events)),
            windows(rows)?,
            losses(rows, self.strings)?,
            clock_steps(rows)?,
            Arc::new(clocks(rows).map(|said| said.map(|said| said.synchronised)).collect::<BooleanArray>()),
            Arc::new(clocks(rows).map(|said| said.map(|said| said.max_error_ns)).collect::<Int64Array>()),
            Arc::new(
                clocks(rows).map(|said| said.map(|said| said.estimated_error_ns)).collect::<Int64Array>(),
            ),
        ];
        RecordBatch::try_new(schema(StoreTable::Batches), columns)
    }
}

fn clocks(rows: &[BatchRow]) -> impl Iterator<Item = Option<KernelClockRow>> {
    rows.iter().map(|row| row.kernel_clock)
}

fn ids(values: impl ExactSizeIterator<Item = u128>) -> Result<ArrayRef, ArrowError> {
    let mut bytes = Vec::with_capacity(values.len() * 16);
    values.for_each(|value| bytes.extend_from_slice(&value.to_be_bytes()));
    Ok(Arc::new(FixedSizeBinaryArray::try_new(16, bytes.into(), None)?))
}

fn u64s(values: impl Iterator<Item = u64>) -> ArrayRef {
    Arc::new(UInt64Array::from_iter_values(values))
}

fn u32s(values: impl Iterator<Item = u32>) -> ArrayRef {
    Arc::new(UInt32Array::from_iter_values(values))
}

fn times(values: impl Iterator<Item = i64>) -> ArrayRef {
    Arc::new(Int64Array::from_iter_values(values))
}
