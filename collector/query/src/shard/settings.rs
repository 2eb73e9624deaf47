//! Settings of a run over shards that influence its result.

use regex::Regex;
use serde::{Deserialize, Serialize};

use crate::infer_settings::InferSettings;
use crate::source::{Selection, Source};
use crate::time_range::TimeRange;

/// Settings that influence the result, with the names of the flags that set them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct ShardSettings {
    since_ns: Option<i64>,
    until_ns: Option<i64>,
    pub(super) root: Option<String>,
    pub(super) requests: Vec<String>,
    /// Text of the filter's formula; empty without a filter.
    pub(super) filter: String,
    include_incomplete: bool,
    trust_clocks: bool,
    tolerance: f64,
    exclude: Option<String>,
    trailing_elements: bool,
    max_segments: u64,
}

impl ShardSettings {
    pub(super) fn of(source: &Source, selection: Selection, settings: &InferSettings) -> Self {
        let exclude = settings.exclude.as_ref().map(Regex::as_str);
        Self {
            since_ns: selection.range.since_ns,
            until_ns: selection.range.until_ns,
            root: source.root().map(str::to_owned),
            requests: source.requests.clone(),
            filter: source.filter().to_owned(),
            include_incomplete: selection.include_incomplete,
            trust_clocks: selection.trust_clocks,
            tolerance: settings.tolerance,
            exclude: exclude.map(str::to_owned),
            trailing_elements: settings.trailing_elements,
            max_segments: settings.max_segments as u64,
        }
    }

    /// Returns the selection of the run.
    pub(super) fn whole_selection(&self) -> Selection {
        let range = TimeRange {
            since_ns: self.since_ns,
            until_ns: self.until_ns,
        };
        Selection {
            range,
            ..self.selection()
        }
    }

    /// Returns the selection without its time range, for results that are already read.
    pub(super) fn selection(&self) -> Selection {
        Selection {
            include_incomplete: self.include_incomplete,
            trust_clocks: self.trust_clocks,
            ..Selection::default()
        }
    }

    /// Returns the settings of the inference; `None` if they are invalid, such as the pattern of
    /// `--exclude`.
    pub(super) fn infer_settings(&self) -> Option<InferSettings> {
        let exclude = self.exclude.as_deref().map(Regex::new);
        Some(InferSettings {
            tolerance: self.tolerance,
            exclude: exclude.transpose().ok()?,
            trailing_elements: self.trailing_elements,
            convergence: None,
            max_segments: usize::try_from(self.max_segments).ok()?,
        })
    }

    /// Returns the first flag whose value differs, with the values here and in `other`.
    pub(super) fn difference(&self, other: &Self) -> Option<(&'static str, String, String)> {
        let (own, others) = (self.values(), other.values());
        let pairs = own.into_iter().zip(others);
        let mut differing = pairs.filter(|(own, other)| own != other);
        let ((flag, own), (_, other)) = differing.next()?;
        Some((flag, own, other))
    }

    fn values(&self) -> [(&'static str, String); 11] {
        let or_none = |text: Option<String>| text.unwrap_or_else(|| "none".to_owned());
        let said = |text: String| or_none(Some(text).filter(|text| !text.is_empty()));
        let instant = |at_ns: Option<i64>| {
            or_none(at_ns.map(|at_ns| format!("{at_ns} ns since the Unix epoch")))
        };
        [
            ("--since", instant(self.since_ns)),
            ("--until", instant(self.until_ns)),
            ("--root", or_none(self.root.clone())),
            ("--request", said(self.requests.join(", "))),
            ("--where", said(self.filter.clone())),
            ("--include-incomplete", self.include_incomplete.to_string()),
            ("--trust-clocks", self.trust_clocks.to_string()),
            ("--tolerance", self.tolerance.to_string()),
            ("--exclude", or_none(self.exclude.clone())),
            ("--trailing-elements", self.trailing_elements.to_string()),
            ("--max-segments", self.max_segments.to_string()),
        ]
    }
}
