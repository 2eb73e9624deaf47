//! Data elements of one trace, by the records that concern them.

use super::ElementId;
use crate::record::{RecordOwner, TraceRecords};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// Elements by the span or event that concerns them, and the numbers assigned to elements so far.
#[derive(Default)]
pub(super) struct Elements<'a> {
    of: foldhash::HashMap<RecordOwner, &'a Arc<str>>,
    numbers: FxHashMap<Arc<str>, ElementId>,
}

impl<'a> Elements<'a> {
    pub(super) fn of(records: &'a TraceRecords) -> Elements<'a> {
        let mut of = foldhash::HashMap::default();
        for record in &records.elements {
            // Of several elements of a record, the first by name counts, so that the order of
            // records does not matter.
            let kept = of.entry(record.owner).or_insert(&record.element);
            *kept = (*kept).min(&record.element);
        }
        Elements {
            of,
            numbers: FxHashMap::default(),
        }
    }

    /// Returns the element that a span or event names; `None` if it names none.
    pub(super) fn named(&self, owner: RecordOwner) -> Option<&'a Arc<str>> {
        // Most traces have no elements.
        if self.of.is_empty() {
            None
        } else {
            self.of.get(&owner).copied()
        }
    }

    /// Returns the number of an element, assigned at first use; [`ElementId::NONE`] for no element.
    pub(super) fn number(&mut self, element: Option<&Arc<str>>) -> ElementId {
        let Some(element) = element else {
            return ElementId::NONE;
        };
        // A trace has fewer than 2³² elements.
        let next = ElementId(self.numbers.len() as u32);
        *self.numbers.entry(element.clone()).or_insert(next)
    }
}

/// Returns the element that a segment between two events, or two boundaries of a span, processes.
/// Both are given by their names and elements. The result is the first one's element, if the second
/// one has an equal element or none. If both have elements and these differ, the result is the
/// second one's element if their names are equal, as for two events that log completed work. In all
/// other cases, it is `None`.
pub(super) fn between<N: PartialEq, E: PartialEq>(
    (name, element): (&N, Option<E>),
    (next_name, next): (&N, Option<E>),
) -> Option<E> {
    match (element, next) {
        (Some(a), Some(b)) if a != b => (name == next_name).then_some(b),
        (a, _) => a,
    }
}
