//! Merging sorted files equals sorting all rows, whatever columns the files have.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow_array::builder::{Float64Builder, Int64Builder, StringBuilder};
use arrow_array::cast::AsArray as _;
use arrow_array::types::{Float64Type, Int64Type, UInt32Type, UInt64Type};
use arrow_array::{
    Array, ArrayRef, BooleanArray, FixedSizeBinaryArray, Int64Array, RecordBatch, StringArray,
    UInt32Array, UInt64Array,
};
use arrow_schema::DataType;
use object_store::path::Path;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::{ArrowReaderOptions, ParquetRecordBatchReaderBuilder};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use proptest::prelude::*;
use stroboscope_store::tables::{
    MergeError, RetriedSpans, SCHEMA_VERSION, Store, StoreTable, merge_files,
};

use crate::tables::Fixture;

type Key = (u8, i64, u8, u8);

/// Span with a key and further columns. The key has few distinct values, so that keys are often
/// equal.
#[derive(Clone, Debug, PartialEq)]
struct Span {
    key: Key,
    name: u8,
    more: BTreeMap<&'static str, i64>,
}

const MORE: [&str; 4] = ["text:user", "int:size", "real:share", "bool:cached"];

fn span() -> impl Strategy<Value = Span> {
    let key = (0_u8..6, -2_i64..3, 0_u8..3, 0_u8..2);
    let more = proptest::collection::btree_map(proptest::sample::select(&MORE), 0_i64..2, 0..4);
    (key, 0_u8..2, more).prop_map(|(key, name, more)| Span { key, name, more })
}

/// Returns a column that not all files have. Its type follows from its name.
fn more_column(name: &str, values: &[Option<i64>]) -> ArrayRef {
    match name.split_once(':').unwrap().0 {
        "text" => {
            let mut column = StringBuilder::new();
            values
                .iter()
                .for_each(|value| column.append_option(value.map(|value| format!("v{value}"))));
            Arc::new(column.finish())
        }
        "int" => {
            let mut column = Int64Builder::new();
            values.iter().for_each(|value| column.append_option(*value));
            Arc::new(column.finish())
        }
        "real" => {
            let mut column = Float64Builder::new();
            values
                .iter()
                .for_each(|value| column.append_option(value.map(|value| value as f64 / 2.0)));
            Arc::new(column.finish())
        }
        _ => Arc::new(
            values
                .iter()
                .map(|value| value.map(|value| value > 0))
                .collect::<BooleanArray>(),
        ),
    }
}

fn ids(values: impl Iterator<Item = u8>) -> ArrayRef {
    let bytes: Vec<u8> = values
        .flat_map(|value| u128::from(value).to_be_bytes())
        .collect();
    Arc::new(FixedSizeBinaryArray::try_new(16, bytes.into(), None).unwrap())
}

/// Writes spans as a file, without the further columns in which no span has a value.
fn put(store: &Store, path: &Path, spans: &[Span]) {
    let text = |values: Vec<String>| Arc::new(StringArray::from(values)) as ArrayRef;
    let count = spans.len();
    let mut columns: Vec<(&str, ArrayRef, bool)> = vec![
        ("trace_id", ids(spans.iter().map(|span| span.key.0)), false),
        ("trace_name", Arc::new(StringArray::new_null(count)), true),
        (
            "span_id",
            Arc::new(
                spans
                    .iter()
                    .map(|span| u64::from(span.key.2))
                    .collect::<UInt64Array>(),
            ),
            false,
        ),
        (
            "parent_id",
            Arc::new(UInt64Array::from(vec![0; count])),
            false,
        ),
        ("service", text(vec!["web".to_owned(); count]), false),
        (
            "name",
            text(spans.iter().map(|span| format!("n{}", span.name)).collect()),
            false,
        ),
        ("host", text(vec!["alpha".to_owned(); count]), false),
        ("process", ids(spans.iter().map(|span| span.key.3)), false),
        (
            "start_ns",
            Arc::new(spans.iter().map(|span| span.key.1).collect::<Int64Array>()),
            false,
        ),
        ("end_ns", Arc::new(Int64Array::from(vec![9; count])), false),
        ("flags", Arc::new(UInt32Array::from(vec![0; count])), false),
        ("attributes", Arc::new(StringArray::new_null(count)), true),
    ];
    let has: BTreeSet<&str> = spans
        .iter()
        .flat_map(|span| span.more.keys().copied())
        .collect();
    for name in has {
        let values: Vec<Option<i64>> = spans
            .iter()
            .map(|span| span.more.get(name).copied())
            .collect();
        columns.push((name, more_column(name, &values), true));
    }
    let batch = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
    let about = KeyValue::new(
        "stroboscope.schema_version".to_owned(),
        SCHEMA_VERSION.to_string(),
    );
    let properties = WriterProperties::builder()
        .set_key_value_metadata(Some(vec![about]))
        .build();
    let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    store.put(path, writer.into_inner().unwrap()).unwrap();
}

