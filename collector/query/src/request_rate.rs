//! Rate over time of spans that begin a request, by root operation. Reads only some columns of the
//! spans table. The rate counts spans, because only whole traces show which spans belong together.
//! A request with several spans without a parent therefore counts several times.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use object_store::path::Path;
use rustc_hash::{FxHashMap, FxHashSet};
use stroboscope_analysis::connection::Connections;
use stroboscope_analysis::name_rule::normalise;
use stroboscope_store::tables::{Damage, StoreTable, visit_span_starts};

use super::query_error::QueryError;
use super::source::Source;
use super::time_columns::TimeColumns;

/// Maximum number of root operations that are distinguished. Spans of further root operations are
/// counted together.
const ROOTS_MAX: usize = 1_000;
/// Maximum number of counts that are kept per file, each of one root operation in one column of
/// time. If there are more, the columns of the file are widened.
const CELLS_MAX: usize = 2_048;
/// Number that represents all root operations beyond [`ROOTS_MAX`] together.
const OTHERS: u32 = u32::MAX;
/// Maximum lead of a span's start over the present, in ns. A later start is taken to be wrong,
/// because clocks of hosts seldom differ by more.
const AHEAD_NS_MAX: i64 = 60_000_000_000;

/// Rates of the files of a store. A file is read when it is first seen. A damaged file is read
/// again at every refresh. A file with spans that start more than a minute after the present is
/// read again once the first of them is no longer that far ahead. A file's rate is dropped when the
/// file is deleted. All rates are dropped when the source has other connections.
#[derive(Clone, Debug, Default)]
pub struct RequestRates {
    /// Root operations (`service:name`), indexed by number; empty if the number is free.
    roots: Vec<String>,
    numbers: FxHashMap<String, u32>,
    connections: Connections,
    /// Rates by path and size of the file.
    files: BTreeMap<(Path, u64), Arc<FileRate>>,
}

/// Spans of one file that begin a request.
#[derive(Debug)]
struct FileRate {
    shift: u32,
    /// Column, number of the root operation, and number of spans.
    cells: Vec<(i64, u32, u64)>,
    /// Start of the newest counted span, in ns since the Unix epoch.
    last_ns: Option<i64>,
    /// Number of spans that are left out because they start more than a minute after the present.
    ahead: u64,
    /// Start of the first span that is left out, in ns since the Unix epoch; `i64::MAX` if there is
    /// none.
    ahead_from_ns: i64,
    damage: Option<Damage>,
}

impl FileRate {
    /// Reports whether the file need not be read again. Spans that start after `latest_ns` are left
    /// out.
    fn is_final(&self, latest_ns: i64) -> bool {
        self.damage.is_none() && latest_ns < self.ahead_from_ns
    }
}

/// Number of spans that begin a request, over time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestRate {
    /// Start of the first column, in ns since the Unix epoch.
    pub from_ns: i64,
    pub column_ns: i64,
    /// Number of spans per root operation in each column.
    pub columns: Vec<BTreeMap<u32, u64>>,
    /// Root operations (`service:name`), indexed by number; empty if the number is free.
    pub roots: Vec<String>,
    /// Start of the newest counted span in all files, in ns since the Unix epoch; `None` if
    /// `columns` is empty.
    pub newest_ns: Option<i64>,
    /// Number of spans in the store that are left out because they start more than a minute after
    /// the present.
    pub ahead: u64,
}

impl RequestRate {
    /// Returns the root operations with their numbers, the most frequent first, without those that
    /// are counted together.
    #[must_use]
    pub fn by_requests(&self) -> Vec<(&str, u32)> {
        let mut counts: BTreeMap<u32, u64> = BTreeMap::new();
        for (number, requests) in self.columns.iter().flatten() {
            *counts.entry(*number).or_default() += requests;
        }
        let named = |number: u32| self.roots.get(number as usize).map(String::as_str);
        let mut counts: Vec<_> = counts
            .into_iter()
            .filter_map(|(number, count)| Some((count, named(number)?, number)))
            .collect();
        counts.sort_by(|a, b| (b.0, a.1).cmp(&(a.0, b.1)));
        let counts = counts.into_iter();
        counts.map(|(_, name, number)| (name, number)).collect()
    }
}

