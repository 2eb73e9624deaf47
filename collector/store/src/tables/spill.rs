//! Opens the files of a table to read them together. If there are more files than the limit, the
//! smallest are first merged in groups to sorted runs on disk (an external merge sort). Runs have
//! only the selected columns.
//!
//! An open file of any size takes memory for its footer, and for a page and a zstd decoder of each
//! column. A decoder alone takes 95 KB, which is more than the size of many small files.
//! Runs are unnamed files, so the system deletes them when the last reader ends, even if it is
//! killed.

use std::fs::File;
use std::io::BufWriter;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow_array::RecordBatch;
use arrow_schema::{FieldRef, Schema, SchemaRef};
use object_store::path::Path;
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;

use super::attributes::AttributeKeys;
use super::checksum;
use super::columns::DeclaredTable;
use super::cursor::{ReadContext, RowLayout};
use super::id_range::{IdRange, selection};
use super::objects::{Store, StoreError};
use super::parquet_source::ParquetSource;
use super::partition::StoreTable;
use super::read_budget::ReadBudget;
use super::reader::{Damage, TableFile, TableReader, is_wanted};
use super::row_merge::{KeyedBatches, RowMerge, SortKey};
use super::schema::schema;
use super::shredding::{AttributeColumn, folded};
use super::sorted_file::{conform, keys};
use super::threads::on_threads;
use super::values::values;
use super::write::properties_with;

/// Default maximum number of files of a table that are read together. A compacted store has one or
/// a few per hour. With twelve columns and two readers, each file takes 2 MB. A search over a
/// week's 177 files took 450 to 580 MB. With a limit of 64, it took 370 MB, and 9.2 s instead of
/// 3.8 s.
pub(super) const FILES_MAX: usize = 256;
/// Maximum number of groups that are merged at the same time.
const WORKERS_MAX: usize = 4;
/// Maximum number of rows that are decoded ahead, over all files of a group of up to 2,048.
const ROWS_TOGETHER: usize = 131_072;
const BATCH_ROWS_MIN: usize = 64;
const BATCH_ROWS_MAX: usize = 2_048;

/// Selection of the rows and columns to read from a table.
pub(super) struct SpillRequest<'a> {
    pub(super) store: &'a Store,
    pub(super) table: StoreTable,
    pub(super) columns: &'a [&'a str],
    pub(super) keys: &'a AttributeKeys,
    /// Time range in ns since the Unix epoch. Files whose statistics show that no row begins in it
    /// are skipped.
    pub(super) times_ns: RangeInclusive<i64>,
    /// Range of the traces to read. Rows of other traces may be left out.
    pub(super) range: IdRange,
    /// True to verify the checksums of the opened files.
    pub(super) is_verified: bool,
    /// Maximum number of files that are read together (at least 1), or merged in one group (at
    /// least 2).
    pub(super) files_max: usize,
}

/// Opened files of a table, and counts of the store's files.
#[derive(Debug, Default)]
pub(super) struct OpenedFiles {
    pub(super) files: Vec<TableFile>,
    pub(super) damage: Vec<Damage>,
    /// Number of the store's files that are read, some of them as parts of runs. Includes files
    /// whose footer shows that they have no trace of the range.
    pub(super) read: usize,
    /// Number of files that are skipped, because none of their rows begins in the time range.
    pub(super) skipped: usize,
}

#[derive(Clone)]
enum Input {
    Object((Path, u64)),
    Run { run: TableFile, bytes: u64 },
}

impl Input {
    fn bytes(&self) -> u64 {
        match self {
            Self::Object((_, bytes)) | Self::Run { bytes, .. } => *bytes,
        }
    }
}

/// Run of the files of a group (`None` if they have no selected rows), and the counts of the files.
type MergedGroup = (Option<Input>, OpenedFiles);

