//! Columns of attributes, for engines that read the store by themselves.

use std::collections::BTreeSet;

use arrow_schema::Field;

use super::objects::{Store, StoreError};
use super::partition::StoreTable;
use super::read_budget::ReadBudget;
use super::reader::TableFile;
use super::shredding::AttributeColumn;

/// The columns of attributes that files of a table have, in the order of keys; each file has some of them. Files that
/// cannot be opened have none.
///
/// # Errors
/// When the store cannot be listed.
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

/// The key of a column of attributes and how it is stored; none of other columns.
#[must_use]
pub fn attribute_field(name: &str) -> Option<(String, Field)> {
    AttributeColumn::of_name(name).map(|column| (column.key.to_string(), column.field()))
}
