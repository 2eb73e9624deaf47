//! Reads the starts of spans in one file from five of its columns, without building rows.

use arrow_array::types::Int32Type;
use arrow_array::{DictionaryArray, Int64Array, RecordBatch, UInt32Array, UInt64Array};
use object_store::path::Path;
use rustc_hash::FxHashMap;
use stroboscope_analysis::record::SpanFlags;

use super::batch_column::column;
use super::objects::Store;
use super::operations::text;
use super::partition::StoreTable;
use super::read_budget::ReadBudget;
use super::reader::{Damage, TableReader};

const COLUMNS: [&str; 5] = ["parent_id", "service", "name", "start_ns", "flags"];

/// Passes the start of each span (ns since the Unix epoch) to `visit`, with the number that the
/// caller gives its operation. `number` returns this number for a service, a name, and a flag that
/// is true for spans without a parent. Skips spans for which `number` returns `None`, and client
/// spans with a parent. Reads a damaged file up to its damage.
///
/// # Errors
/// Returns an error if the file could not be read completely.
pub fn visit_span_starts(
    store: &Store,
    object: &(Path, u64),
    mut number: impl FnMut(&str, &str, bool) -> Option<u32>,
    mut visit: impl FnMut(u32, i64),
) -> Result<(), Damage> {
    let budget = ReadBudget::of(1);
    let mut reader = TableReader::open(store, StoreTable::Spans, object, &COLUMNS, budget);
    while let Some(batch) = reader.next_batch() {
        if let Err(reason) = visit_batch(&batch, &mut number, &mut visit) {
            reader.refuse(&batch, reason);
        }
    }
    reader.damage().cloned().map_or(Ok(()), Err)
}

fn visit_batch(
    batch: &RecordBatch,
    number: &mut impl FnMut(&str, &str, bool) -> Option<u32>,
    visit: &mut impl FnMut(u32, i64),
) -> Result<(), String> {
    let parents: UInt64Array = column(batch, "parent_id")?;
    let starts: Int64Array = column(batch, "start_ns")?;
    let flags: UInt32Array = column(batch, "flags")?;
    let services: DictionaryArray<Int32Type> = column(batch, "service")?;
    let names: DictionaryArray<Int32Type> = column(batch, "name")?;
    // Looks each combination up once per batch.
    let mut numbers: FxHashMap<(i32, i32, bool), Option<u32>> = FxHashMap::default();
    for row in 0..batch.num_rows() {
        let is_root = parents.value(row) == 0;
        if !is_root && SpanFlags(flags.value(row)).contains(SpanFlags::CLIENT) {
            continue;
        }
        let key = (services.keys().value(row), names.keys().value(row), is_root);
        let number = *numbers
            .entry(key)
            .or_insert_with(|| number(text(&services, row), text(&names, row), is_root));
        if let Some(number) = number {
            visit(number, starts.value(row));
        }
    }
    Ok(())
}
