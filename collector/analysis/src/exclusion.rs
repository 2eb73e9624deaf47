//! Exclusion of segments from the analyses: testing and debugging code, selected by one pattern
//! (The Mystery Machine, §4.5).

use crate::label::{Labels, SegmentLabel};
use crate::segment::SegmentedTrace;

/// Removes segments from traces by a predicate on their labels, which runs once for each label.
///
/// The request's interval stays as it is: the removed segments become time without a log.
#[derive(Clone, Debug)]
pub struct Exclusion<F> {
    is_excluded: F,
    /// Decision for each label, by segment id.
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

    /// Removes the excluded segments from a trace. Every call must pass the labels that the trace
    /// was cut with.
    pub fn remove_from(&mut self, trace: &mut SegmentedTrace, labels: &Labels) {
        let known = self.decided.len();
        self.decided.extend(
            labels
                .iter()
                .skip(known)
                .map(|(_, label)| (self.is_excluded)(label)),
        );
        let before = trace.segments.len();
        trace.segments.retain(|segment| {
            !self
                .decided
                .get(segment.id.index())
                .is_some_and(|excluded| *excluded)
        });
        self.removed += (before - trace.segments.len()) as u64;
    }

    /// Returns the number of segments removed, over all traces.
    pub fn removed(&self) -> u64 {
        self.removed
    }
}
