//! Opens the files of spans and events, to read traces from all of them together.

use std::cmp::Reverse;
use std::ops::RangeInclusive;
use std::sync::Arc;

use object_store::path::Path;

use super::attributes::AttributeKeys;
use super::cursor::RowLayout;
use super::id_range::{IdRange, cut};
use super::objects::{Store, StoreError};
use super::partition::StoreTable;
use super::reader::{Damage, TableFile};
use super::schema::{Events, Spans};
use super::spill::{FILES_MAX, SpillRequest, open_files};

/// Maximum number of file readers over all ranges that are read at the same time, if there is more
/// than one range. Each range has a reader of each file, which takes up to about 1 MiB.
const CURSORS_MAX: usize = 2_048;

/// Minimum number of files of a table that are read together, even if there is too little memory
/// for them.
const FILES_MIN: usize = 4;
/// Assumed size of an open file's metadata, in bytes.
const FOOTER_BYTES: usize = 32 << 10;
/// Assumed maximum size of the pages and rows that are read ahead from an open file, in bytes.
const READ_AHEAD_BYTES_MAX: u64 = 1 << 20;
/// Assumed ratio of the uncompressed to the compressed size of a file.
const UNPACKED_TIMES: u64 = 4;

/// Opened files of spans and events, from which traces are read range by range.
#[derive(Clone, Debug)]
pub struct TraceFiles {
    spans: Vec<TableFile>,
    events: Vec<TableFile>,
    damage: Vec<Damage>,
    read: usize,
    skipped: usize,
    keys: AttributeKeys,
    /// Ids of the traces to read, in order; `None` for all.
    wanted: Option<Arc<[u128]>>,
}

impl TraceFiles {
    /// Opens all files. The traces read from them have the selected attributes in
    /// [`attributes`](stroboscope_analysis::record::TraceRecords::attributes). The attribute
    /// `element`, if selected, is an exception. Its values for spans and for events without a span
    /// are in [`elements`](stroboscope_analysis::record::TraceRecords::elements). Its values for
    /// events inside spans are in these events. Log lines inside spans keep it as an attribute.
    ///
    /// # Errors
    /// Returns an error if the store cannot be listed, or temporary files cannot be written.
    pub fn open(store: &Store, keys: &AttributeKeys) -> Result<Self, StoreError> {
        Self::open_between(store, keys, i64::MIN..=i64::MAX)
    }

    /// Opens the files like [`TraceFiles::open`], but skips files in which no row begins in
    /// `times_ns` (ns since the Unix epoch), according to their statistics. The other files may
    /// also have rows that begin at other times.
    ///
    /// # Errors
    /// Returns an error if the store cannot be listed, or temporary files cannot be written.
    pub fn open_between(
        store: &Store,
        keys: &AttributeKeys,
        times_ns: RangeInclusive<i64>,
    ) -> Result<Self, StoreError> {
        Self::open_of(store, keys, times_ns, &IdRange::ALL)
    }

    /// Opens the files like [`TraceFiles::open_between`], to read only traces of `range`.
    ///
    /// # Errors
    /// Returns an error if the store cannot be listed, or temporary files cannot be written.
    pub fn open_of(
        store: &Store,
        keys: &AttributeKeys,
        times_ns: RangeInclusive<i64>,
        range: &IdRange,
    ) -> Result<Self, StoreError> {
        Self::open_bounded(store, keys, times_ns, range, FILES_MAX)
    }

    /// Opens the files like [`TraceFiles::open_of`]. At most `files_max` files of each table are
    /// read together. If there are more, the smallest are first merged to temporary files.
    ///
    /// # Errors
    /// Returns an error if the store cannot be listed, or temporary files cannot be written.
    pub fn open_bounded(
        store: &Store,
        keys: &AttributeKeys,
        times_ns: RangeInclusive<i64>,
        range: &IdRange,
        files_max: usize,
    ) -> Result<Self, StoreError> {
        let wanted = WantedRows {
            keys,
            times_ns,
            range,
            is_verified: range.is_all(),
        };
        Self::open_listed(list(store)?, store, &wanted, files_max)
    }

