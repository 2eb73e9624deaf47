//! Files of logs: append-only segments with checksums. Readers use the nodes in place.
//!
//! Numbers are little-endian. The length of each segment is a multiple of 8.
//!
//! ```text
//! file    = header, segments, end
//! header  = "STROBOPV", version u32, CRC-32 u32 of these 12 bytes
//! segment = kind u32, count u32, inputs u32, CRC-32 u32, records
//! ```
//!
//! The CRC-32 of a segment covers its offset in the file (u64), the three numbers before it, and
//! the records. So a repeated, missing or moved segment is an error. In files of version 1, which
//! are still read, it does not cover the offset.
//!
//! `inputs` is the number after the highest input that the log had assigned. Records by kind:
//!
//! | kind | record |
//! |---|---|
//! | 1 | node: u64 (see `Node::raw`) |
//! | 2 | source: id u64, offset u64, first input u32, count u32 |
//! | 3 | run of an output: id u64, offset u64, count u64, label u32, form u32 |
//! | 4 | end: totals of nodes, sources and outputs, and the five counts of `Losses`, u64 each |
//! | 5 | 8 bytes of an item, see below |
//!
//! An item consists of: id u64, span u64, length of the name u32, length of the content u32, name,
//! content, and zeros up to a multiple of 8 bytes.
//!
//! The form of a run is 1 if its label is the first of successive inputs, and 0 if all bytes have
//! it. Sources precede the nodes that name their inputs, and nodes precede their children.

mod error;
mod reader;
mod rewrite;
mod writer;

pub use error::FileError;
pub use reader::LogFile;
pub use rewrite::rewrite_items;
pub use writer::LogWriter;

const MAGIC: &[u8; 8] = b"STROBOPV";
const VERSION: u32 = 2;
/// Version of files whose checksums leave out the offsets of the segments.
const VERSION_WITHOUT_OFFSETS: u32 = 1;
const HEADER_BYTES: usize = 16;
const SEGMENT_BYTES: usize = 16;

const NODES: u32 = 1;
const SOURCES: u32 = 2;
const OUTPUTS: u32 = 3;
const END: u32 = 4;
const ITEMS: u32 = 5;

const NODE_BYTES: usize = 8;
const SOURCE_BYTES: usize = 24;
const OUTPUT_BYTES: usize = 32;
const END_BYTES: usize = 64;
const ITEM_HEADER_BYTES: usize = 24;

/// Returns the checksum of a segment, from its offset in the file, its header without the checksum,
/// and its records. The header of a file, and segments of version 1, have no offset here.
fn checksum(at: Option<u64>, header: &[u8], records: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(at.map(u64::to_le_bytes).as_ref().map_or(&[], |at| at));
    hasher.update(header);
    hasher.update(records);
    hasher.finalize()
}

/// Returns the offset that a segment's checksum covers; `None` in files of version 1.
fn checked_offset(version: u32, at: usize) -> Option<u64> {
    (version > VERSION_WITHOUT_OFFSETS).then_some(at as u64)
}

#[cfg(test)]
mod tests;
