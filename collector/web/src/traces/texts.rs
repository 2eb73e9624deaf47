//! Numbers repeated texts, so that each is stored once.

use std::collections::HashMap;
use std::hash::Hash;

/// Distinct values, in the order of their first occurrence.
#[derive(Debug)]
pub(super) struct NumberedSet<T> {
    numbers: HashMap<T, u32>,
    values: Vec<T>,
}

impl<T> Default for NumberedSet<T> {
    fn default() -> Self {
        Self {
            numbers: HashMap::new(),
            values: Vec::new(),
        }
    }
}

impl<T: Clone + Eq + Hash> NumberedSet<T> {
    /// Returns the number of a value. Adds the value with the next number if it is new.
    pub(super) fn of(&mut self, value: T) -> u32 {
        if let Some(number) = self.numbers.get(&value) {
            return *number;
        }
        // A request has far fewer than 2³² texts.
        let number = self.values.len() as u32;
        self.values.push(value.clone());
        self.numbers.insert(value, number);
        number
    }

    /// Returns all values, in order of their numbers.
    pub(super) fn values(&self) -> &[T] {
        &self.values
    }
}
