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

/// Where a text is in a list of texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place(u32);

impl Place {
    /// There is none.
    const NONE: Self = Self(u32::MAX);

    /// The text, if there is one.
    pub(super) fn of(self, texts: &[Arc<str>]) -> Option<Arc<str>> {
        texts.get(self.0 as usize).cloned()
    }
}

/// Finds the places of texts; kept for its memory.
#[derive(Debug, Default)]
pub(super) struct Places {
    /// By key of the dictionary; none, between two columns.
    of_key: Vec<Place>,
    /// The keys that have a place.
    keys: Vec<usize>,
}

impl Places {
    /// Where in `texts` each row's text is. Texts of the dictionary that no row has, of which there may be many more
    /// than rows, are not looked at.
    pub(super) fn of(
        &mut self,
        column: &DictionaryArray<Int32Type>,
        texts: &mut Vec<Arc<str>>,
        names: &mut Names,
    ) -> Result<Vec<Place>, String> {
        let Self { of_key, keys } = self;
        let values = column.values().as_any().downcast_ref::<StringArray>();
        let values = values.ok_or("a dictionary holds no texts")?;
        of_key.resize(of_key.len().max(values.len()), Place::NONE);
        let mut place = |row| {
            let Some(key) = column.key(row).filter(|key| values.is_valid(*key)) else { return Place::NONE };
            if of_key[key] == Place::NONE {
                of_key[key] = Place(texts.len() as u32);
                keys.push(key);
                texts.push(names.get(values.value(key)));
            }
            of_key[key]
        };
        let places = (0..column.len()).map(&mut place).collect();
        keys.drain(..).for_each(|key| of_key[key] = Place::NONE);
        Ok(places)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_those_of_each_columns_own_texts() {
        let (mut places, mut names, mut texts) = (Places::default(), Names::default(), Vec::new());
        for rows in [
            vec![Some("b"), None, Some("a"), Some("b"), Some("")],
            vec![Some("c"), Some("b")],
            vec![],
            vec![None],
        ] {
            let column: DictionaryArray<Int32Type> = rows.iter().copied().collect();
            let found = places.of(&column, &mut texts, &mut names).unwrap();
            let found: Vec<_> = found.iter().map(|place| place.of(&texts)).collect();
            assert_eq!(found.iter().map(Option::as_deref).collect::<Vec<_>>(), rows);
        }
        // Once for each column, and one allocation for both.
        assert_eq!(texts.iter().map(|text| &**text).collect::<Vec<_>>(), ["b", "a", "", "c", "b"]);
        assert!(Arc::ptr_eq(&texts[0], &texts[4]));
    }
}
