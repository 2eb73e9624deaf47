//! The files of each table as sorted runs of plain rows.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use arrow_array::types::Int32Type;
use arrow_array::{
    Array, DictionaryArray, FixedSizeBinaryArray, Int64Array, ListArray, RecordBatch, StringArray,
    StructArray, UInt32Array, UInt64Array,
};
use stroboscope_analysis::record::{SpanFlags, SpanRecord};

use super::attributes::{AttributeKeys, Said, say};
use super::merge::Run;
use super::reader::{Damage, TableReader, column};
use crate::record::WindowRow;

pub(super) const SPAN_COLUMNS: [&str; 11] = [
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
pub(super) const EVENT_COLUMNS: [&str; 8] =
    ["trace_id", "trace_name", "span_id", "time_ns", "seq", "host", "task", "name"];
pub(super) const BATCH_COLUMNS: [&str; 10] =
    ["process", "sequence", "service", "host", "from_ns", "to_ns", "spans", "events", "windows", "losses"];

/// Names remembered per file before they are forgotten at once; a bound, not a cache policy.
const NAMES_MAX: usize = 65_536;

/// One row of spans.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpanRead {
    /// Which request.
    pub trace_id: u128,
    /// As its source wrote it, if that was not hex.
    pub trace_name: Option<Arc<str>>,
    /// The span, without its events.
    pub span: SpanRecord,
    /// Those of its attributes that were asked for.
    pub attributes: Said,
}

/// One row of events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventRead {
    /// Which request.
    pub trace_id: u128,
    /// As its source wrote it, if that was not hex.
    pub trace_name: Option<Arc<str>>,
    /// 0: none.
    pub span_id: u64,
    /// ns since the Unix epoch.
    pub time_ns: i64,
    /// Order among events of the same time.
    pub seq: u32,
    /// Where.
    pub host: Arc<str>,
    /// In event logs.
    pub task: Option<Arc<str>>,
    /// What.
    pub name: Arc<str>,
    /// Those of its attributes that were asked for.
    pub attributes: Said,
}

/// One row of batches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchRead {
    /// Incarnation.
    pub process: u128,
    /// Number within it.
    pub sequence: u64,
    /// Of the process.
    pub service: Arc<str>,
    /// Of the process.
    pub host: Arc<str>,
    /// Begin of the time covered.
    pub from_ns: i64,
    /// Its end.
    pub to_ns: i64,
    /// Spans in it.
    pub spans: u32,
    /// Events in it.
    pub events: u32,
    /// Windows recorded.
    pub windows: Vec<WindowRow>,
    /// Totals since the process started: cause, records.
    pub losses: Vec<(String, u64)>,
}

/// One file as a run.
#[derive(Debug)]
pub struct FileRun<Row> {
    reader: TableReader,
    names: Names,
    rows: VecDeque<Row>,
}

impl<Row> FileRun<Row> {
    pub(super) fn new(reader: TableReader, keys: &AttributeKeys) -> Self {
        Self { reader, names: Names { keys: keys.clone(), ..Names::default() }, rows: VecDeque::new() }
    }

    /// Rows whose attributes could not be read, so far.
    pub(super) fn unreadable_attributes(&self) -> u64 {
        self.names.unreadable_attributes
    }

    pub(super) fn damage(&self) -> Option<&Damage> {
        self.reader.damage()
    }

    fn next_by(
        &mut self,
        decode: fn(&RecordBatch, &mut Names) -> Result<VecDeque<Row>, String>,
    ) -> Option<Row> {
        while self.rows.is_empty() {
            let batch = self.reader.next_batch()?;
            match decode(&batch, &mut self.names) {
                Ok(rows) => self.rows = rows,
                Err(reason) => {
                    self.reader.unread(batch.num_rows());
                    self.reader.fail(reason);
                }
            }
        }
        self.rows.pop_front()
    }
}

impl Run for FileRun<SpanRead> {
    type Row = SpanRead;
    type Key = (u128, i64);

    fn key(row: &SpanRead) -> Self::Key {
        (row.trace_id, row.span.start_ns)
    }

    fn next_row(&mut self) -> Option<SpanRead> {
        self.next_by(span_rows)
    }
}

impl Run for FileRun<EventRead> {
    type Row = EventRead;
    type Key = (u128, i64, u32);

