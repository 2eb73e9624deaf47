//! Reads traces in several threads at the same time, each with its own range of trace ids. The
//! results of an analysis for the parts merge into its result for the whole.

use std::ops::RangeInclusive;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};

use stroboscope_analysis::record::TraceRecords;

use super::filter::Choice;
use super::notes::Notes;
use super::parts_wanted::PartsWanted;
use super::query_error::QueryError;
use super::reading_memory::ReadingMemory;
use super::source::{Selection, Source};
use stroboscope_store::query_memory::QueryLack;
use stroboscope_store::tables::{AttributeKeys, IdRange, TraceFiles};

/// Approximate minimum number of rows of a part with [`PartsWanted::Cores`]. A thread for fewer
/// rows is not worth its cost.
const ROWS_PER_PART_MIN: u64 = 65_536;
/// Number of traces that a thread reads between updates of the shared progress.
const TRACES_PER_TELLING: u64 = 16;

/// Traces of the store, cut into parts of about equally many rows.
#[derive(Debug)]
pub struct Parts {
    files: TraceFiles,
    ranges: Vec<IdRange>,
}

impl Parts {
    /// Returns the number of files that are read, and the number of files that are skipped because
    /// none of their rows begins in the times to read.
    #[must_use]
    pub fn files(&self) -> (usize, usize) {
        (self.files.files(), self.files.skipped())
    }

    /// Restricts the parts to the traces with these ids, in any order.
    pub(super) fn only(self, traces: Vec<u128>) -> Self {
        Self {
            files: self.files.only(traces),
            ..self
        }
    }

    /// Returns the number of parts; 0 only if no ids were selected.
    #[must_use]
    pub fn count(&self) -> usize {
        self.ranges.len()
    }
}

impl Source {
    /// Opens the files that may hold records of the selected traces, see
    /// [`TimeRange`](super::TimeRange), and cuts them into parts. Reads the attributes of `keys`,
    /// as described at [`TraceFiles::open`].
    ///
    /// # Errors
    /// Fails if the store cannot be listed, or if temporary files cannot be written.
    pub fn parts(&self, selection: Selection, keys: &AttributeKeys) -> Result<Parts, QueryError> {
        self.parts_between(selection.range.records_ns(), Some(&IdRange::ALL), keys)
    }

    /// Opens the files that may have rows beginning in this time range, and cuts their traces with
    /// ids in `ids` into parts. If `ids` is `None`, there are no parts. The number of parts depends
    /// on [`PartsWanted`], and is limited by the memory and by the number of open files. With
    /// [`PartsWanted::Cores`], small stores have fewer parts.
    pub(super) fn parts_between(
        &self,
        times_ns: RangeInclusive<i64>,
        ids: Option<&IdRange>,
        keys: &AttributeKeys,
    ) -> Result<Parts, QueryError> {
        let keys = self.keys(keys);
        let memory = &self.memory;
        let files_max = memory.files_max();
        let opened = ids.unwrap_or(&IdRange::ALL);
        let files = TraceFiles::open_within(self.store(), &keys, times_ns, opened, files_max)?;
        let rows_min = if self.parts_wanted == PartsWanted::Cores {
            ROWS_PER_PART_MIN
        } else {
            0
        };
        let threads = memory.threads(self.parts_wanted.threads(), files.reading_bytes());
        let ranges = ids.map_or_else(Vec::new, |ids| files.ranges_within(ids, threads, rows_min));
        Ok(Parts { files, ranges })
    }

