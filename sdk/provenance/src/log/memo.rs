//! Memo of merges: the index of each node, found by its parents.
//!
//! The memo is a hash table of chains. A node has the index of the next one in its chain, so that a
//! new node needs no search for a free place, and the growth of the table reads the nodes in their
//! order in memory.
//!
//! Programs merge recent labels. So nodes whose newer parents are among 64 successive labels get
//! places among 64 successive heads, which the processor's cache holds: with places by a hash of
//! both parents, a chain of new merges takes twice as long. Only if such a chain is long already,
//! because labels have many merges, a node gets a place by the hash of both parents.

use alloc::vec::Vec;

use super::nodes::Nodes;
use crate::node::Node;

/// Binary logarithm of the successive labels and heads of a group.
const GROUP_BITS: u32 = 6;
const GROUP: usize = 1 << GROUP_BITS;
/// Nodes for each 4 heads at which the table doubles, so that a node takes 16 bytes at most. There
/// are more only without memory.
const NODES_PER_4_HEADS: usize = 9;
/// Mean length of chains from which on the memo of a log without memory holds no more nodes.
const LENGTH_END: usize = 16;
/// Length of a chain in the group of the newer parent from which on nodes get other places.
const NEAR_LENGTH_MAX: u32 = 8;

/// Heads of chains: the index of the first node plus one, or 0.
#[derive(Debug, Default)]
pub(super) struct Memo(Vec<u32>);

/// Result of a search.
pub(super) enum Search {
    /// Index of the node.
    Found(u32),
    /// Head of the chain to which the node belongs.
    Missing(usize),
}

impl Memo {
    /// Finds a node.
    #[inline]
    pub(super) fn find(&self, node: Node, hash: u64, nodes: &Nodes) -> Search {
        let near = self.near_place(node, hash);
        match self.walk(near, node, nodes) {
            Ok(index) => Search::Found(index),
            Err(length) if length < NEAR_LENGTH_MAX => Search::Missing(near),
            Err(_) => {
                let far = self.far_place(hash);
                let found = self.walk(far, node, nodes);
                found.map_or(Search::Missing(far), Search::Found)
            }
        }
    }

    /// Returns the index of a node in a chain, or else the length of the chain.
    #[inline]
    fn walk(&self, place: usize, node: Node, nodes: &Nodes) -> Result<u32, u32> {
        let mut link = self.0.get(place).copied().unwrap_or(0);
        let mut length = 0;
        while let Some(index) = link.checked_sub(1)
            && let Some((found, next)) = nodes.entry(index)
        {
            if found == node {
                return Ok(index);
            }
            (link, length) = (next, length + 1);
        }
        Err(length)
    }

    /// Adds the last node of the log, which was missing from the chain at `place`. Returns `None`
    /// without memory.
    #[inline]
    pub(super) fn insert(&mut self, place: usize, nodes: &mut Nodes) -> Option<()> {
        let index = nodes.len().checked_sub(1)?;
        let len = self.0.len();
        if index as usize >= len / 4 * NODES_PER_4_HEADS {
            if self.grow(nodes).is_some() {
                return Some(());
            }
            if index as usize >= len * LENGTH_END {
                return None;
            }
        }
        self.link(place, index, nodes)
    }

    #[inline]
    fn link(&mut self, place: usize, index: u32, nodes: &mut Nodes) -> Option<()> {
        let head = self.0.get_mut(place)?;
        nodes.set_next(index, *head);
        *head = index + 1;
        Some(())
    }

    #[inline]
    fn near_place(&self, node: Node, hash: u64) -> usize {
        let group = u64::from(node.newer() >> GROUP_BITS).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let within = hash as usize % GROUP;
        ((group >> 32) as usize * GROUP + within) & self.0.len().wrapping_sub(1)
    }

    #[inline]
    fn far_place(&self, hash: u64) -> usize {
        (hash >> 16) as usize & self.0.len().wrapping_sub(1)
    }

    /// Doubles the table, and links all nodes again.
    #[cold]
    fn grow(&mut self, nodes: &mut Nodes) -> Option<()> {
        let len = (self.0.len() * 2).max(GROUP);
        let mut heads = Vec::new();
        heads.try_reserve_exact(len).ok()?;
        heads.resize(len, 0);
        self.0 = heads;
        for index in 0..nodes.len() {
            let node = nodes.get(index)?;
            if let Search::Missing(place) = self.find(node, node.hash(), nodes) {
                self.link(place, index, nodes)?;
            }
        }
        Some(())
    }

    /// Returns the allocated bytes.
    pub(super) fn bytes(&self) -> usize {
        self.0.capacity() * size_of::<u32>()
    }
}
