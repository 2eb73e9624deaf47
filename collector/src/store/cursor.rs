//! A file's spans or events, walked trace by trace: columns are looked into where they lie, and no row is built that
//! nobody asks for.

use std::sync::Arc;

use arrow_array::{
    Array, FixedSizeBinaryArray, Int64Array, RecordBatch, StringArray, UInt32Array, UInt64Array,
};
use stroboscope_analysis::record::{SpanFlags, SpanRecord};

use super::assemble::EventRead;
use super::attributes::{AttributeKeys, Said, say};
use super::reader::{Damage, TableReader, column};
use super::runs::{id, ids};
use super::texts::{Names, Texts};

/// What all cursors of a reader share.
#[derive(Debug, Default)]
pub(super) struct Shared {
    pub(super) names: Names,
    pub(super) keys: AttributeKeys,
    /// Rows whose attributes could not be read.
    pub(super) unreadable_attributes: u64,
}

impl Shared {
    fn said(&mut self, column: Option<&StringArray>, row: usize) -> Said {
        let Some(column) = column.filter(|column| column.is_valid(row)) else { return Said::new() };
        let Self { names, keys, unreadable_attributes } = self;
        say(column.value(row), keys, |text| names.get(text)).unwrap_or_else(|| {
            *unreadable_attributes += 1;
            Said::new()
        })
    }
}

/// Rows of a table with a trace id.
pub(super) trait Columns: Sized {
    /// The columns to read; `attributes` is added if any are asked for.
    const NAMES: &'static [&'static str];
    fn of(batch: &RecordBatch, shared: &Shared) -> Result<Self, String>;
    fn trace_ids(&self) -> &FixedSizeBinaryArray;
}

/// Where the reading of a file is. Rows are in order of trace id.
#[derive(Debug)]
pub(super) struct Cursor<C> {
    reader: TableReader,
    columns: Option<C>,
    row: usize,
}

impl<C: Columns> Cursor<C> {
    pub(super) fn new(reader: TableReader) -> Self {
        Self { reader, columns: None, row: 0 }
    }

    pub(super) fn damage(&self) -> Option<&Damage> {
        self.reader.damage()
    }

    /// The trace of the next row; none at the end.
    pub(super) fn trace_id(&mut self, shared: &Shared) -> Option<u128> {
        loop {
            if let Some(columns) =
                self.columns.as_ref().filter(|columns| self.row < columns.trace_ids().len())
            {
                return Some(id(columns.trace_ids(), self.row));
            }
            self.columns = None;
            let batch = self.reader.next_batch()?;
            match C::of(&batch, shared) {
                Ok(columns) => (self.columns, self.row) = (Some(columns), 0),
                Err(reason) => {
                    self.reader.unread(batch.num_rows());
                    self.reader.fail(reason);
                }
            }
        }
    }

    /// Hands the rows of a trace, which are the next ones, to `visit`.
    pub(super) fn take(
        &mut self,
        trace_id: u128,
        shared: &mut Shared,
        mut visit: impl FnMut(&mut C, usize, &mut Shared),
    ) {
        while self.trace_id(shared) == Some(trace_id) {
            let Some(columns) = &mut self.columns else { return };
            let (from, bytes) = (self.row, trace_id.to_be_bytes());
            let ids = columns.trace_ids();
            let rows = (from..ids.len()).take_while(|row| ids.value(*row) == bytes).count();
            (from..from + rows).for_each(|row| visit(columns, row, shared));
            self.row += rows;
        }
    }

    /// Passes over all rows of traces before this one.
    pub(super) fn skip_to(&mut self, trace_id: u128, shared: &Shared) {
        while self.trace_id(shared).is_some_and(|next| next < trace_id) {
            self.row += 1;
        }
    }
}

/// Rows of spans.
#[derive(Debug)]
pub(super) struct SpanColumns {
    trace_ids: FixedSizeBinaryArray,
    trace_names: StringArray,
    span_ids: UInt64Array,
    parent_ids: UInt64Array,
    services: Texts,
    names: Texts,
    hosts: Texts,
    processes: FixedSizeBinaryArray,
    starts_ns: Int64Array,
    ends_ns: Int64Array,
    flags: UInt32Array,
    attributes: Option<StringArray>,
}

