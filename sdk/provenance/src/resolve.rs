//! Backward and forward queries: the inputs of labels, and the labels that inputs reached.

mod reach;
mod sweep;

pub use reach::Reach;
pub use sweep::{sweep, sweep_within};

use alloc::vec;
use alloc::vec::Vec;

use crate::label::{Label, LabelKind};
use crate::node::Parents;
use crate::read::ReadLog;
use crate::set::InputSet;

/// Resolver of single labels. It keeps its memory, such as one bit for each node, from query to
/// query.
///
/// For many labels, [`sweep`] usually visits shared nodes only once.
#[derive(Debug, Default)]
pub struct Resolver {
    /// Visited nodes, one bit each. All bits are 0 between queries.
    visited: Vec<u64>,
    stack: Vec<u32>,
    /// Words of `visited` that are not 0.
    touched: Vec<usize>,
    /// Ranges of inputs that the running query found. The query adds them to a set in ascending
    /// order, so that each range goes to the end of the set and moves no other.
    ranges: Vec<(u32, u32)>,
    /// Number of nodes that queries visited since the last `take_visits`.
    visits: u64,
}

impl Resolver {
    /// Returns the inputs of a label. An unknown node contains all inputs.
    pub fn inputs(&mut self, log: &impl ReadLog, label: Label) -> InputSet {
        self.visit(log, label);
        while let Some(index) = self.stack.pop() {
            self.visits += 1;
            match log.node(index).map(|node| node.parents()) {
                Some(Parents::Union(a, b)) => {
                    self.visit(log, a);
                    self.visit(log, b);
                }
                Some(Parents::Range(first, last)) => self.ranges.push((first, last)),
                None => self.ranges.extend(all(log)),
            }
        }
        for word in self.touched.drain(..) {
            self.visited[word] = 0;
        }
        let mut inputs = InputSet::new();
        self.ranges.sort_unstable();
        for (first, last) in self.ranges.drain(..) {
            inputs.insert(first, last);
        }
        inputs
    }

    /// Returns the number of nodes that queries visited since the last call.
    fn take_visits(&mut self) -> u64 {
        core::mem::take(&mut self.visits)
    }

    fn visit(&mut self, log: &impl ReadLog, label: Label) {
        let LabelKind::Node(index) = label.kind() else {
            self.ranges.extend(leaf(log, label));
            return;
        };
        if index >= log.nodes() {
            self.ranges.extend(all(log));
            return;
        }
        let word = index as usize / 64;
        if word >= self.visited.len() {
            self.visited.resize(word + 1, 0);
        }
        let bit = 1 << (index % 64);
        if self.visited[word] & bit == 0 {
            if self.visited[word] == 0 {
                self.touched.push(word);
            }
            self.visited[word] |= bit;
            self.stack.push(index);
        }
    }
}

/// Returns the inputs of one label. For several labels, use a [`Resolver`] or [`sweep`].
pub fn inputs_of(log: &impl ReadLog, label: Label) -> InputSet {
    Resolver::default().inputs(log, label)
}

/// Returns the first and last input of a log; `None` if it has none.
fn all(log: &impl ReadLog) -> Option<(u32, u32)> {
    Some((0, log.inputs().checked_sub(1)?))
}

/// Returns the first and last input of a label that is not a node. Leaves out inputs that the log
/// has not assigned.
fn leaf(log: &impl ReadLog, label: Label) -> Option<(u32, u32)> {
    let (first, last) = label.span()?;
    let last = last.min(log.inputs().checked_sub(1)?);
    (first <= last).then_some((first, last))
}

/// Returns the index after the last node among labels, at most the log's number of nodes.
fn end_of(log: &impl ReadLog, labels: &[Label]) -> u32 {
    let ends = labels.iter().filter_map(|label| match label.kind() {
        LabelKind::Node(index) => Some(index + 1),
        _ => None,
    });
    ends.max().unwrap_or(0).min(log.nodes())
}

/// Creates an array with a number for each of the nodes before `end`.
fn per_node(end: u32) -> Vec<u32> {
    vec![0; end as usize]
}

#[cfg(test)]
mod tests;
