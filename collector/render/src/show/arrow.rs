//! Converts tables to Arrow, for SQL and Parquet.

use std::borrow::Cow;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use arrow_array::{
    ArrayRef, BooleanArray, Float64Array, RecordBatch, StringArray, TimestampNanosecondArray,
    UInt64Array,
};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef, TimeUnit};
use parquet::arrow::ArrowWriter;

use super::doc::Doc;
use super::table::{Cell, Kind, Table, TableSpec};

/// Returns the types of a table's columns. Unknown values are null.
pub fn schema(spec: &TableSpec) -> SchemaRef {
    let field = |column: &super::table::Column| {
        let data_type = match column.kind {
            Kind::Text | Kind::Segment | Kind::Request => DataType::Utf8,
            Kind::Count => DataType::UInt64,
            Kind::Instant => DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into())),
            Kind::DurationNs
            | Kind::DifferenceNs
            | Kind::Share
            | Kind::Number
            | Kind::Mean
            | Kind::Probability => DataType::Float64,
            Kind::Flag => DataType::Boolean,
        };
        Field::new(&*column.name, data_type, true)
    };
    Arc::new(Schema::new(
        spec.columns.iter().map(field).collect::<Vec<_>>(),
    ))
}

/// Converts a table with all its rows, including rows that text output and pages omit.
///
/// # Errors
/// Fails if the table has no columns. A cell that does not match its column is null.
pub fn batch(table: &Table) -> Result<RecordBatch, ArrowError> {
    let columns = table.spec.columns.iter().enumerate();
    let columns =
        columns.map(|(at, column)| array(table.rows.iter().map(|row| row.get(at)), column.kind));
    RecordBatch::try_new(schema(&table.spec), columns.collect())
}

fn array<'a>(cells: impl Iterator<Item = Option<&'a Cell>>, kind: Kind) -> ArrayRef {
    match kind {
        Kind::Text | Kind::Segment | Kind::Request => {
            let text = |cell: Option<&'a Cell>| match cell {
                Some(Cell::Text(text) | Cell::Nested(_, text) | Cell::Linked(text, _)) => {
                    Some(Cow::Borrowed(&**text))
                }
                Some(Cell::Segment(name)) => Some(Cow::Owned(name.full())),
                _ => None,
            };
            Arc::new(cells.map(text).collect::<StringArray>())
        }
        Kind::Count => {
            let count = |cell: Option<&'a Cell>| match cell {
                Some(Cell::Count(count)) => Some(*count),
                _ => None,
            };
            Arc::new(cells.map(count).collect::<UInt64Array>())
        }
        Kind::Instant => {
            let instant = |cell: Option<&'a Cell>| match cell {
                Some(Cell::Instant(at_ns)) => Some(*at_ns),
                _ => None,
            };
            let instants: TimestampNanosecondArray = cells.map(instant).collect();
            Arc::new(instants.with_timezone("UTC"))
        }
        Kind::DurationNs
        | Kind::DifferenceNs
        | Kind::Share
        | Kind::Number
        | Kind::Mean
        | Kind::Probability => {
            let value = |cell: Option<&'a Cell>| match cell {
                Some(Cell::Real(value)) => Some(*value),
                _ => None,
            };
            Arc::new(cells.map(value).collect::<Float64Array>())
        }
        Kind::Flag => {
            let flag = |cell: Option<&'a Cell>| match cell {
                Some(Cell::Flag(flag)) => Some(*flag),
                _ => None,
            };
            Arc::new(cells.map(flag).collect::<BooleanArray>())
        }
    }
}

/// Writes each table of a document to `directory/NAME.parquet`.
///
/// # Errors
/// Fails if the directory cannot be created or a file cannot be written; the error names it.
pub fn write_parquet(doc: &Doc, directory: &Path) -> Result<(), String> {
    std::fs::create_dir_all(directory)
        .map_err(|error| format!("cannot make {}: {error}", directory.display()))?;
    for table in doc.tables() {
        let path = directory.join(format!("{}.parquet", table.spec.name));
        let failed =
            |error: &dyn std::fmt::Display| format!("cannot write {}: {error}", path.display());
        let file = File::create(&path).map_err(|error| failed(&error))?;
        let written = batch(&table).map_err(|error| failed(&error))?;
        let mut writer =
            ArrowWriter::try_new(file, written.schema(), None).map_err(|error| failed(&error))?;
        writer.write(&written).map_err(|error| failed(&error))?;
        writer.close().map_err(|error| failed(&error))?;
    }
    Ok(())
}
