//! The `predict` subcommand.

use std::collections::BTreeMap;
use std::time::Duration;

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use stroboscope_analysis::prediction::PredictionQuality;

use crate::Failure;
use crate::arguments::{ReadingArguments, ServerArguments, ShowArguments, parse_duration, to_ns};
use crate::latency::Latency;
use crate::results::no_slack;
use crate::study::NamedStudy;
use crate::verb::{ReadingVerb, Report};
use stroboscope_query::{ATTRIBUTES_MAX, Notes, PredictSettings};
use stroboscope_render::humanise::{counted, duration};
use stroboscope_render::rows;
use stroboscope_render::show::{Cell, Doc, Row, TableSpec};

/// Show which attribute of a request predicts whether its server has slack
///
/// For each attribute, a request is predicted to have slack if the last request with the same value
/// had slack. Attributes are ranked by informedness (Youden's J): 0 for a useless attribute, 1 for
/// a perfect one. It is the share of requests with slack that were predicted to have it, minus the
/// share of requests without slack that were predicted to have it. A type I error predicts slack
/// that does not exist; a type II error misses existing slack. The slack is that of a request's
/// last server segment: by how much its response could have come later.
#[derive(Debug, Args)]
pub struct PredictVerb {
    #[command(flatten)]
    reading: ReadingArguments,
    #[command(flatten)]
    show: ShowArguments,
    /// Try this attribute only; repeatable. `service`, `host`, `operation` and `kind` are those of
    /// the request's root span, and `status` is `error` or `ok`. By default, tries the 16 recorded
    /// attributes that most requests have
    #[arg(long, value_name = "ATTRIBUTE")]
    key: Vec<String>,
    /// Threshold that slack must exceed to count; by default the median
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    threshold: Option<Duration>,
    #[command(flatten)]
    server: ServerArguments,
}

impl ReadingVerb for PredictVerb {
    type Report = Prediction;
    const TABLES: &'static [TableSpec] = &[PredictionRow::TABLE];

    fn arguments(&self) -> (ReadingArguments, &ShowArguments) {
        (self.reading.clone(), &self.show)
    }

    fn answer(&self, study: &NamedStudy) -> Result<Prediction, Failure> {
        let settings = PredictSettings {
            attributes: self.key.clone(),
            threshold_ns: self.threshold.map(to_ns),
            server: self.server.rule(),
        };
        let found = study.ask(&settings)?;
        let mut attributes: Vec<PredictionRow> =
            found.ranked.iter().map(PredictionRow::of).collect();
        // Attributes that predict nothing come last; the order stays otherwise.
        attributes.sort_by_key(|row| row.why_useless().is_some());
        Ok(Prediction {
            used_traces: found.slack.count(),
            threshold_ns: found.threshold_ns,
            is_median: self.threshold.is_none(),
            why_no_slack: no_slack(&found.slack),
            slack: Latency::of(&found.slack),
            attributes,
            not_tried: found.not_tried,
            notes: found.notes,
        })
    }
}

/// Quality of attributes as predictors of slack.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Prediction {
    #[serde(flatten)]
    notes: Notes,
    used_traces: u64,
    threshold_ns: u64,
    #[serde(skip)]
    is_median: bool,
    slack: Latency,
    why_no_slack: Option<String>,
    attributes: Vec<PredictionRow>,
    not_tried: usize,
}

#[derive(Debug, Serialize, JsonSchema)]
struct PredictionRow {
    attribute: String,
    /// Number of different values.
    values: u64,
    informedness: f64,
    accuracy: f64,
    type_i: f64,
    type_ii: f64,
    correlation: Option<f64>,
    predicted: u64,
    true_positives: u64,
    true_negatives: u64,
    false_positives: u64,
    false_negatives: u64,
    left_out: u64,
}

