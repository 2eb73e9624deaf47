//! K-way merge of files with sorted batches.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use arrow_array::{Array as _, RecordBatch, UInt64Array};
use arrow_select::interleave::interleave_record_batch;
use foldhash::HashSet;

use super::batch_column::column;
use super::partition::StoreTable;

/// Approximate maximum number of rows that are returned at a time.
const CHUNK_ROWS: usize = 8_192;

/// Trace and span ids of spans without a process that were stored more than once. OTLP, for
/// example, has no sequence numbers that identify retries.
pub type RetriedSpans = HashSet<(u128, u64)>;

/// Key by which rows are sorted, as numbers that compare like the columns.
pub(super) type SortKey = [u128; 3];

/// Source of record batches in the order of keys.
pub(super) trait KeyedBatches {
    /// Returns the next rows, at least one, with their keys; `None` at the end.
    fn next(&mut self) -> Result<Option<(RecordBatch, Vec<SortKey>)>, String>;
}

/// File that is being merged, with its current batch.
struct Input<B> {
    batches: B,
    /// Index of the current batch in [`RowMerge::held`].
    held: usize,
    keys: Vec<SortKey>,
    /// Index of the next row.
    at: usize,
}

/// Merge of the rows of several files in the order of keys. Among rows with equal keys, those of
/// the earlier file come first.
pub(super) struct RowMerge<'a, B> {
    table: StoreTable,
    inputs: Vec<Input<B>>,
    /// Batches from which rows are picked.
    held: Vec<RecordBatch>,
    /// Next key of each input, with the index of the input.
    heap: BinaryHeap<Reverse<(SortKey, usize)>>,
    /// Rows that the next chunk has so far, as index of the batch in `held` and index of the row.
    picks: Vec<(usize, usize)>,
    /// Key of the latest picks, and the index of the first pick with this key; `None` before the
    /// first pick of a chunk.
    group: Option<(SortKey, usize)>,
    /// Spans known to be retried; `None` if no rows are dropped.
    retried: Option<&'a mut RetriedSpans>,
    retries: u64,
}

impl<'a, B: KeyedBatches> RowMerge<'a, B> {
    /// Creates a merge without files; [`RowMerge::add`] adds them. With `retried`, it drops rows
    /// that equal other rows in all columns, by the rules of [`merge_files`](super::merge_files).
    pub(super) fn of(table: StoreTable, retried: Option<&'a mut RetriedSpans>) -> Self {
        Self {
            table,
            inputs: Vec::new(),
            held: Vec::new(),
            heap: BinaryHeap::new(),
            picks: Vec::new(),
            group: None,
            retried,
            retries: 0,
        }
    }

    /// Adds a file, and reads its first batch.
    pub(super) fn add(&mut self, batches: B) -> Result<(), String> {
        self.inputs.push(Input {
            batches,
            held: 0,
            keys: Vec::new(),
            at: 0,
        });
        self.refill(self.inputs.len() - 1)
    }

    /// Returns the number of dropped rows.
    pub(super) fn retries(&self) -> u64 {
        self.retries
    }

    /// Returns the sources of batches, so that the caller can check them for errors.
    pub(super) fn inputs(&self) -> impl Iterator<Item = &B> {
        self.inputs.iter().map(|input| &input.batches)
    }

    /// Reads the next batch of an input, and pushes its first key to the heap.
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

    /// Returns the next rows; `None` at the end. An error contains the index of the input that
    /// failed, or of any input if none did.
    pub(super) fn next_chunk(&mut self) -> Result<Option<RecordBatch>, (usize, String)> {
        self.let_go();
        let held_max = 3 * self.inputs.len() + 8;
        while let Some(Reverse((key, input))) = self.heap.pop() {
            let is_same = self.group.is_some_and(|(known, _)| known == key);
            // Keeps rows with equal keys in one chunk, because they are compared with each other.
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

    /// Picks an input's next row, unless it is a retry that equals a row already picked.
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
                if let (StoreTable::Spans, Some(retried)) = (self.table, &mut self.retried) {
                    retried.insert((key[0], key[1] as u64));
                }
                return Ok(());
            }
        }
        self.picks.push((batch, row));
        Ok(())
    }

    fn may_be_retry(&self, key: SortKey, batch: usize, row: usize) -> Result<bool, String> {
        let Some(retried) = &self.retried else {
            return Ok(false);
        };
        match self.table {
            StoreTable::Spans => Ok(key[2] == 0),
            StoreTable::Events if !retried.is_empty() => {
                let spans: UInt64Array = column(&self.held[batch], "span_id")?;
                Ok(retried.contains(&(key[0], spans.value(row))))
            }
            _ => Ok(false),
        }
    }

    fn chunk(&mut self) -> Result<RecordBatch, String> {
        let held: Vec<&RecordBatch> = self.held.iter().collect();
        let chunk = interleave_record_batch(&held, &self.picks).map_err(|error| error.to_string());
        self.picks.clear();
        self.group = None;
        chunk
    }

    /// Drops batches whose rows have all been returned.
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

/// Reports whether two rows are equal in all columns.
fn rows_equal(a: &RecordBatch, a_row: usize, b: &RecordBatch, b_row: usize) -> bool {
    let mut columns = a.columns().iter().zip(b.columns());
    columns.all(|(a, b)| a.slice(a_row, 1) == b.slice(b_row, 1))
}
