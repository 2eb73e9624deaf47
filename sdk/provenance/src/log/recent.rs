//! Cache of recent merges, including those without a node of their own.

use alloc::vec::Vec;

use crate::label::Label;
use crate::node::Node;

/// Entries of a new cache: 4 KiB.
const LEN_MIN: usize = 1 << 8;
/// Entries of the cache of a large log: 64 KiB.
const LEN_MAX: usize = 1 << 12;

/// Direct-mapped cache, which grows with the log.
#[derive(Debug, Default)]
pub(super) struct Recent(Vec<(u64, Label)>);

impl Recent {
    /// Returns the result of a merge; `None` if it is not cached.
    #[inline]
    pub(super) fn get(&self, node: Node, hash: u64) -> Option<Label> {
        let (key, label) = *self.0.get(self.place(hash))?;
        (key == node.raw()).then_some(label)
    }

    /// Adds the result of a merge in a log with this number of nodes.
    #[inline]
    pub(super) fn set(&mut self, node: Node, hash: u64, label: Label, nodes: u32) {
        if nodes as usize >= self.0.len() && self.0.len() < LEN_MAX {
            self.grow();
        }
        let place = self.place(hash);
        if let Some(entry) = self.0.get_mut(place) {
            *entry = (node.raw(), label);
        }
    }

    /// Returns the allocated bytes.
    pub(super) fn bytes(&self) -> usize {
        self.0.capacity() * size_of::<(u64, Label)>()
    }

    #[inline]
    fn place(&self, hash: u64) -> usize {
        (hash >> 32) as usize & self.0.len().wrapping_sub(1)
    }

    /// Replaces the cache by a larger, empty one. Without memory, it stays as it is.
    #[cold]
    fn grow(&mut self) {
        let len = (self.0.len() * 4).clamp(LEN_MIN, LEN_MAX);
        let mut entries = Vec::new();
        if entries.try_reserve_exact(len).is_ok() {
            entries.resize(len, (0, Label::NULL));
            self.0 = entries;
        }
    }
}
