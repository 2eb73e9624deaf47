//! The data elements of one trace.

use super::ElementId;
use crate::record::{RecordOwner, TraceRecords};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// Elements by the span or event that is about them, and a number for each.
#[derive(Default)]
pub(super) struct Elements<'a> {
    of: FxHashMap<RecordOwner, &'a Arc<str>>,
    numbers: FxHashMap<Arc<str>, ElementId>,
}

impl<'a> Elements<'a> {
    pub(super) fn of(records: &'a TraceRecords) -> Elements<'a> {
        let mut of = FxHashMap::default();
        for record in &records.elements {
            // Of several elements, the first by name counts: the order of records must not matter.
            let kept = of.entry(record.owner).or_insert(&record.element);
            *kept = (*kept).min(&record.element);
        }
        Elements {
            of,
            numbers: FxHashMap::default(),
        }
    }

    /// Returns the element that a record names.
    pub(super) fn named(&self, owner: RecordOwner) -> Option<&'a Arc<str>> {
        // Most traces have no elements.
        if self.of.is_empty() {
            None
        } else {
            self.of.get(&owner).copied()
        }
    }

    /// Returns the number of an element of this trace.
    pub(super) fn number(&mut self, element: Option<&Arc<str>>) -> ElementId {
        let Some(element) = element else {
            return ElementId::NONE;
        };
        // A trace has fewer records than numbers.
        let next = ElementId(self.numbers.len() as u32);
        *self.numbers.entry(element.clone()).or_insert(next)
    }
}

/// Returns the element worked on between two events, given as their names and elements. It is the
/// first event's, if the second event has the same or none. Between two events of one name (logged
/// when done) it is the second's.
pub(super) fn between<N: PartialEq, E: PartialEq>(
    (name, element): (&N, Option<E>),
    (next_name, next): (&N, Option<E>),
) -> Option<E> {
    match (element, next) {
        (Some(a), Some(b)) if a != b => (name == next_name).then_some(b),
        (a, _) => a,
    }
}
