//! Writes rows as sorted Parquet objects.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{Field, Schema};
use object_store::path::Path;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;

use super::checksum::{ChecksumWriter, seal};
use super::columns::{DeclaredTable, write_columns};
use super::names::{ATTRIBUTES, SCHEMA_VERSION, TABLE_KEY, VERSION_KEY};
use super::objects::{Store, StoreError};
use super::partition::{PartitionRule, StoreTable};
use super::schema::{Batches, Events, Provenance, Spans, schema};
use super::shredding::{AttributeColumn, HasAttributes, Shredder};
use super::stored_operations::FactsWriter;
use super::texts::TextColumns;
use crate::record::{BatchRow, ProvenanceRow, Rows};

/// Maximum number of rows that are converted to columns at a time.
const CHUNK_ROWS: usize = 16_384;
/// Maximum number of rows in a row group. Row groups may be large, because a reader holds only some
/// pages of a row group.
const ROW_GROUP_ROWS: usize = 131_072;
/// Maximum number of rows in a page. Pages should be small, because a reader that merges many files
/// holds a page of each column of each file.
const PAGE_ROWS: usize = 2_048;

/// Paths and size of objects that were written.
#[derive(Debug, Default)]
pub struct WrittenObjects {
    /// Paths of the objects. Their names are not durable yet; see [`Store::make_durable`].
    pub paths: Vec<Path>,
    /// Total size of the objects, in bytes.
    pub bytes: u64,
}

/// Sorts all rows, and writes them as objects called `name` in the hours that `rule` chooses. Equal
/// rows, names and rules give equal objects.
///
/// # Errors
/// Returns an error if an object cannot be written. The objects before it are written.
pub fn write_rows(
    store: &Store,
    name: &str,
    mut rows: Rows,
    rule: &PartitionRule,
) -> Result<WrittenObjects, StoreError> {
    sort_and_write(store, name, &mut rows, rule)
}

/// Writes rows like [`write_rows`], and leaves them to the caller.
///
/// # Errors
/// Fails under the same conditions as [`write_rows`].
pub(crate) fn sort_and_write(
    store: &Store,
    name: &str,
    rows: &mut Rows,
    rule: &PartitionRule,
) -> Result<WrittenObjects, StoreError> {
    rows.spans
        .sort_unstable_by_key(|row| (row.trace_id, row.start_ns, row.span_id, row.process));
    rows.events
        .sort_by_key(|row| (row.trace_id, row.time_ns, row.seq));
    rows.batches
        .sort_unstable_by_key(|row| (row.process, row.sequence));
    rows.provenance
        .sort_by_key(|row| (row.trace_id, row.time_ns, row.piece));
    let texts = TextColumns::new(&rows.strings);
    let mut out = Out {
        store,
        name,
        rule,
        texts: &texts,
        written: WrittenObjects::default(),
    };
    out.table::<Spans>(StoreTable::Spans, &mut rows.spans, |row| row.start_ns)?;
    out.table::<Events>(StoreTable::Events, &mut rows.events, |row| row.time_ns)?;
    let received_ns = |row: &BatchRow| row.received_ns;
    out.table::<Batches>(StoreTable::Batches, &mut rows.batches, received_ns)?;
    let time_ns = |row: &ProvenanceRow| row.time_ns;
    out.table::<Provenance>(StoreTable::Provenance, &mut rows.provenance, time_ns)?;
    Ok(out.written)
}

struct Out<'a> {
    store: &'a Store,
    name: &'a str,
    rule: &'a PartitionRule,
    texts: &'a TextColumns,
    written: WrittenObjects,
}

impl Out<'_> {
    fn table<T: DeclaredTable<Row: HasAttributes>>(
        &mut self,
        table: StoreTable,
        rows: &mut [T::Row],
        time_ns: impl Fn(&T::Row) -> i64,
    ) -> Result<(), StoreError> {
        let hour = |row: &T::Row| self.rule.hour(time_ns(row));
        // Stable, and a single scan if all rows are of one hour, as they mostly are.
        rows.sort_by_key(hour);
        for rows in rows.chunk_by(|a, b| hour(a) == hour(b)) {
            let path = hour(&rows[0]).path(table, self.name);
            self.written.bytes += put_rows::<T>(self.store, table, &path, rows, self.texts)?;
            self.written.paths.push(path);
        }
        Ok(())
    }
}

/// Writes rows as one object. Returns the size of the object, in bytes.
pub(super) fn put_rows<T: DeclaredTable<Row: HasAttributes>>(
    store: &Store,
    table: StoreTable,
    path: &Path,
    rows: &[T::Row],
    texts: &TextColumns,
) -> Result<u64, StoreError> {
    let mut shredder = Shredder::of(rows);
    let declared = schema(table);
    let json = declared.index_of(ATTRIBUTES).ok();
    let fields = declared.fields().iter().map(|field| Field::clone(field));
    let attributes = shredder.columns().iter().map(AttributeColumn::field);
    let schema = Arc::new(Schema::new(fields.chain(attributes).collect::<Vec<_>>()));
    let properties = properties(table)?;
    let to = ChecksumWriter::new(Vec::new());
    let mut writer = ArrowWriter::try_new(to, schema.clone(), Some(properties))?;
    let mut facts = FactsWriter::of(table, rows.len() as u64);
    for chunk in rows.chunks(CHUNK_ROWS) {
        let mut columns = write_columns::<T>(chunk, texts)?;
        if let Some(json) = json {
            let (shredded, rest) = shredder.shred(chunk);
            columns[json] = rest;
            columns.extend(shredded);
        }
        let batch = RecordBatch::try_new(schema.clone(), columns)?;
        facts.iter_mut().for_each(|facts| facts.observe(&batch));
        writer.write(&batch)?;
    }
    seal(&mut writer, facts)?;
    let bytes = writer.into_inner()?.into_inner();
    let size = bytes.len() as u64;
    store.put(path, bytes)?;
    Ok(size)
}

/// Returns the Parquet properties with which all files of a table in the store are written.
pub(super) fn properties(table: StoreTable) -> Result<WriterProperties, StoreError> {
    let compression = Compression::ZSTD(ZstdLevel::try_new(1)?);
    Ok(properties_with(table, compression))
}

/// Returns the Parquet properties of a table's files with the given compression.
pub(super) fn properties_with(table: StoreTable, compression: Compression) -> WriterProperties {
    let about = vec![
        KeyValue::new(VERSION_KEY.to_owned(), SCHEMA_VERSION.to_string()),
        KeyValue::new(TABLE_KEY.to_owned(), table.name().to_owned()),
    ];
    let mut properties = WriterProperties::builder()
        .set_compression(compression)
        .set_max_row_group_row_count(Some(ROW_GROUP_ROWS))
        .set_data_page_row_count_limit(PAGE_ROWS)
        .set_key_value_metadata(Some(about));
    let columns = table.columns().into_iter();
    for column in columns.filter(|column| column.is_distinct) {
        properties = properties.set_column_dictionary_enabled(column.name.into(), false);
    }
    properties.build()
}
