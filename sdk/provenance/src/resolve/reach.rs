//! Forward queries.

use alloc::vec;
use alloc::vec::Vec;

use crate::label::{Label, LabelKind};
use crate::node::Parents;
use crate::read::ReadLog;
use crate::set::InputSet;

/// Labels that at least one of several inputs reached: one bit for each node of the log.
#[derive(Debug)]
pub struct Reach {
    inputs: InputSet,
    reached: Vec<u64>,
}

impl Reach {
    /// Finds the nodes that contain any of the inputs, in one pass over the log.
    pub fn new(log: &impl ReadLog, inputs: InputSet) -> Self {
        let nodes = log.nodes();
        let mut reach = Self {
            inputs,
            reached: vec![0; nodes.div_ceil(64) as usize],
        };
        for index in 0..nodes {
            let is_reached = match log.node(index).map(|node| node.parents()) {
                Some(Parents::Union(a, b)) => reach.contains(a) || reach.contains(b),
                Some(Parents::Range(first, last)) => reach.inputs.intersects(first, last),
                None => true,
            };
            reach.reached[index as usize / 64] |= u64::from(is_reached) << (index % 64);
        }
        reach
    }

    /// Reports whether a label contains any of the inputs. The log must have had the label when
    /// this object was made.
    pub fn contains(&self, label: Label) -> bool {
        match label.kind() {
            LabelKind::Node(index) => match self.reached.get(index as usize / 64) {
                Some(word) => word >> (index % 64) & 1 == 1,
                None => true,
            },
            _ => label
                .span()
                .is_some_and(|(first, last)| self.inputs.intersects(first, last)),
        }
    }
}
