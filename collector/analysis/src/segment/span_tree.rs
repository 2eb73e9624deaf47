//! Forest of a trace's spans. It has exactly one span of each id, whatever the records contain.

use crate::diagnostic::Diagnostic;
use crate::record::{PointEvent, SpanRecord};
use foldhash::fast::RandomState;
use std::cmp::Ordering;
use std::hash::BuildHasher as _;

const NO_PARENT: u32 = u32::MAX;

/// Numbers of spans by their ids: a hash table with linear probing, at most half full. It is reused
/// for all traces. Senders choose the ids, so the hash has a random key: with a known one, 60,000
/// ids that share a slot took a second.
#[derive(Clone, Debug, Default)]
struct SpanNumbers {
    /// Ids with their numbers; `NO_PARENT` in an empty slot. The length is a power of two.
    slots: Vec<(u64, u32)>,
    hash: RandomState,
}

impl SpanNumbers {
    /// Removes all spans, and makes room for this number of spans.
    fn clear(&mut self, spans: usize) {
        self.slots.clear();
        let size = (2 * spans).next_power_of_two().max(2);
        self.slots.resize(size, (0, NO_PARENT));
    }

    /// Returns the first slot that an id may have.
    fn first_slot(&self, id: u64) -> usize {
        self.hash.hash_one(id) as usize & (self.slots.len() - 1)
    }

    /// Returns the slot of an id, or the empty slot for it.
    fn slot(&self, id: u64) -> usize {
        let mut at = self.first_slot(id);
        while self.slots[at].1 != NO_PARENT && self.slots[at].0 != id {
            at = (at + 1) & (self.slots.len() - 1);
        }
        at
    }

    /// Returns the number of a span; `NO_PARENT` for an unknown id.
    fn get(&self, id: u64) -> u32 {
        self.slots[self.slot(id)].1
    }

    /// Adds a span. Returns `false` if the id is known.
    fn insert(&mut self, id: u64, number: u32) -> bool {
        let slot = self.slot(id);
        let is_new = self.slots[slot].1 == NO_PARENT;
        if is_new {
            self.slots[slot] = (id, number);
        }
        is_new
    }
}

/// A forest with one span of each id. Spans are numbered in the order of (start, longest first,
/// names, id). The result therefore does not depend on the order of arrival, and every list of
/// children is in order of start. Reusing a forest between traces saves allocations.
#[derive(Clone, Debug, Default)]
pub(crate) struct SpanTree {
    /// Index of each span in the records, by the span's number.
    kept: Vec<u32>,
    roots: Vec<u32>,
    parent: Vec<u32>,
    /// Offsets of each span's children: `children[first_child[number]..first_child[number + 1]]`.
    first_child: Vec<u32>,
    children: Vec<u32>,
    number_of: SpanNumbers,
    seen_by: Vec<u32>,
}

impl SpanTree {
    pub(crate) fn len(&self) -> usize {
        self.kept.len()
    }

