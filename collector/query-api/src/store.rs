//! Traces by id, and the latest traces that satisfy a condition.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::sync::Arc;

use stroboscope_analysis::record::TraceRecords;
use stroboscope_store::query_memory::{QueryMemory, QueryShare};
use stroboscope_store::tables::{
    AttributeKeys, Damage, Hour, IdRange, Store, StoreError, StoreTable, TraceFiles, TraceTooLarge,
};

use crate::catalogue::Catalogue;
use crate::clocks::{Clocks, correct};
use crate::slices::slices;
use crate::trace::StoredTrace;

/// Margin before and after the requested time, in ns. Files whose records all begin beyond it are
/// skipped, so a trace longer than the margin may be found only in part.
const REQUEST_NS_MAX: i64 = 3_600_000_000_000;
/// Maximum number of ranges of ids that are read concurrently.
const THREADS_MAX: usize = 4;
/// Approximate minimum number of rows in a range of ids that is read concurrently with others.
const RANGE_ROWS_MIN: u64 = 20_000;

/// Number of bytes that a query reserves for each byte of a row: for the row, for the span made
/// from it, and for its record while clocks are corrected. The row and the span took 1.6 bytes in a
/// measurement with 200,000 spans of four attributes.
const FORMS: usize = 3;

/// Error while reading traces.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The store cannot be listed, or temporary files cannot be written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A trace takes more memory than the query may use, or than is free.
    #[error("a trace of {} spans: {}", .0.spans, .0.lack)]
    TooLarge(TraceTooLarge),
}

/// Traces of a store, to which a collector may be writing.
#[derive(Clone, Debug)]
pub struct Traces {
    pub(crate) store: Store,
    pub(crate) catalogue: Arc<Catalogue>,
    pub(crate) clocks: Arc<Clocks>,
    pub(crate) memory: QueryMemory,
}

/// Condition and limits of a search for traces.
pub(crate) struct Search<'a> {
    /// Range of the beginning of a trace's first span, ns since the Unix epoch.
    pub(crate) begins_ns: RangeInclusive<i64>,
    /// Attributes that the condition needs.
    pub(crate) keys: AttributeKeys,
    /// Returns true if a trace satisfies the condition.
    pub(crate) is_one: &'a (dyn Fn(&TraceRecords) -> bool + Sync),
    pub(crate) traces_max: usize,
    /// True if the response can state that it ends early.
    pub(crate) has_warnings: bool,
}

impl Traces {
    /// Opens the traces of a store. Queries of them share the quota `memory`.
    #[must_use]
    pub fn of(store: Store, memory: QueryMemory) -> Self {
        Self {
            store,
            memory,
            catalogue: Arc::default(),
            clocks: Arc::default(),
        }
    }

    /// Returns the trace with an id, or only its first `spans_max` spans. Returns `None` if there
    /// is no such trace, if it has no spans, or if `spans_max` is 0. Finds the rows by the files'
    /// indexes. Times are as recorded.
    ///
    /// # Errors
    /// Returns an error if the store cannot be listed, if temporary files cannot be written, or if
    /// the trace takes more memory than the query may use, or than is free.
    pub fn by_id(
        &self,
        id: u128,
        spans_max: usize,
        share: &mut QueryShare,
    ) -> Result<Option<StoredTrace>, ReadError> {
        let range = IdRange::only(id);
        let keys = AttributeKeys::all().as_json();
        let always = i64::MIN..=i64::MAX;
        let files = TraceFiles::open_of(&self.store, &keys, always, &range)?;
        read(&files, id, spans_max, share).map_err(ReadError::TooLarge)
    }

    /// Returns the trace of an id, like [`by_id`](Self::by_id), with clocks corrected if a finished
    /// comparison has proven that they differ.
    ///
    /// # Errors
    /// Returns the errors of [`by_id`](Self::by_id).
    pub fn by_id_corrected(
        &self,
        id: u128,
        spans_max: usize,
        share: &mut QueryShare,
    ) -> Result<Option<StoredTrace>, ReadError> {
        let mut found = self.by_id(id, spans_max, share)?;
        found.iter_mut().for_each(|trace| self.correct(trace));
        Ok(found)
    }

