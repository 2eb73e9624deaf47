//! Merges that need no union: one label contains the other one, or both are ranges that touch.

use super::MergeLog;
use crate::label::{Label, LabelKind};
use crate::node::{Node, Parents};

/// Maximum number of labels that a walk holds for later visits. The walk skips further ones.
const STACK: usize = 8;
/// Maximum number of unions that a walk for a block visits.
const HULL_STEPS: usize = 64;

/// Result of a reduction.
pub(super) enum ReducedMerge {
    /// One of the two labels.
    Label(Label),
    /// A range.
    Node(Node),
}

impl MergeLog {
    /// Returns the inputs of a label that is an input, a block or a range.
    #[inline]
    fn span(&self, label: Label) -> Option<(u32, u32)> {
        match label.kind() {
            LabelKind::Node(index) => match self.nodes.get(index)?.parents() {
                Parents::Range(first, last) => Some((first, last)),
                Parents::Union(..) => None,
            },
            _ => label.span(),
        }
    }

    /// Reduces a merge of two distinct labels, `older` being the smaller number; `None` if it finds
    /// no reduction.
    #[inline]
    pub(super) fn reduce(&self, older: Label, newer: Label, steps: u8) -> Option<ReducedMerge> {
        if let (Some(a), Some(b)) = (self.span(older), self.span(newer)) {
            let (first, last) = (a.0.min(b.0), a.1.max(b.1));
            if (first, last) == a {
                return Some(ReducedMerge::Label(older));
            }
            if (first, last) == b {
                return Some(ReducedMerge::Label(newer));
            }
            // Blocks do not join ranges: a range must end with an assigned input.
            let is_block = |label: Label| !label.is_node() && label.raw() > Label::node(0).raw();
            if a.0.max(b.0) <= a.1.min(b.1) + 1 && !is_block(newer) {
                return Some(ReducedMerge::Node(Node::range(first, last)));
            }
            return None;
        }
        if newer.is_node() && self.contains(newer, older, steps) {
            return Some(ReducedMerge::Label(newer));
        }
        if older.is_node() && self.contains(older, newer, steps) {
            return Some(ReducedMerge::Label(older));
        }
        None
    }

    /// Reports whether a walk that descends into at most `steps` unions finds that a label contains
    /// another one.
    fn contains(&self, label: Label, wanted: Label, mut steps: u8) -> bool {
        let wanted_span = self.span(wanted);
        let mut stack = [label; STACK];
        let mut depth = 1_usize;
        while let Some(&label) = depth.checked_sub(1).and_then(|top| stack.get(top)) {
            depth -= 1;
            let is_within =
                |first, last| wanted_span.is_some_and(|(from, to)| first <= from && to <= last);
            let LabelKind::Node(index) = label.kind() else {
                if label
                    .span()
                    .is_some_and(|(first, last)| is_within(first, last))
                {
                    return true;
                }
                continue;
            };
            // A union contains no newer union, but may contain a newer range.
            if wanted_span.is_none() && label < wanted {
                continue;
            }
            match self.nodes.get(index).map(Node::parents) {
                Some(Parents::Union(a, b)) => {
                    if a == wanted || b == wanted {
                        return true;
                    }
                    let Some(fewer) = steps.checked_sub(1) else {
                        continue;
                    };
                    steps = fewer;
                    // Skips inputs, which contain only themselves.
                    for parent in [a, b] {
                        if parent.raw() >= Label::node(0).raw()
                            && let Some(place) = stack.get_mut(depth)
                        {
                            *place = parent;
                            depth += 1;
                        }
                    }
                }
                Some(Parents::Range(first, last)) if is_within(first, last) => return true,
                _ => {}
            }
        }
        false
    }

    /// Returns the smallest block around two labels; the block of all inputs if a walk over a
    /// limited number of nodes does not find their first and last input.
    pub(super) fn block(&self, older: Label, newer: Label) -> Label {
        let mut stack = [Label::NULL; HULL_STEPS];
        stack[..2].copy_from_slice(&[older, newer]);
        let (mut depth, mut steps) = (2_usize, HULL_STEPS);
        let (mut first, mut last) = (u32::MAX, 0);
        while let Some(&label) = depth.checked_sub(1).and_then(|top| stack.get(top)) {
            depth -= 1;
            if let Some(span) = self.span(label) {
                (first, last) = (first.min(span.0), last.max(span.1));
                continue;
            }
            let LabelKind::Node(index) = label.kind() else {
                continue;
            };
            let parents = self.nodes.get(index).map(Node::parents);
            let (Some(Parents::Union(a, b)), Some(places), Some(fewer)) = (
                parents,
                stack.get_mut(depth..depth + 2),
                steps.checked_sub(1),
            ) else {
                return Label::ALL;
            };
            places.copy_from_slice(&[a, b]);
            depth += 2;
            steps = fewer;
        }
        Label::block(first, last)
    }
}
