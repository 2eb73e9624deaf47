//! A file's spans or events, walked trace by trace.

use std::sync::Arc;

use arrow_array::{Array, Int64Array, RecordBatch, StringArray, UInt32Array, UInt64Array};
use stroboscope_analysis::record::{SpanFlags, SpanRecord};

use super::assemble::EventRead;
use super::attributes::{AttributeKeys, AttributeValues, parse_attributes};
use super::reader::{Damage, TableReader, column};
use super::runs::{id, ids};
use super::texts::{StringInterner, TextIndex, TextIndexer};

/// What all cursors of a reader share.
#[derive(Debug, Default)]
pub(super) struct Shared {
    pub(super) names: StringInterner,
    pub(super) indexer: TextIndexer,
    pub(super) keys: AttributeKeys,
    /// Rows whose attributes could not be read.
    pub(super) unreadable_attributes: u64,
}

impl Shared {
    /// Where in `texts` those of a column are, each of which is put there once.
    fn text_indexes(
        &mut self,
        batch: &RecordBatch,
        name: &str,
        texts: &mut Vec<Arc<str>>,
    ) -> Result<Vec<TextIndex>, String> {
        self.indexer.of(&column(batch, name)?, texts, &mut self.names)
    }

    fn attribute_values(&mut self, column: Option<&StringArray>, row: usize) -> AttributeValues {
        let Some(column) = column.filter(|column| column.is_valid(row)) else {
            return AttributeValues::new();
        };
        let Self { names, keys, unreadable_attributes, .. } = self;
        parse_attributes(column.value(row), keys, |text| names.get(text)).unwrap_or_else(|| {
            *unreadable_attributes += 1;
            AttributeValues::new()
        })
    }
}

/// The rows of a batch, put one after the other: what a trace has in a file lies in one place then, and not in as many as
/// there are columns. The traces that are merged come from ever different files, so that every place is one that no cache
/// holds, and that many files have more of than a processor has entries for pages.
pub(super) trait Rows: Default {
    /// The columns to read; `attributes` is added if any are asked for.
    const NAMES: &'static [&'static str];
    /// Holds the rows of this batch, in place of those that it holds.
    fn fill(&mut self, batch: &RecordBatch, shared: &mut Shared) -> Result<(), String>;
}

/// Rows of one trace that follow each other.
#[derive(Debug)]
struct Stretch {
    trace_id: u128,
    /// As its source wrote it, if that was not hex.
    trace_name: Option<Arc<str>>,
    /// The row after the last.
    end: usize,
}

/// Where the reading of a file is. Rows are in order of trace id.
#[derive(Debug)]
pub(super) struct Cursor<R> {
    reader: TableReader,
    rows: R,
    stretches: Vec<Stretch>,
    /// The next stretch, and its first row.
    stretch: usize,
    row: usize,
}

impl<R: Rows> Cursor<R> {
    pub(super) fn new(reader: TableReader) -> Self {
        Self { reader, rows: R::default(), stretches: Vec::new(), stretch: 0, row: 0 }
    }

    pub(super) fn damage(&self) -> Option<&Damage> {
        self.reader.damage()
    }

    /// The trace of the next row; none at the end.
    pub(super) fn trace_id(&mut self, shared: &mut Shared) -> Option<u128> {
        loop {
            if let Some(stretch) = self.stretches.get(self.stretch) {
                return Some(stretch.trace_id);
            }
            (self.stretch, self.row) = (0, 0);
            self.stretches.clear();
            let Some(batch) = self.reader.next_batch() else {
                // Nothing will be read any more, and other files may go on for long.
                (self.rows, self.stretches) = (R::default(), Vec::new());
                return None;
            };
            if let Err(reason) = self.fill(&batch, shared) {
                self.stretches.clear();
                self.reader.unread(batch.num_rows());
                self.reader.fail(reason);
            }
        }
    }

    fn fill(&mut self, batch: &RecordBatch, shared: &mut Shared) -> Result<(), String> {
        self.rows.fill(batch, shared)?;
        let ids = ids(batch, "trace_id")?;
        let names: StringArray = column(batch, "trace_name")?;
        for row in 0..ids.len() {
            let trace_id = id(&ids, row);
            match self.stretches.last_mut() {
                Some(stretch) if stretch.trace_id == trace_id => stretch.end = row + 1,
                _ => self.stretches.push(Stretch { trace_id, trace_name: None, end: row + 1 }),
            }
            if names.is_valid(row)
                && let Some(stretch) =
                    self.stretches.last_mut().filter(|stretch| stretch.trace_name.is_none())
            {
                stretch.trace_name = Some(names.value(row).into());
            }
        }
        Ok(())
    }

    /// Hands the rows of a trace, which are the next ones, and its name to `visit`.
    pub(super) fn take(
        &mut self,
        trace_id: u128,
        shared: &mut Shared,
        mut visit: impl FnMut(&R, usize, Option<&Arc<str>>, &mut Shared),
    ) {
        while self.trace_id(shared) == Some(trace_id) {
            let Some(stretch) = self.stretches.get(self.stretch) else { return };
            let name = stretch.trace_name.as_ref();
            (self.row..stretch.end).for_each(|row| visit(&self.rows, row, name, shared));
            self.row = stretch.end;
            self.stretch += 1;
        }
    }

    /// Passes over all rows of traces before this one.
    pub(super) fn skip_to(&mut self, trace_id: u128, shared: &mut Shared) {
        while self.trace_id(shared).is_some_and(|next| next < trace_id) {
            self.row = self.stretches[self.stretch].end;
            self.stretch += 1;
        }
    }
}