    pub(crate) fn correct(&self, trace: &mut StoredTrace) {
        let (alignment, is_due) = self.clocks.now(&self.store);
        if is_due {
            let (clocks, store) = (self.clocks.clone(), self.store.clone());
            std::thread::spawn(move || clocks.make(&store));
        }
        if let Some(alignment) = alignment {
            correct(trace, &alignment);
        }
    }

    /// Compares the clocks of all hosts now, instead of in the background. Blocks until it is done.
    pub fn compare_clocks(&self) {
        self.clocks.make(&self.store);
    }

    /// Returns the matching traces that began last, the latest first. Traces that began at the same
    /// time are in order of their ids. If a trace does not fit into memory, ends the list before it
    /// with a warning. Fails instead if it is the first trace, or if the response has no warnings.
    pub(crate) fn find(
        &self,
        search: &Search<'_>,
        share: &mut QueryShare,
    ) -> Result<Vec<StoredTrace>, ReadError> {
        let (ids, times_ns) = self.latest(search)?;
        let range = match (ids.iter().min(), ids.iter().max()) {
            (Some(least), Some(greatest)) => IdRange::from_to(*least, *greatest),
            _ => return Ok(Vec::new()),
        };
        let keys = AttributeKeys::all().as_json();
        let files = TraceFiles::open_of(&self.store, &keys, times_ns, &range)?;
        let mut found: Vec<StoredTrace> = Vec::new();
        for id in ids {
            match (read(&files, id, usize::MAX, share), found.last_mut()) {
                (Ok(trace), _) => found.extend(trace),
                (Err(TraceTooLarge { spans, lack }), Some(last)) if search.has_warnings => {
                    last.warnings.push(format!(
                        "the response ends here: the next trace has {spans} spans, and {lack}; ask for fewer traces"
                    ));
                    break;
                }
                (Err(too_large), _) => return Err(ReadError::TooLarge(too_large)),
            }
        }
        Ok(found)
    }

    /// Returns the ids of the traces that [`find`](Self::find) reads, in its order, and the range
    /// of times from which to read their rows. Reads an earlier slice of time only if the later
    /// ones have too few traces.
    fn latest(&self, search: &Search<'_>) -> Result<(Vec<u128>, RangeInclusive<i64>), StoreError> {
        let mut hours = BTreeSet::new();
        for table in [StoreTable::Spans, StoreTable::Events] {
            let objects = self.store.list(table)?;
            let files = objects.iter();
            hours.extend(files.filter_map(|(path, _)| Hour::of_object(path.as_ref())));
        }
        let (mut ids, mut known) = (Vec::new(), BTreeSet::new());
        let mut from_ns = *search.begins_ns.start();
        for slice in slices(&search.begins_ns, &hours) {
            let missing = search.traces_max - ids.len();
            from_ns = *slice.start();
            let of_slice = self.latest_of(search, slice, missing)?;
            // The search of a previous slice may already have found the end of a trace of many
            // hours.
            let news = of_slice.into_iter().map(|(_, id)| id);
            ids.extend(news.filter(|id| known.insert(*id)));
            if ids.len() == search.traces_max {
                break;
            }
        }
        Ok((ids, with_margin(&(from_ns..=*search.begins_ns.end()))))
    }