    fn key(row: &EventRead) -> Self::Key {
        (row.trace_id, row.time_ns, row.seq)
    }

    fn next_row(&mut self) -> Option<EventRead> {
        self.next_by(event_rows)
    }
}

impl Run for FileRun<BatchRead> {
    type Row = BatchRead;
    type Key = (u128, u64);

    fn key(row: &BatchRead) -> Self::Key {
        (row.process, row.sequence)
    }

    fn next_row(&mut self) -> Option<BatchRead> {
        self.next_by(batch_rows)
    }
}

/// Shares one allocation among equal names of a file; and what is to be read of its attributes.
#[derive(Debug, Default)]
struct Names {
    shared: HashMap<Box<str>, Arc<str>>,
    keys: AttributeKeys,
    unreadable_attributes: u64,
}

impl Names {
    fn get(&mut self, text: &str) -> Arc<str> {
        if let Some(name) = self.shared.get(text) {
            return name.clone();
        }
        if self.shared.len() >= NAMES_MAX {
            self.shared.clear();
        }
        let name: Arc<str> = text.into();
        self.shared.insert(text.into(), name.clone());
        name
    }
}

/// The column of attributes, if any are asked for.
fn attribute_column(batch: &RecordBatch, names: &Names) -> Result<Option<StringArray>, String> {
    if names.keys.is_empty() { Ok(None) } else { column(batch, "attributes").map(Some) }
}

fn attributes(column: Option<&StringArray>, row: usize, names: &mut Names) -> Said {
    let Some(column) = column.filter(|column| column.is_valid(row)) else { return Said::new() };
    let keys = names.keys.clone();
    say(column.value(row), &keys, |text| names.get(text)).unwrap_or_else(|| {
        names.unreadable_attributes += 1;
        Said::new()
    })
}

/// A dictionary column, its values shared.
struct Texts {
    column: DictionaryArray<Int32Type>,
    values: Vec<Option<Arc<str>>>,
}

impl Texts {
    fn of(batch: &RecordBatch, name: &str) -> Result<Self, String> {
        let column: DictionaryArray<Int32Type> = column(batch, name)?;
        let values = vec![None; column.values().len()];
        Ok(Self { column, values })
    }

    /// The text of a row; none when it is null.
    fn get(&mut self, row: usize, names: &mut Names) -> Option<Arc<str>> {
        let key = self.column.key(row)?;
        let value = self.values.get_mut(key)?;
        if value.is_none() {
            let texts = self.column.values().as_any().downcast_ref::<StringArray>()?;
            *value = texts.is_valid(key).then(|| names.get(texts.value(key)));
        }
        value.clone()
    }

    /// The text of a row of a column that has no nulls.
    fn text(&mut self, row: usize, names: &mut Names) -> Arc<str> {
        self.get(row, names).unwrap_or_else(|| names.get(""))
    }
}

fn ids(batch: &RecordBatch, name: &str) -> Result<FixedSizeBinaryArray, String> {
    let ids: FixedSizeBinaryArray = column(batch, name)?;
    if ids.value_length() == 16 { Ok(ids) } else { Err(format!("column {name} holds no 16-byte ids")) }
}

fn id(column: &FixedSizeBinaryArray, row: usize) -> u128 {
    <[u8; 16]>::try_from(column.value(row)).map_or(0, u128::from_be_bytes)
}

fn optional(column: &StringArray, row: usize) -> Option<Arc<str>> {
    column.is_valid(row).then(|| column.value(row).into())
}

fn span_rows(batch: &RecordBatch, names: &mut Names) -> Result<VecDeque<SpanRead>, String> {
    let (trace_ids, processes) = (ids(batch, "trace_id")?, ids(batch, "process")?);
    let trace_names: StringArray = column(batch, "trace_name")?;
    let (span_ids, parent_ids): (UInt64Array, UInt64Array) =
        (column(batch, "span_id")?, column(batch, "parent_id")?);
    let (starts, ends): (Int64Array, Int64Array) = (column(batch, "start_ns")?, column(batch, "end_ns")?);
    let flags: UInt32Array = column(batch, "flags")?;
    let mut services = Texts::of(batch, "service")?;
    let mut span_names = Texts::of(batch, "name")?;
    let mut hosts = Texts::of(batch, "host")?;
    let attribute_texts = attribute_column(batch, names)?;
    let read = |row| SpanRead {
        trace_id: id(&trace_ids, row),
        trace_name: optional(&trace_names, row),
        attributes: attributes(attribute_texts.as_ref(), row, names),
        span: SpanRecord {
            span_id: span_ids.value(row),
            parent_id: parent_ids.value(row),
            service: services.text(row, names),
            name: span_names.text(row, names),
            host: hosts.text(row, names),
            process: id(&processes, row),
            start_ns: starts.value(row),
            end_ns: ends.value(row),
            flags: SpanFlags(flags.value(row)),
            events: Vec::new(),
        },
    };
    Ok((0..batch.num_rows()).map(read).collect())
}

