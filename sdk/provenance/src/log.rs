//! The log: inputs, and the merges of labels.

mod absorb;
mod memo;
mod nodes;
mod recent;
mod reduce;

use alloc::vec::Vec;
use core::cmp::Ordering;

pub use absorb::Translation;
use memo::{Memo, Search};
use nodes::Nodes;
use recent::Recent;
use reduce::ReducedMerge;

use crate::label::{INPUTS_MAX, Label, LabelKind, NODES_MAX};
use crate::limits::{Limits, Losses, Reduction};
use crate::node::Node;
use crate::read::ReadLog;
use crate::source::{Item, Labels, Output, Source};

/// Log of merges: names sets of inputs by labels, in time and memory independent of their sizes.
///
/// No operation panics. If a limit is reached, labels become less precise, or outputs and items are
/// dropped; [`losses`](Self::losses) counts both.
#[derive(Debug)]
pub struct MergeLog {
    limits: Limits,
    nodes: Nodes,
    memo: Memo,
    recent: Recent,
    inputs: u32,
    sources: Vec<Source>,
    outputs: Vec<Output>,
    items: Vec<Item>,
    /// Bytes of the items, with their names and contents.
    item_bytes: usize,
    losses: Losses,
}

impl MergeLog {
    /// Creates an empty log.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        let limits = Limits {
            inputs: limits.inputs.clamp(1, INPUTS_MAX),
            nodes: limits.nodes.min(NODES_MAX),
            ..limits
        };
        Self {
            limits,
            nodes: Nodes::default(),
            memo: Memo::new(limits.nodes),
            recent: Recent::default(),
            inputs: 0,
            sources: Vec::new(),
            outputs: Vec::new(),
            items: Vec::new(),
            item_bytes: 0,
            losses: Losses::default(),
        }
    }

    /// Assigns inputs to `count` bytes of the source `id` from `offset`, and returns their labels.
    /// If `offset + count` would exceed `u64::MAX`, `offset` is reduced.
    pub fn source(&mut self, id: u64, offset: u64, count: usize) -> Labels {
        // Reserves the last input, which all bytes share that get no inputs of their own.
        let left = (self.limits.inputs - 1).saturating_sub(self.inputs);
        let own = u32::try_from(count).ok().filter(|count| *count <= left);
        match own.and_then(|count| self.record_source(id, offset, count)) {
            Some(first) => Labels::Inputs(Label::input(first)),
            None => self.share_inputs(count as u64),
        }
    }

    /// Returns the label of the last input, which further bytes share.
    fn share_inputs(&mut self, count: u64) -> Labels {
        let shared = &mut self.losses.shared_inputs;
        *shared = shared.saturating_add(count);
        self.inputs = self.limits.inputs;
        Labels::Shared(Label::input(self.limits.inputs - 1))
    }

    fn record_source(&mut self, id: u64, offset: u64, count: u32) -> Option<u32> {
        let offset = offset.min(u64::MAX - u64::from(count));
        let first = self.inputs;
        match self.sources.last_mut() {
            Some(last) if last.is_followed_by(id, offset, first) => last.count += count,
            _ if count == 0 => {}
            _ => {
                if self.sources.len() >= self.limits.sources as usize {
                    return None;
                }
                self.sources.try_reserve(1).ok()?;
                self.sources.push(Source {
                    id,
                    offset,
                    first,
                    count,
                });
            }
        }
        self.inputs += count;
        Some(first)
    }

    /// Returns a label that contains the inputs of both labels.
    #[inline]
    pub fn merge(&mut self, a: Label, b: Label) -> Label {
        if a == b || b.is_null() {
            a
        } else if a.is_null() {
            b
        } else {
            self.merge_distinct(a, b)
        }
    }

    #[inline(never)]
    fn merge_distinct(&mut self, a: Label, b: Label) -> Label {
        let (older, newer) = if a < b { (a, b) } else { (b, a) };
        let union = Node::union(older, newer);
        let hash = union.hash();
        if let Some(label) = self.recent.get(union, hash) {
            return label;
        }
        if !self.has(older) || !self.has(newer) {
            return self.foreign();
        }
        let reduced = match self.limits.reduction {
            Reduction::Repeated => None,
            Reduction::Contained { steps } => self.reduce(older, newer, steps),
        };
        let label = match reduced {
            Some(ReducedMerge::Label(label)) => Some(label),
            Some(ReducedMerge::Node(range)) => self.intern(range, range.hash()),
            None => self.intern(union, hash),
        };
        let label = label.unwrap_or_else(|| self.coarse(older, newer));
        self.recent.set(union, hash, label, self.nodes.len());
        label
    }

    /// Returns a label that contains the assigned inputs from `first` to `last`, both included.
    pub fn range(&mut self, first: u32, last: u32) -> Label {
        let Some(end) = self.inputs.checked_sub(1) else {
            return Label::NULL;
        };
        let last = last.min(end);
        match first.cmp(&last) {
            Ordering::Greater => Label::NULL,
            Ordering::Equal => Label::input(first),
            Ordering::Less => {
                let range = Node::range(first, last);
                let hash = range.hash();
                if let Some(label) = self.recent.get(range, hash) {
                    return label;
                }
                let label = self
                    .intern(range, hash)
                    .unwrap_or_else(|| self.coarse(Label::input(first), Label::input(last)));
                self.recent.set(range, hash, label, self.nodes.len());
                label
            }
        }
    }

    /// Reports whether the log has a label: null, a block, or an assigned input or node.
    #[inline]
    fn has(&self, label: Label) -> bool {
        match label.kind() {
            LabelKind::Null | LabelKind::Block { .. } => true,
            LabelKind::Input(input) => input < self.inputs,
            LabelKind::Node(index) => index < self.nodes.len(),
        }
    }

    /// Returns the replacement for a label of another log, such as that of a value kept between
    /// requests. A label that this log does not have would make its file invalid.
    #[cold]
    fn foreign(&mut self) -> Label {
        self.losses.coarse_merges += 1;
        Label::ALL
    }

    /// Records the labels of bytes of the output `id` from `offset`, which is bounded as for
    /// [`source`](Self::source). Labels that the log does not have become [`Label::ALL`].
    pub fn output(&mut self, id: u64, offset: u64, count: u64, labels: Labels) {
        let offset = offset.min(u64::MAX - count);
        let labels = match labels {
            Labels::Shared(label) if self.has(label) => labels,
            Labels::Inputs(first) if first.has_successors(count, self.inputs) => labels,
            _ => Labels::Shared(self.foreign()),
        };
        let has_room = self.outputs.len() < self.limits.outputs as usize;
        if has_room && self.outputs.try_reserve(1).is_ok() {
            self.outputs.push(Output {
                id,
                offset,
                count,
                labels,
            });
        } else {
            let dropped = &mut self.losses.dropped_outputs;
            *dropped = dropped.saturating_add(count);
        }
    }

    /// Records the description of an item.
    pub fn describe(&mut self, item: Item) {
        let bytes = self.item_bytes + item.name.len() + item.content.len() + size_of::<Item>();
        if bytes <= self.limits.item_bytes as usize && self.items.try_reserve(1).is_ok() {
            self.item_bytes = bytes;
            self.items.push(item);
        } else {
            self.losses.dropped_items += 1;
        }
    }

    /// Returns the label of a node, which it appends if the memo does not hold it. `None` if the
    /// log is full or there is no memory.
    fn intern(&mut self, node: Node, hash: u64) -> Option<Label> {
        let place = match self.memo.find(node, hash, &self.nodes) {
            Search::Found(index) => return Some(Label::node(index)),
            Search::Missing(place) => place,
        };
        if self.nodes.len() >= self.limits.nodes {
            return None;
        }
        let index = self.nodes.push(node)?;
        let memo = self.memo.insert(place, hash, &self.nodes);
        if memo.is_none() {
            self.losses.forgotten_nodes += 1;
        }
        Some(Label::node(index))
    }

    #[cold]
    fn coarse(&mut self, older: Label, newer: Label) -> Label {
        self.losses.coarse_merges += 1;
        self.block(older, newer)
    }

    /// Returns the losses of precision so far.
    pub fn losses(&self) -> Losses {
        self.losses
    }

    /// Returns the limits of the log: at least one input, and no more than labels can represent.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// Frees the cache of recent merges. Further merges fill a new one.
    #[cfg(feature = "std")]
    pub(crate) fn forget_recent(&mut self) {
        self.recent = Recent::default();
    }

    /// Returns the allocated bytes, without the unused capacity of the list of items.
    pub fn bytes(&self) -> usize {
        let sources = self.sources.capacity() * size_of::<Source>();
        let outputs = self.outputs.capacity() * size_of::<Output>();
        let merges = self.nodes.bytes() + self.memo.bytes() + self.recent.bytes();
        merges + sources + outputs + self.item_bytes
    }
}

impl Default for MergeLog {
    fn default() -> Self {
        Self::new(Limits::default())
    }
}

impl ReadLog for MergeLog {
    fn inputs(&self) -> u32 {
        self.inputs
    }

    fn nodes(&self) -> u32 {
        self.nodes.len()
    }

    #[inline]
    fn node(&self, index: u32) -> Option<Node> {
        self.nodes.get(index)
    }

    fn sources(&self) -> &[Source] {
        &self.sources
    }

    fn outputs(&self) -> &[Output] {
        &self.outputs
    }

    fn items(&self) -> &[Item] {
        &self.items
    }
}

#[cfg(test)]
pub(crate) mod tests;
