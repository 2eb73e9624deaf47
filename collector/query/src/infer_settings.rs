//! Settings of an inference.

use regex::Regex;
use stroboscope_analysis::convergence::Pace;

/// Settings of an inference.
#[derive(Clone, Debug, Default)]
pub struct InferSettings {
    /// The part of co-occurrences that may contradict a relation that is still believed.
    pub tolerance: f64,
    /// Segments to leave out: those of which `task [start … end]` has a match.
    pub exclude: Option<Regex>,
    /// Take the trailing token of an event-log event's name for its data element, see
    /// [`from_events`](stroboscope_analysis::segment::from_events).
    pub trailing_elements: bool,
    /// The pace at which the convergence series takes points; without one, there is no series.
    pub convergence: Option<Pace>,
}

impl InferSettings {
    /// Text of the settings that a reading depends on; the tolerance is applied to its result.
    pub(super) fn asked(&self) -> String {
        let exclude = self.exclude.as_ref().map(Regex::as_str);
        format!("{exclude:?} {}", self.trailing_elements)
    }
}
