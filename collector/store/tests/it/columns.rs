//! Tests of columns: the documentation matches their declarations, readers accept older files that
//! lack new columns, and report files with columns of other types.
//!
//! `STROBOSCOPE_BLESS=1 cargo test -p stroboscope-store --test it -- columns::` rewrites the tables
//! of columns in `collector/docs/store.md`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::{Int64Array, RecordBatch};
use arrow_schema::{DataType, Schema};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use stroboscope_fixtures::batches::batch;
use stroboscope_store::tables::{
    AttributeKeys, ColumnInfo, StoreTable, TraceReader, damage_of, read_batches,
};

use crate::tables::{Fixture, rows, write};

const HEAD: [&str; 2] = ["| column | type | meaning |", "|---|---|---|"];

fn type_name(data_type: &DataType) -> String {
    let DataType::List(item) = data_type else {
        return data_type.to_string();
    };
    let DataType::Struct(fields) = item.data_type() else {
        return data_type.to_string();
    };
    let field = |field: &Arc<arrow_schema::Field>| {
        let null = if field.is_nullable() { " or null" } else { "" };
        format!("`{}` {}{null}", field.name(), field.data_type())
    };
    format!(
        "list of ({})",
        fields.iter().map(field).collect::<Vec<_>>().join(", ")
    )
}

/// Returns a documentation line per column. Adjacent columns of equal type and meaning share a
/// line.
fn documented(columns: &[ColumnInfo]) -> Vec<String> {
    let about =
        |column: &ColumnInfo| (column.data_type.clone(), column.is_nullable, column.meaning);
    let line = |columns: &[ColumnInfo]| {
        let names: Vec<String> = columns
            .iter()
            .map(|column| format!("`{}`", column.name))
            .collect();
        let (data_type, is_nullable, meaning) = about(&columns[0]);
        let null = if is_nullable { ", null" } else { "" };
        let meaning = if meaning.is_empty() {
            String::new()
        } else {
            format!("{meaning} ")
        };
        format!(
            "| {} | {}{null} | {meaning}|",
            names.join(", "),
            type_name(&data_type)
        )
    };
    columns
        .chunk_by(|a, b| about(a) == about(b))
        .map(line)
        .collect()
}

#[test]
fn users_are_told_of_all_columns() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/store.md");
    let found = std::fs::read_to_string(&path).unwrap();
    let mut lines: Vec<String> = found.lines().map(str::to_owned).collect();
    for table in StoreTable::ALL {
        let heading = format!("### {}", table.name());
        let section = lines.iter().position(|line| *line == heading);
        let section = section.unwrap_or_else(|| panic!("docs/store.md has no section `{heading}`"));
        let begin = lines[section..]
            .iter()
            .position(|line| *line == HEAD[0])
            .unwrap()
            + section
            + HEAD.len();
        let end = lines[begin..]
            .iter()
            .position(|line| !line.starts_with('|'))
            .unwrap()
            + begin;
        lines.splice(begin..end, documented(&table.columns()));
    }
    let expected = lines.join("\n") + "\n";
    if std::env::var_os("STROBOSCOPE_BLESS").is_some() {
        std::fs::write(&path, expected).unwrap();
        return;
    }
    let differs = found
        .lines()
        .zip(expected.lines())
        .find(|(found, expected)| found != expected);
    assert!(
        found == expected,
        "docs/store.md is stale: {differs:?}; run STROBOSCOPE_BLESS=1 cargo test -p stroboscope-store --test it -- \
         columns::"
    );
}

/// Rewrites a file with the changed rows, as a file of schema version `version`.
fn rewrite(path: &PathBuf, version: &str, change: impl Fn(&RecordBatch) -> RecordBatch) {
    let file = std::fs::File::open(path).unwrap();
    let mut reader = ParquetRecordBatchReaderBuilder::try_new(file)
        .unwrap()
        .build()
        .unwrap();
    let changed = change(&reader.next().unwrap().unwrap());
    let about = vec![KeyValue::new(
        "stroboscope.schema_version".to_owned(),
        version.to_owned(),
    )];
    let properties = WriterProperties::builder()
        .set_key_value_metadata(Some(about))
        .build();
    let mut bytes = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut bytes, changed.schema(), Some(properties)).unwrap();
    writer.write(&changed).unwrap();
    writer.close().unwrap();
    std::fs::write(path, bytes).unwrap();
}

