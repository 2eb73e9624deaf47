//! Validates a file by reading all of it.

use object_store::path::Path;

use super::checksum;
use super::id_range::row_groups;
use super::objects::Store;
use super::partition::StoreTable;
use super::read_budget::ReadBudget;
use super::row_merge::KeyedBatches as _;
use super::sorted_file::{FOREIGN, NEWER, SortedFile, union};

/// Problem that makes a file unusable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// A later version of this program wrote the file.
    Newer(String),
    /// Another program wrote the file.
    Foreign(String),
    /// The file is unreadable or truncated, or contradicts its metadata.
    Damaged(String),
}

/// Reads all columns of all rows of a file. Checks the order of rows, and the statistics of trace
/// ids, by which readers skip parts of the file. Passes the process of each row of spans or batches
/// to `visit`. Returns the number of rows.
///
/// Also checks the pages against the checksum in the metadata. In older files without a checksum, a
/// flipped bit that leaves a valid value goes undetected. The page index, which lies between pages
/// and metadata, is not checked.
///
/// # Errors
/// Returns the problem of the file.
pub fn verify_file(
    store: &Store,
    table: StoreTable,
    object: &(Path, u64),
    visit: &mut dyn FnMut(u128),
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
    let has_ids = matches!(table, StoreTable::Spans | StoreTable::Events);
    let groups = if has_ids {
        row_groups(file.metadata())
    } else {
        Vec::new()
    };
    let (mut rows, mut group, mut group_end) = (0u64, 0, groups.first().map_or(0, |of| of.rows));
    while let Some((_, keys)) = batches.next().map_err(wrong)? {
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
                StoreTable::Spans => visit(key[2]),
                StoreTable::Batches => visit(key[0]),
                StoreTable::Events | StoreTable::Kernel => {}
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

/// Reports whether a file's footer is readable and of a version that this program knows.
#[must_use]
pub fn is_readable(store: &Store, table: StoreTable, object: &(Path, u64)) -> bool {
    SortedFile::open(store, table, object, ReadBudget::of(1)).is_ok()
}
