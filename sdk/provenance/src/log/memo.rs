//! Memo of merges: the index of each node, found by its parents.
//!
//! The memo is one hash table with open addressing. Programs merge recent labels. So nodes whose
//! newer parents are among 16 successive labels get successive slots, which the processor's cache
//! holds. A slot has some bits of its node's hash, so that a search reads only nodes that are most
//! probably the wanted one. Chains of nodes read others: in a log of 15 million nodes, a new merge
//! took 1,000 ns.

use alloc::vec::Vec;

use super::nodes::Nodes;
use crate::node::Node;

/// Binary logarithm of the successive labels, and slots, of a group.
const GROUP_BITS: u32 = 4;
const GROUP: usize = 1 << GROUP_BITS;
/// Slots for a node near the others of its group. If none is empty, because labels have many
/// merges, the node gets a slot by the hash of both parents.
const NEAR: usize = 32;

/// Indices of nodes by their parents.
#[derive(Debug)]
pub(super) struct Memo {
    /// Bits of the hash, and index plus one in the lowest bits; 0 is empty.
    slots: Vec<u32>,
    used: usize,
    index_bits: u32,
}

/// Result of a search.
pub(super) enum Search {
    /// Index of the node.
    Found(u32),
    /// Slot where the node would be.
    Missing(usize),
}

impl Memo {
    /// Creates a memo for a maximum number of nodes.
    pub(super) fn new(nodes_max: u32) -> Self {
        Self {
            slots: Vec::new(),
            used: 0,
            index_bits: u32::BITS - nodes_max.min(u32::MAX >> 1).leading_zeros(),
        }
    }

    /// Finds a node.
    #[inline]
    pub(super) fn find(&self, node: Node, hash: u64, nodes: &Nodes) -> Search {
        let tag = self.slot(hash, 0);
        self.search(node, hash, |slot| {
            if (slot ^ tag) >> self.index_bits != 0 {
                return None;
            }
            let index = (slot ^ tag).checked_sub(1)?;
            (nodes.get(index) == Some(node)).then_some(index)
        })
    }

    /// Visits the slots that a node may have, up to the first empty one.
    #[inline]
    fn search(&self, node: Node, hash: u64, check: impl Fn(u32) -> Option<u32>) -> Search {
        let group = (node.newer() >> GROUP_BITS).wrapping_mul(0x9E37_79B9);
        let near = scale(group, self.slots.len() / GROUP) * GROUP + hash as usize % GROUP;
        let far = scale((hash >> 32) as u32, self.slots.len());
        for (mut place, count) in [(near, NEAR), (far, self.slots.len())] {
            for _ in 0..count {
                match self.slots.get(place) {
                    Some(0) | None => return Search::Missing(place),
                    Some(slot) => {
                        if let Some(index) = check(*slot) {
                            return Search::Found(index);
                        }
                    }
                }
                place += 1;
                if place == self.slots.len() {
                    place = 0;
                }
            }
        }
        Search::Missing(usize::MAX)
    }

    #[inline]
    fn slot(&self, hash: u64, index_plus_one: u32) -> u32 {
        ((hash >> 40) as u32) << self.index_bits | index_plus_one
    }

    /// Adds the last node of the log, which was missing from `place`. Returns `None` without
    /// memory.
    #[inline]
    pub(super) fn insert(&mut self, place: usize, hash: u64, nodes: &Nodes) -> Option<()> {
        let len = self.slots.len();
        if (self.used + 1) * 32 > len * 28 {
            if self.grow(nodes).is_some() {
                return Some(());
            }
            if (self.used + 1) * 16 > len * 15 {
                return None;
            }
        }
        self.put(place, self.slot(hash, nodes.len()))
    }

    #[inline]
    fn put(&mut self, place: usize, slot: u32) -> Option<()> {
        *self.slots.get_mut(place)? = slot;
        self.used += 1;
        Some(())
    }

    /// Enlarges the table by three quarters, and adds all nodes again, in their order in memory.
    /// Doubling would leave it emptier: a node would take up to 17.1 bytes. Smaller steps move
    /// nodes more often.
    #[cold]
    fn grow(&mut self, nodes: &Nodes) -> Option<()> {
        let groups = (self.slots.len() / GROUP * 7).div_ceil(4).max(1);
        let mut slots = Vec::new();
        slots.try_reserve_exact(groups * GROUP).ok()?;
        slots.resize(groups * GROUP, 0);
        (self.slots, self.used) = (slots, 0);
        for index in 0..nodes.len() {
            let node = nodes.get(index)?;
            let hash = node.hash();
            if let Search::Missing(place) = self.search(node, hash, |_| None) {
                self.put(place, self.slot(hash, index + 1))?;
            }
        }
        Some(())
    }

    /// Returns the allocated bytes.
    pub(super) fn bytes(&self) -> usize {
        self.slots.capacity() * size_of::<u32>()
    }
}

/// Scales a hash to the numbers below `end`.
#[inline]
fn scale(hash: u32, end: usize) -> usize {
    ((u64::from(hash) * end as u64) >> 32) as usize
}
