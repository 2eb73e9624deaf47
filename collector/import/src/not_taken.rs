//! What a source holds and what is not taken of it, by name.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

/// Most names told apart; a hostile source cannot grow the counts beyond them.
const NAMES_MAX: usize = 256;
/// Longest name, in characters.
const NAME_CHARS_MAX: usize = 100;
/// Where what has no place of its own is counted.
const OTHERS: &str = "(other names)";

/// Something that is not taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotTaken {
    /// What: the path of a key, or what a record is.
    pub name: String,
    /// How often.
    pub count: u64,
    /// Where first: the line, or the number of the message.
    pub first: u64,
}

/// Counts what is not taken.
#[derive(Debug, Default)]
pub(super) struct NotTakenCounts {
    places: HashMap<String, usize>,
    entries: Vec<NotTaken>,
}

impl NotTakenCounts {
    /// Counts `count` of `name`, the first of them at `place`.
    pub(super) fn count(&mut self, name: &str, count: u64, place: u64) {
        if count == 0 {
            return;
        }
        if let Some(&at) = self.places.get(name) {
            self.entries[at].count += count;
            return;
        }
        if self.entries.len() >= NAMES_MAX && name != OTHERS {
            return self.count(OTHERS, count, place);
        }
        self.places.insert(name.to_owned(), self.entries.len());
        self.entries.push(NotTaken {
            name: shown(name),
            count,
            first: place,
        });
    }

    /// All of it, the most first.
    pub(super) fn entries(self) -> Vec<NotTaken> {
        let mut entries = self.entries;
        entries.sort_by_key(|entry| std::cmp::Reverse(entry.count));
        entries
    }
}

/// A name as it can be shown on any terminal.
fn shown(name: &str) -> String {
    let mut shown: String = name.chars().take(NAME_CHARS_MAX).collect();
    if shown.len() < name.len() {
        shown.push('…');
    }
    if shown.chars().any(char::is_control) {
        shown.escape_debug().to_string()
    } else {
        shown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_counted_and_bounded() {
        let mut counts = NotTakenCounts::default();
        for round in 0..3u64 {
            counts.count("span.flags", 2, 10 + round);
        }
        counts.count("nothing", 0, 1);
        for name in 0..1_000u64 {
            counts.count(&format!("k{name}\n{}", "x".repeat(1_000)), 1, name);
        }
        let entries = counts.entries();
        assert_eq!(entries.len(), NAMES_MAX + 1);
        let others = &entries[0];
        assert_eq!(
            (&*others.name, others.count, others.first),
            (OTHERS, 1_000 - 255, 255)
        );
        let flags = &entries[1];
        assert_eq!(
            (&*flags.name, flags.count, flags.first),
            ("span.flags", 6, 10)
        );
        assert!(
            entries
                .iter()
                .all(|entry| entry.name.chars().count() <= NAME_CHARS_MAX + 3)
        );
        assert!(entries.iter().all(|entry| !entry.name.contains('\n')));
    }
}