impl PredictionRow {
    fn of((attribute, quality, left_out): &(String, PredictionQuality, u64)) -> Self {
        Self {
            attribute: attribute.clone(),
            values: quality.keys,
            informedness: quality.informedness(),
            accuracy: quality.accuracy(),
            type_i: quality.type_i(),
            type_ii: quality.type_ii(),
            correlation: quality.correlation,
            predicted: quality.predicted,
            true_positives: quality.true_positives,
            true_negatives: quality.true_negatives,
            false_positives: quality.false_positives,
            false_negatives: quality.false_negatives,
            left_out: *left_out,
        }
    }

    /// Returns the reason why the attribute predicts nothing; `None` if it predicts slack.
    fn why_useless(&self) -> Option<&'static str> {
        match self {
            _ if self.predicted == 0 => Some("no value came twice"),
            _ if self.values == 1 => Some("all requests have the same value"),
            _ if self.is_one_sided() => Some("all requests are on one side of the threshold"),
            _ if self.informedness <= 0.0 => Some("right no more often than by chance"),
            _ => None,
        }
    }

    /// Reports whether all predicted requests had slack, or none had, so that nothing could be
    /// learned.
    fn is_one_sided(&self) -> bool {
        let with_slack = self.true_positives + self.false_negatives;
        with_slack == 0 || with_slack >= self.predicted
    }
}

rows! {
    PredictionRow as row, "predictions": "An attribute, and how well a value's last request predicts slack.";
    {
        let part = |part: f64| Cell::from((row.predicted > 0).then_some(part));
    }
    attribute: Text, "attribute" = &*row.attribute;
    informedness: Number, "tells" = row.informedness;
    accuracy: Share, "right" = part(row.accuracy);
    type_i: Share, "type I" = part(row.type_i);
    type_ii: Share, "type II" = part(row.type_ii);
    correlation: Number, "correlation" = row.correlation;
    predicted: Count, "forecast" = row.predicted;
}

impl Prediction {
    /// Lists the attributes that predict nothing, by reason.
    fn show_useless(&self, doc: &mut Doc) {
        let mut by_reason: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for row in &self.attributes {
            if let Some(reason) = row.why_useless() {
                by_reason.entry(reason).or_default().push(&row.attribute);
            }
        }
        for (reason, names) in by_reason {
            doc.sentence(format!(
                "Predict nothing, as {reason}: {}.",
                names.join(", ")
            ));
        }
    }
}

impl Report for Prediction {
    fn notes(&self) -> &Notes {
        &self.notes
    }

    fn show(&self, doc: &mut Doc) {
        doc.heading("Attributes that predict slack");
        let median = if self.is_median { ", the median" } else { "" };
        doc.sentence(format!(
            "Slack is more than {}{median} of {}",
            duration(self.threshold_ns as f64),
            counted(self.used_traces, "request")
        ));
        let is_untold = self.attributes.iter().all(|of| of.predicted == 0);
        let predicting = self.attributes.iter().map(PredictionRow::why_useless);
        let predicting = predicting.take_while(Option::is_none).count();
        doc.table("", &self.attributes, predicting);
        if self.not_tried > 0 {
            doc.sentence(format!(
                "{} more not tried: only the {ATTRIBUTES_MAX} that most requests have were. Name others with --key.",
                counted(self.not_tried as u64, "attribute")
            ));
        }
        let left_out: u64 = self.attributes.iter().map(|of| of.left_out).sum();
        if left_out > 0 {
            doc.sentence(format!(
                "Left out, as there was no room in a history: {}.",
                counted(left_out, "request")
            ));
        }
        doc.sentence(self.why_no_slack.clone().unwrap_or_default());
        if is_untold {
            doc.sentence("No value of an attribute came twice, so nothing could be predicted.");
        } else if self.why_no_slack.is_none()
            && self.attributes.iter().all(PredictionRow::is_one_sided)
        {
            doc.sentence(
                "All predictable requests are on one side of the threshold, so there was nothing to predict. Choose \
                 another one with --threshold, or another part of the time with --server.",
            );
        } else {
            self.show_useless(doc);
        }
    }
}