impl Columns for SpanColumns {
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

    fn of(batch: &RecordBatch, shared: &Shared) -> Result<Self, String> {
        Ok(Self {
            trace_ids: ids(batch, "trace_id")?,
            trace_names: column(batch, "trace_name")?,
            span_ids: column(batch, "span_id")?,
            parent_ids: column(batch, "parent_id")?,
            services: Texts::of(batch, "service")?,
            names: Texts::of(batch, "name")?,
            hosts: Texts::of(batch, "host")?,
            processes: ids(batch, "process")?,
            starts_ns: column(batch, "start_ns")?,
            ends_ns: column(batch, "end_ns")?,
            flags: column(batch, "flags")?,
            attributes: attribute_column(batch, shared)?,
        })
    }

    fn trace_ids(&self) -> &FixedSizeBinaryArray {
        &self.trace_ids
    }
}

impl SpanColumns {
    /// The span of a row, without its events.
    pub(super) fn span(&mut self, row: usize, shared: &mut Shared) -> SpanRecord {
        let names = &mut shared.names;
        SpanRecord {
            span_id: self.span_ids.value(row),
            parent_id: self.parent_ids.value(row),
            service: self.services.text(row, names),
            name: self.names.text(row, names),
            host: self.hosts.text(row, names),
            process: id(&self.processes, row),
            start_ns: self.starts_ns.value(row),
            end_ns: self.ends_ns.value(row),
            flags: SpanFlags(self.flags.value(row)),
            events: Vec::new(),
        }
    }

    /// The trace's id as its source wrote it, if that was not hex.
    pub(super) fn trace_name(&self, row: usize) -> Option<Arc<str>> {
        optional(&self.trace_names, row)
    }

    pub(super) fn attributes(&self, row: usize, shared: &mut Shared) -> Said {
        shared.said(self.attributes.as_ref(), row)
    }
}

/// Rows of events.
#[derive(Debug)]
pub(super) struct EventColumns {
    trace_ids: FixedSizeBinaryArray,
    trace_names: StringArray,
    span_ids: UInt64Array,
    times_ns: Int64Array,
    seqs: UInt32Array,
    hosts: Texts,
    tasks: Texts,
    names: Texts,
    attributes: Option<StringArray>,
}

impl Columns for EventColumns {
    const NAMES: &'static [&'static str] =
        &["trace_id", "trace_name", "span_id", "time_ns", "seq", "host", "task", "name"];

    fn of(batch: &RecordBatch, shared: &Shared) -> Result<Self, String> {
        Ok(Self {
            trace_ids: ids(batch, "trace_id")?,
            trace_names: column(batch, "trace_name")?,
            span_ids: column(batch, "span_id")?,
            times_ns: column(batch, "time_ns")?,
            seqs: column(batch, "seq")?,
            hosts: Texts::of(batch, "host")?,
            tasks: Texts::of(batch, "task")?,
            names: Texts::of(batch, "name")?,
            attributes: attribute_column(batch, shared)?,
        })
    }

    fn trace_ids(&self) -> &FixedSizeBinaryArray {
        &self.trace_ids
    }
}

impl EventColumns {
    /// The event of a row.
    pub(super) fn event(&mut self, row: usize, shared: &mut Shared) -> EventRead {
        let attributes = shared.said(self.attributes.as_ref(), row);
        let names = &mut shared.names;
        EventRead {
            trace_name: optional(&self.trace_names, row),
            span_id: self.span_ids.value(row),
            time_ns: self.times_ns.value(row),
            seq: self.seqs.value(row),
            host: self.hosts.text(row, names),
            task: self.tasks.get(row, names),
            name: self.names.text(row, names),
            attributes,
        }
    }
}

/// The column of attributes, if any are asked for.
fn attribute_column(batch: &RecordBatch, shared: &Shared) -> Result<Option<StringArray>, String> {
    if shared.keys.is_empty() { Ok(None) } else { column(batch, "attributes").map(Some) }
}

fn optional(column: &StringArray, row: usize) -> Option<Arc<str>> {
    column.is_valid(row).then(|| column.value(row).into())
}