/// Opens the files of a table, and merges the smallest first if there are too many.
///
/// # Errors
/// Returns an error if there are too many files and they cannot be merged.
pub(super) fn open_files<T: DeclaredTable>(
    wanted: &SpillRequest<'_>,
    objects: Vec<(Path, u64)>,
) -> Result<OpenedFiles, StoreError> {
    let mut opened = OpenedFiles::default();
    let files_max = wanted.files_max.max(1);
    let mut inputs: Vec<Input> = objects.into_iter().map(Input::Object).collect();
    if inputs.len() > files_max && wanted.is_limited() {
        inputs.retain(|input| wanted.may_be_wanted(input, &mut opened));
    }
    while inputs.len() > files_max {
        inputs = wanted.merge_smallest::<T>(inputs, &mut opened)?;
    }
    let budget = ReadBudget::of(inputs.len());
    for input in inputs {
        wanted.open(input, budget, &mut opened);
    }
    Ok(opened)
}

impl SpillRequest<'_> {
    fn is_limited(&self) -> bool {
        self.times_ns != (i64::MIN..=i64::MAX) || !self.range.is_all()
    }

    /// Reports whether a file may have selected rows, by its footer. If not, counts and closes the
    /// file.
    fn may_be_wanted(&self, input: &Input, opened: &mut OpenedFiles) -> bool {
        let Input::Object(object) = input else {
            return true;
        };
        let budget = ReadBudget {
            whole_bytes_max: 0,
            ..ReadBudget::of(1)
        };
        match TableFile::open(self.store, self.table, object, self.columns, budget) {
            Ok(file) if !file.may_hold(self.table, &self.times_ns) => {
                opened.skipped += 1;
                false
            }
            Ok(file) => {
                let is_in_range = self.range.is_all()
                    || !selection(file.metadata(), &self.range, None).0.is_empty();
                opened.read += usize::from(!is_in_range);
                is_in_range
            }
            // Keeps a file with an error, which reading it will report.
            Err(_) => true,
        }
    }

    fn open(&self, input: Input, budget: ReadBudget, opened: &mut OpenedFiles) {
        let object = match input {
            Input::Object(object) => object,
            Input::Run { run, .. } => return opened.files.push(run),
        };
        match TableFile::open(self.store, self.table, &object, self.columns, budget) {
            Ok(file) if !file.may_hold(self.table, &self.times_ns) => opened.skipped += 1,
            Ok(file) => match self.flaw(&object, &file) {
                Some(flaw) => opened.damage.push(flaw),
                None => {
                    opened.read += 1;
                    opened.files.push(file);
                }
            },
            Err(flaw) => opened.damage.push(flaw),
        }
    }

    /// Returns the damage in the pages of a file, by its checksum. Decoding does not find such
    /// damage reliably, because a corrupted page may decode to other values. Returns `None` for an
    /// intact file, for one that is remote or has no checksum, and if checksums are not verified.
    fn flaw(&self, object: &(Path, u64), file: &TableFile) -> Option<Damage> {
        if !self.is_verified {
            return None;
        }
        let holds = || checksum::holds(self.store, &object.0, file.metadata());
        let reason = match self.store.is_held(&object.0, holds) {
            Ok(true) => return None,
            Ok(false) => checksum::BROKEN.to_owned(),
            Err(reason) => reason,
        };
        Some(Damage::new(self.store.display(&object.0), reason))
    }

    /// Merges enough of the smallest files to bring the number of files within the limit. If one
    /// call cannot do this, merges all files in groups. Each run takes the position of the first
    /// file of its group.
    fn merge_smallest<T: DeclaredTable>(
        &self,
        inputs: Vec<Input>,
        opened: &mut OpenedFiles,
    ) -> Result<Vec<Input>, StoreError> {
        let group_files = self.files_max.max(2);
        let surplus = inputs.len().saturating_sub(self.files_max.max(1));
        // Accounts for the run of each group, which counts as a file.
        let merged = (surplus + surplus.div_ceil(group_files - 1)).clamp(2, inputs.len());
        let mut smallest: Vec<usize> = (0..inputs.len()).collect();
        smallest.sort_by_key(|at| inputs[*at].bytes());
        smallest.truncate(merged);
        smallest.sort_unstable();
        let groups: Vec<&[usize]> = smallest.chunks(group_files).collect();
        tracing::debug!(
            "{} files of {}: {merged} of them are merged to {} before they are read",
            inputs.len(),
            self.table.name(),
            groups.len()
        );
        let next = AtomicUsize::new(0);
        let work = |_| -> Result<Vec<(usize, MergedGroup)>, StoreError> {
            let mut made = Vec::new();
            while let Some(group) = groups.get(next.fetch_add(1, Ordering::Relaxed)) {
                let files = group.iter().map(|at| &inputs[*at]);
                made.push((group[0], self.merge_group::<T>(files)?));
            }
            Ok(made)
        };
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let workers = cores.min(WORKERS_MAX).min(groups.len());
        let made: Result<Vec<_>, StoreError> = on_threads(workers, work).into_iter().collect();
        let made = made?;
        let mut kept: Vec<Option<Input>> = inputs.into_iter().map(Some).collect();
        smallest.iter().for_each(|at| kept[*at] = None);
        for (at, (run, merged)) in made.into_iter().flatten() {
            kept[at] = run;
            opened.damage.extend(merged.damage);
            opened.read += merged.read;
            opened.skipped += merged.skipped;
        }
        Ok(kept.into_iter().flatten().collect())
    }

    /// Merges some files to a run; the result has no run if the files have no selected rows.
    fn merge_group<'i, T: DeclaredTable>(
        &self,
        inputs: impl ExactSizeIterator<Item = &'i Input>,
    ) -> Result<MergedGroup, StoreError> {
        let mut opened = OpenedFiles::default();
        let count = inputs.len();
        let budget = ReadBudget {
            batch_rows: (ROWS_TOGETHER / count.max(1)).clamp(BATCH_ROWS_MIN, BATCH_ROWS_MAX),
            ..ReadBudget::of(count * WORKERS_MAX)
        };
        for input in inputs {
            self.open(input.clone(), budget, &mut opened);
        }
        let files = std::mem::take(&mut opened.files);
        let schema = self.union(&files);
        let mut merge = RowMerge::of(self.table, None);
        for file in &files {
            let run = CheckedRun::<T> {
                table: self.table,
                reader: TableReader::of(file, self.columns, self.keys, budget, &self.range),
                schema: schema.clone(),
                last: None,
                rows: RowLayout::default(),
                context: ReadContext::of(self.keys),
            };
            merge.add(run).map_err(StoreError::Run)?;
        }
        let (directory, to) = temporary_file(self.store)?;
        let at_directory = |reason: String| StoreError::Temporary {
            directory: directory.clone(),
            reason,
        };
        let parquet = |error: parquet::errors::ParquetError| at_directory(error.to_string());
        let properties = properties_with(self.table, Compression::UNCOMPRESSED);
        let to = BufWriter::with_capacity(1 << 20, to);
        let mut writer = ArrowWriter::try_new(to, schema, Some(properties)).map_err(parquet)?;
        let mut rows = 0;
        let failed = |(_, reason)| StoreError::Run(reason);
        while let Some(chunk) = merge.next_chunk().map_err(failed)? {
            rows += chunk.num_rows();
            writer.write(&chunk).map_err(parquet)?;
        }
        let damage = merge.inputs().filter_map(|run| run.reader.damage());
        opened.damage.extend(damage.cloned());
        if rows == 0 {
            return Ok((None, opened));
        }
        let file = writer.into_inner().map_err(parquet)?.into_inner();
        let file = file.map_err(|error| at_directory(error.to_string()))?;
        let about = file.metadata();
        let bytes = about
            .map_err(|error| at_directory(error.to_string()))?
            .len();
        let name = format!("a temporary run of {count} files of {}", self.table.name());
        let source = ParquetSource::of_file(self.store, Path::from(&*name), bytes, file);
        match TableFile::of_run(name, source, self.table, self.columns) {
            Ok(run) => Ok((Some(Input::Run { run, bytes }), opened)),
            Err(damage) => Err(at_directory(damage.reason)),
        }
    }

    /// Returns the schema of a run: the selected columns of the table, and the attribute columns of
    /// the files that are read, up to the limit for a compacted file.
    fn union(&self, files: &[TableFile]) -> SchemaRef {
        let mut more = std::collections::BTreeMap::new();
        let mut counts = std::collections::BTreeMap::new();
        for file in files {
            for field in file.schema().fields() {
                let name = field.name();
                if AttributeColumn::of_name(name).is_some() && is_wanted(name, &[], self.keys) {
                    more.entry(name.clone()).or_insert_with(|| field.clone());
                }
            }
            for (name, count) in values(file.metadata()) {
                *counts.entry(name).or_insert(0) += count;
            }
        }
        counts.retain(|name, _| more.contains_key(name));
        for name in folded(counts) {
            more.remove(&name);
        }
        let declared = schema(self.table);
        let is_read = |field: &&FieldRef| self.columns.contains(&field.name().as_str());
        let wanted = declared.fields().iter().filter(is_read);
        let fields: Vec<_> = wanted.cloned().chain(more.into_values()).collect();
        Arc::new(Schema::new(fields))
    }
}

