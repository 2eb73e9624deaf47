//! Rows of two classes.

use std::collections::BTreeMap;
use std::sync::Arc;

/// Maximum number of distinct texts of a column.
pub const VALUES_MAX: usize = 64;

/// Values of a column, one per row.
#[derive(Clone, Debug, PartialEq)]
pub enum Values {
    /// Numbers; values that are not finite are unknown.
    Numbers(Vec<Option<f64>>),
    /// Texts, by their place among `texts`; a place beyond it stands for any other text.
    Texts {
        /// Place of each row's text; `None` if it is unknown.
        places: Vec<Option<u32>>,
        /// Distinct texts, in order.
        texts: Vec<Arc<str>>,
    },
}

impl Values {
    /// Keeps the most frequent [`VALUES_MAX`] texts apart; returns the values and the number of
    /// distinct texts beyond these.
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

/// A column that questions can ask about.
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    /// Name of the column in conditions.
    pub name: Arc<str>,
    /// Value of each row.
    pub values: Values,
}

/// Reasons why columns and classes form no table.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TableError {
    /// A column differs from the classes in its number of rows.
    #[error("column {column} has {rows} rows, but there are classes of {classes}")]
    Lengths {
        /// Name of the column.
        column: Arc<str>,
        /// Number of rows of the column.
        rows: usize,
        /// Number of classes.
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
    /// Makes a table; every column must have as many rows as there are classes.
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

    /// Columns of the table.
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// Class of each row.
    pub fn classes(&self) -> &[bool] {
        &self.classes
    }
}
