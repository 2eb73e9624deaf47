//! Backward and forward queries: the inputs of labels, and the labels that inputs reached.

mod reach;
mod sweep;

pub use reach::Reach;
pub use sweep::sweep;

use alloc::vec;
use alloc::vec::Vec;

use crate::label::{Label, LabelKind};
use crate::node::Parents;
use crate::read::ReadLog;
use crate::set::InputSet;

/// Resolver of single labels. It keeps its memory, one bit for each node, from query to query.
///
/// For many labels, [`sweep`] visits shared nodes once.
#[derive(Debug, Default)]
pub struct Resolver {
    /// Visited nodes, one bit each. All bits are 0 between queries.
    visited: Vec<u64>,
    stack: Vec<u32>,
    /// Words of `visited` that are not 0.
    touched: Vec<usize>,
}

impl Resolver {
    /// Returns the inputs of a label. An unknown node contains all inputs.
    pub fn inputs(&mut self, log: &impl ReadLog, label: Label) -> InputSet {
        let mut inputs = InputSet::new();
        self.visit(log, label, &mut inputs);
        while let Some(index) = self.stack.pop() {
            match log.node(index).map(|node| node.parents()) {
                Some(Parents::Union(a, b)) => {
                    self.visit(log, a, &mut inputs);
                    self.visit(log, b, &mut inputs);
                }
                Some(Parents::Range(first, last)) => inputs.insert(first, last),
                None => insert_all(log, &mut inputs),
            }
        }
        for word in self.touched.drain(..) {
            self.visited[word] = 0;
        }
        inputs
    }

    fn visit(&mut self, log: &impl ReadLog, label: Label, inputs: &mut InputSet) {
        let LabelKind::Node(index) = label.kind() else {
            if let Some((first, last)) = leaf(log, label) {
                inputs.insert(first, last);
            }
            return;
        };
        if index >= log.nodes() {
            return insert_all(log, inputs);
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

fn insert_all(log: &impl ReadLog, inputs: &mut InputSet) {
    if let Some(last) = log.inputs().checked_sub(1) {
        inputs.insert(0, last);
    }
}

/// Returns the first and last input of a label that is no node. A block contains only assigned
/// inputs.
fn leaf(log: &impl ReadLog, label: Label) -> Option<(u32, u32)> {
    let (first, last) = label.span()?;
    let last = last.min(log.inputs().checked_sub(1)?);
    (first <= last).then_some((first, last))
}

/// Returns the index after the last node among labels.
fn end_of(log: &impl ReadLog, labels: &[Label]) -> u32 {
    let ends = labels.iter().filter_map(|label| match label.kind() {
        LabelKind::Node(index) => Some(index + 1),
        _ => None,
    });
    ends.max().unwrap_or(0).min(log.nodes())
}

/// Creates an array with a number for each of the nodes up to `end`.
fn per_node(end: u32) -> Vec<u32> {
    vec![0; end as usize]
}

#[cfg(test)]
mod tests;
