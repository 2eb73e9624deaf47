//! Labels: 32-bit names of sets of inputs.

use core::fmt;

/// Bit of labels that are nodes or blocks.
const NODE: u32 = 1 << 31;
/// Bits that all blocks share. The number of these bits alone is no label.
const BLOCK: u32 = 0xFC00_0000;
/// Binary logarithm of the number of inputs in the smallest block.
const BLOCK_LEVEL_MIN: u32 = 6;
/// Binary logarithm of the number of inputs in the largest block, which covers all.
const BLOCK_LEVEL_MAX: u32 = 31;

/// Maximum number of distinct inputs of a log.
pub const INPUTS_MAX: u32 = NODE - 1;
/// Maximum number of nodes of a log.
pub const NODES_MAX: u32 = BLOCK - NODE;

/// Name of a set of inputs, within one log.
///
/// A label is null (no inputs), one input, a node of the log, or a *block*: an aligned power of two
/// of inputs, such as inputs 64 to 127. A block needs no memory. A merge for which the log has no
/// room gets a block, which may name more inputs than were merged.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(transparent)]
pub struct Label(u32);

/// Kind of a label.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LabelKind {
    /// No inputs.
    Null,
    /// One input, by its number from 0.
    Input(u32),
    /// Node of the log, by its index.
    Node(u32),
    /// Inputs from `first` to `last`, both included.
    Block {
        /// Lowest input.
        first: u32,
        /// Highest input; the log may not have assigned it.
        last: u32,
    },
}

impl Label {
    /// Label of values that depend on no input.
    pub const NULL: Self = Self(0);
    /// Block of all inputs.
    pub const ALL: Self = Self(BLOCK | 1);

    /// Returns the label of an input, or the block of all inputs if the number is too large.
    pub(crate) const fn input(number: u32) -> Self {
        if number < INPUTS_MAX {
            Self(number + 1)
        } else {
            Self::ALL
        }
    }

    /// Returns the label of a node, or the block of all inputs if the index is too large.
    pub(crate) const fn node(index: u32) -> Self {
        if index < NODES_MAX {
            Self(NODE | index)
        } else {
            Self::ALL
        }
    }

    /// Returns the smallest block that contains two inputs.
    pub(crate) const fn block(first: u32, last: u32) -> Self {
        if first >= NODE || last >= NODE {
            return Self::ALL;
        }
        let bits = 32 - (first ^ last).leading_zeros();
        let level = if bits > BLOCK_LEVEL_MIN {
            bits
        } else {
            BLOCK_LEVEL_MIN
        };
        Self(BLOCK | (1 << (BLOCK_LEVEL_MAX - level)) | (first >> level))
    }

    /// Returns the label for which [`raw`](Self::raw) returns this number; `None` if there is none.
    pub const fn from_raw(raw: u32) -> Option<Self> {
        if raw == BLOCK { None } else { Some(Self(raw)) }
    }

    /// Returns the label as a number, for storage.
    pub const fn raw(self) -> u32 {
        self.0
    }

    /// Reports whether the label names no inputs.
    pub const fn is_null(self) -> bool {
        self.0 == 0
    }

    /// Reports whether the label is a node of the log.
    pub const fn is_node(self) -> bool {
        self.0 >= NODE && self.0 < BLOCK
    }

    /// Returns the kind of the label.
    pub const fn kind(self) -> LabelKind {
        if self.0 == 0 {
            LabelKind::Null
        } else if self.0 < NODE {
            LabelKind::Input(self.0 - 1)
        } else if self.0 < BLOCK {
            LabelKind::Node(self.0 & !NODE)
        } else {
            // Blocks are numbered as in a heap: 1 covers all, 2 and 3 its halves. 0 is no label.
            let number = (self.0 & !BLOCK) | (self.0 == BLOCK) as u32;
            let depth = number.ilog2();
            let level = BLOCK_LEVEL_MAX - depth;
            let first = (number - (1 << depth)) << level;
            LabelKind::Block {
                first,
                last: first + ((1 << level) - 1),
            }
        }
    }

    /// Returns the label of the input `offset` after this label's input. Returns the block of all
    /// inputs if there is no such input, or for a node or a block. This label must not be null.
    #[inline]
    pub(crate) const fn following(self, offset: usize) -> Self {
        if offset < (NODE - self.0 % NODE) as usize && self.0 < NODE {
            Self(self.0 + offset as u32)
        } else {
            Self::ALL
        }
    }

    /// Reports whether the label is the first of `count` successive inputs of a log that has
    /// assigned `inputs` inputs.
    pub(crate) fn has_successors(self, count: u64, inputs: u32) -> bool {
        match self.kind() {
            LabelKind::Input(first) => count <= u64::from(inputs.saturating_sub(first)),
            _ => false,
        }
    }

    /// Returns the first and last input of a label that is an input or a block; otherwise `None`.
    pub(crate) const fn span(self) -> Option<(u32, u32)> {
        match self.kind() {
            LabelKind::Input(input) => Some((input, input)),
            LabelKind::Block { first, last } => Some((first, last)),
            LabelKind::Null | LabelKind::Node(_) => None,
        }
    }
}

impl fmt::Debug for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind() {
            LabelKind::Null => f.write_str("{}"),
            LabelKind::Input(input) => write!(f, "IN_{input}"),
            LabelKind::Node(index) => write!(f, "M[{index}]"),
            LabelKind::Block { first, last } => write!(f, "IN_{first}..={last}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn kinds_are_distinguished() {
        assert_eq!(Label::NULL.kind(), LabelKind::Null);
        assert_eq!(Label::input(0).kind(), LabelKind::Input(0));
        let last = INPUTS_MAX - 1;
        assert_eq!(Label::input(last).kind(), LabelKind::Input(last));
        assert_eq!(Label::node(0).kind(), LabelKind::Node(0));
        let last = NODES_MAX - 1;
        assert_eq!(Label::node(last).kind(), LabelKind::Node(last));
        let all = LabelKind::Block {
            first: 0,
            last: INPUTS_MAX,
        };
        assert_eq!(Label::ALL.kind(), all);
        assert_eq!(Label::input(INPUTS_MAX), Label::ALL);
        assert_eq!(Label::node(NODES_MAX), Label::ALL);
        assert_eq!(Label::from_raw(BLOCK), None);
        assert_eq!(Label::from_raw(7).map(Label::raw), Some(7));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 16 } else { 256 }))]
        #[test]
        fn a_block_is_the_smallest_aligned_one(a in 0..INPUTS_MAX, bits in 0..31_u32, low: u32) {
            let b = ((a >> bits << bits) | (low & ((1 << bits) - 1))).min(INPUTS_MAX - 1);
            let LabelKind::Block { first, last } = Label::block(a, b).kind() else {
                panic!("no block");
            };
            let size = u64::from(last) - u64::from(first) + 1;
            prop_assert!(first <= a.min(b) && a.max(b) <= last);
            prop_assert!(size.is_power_of_two() && u64::from(first) % size == 0);
            // Neither half contains both inputs, unless the block has the minimum size.
            let middle = first + (size / 2) as u32;
            prop_assert!(size == 64 || (a < middle) != (b < middle));
            prop_assert_eq!(Label::block(first, last), Label::block(a, b));
        }
    }
}
