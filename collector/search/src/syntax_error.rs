//! What is wrong with a formula's text, and where.

use std::fmt;

/// Says where, what was expected there, and what is there instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyntaxError {
    /// From 1, in characters.
    pub column: usize,
    /// What was expected there.
    pub expected: String,
    /// What is there.
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

    /// The formula with a mark below the place.
    #[must_use]
    pub fn marked(&self, formula: &str) -> String {
        // Long formulas are shown around the place only.
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