/// One row of spans, its texts as indexes into [`SpanRows::texts`]. It fills one cache line.
#[derive(Debug)]
struct SpanRow {
    process: u128,
    span_id: u64,
    parent_id: u64,
    start_ns: i64,
    end_ns: i64,
    service: TextIndex,
    name: TextIndex,
    host: TextIndex,
    flags: u32,
}

/// Rows of spans.
#[derive(Debug, Default)]
pub(super) struct SpanRows {
    rows: Vec<SpanRow>,
    texts: Vec<Arc<str>>,
    attributes: Option<StringArray>,
}

impl Rows for SpanRows {
    const NAMES: &'static [&'static str] = &[
        "trace_id",
        "trace_name",
        "span_id",
        "parent_id",
        "service",
        "name",
        "host",
        "process",
        "start_ns",
        "end_ns",
        "flags",
    ];

    fn fill(&mut self, batch: &RecordBatch, shared: &mut Shared) -> Result<(), String> {
        let Self { rows, texts, attributes } = self;
        rows.clear();
        texts.clear();
        *attributes = attribute_column(batch, shared)?;
        let (span_ids, parent_ids): (UInt64Array, UInt64Array) =
            (column(batch, "span_id")?, column(batch, "parent_id")?);
        let (starts, ends): (Int64Array, Int64Array) = (column(batch, "start_ns")?, column(batch, "end_ns")?);
        let (processes, flags): (_, UInt32Array) = (ids(batch, "process")?, column(batch, "flags")?);
        let mut indexes = |name| shared.text_indexes(batch, name, texts);
        let (services, names, hosts) = (indexes("service")?, indexes("name")?, indexes("host")?);
        rows.extend((0..batch.num_rows()).map(|row| SpanRow {
            process: id(&processes, row),
            span_id: span_ids.value(row),
            parent_id: parent_ids.value(row),
            start_ns: starts.value(row),
            end_ns: ends.value(row),
            service: services[row],
            name: names[row],
            host: hosts[row],
            flags: flags.value(row),
        }));
        Ok(())
    }
}

impl SpanRows {
    /// The span of a row, without its events.
    pub(super) fn span(&self, row: usize, shared: &mut Shared) -> SpanRecord {
        let row = &self.rows[row];
        let mut text = |index: TextIndex| index.of(&self.texts).unwrap_or_else(|| shared.names.get(""));
        SpanRecord {
            span_id: row.span_id,
            parent_id: row.parent_id,
            service: text(row.service),
            name: text(row.name),
            host: text(row.host),
            process: row.process,
            start_ns: row.start_ns,
            end_ns: row.end_ns,
            flags: SpanFlags(row.flags),
            events: Vec::new(),
        }
    }

    pub(super) fn attributes(&self, row: usize, shared: &mut Shared) -> AttributeValues {
        shared.attribute_values(self.attributes.as_ref(), row)
    }
}

/// One row of events.
#[derive(Debug)]
struct EventRow {
    span_id: u64,
    time_ns: i64,
    seq: u32,
    host: TextIndex,
    task: TextIndex,
    name: TextIndex,
}

/// Rows of events.
#[derive(Debug, Default)]
pub(super) struct EventRows {
    rows: Vec<EventRow>,
    texts: Vec<Arc<str>>,
    attributes: Option<StringArray>,
}

impl Rows for EventRows {
    const NAMES: &'static [&'static str] =
        &["trace_id", "trace_name", "span_id", "time_ns", "seq", "host", "task", "name"];

    fn fill(&mut self, batch: &RecordBatch, shared: &mut Shared) -> Result<(), String> {
        let Self { rows, texts, attributes } = self;
        rows.clear();
        texts.clear();
        *attributes = attribute_column(batch, shared)?;
        let span_ids: UInt64Array = column(batch, "span_id")?;
        let (times, seqs): (Int64Array, UInt32Array) = (column(batch, "time_ns")?, column(batch, "seq")?);
        let mut indexes = |name| shared.text_indexes(batch, name, texts);
        let (hosts, tasks, names) = (indexes("host")?, indexes("task")?, indexes("name")?);
        rows.extend((0..batch.num_rows()).map(|row| EventRow {
            span_id: span_ids.value(row),
            time_ns: times.value(row),
            seq: seqs.value(row),
            host: hosts[row],
            task: tasks[row],
            name: names[row],
        }));
        Ok(())
    }
}

impl EventRows {
    /// The event of a row.
    pub(super) fn event(&self, row: usize, trace_name: Option<&Arc<str>>, shared: &mut Shared) -> EventRead {
        let attributes = shared.attribute_values(self.attributes.as_ref(), row);
        let row = &self.rows[row];
        let mut text = |index: TextIndex| index.of(&self.texts).unwrap_or_else(|| shared.names.get(""));
        EventRead {
            trace_name: trace_name.cloned(),
            span_id: row.span_id,
            time_ns: row.time_ns,
            seq: row.seq,
            host: text(row.host),
            task: row.task.of(&self.texts),
            name: text(row.name),
            attributes,
        }
    }
}

/// The column of attributes, if any are asked for and any row has some.
fn attribute_column(batch: &RecordBatch, shared: &Shared) -> Result<Option<StringArray>, String> {
    if shared.keys.is_empty() {
        return Ok(None);
    }
    let column: StringArray = column(batch, "attributes")?;
    Ok(Some(column).filter(|column| column.null_count() < column.len()))
}
