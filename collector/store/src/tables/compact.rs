//! Several sorted files as one: the k-way merge of their rows, batch by batch, whatever columns they have.
//!
//! In memory is a batch of each file, and what the writer holds of a row group. The columns of the output are those of all
//! inputs; a row whose file lacks one has null there.

use object_store::path::Path;
use parquet::arrow::ArrowWriter;

use super::checksum::{Summed, seal};
use super::objects::{Store, StoreError};
use super::partition::StoreTable;
use super::read_budget::ReadBudget;
use super::reader::Damage;
use super::row_merge::{Retried, RowMerge};
use super::sorted_file::{SortedFile, union};
use super::staged::StagedObject;
use super::write::properties;

/// Rows of all inputs that are read ahead, which are as wide as rows can be.
const ROWS_TOGETHER: usize = 65_536;

/// Why files were not merged.
#[derive(Debug, thiserror::Error)]
pub enum MergeError {
    /// One of them cannot be read, or not to its end.
    #[error("{0}")]
    Damaged(Damage),
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Somebody asked to end.
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

/// A merged file that nobody sees yet.
#[derive(Debug)]
pub struct MergedFile {
    staged: StagedObject,
    /// Rows in it.
    pub rows: u64,
    /// Rows that were left out, as they are equal to others in all columns: retries of OTLP.
    pub retries: u64,
    /// Its bytes.
    pub bytes: u64,
}

impl MergedFile {
    /// Makes it durable, and seen.
    ///
    /// # Errors
    /// When the disk fails; then nobody has seen it.
    pub fn publish(self) -> Result<(), StoreError> {
        self.staged.publish()
    }

    /// Gives it up.
    pub fn discard(self) {
        self.staged.discard();
    }
}

/// Merges `files` of a table into one of that path, which is seen when it is published. Equal keys are in the order of the files.
///
/// Of imported spans (without a process), those that are equal in all columns are kept once and noted in `retried`; of
/// events, those of spans that are noted there. Nothing of a process of ours is left out. `goes_on` is asked again and
/// again.
///
/// # Errors
/// When one of the files is damaged, or the store fails; then there is nothing of it.
pub fn merge_files(
    store: &Store,
    table: StoreTable,
    files: &[(Path, u64)],
    path: &Path,
    retried: &mut Retried,
    goes_on: &dyn Fn() -> bool,
) -> Result<MergedFile, MergeError> {
    let budget = ReadBudget {
        batch_rows: (ROWS_TOGETHER / files.len().max(1)).clamp(64, 2_048),
        ..ReadBudget::of(files.len())
    };
    let damaged = |at: usize, reason: String| {
        let file = files
            .get(at)
            .map_or_else(String::new, |(path, _)| store.display(path));
        MergeError::Damaged(Damage {
            file,
            reason,
            rows_read: 0,
        })
    };
    let mut opened = Vec::new();
    for (at, file) in files.iter().enumerate() {
        opened.push(
            SortedFile::open(store, table, file, budget).map_err(|reason| damaged(at, reason))?,
        );
    }
    let schema = union(table, &opened).map_err(|reason| damaged(0, reason))?;
    let mut merge = RowMerge::of(table, Some(retried));
    for (at, file) in opened.iter().enumerate() {
        let batches = file.batches(&schema, budget.batch_rows);
        let batches = batches.map_err(|reason| damaged(at, reason))?;
        merge.add(batches).map_err(|reason| damaged(at, reason))?;
    }
    let mut staged = StagedObject::begin(store, path)?;
    let write = || -> Result<(u64, u64), MergeError> {
        let mut writer =
            ArrowWriter::try_new(Summed::new(&mut staged), schema, Some(properties(table)?))?;
        let mut rows = 0;
        while let Some(chunk) = merge
            .next_chunk()
            .map_err(|(at, reason)| damaged(at, reason))?
        {
            if !goes_on() {
                return Err(MergeError::Stopped);
            }
            rows += chunk.num_rows() as u64;
            writer.write(&chunk)?;
        }
        seal(&mut writer)?;
        writer.finish()?;
        Ok((rows, writer.bytes_written() as u64))
    };
    let expected: u64 = opened.iter().map(SortedFile::rows).sum();
    match write() {
        Ok((rows, bytes)) => {
            let retries = merge.retries();
            if rows + retries != expected {
                staged.discard();
                let reason = format!(
                    "{expected} rows were to be merged, and {rows} came out, without {retries} retries"
                );
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
