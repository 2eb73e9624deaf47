//! Settings of an inference.

use regex::Regex;
use stroboscope_analysis::convergence::LineLimit;

/// Settings of an inference.
#[derive(Clone, Debug, Default)]
pub struct InferSettings {
    /// Fraction of the co-occurrences, 0 to 1, that may contradict a relation that is still
    /// accepted.
    pub tolerance: f64,
    /// Pattern of the segments to leave out, matched against `task [start … end]`; `None` to leave
    /// out none.
    pub exclude: Option<Regex>,
    /// True to treat the trailing token of an event-log event's name as its data element, see
    /// [`from_events`](stroboscope_analysis::segment::from_events).
    pub trailing_elements: bool,
    /// Interval between the points of the convergence series; `None` for no series.
    pub convergence: Option<LineLimit>,
}

impl InferSettings {
    /// Returns the settings that determine which evidence is read, as part of a cache key. The
    /// tolerance is not among them, because it applies to the evidence afterwards.
    pub(super) fn asked(&self) -> String {
        let exclude = self.exclude.as_ref().map(Regex::as_str);
        format!("{exclude:?} {}", self.trailing_elements)
    }
}
