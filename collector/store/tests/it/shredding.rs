//! Attributes in columns are read back whatever columns each file has, and other readers find them.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::cast::AsArray as _;
use arrow_array::types::Int64Type;
use arrow_array::{Array as _, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema};
use object_store::path::Path;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use proptest::prelude::*;
use serde_json::{Map, Value, json};
use stroboscope_fixtures::batches::EPOCH_NS;
use stroboscope_store::record::{Rows, SpanRow};
use stroboscope_store::tables::{
    AttributeKeys, ELEMENT, RetriedSpans, StoreTable, TraceReader, attribute_fields, merge_files,
    parse_attributes,
};

use crate::tables::{Fixture, write};

/// Returns one span per text. Each span is a trace of its own, whose id is the position of the
/// text, from 1.
fn spans(texts: &[Option<String>]) -> Rows {
    let mut rows = Rows::default();
    let name = rows.strings.intern("work");
    rows.spans = (1..)
        .zip(texts)
        .map(|(place, text)| SpanRow {
            trace_id: place,
            trace_name: None,
            span_id: 1,
            parent_id: 0,
            service: name,
            name,
            host: name,
            process: 0,
            start_ns: EPOCH_NS as i64,
            end_ns: EPOCH_NS as i64 + 1,
            flags: 0,
            attributes: text.as_deref().map(Into::into),
        })
        .collect();
    rows
}

type Read = BTreeMap<u128, Vec<(String, String)>>;

fn read(fixture: &Fixture, keys: &AttributeKeys) -> Read {
    let mut reader = TraceReader::open_with(&fixture.store(), keys).unwrap();
    let mut read = Read::new();
    for trace in reader.by_ref() {
        let said = trace.attributes.iter();
        let mut said: Vec<_> = said
            .map(|said| (said.key.to_string(), said.value.to_string()))
            .chain(
                trace
                    .elements
                    .iter()
                    .map(|said| (ELEMENT.to_owned(), said.element.to_string())),
            )
            .collect();
        said.sort();
        read.insert(trace.id.0, said);
    }
    assert!(reader.damage().is_empty(), "{:?}", reader.damage());
    read
}

/// Computes the expected result from the texts themselves.
fn expected(texts: &[Option<String>], keys: &AttributeKeys) -> Read {
    let said = |text: &Option<String>| {
        let text = text.as_deref().unwrap_or("{}");
        let values = parse_attributes(text, keys, |text| text.into()).unwrap_or_default();
        let mut values: Vec<_> = values
            .iter()
            .map(|(key, value)| (key.to_string(), value.to_string()))
            .collect();
        values.sort();
        values
    };
    (1..).zip(texts.iter().map(said)).collect()
}

fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        4 => (0..5i64).prop_map(Into::into),
        4 => "[ab\"\u{e9}]{0,3}".prop_map(Into::into),
        1 => any::<i64>().prop_map(Into::into),
        1 => any::<u64>().prop_map(Into::into),
        1 => any::<f64>().prop_map(Into::into),
        1 => any::<bool>().prop_map(Into::into),
        1 => Just(json!([1, {"a": null}])),
        1 => Just(Value::Null),
    ]
}

