//! The table `kernel`: what a kernel recorder saw, in chunks of some seconds.
//!
//! A chunk is one file, `kernel/date=…/hour=…/rec-RECORDING-FROM-TO.parquet`: the recording's id (32 hex digits), and
//! the wall time it covers, `[FROM, TO)`, in ns. A recording's chunks follow each other without gaps and each can be
//! understood by itself: threads are introduced again in each. `kernel_schema.rs` documents the columns.

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

/// Some seconds of a recording.
#[derive(Clone, Debug, Default)]
pub struct KernelChunk {
    /// Which recording: a random number.
    pub recording: u128,
    /// The host recorded; tids are its own.
    pub host: String,
    /// Whose system calls' numbers these are.
    pub architecture: Architecture,
    /// The mask in force.
    pub burst_config: u64,
    /// Wall time covered: begin and end (exclusive), ns since the Unix epoch.
    pub covers_ns: (i64, i64),
    /// What the kernel said, in order of time.
    pub events: Vec<Event>,
    /// The windows within the chunk, in order of time, monotonic ns.
    pub windows: Vec<Window>,
    /// From monotonic to wall time.
    pub clocks: ClockLog,
    /// Lost since the recording began.
    pub lost: LossCounts,
}

/// A chunk's file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelFile {
    /// Where, and its bytes.
    pub object: (Path, u64),
    /// Which recording.
    pub recording: u128,
    /// Wall time covered, ns since the Unix epoch.
    pub covers_ns: (i64, i64),
}

/// Writes a chunk; the same chunk gives the same object.
///
/// # Errors
/// When it cannot be written.
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

/// All chunks, by recording and time.
///
/// # Errors
/// When the store cannot be listed.
pub fn list_kernel(store: &Store) -> Result<Vec<KernelFile>, StoreError> {
    let mut files: Vec<KernelFile> = store
        .list(StoreTable::Kernel)?
        .into_iter()
        .filter_map(named)
        .collect();
    files.sort_by_key(|file| (file.recording, file.covers_ns));
    Ok(files)
}

fn named(object: (Path, u64)) -> Option<KernelFile> {
    let name = object
        .0
        .filename()?
        .strip_prefix("rec-")?
        .strip_suffix(".parquet")?;
    let mut parts = name.splitn(3, '-');
    let recording = u128::from_str_radix(parts.next()?, 16).ok()?;
    let covers_ns = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    Some(KernelFile {
        object,
        recording,
        covers_ns,
    })
}

/// Reads a chunk; what is damaged in it ends its reading, and is told.
#[must_use]
pub fn read_kernel(store: &Store, file: &KernelFile) -> (KernelChunk, Option<Damage>) {
    let columns = cell_columns::<Kernel>();
    let mut reader = TableReader::open(
        store,
        StoreTable::Kernel,
        &file.object,
        &columns,
        ReadBudget::of(1),
    );
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
            reader.unread(batch.num_rows());
            reader.fail(reason);
        }
    }
    (chunk, reader.damage().cloned())
}