/// Creates an unnamed file in the data directory's `cache/`. Uses the system's temporary directory
/// if this fails or the store is not local. Returns the file with its directory.
pub(super) fn temporary_file(store: &Store) -> Result<(PathBuf, File), StoreError> {
    let root = store.local_root().filter(|root| root.is_dir());
    if let Some(directory) = root.map(|root| root.join("cache"))
        && std::fs::create_dir_all(&directory).is_ok()
        && let Ok(file) = tempfile::tempfile_in(&directory)
    {
        return Ok((directory, file));
    }
    let directory = std::env::temp_dir();
    match tempfile::tempfile_in(&directory).map_err(|error| error.to_string()) {
        Ok(file) => Ok((directory, file)),
        Err(reason) => Err(StoreError::Temporary { directory, reason }),
    }
}

/// File that is being merged to a run. Decodes each batch to check that readers of the run will be
/// able to decode it, so that damage ends the reading of this file only.
struct CheckedRun<T: DeclaredTable> {
    table: StoreTable,
    reader: TableReader,
    schema: SchemaRef,
    last: Option<SortKey>,
    rows: RowLayout<T>,
    context: ReadContext,
}

impl<T: DeclaredTable> CheckedRun<T> {
    fn check(&mut self, batch: &RecordBatch) -> Result<(RecordBatch, Vec<SortKey>), String> {
        self.rows.fill(batch, &mut self.context)?;
        let keys = keys(self.table, batch)?;
        let is_after = self.last.is_none_or(|last| last <= keys[0]);
        if !is_after || !keys.is_sorted() {
            return Err("its rows are not sorted".to_owned());
        }
        let batch = conform(batch, &self.schema)?;
        self.last = keys.last().copied();
        Ok((batch, keys))
    }
}

impl<T: DeclaredTable> KeyedBatches for CheckedRun<T> {
    fn next(&mut self) -> Result<Option<(RecordBatch, Vec<SortKey>)>, String> {
        while let Some(batch) = self.reader.next_batch() {
            if batch.num_rows() == 0 {
                continue;
            }
            match self.check(&batch) {
                Ok(checked) => return Ok(Some(checked)),
                Err(reason) => self.reader.refuse(&batch, reason),
            }
        }
        (self.rows, self.context) = (RowLayout::default(), ReadContext::default());
        Ok(None)
    }
}
