//! Counts, by name, the parts of a source that are valid but not stored.

use std::borrow::Cow;
use std::collections::HashMap;

use serde::{Deserialize, Serialize};

/// Maximum number of distinct names besides [`OTHERS`]; bounds the counts against a hostile source.
const NAMES_MAX: usize = 256;
/// Maximum number of characters kept of a name, without `…` and before control characters are
/// escaped.
const NAME_CHARS_MAX: usize = 100;
/// Name under which occurrences of further names are counted once there are [`NAMES_MAX`].
const OTHERS: &str = "(other names)";

/// Part of a source that is not stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotTaken {
    /// Path of a key, kind of a record, or description of another part.
    pub name: String,
    /// Number of occurrences.
    pub count: u64,
    /// Place of the first occurrence: the line, or the number of the message.
    pub first: u64,
}

/// Counts the parts that are not stored.
#[derive(Debug, Default)]
pub(super) struct NotTakenCounts {
    places: HashMap<String, usize>,
    entries: Vec<NotTaken>,
}

impl NotTakenCounts {
    /// Adds `count` occurrences of `name`, the first of them at `place`. Counts longer names with
    /// the same first [`NAME_CHARS_MAX`] characters as one. Counts a new name as [`OTHERS`] if
    /// there are already [`NAMES_MAX`].
    pub(super) fn count(&mut self, name: &str, count: u64, place: u64) {
        if count == 0 {
            return;
        }
        let name = shown(name);
        if let Some(&at) = self.places.get(&*name) {
            self.entries[at].count += count;
            return;
        }
        if self.entries.len() >= NAMES_MAX && name != OTHERS {
            return self.count(OTHERS, count, place);
        }
        let name = name.into_owned();
        self.places.insert(name.clone(), self.entries.len());
        self.entries.push(NotTaken {
            name,
            count,
            first: place,
        });
    }

    /// Returns all entries, those with the highest counts first.
    pub(super) fn entries(self) -> Vec<NotTaken> {
        let mut entries = self.entries;
        entries.sort_by_key(|entry| std::cmp::Reverse(entry.count));
        entries
    }
}

/// Shortens a name, to bound its memory, and escapes it if it has control characters.
fn shown(name: &str) -> Cow<'_, str> {
    let mut shown = match name.char_indices().nth(NAME_CHARS_MAX) {
        None => Cow::Borrowed(name),
        Some((end, _)) => format!("{}…", &name[..end]).into(),
    };
    if shown.chars().any(char::is_control) {
        shown = shown.escape_debug().to_string().into();
    }
    shown
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
        let kept = counts.places.keys().map(String::len).max();
        assert!(kept < Some(2 * NAME_CHARS_MAX), "{kept:?}");
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
