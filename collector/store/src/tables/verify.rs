//! Validates a file by reading all of it.

use std::collections::HashMap;

use arrow_array::types::Int32Type;
use arrow_array::{Array as _, ArrayAccessor as _, DictionaryArray, RecordBatch, StringArray};
use object_store::path::Path;

use super::batch_column::column;
use super::checksum;
use super::id_range::row_groups;
use super::objects::Store;
use super::partition::StoreTable;
use super::read_budget::ReadBudget;
use super::reader::FOREIGN;
use super::row_merge::KeyedBatches as _;
use super::sorted_file::{NEWER, SortedFile, union};

/// Problem that makes a file unusable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// The schema version of the file is later than that of this program.
    Newer(String),
    /// Another program wrote the file.
    Foreign(String),
    /// The file is unreadable, truncated or unsorted, or contradicts its metadata.
    Damaged(String),
}

/// Recorder of some rows of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recorder<'a> {
    /// Process of spans or batches.
    Process(u128),
    /// Service and host of events that are no lines of a log.
    Service(&'a str, &'a str),
}

/// Reads all columns of all rows of a file. Checks the order of rows, and the statistics of trace
/// ids, by which readers skip parts of the file. Passes the recorders of spans, of batches, and of
/// events that are no lines of a log to `visit`, each with a number of its rows. Returns the number
/// of rows.
///
/// Also checks the pages against the checksum in the metadata. In older files without a checksum, a
/// flipped bit that leaves a valid value may go undetected. The page index, which lies between
/// pages and metadata, is not checked.
///
/// # Errors
/// Returns the problem of the file.
pub fn verify_file(
    store: &Store,
    table: StoreTable,
    object: &(Path, u64),
    visit: &mut dyn FnMut(Recorder<'_>, u64),
) -> Result<u64, Flaw> {
    let wrong = |reason: String| {
        if reason.contains(NEWER) {
            Flaw::Newer(reason)
        } else if reason == FOREIGN {
            Flaw::Foreign(reason)
        } else {
            Flaw::Damaged(reason)
        }
    };
    let budget = ReadBudget::of(1);
    let file = SortedFile::open(store, table, object, budget).map_err(wrong)?;
    if !checksum::holds(store, &object.0, file.metadata()).map_err(wrong)? {
        return Err(wrong(checksum::BROKEN.to_owned()));
    }
    let schema = union(table, std::slice::from_ref(&file)).map_err(wrong)?;
    let mut batches = file.batches(&schema, budget.batch_rows).map_err(wrong)?;
    let has_ids = !matches!(table, StoreTable::Batches | StoreTable::Kernel);
    let groups = has_ids.then(|| row_groups(file.metadata()));
    let groups = groups.unwrap_or_default();
    let (mut rows, mut group, mut group_end) = (0u64, 0, groups.first().map_or(0, |of| of.rows));
    while let Some((batch, keys)) = batches.next().map_err(wrong)? {
        if table == StoreTable::Events {
            count_events(&batch, visit).map_err(wrong)?;
        }
        for key in &keys {
            while rows >= group_end && group + 1 < groups.len() {
                group += 1;
                group_end += groups[group].rows;
            }
            if let Some(said) = groups.get(group)
                && !(said.least..=said.greatest).contains(&key[0])
            {
                return Err(wrong("its statistics do not match its rows".to_owned()));
            }
            match table {
                StoreTable::Spans => visit(Recorder::Process(key[2]), 1),
                StoreTable::Batches => visit(Recorder::Process(key[0]), 1),
                StoreTable::Events | StoreTable::Kernel | StoreTable::Provenance => {}
            }
            rows += 1;
        }
    }
    if rows == file.rows() {
        Ok(rows)
    } else {
        Err(wrong(format!("it has {rows} rows, not {}", file.rows())))
    }
}

/// Passes each service and host to `visit`, with the number of its events that are no lines of a
/// log.
fn count_events(
    batch: &RecordBatch,
    visit: &mut dyn FnMut(Recorder<'_>, u64),
) -> Result<(), String> {
    let of = |name: &str| column::<DictionaryArray<Int32Type>>(batch, name);
    let (services, hosts, tasks) = (of("service")?, of("host")?, of("task")?);
    let texts = services.downcast_dict::<StringArray>();
    let (Some(services), Some(hosts)) = (texts, hosts.downcast_dict::<StringArray>()) else {
        return Err("a dictionary holds no texts".to_owned());
    };
    let mut counts: HashMap<(&str, &str), u64> = HashMap::new();
    for row in (0..batch.num_rows()).filter(|row| tasks.is_null(*row)) {
        let of = (services.value(row), hosts.value(row));
        *counts.entry(of).or_default() += 1;
    }
    for ((service, host), count) in counts {
        visit(Recorder::Service(service, host), count);
    }
    Ok(())
}

/// Reports whether a file's footer is readable and of a version that this program knows.
#[must_use]
pub fn is_readable(store: &Store, table: StoreTable, object: &(Path, u64)) -> bool {
    SortedFile::open(store, table, object, ReadBudget::of(1)).is_ok()
}