impl RequestRates {
    /// Reads the files of the store that are new or have to be read again, and drops the rates of
    /// deleted files. `now_ns` is the present, in ns since the Unix epoch. Returns the damage of
    /// the files. Spans before the damage are counted.
    ///
    /// # Errors
    /// Fails if the store cannot be listed.
    pub fn refresh(&mut self, source: &Source, now_ns: i64) -> Result<Vec<Damage>, QueryError> {
        if self.connections != source.connections {
            *self = Self {
                connections: source.connections.clone(),
                ..Self::default()
            };
        }
        let objects = source.store().list(StoreTable::Spans)?;
        let latest_ns = now_ns.saturating_add(AHEAD_NS_MAX);
        let there: BTreeSet<&(Path, u64)> = objects.iter().collect();
        let count = self.files.len();
        self.files
            .retain(|object, file| there.contains(object) && file.is_final(latest_ns));
        if self.files.len() < count {
            self.forget_roots();
        }
        for object in &objects {
            if !self.files.contains_key(object) {
                let file = self.read(source, object, latest_ns);
                self.files.insert(object.clone(), Arc::new(file));
            }
        }
        let files = self.files.values();
        Ok(files.filter_map(|file| file.damage.clone()).collect())
    }

    /// Frees the numbers of root operations that no file contains any more.
    fn forget_roots(&mut self) {
        let cells = self.files.values().flat_map(|file| &file.cells);
        let used: FxHashSet<u32> = cells.map(|(_, number, _)| *number).collect();
        let roots = &mut self.roots;
        self.numbers.retain(|_, number| {
            let is_used = used.contains(number);
            if !is_used {
                roots[*number as usize].clear();
            }
            is_used
        });
    }

    fn read(&mut self, source: &Source, object: &(Path, u64), latest_ns: i64) -> FileRate {
        let mut seen: TimeColumns<BTreeMap<u32, u64>> = TimeColumns::default();
        let mut last_ns = None;
        let (mut ahead, mut ahead_from_ns) = (0, i64::MAX);
        let number = |service: &str, name: &str, is_root: bool| {
            if !self.connections.begins_request(service, name, is_root) {
                return None;
            }
            let operation = format!("{service}:{}", normalise(name));
            if let Some(number) = self.numbers.get(&operation) {
                return Some(*number);
            }
            let free = self.roots.iter().position(String::is_empty);
            let at = free.unwrap_or(self.roots.len());
            let number = u32::try_from(at).ok().filter(|_| at < ROOTS_MAX);
            let Some(number) = number else {
                return Some(OTHERS);
            };
            match free {
                Some(at) => self.roots[at].clone_from(&operation),
                None => self.roots.push(operation.clone()),
            }
            self.numbers.insert(operation, number);
            Some(number)
        };
        let read = visit_span_starts(source.store(), object, number, |number, start_ns| {
            if start_ns > latest_ns {
                ahead += 1;
                ahead_from_ns = ahead_from_ns.min(start_ns);
                return;
            }
            *seen.at(start_ns).entry(number).or_default() += 1;
            last_ns = last_ns.max(Some(start_ns));
        });
        while seen.columns.len() > 1
            && seen.columns.values().map(BTreeMap::len).sum::<usize>() > CELLS_MAX
        {
            seen.widen_to(seen.shift + 1);
        }
        let columns = seen.columns.into_iter();
        let cells = columns.flat_map(|(column, roots)| {
            let of_column = roots.into_iter();
            of_column.map(move |(number, requests)| (column, number, requests))
        });
        FileRate {
            shift: seen.shift,
            cells: cells.collect(),
            last_ns,
            ahead,
            ahead_from_ns,
            damage: read.err(),
        }
    }

