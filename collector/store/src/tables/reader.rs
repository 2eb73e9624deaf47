//! Reads one Parquet object batch by batch. Damage of the object ends the reading of this object
//! only.

use std::ops::RangeInclusive;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{FieldRef, Fields, Schema};
use object_store::path::Path;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader,
    ParquetRecordBatchReaderBuilder,
};
use parquet::errors::ParquetError;
use parquet::file::metadata::{PageIndexPolicy, ParquetMetaData};

use super::attributes::AttributeKeys;
use super::id_range::{IdRange, RowGroupIds, row_groups, selection, times_ns};
use super::names::{ATTRIBUTES, SCHEMA_VERSION, VERSION_KEY};
use super::objects::Store;
use super::parquet_source::ParquetSource;
use super::partition::StoreTable;
use super::read_budget::ReadBudget;
use super::schema::schema;
use super::shredding::AttributeColumn;
use super::values::values;

/// Error for a Parquet file of another program.
pub(super) const FOREIGN: &str =
    "it was not written by Stroboscope: its metadata names no schema version";

/// Reason why a file could not be read completely.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Damage {
    pub file: String,
    pub reason: String,
    /// Number of rows read before the damage; 0 if they were not counted, as in merges.
    pub rows_read: u64,
}

impl Damage {
    /// Returns the damage of a file whose rows were not counted.
    pub(super) fn new(file: String, reason: String) -> Self {
        Self {
            file,
            reason,
            rows_read: 0,
        }
    }
}

impl std::fmt::Display for Damage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            file,
            reason,
            rows_read,
        } = self;
        write!(
            f,
            "{file} is damaged ({reason}); {rows_read} of its rows were read, all other files too; move it away to \
             go on without it"
        )
    }
}

/// Opened object or temporary run, whose footer shows that Stroboscope wrote it and that it has the
/// columns to read, except those that its version may lack.
#[derive(Clone, Debug)]
pub(super) struct TableFile {
    file: String,
    object: ParquetSource,
    metadata: ArrowReaderMetadata,
    /// Ids of the traces to read, in order; `None` for all.
    wanted: Option<Arc<[u128]>>,
}

impl TableFile {
    /// Opens an object and reads its footer.
    pub(super) fn open(
        store: &Store,
        table: StoreTable,
        object: &(Path, u64),
        columns: &[&str],
        budget: ReadBudget,
    ) -> Result<Self, Damage> {
        let file = store.display(&object.0);
        let source =
            || ParquetSource::open(store, object, budget).map_err(|error| error.to_string());
        Self::of_source(file, source, table, columns)
    }

    /// Opens a run: a temporary file with the merged rows of several files. `file` is its name for
    /// messages.
    pub(super) fn of_run(
        file: String,
        run: ParquetSource,
        table: StoreTable,
        columns: &[&str],
    ) -> Result<Self, Damage> {
        Self::of_source(file, || Ok(run), table, columns)
    }

    fn of_source(
        file: String,
        source: impl FnOnce() -> Result<ParquetSource, String>,
        table: StoreTable,
        columns: &[&str],
    ) -> Result<Self, Damage> {
        match guarded(|| open(source()?, table, columns)) {
            Ok((object, metadata)) => Ok(Self {
                file,
                object,
                metadata,
                wanted: None,
            }),
            Err(reason) => Err(Damage::new(file, reason)),
        }
    }

    /// Restricts the file to the traces with these ids, which must be in order.
    pub(super) fn only(&mut self, wanted: &Arc<[u128]>) {
        self.wanted = Some(wanted.clone());
    }

    /// Returns the path of the file or the description of a run, for messages.
    pub(super) fn name(&self) -> &str {
        &self.file
    }

    /// Returns the attributes that occur in columns of their own. If the file also stores
    /// attributes as JSON, returns all attributes selected by key as well.
    pub(super) fn present(&self, keys: &AttributeKeys) -> Vec<String> {
        let counted = values(self.metadata()).filter(|(_, count)| *count > 0);
        let mut present = Vec::new();
        for (name, _) in counted {
            if name == ATTRIBUTES {
                present.extend(keys.names());
            } else if let Some(column) = AttributeColumn::of_name(&name) {
                present.push(column.key.into_string());
            }
        }
        present
    }

    /// Returns the source of the file's bytes.
    pub(super) fn source(&self) -> &ParquetSource {
        &self.object
    }

    /// Returns the metadata in the file's footer.
    pub(super) fn metadata(&self) -> &ParquetMetaData {
        self.metadata.metadata()
    }

    /// Returns the uncompressed size of the file's largest row group, in bytes.
    pub(super) fn largest_group_bytes(&self) -> u64 {
        let groups = self.metadata().row_groups().iter();
        let largest = groups.map(|group| group.total_byte_size()).max();
        u64::try_from(largest.unwrap_or(0)).unwrap_or(0)
    }

