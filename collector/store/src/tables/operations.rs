//! Which operations were recorded inside others: four columns of all spans, looked through without making rows.

use std::sync::atomic::{AtomicUsize, Ordering};

use arrow_array::types::Int32Type;
use arrow_array::{Array, DictionaryArray, RecordBatch, StringArray, UInt64Array};
use rustc_hash::FxHashSet;
use stroboscope_analysis::inner_operations::InnerOperations;

use super::batch_column::column;
use super::kinds::{id, ids};
use super::objects::{Store, StoreError};
use super::partition::StoreTable;
use super::read_budget::ReadBudget;
use super::reader::TableReader;

const COLUMNS: [&str; 4] = ["parent_id", "service", "name", "process"];

/// The operations of all spans that have a parent and were recorded by a process of ours (imports are left alone).
/// Files are shared out to so many threads. Damaged files are left out from their damage on: whoever reads traces
/// names them.
///
/// # Errors
/// When the store cannot be listed.
pub fn inner_operations(store: &Store, threads: usize) -> Result<InnerOperations, StoreError> {
    let files = store.list(StoreTable::Spans)?;
    let budget = ReadBudget::of(threads.max(1));
    let next = AtomicUsize::new(0);
    let work = || {
        let mut found = InnerOperations::default();
        while let Some(file) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
            let mut reader = TableReader::open(store, StoreTable::Spans, file, &COLUMNS, budget);
            while let Some(batch) = reader.next_batch() {
                // What is wrong with the columns is said by whoever reads traces.
                let _ = add_inner(&batch, &mut found);
            }
        }
        found
    };
    let others = threads.min(files.len()).saturating_sub(1);
    Ok(std::thread::scope(|scope| {
        let workers: Vec<_> = (0..others).map(|_| scope.spawn(work)).collect();
        let mut found = work();
        for worker in workers {
            match worker.join() {
                Ok(more) => found.merge(&more),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        found
    }))
}

fn add_inner(batch: &RecordBatch, found: &mut InnerOperations) -> Result<(), String> {
    let parents: UInt64Array = column(batch, "parent_id")?;
    let processes = ids(batch, "process")?;
    let services: DictionaryArray<Int32Type> = column(batch, "service")?;
    let names: DictionaryArray<Int32Type> = column(batch, "name")?;
    let mut seen: FxHashSet<(i32, i32)> = FxHashSet::default();
    let mut last = None;
    for row in 0..batch.num_rows() {
        if parents.value(row) == 0 {
            continue;
        }
        let keys = (services.keys().value(row), names.keys().value(row));
        // Most spans are like others of their batch.
        if last == Some(keys) || seen.contains(&keys) || id(&processes, row) == 0 {
            continue;
        }
        last = Some(keys);
        seen.insert(keys);
        let (service, name) = (text(&services, row), text(&names, row));
        found.insert(&service.into(), &name.into());
    }
    Ok(())
}

fn text(column: &DictionaryArray<Int32Type>, row: usize) -> &str {
    let texts = column.values().as_any().downcast_ref::<StringArray>();
    column
        .key(row)
        .zip(texts)
        .filter(|(key, texts)| texts.is_valid(*key))
        .map_or("", |(key, texts)| texts.value(key))
}