    /// Returns the rate in the files' columns that start in `between_ns`. The columns of the result
    /// are at least as wide as the widest of these.
    #[must_use]
    pub fn rate(&self, between_ns: Range<i64>) -> RequestRate {
        let mut all: TimeColumns<BTreeMap<u32, u64>> = TimeColumns::default();
        let files = || self.files.values().filter(|file| !file.cells.is_empty());
        for file in files() {
            let mut columns: BTreeMap<i64, BTreeMap<u32, u64>> = BTreeMap::new();
            let cells = file.cells.iter();
            for (column, number, requests) in
                cells.filter(|(column, ..)| between_ns.contains(&(column << file.shift)))
            {
                let known = columns.entry(*column).or_default();
                known.insert(*number, *requests);
            }
            if columns.is_empty() {
                continue;
            }
            let mut seen = TimeColumns::default();
            (seen.shift, seen.columns) = (file.shift, columns);
            all.merge(seen);
        }
        let ahead = self.files.values().map(|file| file.ahead).sum();
        let Some((first, last)) = all.ends() else {
            return RequestRate {
                ahead,
                ..RequestRate::default()
            };
        };
        let column = |at: i64| all.columns.get(&at).cloned().unwrap_or_default();
        RequestRate {
            from_ns: first << all.shift,
            column_ns: 1 << all.shift,
            columns: (first..=last).map(column).collect(),
            roots: self.roots.clone(),
            newest_ns: files().filter_map(|file| file.last_ns).max(),
            ahead,
        }
    }
}

#[cfg(test)]
mod tests {
    use stroboscope_analysis::record::SpanFlags;
    use stroboscope_fixtures::workload;
    use stroboscope_store::record::{Rows, Strings};
    use stroboscope_store::tables::{PartitionRule, Store, write_rows};

    use super::*;

    const DAY_NS: i64 = 86_400_000_000_000;

    fn counted(rate: &RequestRate) -> u64 {
        rate.columns.iter().flat_map(BTreeMap::values).sum()
    }

    #[test]
    fn each_file_is_read_once_and_all_requests_are_counted() {
        let directory = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let store = Store::local(directory.path(), runtime.handle().clone()).unwrap();
        let received_ns = workload::EPOCH_NS as i64;
        let rule = PartitionRule::received(received_ns, received_ns);
        let mut starts = Vec::new();
        let mut add = |name: &str, seed: u64| {
            let rows: Rows = workload::rows(seed, 40, 0);
            let roots = rows.spans.iter().filter(|span| span.parent_id == 0);
            starts.extend(roots.map(|span| span.start_ns));
            write_rows(&store, name, rows, &rule).unwrap();
            (starts.len() as u64, starts.iter().max().copied())
        };
        let mut rates = RequestRates::default();
        let now = |rates: &mut RequestRates| {
            let source = Source::open(directory.path(), runtime.handle().clone()).unwrap();
            let damage = rates.refresh(&source, received_ns + DAY_NS).unwrap();
            assert_eq!(damage, []);
            (rates.rate(i64::MIN..i64::MAX), rates.files.len())
        };
        for (name, seed, files) in [("seg-0", 7, 1), ("seg-1", 8, 2)] {
            let (count, newest_ns) = add(name, seed);
            let (rate, read) = now(&mut rates);
            assert_eq!((read, rate.newest_ns), (files, newest_ns));
            assert_eq!(counted(&rate), count);
            let names = rate.by_requests();
            assert!(
                names.iter().all(|(name, _)| name.contains(':')),
                "{names:?}"
            );
            let later = rates.rate(rate.from_ns + rate.column_ns..i64::MAX);
            let first: u64 = rate.columns[0].values().sum();
            assert_eq!(counted(&later), count - first);
            let end_ns = rate.from_ns + rate.columns.len() as i64 * rate.column_ns;
            assert!(newest_ns.is_some_and(|at_ns| rate.from_ns <= at_ns && at_ns < end_ns));
        }
    }

    /// Store of one file, which tests rewrite, with the rates read from it.
    struct OneFile {
        directory: tempfile::TempDir,
        runtime: tokio::runtime::Runtime,
        rates: RequestRates,
    }

    impl OneFile {
        fn new() -> Self {
            Self {
                directory: tempfile::tempdir().unwrap(),
                runtime: tokio::runtime::Runtime::new().unwrap(),
                rates: RequestRates::default(),
            }
        }

        fn write(&self, name: &str, rows: Rows) -> std::path::PathBuf {
            let store = Store::local(self.directory.path(), self.runtime.handle().clone()).unwrap();
            let received_ns = workload::EPOCH_NS as i64;
            let rule = PartitionRule::received(received_ns, received_ns);
            write_rows(&store, name, rows, &rule).unwrap();
            let spans = store.list(StoreTable::Spans).unwrap();
            let (path, _) = spans
                .iter()
                .find(|(path, _)| path.as_ref().contains(name))
                .unwrap();
            self.directory.path().join(path.as_ref())
        }