fn event_rows(batch: &RecordBatch, names: &mut Names) -> Result<VecDeque<EventRead>, String> {
    let trace_ids = ids(batch, "trace_id")?;
    let trace_names: StringArray = column(batch, "trace_name")?;
    let span_ids: UInt64Array = column(batch, "span_id")?;
    let times: Int64Array = column(batch, "time_ns")?;
    let seqs: UInt32Array = column(batch, "seq")?;
    let mut hosts = Texts::of(batch, "host")?;
    let mut tasks = Texts::of(batch, "task")?;
    let mut event_names = Texts::of(batch, "name")?;
    let attribute_texts = attribute_column(batch, names)?;
    let read = |row| EventRead {
        trace_id: id(&trace_ids, row),
        trace_name: optional(&trace_names, row),
        span_id: span_ids.value(row),
        time_ns: times.value(row),
        seq: seqs.value(row),
        host: hosts.text(row, names),
        task: tasks.get(row, names),
        name: event_names.text(row, names),
        attributes: attributes(attribute_texts.as_ref(), row, names),
    };
    Ok((0..batch.num_rows()).map(read).collect())
}

fn batch_rows(batch: &RecordBatch, names: &mut Names) -> Result<VecDeque<BatchRead>, String> {
    let processes = ids(batch, "process")?;
    let sequences: UInt64Array = column(batch, "sequence")?;
    let (from, to): (Int64Array, Int64Array) = (column(batch, "from_ns")?, column(batch, "to_ns")?);
    let (spans, events): (UInt32Array, UInt32Array) = (column(batch, "spans")?, column(batch, "events")?);
    let (windows, losses): (ListArray, ListArray) = (column(batch, "windows")?, column(batch, "losses")?);
    let mut services = Texts::of(batch, "service")?;
    let mut hosts = Texts::of(batch, "host")?;
    let read = |row| {
        Ok(BatchRead {
            process: id(&processes, row),
            sequence: sequences.value(row),
            service: services.text(row, names),
            host: hosts.text(row, names),
            from_ns: from.value(row),
            to_ns: to.value(row),
            spans: spans.value(row),
            events: events.value(row),
            windows: window_rows(&items(&windows, row)?)?,
            losses: loss_rows(&items(&losses, row)?)?,
        })
    };
    (0..batch.num_rows()).map(read).collect()
}

fn items(lists: &ListArray, row: usize) -> Result<StructArray, String> {
    let items = lists.value(row);
    items.as_any().downcast_ref::<StructArray>().cloned().ok_or_else(|| "a list holds no structs".to_owned())
}

fn field<A: Array + Clone + 'static>(items: &StructArray, name: &str) -> Result<A, String> {
    let column = items.column_by_name(name).and_then(|column| column.as_any().downcast_ref::<A>());
    column.cloned().ok_or_else(|| format!("a list's structs lack {name}"))
}

fn window_rows(items: &StructArray) -> Result<Vec<WindowRow>, String> {
    let (open, close): (Int64Array, Int64Array) = (field(items, "open_ns")?, field(items, "close_ns")?);
    let configs: UInt64Array = field(items, "burst_config")?;
    let window = |at| WindowRow {
        open_ns: open.value(at),
        close_ns: close.value(at),
        burst_config: configs.value(at),
    };
    Ok((0..items.len()).map(window).collect())
}

fn loss_rows(items: &StructArray) -> Result<Vec<(String, u64)>, String> {
    let (causes, records): (StringArray, UInt64Array) = (field(items, "cause")?, field(items, "records")?);
    Ok((0..items.len()).map(|at| (causes.value(at).to_owned(), records.value(at))).collect())
}
