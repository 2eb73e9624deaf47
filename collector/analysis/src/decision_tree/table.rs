//! Table of rows in two classes, from which a tree is grown.

use std::collections::BTreeMap;
use std::sync::Arc;

/// Maximum number of texts of a column that are distinguished.
pub const VALUES_MAX: usize = 64;

/// Values of a column, one per row.
#[derive(Clone, Debug, PartialEq)]
pub enum Values {
    /// Numbers; `None` if unknown. [`Table::new`] treats numbers that are not finite as unknown.
    Numbers(Vec<Option<f64>>),
    /// Texts, given by their indices in `texts`. One past the end stands for any other text.
    Texts {
        /// Index of each row's text; `None` if the text is unknown.
        places: Vec<Option<u32>>,
        /// Distinct texts, in order.
        texts: Vec<Arc<str>>,
    },
}

impl Values {
    /// Creates values that distinguish the most frequent [`VALUES_MAX`] texts. Also returns the
    /// number of other distinct texts.
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

/// A column about which questions can ask.
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    /// Name of the column in conditions.
    pub name: Arc<str>,
    /// Value of each row.
    pub values: Values,
}

/// Errors of [`Table::new`].
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

/// Rows in two classes, stored by columns.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    pub(super) columns: Vec<Column>,
    pub(super) classes: Vec<bool>,
}

impl Table {
    /// Creates a table. Returns [`TableError::Lengths`] unless every column has as many rows as
    /// there are classes.
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

    /// Returns the columns of the table.
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// Returns the class of each row.
    pub fn classes(&self) -> &[bool] {
        &self.classes
    }
}
