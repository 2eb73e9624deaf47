//! A bounded sample of requests, to learn from.

use crate::pass::{Pass, TraceView};
use crate::record::TraceId;
use crate::segment::SegmentedTrace;
use std::collections::BTreeMap;

/// Most requests kept.
pub const SAMPLE_TRACES_MAX: usize = 1 << 10;
/// Most segments kept, over all requests: 12 MiB.
const SEGMENTS_MAX: usize = 1 << 18;
/// A request of more segments is left out.
const TRACE_SEGMENTS_MAX: usize = 1 << 12;

/// The requests whose ids have the lowest hashes: the same, whatever order they come in, and in whatever parts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WaitingSample {
    kept: BTreeMap<(u64, TraceId), SegmentedTrace>,
    segments: usize,
}

impl Pass<TraceView<'_>> for WaitingSample {
    fn observe(&mut self, seen: &TraceView<'_>) {
        self.observe(seen.trace);
    }

    fn merge(&mut self, other: WaitingSample) {
        self.merge(other);
    }
}

impl WaitingSample {
    /// Takes one request into account.
    pub fn observe(&mut self, trace: &SegmentedTrace) {
        let key = (hash(trace.id), trace.id);
        let is_kept = trace.segments.len() <= TRACE_SEGMENTS_MAX && !trace.segments.is_empty();
        if is_kept
            && (self.has_room()
                || self
                    .kept
                    .last_key_value()
                    .is_some_and(|(last, _)| key < *last))
        {
            self.take(key, trace.clone());
        }
    }

    /// Adds what another one has seen.
    pub fn merge(&mut self, other: WaitingSample) {
        other
            .kept
            .into_iter()
            .for_each(|(key, trace)| self.take(key, trace));
    }

    /// The requests, in order of their hashes.
    pub fn traces(&self) -> impl Iterator<Item = &SegmentedTrace> {
        self.kept.values()
    }

    fn has_room(&self) -> bool {
        self.kept.len() < SAMPLE_TRACES_MAX && self.segments < SEGMENTS_MAX
    }

    fn take(&mut self, key: (u64, TraceId), trace: SegmentedTrace) {
        self.segments += trace.segments.len();
        if let Some(same) = self.kept.insert(key, trace) {
            self.segments -= same.segments.len();
        }
        while self.kept.len() > SAMPLE_TRACES_MAX || self.segments > SEGMENTS_MAX {
            let Some((_, last)) = self.kept.pop_last() else {
                return;
            };
            self.segments -= last.segments.len();
        }
    }
}

/// Ids of one source may be in order; their hashes are not.
fn hash(id: TraceId) -> u64 {
    let mixed = (id.0 ^ (id.0 >> 64)) as u64;
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
