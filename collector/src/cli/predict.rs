//! `predict`

use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};
use stroboscope_analysis::prediction::PredictionQuality;
use tokio::runtime::Runtime;

use super::arguments::{ReadingArguments, ServerArguments, parse_duration};
use super::critical_path::distribution_json;
use super::infer::prepare;
use super::output::{Table, print, print_json};
use super::what_if::to_ns;
use super::{Failure, Status, notes};
use crate::figures::{duration, percent};
use crate::query::{ATTRIBUTES_MAX, PredictReport, PredictSettings, predict};

/// Say which attribute of a request foretells whether its server has slack
///
/// For each attribute, a request is foretold to have slack if the last request with the same value had. Attributes are
/// ranked by how much they tell: the part of slack that was foretold, less the part of no slack that was called slack
/// (Youden's J: 0 for one that tells nothing, 1 for one that tells all). A type I error foretells slack that is not
/// there, a type II error misses slack that is. The slack is that of a request's last server segment: by how much its
/// answer could have come later.
#[derive(Debug, Args)]
pub struct PredictVerb {
    #[command(flatten)]
    reading: ReadingArguments,
    /// Try this attribute only; may be given several times. Otherwise the 16 that most requests have are tried
    #[arg(long, value_name = "ATTRIBUTE")]
    key: Vec<String>,
    /// Slack is more than this; otherwise more than the median
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    threshold: Option<Duration>,
    #[command(flatten)]
    server: ServerArguments,
}

impl PredictVerb {
    pub(super) fn run(self, runtime: &Runtime) -> Result<Status, Failure> {
        let (source, selection, inference) = prepare(&self.reading, runtime)?;
        let settings = PredictSettings {
            attributes: self.key.clone(),
            threshold_ns: self.threshold.map(to_ns),
            server: self.server.rule(),
        };
        let report = predict(&source, selection, &inference, &settings).map_err(Failure::of)?;
        if self.reading.json {
            print_json(&to_json(&report))?;
        } else {
            print(&self.to_text(&report))?;
        }
        Ok(notes::tell(&report.notes))
    }

    fn to_text(&self, report: &PredictReport) -> String {
        let mut table =
            Table::new(&["tells", "right", "type I", "type II", "correlation", "foretold", "attribute"]);
        for (attribute, quality, _) in &report.ranked {
            let part = |part: f64| if quality.predicted == 0 { "-".to_owned() } else { percent(part) };
            table.row(vec![
                format!("{:.2}", quality.informedness()),
                part(quality.accuracy()),
                part(quality.type_i()),
                part(quality.type_ii()),
                quality.correlation.map_or_else(|| "-".to_owned(), |correlation| format!("{correlation:.2}")),
                quality.predicted.to_string(),
                attribute.clone(),
            ]);
        }
        let median = if self.threshold.is_none() { ", the median" } else { "" };
        let refused: u64 = report.ranked.iter().map(|(_, _, refused)| refused).sum();
        let mut remarks = String::new();
        if report.not_tried > 0 {
            remarks += &format!(
                "\n{} more attributes were not tried: those that most requests have were, {ATTRIBUTES_MAX} at most. \
                 Name others with --key.",
                report.not_tried
            );
        }
        if refused > 0 {
            remarks += &format!("\n{refused} requests found no room in a history and were left out.");
        }
        if report.ranked.iter().all(|(_, quality, _)| quality.predicted == 0) {
            remarks += "\nNo value of an attribute came twice, so nothing could be foretold.";
        }
        let sides = |quality: &PredictionQuality| {
            let with_slack = quality.true_positives + quality.false_negatives;
            (with_slack > 0, with_slack < quality.predicted)
        };
        if report
            .ranked
            .iter()
            .all(|(_, quality, _)| quality.predicted == 0 || sides(quality) != (true, true))
        {
            remarks += "\nAll requests that could be foretold are on one side of the threshold, so there was nothing to \
                        tell. Choose another one with --threshold, or another part of the time with --server.";
        }
        format!(
            "Slack is more than {}{median} of {} requests\n{}{remarks}",
            duration(report.threshold_ns as f64),
            report.slack.count(),
            table.render()
        )
    }
}

fn to_json(report: &PredictReport) -> Value {
    let attribute = |(attribute, quality, refused): &(String, PredictionQuality, u64)| {
        json!({
            "attribute": attribute,
            "informedness": quality.informedness(),
            "accuracy": quality.accuracy(),
            "type_i": quality.type_i(),
            "type_ii": quality.type_ii(),
            "correlation": quality.correlation,
            "predicted": quality.predicted,
            "true_positives": quality.true_positives,
            "true_negatives": quality.true_negatives,
            "false_positives": quality.false_positives,
            "false_negatives": quality.false_negatives,
            "left_out": refused,
        })
    };
    let mut keys = notes::keys(&report.notes);
    keys.insert("used_traces".into(), report.slack.count().into());
    keys.insert("threshold_ns".into(), report.threshold_ns.into());
    keys.insert("slack".into(), distribution_json(&report.slack));
    keys.insert("attributes".into(), report.ranked.iter().map(attribute).collect::<Vec<_>>().into());
    keys.insert("not_tried".into(), report.not_tried.into());
    keys.into()
}
