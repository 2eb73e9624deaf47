//! Reads a file as sorted batches of all its columns, for compaction, thinning and checks, which do
//! not build records.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::types::UInt32Type;
use arrow_array::{ArrayRef, Int64Array, PrimitiveArray, RecordBatch, UInt64Array, new_null_array};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use object_store::path::Path;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader,
    ParquetRecordBatchReaderBuilder,
};
use parquet::file::metadata::{PageIndexPolicy, ParquetMetaData};

use super::batch_column::column;
use super::kinds::{id, ids};
use super::names::{ATTRIBUTES, SCHEMA_VERSION, VERSION_KEY};
use super::objects::Store;
use super::parquet_source::ParquetSource;
use super::partition::StoreTable;
use super::read_budget::ReadBudget;
use super::reader::{FOREIGN, guarded};
use super::row_merge::{KeyedBatches, SortKey};
use super::schema::schema;
use super::shredding::{fold, folded};
use super::values::values;

/// Prefix of attribute columns with texts, which are read as dictionaries.
const TEXT_COLUMNS: &str = "text:";

/// Part of the error for a file with a later schema version.
pub(super) const NEWER: &str = "is newer than this program";
/// Prefix of the keys of our metadata.
const OWN_KEYS: &str = "stroboscope.";

/// Opened file of a table, whose footer was read.
#[derive(Clone, Debug)]
pub(super) struct SortedFile {
    table: StoreTable,
    object: ParquetSource,
    metadata: ArrowReaderMetadata,
}

impl SortedFile {
    pub(super) fn open(
        store: &Store,
        table: StoreTable,
        object: &(Path, u64),
        budget: ReadBudget,
    ) -> Result<Self, String> {
        guarded(|| Self::open_unguarded(store, table, object, budget))
    }

    fn open_unguarded(
        store: &Store,
        table: StoreTable,
        object: &(Path, u64),
        budget: ReadBudget,
    ) -> Result<Self, String> {
        let text = |error: parquet::errors::ParquetError| error.to_string();
        let object = ParquetSource::open(store, object, budget).map_err(text)?;
        let options = ArrowReaderOptions::new()
            .with_skip_arrow_metadata(true)
            .with_page_index_policy(PageIndexPolicy::Skip);
        let found = ArrowReaderMetadata::load(&object, options).map_err(text)?;
        let about = found.metadata().file_metadata().key_value_metadata();
        let pairs = || about.into_iter().flatten();
        if !pairs().any(|pair| pair.key.starts_with(OWN_KEYS)) {
            return Err(FOREIGN.to_owned());
        }
        let version = pairs()
            .find(|pair| pair.key == VERSION_KEY)
            .and_then(|pair| pair.value.as_deref()?.parse::<u32>().ok())
            .ok_or("its metadata names no schema version")?;
        if version > SCHEMA_VERSION {
            let newer = format!("its schema version {version} {NEWER}'s {SCHEMA_VERSION}");
            return Err(newer);
        }
        let declared = schema(table);
        let as_ours = |field: &Arc<Field>| match declared.field_with_name(field.name()) {
            Ok(ours) => ours.clone(),
            Err(_) => Field::new(field.name(), type_of_more(field), true),
        };
        let fields: Vec<Field> = found.schema().fields().iter().map(as_ours).collect();
        let options = ArrowReaderOptions::new().with_schema(Arc::new(Schema::new(fields)));
        let metadata =
            ArrowReaderMetadata::try_new(found.metadata().clone(), options).map_err(text)?;
        Ok(Self {
            table,
            object,
            metadata,
        })
    }

    pub(super) fn rows(&self) -> u64 {
        u64::try_from(self.metadata.metadata().file_metadata().num_rows()).unwrap_or(0)
    }

    pub(super) fn schema(&self) -> &SchemaRef {
        self.metadata.schema()
    }

    pub(super) fn metadata(&self) -> &ParquetMetaData {
        self.metadata.metadata()
    }

    /// Returns the batches of the file with the columns of `schema`. These must include all columns
    /// of the file, except attribute columns that are folded into JSON. `rows` is the maximum
    /// number of rows per batch.
    pub(super) fn batches(&self, schema: &SchemaRef, rows: usize) -> Result<SortedBatches, String> {
        let build = || {
            let (object, metadata) = (self.object.clone(), self.metadata.clone());
            let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(object, metadata);
            let reader = builder.with_batch_size(rows).build();
            reader.map_err(|error| error.to_string())
        };
        Ok(SortedBatches {
            table: self.table,
            reader: guarded(build)?,
            schema: schema.clone(),
            last: None,
        })
    }
}

/// Returns the Arrow type for reading a column that the table does not declare.
fn type_of_more(field: &Field) -> DataType {
    if field.name().starts_with(TEXT_COLUMNS) {
        DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8))
    } else {
        field.data_type().clone()
    }
}