    /// Returns the schema with which the file's columns are read.
    pub(super) fn schema(&self) -> &Schema {
        self.metadata.schema()
    }

    /// Returns the file's attribute columns.
    pub(super) fn attribute_columns(&self) -> impl Iterator<Item = AttributeColumn> {
        let fields = self.metadata.schema().fields().iter();
        fields.filter_map(|field| AttributeColumn::of_name(field.name()))
    }

    /// Reports whether any row may begin in `wanted_ns`. Returns true if the times are unknown.
    pub(super) fn may_hold(&self, table: StoreTable, wanted_ns: &RangeInclusive<i64>) -> bool {
        let times = |name| times_ns(self.metadata.metadata(), name);
        let found = guarded(|| Ok(table.time_column().and_then(times))).unwrap_or_default();
        found.is_none_or(|(first_ns, last_ns)| {
            first_ns <= *wanted_ns.end() && *wanted_ns.start() <= last_ns
        })
    }

    /// Returns the bounds of the trace ids and the number of rows of each row group of the file.
    pub(super) fn row_groups(&self) -> Vec<RowGroupIds> {
        guarded(|| Ok(row_groups(self.metadata.metadata()))).unwrap_or_default()
    }

    /// Prepares a reader of some columns of the table, and of the attribute columns to read.
    fn builder(
        &self,
        columns: &[&str],
        keys: &AttributeKeys,
        batch_rows: usize,
    ) -> ParquetRecordBatchReaderBuilder<ParquetSource> {
        // Selects columns by index, because names of attributes may contain dots, which separate
        // the parts of column paths.
        let fields = self.metadata.schema().fields().iter().enumerate();
        let wanted = fields.filter(|(_, field)| is_wanted(field.name(), columns, keys));
        let places = wanted.map(|(place, _)| place);
        let mask = ProjectionMask::roots(self.metadata.parquet_schema(), places);
        let (object, metadata) = (self.object.clone(), self.metadata.clone());
        let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(object, metadata);
        builder.with_projection(mask).with_batch_size(batch_rows)
    }

    /// Opens a reader of some columns. It reads only row groups and pages that may contain trace
    /// ids of `range` and of the wanted traces.
    fn read(
        &self,
        columns: &[&str],
        keys: &AttributeKeys,
        batch_rows: usize,
        range: &IdRange,
    ) -> Result<ParquetRecordBatchReader, String> {
        let mut builder = self.builder(columns, keys, batch_rows);
        if !range.is_all() || self.wanted.is_some() {
            let wanted = self.wanted.as_deref();
            let (groups, rows) = selection(self.metadata.metadata(), range, wanted);
            builder = builder.with_row_groups(groups).with_row_selection(rows);
        }
        builder.build().map_err(|error| error.to_string())
    }
}

/// Reports whether a column should be read: it is in `columns`, or contains an attribute that is
/// selected or needed for sampling weights.
pub(super) fn is_wanted(name: &str, columns: &[&str], keys: &AttributeKeys) -> bool {
    columns.contains(&name)
        || (!keys.is_empty() || keys.are_weighted())
            && AttributeColumn::of_name(name).is_some_and(|found| keys.has(&found.key))
}

/// Reader of some columns of one object.
#[derive(Debug)]
pub struct TableReader {
    file: String,
    batches: Option<ParquetRecordBatchReader>,
    rows_read: u64,
    damage: Option<Damage>,
}

impl TableReader {
    /// Opens an object. The reader of an object that cannot be opened has no rows, and reports the
    /// reason as [damage](TableReader::damage).
    #[must_use]
    pub fn open(
        store: &Store,
        table: StoreTable,
        object: &(Path, u64),
        columns: &[&str],
        budget: ReadBudget,
    ) -> Self {
        let keys = AttributeKeys::none();
        match TableFile::open(store, table, object, columns, budget) {
            Ok(file) => Self::of(&file, columns, &keys, budget, &IdRange::ALL),
            Err(damage) => Self::of_damage(damage),
        }
    }

    /// Returns a reader without rows, which reports this damage.
    pub(super) fn of_damage(damage: Damage) -> Self {
        Self {
            file: damage.file.clone(),
            batches: None,
            rows_read: 0,
            damage: Some(damage),
        }
    }

    /// Creates a reader of the rows of `file` with trace ids in `range`; in a restricted file, only
    /// of the wanted traces. It may also return other rows.
    pub(super) fn of(
        file: &TableFile,
        columns: &[&str],
        keys: &AttributeKeys,
        budget: ReadBudget,
        range: &IdRange,
    ) -> Self {
        Self::begin(file, || file.read(columns, keys, budget.batch_rows, range))
    }