    /// Passes each selected request to the worker of its part. There is one worker per part. They
    /// all run at the same time and are returned in the order of their parts.
    ///
    /// # Errors
    /// Fails if the reading takes too much memory. Single traces that are too large do not cause an
    /// error; they are left out, and the notes count them.
    ///
    /// # Panics
    /// Panics if a worker does.
    pub fn fold<W: Send>(
        &self,
        what: &'static str,
        selection: Selection,
        parts: &Parts,
        workers: Vec<W>,
        visit: impl Fn(&mut W, &mut TraceRecords, &mut Notes) + Sync,
    ) -> Result<(Vec<W>, Notes), QueryError> {
        let pass_over = |_: &mut W, _: &mut TraceRecords| {};
        let (after, finish) = (|_: &mut W| Ok(0), |worker| worker);
        let made = (visit, pass_over, after, finish);
        self.fold_to(what, selection, parts, workers, made)
    }

    /// Reads like [`Source::fold`], also for workers that other workers wait for, for example at a
    /// channel. `pass_over` gets each request that would be selected if it were complete.
    /// `after` runs once for each visited request, after the memory of a large trace is released,
    /// until memory runs out. It returns the number of bytes that the worker holds, or an error if
    /// memory ran out. `finish` runs on the worker's own thread as soon as its part is read, while
    /// other parts continue. It consumes the worker, so that the others stop waiting for it. A
    /// worker that panics is dropped at once.
    ///
    /// # Errors
    /// Fails under the same conditions as [`Source::fold`].
    ///
    /// # Panics
    /// Panics if a worker does.
    pub fn fold_to<W: Send, R: Send>(
        &self,
        what: &'static str,
        selection: Selection,
        parts: &Parts,
        workers: Vec<W>,
        (visit, pass_over, after, finish): (
            impl Fn(&mut W, &mut TraceRecords, &mut Notes) + Sync,
            impl Fn(&mut W, &mut TraceRecords) + Sync,
            impl Fn(&mut W) -> Result<usize, QueryLack> + Sync,
            impl Fn(W) -> R + Sync,
        ),
    ) -> Result<(Vec<R>, Notes), QueryError> {
        self.readings.fetch_add(1, Ordering::Relaxed);
        let memory = ReadingMemory::of(&self.memory, parts.count(), parts.files.reading_bytes())?;
        let progress = Mutex::new(self.observer.begin(what, "traces", None));
        let work = |range: &IdRange, mut worker: W| {
            let mut notes = Notes::default();
            let mut reader = parts.files.read(range, parts.count());
            let mut records = TraceRecords::default();
            let mut read = 0_u64;
            let mut room = memory.of_thread();
            while !memory.is_wanting()
                && reader.next_within(&mut records, |bytes| room.has_room(bytes))
            {
                read += 1;
                let mut taken = 0;
                self.for_each_request(&mut records, &mut notes, |records, notes| {
                    match self.choose(records, selection, notes) {
                        Choice::Taken => {
                            visit(&mut worker, records, notes);
                            taken += 1;
                        }
                        Choice::LeftOut => pass_over(&mut worker, records),
                        Choice::Refused => {}
                    }
                    true
                });
                room.end_trace(&mut records);
                if !(0..taken).all(|_| room.hold(after(&mut worker))) {
                    break;
                }
                if read.is_multiple_of(TRACES_PER_TELLING) {
                    let mut progress = progress.lock().unwrap_or_else(PoisonError::into_inner);
                    progress.add(TRACES_PER_TELLING);
                }
            }
            notes.left_out.merge(reader.left_out());
            notes.add_damage(reader.damage());
            (finish(worker), notes)
        };
        let mut notes = self.first_notes();
        notes.add_damage(parts.files.damage().to_vec());
        let work = &work;
        let results = std::thread::scope(|scope| {
            let spawn = |(range, worker)| scope.spawn(move || work(range, worker));
            let threads: Vec<_> = parts.ranges.iter().zip(workers).map(spawn).collect();
            let join = |thread: std::thread::ScopedJoinHandle<'_, (R, Notes)>| match thread.join() {
                Ok((result, of_part)) => {
                    notes.merge(of_part);
                    result
                }
                Err(panic) => std::panic::resume_unwind(panic),
            };
            threads.into_iter().map(join).collect()
        });
        memory.end()?;
        Ok((results, notes))
    }
}
