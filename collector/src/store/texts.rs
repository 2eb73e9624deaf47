//! Texts of dictionary columns, one allocation for all equal ones.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::types::Int32Type;
use arrow_array::{Array, DictionaryArray, RecordBatch, StringArray};

use super::reader::column;

/// Names remembered before they are forgotten at once; a bound, not a cache policy.
const NAMES_MAX: usize = 65_536;

/// Shares one allocation among equal names.
#[derive(Debug, Default)]
pub(super) struct Names(HashMap<Arc<str>, Arc<str>>);

impl Names {
    pub(super) fn get(&mut self, text: &str) -> Arc<str> {
        if let Some(name) = self.0.get(text) {
            return name.clone();
        }
        if self.0.len() >= NAMES_MAX {
            self.0.clear();
        }
        let name: Arc<str> = text.into();
        self.0.insert(name.clone(), name.clone());
        name
    }
}

/// A dictionary column, its values shared.
#[derive(Debug)]
pub(super) struct Texts {
    column: DictionaryArray<Int32Type>,
    values: Vec<Option<Arc<str>>>,
}

impl Texts {
    pub(super) fn of(batch: &RecordBatch, name: &str) -> Result<Self, String> {
        let column: DictionaryArray<Int32Type> = column(batch, name)?;
        let values = vec![None; column.values().len()];
        Ok(Self { column, values })
    }

    /// The text of a row; none when it is null.
    pub(super) fn get(&mut self, row: usize, names: &mut Names) -> Option<Arc<str>> {
        let key = self.column.key(row)?;
        let value = self.values.get_mut(key)?;
        if value.is_none() {
            let texts = self.column.values().as_any().downcast_ref::<StringArray>()?;
            *value = texts.is_valid(key).then(|| names.get(texts.value(key)));
        }
        value.clone()
    }

    /// The text of a row of a column that has no nulls.
    pub(super) fn text(&mut self, row: usize, names: &mut Names) -> Arc<str> {
        self.get(row, names).unwrap_or_else(|| names.get(""))
    }
}
