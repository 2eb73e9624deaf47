//! Attributes that distinguish failed requests from others.

use schemars::JsonSchema;
use serde::Serialize;
use stroboscope_analysis::explain::ExplainedLeaf;
use stroboscope_render::rows;

/// Requests of a root operation with common attributes, which fail more often or less often than
/// others. Shares and `requests` are estimates from a sample.
#[derive(Debug, Serialize, JsonSchema)]
pub struct FailureLeafRow {
    pub(super) root: String,
    /// Conditions that all requests of this row satisfy.
    conditions: Vec<String>,
    /// True if these requests fail more often than others, false if less often.
    pub(super) failed: bool,
    /// Share of this row's requests that failed or, if `failed` is false, that did not.
    precision: f64,
    /// Share of all failed requests that satisfy the conditions; if `failed` is false, of all
    /// others.
    recall: f64,
    /// Number of requests that satisfy the conditions.
    requests: u64,
    /// Number of held-out requests in the leaf, before its thresholds were refined.
    held_out: u64,
    /// Probability that chance alone separates the requests this clearly.
    p_value: f64,
    #[serde(skip)]
    pub(super) sentence: String,
}

rows! {
    FailureLeafRow as row, "failure_leaves": "Requests with something in common that mostly failed, or did not.";
    conditions: Text, "requests with" = &*row.conditions.join(" and ");
    failed: Text, "mostly" = if row.failed { "failed" } else { "did not" };
    precision: Share, "precision" = row.precision;
    recall: Share, "recall" = row.recall;
    requests: Count, "requests" = row.requests;
    held_out: Count, "held out" = row.held_out;
    p_value: Probability, "p" = row.p_value;
    root: Text, "root operation" = &*row.root;
}

impl FailureLeafRow {
    pub(super) fn of(root: &str, leaf: &ExplainedLeaf) -> Self {
        let what = if leaf.is_mutation {
            "fail"
        } else {
            "do not fail"
        };
        Self {
            root: root.to_owned(),
            conditions: leaf.conditions.iter().map(ToString::to_string).collect(),
            failed: leaf.is_mutation,
            precision: leaf.precision(),
            recall: leaf.recall(),
            requests: leaf.stored.iter().sum(),
            held_out: leaf.held_out.iter().sum::<usize>() as u64,
            p_value: leaf.p_value,
            sentence: leaf.sentence_of("requests", what),
        }
    }
}
