//! Settings of an inference.

use regex::Regex;
use stroboscope_analysis::convergence::LineLimit;
use stroboscope_analysis::label::DEFAULT_MAX_LABELS;

/// Settings of an inference.
#[derive(Clone, Debug)]
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
    /// Initial interval between the points of the convergence series; `None` for no series.
    pub convergence: Option<LineLimit>,
    /// Maximum number of segments that the model distinguishes.
    pub max_segments: usize,
}

impl Default for InferSettings {
    fn default() -> Self {
        Self {
            tolerance: 0.0,
            exclude: None,
            trailing_elements: false,
            convergence: None,
            max_segments: DEFAULT_MAX_LABELS,
        }
    }
}

impl InferSettings {
    /// Returns the settings that determine which evidence is read, as part of a cache key. The
    /// tolerance is not among them, because it applies to the evidence afterwards.
    pub(super) fn asked(&self) -> String {
        let exclude = self.exclude.as_ref().map(Regex::as_str);
        let max_segments = self.max_segments;
        format!("{exclude:?} {} {max_segments}", self.trailing_elements)
    }
}
