//! Services and their operations, from a cache that never fails and follows the store's files.
//!
//! Clients request services and operations whenever they are opened, and treat an error as a broken
//! data source. Files never change, so each undamaged file is read once: only the columns for
//! services, operations and kinds. If the files cannot be listed, or while another request reads
//! them, the cache returns the services that it already knows. If it knows none, it waits for the
//! other request.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use arrow_array::types::Int32Type;
use arrow_array::{Array, DictionaryArray, RecordBatch, StringArray, UInt32Array};
use object_store::path::Path;
use stroboscope_proto::v1::SpanFlag;
use stroboscope_store::tables::{ReadBudget, Store, StoreTable, TableReader};

/// Maximum number of operations of a service to return; some services generate names.
const OPERATIONS_MAX: usize = 10_000;
/// Time after which a request opens no further file; later requests read the others.
const READING_MAX: Duration = Duration::from_secs(5);
/// Delay until a file that could not be read is read again.
const RETRY_AFTER: Duration = Duration::from_secs(60);
/// Column of the attribute `span.kind`.
const KIND: &str = "text:span.kind";

/// An operation and its kind, which is empty if unknown.
pub(crate) type Operation = (String, String);
type Services = BTreeMap<String, BTreeSet<Operation>>;

/// Cached services and operations of the store.
#[derive(Debug, Default)]
pub(crate) struct Catalogue {
    known: Mutex<CatalogueState>,
    /// Lock held while files are read.
    reading: Mutex<()>,
}

#[derive(Debug, Default)]
struct CatalogueState {
    files: BTreeMap<Path, FileServices>,
    all: Services,
}

#[derive(Debug)]
struct FileServices {
    services: Services,
    /// Time of the next attempt; `None` for no further attempt.
    retry: Option<Instant>,
}

impl CatalogueState {
    /// Reports whether a file needs no reading now.
    fn is_current(&self, path: &Path) -> bool {
        let file = self.files.get(path);
        file.is_some_and(|file| file.retry.is_none_or(|retry| Instant::now() < retry))
    }
}

impl Catalogue {
    /// Reads new files, and returns the known services with their operations.
    pub(crate) fn services(&self, store: &Store) -> Services {
        self.refresh(store);
        self.known().all.clone()
    }

    fn known(&self) -> MutexGuard<'_, CatalogueState> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn refresh(&self, store: &Store) {
        let Ok(files) = store.list(StoreTable::Spans) else {
            return;
        };
        let is_news = |known: &CatalogueState| {
            known.files.len() != files.len()
                || files.iter().any(|(path, _)| !known.is_current(path))
        };
        if !is_news(&self.known()) {
            return;
        }
        let nothing_is_known = self.known().all.is_empty();
        let _reading = match self.reading.try_lock() {
            Ok(reading) => reading,
            Err(TryLockError::Poisoned(reading)) => reading.into_inner(),
            // Waiting a moment is better than an empty answer.
            Err(TryLockError::WouldBlock) if nothing_is_known => {
                self.reading.lock().unwrap_or_else(PoisonError::into_inner)
            }
            Err(TryLockError::WouldBlock) => return,
        };
        let begun = Instant::now();
        for object in &files {
            if begun.elapsed() > READING_MAX {
                break;
            }
            if !self.known().is_current(&object.0) {
                let found = read_file(store, object);
                self.known().files.insert(object.0.clone(), found);
            }
        }
        let mut known = self.known();
        let there: BTreeSet<&Path> = files.iter().map(|(path, _)| path).collect();
        known.files.retain(|path, _| there.contains(path));
        let mut all = Services::new();
        for (service, operations) in known.files.values().flat_map(|file| &file.services) {
            let of_service = all.entry(service.clone()).or_default();
            let room = OPERATIONS_MAX.saturating_sub(of_service.len());
            of_service.extend(operations.iter().take(room).cloned());
        }
        known.all = all;
    }
}

