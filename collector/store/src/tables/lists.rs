//! Columns of lists of small structs: windows, losses, clock steps.

use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, ListArray, StringArray, StructArray, UInt64Array};
use arrow_buffer::OffsetBuffer;
use arrow_schema::{ArrowError, Fields};

use super::schema::{clock_step_fields, item_field, loss_fields, window_fields};
use crate::record::{BatchRow, Strings};

fn list(
    fields: Fields,
    lengths: impl Iterator<Item = usize>,
    columns: Vec<ArrayRef>,
) -> Result<ArrayRef, ArrowError> {
    let items = StructArray::try_new(fields.clone(), columns, None)?;
    let offsets = OffsetBuffer::from_lengths(lengths);
    Ok(Arc::new(ListArray::try_new(Arc::new(item_field(fields)), offsets, Arc::new(items), None)?))
}

pub(super) fn windows(rows: &[BatchRow]) -> Result<ArrayRef, ArrowError> {
    let all = || rows.iter().flat_map(|row| &row.windows);
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_iter_values(all().map(|window| window.open_ns))),
        Arc::new(Int64Array::from_iter_values(all().map(|window| window.close_ns))),
        Arc::new(UInt64Array::from_iter_values(all().map(|window| window.burst_config))),
    ];
    list(window_fields(), rows.iter().map(|row| row.windows.len()), columns)
}

pub(super) fn losses(rows: &[BatchRow], strings: &Strings) -> Result<ArrayRef, ArrowError> {
    let all = || rows.iter().flat_map(|row| &row.losses);
    let columns: Vec<ArrayRef> = vec![
        Arc::new(all().map(|loss| Some(strings.text(loss.0))).collect::<StringArray>()),
        Arc::new(UInt64Array::from_iter_values(all().map(|loss| loss.1))),
    ];
    list(loss_fields(), rows.iter().map(|row| row.losses.len()), columns)
}

pub(super) fn clock_steps(rows: &[BatchRow]) -> Result<ArrayRef, ArrowError> {
    let all = || rows.iter().flat_map(|row| &row.clock_steps);
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_iter_values(all().map(|step| step.0))),
        Arc::new(Int64Array::from_iter_values(all().map(|step| step.1))),
    ];
    list(clock_step_fields(), rows.iter().map(|row| row.clock_steps.len()), columns)
}