fn text() -> impl Strategy<Value = Option<String>> {
    let key = prop_oneof![
        "[a-c]".prop_map(|key| key),
        Just("http.route".to_owned()),
        Just(ELEMENT.to_owned()),
        Just("k\"e\n y".to_owned()),
        Just(String::new()),
    ];
    let object = prop::collection::vec((key, value()), 0..5).prop_map(|pairs| {
        // Some keys occur twice.
        let members = pairs
            .iter()
            .map(|(key, value)| format!("{}:{value}", json!(key)));
        format!("{{{}}}", members.collect::<Vec<_>>().join(","))
    });
    prop_oneof![
        1 => Just(None),
        1 => Just(Some("[]".to_owned())),
        8 => object.prop_map(Some),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_was_said_is_read(texts in prop::collection::vec(text(), 1..40)) {
        let fixture = Fixture::new();
        write(&fixture.store(), "seg-0000000000", spans(&texts));
        for keys in [
            AttributeKeys::all(),
            AttributeKeys::of(["a", "http.route"]),
            AttributeKeys::of([ELEMENT, "k\"e\n y", ""]),
            AttributeKeys::none(),
        ] {
            prop_assert_eq!(read(&fixture, &keys), expected(&texts, &keys));
        }
    }
}

fn file(fixture: &Fixture) -> RecordBatch {
    let file = std::fs::File::open(fixture.path("spans", "seg-0000000000")).unwrap();
    let mut reader = ParquetRecordBatchReaderBuilder::try_new(file)
        .unwrap()
        .build()
        .unwrap();
    reader.next().unwrap().unwrap()
}

#[test]
fn columns_are_typed_and_the_rest_is_json() {
    let fixture = Fixture::new();
    let texts = [
        r#"{"user":7,"route":"/a","ok":true,"cost":0.25}"#,
        r#"{"user":"ann","list":[1]}"#,
        r#"{"user":8}"#,
    ];
    let texts: Vec<_> = texts.iter().map(|text| Some((*text).to_owned())).collect();
    write(&fixture.store(), "seg-0000000000", spans(&texts));
    let rows = file(&fixture);
    let typed: Vec<_> = rows
        .schema()
        .fields()
        .iter()
        .filter(|field| field.name().contains(':'))
        .map(|field| (field.name().clone(), field.data_type().clone()))
        .collect();
    let expected = [
        ("real:cost", DataType::Float64),
        ("bool:ok", DataType::Boolean),
        ("text:route", DataType::Utf8),
        ("int:user", DataType::Int64),
        ("text:user", DataType::Utf8),
    ];
    assert_eq!(typed, expected.map(|(name, of)| (name.to_owned(), of)));
    let users = rows["int:user"].as_primitive::<Int64Type>();
    assert_eq!(users.iter().collect::<Vec<_>>(), [Some(7), None, Some(8)]);
    let rest = rows["attributes"].as_string::<i32>();
    assert_eq!(
        rest.iter().collect::<Vec<_>>(),
        [None, Some(r#"{"list":[1]}"#), None]
    );
}

/// A service that generates keys gets no more columns than others, and loses nothing.
#[test]
fn columns_are_bounded_and_the_most_frequent_have_one() {
    let fixture = Fixture::new();
    let text = |place: usize| {
        let mut said = Map::new();
        said.insert("user".to_owned(), json!(place));
        said.extend((0..9).map(|n| (format!("made.up.{place}.{n}"), json!(n))));
        Some(Value::Object(said).to_string())
    };
    let texts: Vec<_> = (0..100).map(text).collect();
    write(&fixture.store(), "seg-0000000000", spans(&texts));
    let rows = file(&fixture);
    let schema = rows.schema();
    let typed = schema
        .fields()
        .iter()
        .filter(|field| field.name().contains(':'));
    assert_eq!(typed.count(), 128);
    assert_eq!(rows["int:user"].null_count(), 0);
    let all = AttributeKeys::all();
    assert_eq!(read(&fixture, &all), expected(&texts, &all));
}

/// Files of version 2, which have all attributes as JSON, are read together with current files.
#[test]
fn files_without_columns_of_attributes_are_read() {
    let fixture = Fixture::new();
    let texts = [Some(r#"{"user":7,"route":"/a"}"#.to_owned()), None];
    write(&fixture.store(), "seg-0000000000", spans(&texts));
    let today = file(&fixture);
    let declared: Vec<usize> = (0..StoreTable::Spans.columns().len()).collect();
    let old = today.project(&declared).unwrap();
    let at = old.schema().index_of("attributes").unwrap();
    let mut columns = old.columns().to_vec();
    columns[at] = Arc::new(texts.iter().map(Option::as_deref).collect::<StringArray>());
    let fields: Vec<Field> = old
        .schema()
        .fields()
        .iter()
        .map(|field| (**field).clone())
        .collect();
    let old = RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap();
    let about = vec![KeyValue::new(
        "stroboscope.schema_version".to_owned(),
        "2".to_owned(),
    )];
    let properties = WriterProperties::builder()
        .set_key_value_metadata(Some(about))
        .build();
    let mut bytes = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut bytes, old.schema(), Some(properties)).unwrap();
    writer.write(&old).unwrap();
    writer.close().unwrap();
    std::fs::write(fixture.path("spans", "seg-0000000000"), bytes).unwrap();
    for keys in [AttributeKeys::all(), AttributeKeys::of(["user"])] {
        assert_eq!(read(&fixture, &keys), expected(&texts, &keys));
    }
    // Writes the same traces, with another user, in a file of the current version.
    let texts = [Some(r#"{"user":8}"#.to_owned()), None];
    write(&fixture.store(), "seg-0000000001", spans(&texts));
    let keys = AttributeKeys::of(["user"]);
    assert_eq!(
        read(&fixture, &keys)[&1],
        ["7", "8"].map(|user| ("user".to_owned(), user.to_owned()))
    );
}

/// Merged files have the columns of all inputs up to a limit; further attributes become JSON again.
#[test]
fn merged_files_have_no_more_columns_than_a_bound() {
    let fixture = Fixture::new();
    let store = fixture.store();
    let text = |place: usize| {
        let mut said = Map::new();
        said.insert("user".to_owned(), json!(place));
        said.insert("list".to_owned(), json!([place]));
        let made_up = |n: usize| {
            let value = [json!(n), json!(n == 2), json!("é\"\n"), json!(0.25)];
            (format!("made.up.{place}.{n}"), value[n % 4].clone())
        };
        said.extend((0..4).map(made_up));
        Some(Value::Object(said).to_string())
    };
    let texts: Vec<_> = (0..240).map(text).collect();
    let file = |number: usize| format!("seg-{number:010}");
    for (number, texts) in texts.chunks(40).enumerate() {
        let mut rows = spans(texts);
        (rows.spans.iter_mut().zip(40 * number as u128..)).for_each(|(span, before)| {
            span.trace_id = before + 1;
        });
        write(&store, &file(number), rows);
    }
    let inputs = store.list(StoreTable::Spans).unwrap();
    let output = Path::from("spans/date=2026-01-02/hour=03/seg-0000000000-0000000005.parquet");
    let mut retried = RetriedSpans::default();
    let merged = merge_files(
        &store,
        StoreTable::Spans,
        &inputs,
        &output,
        &mut retried,
        &|| true,
    );
    merged.unwrap().publish().unwrap();
    assert_eq!(store.list(StoreTable::Spans).unwrap().len(), 1);
    let columns = attribute_fields(&store, StoreTable::Spans).unwrap();
    assert_eq!(columns.len(), 512);
    assert!(columns.iter().any(|column| column.name() == "int:user"));
    for keys in [
        AttributeKeys::all(),
        AttributeKeys::of(["user", "list", "made.up.7.2"]),
    ] {
        assert_eq!(read(&fixture, &keys), expected(&texts, &keys));
    }
}