/// Reads the services of a file, as far as it is readable.
fn read_file(store: &Store, object: &(Path, u64)) -> FileServices {
    let mut found = Services::new();
    let mut is_damaged = false;
    // A file has the column only if its spans record a kind.
    for columns in [
        &["service", "name", "flags", KIND][..],
        &["service", "name", "flags"],
    ] {
        let table = StoreTable::Spans;
        let mut reader = TableReader::open(store, table, object, columns, ReadBudget::of(1));
        while let Some(batch) = reader.next_batch() {
            // A column of another type is damage, which readers of traces report.
            let _ = add_batch(&batch, &mut found);
        }
        is_damaged = reader.damage().is_some();
        if !found.is_empty() {
            break;
        }
    }
    FileServices {
        services: found,
        retry: is_damaged.then(|| Instant::now() + RETRY_AFTER),
    }
}

fn add_batch(batch: &RecordBatch, found: &mut Services) -> Option<()> {
    let text = |name: &str| {
        let column = batch.column_by_name(name)?;
        let column = column
            .as_any()
            .downcast_ref::<DictionaryArray<Int32Type>>()?;
        let texts = column.values().as_any().downcast_ref::<StringArray>()?;
        Some((column, texts))
    };
    let (services, names) = (text("service")?, text("name")?);
    let kinds = text(KIND);
    let flags = batch.column_by_name("flags")?;
    let flags = flags.as_any().downcast_ref::<UInt32Array>()?;
    let key = |column: &DictionaryArray<Int32Type>, row: usize| column.key(row);
    let both = SpanFlag::Client as u32 | SpanFlag::Server as u32;
    let mut seen = BTreeSet::new();
    for row in 0..batch.num_rows() {
        let kind = kinds.and_then(|(column, _)| key(column, row));
        let of_row = (
            key(services.0, row),
            key(names.0, row),
            flags.value(row) & both,
            kind,
        );
        if !seen.insert(of_row) {
            continue;
        }
        let text = |texts: &StringArray, key: Option<usize>| {
            key.map_or_else(String::new, |key| texts.value(key).to_owned())
        };
        let kind = match of_row.2 {
            bits if bits & SpanFlag::Server as u32 != 0 => "server".to_owned(),
            bits if bits & SpanFlag::Client as u32 != 0 => "client".to_owned(),
            _ => kinds.map_or_else(String::new, |(_, texts)| text(texts, kind)),
        };
        let of_service = found.entry(text(services.1, of_row.0)).or_default();
        if of_service.len() < OPERATIONS_MAX {
            of_service.insert((text(names.1, of_row.1), kind));
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use stroboscope_store::record::{Rows, SpanRow};
    use stroboscope_store::tables::{PartitionRule, write_rows};

    use super::*;

    #[test]
    fn an_unreadable_file_is_read_again_later() {
        let directory = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let store = Store::local(directory.path(), runtime.handle().clone()).unwrap();
        let mut rows = Rows::default();
        let [service, name, host] = ["web", "load", "h"].map(|text| rows.strings.intern(text));
        rows.spans.push(SpanRow {
            trace_id: 1,
            trace_name: None,
            span_id: 1,
            parent_id: 0,
            service,
            name,
            host,
            process: 0,
            start_ns: 0,
            end_ns: 1,
            flags: 0,
            attributes: None,
        });
        write_rows(
            &store,
            "00000000000000000001",
            rows,
            &PartitionRule::imported(0),
        )
        .unwrap();
        let files = store.list(StoreTable::Spans).unwrap();
        let path = store.display(&files[0].0);
        let bytes = std::fs::read(&path).unwrap();
        std::fs::write(&path, b"PAR1 is not").unwrap();
        let catalogue = Catalogue::default();
        assert!(catalogue.services(&store).is_empty());
        std::fs::write(&path, bytes).unwrap();
        assert!(catalogue.services(&store).is_empty(), "not at once");
        for file in catalogue.known().files.values_mut() {
            file.retry = Some(Instant::now());
        }
        assert!(catalogue.services(&store).contains_key("web"));
        let known = catalogue.known();
        assert!(known.files.values().all(|file| file.retry.is_none()));
    }
}
