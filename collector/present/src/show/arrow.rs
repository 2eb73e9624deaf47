//! To tables of Arrow, for SQL and Parquet.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use arrow_array::builder::{
    BooleanBuilder, Float64Builder, StringBuilder, TimestampNanosecondBuilder, UInt64Builder,
};
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef, TimeUnit};
use parquet::arrow::ArrowWriter;

use super::doc::Doc;
use super::table::{Cell, Kind, Table, TableSpec};

/// The types of a table's columns. What is not known is null.
#[must_use]
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

/// A table with all its rows, also those that are not shown to people.
///
/// # Errors
/// When a row has not the columns of its table.
pub fn batch(table: &Table) -> Result<RecordBatch, ArrowError> {
    let columns = table.spec.columns.iter().enumerate();
    let columns =
        columns.map(|(at, column)| array(table.rows.iter().map(|row| row.get(at)), column.kind));
    RecordBatch::try_new(schema(&table.spec), columns.collect())
}

fn array<'a>(cells: impl Iterator<Item = Option<&'a Cell>>, kind: Kind) -> ArrayRef {
    match kind {
        Kind::Text | Kind::Segment | Kind::Request => {
            let mut texts = StringBuilder::new();
            for cell in cells {
                match cell {
                    Some(Cell::Text(text) | Cell::Nested(_, text) | Cell::Linked(text, _)) => {
                        texts.append_value(text);
                    }
                    Some(Cell::Segment(name)) => texts.append_value(name.full()),
                    _ => texts.append_null(),
                }
            }
            Arc::new(texts.finish())
        }
        Kind::Count => {
            let mut counts = UInt64Builder::new();
            for cell in cells {
                counts.append_option(if let Some(Cell::Count(count)) = cell {
                    Some(*count)
                } else {
                    None
                });
            }
            Arc::new(counts.finish())
        }
        Kind::Instant => {
            let mut instants = TimestampNanosecondBuilder::new();
            for cell in cells {
                instants.append_option(if let Some(Cell::Instant(at_ns)) = cell {
                    Some(*at_ns)
                } else {
                    None
                });
            }
            Arc::new(instants.finish().with_timezone("UTC"))
        }
        Kind::DurationNs
        | Kind::DifferenceNs
        | Kind::Share
        | Kind::Number
        | Kind::Mean
        | Kind::Probability => {
            let mut values = Float64Builder::new();
            for cell in cells {
                values.append_option(if let Some(Cell::Real(value)) = cell {
                    Some(*value)
                } else {
                    None
                });
            }
            Arc::new(values.finish())
        }
        Kind::Flag => {
            let mut flags = BooleanBuilder::new();
            for cell in cells {
                flags.append_option(if let Some(Cell::Flag(flag)) = cell {
                    Some(*flag)
                } else {
                    None
                });
            }
            Arc::new(flags.finish())
        }
    }
}

/// Writes each table of a document to `folder/NAME.parquet`.
///
/// # Errors
/// When a file cannot be written; which one is said.
pub fn write_parquet(doc: &Doc, folder: &Path) -> Result<(), String> {
    std::fs::create_dir_all(folder)
        .map_err(|error| format!("cannot make {}: {error}", folder.display()))?;
    for table in doc.tables() {
        let path = folder.join(format!("{}.parquet", table.spec.name));
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
