//! Limits of a log, and counts of its losses.

use crate::label::{INPUTS_MAX, NODES_MAX};

/// Limits of a log, and the reductions that keep it small.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Maximum number of distinct inputs. Further bytes share the last one.
    pub inputs: u32,
    /// Maximum number of nodes. A merge that needs a further one gets an imprecise label. In a
    /// large log, a node and its entry in the memo of merges take at most 16 bytes, 21 while the
    /// memo grows.
    pub nodes: u32,
    /// Maximum number of runs of sources. The bytes of further runs share the last input.
    pub sources: u32,
    /// Maximum number of runs of outputs. Further ones are dropped.
    pub outputs: u32,
    /// Maximum number of bytes of items, with their names and contents. Items that would exceed it
    /// get no description.
    pub item_bytes: u32,
    /// Reductions, which save the nodes of some merges.
    pub reduction: Reduction,
}

/// Reductions that a log applies to merges.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reduction {
    /// Merges with the null label, merges of equal labels, and merges in the memo make no node.
    Repeated,
    /// Overlapping or adjacent ranges of inputs also become one range. A merge also makes no node
    /// if a walk over `steps` unions finds that one label contains the other.
    Contained {
        /// Maximum number of unions that a walk descends into. A merge walks at most twice.
        steps: u8,
    },
}

impl Limits {
    /// Returns limits with the given number of nodes, but at most [`NODES_MAX`].
    #[must_use]
    pub const fn with_nodes(nodes: u32) -> Self {
        Self {
            inputs: INPUTS_MAX,
            nodes: if nodes < NODES_MAX { nodes } else { NODES_MAX },
            sources: 1 << 20,
            outputs: 1 << 20,
            item_bytes: 1 << 20,
            reduction: Reduction::Contained { steps: 3 },
        }
    }
}

impl Default for Limits {
    /// 4 million nodes, which take at most 64 MiB, except while the memo grows.
    fn default() -> Self {
        Self::with_nodes((1 << 22) - 1)
    }
}

/// Counts of imprecise labels, forgotten nodes, and dropped outputs and items. An imprecise label
/// contains all inputs on which the value depends, and possibly others.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Losses {
    /// Merges and ranges that got a block, because the log has the maximum number of nodes or no
    /// memory; a repetition of a recent one does not count. Also merges and outputs that got the
    /// block of all inputs, because this log never assigned one of their labels.
    pub coarse_merges: u64,
    /// Bytes, and inputs of absorbed logs, that share the label of the last input, because they
    /// would exceed the maximum number of inputs or sources, or because there was no memory.
    pub shared_inputs: u64,
    /// Nodes that did not enter the memo when they were made, because there was no memory.
    /// Repeating such a merge can make another node.
    pub forgotten_nodes: u64,
    /// Bytes of outputs whose labels the log did not record.
    pub dropped_outputs: u64,
    /// Items whose name and content the log did not record.
    pub dropped_items: u64,
}

impl Losses {
    /// Reports whether nothing was lost.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}