    fn begin(
        file: &TableFile,
        read: impl FnOnce() -> Result<ParquetRecordBatchReader, String>,
    ) -> Self {
        match guarded(read) {
            Ok(batches) => Self {
                file: file.file.clone(),
                batches: Some(batches),
                rows_read: 0,
                damage: None,
            },
            Err(reason) => Self::of_damage(Damage::new(file.file.clone(), reason)),
        }
    }

    /// Creates a reader of the rows of some row groups of `file`.
    pub(super) fn of_groups(
        file: &TableFile,
        columns: &[&str],
        keys: &AttributeKeys,
        budget: ReadBudget,
        groups: Vec<usize>,
    ) -> Self {
        Self::begin(file, || {
            let builder = file.builder(columns, keys, budget.batch_rows);
            let batches = builder.with_row_groups(groups).build();
            batches.map_err(|error| error.to_string())
        })
    }

    /// Returns the next rows; `None` at the end of the file, or where damage begins.
    pub fn next_batch(&mut self) -> Option<RecordBatch> {
        let batches = self.batches.as_mut()?;
        let mut next = || batches.next().transpose();
        match guarded(|| next().map_err(|error| error.to_string())) {
            Ok(batch) => {
                self.rows_read += batch.as_ref().map_or(0, |batch| batch.num_rows() as u64);
                batch
            }
            Err(reason) => {
                self.fail(reason);
                None
            }
        }
    }

    fn fail(&mut self, reason: String) {
        self.batches = None;
        self.damage = Some(Damage {
            file: self.file.clone(),
            reason,
            rows_read: self.rows_read,
        });
    }

    /// Ends the reading at an unusable batch, and records `reason` as damage.
    pub(super) fn refuse(&mut self, batch: &RecordBatch, reason: String) {
        self.rows_read = self.rows_read.saturating_sub(batch.num_rows() as u64);
        self.fail(reason);
    }

    /// Returns the damage found so far; `None` if there is none.
    #[must_use]
    pub fn damage(&self) -> Option<&Damage> {
        self.damage.as_ref()
    }
}

fn open(
    object: ParquetSource,
    table: StoreTable,
    columns: &[&str],
) -> Result<(ParquetSource, ArrowReaderMetadata), String> {
    let text = |error: ParquetError| error.to_string();
    // Ignores the Arrow schema that is embedded in the file, because its decoder may panic on
    // damaged bytes, and the schema is known. Skips the page index if the whole file is in memory,
    // because it then saves no reads.
    let pages = match object.is_whole() {
        true => PageIndexPolicy::Skip,
        false => PageIndexPolicy::Optional,
    };
    let skip = ArrowReaderOptions::new()
        .with_skip_arrow_metadata(true)
        .with_page_index_policy(pages);
    let found = ArrowReaderMetadata::load(&object, skip).map_err(text)?;
    let about = found.metadata().file_metadata().key_value_metadata();
    let version = about
        .into_iter()
        .flatten()
        .find(|pair| pair.key == VERSION_KEY);
    let version = version.and_then(|pair| pair.value.as_deref());
    let version = match version.map(str::parse::<u32>) {
        Some(Ok(version)) if version <= SCHEMA_VERSION => version,
        Some(Ok(version)) => {
            return Err(format!(
                "its schema version {version} is newer than this program's {SCHEMA_VERSION}"
            ));
        }
        _ => return Err(FOREIGN.to_owned()),
    };
    let has = |name: &str| found.schema().index_of(name).is_ok();
    let ours = schema(table);
    // A file of an older version may lack columns that were added later, which are all nullable.
    let may_lack = |name: &str| {
        let declared = ours.field_with_name(name);
        version < SCHEMA_VERSION && declared.is_ok_and(|field| field.is_nullable())
    };
    if let Some(missing) = columns.iter().find(|name| !has(name) && !may_lack(name)) {
        return Err(format!("it has no column {missing}"));
    }
    let as_ours = |field: &FieldRef| match ours.field_with_name(field.name()) {
        Ok(ours) => Arc::new(ours.clone()),
        Err(_) => AttributeColumn::of_name(field.name())
            .map_or_else(|| field.clone(), |column| Arc::new(column.read_field())),
    };
    let fields: Fields = found.schema().fields().iter().map(as_ours).collect();
    let ours = ArrowReaderOptions::new().with_schema(Arc::new(Schema::new(fields)));
    let metadata = ArrowReaderMetadata::try_new(found.metadata().clone(), ours).map_err(text)?;
    Ok((object, metadata))
}

/// Runs a part of the Parquet decoder, and converts a panic to an error. The decoder should return
/// an error for damaged bytes, but may panic instead. Both affect only this file.
pub(super) fn guarded<T>(decode: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    std::panic::catch_unwind(AssertUnwindSafe(decode))
        .unwrap_or_else(|_| Err("its decoder panicked".to_owned()))
}
