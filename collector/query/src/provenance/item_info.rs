//! Names and contents of items, as logs describe them.

use std::collections::{BTreeSet, HashMap};

use stroboscope_provenance::ReadLog as _;

use super::ProvenanceLog;

/// Description of an item by a log.
#[derive(Clone, Copy, Debug)]
pub struct ItemInfo<'a> {
    /// Index of the log.
    pub log: usize,
    /// Name that the service gave; may be empty.
    pub name: &'a str,
    /// Span in which the item was read or written; 0 if there is none.
    pub span: u64,
    /// First bytes of the item; empty if the service did not keep them.
    pub content: &'a [u8],
}

/// Returns the descriptions of the items that `wanted` accepts. If several logs describe an item,
/// returns the description of the first log that made it, or else of the first log.
#[must_use]
pub fn infos<'a>(
    logs: &'a [ProvenanceLog<'_>],
    wanted: impl Fn(u64) -> bool,
) -> HashMap<u64, ItemInfo<'a>> {
    let mut found: HashMap<u64, (bool, ItemInfo<'a>)> = HashMap::new();
    for (number, log) in logs.iter().enumerate() {
        let outputs: BTreeSet<u64> = log.file.outputs().iter().map(|output| output.id).collect();
        for item in log.file.items().iter().filter(|item| wanted(item.id)) {
            let is_output = outputs.contains(&item.id);
            let info = ItemInfo {
                log: number,
                name: &item.name,
                span: item.span,
                content: &item.content,
            };
            let known = found.entry(item.id).or_insert((is_output, info));
            if is_output && !known.0 {
                *known = (true, info);
            }
        }
    }
    let infos = found.into_iter();
    infos.map(|(id, (_, info))| (id, info)).collect()
}
