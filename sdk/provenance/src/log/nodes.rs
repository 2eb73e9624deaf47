//! Append-only storage of nodes in chunks, so that growth copies nothing.

use alloc::vec::Vec;

use crate::node::Node;

const CHUNK_BITS: u32 = 11;
/// Nodes of a chunk: 24 KiB.
const CHUNK: usize = 1 << CHUNK_BITS;

/// Nodes by index, each with a link for the memo.
#[derive(Debug, Default)]
pub(super) struct Nodes {
    chunks: Vec<Vec<Entry>>,
    len: u32,
}

/// Node as two halves, because a `u64` would be padded to 16 bytes.
#[derive(Clone, Copy, Debug)]
struct Entry {
    halves: [u32; 2],
    next: u32,
}

impl Nodes {
    pub(super) fn len(&self) -> u32 {
        self.len
    }

    /// Returns a node, and its link.
    #[inline]
    pub(super) fn entry(&self, index: u32) -> Option<(Node, u32)> {
        let chunk = self.chunks.get((index >> CHUNK_BITS) as usize)?;
        let entry = chunk.get(index as usize & (CHUNK - 1))?;
        Some((Node::from_halves(entry.halves), entry.next))
    }

    #[inline]
    pub(super) fn get(&self, index: u32) -> Option<Node> {
        self.entry(index).map(|(node, _)| node)
    }

    #[inline]
    pub(super) fn set_next(&mut self, index: u32, next: u32) {
        let chunk = self.chunks.get_mut((index >> CHUNK_BITS) as usize);
        if let Some(entry) = chunk.and_then(|of| of.get_mut(index as usize & (CHUNK - 1))) {
            entry.next = next;
        }
    }

    /// Appends a node and returns its index; `None` without memory.
    #[inline]
    pub(super) fn push(&mut self, node: Node) -> Option<u32> {
        let has_room = |chunk: &Vec<Entry>| chunk.len() < chunk.capacity();
        if !self.chunks.last().is_some_and(has_room) {
            self.grow()?;
        }
        self.chunks.last_mut()?.push(Entry {
            halves: node.halves(),
            next: 0,
        });
        let index = self.len;
        self.len += 1;
        Some(index)
    }

    #[cold]
    fn grow(&mut self) -> Option<()> {
        match self.chunks.last_mut() {
            // Only the first chunk starts small.
            Some(chunk) if chunk.len() < CHUNK => {
                let more = chunk.len().min(CHUNK - chunk.len());
                chunk.try_reserve_exact(more).ok()
            }
            last => {
                let capacity = if last.is_some() { CHUNK } else { 64 };
                let mut chunk = Vec::new();
                chunk.try_reserve_exact(capacity).ok()?;
                self.chunks.try_reserve(1).ok()?;
                self.chunks.push(chunk);
                Some(())
            }
        }
    }

    /// Returns the allocated bytes.
    pub(super) fn bytes(&self) -> usize {
        let chunks = self.chunks.iter().map(Vec::capacity).sum::<usize>() * size_of::<Entry>();
        chunks + self.chunks.capacity() * size_of::<Vec<Entry>>()
    }
}