fn without(batch: &RecordBatch, is_gone: impl Fn(&str) -> bool) -> RecordBatch {
    let schema = batch.schema();
    let kept = |at: &usize| !is_gone(schema.field(*at).name());
    batch
        .project(&(0..batch.num_columns()).filter(kept).collect::<Vec<_>>())
        .unwrap()
}

/// Files of schema version 1, which lack kernel clocks and loads, are still read.
#[test]
fn files_of_an_older_version_lack_what_came_later() {
    let fixture = Fixture::new();
    let store = fixture.store();
    write(&store, "seg-0000000000", rows([batch(1, 1, 4)]));
    let path = fixture.path("batches", "seg-0000000000");
    let is_later =
        |name: &str| name.starts_with("clock_") && name != "clock_steps" || name == "loads";
    rewrite(&path, "1", |whole| without(whole, is_later));
    let mut read = read_batches(&store).unwrap();
    let batches: Vec<_> = read.by_ref().collect();
    assert!(damage_of(&read).is_empty(), "{:?}", damage_of(&read));
    assert_eq!(
        (batches.len(), batches[0].sequence, batches[0].kernel_clock),
        (1, 1, None)
    );
    assert_eq!(batches[0].loads, []);
    assert_eq!(batches[0].losses, [("ring_full".to_owned(), 1)]);
    // A file of the current version must have these columns.
    rewrite(&path, "4", Clone::clone);
    let mut read = read_batches(&store).unwrap();
    assert_eq!(read.by_ref().count(), 0);
    assert!(
        damage_of(&read)[0].reason.contains("no column clock_"),
        "{:?}",
        damage_of(&read)
    );
}

#[test]
fn whatever_may_be_null_may_be_absent_in_an_older_file() {
    let fixture = Fixture::new();
    let store = fixture.store();
    write(&store, "seg-0000000000", rows([batch(1, 0, 7)]));
    let read = || {
        let mut reader = TraceReader::open_with(&store, &AttributeKeys::all()).unwrap();
        let traces: Vec<_> = reader.by_ref().collect();
        assert!(reader.damage().is_empty(), "{:?}", reader.damage());
        traces
    };
    let mut whole = read();
    assert!(whole.iter().any(|trace| !trace.attributes.is_empty()));
    for table in [StoreTable::Spans, StoreTable::Events] {
        let columns = table.columns();
        let may_lack = |name: &str| {
            columns
                .iter()
                .any(|column| column.name == name && column.is_nullable)
                || name.contains(':')
        };
        let path = fixture.path(table.name(), "seg-0000000000");
        rewrite(&path, "1", |whole| without(whole, may_lack));
    }
    whole.iter_mut().for_each(|trace| trace.attributes.clear());
    whole.iter_mut().for_each(|trace| trace.elements.clear());
    assert_eq!(read(), whole);
}

#[test]
fn a_column_of_another_type_is_named() {
    let fixture = Fixture::new();
    let store = fixture.store();
    write(&store, "seg-0000000000", rows([batch(1, 0, 5)]));
    rewrite(&fixture.path("spans", "seg-0000000000"), "3", |whole| {
        let mut fields: Vec<_> = whole.schema().fields().iter().cloned().collect();
        let mut columns = whole.columns().to_vec();
        let at = whole.schema().index_of("flags").unwrap();
        fields[at] = Arc::new(fields[at].as_ref().clone().with_data_type(DataType::Int64));
        columns[at] = Arc::new(Int64Array::from_iter_values(0..whole.num_rows() as i64));
        RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap()
    });
    let mut reader = TraceReader::open(&store).unwrap();
    assert_eq!(
        reader
            .by_ref()
            .map(|trace| trace.spans.len())
            .sum::<usize>(),
        0
    );
    let damage = reader.damage();
    let text = damage[0].to_string();
    assert!(
        damage.len() == 1 && text.contains("flags") && text.contains("Int64"),
        "{text}"
    );
}
