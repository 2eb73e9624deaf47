//! Settings of an inference.

use regex::Regex;
use stroboscope_analysis::convergence::LineLimit;

/// Settings of an inference.
#[derive(Clone, Debug, Default)]
pub struct InferSettings {
    /// Part of the co-occurrences that may contradict a relation that is still accepted.
    pub tolerance: f64,
    /// Pattern of the segments to leave out, matched against `task [start … end]`.
    pub exclude: Option<Regex>,
    /// True to treat the trailing token of an event-log event's name as its data element, see
    /// [`from_events`](stroboscope_analysis::segment::from_events).
    pub trailing_elements: bool,
    /// LineLimit at which the convergence series takes points; without it, there is no series.
    pub convergence: Option<LineLimit>,
}

impl InferSettings {
    /// Returns a text of the settings that a reading depends on. The tolerance is applied to its
    /// result.
    pub(super) fn asked(&self) -> String {
        let exclude = self.exclude.as_ref().map(Regex::as_str);
        format!("{exclude:?} {}", self.trailing_elements)
    }
}
