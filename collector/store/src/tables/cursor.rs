//! A file's spans or events, walked trace by trace.

use std::sync::Arc;

use arrow_array::{Array, Int64Array, RecordBatch, StringArray, UInt32Array, UInt64Array};
use stroboscope_analysis::record::{SpanFlags, SpanRecord};

use super::assemble::EventRead;
use super::attributes::{AttributeKeys, AttributeValues, parse_attributes};
use super::reader::{Damage, TableReader, column};
use super::runs::{id, ids};
use super::texts::{StringInterner, TextIndex, TextIndexer};

/// What all cursors of one reader share: interned texts, the attributes asked for, and the count of rows left out.
#[derive(Debug, Default)]
pub(super) struct ReadContext {
    pub(super) names: StringInterner,
    pub(super) indexer: TextIndexer,
    pub(super) keys: AttributeKeys,
    /// Rows whose attributes could not be read.
    pub(super) unreadable_attributes: u64,
}

impl ReadContext {
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

/// Row layout: the columns of a batch transposed into an array of structs, so that a row costs one cache line instead of
/// one for each column. Consecutive traces come from different files, so hardly an access is in a cache; and with
/// hundreds of files open, columns would also need more pages than the TLB has entries.
pub(super) trait RowLayout: Default {
    /// The columns to read; `attributes` is added if any are asked for.
    const NAMES: &'static [&'static str];
    /// Holds the rows of this batch, in place of those that it holds.
    fn fill(&mut self, batch: &RecordBatch, context: &mut ReadContext) -> Result<(), String>;
}

/// A run: consecutive rows of one trace.
#[derive(Debug)]
struct TraceRun {
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
    runs: Vec<TraceRun>,
    /// The next run, and its first row.
    run: usize,
    row: usize,
}

impl<R: RowLayout> Cursor<R> {
    pub(super) fn new(reader: TableReader) -> Self {
        Self { reader, rows: R::default(), runs: Vec::new(), run: 0, row: 0 }
    }

    pub(super) fn damage(&self) -> Option<&Damage> {
        self.reader.damage()
    }

    /// The trace of the next row; none at the end.
    pub(super) fn trace_id(&mut self, context: &mut ReadContext) -> Option<u128> {
        loop {
            if let Some(run) = self.runs.get(self.run) {
                return Some(run.trace_id);
            }
            (self.run, self.row) = (0, 0);
            self.runs.clear();
            let Some(batch) = self.reader.next_batch() else {
                // Nothing will be read any more, and other files may go on for long.
                (self.rows, self.runs) = (R::default(), Vec::new());
                return None;
            };
            if let Err(reason) = self.fill(&batch, context) {
                self.runs.clear();
                self.reader.unread(batch.num_rows());
                self.reader.fail(reason);
            }
        }
    }

    fn fill(&mut self, batch: &RecordBatch, context: &mut ReadContext) -> Result<(), String> {
        self.rows.fill(batch, context)?;
        let ids = ids(batch, "trace_id")?;
        let names: StringArray = column(batch, "trace_name")?;
        for row in 0..ids.len() {
            let trace_id = id(&ids, row);
            match self.runs.last_mut() {
                Some(run) if run.trace_id == trace_id => run.end = row + 1,
                _ => self.runs.push(TraceRun { trace_id, trace_name: None, end: row + 1 }),
            }
            if names.is_valid(row)
                && let Some(run) = self.runs.last_mut().filter(|run| run.trace_name.is_none())
            {
                run.trace_name = Some(names.value(row).into());
            }
        }
        Ok(())
    }

    /// Hands the rows of a trace, which are the next ones, and its name to `visit`.
    pub(super) fn take(
        &mut self,
        trace_id: u128,
        context: &mut ReadContext,
        mut visit: impl FnMut(&R, usize, Option<&Arc<str>>, &mut ReadContext),
    ) {
        while self.trace_id(context) == Some(trace_id) {
            let Some(run) = self.runs.get(self.run) else { return };
            let name = run.trace_name.as_ref();
            (self.row..run.end).for_each(|row| visit(&self.rows, row, name, context));
            self.row = run.end;
            self.run += 1;
        }
    }

