//! Several sorted files as one: the k-way merge of their rows, batch by batch, whatever columns they have.
//!
//! In memory is a batch of each file, and what the writer holds of a row group. The columns of the output are those of all
//! inputs; a row whose file lacks one has null there.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use arrow_array::{Array as _, RecordBatch, UInt64Array};
use arrow_select::interleave::interleave_record_batch;
use object_store::path::Path;
use parquet::arrow::ArrowWriter;
use rustc_hash::FxHashSet;

use super::checksum::{Summed, seal};
use super::objects::{Store, StoreError};
use super::partition::StoreTable;
use super::reader::{Damage, ReadBudget, column};
use super::sorted_file::{SortKey, SortedBatches, SortedFile, union};
use super::staged::StagedObject;
use super::write::properties;

/// Rows written at a time.
const CHUNK_ROWS: usize = 8_192;
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

/// Spans that were stored twice, as OTLP has no numbers by which a retry is known: trace and span.
pub type Retried = FxHashSet<(u128, u64)>;

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
    let mut merge = FileMerge {
        table,
        inputs: Vec::new(),
        held: Vec::new(),
        heap: BinaryHeap::new(),
        picks: Vec::new(),
        group: None,
        retried,
        retries: 0,
    };
    for (at, file) in opened.iter().enumerate() {
        let batches = file.batches(&schema, budget.batch_rows);
        let batches = batches.map_err(|reason| damaged(at, reason))?;
        merge.inputs.push(Input {
            batches,
            held: 0,
            keys: Vec::new(),
            at: 0,
        });
        merge.refill(at).map_err(|reason| damaged(at, reason))?;
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
            let retries = merge.retries;
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

/// A file that is being merged, and the batch of it that is next.
struct Input {
    batches: SortedBatches,
    /// Which of those held.
    held: usize,
    keys: Vec<SortKey>,
    /// The next row.
    at: usize,
}

struct FileMerge<'a> {
    table: StoreTable,
    inputs: Vec<Input>,
    /// Batches that rows are picked of.
    held: Vec<RecordBatch>,
    /// The next key of each input.
    heap: BinaryHeap<Reverse<(SortKey, usize)>>,
    /// Batch and row of what is written next.
    picks: Vec<(usize, usize)>,
    /// The key of the last ones picked, and where they begin.
    group: Option<(SortKey, usize)>,
    retried: &'a mut Retried,
    retries: u64,
}

impl FileMerge<'_> {
    /// Reads the next batch of an input, and puts it into the heap.
    fn refill(&mut self, input: usize) -> Result<(), String> {
        let of = &mut self.inputs[input];
        if let Some((batch, keys)) = of.batches.next()? {
            self.heap.push(Reverse((keys[0], input)));
            (of.held, of.keys, of.at) = (self.held.len(), keys, 0);
            self.held.push(batch);
        } else {
            (of.keys, of.at) = (Vec::new(), 0);
        }
        Ok(())
    }

    /// The next rows; none at the end. An error is of one input.
    fn next_chunk(&mut self) -> Result<Option<RecordBatch>, (usize, String)> {
        self.let_go();
        let held_max = 3 * self.inputs.len() + 8;
        while let Some(Reverse((key, input))) = self.heap.pop() {
            let is_same = self.group.is_some_and(|(known, _)| known == key);
            // Rows of one key are compared with each other, and so are in one chunk.
            if !is_same && (self.picks.len() >= CHUNK_ROWS || self.held.len() >= held_max) {
                self.heap.push(Reverse((key, input)));
                return self.chunk().map(Some).map_err(|reason| (input, reason));
            }
            if !is_same {
                self.group = Some((key, self.picks.len()));
            }
            self.pick(key, input).map_err(|reason| (input, reason))?;
            let of = &mut self.inputs[input];
            of.at += 1;
            match of.keys.get(of.at) {
                Some(next) => self.heap.push(Reverse((*next, input))),
                None => self.refill(input).map_err(|reason| (input, reason))?,
            }
        }
        if self.picks.is_empty() {
            return Ok(None);
        }
        self.chunk().map(Some).map_err(|reason| (0, reason))
    }

    /// Takes an input's next row, unless it is one that was taken.
    fn pick(&mut self, key: SortKey, input: usize) -> Result<(), String> {
        let (batch, row) = (self.inputs[input].held, self.inputs[input].at);
        let group = self.group.map_or(self.picks.len(), |(_, begin)| begin);
        let others = &self.picks[group..];
        if !others.is_empty() && self.may_be_retry(key, batch, row)? {
            let held = &self.held;
            let is_equal =
                |other: &(usize, usize)| rows_equal(&held[batch], row, &held[other.0], other.1);
            if others.iter().any(is_equal) {
                self.retries += 1;
                if self.table == StoreTable::Spans {
                    self.retried.insert((key[0], key[1] as u64));
                }
                return Ok(());
            }
        }
        self.picks.push((batch, row));
        Ok(())
    }

    fn may_be_retry(&self, key: SortKey, batch: usize, row: usize) -> Result<bool, String> {
        match self.table {
            StoreTable::Spans => Ok(key[2] == 0),
            StoreTable::Events if !self.retried.is_empty() => {
                let spans: UInt64Array = column(&self.held[batch], "span_id")?;
                Ok(self.retried.contains(&(key[0], spans.value(row))))
            }
            StoreTable::Events | StoreTable::Batches | StoreTable::Kernel => Ok(false),
        }
    }

    fn chunk(&mut self) -> Result<RecordBatch, String> {
        let held: Vec<&RecordBatch> = self.held.iter().collect();
        let chunk = interleave_record_batch(&held, &self.picks).map_err(|error| error.to_string());
        self.picks.clear();
        self.group = None;
        chunk
    }

    /// Lets go of batches whose rows have all been written.
    fn let_go(&mut self) {
        let mut held = Vec::with_capacity(self.inputs.len());
        for input in &mut self.inputs {
            if input.at < input.keys.len() {
                held.push(self.held[input.held].clone());
                input.held = held.len() - 1;
            }
        }
        self.held = held;
    }
}

/// Whether two rows say the same, in all columns.
fn rows_equal(a: &RecordBatch, a_row: usize, b: &RecordBatch, b_row: usize) -> bool {
    let columns = a.columns().iter().zip(b.columns());
    columns
        .into_iter()
        .all(|(a, b)| a.slice(a_row, 1) == b.slice(b_row, 1))
}
