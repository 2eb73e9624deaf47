//! The files of a table as sorted runs of plain rows: for tables that are small.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow_array::{
    Array, BooleanArray, FixedSizeBinaryArray, Int64Array, ListArray, RecordBatch, StringArray, StructArray,
    UInt32Array, UInt64Array,
};

use super::merge::SortedRun;
use super::reader::{Damage, TableReader, column};
use super::texts::{DictionaryColumn, StringInterner};
use crate::record::{KernelClockRow, WindowRow};

pub(super) const BATCH_COLUMNS: [&str; 13] = [
    "process",
    "sequence",
    "service",
    "host",
    "from_ns",
    "to_ns",
    "spans",
    "events",
    "windows",
    "losses",
    "clock_synchronised",
    "clock_max_error_ns",
    "clock_estimated_error_ns",
];

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
    /// What the kernel said of the host's clock, if it was asked for this batch and before it was stored.
    pub kernel_clock: Option<KernelClockRow>,
}

/// One file as a sorted run: a batch of rows is decoded when the one before it has been taken.
#[derive(Debug)]
pub struct FileRun<Row> {
    reader: TableReader,
    names: StringInterner,
    rows: VecDeque<Row>,
}

impl<Row> FileRun<Row> {
    pub(super) fn new(reader: TableReader) -> Self {
        Self { reader, names: StringInterner::default(), rows: VecDeque::new() }
    }

    pub(super) fn damage(&self) -> Option<&Damage> {
        self.reader.damage()
    }

    fn next_by(
        &mut self,
        decode: fn(&RecordBatch, &mut StringInterner) -> Result<VecDeque<Row>, String>,
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

impl SortedRun for FileRun<BatchRead> {
    type Row = BatchRead;
    type Key = (u128, u64);

    fn key(row: &BatchRead) -> Self::Key {
        (row.process, row.sequence)
    }

    fn next_row(&mut self) -> Option<BatchRead> {
        self.next_by(batch_rows)
    }
}

/// A column of 16-byte ids.
pub(super) fn ids(batch: &RecordBatch, name: &str) -> Result<FixedSizeBinaryArray, String> {
    let ids: FixedSizeBinaryArray = column(batch, name)?;
    if ids.value_length() == 16 { Ok(ids) } else { Err(format!("column {name} holds no 16-byte ids")) }
}

/// The id of a row.
pub(super) fn id(column: &FixedSizeBinaryArray, row: usize) -> u128 {
    <[u8; 16]>::try_from(column.value(row)).map_or(0, u128::from_be_bytes)
}

fn batch_rows(batch: &RecordBatch, names: &mut StringInterner) -> Result<VecDeque<BatchRead>, String> {
    let processes = ids(batch, "process")?;
    let sequences: UInt64Array = column(batch, "sequence")?;
    let (from, to): (Int64Array, Int64Array) = (column(batch, "from_ns")?, column(batch, "to_ns")?);
    let (spans, events): (UInt32Array, UInt32Array) = (column(batch, "spans")?, column(batch, "events")?);
    let (windows, losses): (ListArray, ListArray) = (column(batch, "windows")?, column(batch, "losses")?);
    let mut services = DictionaryColumn::of(batch, "service")?;
    let mut hosts = DictionaryColumn::of(batch, "host")?;
    let clocks = kernel_clocks(batch)?;
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
            kernel_clock: clocks(row),
        })
    };
    (0..batch.num_rows()).map(read).collect()
}

/// What was said with a row, if its file knows of that and it was said.
fn kernel_clocks(batch: &RecordBatch) -> Result<impl Fn(usize) -> Option<KernelClockRow>, String> {
    let is_known = batch.column_by_name("clock_synchronised").is_some();
    let columns: Option<(BooleanArray, Int64Array, Int64Array)> = is_known
        .then(|| {
            let synchronised = column(batch, "clock_synchronised")?;
            let max_error = column(batch, "clock_max_error_ns")?;
            Ok::<_, String>((synchronised, max_error, column(batch, "clock_estimated_error_ns")?))
        })
        .transpose()?;
    Ok(move |row| {
        let (synchronised, max_error, estimated_error) = columns.as_ref()?;
        [synchronised as &dyn Array, max_error, estimated_error]
            .iter()
            .all(|column| column.is_valid(row))
            .then(|| KernelClockRow {
                synchronised: synchronised.value(row),
                max_error_ns: max_error.value(row),
                estimated_error_ns: estimated_error.value(row),
            })
    })
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