    /// Passes over all rows of traces before this one.
    pub(super) fn skip_to(&mut self, trace_id: u128, context: &mut ReadContext) {
        while self.trace_id(context).is_some_and(|next| next < trace_id) {
            self.row = self.runs[self.run].end;
            self.run += 1;
        }
    }
}

/// One row of spans, its texts as indexes into [`SpanRows::texts`]. It fills one cache line.
#[derive(Debug)]
struct CompactSpan {
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
    rows: Vec<CompactSpan>,
    texts: Vec<Arc<str>>,
    attributes: Option<StringArray>,
}

impl RowLayout for SpanRows {
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

    fn fill(&mut self, batch: &RecordBatch, context: &mut ReadContext) -> Result<(), String> {
        let Self { rows, texts, attributes } = self;
        rows.clear();
        texts.clear();
        *attributes = attribute_column(batch, context)?;
        let (span_ids, parent_ids): (UInt64Array, UInt64Array) =
            (column(batch, "span_id")?, column(batch, "parent_id")?);
        let (starts, ends): (Int64Array, Int64Array) = (column(batch, "start_ns")?, column(batch, "end_ns")?);
        let (processes, flags): (_, UInt32Array) = (ids(batch, "process")?, column(batch, "flags")?);
        let mut indexes = |name| context.text_indexes(batch, name, texts);
        let (services, names, hosts) = (indexes("service")?, indexes("name")?, indexes("host")?);
        rows.extend((0..batch.num_rows()).map(|row| CompactSpan {
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
    pub(super) fn span(&self, row: usize, context: &mut ReadContext) -> SpanRecord {
        let row = &self.rows[row];
        let mut text = |index: TextIndex| index.of(&self.texts).unwrap_or_else(|| context.names.get(""));
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

    pub(super) fn attributes(&self, row: usize, context: &mut ReadContext) -> AttributeValues {
        context.attribute_values(self.attributes.as_ref(), row)
    }
}

/// One row of events.
#[derive(Debug)]
struct CompactEvent {
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
    rows: Vec<CompactEvent>,
    texts: Vec<Arc<str>>,
    attributes: Option<StringArray>,
}

impl RowLayout for EventRows {
    const NAMES: &'static [&'static str] =
        &["trace_id", "trace_name", "span_id", "time_ns", "seq", "host", "task", "name"];

    fn fill(&mut self, batch: &RecordBatch, context: &mut ReadContext) -> Result<(), String> {
        let Self { rows, texts, attributes } = self;
        rows.clear();
        texts.clear();
        *attributes = attribute_column(batch, context)?;
        let span_ids: UInt64Array = column(batch, "span_id")?;
        let (times, seqs): (Int64Array, UInt32Array) = (column(batch, "time_ns")?, column(batch, "seq")?);
        let mut indexes = |name| context.text_indexes(batch, name, texts);
        let (hosts, tasks, names) = (indexes("host")?, indexes("task")?, indexes("name")?);
        rows.extend((0..batch.num_rows()).map(|row| CompactEvent {
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
    pub(super) fn event(
        &self,
        row: usize,
        trace_name: Option<&Arc<str>>,
        context: &mut ReadContext,
    ) -> EventRead {
        let attributes = context.attribute_values(self.attributes.as_ref(), row);
        let row = &self.rows[row];
        let mut text = |index: TextIndex| index.of(&self.texts).unwrap_or_else(|| context.names.get(""));
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
fn attribute_column(batch: &RecordBatch, context: &ReadContext) -> Result<Option<StringArray>, String> {
    if context.keys.is_empty() {
        return Ok(None);
    }
    let column: StringArray = column(batch, "attributes")?;
    Ok(Some(column).filter(|column| column.null_count() < column.len()))
}
