//! Parts of an output by the items that made them.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ops::Range;

use super::{ByteFlow, ByteRanges, BytesByItem, ProvenanceAnswer};

/// Maximum number of intervals of an output. The last of so many has all further bytes.
const INTERVALS_MAX: usize = 1_024;

/// Successive bytes of an output, and the bytes that made them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OutputPart {
    pub bytes: Range<u64>,
    /// Bytes at which the query of these bytes ends, by item.
    pub ends: BytesByItem,
}

/// Flows of an answer by output.
struct Flows<'a> {
    answer: &'a ProvenanceAnswer,
    by_output: BTreeMap<u64, Vec<&'a ByteFlow>>,
}

impl ProvenanceAnswer {
    /// Divides the first `count` bytes of the queried output into parts, for an answer of a
    /// backward query. Bytes in no flow of the answer form parts without ends.
    ///
    /// Adjacent bytes are one part if they depend on adjacent or common bytes of the same items.
    #[must_use]
    pub fn parts(&self, output: u64, count: u64) -> Vec<OutputPart> {
        let flows = Flows::of(self);
        let mut bounds: Vec<u64> = flows.bounds(output, 0..count).into_iter().collect();
        if bounds.len() > INTERVALS_MAX {
            bounds.truncate(INTERVALS_MAX);
            bounds.push(count);
        }
        let mut parts: Vec<OutputPart> = Vec::new();
        for bytes in bounds.windows(2).map(|pair| pair[0]..pair[1]) {
            let ends = flows.ends(output, bytes.clone());
            let last = parts.last_mut();
            match last.and_then(|last| Some((joined(&last.ends, &ends)?, last))) {
                Some((joined, last)) => {
                    last.bytes.end = bytes.end;
                    last.ends = joined;
                }
                None => parts.push(OutputPart { bytes, ends }),
            }
        }
        parts
    }
}

/// Returns the union of the bytes on which two adjacent parts depend, if these are of the same
/// items, and if each item has at most as many ranges in the union as in one of the parts.
fn joined(a: &BytesByItem, b: &BytesByItem) -> Option<BytesByItem> {
    if !a.keys().eq(b.keys()) {
        return None;
    }
    let items = a.iter().zip(b.values()).map(|((id, a), b)| {
        let union: ByteRanges = a.iter().chain(b.iter()).collect();
        let most = a.iter().count().max(b.iter().count());
        (union.iter().count() <= most).then_some((*id, union))
    });
    items.collect()
}

/// Returns the bytes of a flow's source from which it made bytes of the output.
fn source_of(flow: &ByteFlow, bytes: &Range<u64>) -> Range<u64> {
    if !flow.is_copy {
        return flow.source_bytes.0..flow.source_bytes.1;
    }
    let of = |byte: u64| flow.source_bytes.0 + (byte - flow.output_bytes.0);
    of(bytes.start)..of(bytes.end)
}

impl<'a> Flows<'a> {
    fn of(answer: &'a ProvenanceAnswer) -> Self {
        let mut by_output: BTreeMap<u64, Vec<&ByteFlow>> = BTreeMap::new();
        for flow in &answer.flows {
            by_output.entry(flow.output).or_default().push(flow);
        }
        Self { answer, by_output }
    }

    /// Returns the flows that made some of these bytes of an output, each with the part of the
    /// bytes that it made.
    fn to(&self, output: u64, bytes: Range<u64>) -> impl Iterator<Item = (&ByteFlow, Range<u64>)> {
        let flows = self.by_output.get(&output).into_iter().flatten();
        flows.filter_map(move |flow| {
            let (start, end) = flow.output_bytes;
            let common = start.max(bytes.start)..end.min(bytes.end);
            (!common.is_empty()).then_some((*flow, common))
        })
    }

    /// Returns the part of an item's `bytes` at which the query of the answer ended.
    fn ends_within(&self, id: u64, bytes: Range<u64>) -> impl Iterator<Item = Range<u64>> {
        let item = self.answer.items.get(&id).into_iter();
        item.flat_map(move |item| item.ends.within(bytes.clone()))
    }

    /// Returns offsets that divide bytes of an output. The bytes between two offsets depend on the
    /// same flows, directly and through copies. Stops beyond twice [`INTERVALS_MAX`] offsets.
    fn bounds(&self, output: u64, bytes: Range<u64>) -> BTreeSet<u64> {
        let mut bounds = BTreeSet::from([bytes.start, bytes.end]);
        let mut seen = HashSet::new();
        // Bytes of items, and the offset in the output to which they were copied.
        let mut waiting = vec![(output, bytes.clone(), bytes.start)];
        while let Some((id, from, at)) = waiting.pop() {
            if bounds.len() > 2 * INTERVALS_MAX || !seen.insert((id, from.clone(), at)) {
                continue;
            }
            let to_output = |byte: u64| at + (byte - from.start);
            for end in self.ends_within(id, from.clone()) {
                bounds.extend([to_output(end.start), to_output(end.end)]);
            }
            for (flow, common) in self.to(id, from.clone()) {
                let start = to_output(common.start);
                bounds.extend([start, to_output(common.end)]);
                if flow.is_copy {
                    waiting.push((flow.source, source_of(flow, &common), start));
                }
            }
        }
        bounds
    }

    /// Returns the bytes at which the query of an output's `bytes` ends, by item.
    fn ends(&self, output: u64, bytes: Range<u64>) -> BytesByItem {
        let mut ends = BytesByItem::new();
        for (id, bytes) in self.reached(output, bytes) {
            for end in bytes.iter().flat_map(|bytes| self.ends_within(id, bytes)) {
                ends.entry(id).or_default().insert(end);
            }
        }
        ends
    }

    /// Returns the bytes on which an output's `bytes` depend, by item.
    fn reached(&self, output: u64, bytes: Range<u64>) -> BytesByItem {
        let mut reached = BytesByItem::new();
        let mut waiting = BytesByItem::from([(output, ByteRanges::from_iter([bytes]))]);
        while let Some((id, bytes)) = waiting.pop_first() {
            for flow in self.by_output.get(&id).into_iter().flatten() {
                let (start, end) = flow.output_bytes;
                for common in bytes.within(start..end) {
                    let source = source_of(flow, &common);
                    let known = reached.entry(flow.source).or_default();
                    let mut new = ByteRanges::from_iter([source.clone()]);
                    known.within(source.clone()).for_each(|old| new.remove(old));
                    known.insert(source);
                    for new in new.iter() {
                        waiting.entry(flow.source).or_default().insert(new);
                    }
                }
            }
        }
        reached
    }
}

impl ProvenanceAnswer {
    /// Returns, for each of these outputs, the bytes on which it depends, by item: the items that
    /// `is_source` accepts or, without it, the bytes at which the query ended. The answer must be
    /// of a query of all these outputs.
    pub(super) fn sources_of(
        &self,
        outputs: impl IntoIterator<Item = u64>,
        is_source: Option<&dyn Fn(u64) -> bool>,
    ) -> impl Iterator<Item = (u64, BytesByItem)> {
        let flows = Flows::of(self);
        outputs.into_iter().map(move |output| {
            let sources = match is_source {
                None => flows.ends(output, 0..u64::MAX),
                Some(is_source) => {
                    let mut sources = flows.reached(output, 0..u64::MAX);
                    sources.retain(|id, _| is_source(*id));
                    sources
                }
            };
            (output, sources)
        })
    }
}
