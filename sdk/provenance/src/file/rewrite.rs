//! Rewriting of the items in a file.

use std::vec::Vec;

use super::reader::{item, segment, version};
use super::writer::{item_record, segment_header};
use super::{FileError, HEADER_BYTES, ITEMS, LogFile, SEGMENT_BYTES, checked_offset};
use crate::source::Item;

/// Changes the descriptions of items in a file, for example to redact them, and returns the new
/// file. All other records stay as they are.
///
/// # Errors
/// Returns an error unless the bytes are exactly one complete log of a known version.
pub fn rewrite_items(
    bytes: &[u8],
    mut change: impl FnMut(&mut Item),
) -> Result<Vec<u8>, FileError> {
    LogFile::parse(bytes)?;
    let version = version(bytes)?;
    let mut rewritten = Vec::with_capacity(bytes.len());
    rewritten.extend(&bytes[..HEADER_BYTES]);
    let mut at = HEADER_BYTES;
    while at < bytes.len() {
        let segment = segment(bytes, version, at)?;
        at += SEGMENT_BYTES + segment.records.len();
        let mut changed = Vec::new();
        let (records, count) = match segment.kind {
            ITEMS => {
                let mut rest = segment.records;
                while let Some((mut item, after)) = item(rest) {
                    change(&mut item);
                    changed.extend(item_record(&item));
                    rest = after;
                }
                (&changed[..], (changed.len() / 8) as u32)
            }
            _ => (segment.records, segment.count),
        };
        // Items of another length also move the segments after them.
        let offset = checked_offset(version, rewritten.len());
        let numbers = [segment.kind, count, segment.inputs];
        rewritten.extend(segment_header(offset, numbers, records));
        rewritten.extend(records);
    }
    Ok(rewritten)
}
