//! Compacts several sorted files into one: a k-way merge of their rows, batch by batch. The files
//! may have different attribute columns.
//!
//! Memory holds a few batches per file, small files as a whole, and the row group that the writer
//! is building. The output has the columns of all inputs, up to a limit. Rows of a file that lacks
//! a column have nulls in it.

use object_store::path::Path;
use parquet::arrow::ArrowWriter;

use super::checksum::{ChecksumWriter, seal};
use super::objects::{Store, StoreError};
use super::partition::StoreTable;
use super::read_budget::ReadBudget;
use super::reader::Damage;
use super::row_merge::{RetriedSpans, RowMerge};
use super::sorted_file::{SortedFile, union};
use super::staged::StagedObject;
use super::stored_operations::FactsWriter;
use super::write::properties;

/// Maximum number of rows that all inputs together decode at a time, for up to 1,024 inputs. It is
/// low, because rows may be large.
const ROWS_TOGETHER: usize = 65_536;

/// Reason why files were not merged or thinned.
#[derive(Debug, thiserror::Error)]
pub enum MergeError {
    /// One of the files is unusable, for example because it is damaged or its rows are not sorted.
    #[error("{0}")]
    Damaged(Damage),
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The caller stopped the merge or the thinning.
    #[error("it was interrupted")]
    Stopped,
}

impl From<parquet::errors::ParquetError> for MergeError {
    fn from(error: parquet::errors::ParquetError) -> Self {
        Self::Store(error.into())
    }
}

impl From<arrow_schema::ArrowError> for MergeError {
    fn from(error: arrow_schema::ArrowError) -> Self {
        Self::Store(error.into())
    }
}

/// Merged file that is not visible yet.
#[derive(Debug)]
pub struct MergedFile {
    staged: StagedObject,
    pub rows: u64,
    /// Number of rows that were dropped as retries, because they equal other rows in all columns.
    pub retries: u64,
    /// Size of the file, in bytes.
    pub bytes: u64,
}

impl MergedFile {
    /// Makes the file durable and visible.
    ///
    /// # Errors
    /// Returns an error if the store fails.
    pub fn publish(self) -> Result<(), StoreError> {
        self.staged.publish()
    }

    /// Deletes the file instead of publishing it.
    pub fn discard(self) {
        self.staged.discard();
    }
}

/// Merges `files` of a table into one at `path`, which becomes visible once published. Rows with
/// equal keys keep the order of the files.
///
/// If spans without a process (from OTLP or imports) are equal in all columns, keeps only one, and
/// notes it in `retried`. If events of a noted span are equal, also keeps only one. Never drops
/// spans that the SDK recorded. Stops when `goes_on` returns false.
///
/// # Errors
/// Returns an error if one of the files is damaged, if the store fails, or if `goes_on` returned
/// false. There is then no merged file.
pub fn merge_files(
    store: &Store,
    table: StoreTable,
    files: &[(Path, u64)],
    path: &Path,
    retried: &mut RetriedSpans,
    goes_on: &dyn Fn() -> bool,
) -> Result<MergedFile, MergeError> {
    let budget = ReadBudget {
        batch_rows: (ROWS_TOGETHER / files.len().max(1)).clamp(64, 2_048),
        ..ReadBudget::of(files.len())
    };
    let damaged = |at: usize, reason: String| {
        let file = files.get(at).map(|(path, _)| store.display(path));
        MergeError::Damaged(Damage::new(file.unwrap_or_default(), reason))
    };
    let mut opened = Vec::new();
    for (at, file) in files.iter().enumerate() {
        let file = SortedFile::open(store, table, file, budget);
        opened.push(file.map_err(|reason| damaged(at, reason))?);
    }
    let schema = union(table, &opened).map_err(|reason| damaged(0, reason))?;
    let mut merge = RowMerge::of(table, Some(retried));
    for (at, file) in opened.iter().enumerate() {
        let batches = file.batches(&schema, budget.batch_rows);
        let batches = batches.map_err(|reason| damaged(at, reason))?;
        merge.add(batches).map_err(|reason| damaged(at, reason))?;
    }
    let expected: u64 = opened.iter().map(SortedFile::rows).sum();
    let mut staged = StagedObject::begin(store, path)?;
    let write = || -> Result<(u64, u64), MergeError> {
        let to = ChecksumWriter::new(&mut staged);
        let mut writer = ArrowWriter::try_new(to, schema, Some(properties(table)?))?;
        let mut facts = FactsWriter::of(table, expected);
        let mut rows = 0;
        let failed = |(at, reason)| damaged(at, reason);
        while let Some(chunk) = merge.next_chunk().map_err(failed)? {
            if !goes_on() {
                return Err(MergeError::Stopped);
            }
            rows += chunk.num_rows() as u64;
            facts.iter_mut().for_each(|facts| facts.observe(&chunk));
            writer.write(&chunk)?;
        }
        seal(&mut writer, facts)?;
        writer.finish()?;
        Ok((rows, writer.bytes_written() as u64))
    };
    match write() {
        Ok((rows, bytes)) => {
            let retries = merge.retries();
            if rows + retries != expected {
                staged.discard();
                let reason =
                    format!("merging {expected} rows produced {rows}, without {retries} retries");
                return Err(damaged(0, reason));
            }
            Ok(MergedFile {
                staged,
                rows,
                retries,
                bytes,
            })
        }
        Err(error) => {
            staged.discard();
            Err(error)
        }
    }
}