/// Non-null columns of a row, as texts.
type Said = BTreeMap<String, String>;

fn said(column: &ArrayRef, row: usize) -> String {
    match column.data_type() {
        DataType::Utf8 => column.as_string::<i32>().value(row).to_owned(),
        DataType::Int64 => column.as_primitive::<Int64Type>().value(row).to_string(),
        DataType::UInt64 => column.as_primitive::<UInt64Type>().value(row).to_string(),
        DataType::UInt32 => column.as_primitive::<UInt32Type>().value(row).to_string(),
        DataType::Float64 => column.as_primitive::<Float64Type>().value(row).to_string(),
        DataType::Boolean => column.as_boolean().value(row).to_string(),
        DataType::FixedSizeBinary(16) => format!("{:?}", column.as_fixed_size_binary().value(row)),
        other => panic!("{other}"),
    }
}

fn read(store: &Store, path: &Path) -> (Vec<String>, Vec<Said>) {
    let bytes = std::fs::read(store.display(path)).unwrap();
    let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
    let reader =
        ParquetRecordBatchReaderBuilder::try_new_with_options(bytes::Bytes::from(bytes), options)
            .unwrap()
            .build()
            .unwrap();
    let (mut rows, mut names) = (Vec::new(), Vec::new());
    for batch in reader {
        let batch = batch.unwrap();
        names = batch
            .schema()
            .fields()
            .iter()
            .map(|field| field.name().clone())
            .collect();
        for row in 0..batch.num_rows() {
            let columns = batch
                .schema()
                .fields()
                .iter()
                .zip(batch.columns())
                .filter(|(_, column)| column.is_valid(row))
                .map(|(field, column)| (field.name().clone(), said(column, row)))
                .collect();
            rows.push(columns);
        }
    }
    (names, rows)
}

