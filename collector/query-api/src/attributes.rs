//! Names and values of the most frequent attributes: those with columns of their own in a file.
//! Reads no other columns.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use arrow_array::types::Int32Type;
use arrow_array::{
    Array, ArrayRef, BooleanArray, DictionaryArray, Float64Array, Int64Array, StringArray,
};
use stroboscope_store::tables::{ReadBudget, Store, StoreTable, TableReader, attribute_fields};

/// Time limit for reading values from files, checked after each batch. The newest hours are read
/// first.
const READING_MAX: Duration = Duration::from_secs(2);

/// Returns the names of the attributes with columns; none if the store cannot be listed.
pub(crate) fn attribute_names(store: &Store) -> BTreeSet<String> {
    let fields = attribute_fields(store, StoreTable::Spans).unwrap_or_default();
    let key = |field: &arrow_schema::Field| {
        let (_, key) = field.name().split_once(':')?;
        Some(key.to_owned())
    };
    fields.iter().filter_map(key).collect()
}

/// Returns up to `most` values of these attributes, each with the name of its type. Stops at the
/// first batch after [`READING_MAX`], with the values found so far.
pub(crate) fn attribute_values(
    store: &Store,
    names: &[String],
    most: usize,
) -> Vec<(&'static str, String)> {
    let types = [
        ("text", "string"),
        ("int", "int"),
        ("real", "float"),
        ("bool", "bool"),
    ];
    let mut found = BTreeSet::new();
    let begun = Instant::now();
    let objects = store.list(StoreTable::Spans).unwrap_or_default();
    for object in objects.iter().rev() {
        for name in names {
            for (prefix, kind) in types {
                let column = format!("{prefix}:{name}");
                let columns = [&*column];
                // A file without the column yields no rows.
                let table = StoreTable::Spans;
                let mut reader =
                    TableReader::open(store, table, object, &columns, ReadBudget::of(1));
                while let Some(batch) = reader.next_batch() {
                    if let Some(column) = batch.column_by_name(&column) {
                        add_values(column, kind, most, &mut found);
                    }
                    if found.len() >= most || begun.elapsed() > READING_MAX {
                        return found.into_iter().collect();
                    }
                }
            }
        }
    }
    found.into_iter().collect()
}

fn add_values(
    column: &ArrayRef,
    kind: &'static str,
    most: usize,
    found: &mut BTreeSet<(&'static str, String)>,
) {
    let any = column.as_any();
    let mut add = |value: String| {
        if found.len() < most {
            found.insert((kind, value));
        }
    };
    if let Some(texts) = any.downcast_ref::<DictionaryArray<Int32Type>>() {
        let values = texts.values().as_any().downcast_ref::<StringArray>();
        let values = values.into_iter().flat_map(|values| values.iter());
        values.flatten().for_each(|value| add(value.to_owned()));
    } else if let Some(ints) = any.downcast_ref::<Int64Array>() {
        let ints = ints.iter().flatten();
        ints.for_each(|value| add(value.to_string()));
    } else if let Some(reals) = any.downcast_ref::<Float64Array>() {
        let reals = reals.iter().flatten();
        reals.for_each(|value| add(value.to_string()));
    } else if let Some(bools) = any.downcast_ref::<BooleanArray>() {
        let bools = bools.iter().flatten();
        bools.for_each(|value| add(value.to_string()));
    }
}
