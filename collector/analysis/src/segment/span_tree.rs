//! Forest of a trace's spans. Every kept span is in it exactly once, whatever the records contain.

use crate::diagnostic::Diagnostic;
use crate::record::{PointEvent, SpanRecord};
use rustc_hash::FxHashMap;
use std::cmp::Ordering;
use std::collections::hash_map::Entry;

const NO_PARENT: u32 = u32::MAX;

/// A forest of the kept spans. Spans are numbered in the order of (start, longest first, names,
/// id). The result therefore does not depend on the order of arrival, and every list of children is
/// in order of start. Reusing a forest between traces saves allocations.
#[derive(Clone, Debug, Default)]
pub(crate) struct SpanTree {
    /// Index of each span in the records, by the span's number.
    kept: Vec<u32>,
    roots: Vec<u32>,
    parent: Vec<u32>,
    /// Offsets of each span's children: `children[first_child[number]..first_child[number + 1]]`.
    first_child: Vec<u32>,
    children: Vec<u32>,
    number_of: FxHashMap<u64, u32>,
    seen_by: Vec<u32>,
}

impl SpanTree {
    /// Returns the number of spans in the forest.
    pub(crate) fn len(&self) -> usize {
        self.kept.len()
    }

    /// Returns the span with this number.
    pub(crate) fn span<'a>(&self, records: &'a [SpanRecord], number: usize) -> &'a SpanRecord {
        &records[self.kept[number] as usize]
    }

    /// Returns the index in the records of the span with this number.
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
        self.number_of.clear();
        let mut number = 0;
        self.kept.retain(|index| {
            let span = &records[*index as usize];
            let span_id = span.span_id;
            if span.end_ns < span.start_ns {
                diagnostics.push(Diagnostic::NegativeSpan { span_id });
            }
            match self.number_of.entry(span_id) {
                Entry::Vacant(entry) => {
                    entry.insert(number);
                    number += 1;
                    true
                }
                Entry::Occupied(_) => {
                    diagnostics.push(Diagnostic::DuplicateSpan { span_id });
                    false
                }
            }
        });
    }

    fn find_parents(&mut self, records: &[SpanRecord], diagnostics: &mut Vec<Diagnostic>) {
        self.parent.clear();
        for index in &self.kept {
            let SpanRecord {
                span_id, parent_id, ..
            } = records[*index as usize];
            let found = if parent_id == 0 {
                None
            } else {
                self.number_of.get(&parent_id).copied()
            };
            if parent_id != 0 && found.is_none() {
                diagnostics.push(Diagnostic::MissingParent { span_id, parent_id });
            }
            self.parent.push(found.unwrap_or(NO_PARENT));
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
            let is_one_clock = !span.host.is_empty() && span.host == parent.host;
            if is_one_clock && span.start_ns < parent.start_ns {
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