    /// Opens the files like [`TraceFiles::open_bounded`], and reads as many of them together as fit
    /// into `bytes_max`, but at least 4 and at most 256 of each table. Verifies the checksums of
    /// all local files that it reads, so that readers of different ranges leave out the same files.
    ///
    /// # Errors
    /// Returns an error if the store cannot be listed, or temporary files cannot be written.
    pub fn open_within(
        store: &Store,
        keys: &AttributeKeys,
        times_ns: RangeInclusive<i64>,
        range: &IdRange,
        bytes_max: usize,
    ) -> Result<Self, StoreError> {
        let objects = list(store)?;
        let files_max = files_within(&objects, bytes_max);
        let wanted = WantedRows {
            keys,
            times_ns,
            range,
            is_verified: true,
        };
        Self::open_listed(objects, store, &wanted, files_max)
    }

    /// Opens these files of spans and events, to read all their traces.
    pub(super) fn open_files(
        store: &Store,
        keys: &AttributeKeys,
        objects: FileLists,
    ) -> Result<Self, StoreError> {
        let wanted = WantedRows {
            keys,
            times_ns: i64::MIN..=i64::MAX,
            range: &IdRange::ALL,
            is_verified: true,
        };
        Self::open_listed(objects, store, &wanted, FILES_MAX)
    }

    fn open_listed(
        objects: FileLists,
        store: &Store,
        rows: &WantedRows<'_>,
        files_max: usize,
    ) -> Result<Self, StoreError> {
        let keys = rows.keys;
        let mut objects = objects.into_iter();
        let wanted = |table, columns| SpillRequest {
            store,
            table,
            columns,
            keys,
            times_ns: rows.times_ns.clone(),
            range: *rows.range,
            is_verified: rows.is_verified,
            files_max,
        };
        let mut next = || objects.next().unwrap_or_default();
        let columns = RowLayout::<Spans>::columns(keys);
        let spans = open_files::<Spans>(&wanted(StoreTable::Spans, &columns), next())?;
        let columns = RowLayout::<Events>::columns(keys);
        let events = open_files::<Events>(&wanted(StoreTable::Events, &columns), next())?;
        Ok(Self {
            spans: spans.files,
            events: events.files,
            damage: spans.damage.into_iter().chain(events.damage).collect(),
            read: spans.read + events.read,
            skipped: spans.skipped + events.skipped,
            keys: keys.clone(),
            wanted: None,
        })
    }

    /// Restricts reading to the traces with these ids. Readers then skip row groups that cannot
    /// contain any of them, and such pages of files that are not in memory as a whole.
    #[must_use]
    pub fn only(mut self, mut traces: Vec<u128>) -> Self {
        traces.sort_unstable();
        traces.dedup();
        let wanted: Arc<[u128]> = traces.into();
        let files = self.spans.iter_mut().chain(&mut self.events);
        files.for_each(|file| file.only(&wanted));
        self.wanted = Some(wanted);
        self
    }

    pub(super) fn span_files(&self) -> &[TableFile] {
        &self.spans
    }

    pub(super) fn event_files(&self) -> &[TableFile] {
        &self.events
    }

    /// Returns the ids of the traces to read, in order; `None` for all.
    pub(super) fn wanted(&self) -> Option<Arc<[u128]>> {
        self.wanted.clone()
    }

    /// Returns the selected attributes.
    pub(super) fn keys(&self) -> &AttributeKeys {
        &self.keys
    }

    /// Returns the approximate memory for reading one range in bytes, without the memory of its
    /// traces.
    #[must_use]
    pub fn reading_bytes(&self) -> usize {
        let files = self.spans.iter().chain(&self.events);
        let bytes = files.map(|file| reading_bytes(file.largest_group_bytes()));
        bytes.sum()
    }

    /// Returns the number of files of the store that were opened, and neither skipped nor left out
    /// as damaged, including those that were merged to temporary files.
    #[must_use]
    pub fn files(&self) -> usize {
        self.read
    }

    /// Returns the number of files that are read together.
    pub(super) fn side_by_side(&self) -> usize {
        self.spans.len() + self.events.len()
    }

    /// Returns the number of files that are skipped, because all their rows begin at other times.
    #[must_use]
    pub fn skipped(&self) -> usize {
        self.skipped
    }

    /// Returns the damage that opening found: in files that could not be opened, whose checksum
    /// does not match, or that were merged to temporary files.
    #[must_use]
    pub fn damage(&self) -> &[Damage] {
        &self.damage
    }

    /// Cuts the traces into at most `parts` ranges with about equally many rows, and not many fewer
    /// than `rows_min` each. Returns fewer ranges if they would need too many file readers.
    #[must_use]
    pub fn ranges(&self, parts: usize, rows_min: u64) -> Vec<IdRange> {
        self.ranges_within(&IdRange::ALL, parts, rows_min)
    }

