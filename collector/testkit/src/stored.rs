//! Counts the rows of a store by reading it like another program would.

use std::collections::BTreeMap;

use parquet::file::reader::{FileReader as _, SerializedFileReader};
use parquet::record::Field;
use stroboscope_store::tables::{Store, StoreTable};

/// Number of occurrences of each row in the store.
#[derive(Debug, Default)]
pub struct Stored {
    /// Number of rows by span id.
    pub spans: BTreeMap<u64, usize>,
    /// Number of rows by incarnation and sequence.
    pub batches: BTreeMap<(u128, u64), usize>,
    /// Windows by incarnation, in the order of the batches' sequences: open, close and
    /// burst-config.
    pub windows: BTreeMap<u128, Vec<[u64; 3]>>,
}

impl Stored {
    pub fn read(store: &Store) -> Result<Self, String> {
        let mut stored = Self::default();
        let mut windows = BTreeMap::new();
        each_row(store, StoreTable::Spans, |row| {
            *stored.spans.entry(unsigned(&row["span_id"])).or_default() += 1;
        })?;
        each_row(store, StoreTable::Batches, |row| {
            let key = (id(&row["process"]), unsigned(&row["sequence"]));
            *stored.batches.entry(key).or_default() += 1;
            windows.insert(key, windows_of(&row["windows"]));
        })?;
        for ((incarnation, _), of_one) in windows {
            stored
                .windows
                .entry(incarnation)
                .or_default()
                .extend(of_one);
        }
        Ok(stored)
    }
}

fn each_row(
    store: &Store,
    table: StoreTable,
    mut take: impl FnMut(BTreeMap<String, Field>),
) -> Result<(), String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    for (path, bytes) in store.list(table).map_err(|error| text(&error))? {
        let wrong = |error: &dyn std::fmt::Display| format!("{path}: {error}");
        let file = store
            .range(&path, 0..bytes.max(1))
            .map_err(|error| wrong(&error))?;
        let reader = SerializedFileReader::new(file).map_err(|error| wrong(&error))?;
        for row in reader.get_row_iter(None).map_err(|error| wrong(&error))? {
            take(
                row.map_err(|error| wrong(&error))?
                    .into_columns()
                    .into_iter()
                    .collect(),
            );
        }
    }
    Ok(())
}

fn unsigned(field: &Field) -> u64 {
    match field {
        Field::ULong(number) => *number,
        Field::Long(number) => *number as u64,
        other => panic!("{other:?} is no number"),
    }
}

fn id(field: &Field) -> u128 {
    match field {
        Field::Bytes(bytes) => u128::from_be_bytes(bytes.data().try_into().unwrap()),
        other => panic!("{other:?} is no id"),
    }
}

fn windows_of(field: &Field) -> Vec<[u64; 3]> {
    let Field::ListInternal(list) = field else {
        return Vec::new();
    };
    let window = |field: &Field| {
        let Field::Group(row) = field else {
            panic!("{field:?} is no window");
        };
        let of = |name: &str| {
            let mut columns = row.get_column_iter();
            let found = columns.find(|(column, _)| *column == name);
            unsigned(found.unwrap_or_else(|| panic!("{row:?} has no {name}")).1)
        };
        [of("open_ns"), of("close_ns"), of("burst_config")]
    };
    list.elements().iter().map(window).collect()
}
