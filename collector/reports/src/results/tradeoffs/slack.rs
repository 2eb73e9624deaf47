//! Slack by a request's key, and the quality of its prediction.

use schemars::JsonSchema;
use serde::Serialize;
use stroboscope_analysis::slack_by_key::ComponentSlack;
use stroboscope_tradeoff::SlackModel;

use stroboscope_query::SlackModelReport;
use stroboscope_render::humanise::counted;
use stroboscope_render::rows;
use stroboscope_render::show::{Cell, Doc};

/// Summary of a slack model.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct SlackSays {
    /// Attribute whose values are the keys.
    key: String,
    components: Vec<String>,
    /// Calls between components, as pairs of caller and callee.
    edges: Vec<(String, String)>,
    /// Number of keys in the model.
    keys: u64,
    /// Number of evictions of keys at the limit; the most recent keys are kept.
    keys_left_out: u64,
    services_left_out: Vec<String>,
    /// Quality of predictions; empty if only the model is available.
    foretold: Vec<SlackRow>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct SlackRow {
    component: String,
    /// Number of requests with segments of the component before the answer.
    requests: u64,
    slack_p50_ns: u64,
    slack_p95_ns: u64,
    /// Threshold in ns that slack must exceed to count.
    threshold_ns: u64,
    /// Number of requests whose key had an earlier request.
    predicted: u64,
    accuracy: f64,
    /// Share of all predictions that predicted slack that did not exist.
    type_i: f64,
    /// Share of all predictions that missed existing slack.
    type_ii: f64,
    /// Informedness: 0 for a useless prediction, 1 for a perfect one.
    informedness: f64,
}

rows! {
    SlackRow as row, "slack_by_key": "A component's slack, and how well the last request of the same key predicts it.";
    {
        let told = |value: f64| Cell::from((row.predicted > 0).then_some(value));
    }
    component: Text, "component" = &*row.component;
    slack_p50_ns: DurationNs, "slack p50" = row.slack_p50_ns;
    slack_p95_ns: DurationNs, "p95" = row.slack_p95_ns;
    threshold_ns: DurationNs, "more than" = row.threshold_ns;
    accuracy: Share, "right" = told(row.accuracy);
    type_i: Share, "type I" = told(row.type_i);
    type_ii: Share, "type II" = told(row.type_ii);
    informedness: Number, "tells" = told(row.informedness);
    predicted: Count, "forecast" = row.predicted;
    requests: Count, "requests" = row.requests;
}

impl SlackRow {
    fn of(found: &ComponentSlack) -> Self {
        let percentiles = found.slack.percentiles();
        Self {
            component: found.component.clone(),
            requests: found.slack.count(),
            slack_p50_ns: percentiles.p50_ns,
            slack_p95_ns: percentiles.p95_ns,
            threshold_ns: found.threshold_ns,
            predicted: found.quality.predicted,
            accuracy: found.quality.accuracy(),
            type_i: found.quality.type_i(),
            type_ii: found.quality.type_ii(),
            informedness: found.quality.informedness(),
        }
    }
}

impl SlackSays {
    pub(super) fn of(model: &SlackModel) -> Self {
        let edges = model.edges();
        Self {
            key: model.key.clone(),
            components: model.components.clone(),
            edges: edges
                .map(|(before, after)| (before.to_owned(), after.to_owned()))
                .collect(),
            keys: model.keys.len() as u64,
            keys_left_out: 0,
            services_left_out: Vec::new(),
            foretold: Vec::new(),
        }
    }

    pub(super) fn judge(&mut self, learned: &SlackModelReport) {
        self.keys_left_out = learned.forgotten;
        self.services_left_out.clone_from(&learned.left_out);
        self.foretold = learned.components.iter().map(SlackRow::of).collect();
    }

    pub(super) fn show(&self, doc: &mut Doc) {
        doc.sentence(format!(
            "Slack of {} is predicted from the last request of the same {}, for {}.",
            self.components.join(", "),
            self.key,
            counted(self.keys, "value")
        ));
        if self.keys_left_out > 0 {
            doc.sentence(format!(
                "{} found no room: those seen longest ago.",
                counted(self.keys_left_out, "value")
            ));
        }
        if !self.services_left_out.is_empty() {
            doc.sentence(format!(
                "There is no room for {}; choose by --slack-of.",
                self.services_left_out.join(", ")
            ));
        }
        doc.table("Accuracy of predicted slack", &self.foretold, usize::MAX);
    }
}
