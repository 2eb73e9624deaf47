//! Rewriting of the items in a file.

use std::vec::Vec;

use super::reader::{item, segment};
use super::writer::{item_record, segment_header};
use super::{FileError, HEADER_BYTES, ITEMS, LogFile, SEGMENT_BYTES};
use crate::source::Item;

/// Changes the descriptions of items in a file, for example to redact them, and returns the new
/// file. All other records stay as they are.
///
/// # Errors
/// Returns an error if the bytes are no log, or an incomplete or corrupt one.
pub fn rewrite_items(
    bytes: &[u8],
    mut change: impl FnMut(&mut Item),
) -> Result<Vec<u8>, FileError> {
    LogFile::parse(bytes)?;
    let mut rewritten = Vec::with_capacity(bytes.len());
    rewritten.extend(&bytes[..HEADER_BYTES]);
    let mut at = HEADER_BYTES;
    while at < bytes.len() {
        let segment = segment(bytes, at)?;
        let end = at + SEGMENT_BYTES + segment.records.len();
        if segment.kind == ITEMS {
            let (mut items, mut rest) = (Vec::new(), segment.records);
            while let Some((mut item, after)) = item(rest) {
                change(&mut item);
                items.extend(item_record(&item));
                rest = after;
            }
            rewritten.extend(segment_header(
                ITEMS,
                items.len() / 8,
                segment.inputs,
                &items,
            ));
            rewritten.extend(items);
        } else {
            rewritten.extend(&bytes[at..end]);
        }
        at = end;
    }
    Ok(rewritten)
}
