//! Finds traces that contain rows of given kinds. Skips row groups that cannot contain such rows,
//! and checks each row of the other row groups.

use std::cell::RefCell;
use std::collections::HashMap;

use stroboscope_analysis::record::TraceRecords;

use super::attach::EventAttacher;
use super::attributes::AttributeKeys;
use super::columns::DeclaredTable;
use super::cursor::{ReadContext, RowLayout};
use super::kinds::{id, ids};
use super::left_out::LeftOut;
use super::names::TRACE_ID;
use super::partition::StoreTable;
use super::read_budget::ReadBudget;
use super::reader::{Damage, TableFile, TableReader};
use super::row_group_facts::RowGroupFacts;
use super::schema::{Events, Spans};
use super::threads::on_threads;
use super::trace_files::TraceFiles;

/// Search criteria for up to 64 kinds of rows, one bit each.
pub trait RowProbe: Sync {
    /// Returns the kinds that a row group may contain, as bits. The row group is not read if this
    /// is 0.
    fn of_group(&self, group: &RowGroupFacts<'_>) -> u64;

    /// Returns the kinds that a row may be of, as bits. `row` is a trace with only this span or
    /// event. It is empty for an event that is inside a span or has no task.
    fn of_row(&self, row: &TraceRecords) -> u64;
}

/// Result of probing a row group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbedGroup {
    /// Path of the file or description of the temporary run, for messages.
    pub file: String,
    /// Index of the row group in the file.
    pub group: usize,
    pub rows: u64,
    /// Kinds that the row group may contain, as bits; 0 if it was skipped.
    pub may: u64,
}

/// Result of a search by a [`RowProbe`].
#[derive(Debug, Default)]
pub struct ProbeResult {
    /// Traces with a row of any kind, with the kinds of their rows as bits.
    pub found: foldhash::HashMap<u128, u64>,
    /// Row groups of all files, in the order of file names and row groups.
    pub groups: Vec<ProbedGroup>,
    /// Damage that the search found, in addition to [`TraceFiles::damage`].
    pub damage: Vec<Damage>,
}

impl ProbeResult {
    fn merge(&mut self, other: Self) {
        for (trace, kinds) in other.found {
            *self.found.entry(trace).or_default() |= kinds;
        }
        self.groups.extend(other.groups);
        self.damage.extend(other.damage);
    }
}

impl TraceFiles {
    /// Searches all files with `probe`, on `threads` threads.
    ///
    /// # Panics
    /// Panics if the probe does.
    #[must_use]
    pub fn probe(&self, probe: &impl RowProbe, threads: usize) -> ProbeResult {
        let threads = threads.max(1);
        let work = |first: usize| {
            let mut probed = ProbeResult::default();
            let spans = self.span_files().iter().skip(first).step_by(threads);
            for file in spans {
                look_at::<Spans>(file, StoreTable::Spans, self.keys(), probe, &mut probed);
            }
            let events = self.event_files().iter().skip(first).step_by(threads);
            for file in events {
                look_at::<Events>(file, StoreTable::Events, self.keys(), probe, &mut probed);
            }
            probed
        };
        let mut probed = ProbeResult::default();
        let found = on_threads(threads, work).into_iter();
        found.for_each(|found| probed.merge(found));
        let groups = &mut probed.groups;
        groups.sort_by(|a, b| (&a.file, a.group).cmp(&(&b.file, b.group)));
        probed
    }

    /// Returns the attributes that rows of the files may have in columns of their own, from the
    /// statistics. If a file also stores attributes as JSON, includes all that are selected by key.
    #[must_use]
    pub fn present(&self, keys: &AttributeKeys) -> Vec<String> {
        let files = self.span_files().iter().chain(self.event_files());
        let mut present: Vec<String> = files.flat_map(|file| file.present(keys)).collect();
        present.sort_unstable();
        present.dedup();
        present
    }
}

/// Table whose rows can be converted to records.
trait Probable: DeclaredTable {
    fn record(rows: &RowLayout<Self>, row: usize, to: &mut TraceRecords, context: &mut ReadContext)
    where
        Self: Sized;
}

impl Probable for Spans {
    fn record(
        rows: &RowLayout<Self>,
        row: usize,
        to: &mut TraceRecords,
        context: &mut ReadContext,
    ) {
        rows.add_span(row, to, context);
    }
}

impl Probable for Events {
    fn record(
        rows: &RowLayout<Self>,
        row: usize,
        to: &mut TraceRecords,
        context: &mut ReadContext,
    ) {
        let event = rows.event(row, None, context);
        // Ignores events and log lines inside spans, which are not rows of their own to the probe.
        if event.span_id == 0 {
            EventAttacher::default().attach(to, &mut vec![event], &mut LeftOut::default());
        }
    }
}

fn look_at<T: Probable>(
    file: &TableFile,
    table: StoreTable,
    keys: &AttributeKeys,
    probe: &impl RowProbe,
    probed: &mut ProbeResult,
) {
    let mut wanted = Vec::new();
    for (at, group) in file.metadata().row_groups().iter().enumerate() {
        let facts = RowGroupFacts {
            table,
            source: file.source(),
            metadata: file.metadata(),
            group,
            read: RefCell::new(HashMap::new()),
        };
        let may = probe.of_group(&facts);
        if may != 0 {
            wanted.push(at);
        }
        probed.groups.push(ProbedGroup {
            file: file.name().to_owned(),
            group: at,
            rows: u64::try_from(group.num_rows()).unwrap_or(0),
            may,
        });
    }
    if wanted.is_empty() {
        return;
    }
    let columns = RowLayout::<T>::columns(keys);
    let mut reader = TableReader::of_groups(file, &columns, keys, ReadBudget::of(1), wanted);
    let mut context = ReadContext::of(keys);
    let (mut rows, mut records) = (RowLayout::<T>::default(), TraceRecords::default());
    while let Some(batch) = reader.next_batch() {
        let read = rows.fill(&batch, &mut context);
        let traces = match read.and_then(|()| ids(&batch, TRACE_ID)) {
            Ok(traces) => traces,
            Err(reason) => {
                reader.refuse(&batch, reason);
                break;
            }
        };
        for row in 0..batch.num_rows() {
            records.spans.clear();
            records.events.clear();
            records.attributes.clear();
            records.elements.clear();
            T::record(&rows, row, &mut records, &mut context);
            let kinds = probe.of_row(&records);
            if kinds != 0 {
                *probed.found.entry(id(&traces, row)).or_default() |= kinds;
            }
        }
    }
    probed.damage.extend(reader.damage().cloned());
}
