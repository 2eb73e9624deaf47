//! Files of a small table as sorted runs of rows.

use std::collections::VecDeque;
use std::sync::Arc;

use super::columns::DeclaredTable;
use super::merge::SortedRun;
use super::reader::{Damage, TableReader};
use super::schema::{BatchCells, Batches, LossCells};
use super::texts::{StringInterner, TextIndex, TextIndexer, TextReader};
use crate::record::{KernelClockRow, LoadRow, WindowRow};

/// Row of the table of batches as it is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchRead {
    /// Incarnation of the process.
    pub process: u128,
    /// Sequence number within the incarnation.
    pub sequence: u64,
    pub service: Arc<str>,
    pub host: Arc<str>,
    /// Start of the covered time, in ns since the Unix epoch.
    pub from_ns: i64,
    /// End of the covered time, in ns since the Unix epoch.
    pub to_ns: i64,
    pub spans: u32,
    pub events: u32,
    /// Windows that were recorded since the previous batch. A long window is reported in pieces
    /// while it is open.
    pub windows: Vec<WindowRow>,
    /// Number of lost records by cause, since the process started. For causes that keep the record,
    /// the number of losses.
    pub losses: Vec<(String, u64)>,
    /// State of the host's clock as its kernel reports it; `None` if the batch does not report it,
    /// or in older files.
    pub kernel_clock: Option<KernelClockRow>,
    /// Resources that the process used since the previous batch; empty in older files.
    pub loads: Vec<LoadRow>,
}

/// File as a sorted run. It decodes a batch of rows when the previous one is consumed.
#[derive(Debug)]
pub struct FileRun<Row> {
    reader: TableReader,
    names: StringInterner,
    indexer: TextIndexer,
    rows: VecDeque<Row>,
}

impl<Row> FileRun<Row> {
    pub(super) fn new(reader: TableReader) -> Self {
        Self {
            reader,
            names: StringInterner::default(),
            indexer: TextIndexer::default(),
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
                Err(reason) => self.reader.refuse(&batch, reason),
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

/// Converts cells to the struct for other crates, which contains the texts themselves.
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