    /// Returns the latest matching traces that began in this range of time, up to `traces_max`.
    fn latest_of(
        &self,
        search: &Search<'_>,
        begins_ns: RangeInclusive<i64>,
        traces_max: usize,
    ) -> Result<BTreeSet<Key>, StoreError> {
        let files = TraceFiles::open_between(&self.store, &search.keys, with_margin(&begins_ns))?;
        report(files.damage());
        let search = Search {
            begins_ns,
            keys: search.keys.clone(),
            is_one: search.is_one,
            traces_max,
            has_warnings: search.has_warnings,
        };
        let threads = std::thread::available_parallelism().map_or(1, |threads| threads.get());
        let ranges = files.ranges(threads.min(THREADS_MAX), RANGE_ROWS_MIN);
        let of_range = |range: &IdRange| search.latest_of(&files, range, ranges.len());
        let mut found: BTreeSet<Key> = std::thread::scope(|scope| {
            let spawn = |range| scope.spawn(move || of_range(range));
            let threads: Vec<_> = ranges.iter().map(spawn).collect();
            let join = |thread: std::thread::ScopedJoinHandle<'_, BTreeSet<Key>>| {
                thread
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            threads.into_iter().flat_map(join).collect()
        });
        while found.len() > traces_max {
            found.pop_last();
        }
        Ok(found)
    }

    /// Passes each trace that may have begun in this range of time to `visit`.
    pub(crate) fn each(
        &self,
        begins_ns: &RangeInclusive<i64>,
        mut visit: impl FnMut(&TraceRecords),
    ) -> Result<(), StoreError> {
        let times_ns = with_margin(begins_ns);
        let files = TraceFiles::open_between(&self.store, &AttributeKeys::none(), times_ns)?;
        report(files.damage());
        let mut reader = files.read(&IdRange::ALL, 1);
        let mut records = TraceRecords::default();
        while reader.next_into(&mut records) {
            visit(&records);
        }
        Ok(())
    }
}

/// Beginning (ns since the Unix epoch) and id of a trace. The latest trace sorts first.
type Key = (Reverse<i64>, u128);

impl Search<'_> {
    fn latest_of(&self, files: &TraceFiles, range: &IdRange, together: usize) -> BTreeSet<Key> {
        let mut reader = files.read(range, together);
        let mut records = TraceRecords::default();
        let mut latest = BTreeSet::new();
        while reader.next_into(&mut records) {
            let starts = records.spans.iter().map(|span| span.start_ns);
            let Some(start_ns) = starts.min() else {
                continue;
            };
            let key = (Reverse(start_ns), records.id.0);
            let is_late =
                latest.len() < self.traces_max || latest.last().is_some_and(|last| key < *last);
            if is_late && self.begins_ns.contains(&start_ns) && (self.is_one)(&records) {
                latest.insert(key);
                if latest.len() > self.traces_max {
                    latest.pop_last();
                }
            }
        }
        report(&reader.damage());
        latest
    }
}

fn with_margin(times_ns: &RangeInclusive<i64>) -> RangeInclusive<i64> {
    times_ns.start().saturating_sub(REQUEST_NS_MAX)..=times_ns.end().saturating_add(REQUEST_NS_MAX)
}

fn read(
    files: &TraceFiles,
    id: u128,
    spans_max: usize,
    share: &mut QueryShare,
) -> Result<Option<StoredTrace>, TraceTooLarge> {
    let mut reader = files.read(&IdRange::only(id), 1);
    let used = share.used();
    let rows = reader.next_rows(spans_max, FORMS, share).transpose();
    // On an error, the memory reserved for the incomplete trace is released.
    let rows = rows.inspect_err(|_| share.give_back(share.used() - used))?;
    let damage = reader.damage();
    let Some(rows) = rows.filter(|rows| rows.id == id) else {
        return Ok(None);
    };
    let (spans, spans_in_store) = (rows.spans.len(), rows.spans_in_store);
    let Some(mut trace) = StoredTrace::of_rows(rows) else {
        return Ok(None);
    };
    let all = files.damage().iter().chain(&damage);
    let say = |damage: &Damage| format!("spans may be missing: {damage}");
    trace.warnings.extend(all.map(say));
    let over = reader.left_out().over_trace_limit;
    if over > 0 {
        trace.warnings.push(format!(
            "{over} records over the limit of a trace are left out"
        ));
    }
    if spans as u64 != spans_in_store && spans == spans_max {
        trace.warnings.push(format!(
            "these are the first {spans} of the trace's {spans_in_store} spans"
        ));
    }
    Ok(Some(trace))
}