    pub(crate) fn span<'a>(&self, records: &'a [SpanRecord], number: usize) -> &'a SpanRecord {
        &records[self.kept[number] as usize]
    }

    pub(super) fn record(&self, number: usize) -> usize {
        self.kept[number] as usize
    }

    /// Returns the numbers of the spans without a parent in the forest, in order of start.
    pub(crate) fn roots(&self) -> &[u32] {
        &self.roots
    }

    /// Returns the numbers of a span's children, in order of start.
    pub(crate) fn children(&self, number: usize) -> &[u32] {
        &self.children[self.first_child[number] as usize..self.first_child[number + 1] as usize]
    }

    /// Returns the number of a span's parent; `None` for a root.
    pub(crate) fn parent(&self, number: usize) -> Option<usize> {
        let parent = self.parent[number];
        (parent != NO_PARENT).then_some(parent as usize)
    }

    /// Rebuilds the forest from these records. Adds diagnostics for their flaws.
    pub(crate) fn build(&mut self, records: &[SpanRecord], diagnostics: &mut Vec<Diagnostic>) {
        self.keep_one_of_each_id(records, diagnostics);
        self.find_parents(records, diagnostics);
        self.break_cycles(records, diagnostics);
        self.check_starts(records, diagnostics);
        self.list_children();
    }

    fn keep_one_of_each_id(&mut self, records: &[SpanRecord], diagnostics: &mut Vec<Diagnostic>) {
        self.kept.clear();
        self.kept.extend(0..records.len() as u32);
        self.kept
            .sort_by(|a, b| compare(&records[*a as usize], &records[*b as usize]));
        self.number_of.clear(records.len());
        let mut number = 0;
        self.kept.retain(|index| {
            let span = &records[*index as usize];
            let span_id = span.span_id;
            if span.end_ns < span.start_ns {
                diagnostics.push(Diagnostic::NegativeSpan { span_id });
            }
            let is_new = self.number_of.insert(span_id, number);
            number += u32::from(is_new);
            if !is_new {
                diagnostics.push(Diagnostic::DuplicateSpan { span_id });
            }
            is_new
        });
    }

    fn find_parents(&mut self, records: &[SpanRecord], diagnostics: &mut Vec<Diagnostic>) {
        self.parent.clear();
        for index in &self.kept {
            let SpanRecord {
                span_id, parent_id, ..
            } = records[*index as usize];
            let found = match parent_id {
                0 => NO_PARENT,
                _ => self.number_of.get(parent_id),
            };
            if parent_id != 0 && found == NO_PARENT {
                diagnostics.push(Diagnostic::MissingParent { span_id, parent_id });
            }
            self.parent.push(found);
        }
    }

    /// Breaks every cycle of parents: the span of the cycle with the lowest number becomes a root.
    /// Takes linear time, because each span is visited once, and once more if it is on a cycle.
    fn break_cycles(&mut self, records: &[SpanRecord], diagnostics: &mut Vec<Diagnostic>) {
        const UNSEEN: u32 = u32::MAX;
        self.seen_by.clear();
        self.seen_by.resize(self.len(), UNSEEN);
        for walker in 0..self.len() as u32 {
            let mut at = walker;
            while at != NO_PARENT && self.seen_by[at as usize] == UNSEEN {
                self.seen_by[at as usize] = walker;
                at = self.parent[at as usize];
            }
            if at != NO_PARENT && self.seen_by[at as usize] == walker {
                let first = self.first_on_cycle(at);
                let span_id = self.span(records, first as usize).span_id;
                diagnostics.push(Diagnostic::ParentCycle { span_id });
                self.parent[first as usize] = NO_PARENT;
            }
        }
    }

    /// Adds diagnostics for spans that start before their parents on the same host. Without known
    /// hosts, the two may have different clocks.
    fn check_starts(&self, records: &[SpanRecord], diagnostics: &mut Vec<Diagnostic>) {
        for (number, parent) in self
            .parent
            .iter()
            .enumerate()
            .filter(|(_, parent)| **parent != NO_PARENT)
        {
            let (span, parent) = (
                self.span(records, number),
                self.span(records, *parent as usize),
            );
            let is_one_clock = || !span.host.is_empty() && span.host == parent.host;
            if span.start_ns < parent.start_ns && is_one_clock() {
                diagnostics.push(Diagnostic::StartsBeforeParent {
                    span_id: span.span_id,
                });
            }
        }
    }

    fn first_on_cycle(&self, on_cycle: u32) -> u32 {
        let mut first = on_cycle;
        let mut at = self.parent[on_cycle as usize];
        while at != on_cycle {
            first = first.min(at);
            at = self.parent[at as usize];
        }
        first
    }

    fn list_children(&mut self) {
        self.roots.clear();
        self.first_child.clear();
        self.first_child.resize(self.len() + 1, 0);
        for (number, parent) in self.parent.iter().enumerate() {
            match *parent {
                NO_PARENT => self.roots.push(number as u32),
                parent => self.first_child[parent as usize] += 1,
            }
        }
        // This turns counts into ends. Filling from the back then turns each end into a beginning.
        let mut end = 0;
        for count in &mut self.first_child {
            end += *count;
            *count = end;
        }
        self.children.clear();
        self.children.resize(end as usize, 0);
        for (number, parent) in self
            .parent
            .iter()
            .enumerate()
            .rev()
            .filter(|(_, parent)| **parent != NO_PARENT)
        {
            let at = &mut self.first_child[*parent as usize];
            *at -= 1;
            self.children[*at as usize] = number as u32;
        }
    }
}

