//! Rows of two classes.

use std::collections::BTreeMap;
use std::sync::Arc;

/// So many different texts of a column are told apart.
pub const VALUES_MAX: usize = 64;

/// What is known of each row.
#[derive(Clone, Debug, PartialEq)]
pub enum Values {
    /// Numbers; what is not finite is unknown.
    Numbers(Vec<Option<f64>>),
    /// Texts, by their place among `texts`; a place beyond it stands for any other text.
    Texts {
        /// Of each row.
        places: Vec<Option<u32>>,
        /// In order.
        texts: Vec<Arc<str>>,
    },
}

impl Values {
    /// Texts of all rows, of which the most frequent [`VALUES_MAX`] are told apart, and how many others there are.
    pub fn of_texts(rows: &[Option<Arc<str>>]) -> (Values, usize) {
        let mut counts: BTreeMap<&Arc<str>, usize> = BTreeMap::new();
        for text in rows.iter().flatten() {
            *counts.entry(text).or_default() += 1;
        }
        let mut kept: Vec<(&Arc<str>, usize)> = counts.into_iter().collect();
        kept.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(b.0)));
        let others = kept.len().saturating_sub(VALUES_MAX);
        kept.truncate(VALUES_MAX);
        let mut texts: Vec<Arc<str>> = kept.into_iter().map(|(text, _)| text.clone()).collect();
        texts.sort();
        let place = |text: &Arc<str>| texts.binary_search(text).unwrap_or(texts.len()) as u32;
        let places = rows.iter().map(|text| text.as_ref().map(place)).collect();
        (Values::Texts { places, texts }, others)
    }

    fn len(&self) -> usize {
        match self {
            Values::Numbers(numbers) => numbers.len(),
            Values::Texts { places, .. } => places.len(),
        }
    }
}

/// What questions can be about.
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    /// What it is called in conditions.
    pub name: Arc<str>,
    /// Of each row.
    pub values: Values,
}

/// Why something is no table.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TableError {
    /// A column is of another number of rows.
    #[error("column {column} has {rows} rows, but there are classes of {classes}")]
    Lengths {
        /// Its name.
        column: Arc<str>,
        /// How many rows it has.
        rows: usize,
        /// How many there are.
        classes: usize,
    },
}

/// Rows of two classes, by columns.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    pub(super) columns: Vec<Column>,
    pub(super) classes: Vec<bool>,
}

impl Table {
    /// A table of columns that are of as many rows as there are classes.
    pub fn new(mut columns: Vec<Column>, classes: Vec<bool>) -> Result<Table, TableError> {
        for column in &mut columns {
            if column.values.len() != classes.len() {
                return Err(TableError::Lengths {
                    column: column.name.clone(),
                    rows: column.values.len(),
                    classes: classes.len(),
                });
            }
            if let Values::Numbers(numbers) = &mut column.values {
                for number in numbers {
                    *number = number.filter(|number| number.is_finite());
                }
            }
        }
        Ok(Table { columns, classes })
    }

    /// Its columns.
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// The class of each row.
    pub fn classes(&self) -> &[bool] {
        &self.classes
    }
}
