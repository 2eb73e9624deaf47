//! Cuts a store into shards for processes that read it independently of each other.

use std::fmt::Write as _;
use std::ops::RangeInclusive;

use object_store::path::Path;

use super::id_range::{IdRange, RowGroupIds, between, cut, id_above};
use super::names::TRACE_ID;
use super::objects::{Store, StoreError};
use super::partition::StoreTable;
use super::read_budget::ReadBudget;
use super::reader::TableFile;

/// Snapshot of a store, and the distribution of its rows over trace ids. Plans of equal files and
/// time ranges are equal if all files can be opened, so all processes cut the store alike.
#[derive(Debug)]
pub struct ShardPlan {
    files: Vec<Vec<(Path, u64)>>,
    /// Row groups of the files that may have rows of the time range.
    groups: Vec<RowGroupIds>,
    identity: String,
}

impl ShardPlan {
    /// Reads the footers of all files of spans and events. Files whose statistics exclude rows that
    /// begin in `times_ns` do not influence the cut.
    ///
    /// # Errors
    /// Returns an error if the store cannot be listed.
    pub fn of(store: &Store, times_ns: &RangeInclusive<i64>) -> Result<Self, StoreError> {
        let files = listed(store)?;
        let (mut groups, mut identity) = (Vec::new(), String::new());
        let budget = ReadBudget {
            whole_bytes_max: 0,
            ..ReadBudget::of(1)
        };
        for (table, files) in StoreTable::OF_TRACES.into_iter().zip(&files) {
            for object in files {
                let _ = write!(identity, "{} {}", object.0, object.1);
                // A file that cannot be opened is reported as damaged when it is read.
                let opened = (table != StoreTable::Batches)
                    .then(|| TableFile::open(store, table, object, &[TRACE_ID], budget).ok());
                if let Some(file) = opened.flatten() {
                    let of_file = file.row_groups();
                    for ids in &of_file {
                        let _ = write!(identity, " {:x}-{:x}", ids.least, ids.greatest);
                    }
                    if file.may_hold(table, times_ns) {
                        groups.extend(of_file);
                    }
                }
                identity.push('\n');
            }
        }
        Ok(Self {
            files,
            groups,
            identity,
        })
    }

    /// Returns the traces of each shard: `count` ranges with about equally many rows. Returns fewer
    /// ranges if there are too few traces, or if some have too many rows; the remaining shards are
    /// empty.
    #[must_use]
    pub fn shards(&self, count: usize) -> Vec<IdRange> {
        cut(&self.groups, &IdRange::ALL, count.max(1))
    }

    /// Returns two ranges: the lowest trace ids with about `rows` rows, and all others. Returns one
    /// range if there are no more rows than that, or if `rows` is 0.
    #[must_use]
    pub fn first_and_rest(&self, rows: u64) -> Vec<IdRange> {
        let total: u64 = self.groups.iter().map(|group| group.rows).sum();
        if total <= rows {
            return vec![IdRange::ALL];
        }
        let cut = id_above(&self.groups, &IdRange::ALL, rows as f64);
        between(&IdRange::ALL, vec![cut])
    }

    /// Returns a text that identifies the snapshot: the paths and sizes of its files, and the
    /// lowest and highest trace ids of row groups of spans and events.
    #[must_use]
    pub fn identity(&self) -> &str {
        &self.identity
    }

    /// Returns the number of files.
    #[must_use]
    pub fn files(&self) -> usize {
        self.files.iter().map(Vec::len).sum()
    }

    /// Reports whether the store still has exactly the files of the plan.
    ///
    /// # Errors
    /// Returns an error if the store cannot be listed.
    pub fn is_of(&self, store: &Store) -> Result<bool, StoreError> {
        Ok(listed(store)? == self.files)
    }
}

/// Lists the files of each table of traces in order of their paths, as of one moment.
fn listed(store: &Store) -> Result<Vec<Vec<(Path, u64)>>, StoreError> {
    let mut files = store.list_together(&StoreTable::OF_TRACES)?;
    files.iter_mut().for_each(|files| files.sort());
    Ok(files)
}
