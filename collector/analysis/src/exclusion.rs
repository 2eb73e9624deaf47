//! Segments that the analyses leave out: testing and debugging code, named by one pattern (The Mystery Machine, §4.5).

use crate::label::{Labels, SegmentLabel};
use crate::segment::SegmentedTrace;

/// Takes segments out of traces by a predicate on their labels, which is asked once for each label.
///
/// The request's interval stays as it is: what is left out becomes time that nobody logged.
#[derive(Clone, Debug)]
pub struct Exclusion<F> {
    is_excluded: F,
    /// Per segment id.
    decided: Vec<bool>,
    removed: u64,
}

impl<F: Fn(&SegmentLabel) -> bool> Exclusion<F> {
    /// Leaves out the segments for whose labels this holds.
    pub fn new(is_excluded: F) -> Exclusion<F> {
        Exclusion {
            is_excluded,
            decided: Vec::new(),
            removed: 0,
        }
    }

    /// Takes the excluded segments out of a trace. The labels must be those that the trace was cut with, every time.
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

    /// How many segments were taken out, over all traces.
    pub fn removed(&self) -> u64 {
        self.removed
    }
}