    /// Cuts the traces of `within` like [`ranges`](Self::ranges). The files must have been opened
    /// for this range. Ranges may have fewer than `rows_min` rows if the files also have rows of
    /// other traces.
    #[must_use]
    pub fn ranges_within(&self, within: &IdRange, parts: usize, rows_min: u64) -> Vec<IdRange> {
        let files = self.spans.iter().chain(&self.events);
        let groups: Vec<_> = files.flat_map(TableFile::row_groups).collect();
        let rows: u64 = groups.iter().map(|group| group.rows).sum();
        let most = usize::try_from(rows / rows_min.max(1)).unwrap_or(usize::MAX);
        let parts = parts.min(CURSORS_MAX / self.side_by_side().max(1));
        cut(&groups, within, parts.min(most).max(1))
    }
}

/// Selection of the rows to read, of both tables.
struct WantedRows<'a> {
    keys: &'a AttributeKeys,
    times_ns: RangeInclusive<i64>,
    range: &'a IdRange,
    /// True to verify the checksums of the opened files.
    is_verified: bool,
}

/// Paths and sizes in bytes of files, first those of spans and then those of events.
pub(super) type FileLists = Vec<Vec<(Path, u64)>>;

/// Lists the files of spans and of events together, so that no events appear whose spans were
/// deleted in between.
fn list(store: &Store) -> Result<FileLists, StoreError> {
    store.list_together(&[StoreTable::Spans, StoreTable::Events])
}

/// Returns the number of files of each table that may be read together: the largest `n` for which
/// the `n` largest files of each table together fit into `bytes_max`, but at least [`FILES_MIN`]
/// and at most [`FILES_MAX`].
fn files_within(objects: &[Vec<(Path, u64)>], bytes_max: usize) -> usize {
    let sizes = |files: &Vec<(Path, u64)>| {
        let unpacked = |(_, bytes): &(Path, u64)| bytes.saturating_mul(UNPACKED_TIMES);
        let mut sizes: Vec<usize> = files.iter().map(unpacked).map(reading_bytes).collect();
        sizes.sort_unstable_by_key(|bytes| Reverse(*bytes));
        sizes
    };
    let sizes: Vec<Vec<usize>> = objects.iter().map(sizes).collect();
    let all = sizes.iter().map(Vec::len).max().unwrap_or(0);
    let mut left = bytes_max;
    let fit = (0..all).take_while(|&place| {
        let sizes = sizes.iter().filter_map(|of_table| of_table.get(place));
        let bytes = sizes.sum();
        let rest = left.checked_sub(bytes);
        left = rest.unwrap_or(left);
        rest.is_some()
    });
    let fit = fit.count();
    // If all files fit, the memory sets no limit.
    let fit = if fit == all { FILES_MAX } else { fit };
    fit.clamp(FILES_MIN, FILES_MAX)
}

/// Returns the memory of an open file in bytes: its metadata, and the pages and rows that are read
/// ahead. `unpacked` is an uncompressed size in bytes that bounds the read-ahead.
fn reading_bytes(unpacked: u64) -> usize {
    let ahead = unpacked.min(READ_AHEAD_BYTES_MAX);
    FOOTER_BYTES + usize::try_from(ahead).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_that_are_read_together_fit_into_the_memory() {
        let files = |bytes: &[u64]| -> Vec<(Path, u64)> {
            let file = |&bytes: &u64| (Path::from("x"), bytes);
            bytes.iter().map(file).collect()
        };
        let check = |spans: &[u64], events: &[u64], bytes_max: usize, expected: usize| {
            let fit = files_within(&[files(spans), files(events)], bytes_max);
            assert_eq!(fit, expected, "{} {}", spans.len(), events.len());
        };
        let (small, large) = ([0; 100], [1 << 30; 100]);
        let (small_bytes, large_bytes) = (FOOTER_BYTES, FOOTER_BYTES + (1 << 20));
        check(&large, &large, 20 * large_bytes, 10);
        check(&large, &large, 21 * large_bytes, 10);
        check(&large, &small, 20 * (large_bytes + small_bytes), 20);
        check(&large, &[], 20 * large_bytes, 20);
        check(&large, &large[..10], 30 * large_bytes, 20);
        check(&large, &large, 199 * large_bytes, 99);
        check(&large, &large, 200 * large_bytes, FILES_MAX);
        check(&large, &large, 0, FILES_MIN);
        check(&[], &[], 0, FILES_MAX);
    }
}
