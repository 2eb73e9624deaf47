//! Requests that began over time, by root operation: from columns of the spans alone, each file read once.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use object_store::path::Path;
use rustc_hash::FxHashMap;
use stroboscope_analysis::connection::Connections;
use stroboscope_analysis::name_rule::normalise;
use stroboscope_store::tables::{StoreTable, visit_span_starts};

use super::query_error::QueryError;
use super::source::Source;
use super::time_columns::TimeColumns;

/// Root operations that are told apart; requests of others are counted without their names.
const ROOTS_MAX: usize = 1_000;
/// Cells that are kept of a file: of more, its columns are made wider.
const CELLS_MAX: usize = 2_048;
/// The number of all root operations past [`ROOTS_MAX`].
const OTHERS: u32 = u32::MAX;

/// What is known of the files of a store. A file is read when it is first seen, and forgotten with its deletion.
#[derive(Clone, Debug, Default)]
pub struct RequestRates {
    /// `service:name` by number.
    roots: Vec<String>,
    numbers: FxHashMap<String, u32>,
    connections: Connections,
    files: BTreeMap<Path, Arc<FileRate>>,
}

/// Requests that began in the spans of one file.
#[derive(Debug)]
struct FileRate {
    shift: u32,
    /// Column, number of the root operation, and how many began.
    cells: Vec<(i64, u32, u64)>,
    last_ns: i64,
}

/// Requests that began over time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestRate {
    /// Begin of the first column, ns since the Unix epoch.
    pub from_ns: i64,
    pub column_ns: i64,
    /// By column: requests by the number of their root operation.
    pub columns: Vec<BTreeMap<u32, u64>>,
    /// `service:name` by number.
    pub roots: Vec<String>,
    /// Start of the newest request, ns since the Unix epoch; none without requests.
    pub newest_ns: Option<i64>,
}

impl RequestRate {
    /// Returns the root operations, the most frequent first, with the number of each.
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
        counts
            .into_iter()
            .map(|(_, name, number)| (name, number))
            .collect()
    }
}

impl RequestRates {
    /// Reads the files of the store that are new, and forgets those that it has no more.
    ///
    /// # Errors
    /// When the store cannot be listed.
    pub fn refresh(&mut self, source: &Source) -> Result<(), QueryError> {
        if self.connections != *source.connections() {
            *self = Self {
                connections: source.connections().clone(),
                ..Self::default()
            };
        }
        let objects = source.files(StoreTable::Spans)?;
        let there: BTreeSet<&Path> = objects.iter().map(|(path, _)| path).collect();
        self.files.retain(|path, _| there.contains(path));
        for object in &objects {
            if !self.files.contains_key(&object.0) {
                let file = self.read(source, object);
                self.files.insert(object.0.clone(), Arc::new(file));
            }
        }
        Ok(())
    }

    fn read(&mut self, source: &Source, object: &(Path, u64)) -> FileRate {
        let mut seen: TimeColumns<BTreeMap<u32, u64>> = TimeColumns::default();
        let mut last_ns = i64::MIN;
        let Self {
            roots,
            numbers,
            connections,
            ..
        } = self;
        let number = |service: &str, name: &str, is_root: bool| {
            if !connections.begins_request(service, name, is_root) {
                return None;
            }
            let operation = format!("{service}:{}", normalise(name));
            if let Some(number) = numbers.get(&operation) {
                return Some(*number);
            }
            let number = u32::try_from(roots.len())
                .ok()
                .filter(|_| roots.len() < ROOTS_MAX);
            let Some(number) = number else {
                return Some(OTHERS);
            };
            roots.push(operation.clone());
            numbers.insert(operation, number);
            Some(number)
        };
        visit_span_starts(source.store(), object, number, |number, start_ns| {
            *seen.at(start_ns).entry(number).or_default() += 1;
            last_ns = last_ns.max(start_ns);
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
        }
    }

    /// Returns the rate of the requests that began between these instants, as exactly as it is known of the files that have some.
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
                columns
                    .entry(*column)
                    .or_default()
                    .insert(*number, *requests);
            }
            if columns.is_empty() {
                continue;
            }
            let mut seen = TimeColumns::default();
            (seen.shift, seen.columns) = (file.shift, columns);
            all.merge(seen);
        }
        let Some((first, last)) = all.ends() else {
            return RequestRate::default();
        };
        let column = |at: i64| all.columns.get(&at).cloned().unwrap_or_default();
        RequestRate {
            from_ns: first << all.shift,
            column_ns: 1 << all.shift,
            columns: (first..=last).map(column).collect(),
            roots: self.roots.clone(),
            newest_ns: files().map(|file| file.last_ns).max(),
        }
    }
}

#[cfg(test)]
mod tests {
    use stroboscope_store::record::Rows;
    use stroboscope_store::tables::{PartitionRule, Store, write_rows};
    use stroboscope_testkit::workload;

    use super::*;

    #[test]
    fn each_file_is_read_once_and_all_requests_are_counted() {
        let folder = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let store = Store::local(folder.path(), runtime.handle().clone()).unwrap();
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
            let source = Source::open(folder.path(), runtime.handle().clone()).unwrap();
            rates.refresh(&source).unwrap();
            (rates.rate(i64::MIN..i64::MAX), rates.files.len())
        };
        for (name, seed, files) in [("seg-0", 7, 1), ("seg-1", 8, 2)] {
            let (count, newest_ns) = add(name, seed);
            let (rate, read) = now(&mut rates);
            assert_eq!((read, rate.newest_ns), (files, newest_ns));
            let counted: u64 = rate.columns.iter().flat_map(BTreeMap::values).sum();
            assert_eq!(counted, count);
            let names = rate.by_requests();
            assert!(
                names.iter().all(|(name, _)| name.contains(':')),
                "{names:?}"
            );
            let later = rates.rate(rate.from_ns + rate.column_ns..i64::MAX);
            let first: u64 = rate.columns[0].values().sum();
            let counted_later: u64 = later.columns.iter().flat_map(BTreeMap::values).sum();
            assert_eq!(counted_later, count - first);
            let end_ns = rate.from_ns + rate.columns.len() as i64 * rate.column_ns;
            assert!(newest_ns.is_some_and(|at_ns| rate.from_ns <= at_ns && at_ns < end_ns));
        }
    }
}
