//! Text columns. They are written from interned strings, and their texts are interned again when
//! they are read.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::types::Int32Type;
use arrow_array::{Array, ArrayRef, DictionaryArray, Int32Array, StringArray};
use arrow_schema::ArrowError;

use crate::record::{StringId, Strings};

/// Interned texts of rows, from which text columns are built. Dictionary columns share them as
/// their values.
#[derive(Debug)]
pub(super) struct TextColumns(Arc<StringArray>);

impl TextColumns {
    pub(super) fn new(strings: &Strings) -> Self {
        Self(Arc::new(StringArray::from_iter_values(strings.iter())))
    }

    pub(super) fn dictionary(
        &self,
        ids: impl Iterator<Item = Option<StringId>>,
    ) -> Result<ArrayRef, ArrowError> {
        let keys = ids.map(|id| id.and_then(|id| i32::try_from(id).ok()));
        let keys: Int32Array = keys.collect();
        let column = DictionaryArray::<Int32Type>::try_new(keys, self.0.clone())?;
        Ok(Arc::new(column))
    }

    /// Returns a column that contains the texts themselves, without a dictionary.
    pub(super) fn plain(&self, ids: impl Iterator<Item = Option<StringId>>) -> ArrayRef {
        let text = |id: StringId| match id as usize {
            at if at < self.0.len() => self.0.value(at),
            _ => "",
        };
        Arc::new(ids.map(|id| id.map(text)).collect::<StringArray>())
    }
}

/// Maximum number of texts in the interner. When it is reached, the interner drops all of them, to
/// bound its memory.
const NAMES_MAX: usize = 65_536;

/// Interner of texts, so that equal texts share one allocation until the interner drops them.
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

/// Index of a text in a list of texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TextIndex(u32);

impl TextIndex {
    /// Index that stands for a missing text.
    pub(super) const NONE: Self = Self(u32::MAX);

    /// Returns the text; `None` if it is missing.
    pub(super) fn of(self, texts: &[Arc<str>]) -> Option<Arc<str>> {
        self.among(texts).cloned()
    }

    /// Returns the element of `values` at this index, where `values` has one element for each text;
    /// `None` if the text is missing.
    pub(super) fn among<T>(self, values: &[T]) -> Option<&T> {
        values.get(self.0 as usize)
    }
}

impl From<StringId> for TextIndex {
    fn from(id: StringId) -> Self {
        Self(id)
    }
}

/// Converts dictionary columns to indexes. It is reused for all columns, to keep its memory.
#[derive(Debug, Default)]
pub(super) struct TextIndexer {
    /// Index of each key of the dictionary; reset to [`TextIndex::NONE`] after each column.
    of_key: Vec<TextIndex>,
    /// Keys that have an index in the current column.
    keys: Vec<usize>,
}

impl TextIndexer {
    /// Adds the texts of the rows to `texts`, and returns the index of each row's text there.
    /// Ignores dictionary values that no row uses, because a dictionary may have many more values
    /// than the batch has rows.
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

/// Reader of text columns, which collects the texts of all columns of a batch in one list.
#[derive(Debug)]
pub(super) struct TextReader<'a> {
    pub(super) indexer: &'a mut TextIndexer,
    pub(super) names: &'a mut StringInterner,
    pub(super) texts: &'a mut Vec<Arc<str>>,
}

impl TextReader<'_> {
    /// Returns the index of each row's text in the list, for a dictionary column.
    pub(super) fn of_dictionary(
        &mut self,
        column: &DictionaryArray<Int32Type>,
    ) -> Result<Vec<TextIndex>, String> {
        self.indexer.of(column, self.texts, self.names)
    }

    /// Returns the index of each row's text in the list, for a column without a dictionary.
    pub(super) fn of_plain(&mut self, column: &StringArray) -> Vec<TextIndex> {
        let mut index = |text: Option<&str>| {
            let Some(text) = text else {
                return TextIndex::NONE;
            };
            self.texts.push(self.names.get(text));
            TextIndex(self.texts.len() as u32 - 1)
        };
        column.iter().map(&mut index).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indexes_are_into_each_columns_own_texts() {
        let (mut indexer, mut names, mut texts) = (
            TextIndexer::default(),
            StringInterner::default(),
            Vec::new(),
        );
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
        // Two columns add "b" once each, and both entries share one allocation.
        assert_eq!(
            texts.iter().map(|text| &**text).collect::<Vec<_>>(),
            ["b", "a", "", "c", "b"]
        );
        assert!(Arc::ptr_eq(&texts[0], &texts[4]));
    }
}