/// Compares records by all their fields, so that the choice among several records with one id does
/// not depend on the order of arrival. Of records with equal times, names and ids, the one with the
/// most events comes first.
fn compare(a: &SpanRecord, b: &SpanRecord) -> Ordering {
    let times = (a.start_ns, b.end_ns).cmp(&(b.start_ns, a.end_ns));
    times
        .then_with(|| {
            let names = (&a.service, &a.name, a.span_id, a.parent_id);
            names.cmp(&(&b.service, &b.name, b.span_id, b.parent_id))
        })
        .then_with(|| b.events.len().cmp(&a.events.len()))
        .then_with(|| (&a.host, a.process, a.flags.0).cmp(&(&b.host, b.process, b.flags.0)))
        .then_with(|| {
            let event =
                |event: &PointEvent| (event.time_ns, event.name.clone(), event.element.clone());
            a.events.iter().map(event).cmp(b.events.iter().map(event))
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::SpanFlags;
    use proptest::prelude::*;
    use std::collections::HashMap;

    proptest! {
        /// Some ids differ only in their upper bits.
        #[test]
        fn numbers_are_as_in_a_map(
            traces in proptest::collection::vec(
                proptest::collection::vec((0u64..9, 0u32..3), 0..40),
                1..4,
            ),
        ) {
            let mut numbers = SpanNumbers::default();
            for ids in traces {
                numbers.clear(ids.len());
                let mut expected = HashMap::new();
                for (number, (low, high)) in (0..).zip(ids) {
                    let id = low | u64::from(high) << 62;
                    let is_new = !expected.contains_key(&id);
                    expected.entry(id).or_insert(number);
                    prop_assert_eq!(numbers.insert(id, number), is_new);
                }
                for id in (0..9).flat_map(|low| (0..3).map(move |high| low | high << 62)) {
                    let found = Some(numbers.get(id)).filter(|number| *number != NO_PARENT);
                    prop_assert_eq!(found, expected.get(&id).copied());
                }
            }
        }
    }

    #[test]
    fn ids_of_a_hostile_sender_spread_over_the_slots() {
        // Products of these ids with a known multiplier differ only in their lower bits.
        let crafted = |inverse: u64| (1..=20_000).map(move |at: u64| at.wrapping_mul(inverse));
        let mut numbers = SpanNumbers::default();
        for inverse in [1, 0xf1de_83e1_9937_733d, 0x7814_94a5_5daa_ed0d] {
            numbers.clear(20_000);
            for (number, id) in (0..).zip(crafted(inverse)) {
                numbers.insert(id, number);
            }
            let off = |id: u64| numbers.slot(id).wrapping_sub(numbers.first_slot(id));
            let steps: usize = crafted(inverse)
                .map(|id| off(id) & (numbers.slots.len() - 1))
                .sum();
            assert!(steps < 40_000, "{steps} steps past the first slot");
        }
    }

    #[test]
    fn the_choice_of_twins_does_not_depend_on_their_order() {
        let span = |element: &str| SpanRecord {
            span_id: 1,
            parent_id: 0,
            service: "s".into(),
            name: "n".into(),
            host: "h".into(),
            process: 1,
            start_ns: 0,
            end_ns: 9,
            flags: SpanFlags(0),
            events: vec![PointEvent {
                time_ns: 3,
                name: "e".into(),
                element: Some(element.into()),
            }],
        };
        for twins in [[span("a"), span("b")], [span("b"), span("a")]] {
            let mut tree = SpanTree::default();
            tree.build(&twins, &mut Vec::new());
            assert_eq!((tree.len(), tree.span(&twins, 0)), (1, &span("a")));
        }
    }
}
