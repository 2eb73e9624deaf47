//! The data elements of one trace.

use super::ElementId;
use crate::record::{RecordOwner, TraceRecords};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// Which span or event is about which element, and a number for each element.
#[derive(Default)]
pub(super) struct Elements<'a> {
    of: FxHashMap<RecordOwner, &'a Arc<str>>,
    numbers: FxHashMap<Arc<str>, ElementId>,
}

impl<'a> Elements<'a> {
    pub(super) fn of(records: &'a TraceRecords) -> Elements<'a> {
        let mut of = FxHashMap::default();
        for record in &records.elements {
            // Of several, the first by name: the order of records must not matter.
            let kept = of.entry(record.owner).or_insert(&record.element);
            *kept = (*kept).min(&record.element);
        }
        Elements {
            of,
            numbers: FxHashMap::default(),
        }
    }

    /// The element that a record says it is about.
    pub(super) fn named(&self, owner: RecordOwner) -> Option<&'a Arc<str>> {
        // Most traces have none.
        if self.of.is_empty() {
            None
        } else {
            self.of.get(&owner).copied()
        }
    }

    /// The number of an element of this trace.
    pub(super) fn number(&mut self, element: Option<&Arc<str>>) -> ElementId {
        let Some(element) = element else {
            return ElementId::NONE;
        };
        // A trace has fewer records than numbers.
        let next = ElementId(self.numbers.len() as u32);
        *self.numbers.entry(element.clone()).or_insert(next)
    }
}

/// The element that is worked on between two events, given as their names and what each is about: the first's, if the
/// second is about the same or none. Between two of one name (logged when done) it is the second's.
pub(super) fn between<N: PartialEq, E: PartialEq>(
    (name, element): (&N, Option<E>),
    (next_name, next): (&N, Option<E>),
) -> Option<E> {
    match (element, next) {
        (Some(a), Some(b)) if a != b => (name == next_name).then_some(b),
        (a, _) => a,
    }
}
