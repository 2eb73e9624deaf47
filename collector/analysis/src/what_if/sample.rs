//! Bounded sample of requests, from which waits are learned.

use super::range::mix;
use crate::pass::{Pass, TraceView};
use crate::record::TraceId;
use crate::segment::{SegmentedTrace, Segmenter, owners};
use rustc_hash::FxHasher;
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

/// Maximum number of requests in a [`WaitingSample`].
pub const SAMPLE_TRACES_MAX: usize = 1 << 14;
/// Maximum number of requests, evenly spread over a [`WaitingSample`], from which waits inside a
/// request are learned.
const SPREAD_TRACES: usize = 1 << 10;
/// Maximum number of segments in a [`WaitingSample`], over all its requests. They take about 9 MiB.
const SEGMENTS_MAX: usize = 1 << 18;
/// Maximum number of segments of a request; larger requests are left out.
const TRACE_SEGMENTS_MAX: usize = 1 << 12;

/// Binary logarithm of a time slice's length in ns; a slice lasts about 4.3 s. A [`WaitingSample`]
/// keeps requests slice by slice.
const SLICE_BITS: u32 = 32;

/// Sort key: a slice's hash, the request's start, and its id.
type Key = (u64, i64, TraceId);

/// A request, and a number for the process of each of its segments. `processes` is empty if the
/// processes are unknown.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct SampledTrace {
    pub(super) trace: SegmentedTrace,
    processes: Vec<u32>,
}

impl SampledTrace {
    /// Returns the number of a segment's process; 0 if it is unknown.
    pub(super) fn process(&self, index: usize) -> u32 {
        self.processes.get(index).copied().unwrap_or(0)
    }
}

/// Requests of the time slices with the lowest hashes. Until the limit on segments is reached, the
/// sample does not depend on the order of requests, nor on the parts that are merged, and each
/// slice is complete from its beginning up to a certain request, apart from requests that are empty
/// or too large. A slice therefore shows which requests wait for others.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WaitingSample {
    kept: BTreeMap<Key, SampledTrace>,
    segments: usize,
}

impl Pass<TraceView<'_>> for WaitingSample {
    fn observe(&mut self, seen: &TraceView<'_>) {
        self.take_if_kept(seen.trace, || processes(seen));
    }

    fn merge(&mut self, other: WaitingSample) {
        self.merge(other);
    }
}

impl WaitingSample {
    /// Adds one request without the processes of its segments.
    pub fn observe(&mut self, trace: &SegmentedTrace) {
        self.take_if_kept(trace, Vec::new);
    }

    fn take_if_kept(&mut self, trace: &SegmentedTrace, processes: impl FnOnce() -> Vec<u32>) {
        let key = (hash(trace.start_ns >> SLICE_BITS), trace.start_ns, trace.id);
        let is_kept = trace.segments.len() <= TRACE_SEGMENTS_MAX && !trace.segments.is_empty();
        if is_kept
            && (self.has_room()
                || self
                    .kept
                    .last_key_value()
                    .is_some_and(|(last, _)| key < *last))
        {
            let sampled = SampledTrace {
                trace: trace.clone(),
                processes: processes(),
            };
            self.take(key, sampled);
        }
    }

    /// Adds the requests of another sample.
    pub fn merge(&mut self, other: WaitingSample) {
        other
            .kept
            .into_iter()
            .for_each(|(key, trace)| self.take(key, trace));
    }

    /// Iterates over the requests, slice by slice.
    pub fn traces(&self) -> impl Iterator<Item = &SegmentedTrace> {
        self.sampled().map(|sampled| &sampled.trace)
    }

    /// Iterates over the requests with their processes, slice by slice.
    pub(super) fn sampled(&self) -> impl Iterator<Item = &SampledTrace> {
        self.kept.values()
    }

    /// Iterates over at most [`SPREAD_TRACES`] of the requests, evenly spread over all slices.
    pub(super) fn spread(&self) -> impl Iterator<Item = &SegmentedTrace> {
        let step = self.kept.len().div_ceil(SPREAD_TRACES).max(1);
        self.traces().step_by(step)
    }

    fn has_room(&self) -> bool {
        self.kept.len() < SAMPLE_TRACES_MAX && self.segments < SEGMENTS_MAX
    }

    fn take(&mut self, key: Key, trace: SampledTrace) {
        self.segments += trace.trace.segments.len();
        if let Some(same) = self.kept.insert(key, trace) {
            self.segments -= same.trace.segments.len();
        }
        while self.kept.len() > SAMPLE_TRACES_MAX || self.segments > SEGMENTS_MAX {
            let Some((_, last)) = self.kept.pop_last() else {
                return;
            };
            self.segments -= last.trace.segments.len();
        }
    }
}

fn hash(slice: i64) -> u64 {
    mix(slice as u64)
}

/// Returns a number for the process of each segment: a hash of its span's host and process, or 0 if
/// the span is unknown.
fn processes(seen: &TraceView<'_>) -> Vec<u32> {
    let outline = Segmenter::default().outline(seen.records);
    let owners = owners(seen.records, &outline, &seen.trace.segments, seen.labels);
    let process = |owner: Option<usize>| {
        let span = &seen.records.spans[outline[owner?].record];
        let mut hasher = FxHasher::default();
        (&span.host, span.process).hash(&mut hasher);
        Some(hasher.finish() as u32)
    };
    owners
        .into_iter()
        .map(|owner| process(owner).unwrap_or(0))
        .collect()
}
