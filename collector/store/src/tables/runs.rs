//! The files of a table as sorted runs of plain rows: for tables that are small.

use std::collections::VecDeque;
use std::sync::Arc;

use super::columns::DeclaredTable;
use super::merge::SortedRun;
use super::reader::{Damage, TableReader};
use super::schema::{BatchCells, Batches, LossCells};
use super::texts::{StringInterner, TextIndex, TextIndexer, TextReader};
use crate::record::{KernelClockRow, LoadRow, WindowRow};

/// One row of batches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchRead {
    /// Incarnation.
    pub process: u128,
    /// Number within it.
    pub sequence: u64,
    pub service: Arc<str>,
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
    /// What the process used since the batch before; empty in files of before it was said.
    pub loads: Vec<LoadRow>,
}

/// One file as a sorted run: a batch of rows is decoded when the one before it has been taken.
#[derive(Debug)]
pub struct FileRun<Row> {
    reader: TableReader,
    names: StringInterner,
    indexer: TextIndexer,
    rows: VecDeque<Row>,
}

impl<Row> FileRun<Row> {
    pub(super) fn new(reader: TableReader) -> Self {
        let (names, indexer) = (StringInterner::default(), TextIndexer::default());
        Self {
            reader,
            names,
            indexer,
            rows: VecDeque::new(),
        }
    }

    pub(super) fn damage(&self) -> Option<&Damage> {
        self.reader.damage()
    }

    fn next_by<T: DeclaredTable>(&mut self, row: fn(T::Cells, &[Arc<str>]) -> Row) -> Option<Row> {
        while self.rows.is_empty() {
            let batch = self.reader.next_batch()?;
            let (mut cells, mut texts) = (Vec::new(), Vec::new());
            let Self { names, indexer, .. } = self;
            let mut reader = TextReader {
                indexer,
                names,
                texts: &mut texts,
            };
            match T::read(&batch, &mut reader, &mut cells) {
                Ok(()) => self.rows = cells.into_iter().map(|cells| row(cells, &texts)).collect(),
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
        self.next_by::<Batches>(batch_read)
    }
}

/// As a struct for other crates, which have texts themselves.
fn batch_read(cells: BatchCells, texts: &[Arc<str>]) -> BatchRead {
    let text = |index: TextIndex| index.of(texts).unwrap_or_default();
    let loss = |loss: &LossCells| (text(loss.cause).to_string(), loss.records);
    let kernel_clock = || {
        Some(KernelClockRow {
            synchronised: cells.clock_synchronised?,
            max_error_ns: cells.clock_max_error_ns?,
            estimated_error_ns: cells.clock_estimated_error_ns?,
        })
    };
    BatchRead {
        process: cells.process,
        sequence: cells.sequence,
        service: text(cells.service),
        host: text(cells.host),
        from_ns: cells.from_ns,
        to_ns: cells.to_ns,
        spans: cells.spans,
        events: cells.events,
        losses: cells.losses.iter().map(loss).collect(),
        kernel_clock: kernel_clock(),
        windows: cells.windows,
        loads: cells.loads,
    }
}