        fn at(&mut self, now_ns: i64) -> (RequestRate, usize) {
            let handle = self.runtime.handle().clone();
            let source = Source::open(self.directory.path(), handle).unwrap();
            let damage = self.rates.refresh(&source, now_ns).unwrap();
            (self.rates.rate(i64::MIN..i64::MAX), damage.len())
        }
    }

    #[test]
    fn what_is_later_than_now_is_left_out_until_then() {
        let mut store = OneFile::new();
        let mut rows = workload::rows(7, 40, 0);
        let roots = rows.spans.iter().filter(|span| span.parent_id == 0).count() as u64;
        let ahead = rows.spans.iter_mut().find(|span| span.parent_id == 0);
        let (now_ns, ahead_ns) = (workload::EPOCH_NS as i64 + DAY_NS, 400 * DAY_NS);
        let ahead = ahead.unwrap();
        (ahead.start_ns, ahead.end_ns) = (ahead.start_ns + ahead_ns, ahead.end_ns + ahead_ns);
        store.write("seg-0", rows);
        let (rate, _) = store.at(now_ns);
        assert_eq!((counted(&rate), rate.ahead), (roots - 1, 1));
        assert!(rate.newest_ns.is_some_and(|at_ns| at_ns < now_ns));
        let (rate, _) = store.at(now_ns + ahead_ns);
        assert_eq!((counted(&rate), rate.ahead), (roots, 0));
        assert!(rate.newest_ns.is_some_and(|at_ns| at_ns > now_ns));
    }

    #[test]
    fn a_file_that_could_not_be_read_is_read_again() {
        let mut store = OneFile::new();
        let path = store.write("seg-0", workload::rows(7, 40, 0));
        let whole = std::fs::read(&path).unwrap();
        let now_ns = workload::EPOCH_NS as i64 + DAY_NS;
        // The file is as long as before.
        std::fs::write(&path, vec![0; whole.len()]).unwrap();
        let (rate, damaged) = store.at(now_ns);
        assert_eq!((counted(&rate), damaged), (0, 1));
        std::fs::write(&path, &whole).unwrap();
        let (rate, damaged) = store.at(now_ns);
        assert!(counted(&rate) > 0 && damaged == 0, "{rate:?}");
    }

    #[test]
    fn names_of_deleted_files_make_room_for_others() {
        let mut store = OneFile::new();
        let named = |prefix: &str| {
            let mut rows: Rows = workload::rows(7, 40, 0);
            let mut strings = Strings::default();
            for text in rows.strings.iter() {
                let other = format!("{prefix}{text}");
                strings.intern(if text.is_empty() { text } else { &other });
            }
            rows.strings = strings;
            rows
        };
        let now_ns = workload::EPOCH_NS as i64 + DAY_NS;
        let path = store.write("seg-0", named("old"));
        let (old, _) = store.at(now_ns);
        std::fs::remove_file(path).unwrap();
        store.write("seg-1", named("new"));
        let (new, _) = store.at(now_ns);
        assert_eq!(new.roots.len(), old.roots.len());
        for name in &new.roots {
            assert!(name.starts_with("new"), "{name}");
        }
    }

    #[test]
    fn calls_inside_of_traces_are_left_out() {
        let store = OneFile::new();
        let mut rows: Rows = workload::rows(7, 40, 0);
        for span in &mut rows.spans {
            span.flags |= SpanFlags::CLIENT.0;
        }
        let roots = rows.spans.iter().filter(|span| span.parent_id == 0).count();
        assert!(roots < rows.spans.len());
        store.write("seg-0", rows);
        let handle = store.runtime.handle().clone();
        let store = Store::local(store.directory.path(), handle).unwrap();
        let objects = store.list(StoreTable::Spans).unwrap();
        let mut visited = 0;
        visit_span_starts(&store, &objects[0], |_, _, _| Some(0), |_, _| visited += 1).unwrap();
        assert_eq!(visited, roots);
    }
}
