//! Syntax error of a formula, with its position.

use std::fmt;

/// Syntax error: a position, the expected text and the text found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyntaxError {
    /// Column of the error, in characters, counted from 1.
    pub column: usize,
    /// Description of the text expected at the column.
    pub expected: String,
    /// Description of the text found at the column.
    pub found: String,
}

impl SyntaxError {
    pub(super) fn new(column: usize, expected: impl Into<String>, found: String) -> Self {
        Self {
            column,
            expected: expected.into(),
            found,
        }
    }

    /// Returns at most 100 characters of the formula around the error, with a `^` in a second line
    /// below its position.
    #[must_use]
    pub fn marked(&self, formula: &str) -> String {
        let from = self.column.saturating_sub(60);
        let shown: String = formula
            .chars()
            .skip(from)
            .take(100)
            .map(|c| if c.is_control() { ' ' } else { c })
            .collect();
        format!(
            "{shown}\n{}^",
            " ".repeat(self.column - 1 - from.min(self.column - 1))
        )
    }
}

impl fmt::Display for SyntaxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            column,
            expected,
            found,
        } = self;
        write!(f, "column {column}: expected {expected}, found {found}")
    }
}

impl std::error::Error for SyntaxError {}
