//! K-way merge of sorted runs.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// Sorted run that is read row by row.
pub trait SortedRun {
    type Row;
    /// Key that the run is sorted by.
    type Key: Ord;
    fn key(row: &Self::Row) -> Self::Key;
    /// Returns the next row; `None` at the end.
    fn next_row(&mut self) -> Option<Self::Row>;
}

struct HeapEntry<R: SortedRun> {
    key: R::Key,
    /// Index of the run, which decides the order of equal keys.
    run: usize,
    row: R::Row,
}

impl<R: SortedRun> Ord for HeapEntry<R> {
    /// Compares in reverse, because the greatest entry of a [`BinaryHeap`] is on top.
    fn cmp(&self, other: &Self) -> Ordering {
        (&other.key, other.run).cmp(&(&self.key, self.run))
    }
}

impl<R: SortedRun> PartialOrd for HeapEntry<R> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<R: SortedRun> PartialEq for HeapEntry<R> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<R: SortedRun> Eq for HeapEntry<R> {}

/// Iterator over the rows of all runs in the order of keys. Among rows with equal keys, those of
/// the earlier run come first.
pub struct Merge<R: SortedRun> {
    runs: Vec<R>,
    heap: BinaryHeap<HeapEntry<R>>,
}

impl<R: SortedRun> std::fmt::Debug for Merge<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Merge")
            .field("runs", &self.runs.len())
            .finish_non_exhaustive()
    }
}

impl<R: SortedRun> Merge<R> {
    /// Creates the merge of `runs`, and reads the first row of each.
    #[must_use]
    pub fn new(runs: Vec<R>) -> Self {
        let mut merge = Self {
            heap: BinaryHeap::with_capacity(runs.len()),
            runs,
        };
        (0..merge.runs.len()).for_each(|run| merge.pull(run));
        merge
    }

    fn pull(&mut self, run: usize) {
        if let Some(row) = self.runs[run].next_row() {
            self.heap.push(HeapEntry {
                key: R::key(&row),
                run,
                row,
            });
        }
    }

    /// Returns the runs, so that the caller can check them for errors.
    #[must_use]
    pub fn runs(&self) -> &[R] {
        &self.runs
    }
}

impl<R: SortedRun> Iterator for Merge<R> {
    type Item = R::Row;

    fn next(&mut self) -> Option<R::Row> {
        let next = self.heap.pop()?;
        self.pull(next.run);
        Some(next.row)
    }
}