fn report(damage: &[Damage]) {
    for damage in damage {
        tracing::warn!("{damage}");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use stroboscope_store::record::{Rows, SpanRow};
    use stroboscope_store::tables::{PartitionRule, write_rows};

    use super::*;

    const HOUR_NS: i64 = 3_600_000_000_000;
    const T0_NS: i64 = 1_767_225_600_000_000_000;
    const HOURS: i64 = 18;
    const PER_HOUR: i64 = 6;

    /// Writes traces, and returns the beginning and id of each, the latest first.
    fn written(store: &Store) -> Vec<(i64, u128)> {
        let mut all = Vec::new();
        for hour in (0..HOURS).filter(|hour| hour % 7 != 3) {
            let mut rows = Rows::default();
            let [service, name, host] = ["web", "load", "h"].map(|text| rows.strings.intern(text));
            for number in 0..PER_HOUR {
                let start_ns = T0_NS + hour * HOUR_NS + number * HOUR_NS / PER_HOUR;
                // Ids are in no order of time.
                let id = ((start_ns as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 1) as u128 + 1;
                rows.spans.push(SpanRow {
                    trace_id: id,
                    trace_name: None,
                    span_id: 1,
                    parent_id: 0,
                    service,
                    name,
                    host,
                    process: 0,
                    start_ns,
                    end_ns: start_ns + 1_000 * (number + 1),
                    flags: 0,
                    attributes: None,
                });
                all.push((start_ns, id));
            }
            let rule = PartitionRule::imported(T0_NS + hour * HOUR_NS);
            write_rows(store, &format!("{hour:020}"), rows, &rule).unwrap();
        }
        all.sort_unstable_by_key(|(start_ns, id)| (Reverse(*start_ns), *id));
        all
    }

    #[test]
    fn the_latest_are_found_and_nothing_before_them_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let store = Store::local(directory.path(), runtime.handle().clone()).unwrap();
        let all = written(&store);
        let traces = Traces::of(store, QueryMemory::unbounded());
        let end_ns = T0_NS + HOURS * HOUR_NS;
        let ranges = [
            i64::MIN..=i64::MAX,
            T0_NS..=end_ns,
            T0_NS + 5 * HOUR_NS + 1..=T0_NS + 14 * HOUR_NS - 1,
            T0_NS + 3 * HOUR_NS..=T0_NS + 4 * HOUR_NS - 1,
            end_ns + 9 * HOUR_NS..=i64::MAX,
        ];
        for begins_ns in ranges {
            for traces_max in [1, 20, 1_000] {
                // Search for all traces, and for those that satisfy a condition.
                for longest_ns in [i64::MAX, 2_000] {
                    let is_short = |took_ns: i64| took_ns <= longest_ns;
                    let asked = AtomicUsize::new(0);
                    let search = Search {
                        begins_ns: begins_ns.clone(),
                        keys: AttributeKeys::none(),
                        is_one: &|records| {
                            asked.fetch_add(1, Relaxed);
                            let span = &records.spans[0];
                            is_short(span.end_ns - span.start_ns)
                        },
                        traces_max,
                        has_warnings: false,
                    };
                    let found = traces.find(&search, &mut traces.memory.share()).unwrap();
                    let found: Vec<u128> = found.iter().map(|trace| trace.id).collect();
                    let expected = all
                        .iter()
                        .filter(|(start_ns, _)| begins_ns.contains(start_ns));
                    let expected = expected.filter(|(start_ns, _)| {
                        let number = (start_ns - T0_NS) % HOUR_NS * PER_HOUR / HOUR_NS;
                        is_short(1_000 * (number + 1))
                    });
                    let expected: Vec<u128> =
                        expected.take(traces_max).map(|(_, id)| *id).collect();
                    assert_eq!(found, expected, "{begins_ns:?} {traces_max} {longest_ns}");
                    // A search for one trace checks at most the traces of one hour.
                    if traces_max == 1 {
                        assert!(asked.into_inner() <= PER_HOUR as usize);
                    }
                }
            }
        }
    }
}
