//! Reads batches in the order of process and sequence number, by merging the files of their table.

use object_store::path::Path;

use super::attributes::AttributeKeys;
use super::columns::cell_columns;
use super::id_range::IdRange;
use super::merge::Merge;
use super::objects::{Store, StoreError};
use super::partition::StoreTable;
use super::read_budget::ReadBudget;
use super::reader::{Damage, TableReader};
use super::runs::{BatchRead, FileRun};
use super::schema::Batches;
use super::spill::{FILES_MAX, SpillRequest, open_files};

/// Iterator over the rows of several files of a table, in the order of their keys.
pub type SortedRows<Row> = Merge<FileRun<Row>>;

/// Reads all batches in the order of process and sequence number.
///
/// # Errors
/// Returns an error if the store cannot be listed, and in the cases of [`read_batches_of`].
pub fn read_batches(store: &Store) -> Result<SortedRows<BatchRead>, StoreError> {
    read_batches_of(store, &store.list(StoreTable::Batches)?)
}

/// Reads the batches of `files` in the order of process and sequence number.
///
/// # Errors
/// Returns an error if there are too many files to read concurrently, and they cannot be merged
/// first.
pub fn read_batches_of(
    store: &Store,
    files: &[(Path, u64)],
) -> Result<SortedRows<BatchRead>, StoreError> {
    let columns = cell_columns::<Batches>();
    let keys = AttributeKeys::none();
    let wanted = SpillRequest {
        store,
        table: StoreTable::Batches,
        columns: &columns,
        keys: &keys,
        times_ns: i64::MIN..=i64::MAX,
        range: IdRange::ALL,
        is_verified: true,
        files_max: FILES_MAX,
    };
    let opened = open_files::<Batches>(&wanted, files.to_vec())?;
    let budget = ReadBudget::of(opened.files.len());
    let read = |file| TableReader::of(file, &columns, &keys, budget, &IdRange::ALL);
    let damaged = opened.damage.into_iter().map(TableReader::of_damage);
    let readers = opened.files.iter().map(read).chain(damaged);
    Ok(Merge::new(readers.map(FileRun::new).collect()))
}

/// Returns the damage that the reading has found so far.
#[must_use]
pub fn damage_of(rows: &SortedRows<BatchRead>) -> Vec<Damage> {
    let runs = rows.runs().iter();
    runs.filter_map(|run| run.damage().cloned()).collect()
}
