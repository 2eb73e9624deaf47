//! DictionaryColumn of dictionary columns, one allocation for all equal ones.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::types::Int32Type;
use arrow_array::{Array, DictionaryArray, RecordBatch, StringArray};

use super::reader::column;

/// StringInterner remembered before they are forgotten at once; a bound, not a cache policy.
const NAMES_MAX: usize = 65_536;

/// Interns names: equal ones share one allocation.
#[derive(Debug, Default)]
pub(super) struct StringInterner(HashMap<Arc<str>, Arc<str>>);

impl StringInterner {
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
pub(super) struct DictionaryColumn {
    column: DictionaryArray<Int32Type>,
    values: Vec<Option<Arc<str>>>,
}

impl DictionaryColumn {
    pub(super) fn of(batch: &RecordBatch, name: &str) -> Result<Self, String> {
        let column: DictionaryArray<Int32Type> = column(batch, name)?;
        let values = vec![None; column.values().len()];
        Ok(Self { column, values })
    }

    /// The text of a row; none when it is null.
    pub(super) fn get(&mut self, row: usize, names: &mut StringInterner) -> Option<Arc<str>> {
        let key = self.column.key(row)?;
        let value = self.values.get_mut(key)?;
        if value.is_none() {
            let texts = self.column.values().as_any().downcast_ref::<StringArray>()?;
            *value = texts.is_valid(key).then(|| names.get(texts.value(key)));
        }
        value.clone()
    }

    /// The text of a row of a column that has no nulls.
    pub(super) fn text(&mut self, row: usize, names: &mut StringInterner) -> Arc<str> {
        self.get(row, names).unwrap_or_else(|| names.get(""))
    }
}

/// The index of a text in a list of texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TextIndex(u32);

impl TextIndex {
    /// There is none.
    const NONE: Self = Self(u32::MAX);

    /// The text, if there is one.
    pub(super) fn of(self, texts: &[Arc<str>]) -> Option<Arc<str>> {
        texts.get(self.0 as usize).cloned()
    }
}

/// Turns a dictionary column into indexes; kept for its memory.
#[derive(Debug, Default)]
pub(super) struct TextIndexer {
    /// By key of the dictionary; none, between two columns.
    of_key: Vec<TextIndex>,
    /// The keys that have an index.
    keys: Vec<usize>,
}

impl TextIndexer {
    /// Where in `texts` each row's text is. DictionaryColumn of the dictionary that no row has, of which there may be many more
    /// than rows, are not looked at.
    pub(super) fn of(
        &mut self,
        column: &DictionaryArray<Int32Type>,
        texts: &mut Vec<Arc<str>>,
        names: &mut StringInterner,
    ) -> Result<Vec<TextIndex>, String> {
        let Self { of_key, keys } = self;
        let values = column.values().as_any().downcast_ref::<StringArray>();
        let values = values.ok_or("a dictionary holds no texts")?;
        of_key.resize(of_key.len().max(values.len()), TextIndex::NONE);
        let mut index = |row| {
            let Some(key) = column.key(row).filter(|key| values.is_valid(*key)) else {
                return TextIndex::NONE;
            };
            if of_key[key] == TextIndex::NONE {
                of_key[key] = TextIndex(texts.len() as u32);
                keys.push(key);
                texts.push(names.get(values.value(key)));
            }
            of_key[key]
        };
        let indexes = (0..column.len()).map(&mut index).collect();
        keys.drain(..).for_each(|key| of_key[key] = TextIndex::NONE);
        Ok(indexes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indexes_are_into_each_columns_own_texts() {
        let (mut indexer, mut names, mut texts) =
            (TextIndexer::default(), StringInterner::default(), Vec::new());
        for rows in [
            vec![Some("b"), None, Some("a"), Some("b"), Some("")],
            vec![Some("c"), Some("b")],
            vec![],
            vec![None],
        ] {
            let column: DictionaryArray<Int32Type> = rows.iter().copied().collect();
            let found = indexer.of(&column, &mut texts, &mut names).unwrap();
            let found: Vec<_> = found.iter().map(|index| index.of(&texts)).collect();
            assert_eq!(found.iter().map(Option::as_deref).collect::<Vec<_>>(), rows);
        }
        // Once for each column, and one allocation for both.
        assert_eq!(texts.iter().map(|text| &**text).collect::<Vec<_>>(), ["b", "a", "", "c", "b"]);
        assert!(Arc::ptr_eq(&texts[0], &texts[4]));
    }
}
