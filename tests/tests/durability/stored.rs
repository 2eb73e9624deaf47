//! Content of the store, as a reader sees it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use parquet::file::reader::{FileReader as _, SerializedFileReader};
use parquet::record::{Field, Row};
use parquet::schema::types::Type;
use stroboscope_store::tables::{Store, StoreTable};

/// Key by which copies of a span are recognized: trace id, span id, start and end.
pub(crate) type SpanKey = (u128, u64, i64, i64);

/// Numbers of stored copies of spans and batches.
#[derive(Debug, Default)]
pub(crate) struct Stored {
    pub(crate) spans: BTreeMap<SpanKey, usize>,
    /// Copies by service and attribute `n`.
    pub(crate) numbered: BTreeMap<(String, u64), usize>,
    pub(crate) batches: BTreeMap<(u128, u64), usize>,
    /// Spans by process.
    pub(crate) by_process: BTreeMap<u128, u64>,
}

impl Stored {
    pub(crate) fn read(data: &Path) -> Self {
        let mut stored = Self::default();
        let columns = [
            "trace_id", "span_id", "start_ns", "end_ns", "process", "service", "int:n",
        ];
        each_row(data, StoreTable::Spans, &columns, |row| {
            let key = (id(&row["trace_id"]), unsigned(&row["span_id"]));
            let times = [&row["start_ns"], &row["end_ns"]].map(|time| unsigned(time) as i64);
            *stored
                .spans
                .entry((key.0, key.1, times[0], times[1]))
                .or_default() += 1;
            if let Field::Bytes(_) = row["process"] {
                *stored.by_process.entry(id(&row["process"])).or_default() += 1;
            }
            if let Some(Field::Long(n)) = row.get("int:n") {
                let n = n.cast_unsigned();
                *stored
                    .numbered
                    .entry((text(&row["service"]), n))
                    .or_default() += 1;
            }
        });
        each_row(data, StoreTable::Batches, &["process", "sequence"], |row| {
            let key = (id(&row["process"]), unsigned(&row["sequence"]));
            *stored.batches.entry(key).or_default() += 1;
        });
        stored
    }
}

/// Returns the paths of all files below a directory.
pub(crate) fn files(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        match path.is_dir() {
            true => found.extend(files(&path)),
            false => found.push(path),
        }
    }
    found.sort();
    found
}

/// Reads each row of the current files. After a kill, there may be other files that a compacted one
/// covers.
fn each_row(
    data: &Path,
    table: StoreTable,
    columns: &[&str],
    mut take: impl FnMut(BTreeMap<String, Field>),
) {
    let runtime = tokio::runtime::Runtime::new().expect("threads");
    let store = Store::local(data, runtime.handle().clone()).expect("a store");
    for (path, _) in store.list(table).expect("files") {
        let path = data.join(path.as_ref());
        let file = std::fs::File::open(&path).expect("a file");
        let reader = SerializedFileReader::new(file).expect("Parquet");
        let schema = reader.metadata().file_metadata().schema().clone();
        let fields = schema.get_fields().iter();
        let fields = fields
            .filter(|field| columns.contains(&field.name()))
            .cloned();
        let projected = Type::group_type_builder(schema.name())
            .with_fields(fields.collect())
            .build()
            .expect("a schema");
        for row in reader.get_row_iter(Some(projected)).expect("rows") {
            let row: Row = row.expect("a row");
            take(row.into_columns().into_iter().collect());
        }
    }
}

fn unsigned(field: &Field) -> u64 {
    match field {
        Field::ULong(number) => *number,
        Field::Long(number) => *number as u64,
        other => panic!("{other:?} is no number"),
    }
}

fn text(field: &Field) -> String {
    match field {
        Field::Str(text) => text.clone(),
        Field::Bytes(bytes) => String::from_utf8_lossy(bytes.data()).into_owned(),
        other => panic!("{other:?} is no text"),
    }
}

fn id(field: &Field) -> u128 {
    match field {
        Field::Bytes(bytes) => u128::from_be_bytes(bytes.data().try_into().expect("16 bytes")),
        other => panic!("{other:?} is no id"),
    }
}
