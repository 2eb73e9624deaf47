//! The tree of a trace's spans, made whole: whatever the records say, every kept span has one place in a forest.

use crate::diagnostic::Diagnostic;
use crate::record::SpanRecord;
use rustc_hash::FxHashMap;

/// A forest over the kept spans. Spans are numbered in the order of (start, longest first, names, id), so that the
/// result does not depend on the order of arrival, and every list of children is in order of start.
pub(super) struct SpanTree<'a> {
    pub(super) spans: Vec<&'a SpanRecord>,
    pub(super) roots: Vec<usize>,
    pub(super) children: Vec<Vec<usize>>,
}

impl<'a> SpanTree<'a> {
    pub(super) fn build(records: &'a [SpanRecord], diagnostics: &mut Vec<Diagnostic>) -> SpanTree<'a> {
        let (spans, number_of) = keep_one_of_each_id(records, diagnostics);
        let mut parent: Vec<Option<usize>> = Vec::with_capacity(spans.len());
        for span in &spans {
            let found = number_of.get(&span.parent_id).copied().filter(|_| span.parent_id != 0);
            if span.parent_id != 0 && found.is_none() {
                let (span_id, parent_id) = (span.span_id, span.parent_id);
                diagnostics.push(Diagnostic::MissingParent { span_id, parent_id });
            }
            parent.push(found);
        }
        break_cycles(&spans, &mut parent, diagnostics);
        let mut children = vec![Vec::new(); spans.len()];
        let mut roots = Vec::new();
        for (number, parent) in parent.iter().enumerate() {
            match parent {
                Some(parent) => children[*parent].push(number),
                None => roots.push(number),
            }
        }
        SpanTree { spans, roots, children }
    }
}

fn keep_one_of_each_id<'a>(
    records: &'a [SpanRecord],
    diagnostics: &mut Vec<Diagnostic>,
) -> (Vec<&'a SpanRecord>, FxHashMap<u64, usize>) {
    let mut sorted: Vec<&SpanRecord> = records.iter().collect();
    sorted.sort_by(|a, b| {
        let times = (a.start_ns, b.end_ns).cmp(&(b.start_ns, a.end_ns));
        times.then_with(|| {
            (&a.service, &a.name, a.span_id, a.parent_id).cmp(&(&b.service, &b.name, b.span_id, b.parent_id))
        })
    });
    let mut spans = Vec::with_capacity(sorted.len());
    let mut number_of = FxHashMap::default();
    for span in sorted {
        if span.end_ns < span.start_ns {
            diagnostics.push(Diagnostic::NegativeSpan { span_id: span.span_id });
        }
        match number_of.entry(span.span_id) {
            std::collections::hash_map::Entry::Vacant(entry) => {
                entry.insert(spans.len());
                spans.push(span);
            }
            std::collections::hash_map::Entry::Occupied(_) => {
                diagnostics.push(Diagnostic::DuplicateSpan { span_id: span.span_id });
            }
        }
    }
    (spans, number_of)
}

/// Cuts every cycle of parents at its first span, in linear time: each span is walked over once.
fn break_cycles(spans: &[&SpanRecord], parent: &mut [Option<usize>], diagnostics: &mut Vec<Diagnostic>) {
    const UNSEEN: usize = usize::MAX;
    let mut seen_by = vec![UNSEEN; spans.len()];
    for walker in 0..spans.len() {
        let mut at = Some(walker);
        while let Some(span) = at {
            if seen_by[span] == UNSEEN {
                seen_by[span] = walker;
                at = parent[span];
            } else if seen_by[span] == walker {
                let first = first_on_cycle(span, parent);
                diagnostics.push(Diagnostic::ParentCycle { span_id: spans[first].span_id });
                parent[first] = None;
                at = None;
            } else {
                at = None;
            }
        }
    }
}

fn first_on_cycle(on_cycle: usize, parent: &[Option<usize>]) -> usize {
    let mut first = on_cycle;
    let mut at = parent[on_cycle];
    while let Some(span) = at.filter(|span| *span != on_cycle) {
        first = first.min(span);
        at = parent[span];
    }
    first
}
