//! Table `kernel`: events from kernel recorders in chunks of some seconds, and imported texts, each
//! as one chunk.
//!
//! A chunk is one file, `kernel/date=…/hour=…/rec-RECORDING-FROM-TO.parquet`. Its name contains the
//! recording's id (32 hexadecimal digits) and the wall time that it covers, `[FROM, TO)`, in ns
//! since the Unix epoch. The chunks of a recording follow each other. Gaps between them are chunks
//! without windows and events, or chunks that failed to be written or were deleted. Each chunk is
//! self-contained, because it introduces its threads again. `kernel_schema.rs` documents the
//! columns.

mod rows;

use object_store::path::Path;
use stroboscope_analysis::kernel::call::Architecture;
use stroboscope_analysis::kernel::event::{Event, LossCounts, Window};
use stroboscope_kernel_model::ClockLog;

use super::columns::{DeclaredTable, cell_columns};
use super::kernel_schema::Kernel;
use super::objects::{Store, StoreError};
use super::partition::{Hour, StoreTable};
use super::read_budget::ReadBudget;
use super::reader::{Damage, TableReader};
use super::texts::{StringInterner, TextColumns, TextIndexer, TextReader};
use super::write::{WrittenObjects, put_rows};

/// Chunk of a kernel recording, or an imported text of kernel events.
#[derive(Clone, Debug, Default)]
pub struct KernelChunk {
    /// Id of the recording.
    pub recording: u128,
    /// Recorded host, which is the scope of the thread ids; `imported` for an imported text.
    pub host: String,
    /// Architecture that defines the numbers of system calls.
    pub architecture: Architecture,
    /// Burst-config in force, as bits; 0 for an imported text.
    pub burst_config: u64,
    /// Covered wall time: start and exclusive end, in ns since the Unix epoch.
    pub covers_ns: (i64, i64),
    /// Kernel events, in order of time.
    pub events: Vec<Event>,
    /// Windows within the chunk, in order of time, in ns by the events' clock.
    pub windows: Vec<Window>,
    /// Conversion from monotonic to wall time.
    pub clocks: ClockLog,
    /// Numbers of events lost from the start of the recording until the chunk was cut.
    pub lost: LossCounts,
}

/// File of a chunk, with the data in its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelFile {
    /// Path of the file in the store, and its size in bytes.
    pub object: (Path, u64),
    /// Id of the recording.
    pub recording: u128,
    /// Covered wall time: start and exclusive end, in ns since the Unix epoch.
    pub covers_ns: (i64, i64),
}

/// Writes a chunk. Writing the same chunk again replaces the object with an equal one.
///
/// # Errors
/// Returns an error if the chunk cannot be written.
pub fn write_kernel(store: &Store, chunk: &KernelChunk) -> Result<WrittenObjects, StoreError> {
    let (from_ns, to_ns) = chunk.covers_ns;
    let name = format!("rec-{:032x}-{from_ns}-{to_ns}", chunk.recording);
    let path = Hour::of(from_ns).path(StoreTable::Kernel, &name);
    let (rows, strings) = rows::of_chunk(chunk);
    let texts = TextColumns::new(&strings);
    let bytes = put_rows::<Kernel>(store, StoreTable::Kernel, &path, &rows, &texts)?;
    Ok(WrittenObjects {
        paths: vec![path],
        bytes,
    })
}

/// Returns the files of all chunks, in the order of recording and time.
///
/// # Errors
/// Returns an error if the store cannot be listed.
pub fn list_kernel(store: &Store) -> Result<Vec<KernelFile>, StoreError> {
    let listed = store.list(StoreTable::Kernel)?.into_iter();
    let mut files: Vec<KernelFile> = listed.filter_map(named).collect();
    files.sort_by_key(|file| (file.recording, file.covers_ns));
    Ok(files)
}

fn named(object: (Path, u64)) -> Option<KernelFile> {
    let name = object.0.filename()?.strip_prefix("rec-")?;
    let name = name.strip_suffix(".parquet")?;
    let mut parts = name.splitn(3, '-');
    let recording = u128::from_str_radix(parts.next()?, 16).ok()?;
    let covers_ns = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    Some(KernelFile {
        object,
        recording,
        covers_ns,
    })
}

/// Reads a chunk. If the file is damaged, returns the rows before the damage, and the damage.
#[must_use]
pub fn read_kernel(store: &Store, file: &KernelFile) -> (KernelChunk, Option<Damage>) {
    let (columns, budget) = (cell_columns::<Kernel>(), ReadBudget::of(1));
    let mut reader = TableReader::open(store, StoreTable::Kernel, &file.object, &columns, budget);
    let mut chunk = KernelChunk {
        recording: file.recording,
        covers_ns: file.covers_ns,
        ..KernelChunk::default()
    };
    let (mut names, mut indexer) = (StringInterner::default(), TextIndexer::default());
    let (mut cells, mut texts) = (Vec::new(), Vec::new());
    while let Some(batch) = reader.next_batch() {
        cells.clear();
        texts.clear();
        let mut text_reader = TextReader {
            indexer: &mut indexer,
            names: &mut names,
            texts: &mut texts,
        };
        let read = Kernel::read(&batch, &mut text_reader, &mut cells);
        if let Err(reason) = read.and_then(|()| rows::into_chunk(&cells, &texts, &mut chunk)) {
            reader.refuse(&batch, reason);
        }
    }
    (chunk, reader.damage().cloned())
}
