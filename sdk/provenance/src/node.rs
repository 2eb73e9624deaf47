//! Nodes: the entries of a log.

use core::fmt;

use crate::label::{Label, LabelKind};

/// Entry of a log, in 8 bytes: the union of two older labels, or a range of inputs.
///
/// The high half of a union is the smaller label. The high half of a range is the label of the last
/// input, which is larger than that of the first.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub struct Node(u64);

/// Set that a node names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Parents {
    /// Union of the sets of two labels, neither of which is null.
    Union(Label, Label),
    /// Inputs from the first to the last number, both included.
    Range(u32, u32),
}

impl Node {
    /// Returns the union of two distinct labels, in any order.
    pub(crate) const fn union(a: Label, b: Label) -> Self {
        let (low, high) = if a.raw() < b.raw() { (a, b) } else { (b, a) };
        Self((low.raw() as u64) << 32 | high.raw() as u64)
    }

    /// Returns the range from one input to a later one.
    pub(crate) const fn range(first: u32, last: u32) -> Self {
        Self((Label::input(last).raw() as u64) << 32 | Label::input(first).raw() as u64)
    }

    /// Returns the node whose number is `raw`, as [`raw`](Self::raw) returns it. `None` if a log
    /// with this number of inputs cannot have the node at this index.
    pub fn from_raw(raw: u64, index: u32, inputs: u32) -> Option<Self> {
        let (high, low) = (
            Label::from_raw((raw >> 32) as u32)?,
            Label::from_raw(raw as u32)?,
        );
        let is_valid = |label: Label| match label.kind() {
            LabelKind::Null => false,
            LabelKind::Input(input) => input < inputs,
            LabelKind::Node(node) => node < index,
            LabelKind::Block { .. } => true,
        };
        let is_range = matches!(high.kind(), LabelKind::Input(_)) && low < high;
        let is_node = (high < low || is_range) && is_valid(high) && is_valid(low);
        is_node.then_some(Self(raw))
    }

    /// Returns the node as a number, for storage.
    pub const fn raw(self) -> u64 {
        self.0
    }

    /// Returns the labels whose union the node is, or its range.
    pub const fn parents(self) -> Parents {
        let (high, low) = ((self.0 >> 32) as u32, self.0 as u32);
        if high > low {
            // Labels of inputs are their numbers plus one.
            Parents::Range(low.wrapping_sub(1), high - 1)
        } else {
            match (Label::from_raw(high), Label::from_raw(low)) {
                (Some(a), Some(b)) => Parents::Union(a, b),
                _ => Parents::Union(Label::ALL, Label::ALL),
            }
        }
    }

    /// Returns the node's larger label: that of its last input, or of the larger parent, which is
    /// usually the newer one.
    #[inline]
    pub(crate) const fn newer(self) -> u32 {
        let (high, low) = ((self.0 >> 32) as u32, self.0 as u32);
        if high > low { high } else { low }
    }

    /// Returns a hash in which each bit depends on all bits of the node.
    pub(crate) const fn hash(self) -> u64 {
        let product = (self.0 ^ 0x9E37_79B9_7F4A_7C15) as u128 * 0xD6E8_FEB8_6659_FD93_u128;
        product as u64 ^ (product >> 64) as u64
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.parents() {
            Parents::Union(a, b) => write!(f, "{{{a:?}, {b:?}}}"),
            Parents::Range(first, last) => write!(f, "{{IN_{first}..={last}}}"),
        }
    }
}
