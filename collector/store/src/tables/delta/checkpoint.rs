//! Checkpoints of a Delta log: the table at one version as Parquet, so that readers need not read
//! all commits.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::builder::{ListBuilder, MapBuilder, MapFieldNames, StringBuilder};
use arrow_array::{
    Array as _, ArrayRef, BooleanArray, Int32Array, Int64Array, RecordBatch, StringArray,
    StructArray,
};
use arrow_buffer::NullBuffer;
use arrow_schema::{ArrowError, Field};
use parquet::arrow::ArrowWriter;
use serde::Serialize;

use super::action::{AddFile, MetaData, Protocol};
use crate::tables::objects::StoreError;

/// Content of `_last_checkpoint`, by which readers find the newest checkpoint.
#[derive(Debug, Serialize)]
pub(super) struct LastCheckpoint {
    pub(super) version: u64,
    /// Number of actions in the checkpoint.
    pub(super) size: usize,
}

/// Returns the checkpoint of a version with these actions, as a Parquet file. Its rows are the
/// protocol, the table's metadata, and the files.
///
/// # Errors
/// Returns an error if the actions cannot be written as Parquet.
pub(super) fn checkpoint<'a>(
    protocol: &Protocol,
    metadata: &MetaData,
    files: impl Iterator<Item = &'a AddFile>,
) -> Result<Vec<u8>, StoreError> {
    let files: Vec<&AddFile> = files.collect();
    let rows = 2 + files.len();
    let columns = [
        ("protocol", one_row(protocol_columns(protocol), 0, rows)?),
        ("metaData", one_row(metadata_columns(metadata)?, 1, rows)?),
        ("add", file_rows(&files)?),
    ];
    let columns = columns.map(|(name, column)| (name, column, true));
    let batch = RecordBatch::try_from_iter_with_nullable(columns)?;
    let mut bytes = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut bytes, batch.schema(), None)?;
    writer.write(&batch)?;
    writer.close()?;
    Ok(bytes)
}

type Columns = Vec<(&'static str, ArrayRef)>;

fn structure(columns: Columns, nulls: Option<NullBuffer>) -> Result<StructArray, ArrowError> {
    let (fields, arrays): (Vec<Field>, Vec<ArrayRef>) = columns
        .into_iter()
        .map(|(name, array)| (Field::new(name, array.data_type().clone(), true), array))
        .unzip();
    StructArray::try_new(fields.into(), arrays, nulls)
}

/// Returns a column that has a value only in one of its rows.
fn one_row(columns: Columns, at: usize, rows: usize) -> Result<ArrayRef, ArrowError> {
    let value = structure(columns, None)?;
    let none = |rows| Arc::new(StructArray::new_null(value.fields().clone(), rows)) as ArrayRef;
    let parts = [none(at), Arc::new(value.clone()), none(rows - at - 1)];
    arrow_select::concat::concat(&parts.each_ref().map(AsRef::as_ref))
}

fn text(value: &str) -> ArrayRef {
    Arc::new(StringArray::from_iter_values([value]))
}

fn list(values: &[String]) -> ArrayRef {
    let mut list = ListBuilder::new(StringBuilder::new());
    list.append_value(values.iter().map(Some));
    Arc::new(list.finish())
}

fn maps<'a>(
    maps: impl Iterator<Item = &'a BTreeMap<String, String>>,
) -> Result<ArrayRef, ArrowError> {
    let names = MapFieldNames {
        entry: "key_value".into(),
        key: "key".into(),
        value: "value".into(),
    };
    let mut column = MapBuilder::new(Some(names), StringBuilder::new(), StringBuilder::new());
    for map in maps {
        for (key, value) in map {
            column.keys().append_value(key);
            column.values().append_value(value);
        }
        column.append(true)?;
    }
    Ok(Arc::new(column.finish()))
}

fn protocol_columns(of: &Protocol) -> Columns {
    let version = |version: i32| Arc::new(Int32Array::from(vec![version])) as ArrayRef;
    vec![
        ("minReaderVersion", version(of.min_reader_version)),
        ("minWriterVersion", version(of.min_writer_version)),
        ("writerFeatures", list(&of.writer_features)),
    ]
}

fn metadata_columns(of: &MetaData) -> Result<Columns, ArrowError> {
    let format = vec![
        ("provider", text(&of.format.provider)),
        ("options", maps([&of.format.options].into_iter())?),
    ];
    let created: ArrayRef = Arc::new(Int64Array::from(vec![of.created_time]));
    Ok(vec![
        ("id", text(&of.id)),
        ("name", text(&of.name)),
        ("format", Arc::new(structure(format, None)?)),
        ("schemaString", text(&of.schema_string)),
        ("partitionColumns", list(&of.partition_columns)),
        ("configuration", maps([&of.configuration].into_iter())?),
        ("createdTime", created),
    ])
}

/// Returns the column of files. Its first two rows are null.
fn file_rows(files: &[&AddFile]) -> Result<ArrayRef, ArrowError> {
    let none = BTreeMap::new();
    let with_nulls = || [None; 2].into_iter().chain(files.iter().copied().map(Some));
    let number = |of: fn(&AddFile) -> i64| {
        let values = with_nulls().map(|file| file.map(of));
        Arc::new(values.collect::<Int64Array>()) as ArrayRef
    };
    let texts = |of: fn(&AddFile) -> &str| {
        let values = with_nulls().map(|file| file.map(of));
        Arc::new(values.collect::<StringArray>()) as ArrayRef
    };
    let size = |file: &AddFile| i64::try_from(file.size).unwrap_or(i64::MAX);
    let changes = with_nulls().map(|file| file.map(|_| false));
    let partitions = with_nulls().map(|file| file.map_or(&none, |file| &file.partition_values));
    let columns = vec![
        ("path", texts(|file| &file.path)),
        ("partitionValues", maps(partitions)?),
        ("size", number(size)),
        ("modificationTime", number(|file| file.modification_time)),
        ("dataChange", Arc::new(changes.collect::<BooleanArray>())),
        ("stats", texts(|file| &file.stats)),
    ];
    let nulls = with_nulls().map(|file| file.is_some()).collect();
    Ok(Arc::new(structure(columns, Some(nulls))?))
}
