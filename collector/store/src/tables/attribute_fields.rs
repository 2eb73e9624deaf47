//! Columns of attributes, for other engines that read the store's files.

use std::collections::BTreeSet;

use arrow_schema::Field;

use super::objects::{Store, StoreError};
use super::partition::StoreTable;
use super::read_budget::ReadBudget;
use super::reader::TableFile;
use super::shredding::AttributeColumn;

/// Returns the attribute columns that occur in the files of a table, in the order of keys. A file
/// may lack some of them. Skips files that cannot be opened.
///
/// # Errors
/// Returns an error if the store cannot be listed.
pub fn attribute_fields(store: &Store, table: StoreTable) -> Result<Vec<Field>, StoreError> {
    let objects = store.list(table)?;
    let budget = ReadBudget::of(objects.len());
    let mut columns = BTreeSet::new();
    for object in &objects {
        if let Ok(file) = TableFile::open(store, table, object, &[], budget) {
            columns.extend(file.attribute_columns());
        }
    }
    Ok(columns.iter().map(AttributeColumn::field).collect())
}

/// Returns the key and the Arrow field of an attribute column; `None` for other columns.
#[must_use]
pub fn attribute_field(name: &str) -> Option<(String, Field)> {
    AttributeColumn::of_name(name).map(|column| (column.key.to_string(), column.field()))
}
