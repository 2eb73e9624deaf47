//! Append-only storage of nodes in chunks, so that growth copies only nodes of the first chunk.

use alloc::vec::Vec;

use crate::node::Node;

const CHUNK_BITS: u32 = 12;
/// Number of nodes in a chunk of 32 KiB.
const CHUNK: usize = 1 << CHUNK_BITS;

/// Nodes by index.
#[derive(Debug, Default)]
pub(super) struct Nodes {
    chunks: Vec<Vec<Node>>,
    len: u32,
}

impl Nodes {
    pub(super) fn len(&self) -> u32 {
        self.len
    }

    #[inline]
    pub(super) fn get(&self, index: u32) -> Option<Node> {
        let chunk = self.chunks.get((index >> CHUNK_BITS) as usize)?;
        chunk.get(index as usize & (CHUNK - 1)).copied()
    }

    /// Appends a node and returns its index; `None` without memory.
    #[inline]
    pub(super) fn push(&mut self, node: Node) -> Option<u32> {
        let has_room = |chunk: &Vec<Node>| chunk.len() < chunk.capacity();
        if !self.chunks.last().is_some_and(has_room) {
            self.grow()?;
        }
        self.chunks.last_mut()?.push(node);
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
        let chunks = self.chunks.iter().map(Vec::capacity).sum::<usize>() * size_of::<Node>();
        chunks + self.chunks.capacity() * size_of::<Vec<Node>>()
    }
}
