//! Reads provenance logs of requests. Each row has a piece of a log.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use super::attributes::AttributeKeys;
use super::columns::{DeclaredTable as _, cell_columns};
use super::id_range::IdRange;
use super::objects::{Store, StoreError};
use super::partition::StoreTable;
use super::read_budget::ReadBudget;
use super::reader::{Damage, TableFile, TableReader};
use super::schema::{Provenance, ProvenanceCells};
use super::texts::{StringInterner, TextIndexer, TextReader};

/// Provenance log of a request in one process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredProvenance {
    pub trace_id: u128,
    /// Time at which the request began to be tracked, in ns since the Unix epoch.
    pub time_ns: i64,
    /// Span in which the request began to be tracked.
    pub span_id: u64,
    /// Incarnation of the process.
    pub process: u128,
    /// Sequence number of the batch that contained the log, within the incarnation.
    pub sequence: u64,
    /// Index of the log within the batch.
    pub number: u32,
    pub service: Arc<str>,
    /// The log in the form of a file, up to the first missing piece.
    pub log: Vec<u8>,
}

/// Passes the logs of the traces in `range` to `visit` until it breaks: file by file, and within
/// each file in order of trace and time. Returns the damage that the reading found.
///
/// The pieces of a log are in one file, because they come from one batch. A log of a batch that was
/// stored twice is passed twice if the copies are in different files.
///
/// # Errors
/// Returns an error if the store cannot be listed.
pub fn read_provenance(
    store: &Store,
    range: &IdRange,
    visit: &mut dyn FnMut(StoredProvenance) -> ControlFlow<()>,
) -> Result<Vec<Damage>, StoreError> {
    let columns = cell_columns::<Provenance>();
    let budget = ReadBudget::of(1);
    let mut found = Vec::new();
    for object in store.list(StoreTable::Provenance)? {
        let opened = TableFile::open(store, StoreTable::Provenance, &object, &columns, budget);
        let file = match opened {
            Ok(file) => file,
            Err(damage) => {
                found.push(damage);
                continue;
            }
        };
        let keys = AttributeKeys::none();
        let mut reader = TableReader::of(&file, &columns, &keys, budget, range);
        let flow = read_file(&mut reader, range, visit);
        found.extend(reader.damage().cloned());
        if flow.is_break() {
            break;
        }
    }
    Ok(found)
}

/// Logs of one trace that began at the same time, each with its next piece's index, by process,
/// batch and number. On a coarse clock, several logs of one span may begin at the same time.
#[derive(Default)]
struct OpenLogs(BTreeMap<(u128, u64, u32), (StoredProvenance, u32)>);

impl OpenLogs {
    /// Reports whether a piece belongs to another trace or time.
    fn is_past(&self, cells: &ProvenanceCells) -> bool {
        let first = self.0.values().next();
        first.is_some_and(|(log, _)| (log.trace_id, log.time_ns) != (cells.trace_id, cells.time_ns))
    }

    fn add(&mut self, cells: &ProvenanceCells, service: Arc<str>) {
        let known = self.0.entry((cells.process, cells.sequence, cells.number));
        let (log, next) = known.or_insert_with(|| {
            let log = StoredProvenance {
                trace_id: cells.trace_id,
                time_ns: cells.time_ns,
                span_id: cells.span_id,
                process: cells.process,
                sequence: cells.sequence,
                number: cells.number,
                service,
                log: Vec::new(),
            };
            (log, 0)
        });
        // A repeated piece comes from a batch that was stored twice. Pieces after a missing one are
        // lost.
        if cells.piece == *next && cells.piece < cells.pieces {
            log.log.extend_from_slice(&cells.bytes);
            *next += 1;
        }
    }

    fn finish(
        &mut self,
        visit: &mut dyn FnMut(StoredProvenance) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let logs = std::mem::take(&mut self.0);
        logs.into_values().try_for_each(|(log, _)| visit(log))
    }
}

fn read_file(
    reader: &mut TableReader,
    range: &IdRange,
    visit: &mut dyn FnMut(StoredProvenance) -> ControlFlow<()>,
) -> ControlFlow<()> {
    let (mut names, mut indexer) = (StringInterner::default(), TextIndexer::default());
    let mut open = OpenLogs::default();
    while let Some(batch) = reader.next_batch() {
        let (mut cells, mut texts) = (Vec::new(), Vec::new());
        let mut text_reader = TextReader {
            indexer: &mut indexer,
            names: &mut names,
            texts: &mut texts,
        };
        if let Err(reason) = Provenance::read(&batch, &mut text_reader, &mut cells) {
            reader.refuse(&batch, reason);
            break;
        }
        for cells in cells {
            if !range.overlaps(cells.trace_id, cells.trace_id) {
                continue;
            }
            if open.is_past(&cells) {
                open.finish(visit)?;
            }
            let service = cells.service.of(&texts).unwrap_or_default();
            open.add(&cells, service);
        }
    }
    open.finish(visit)
}
