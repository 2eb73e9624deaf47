//! Texts that repeat, each once, by numbers.

use std::collections::HashMap;
use std::hash::Hash;

/// Each value once, in the order in which they came.
#[derive(Debug)]
pub(super) struct Numbered<T> {
    numbers: HashMap<T, u32>,
    values: Vec<T>,
}

impl<T> Default for Numbered<T> {
    fn default() -> Self {
        Self {
            numbers: HashMap::new(),
            values: Vec::new(),
        }
    }
}

impl<T: Clone + Eq + Hash> Numbered<T> {
    /// The number of a value.
    pub(super) fn of(&mut self, value: T) -> u32 {
        if let Some(number) = self.numbers.get(&value) {
            return *number;
        }
        // There are fewer than rows, and rows are counted by u32.
        let number = self.values.len() as u32;
        self.values.push(value.clone());
        self.numbers.insert(value, number);
        number
    }

    /// All of them, in order of their numbers.
    pub(super) fn values(&self) -> &[T] {
        &self.values
    }
}
