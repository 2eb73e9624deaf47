//! Operation facts of files: from the metadata if it has them, otherwise from a scan of all spans.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow_array::RecordBatch;
use object_store::path::Path;
use parquet::file::metadata::{KeyValue, ParquetMetaData};
use serde::{Deserialize, Serialize};

use super::attributes::AttributeKeys;
use super::id_range::IdRange;
use super::objects::{Store, StoreError};
use super::operations::{COLUMNS, OperationFacts, OperationScan};
use super::partition::StoreTable;
use super::read_budget::ReadBudget;
use super::reader::{TableFile, TableReader};
use super::threads::on_threads;

/// Key of the metadata entry. Its number increases with every change of the rules by which facts
/// are found, also of the rule for names. Readers scan files that lack the current entry.
const KEY: &str = "stroboscope.operations.1";
/// Minimum number of rows for an entry, including rows that a merge or thinning drops. A scan of
/// fewer rows takes little time.
const ROWS_MIN: u64 = 8_192;
/// Maximum size of an entry, in bytes per row, counting rows like [`ROWS_MIN`]. A file whose names
/// seldom repeat gets no entry.
const BYTES_PER_ROW_MAX: f64 = 0.5;

/// Facts in the form of an entry, as JSON.
#[derive(Serialize, Deserialize)]
struct Entry {
    inner: BTreeSet<(Arc<str>, Arc<str>)>,
    roots: BTreeSet<(String, String)>,
    marked: BTreeSet<(String, String)>,
    /// Service, name, length in ns and id of the longest traces of operations.
    long: BTreeSet<(String, String, i64, u128)>,
}

/// Collector of the facts of a file that is being written.
pub(super) struct FactsWriter {
    scan: OperationScan,
    rows: u64,
}

impl FactsWriter {
    /// Creates a collector for a file of a table with at most this number of rows. Returns `None`
    /// if the file should have no entry.
    pub(super) fn of(table: StoreTable, rows: u64) -> Option<Self> {
        let is_wanted = table == StoreTable::Spans && rows >= ROWS_MIN;
        is_wanted.then(|| Self {
            scan: OperationScan::default(),
            rows,
        })
    }

    /// Adds rows, which must be in the order of the file.
    pub(super) fn observe(&mut self, batch: &RecordBatch) {
        self.scan.observe(batch);
    }

    /// Returns the metadata entry; `None` if it is too large.
    pub(super) fn finish(self) -> Option<KeyValue> {
        let facts = self.scan.finish();
        let long = facts.long().map(|(service, name, length_ns, id)| {
            (service.to_owned(), name.to_owned(), length_ns, id)
        });
        let entry = Entry {
            inner: facts.inner.iter().cloned().collect(),
            long: long.collect(),
            roots: facts.roots,
            marked: facts.marked,
        };
        let text = serde_json::to_string(&entry).ok()?;
        let fits = text.len() as f64 <= BYTES_PER_ROW_MAX * self.rows as f64;
        fits.then(|| KeyValue::new(KEY.to_owned(), text))
    }
}

/// Returns the facts in a file's metadata; `None` if they are missing or unreadable.
fn stored_facts(metadata: &ParquetMetaData) -> Option<OperationFacts> {
    let about = metadata.file_metadata().key_value_metadata();
    let found = about.into_iter().flatten().find(|pair| pair.key == KEY);
    let entry: Entry = serde_json::from_str(found?.value.as_deref()?).ok()?;
    let mut facts = OperationFacts::default();
    (facts.roots, facts.marked) = (entry.roots, entry.marked);
    for (service, name) in &entry.inner {
        facts.inner.insert(service, name);
    }
    for (service, name, length_ns, id) in &entry.long {
        facts.note_long(service, name, *length_ns, *id);
    }
    Some(facts)
}

/// Returns the facts of a file: those in its metadata, or those that a scan of its rows finds.
/// Skips the rest of a damaged file without an error, because readers of traces report the damage.
fn facts_of(store: &Store, file: &(Path, u64), budget: ReadBudget) -> OperationFacts {
    let opened = TableFile::open(store, StoreTable::Spans, file, &COLUMNS, budget);
    let Ok(file) = opened else {
        return OperationFacts::default();
    };
    if let Some(stored) = stored_facts(file.metadata()) {
        return stored;
    }
    let (keys, mut scan) = (AttributeKeys::none(), OperationScan::default());
    let mut reader = TableReader::of(&file, &COLUMNS, &keys, budget, &IdRange::ALL);
    while let Some(batch) = reader.next_batch() {
        scan.observe(&batch);
    }
    scan.finish()
}

/// Finds the facts of all spans, with files distributed over `threads` threads.
///
/// # Errors
/// Returns an error if the store cannot be listed.
pub fn operation_facts(store: &Store, threads: usize) -> Result<OperationFacts, StoreError> {
    let files = store.list(StoreTable::Spans)?;
    let budget = ReadBudget::of(threads.max(1));
    let next = AtomicUsize::new(0);
    let work = |_| {
        let mut found = OperationFacts::default();
        while let Some(file) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
            found.merge(facts_of(store, file, budget));
        }
        found
    };
    let found = on_threads(threads.min(files.len()), work).into_iter();
    let merged = found.reduce(|mut found, more| {
        found.merge(more);
        found
    });
    Ok(merged.unwrap_or_default())
}