/// Returns a schema with all columns of some files: the columns of the table in their order, then
/// the other columns in the order of their names. If there are too many attribute columns, drops
/// the rarest ones, whose values then become JSON.
pub(super) fn union(table: StoreTable, files: &[SortedFile]) -> Result<SchemaRef, String> {
    let declared = schema(table);
    let (mut more, mut counts) = (BTreeMap::new(), BTreeMap::new());
    for file in files {
        for (name, count) in values(file.metadata()) {
            *counts.entry(name).or_insert(0) += count;
        }
        for ours in declared.fields() {
            if !ours.is_nullable() && file.schema().index_of(ours.name()).is_err() {
                return Err(format!("a file has no column {}", ours.name()));
            }
        }
        for field in file.schema().fields() {
            if declared.index_of(field.name()).is_ok() {
                continue;
            }
            let known = more.entry(field.name().clone());
            let known = known.or_insert_with(|| field.clone());
            if known.data_type() != field.data_type() {
                return Err(format!("column {} has two types", field.name()));
            }
        }
    }
    for name in folded(counts) {
        more.remove(&name);
    }
    let fields = declared.fields().iter().cloned().chain(more.into_values());
    Ok(Arc::new(Schema::new(fields.collect::<Vec<_>>())))
}

/// Iterator over the batches of a file. Fails if rows are not sorted.
#[derive(Debug)]
pub(super) struct SortedBatches {
    table: StoreTable,
    reader: ParquetRecordBatchReader,
    schema: SchemaRef,
    last: Option<SortKey>,
}

impl KeyedBatches for SortedBatches {
    fn next(&mut self) -> Result<Option<(RecordBatch, Vec<SortKey>)>, String> {
        loop {
            let reader = &mut self.reader;
            let read = guarded(|| reader.next().transpose().map_err(|error| error.to_string()))?;
            let Some(batch) = read else {
                return Ok(None);
            };
            if batch.num_rows() == 0 {
                continue;
            }
            let keys = keys(self.table, &batch)?;
            let sorted = self.last.is_none_or(|last| last <= keys[0]);
            if !sorted || !keys.is_sorted() {
                return Err("its rows are not sorted".to_owned());
            }
            self.last = keys.last().copied();
            return Ok(Some((conform(&batch, &self.schema)?, keys)));
        }
    }
}

/// Converts a batch to the columns of `schema`. Missing columns become null, and dropped attribute
/// columns become JSON.
pub(super) fn conform(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, String> {
    let folded = fold(batch, schema)?;
    let column = |field: &Arc<Field>| -> ArrayRef {
        if let (Some(folded), ATTRIBUTES) = (&folded, field.name().as_str()) {
            return Arc::new(folded.clone());
        }
        let missing = || new_null_array(field.data_type(), batch.num_rows());
        batch
            .column_by_name(field.name())
            .map_or_else(missing, Arc::clone)
    };
    let columns = schema.fields().iter().map(column).collect();
    RecordBatch::try_new(schema.clone(), columns).map_err(|error| error.to_string())
}

/// Returns the sort keys of a batch's rows.
pub(super) fn keys(table: StoreTable, batch: &RecordBatch) -> Result<Vec<SortKey>, String> {
    // Maps signed times to unsigned numbers that compare alike.
    let time = |ns: i64| u128::from((ns as u64) ^ (1 << 63)) << 64;
    let rows = 0..batch.num_rows();
    Ok(match table {
        StoreTable::Spans => {
            let (traces, processes) = (ids(batch, "trace_id")?, ids(batch, "process")?);
            let starts: Int64Array = column(batch, "start_ns")?;
            let spans: UInt64Array = column(batch, "span_id")?;
            rows.map(|row| {
                let within = time(starts.value(row)) | u128::from(spans.value(row));
                [id(&traces, row), within, id(&processes, row)]
            })
            .collect()
        }
        StoreTable::Events | StoreTable::Provenance => {
            let traces = ids(batch, "trace_id")?;
            let times: Int64Array = column(batch, "time_ns")?;
            let number = if table == StoreTable::Events {
                "seq"
            } else {
                "piece"
            };
            let numbers: PrimitiveArray<UInt32Type> = column(batch, number)?;
            rows.map(|row| {
                let within = time(times.value(row)) | u128::from(numbers.value(row));
                [id(&traces, row), within, 0]
            })
            .collect()
        }
        StoreTable::Batches => {
            let processes = ids(batch, "process")?;
            let numbers: UInt64Array = column(batch, "sequence")?;
            rows.map(|row| [id(&processes, row), u128::from(numbers.value(row)), 0])
                .collect()
        }
        StoreTable::Kernel => {
            let times: UInt64Array = column(batch, "monotonic_ns")?;
            rows.map(|row| [u128::from(times.value(row)), 0, 0])
                .collect()
        }
    })
}
