//! Excludes segments from the analyses, such as those of testing and debugging code (The Mystery
//! Machine, §4.5).

use crate::label::{Labels, SegmentLabel};
use crate::segment::SegmentedTrace;

/// Removes segments from traces by a predicate on their labels, which runs once for each label.
///
/// The request's interval does not change. Time of removed segments alone becomes unexplained.
#[derive(Clone, Debug)]
pub struct Exclusion<F> {
    is_excluded: F,
    /// Result of the predicate for each label, by segment id.
    decided: Vec<bool>,
    removed: u64,
}

impl<F: Fn(&SegmentLabel) -> bool> Exclusion<F> {
    /// Creates an exclusion of the segments whose labels satisfy the predicate.
    pub fn new(is_excluded: F) -> Exclusion<F> {
        Exclusion {
            is_excluded,
            decided: Vec::new(),
            removed: 0,
        }
    }

    /// Removes the excluded segments from a trace. `labels` must be the labels with which the trace
    /// was cut into segments, and must be the same in every call.
    pub fn remove_from(&mut self, trace: &mut SegmentedTrace, labels: &Labels) {
        let new = labels.iter().skip(self.decided.len());
        let decided = new.map(|(_, label)| (self.is_excluded)(label));
        self.decided.extend(decided);
        let before = trace.segments.len();
        trace.segments.retain(|segment| {
            let excluded = self.decided.get(segment.id.index());
            !excluded.is_some_and(|excluded| *excluded)
        });
        self.removed += (before - trace.segments.len()) as u64;
    }

    /// Returns the number of segments removed, over all traces.
    pub fn removed(&self) -> u64 {
        self.removed
    }
}