fn path(name: &str) -> Path {
    Path::from(format!("spans/date=2026-01-02/hour=03/{name}.parquet"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// A merge yields all rows, sorted, and only the first of equal imported rows.
    #[test]
    fn a_merge_is_a_sort_of_all_rows(files in proptest::collection::vec(proptest::collection::vec(span(), 1..30), 1..6)) {
        let fixture = Fixture::new();
        let store = fixture.store();
        let (mut inputs, mut all) = (Vec::new(), Vec::new());
        for (number, mut spans) in files.into_iter().enumerate() {
            spans.sort_by_key(|span| span.key);
            let path = path(&format!("seg-{number:010}"));
            put(&store, &path, &spans);
            let rows = read(&store, &path).1;
            all.extend(spans.into_iter().map(|span| span.key).zip(rows));
            inputs.push((path.clone(), std::fs::metadata(store.display(&path)).unwrap().len()));
        }
        all.sort_by_key(|(key, _)| *key);
        let mut expected: Vec<(Key, Said)> = Vec::new();
        let (mut retried, mut dropped) = (BTreeSet::new(), 0);
        for row in all {
            if row.0.3 == 0 && expected.contains(&row) {
                retried.insert((row.0.0, row.0.2));
                dropped += 1;
            } else {
                expected.push(row);
            }
        }
        let (output, mut found) = (path("seg-0000000000-0000000009"), RetriedSpans::default());
        let merged = merge_files(&store, StoreTable::Spans, &inputs, &output, &mut found, &|| true).unwrap();
        prop_assert_eq!((merged.rows, merged.retries), (expected.len() as u64, dropped));
        prop_assert!(!std::path::Path::new(&store.display(&output)).exists(), "nobody sees it yet");
        merged.publish().unwrap();
        let (names, rows) = read(&store, &output);
        prop_assert_eq!(rows, expected.into_iter().map(|(_, row)| row).collect::<Vec<_>>());
        prop_assert_eq!(names.first().map(String::as_str), Some("trace_id"));
        let distinct: BTreeSet<&String> = names.iter().collect();
        prop_assert_eq!(distinct.len(), names.len());
        let retried: RetriedSpans = retried.into_iter().map(|(trace, span)| (u128::from(trace), u64::from(span))).collect();
        prop_assert_eq!(found, retried);
    }
}

/// Merges more rows than are decoded, held or written at a time.
#[test]
fn long_files_are_merged_batch_by_batch() {
    let fixture = Fixture::new();
    let store = fixture.store();
    let mut inputs = Vec::new();
    for file in 0..7_i64 {
        // All rows of the last file come after those of the others.
        let key = |n: i64| {
            if file == 6 {
                (255, n, 0, 1)
            } else {
                ((n / 100) as u8, n * 7 + file, 0, 1)
            }
        };
        let spans: Vec<Span> = (0..20_000)
            .map(|n| Span {
                key: key(n),
                name: 0,
                more: BTreeMap::new(),
            })
            .collect();
        let path = path(&format!("seg-{file:010}"));
        put(&store, &path, &spans);
        inputs.push((
            path.clone(),
            std::fs::metadata(store.display(&path)).unwrap().len(),
        ));
    }
    let output = path("seg-0000000000-0000000006");
    let merge = |goes_on: &dyn Fn() -> bool| {
        merge_files(
            &store,
            StoreTable::Spans,
            &inputs,
            &output,
            &mut RetriedSpans::default(),
            goes_on,
        )
    };
    let calls = std::cell::Cell::new(0);
    let stopped = merge(&|| {
        calls.set(calls.get() + 1);
        calls.get() < 3
    });
    assert!(matches!(stopped, Err(MergeError::Stopped)), "{stopped:?}");
    assert_eq!(
        std::fs::read_dir(fixture.path("spans", "x").parent().unwrap())
            .unwrap()
            .count(),
        7,
        "nothing is left of it"
    );
    let merged = merge(&|| true).unwrap();
    assert_eq!((merged.rows, merged.retries), (140_000, 0));
    merged.publish().unwrap();
    let rows = read(&store, &output).1;
    let starts: Vec<i64> = rows
        .iter()
        .map(|row| row["start_ns"].parse().unwrap())
        .collect();
    let mut expected: Vec<(i64, i64)> = (0..20_000)
        .flat_map(|n| (0..6).map(move |file| (n / 100, n * 7 + file)))
        .collect();
    expected.sort_unstable();
    expected.extend((0..20_000).map(|n| (255, n)));
    assert!(starts.iter().eq(expected.iter().map(|(_, start)| start)));
}

#[test]
fn a_damaged_file_is_named_and_nothing_is_made_of_the_others() {
    let fixture = Fixture::new();
    let store = fixture.store();
    let sorted: Vec<Span> = (0..9)
        .map(|n| Span {
            key: (n, 0, 0, 1),
            name: 0,
            more: BTreeMap::new(),
        })
        .collect();
    let unsorted: Vec<Span> = sorted.iter().rev().cloned().collect();
    let file = |name: &str, spans: &[Span]| {
        let path = path(name);
        put(&store, &path, spans);
        (
            path.clone(),
            std::fs::metadata(store.display(&path)).unwrap().len(),
        )
    };
    let inputs = [
        file("seg-0000000000", &sorted),
        file("seg-0000000001", &unsorted),
    ];
    let output = path("seg-0000000000-0000000001");
    let refused = merge_files(
        &store,
        StoreTable::Spans,
        &inputs,
        &output,
        &mut RetriedSpans::default(),
        &|| true,
    );
    let Err(MergeError::Damaged(damage)) = refused else {
        panic!("{refused:?}")
    };
    assert!(
        damage.file.ends_with("seg-0000000001.parquet") && damage.reason.contains("not sorted"),
        "{damage}"
    );
    assert_eq!(store.list(StoreTable::Spans).unwrap(), inputs);
}
