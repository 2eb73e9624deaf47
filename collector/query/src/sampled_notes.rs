//! Sampling weights of the traces that a query used, and the figures of its report that are
//! weighted.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stroboscope_analysis::record::TraceRecords;
use stroboscope_analysis::sampling::WeightedCount;

/// Figures of a report that are weighted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum WeightUse {
    /// No figure is weighted: the report counts recorded requests.
    #[default]
    Nothing,
    /// Only the numbers of requests by root operation are weighted.
    Roots,
    /// Counts, shares and percentiles of the report are weighted.
    Everything,
}

/// Summary of the sampling weights of the used traces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SamplingNotes {
    /// Number of used traces, recorded and weighted.
    pub requests: WeightedCount,
    /// Number of traces with a span whose sampling threshold is malformed.
    pub malformed: u64,
    /// Number of traces whose spans have different sampling thresholds.
    pub differing: u64,
    /// Figures of the report that are weighted.
    pub weighing: WeightUse,
}

/// Summary of the sampling weights of the used traces.
#[derive(Serialize, JsonSchema)]
pub(super) struct SamplingEntry {
    /// Number of used traces.
    recorded: u64,
    /// Number of requests that the used traces represent by their weights.
    requests: f64,
    /// Size of an unweighted sample that would be equally precise (Kish's effective sample size).
    effective_sample: f64,
    /// Number of traces with a malformed sampling threshold in `tracestate`.
    malformed_thresholds: u64,
    /// Number of traces whose spans were sampled at different rates. Each has the weight of its
    /// root span.
    differing_thresholds: u64,
    /// True if counts, shares and percentiles of this report are weighted.
    weighted: bool,
    /// Explanation of the sampling in sentences.
    note: String,
}

impl SamplingNotes {
    /// Adds the sampling of a used trace.
    pub(super) fn observe(&mut self, trace: &TraceRecords) {
        self.requests.count(trace.weight());
        self.malformed += u64::from(trace.sampling.is_malformed());
        self.differing += u64::from(trace.sampling.is_differing());
    }

    pub(super) fn merge(&mut self, other: &Self) {
        self.requests += other.requests;
        self.malformed += other.malformed;
        self.differing += other.differing;
    }

    /// Reports whether there is nothing to report about weights.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        !self.requests.is_weighted() && self.malformed == 0 && self.differing == 0
    }

    /// Returns sentences about the sampling weights; empty if all weights are 1 and there are no
    /// flaws.
    #[must_use]
    pub fn sentences(&self) -> Vec<String> {
        let mut said = Vec::new();
        if self.requests.is_weighted() {
            let stand_for = format!(
                "{} recorded requests stand for {} (effective sample {:.1})",
                grouped(self.requests.recorded()),
                grouped(self.requests.rounded()),
                self.requests.effective(),
            );
            said.push(match self.weighing {
                WeightUse::Everything => stand_for,
                WeightUse::Roots => format!(
                    "this report counts recorded requests, except by root operation; by their sampling weights, {stand_for}"
                ),
                WeightUse::Nothing => format!(
                    "this report counts recorded requests; by their sampling weights, {stand_for}"
                ),
            });
        }
        if self.malformed > 0 {
            said.push(format!(
                "{} of the requests used have a malformed sampling threshold (`ot=th:` of `tracestate`), which is ignored",
                grouped(self.malformed)
            ));
        }
        if self.differing > 0 {
            said.push(format!(
                "{} of the requests used have spans that were sampled at different rates: each counts by the rate of its root, \
                 and parts of it may be missing",
                grouped(self.differing)
            ));
        }
        said
    }
}

impl From<&SamplingNotes> for SamplingEntry {
    fn from(of: &SamplingNotes) -> Self {
        Self {
            recorded: of.requests.recorded(),
            requests: of.requests.estimate(),
            effective_sample: of.requests.effective(),
            malformed_thresholds: of.malformed,
            differing_thresholds: of.differing,
            weighted: of.weighing == WeightUse::Everything,
            note: of.sentences().join("; "),
        }
    }
}

/// Formats a count with a comma between thousands.
fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notes(weighing: WeightUse, tracestates: &[&str]) -> SamplingNotes {
        let mut notes = SamplingNotes {
            weighing,
            ..SamplingNotes::default()
        };
        for tracestate in tracestates {
            let mut trace = TraceRecords::default();
            trace.sampling.observe(true, tracestate);
            notes.observe(&trace);
        }
        notes
    }

    #[test]
    fn weights_are_said() {
        let mut states = vec!["ot=th:fd70a3d70a3d7"; 10];
        states.extend(["ot=th:0"; 10]);
        let said = |weighing| notes(weighing, &states).sentences().join("; ");
        let all = "20 recorded requests stand for 1,010 (effective sample 10.2)";
        assert_eq!(said(WeightUse::Everything), all);
        assert!(said(WeightUse::Nothing).starts_with("this report counts recorded requests;"));
        assert!(said(WeightUse::Roots).ends_with(all));
        assert!(notes(WeightUse::Nothing, &["ot=th:0", "a=1", ""]).is_empty());
        let malformed = notes(WeightUse::Everything, &["ot=th:z", "ot=th:0"]);
        assert!(malformed.sentences()[0].starts_with("1 of the requests used have a malformed"));
    }
}
