//! `anomalies`

use clap::Args;
use serde_json::{Value, json};
use stroboscope_analysis::anomaly::{Anomaly, GroupStatistics, SIGNIFICANT_Q_VALUE};
use stroboscope_analysis::label::Labels;
use stroboscope_analysis::statistics::Difference;
use tokio::runtime::Runtime;

use super::arguments::{ReadingArguments, parse_share};
use super::critical_path::name;
use super::infer::prepare;
use super::output::{Table, print, print_json};
use super::{Failure, Status, notes};
use crate::figures::{duration, percent};
use crate::query::{AnomalyReport, anomalies};

/// Say what is different about slow requests
///
/// Compares each segment's share of the critical path in the slowest requests with that in the others. The effect is
/// Cohen's d; q is the p-value of Welch's t-test, corrected for the number of segments by Benjamini and Hochberg's
/// rule. Segments with more of the critical path in slow requests come first, and of these the ones that surely differ
/// (q up to 0.05).
#[derive(Debug, Args)]
pub struct AnomaliesVerb {
    #[command(flatten)]
    reading: ReadingArguments,
    /// So many of the requests are slow
    #[arg(long, value_name = "SHARE", default_value = "5%", value_parser = parse_share)]
    slowest: f64,
    /// Show so many segments; 0 shows all
    #[arg(long, value_name = "COUNT", default_value_t = 25)]
    top: usize,
}

impl AnomaliesVerb {
    pub(super) fn run(self, runtime: &Runtime) -> Result<Status, Failure> {
        let (source, selection, inference) = prepare(&self.reading, runtime)?;
        let report = anomalies(&source, selection, &inference, self.slowest).map_err(Failure::of)?;
        let labels = inference.model.labels();
        let top = if self.top == 0 { usize::MAX } else { self.top };
        if self.reading.json {
            print_json(&to_json(&report, labels, top))?;
        } else {
            print(&to_text(&report, labels, top))?;
        }
        Ok(notes::tell(&report.notes))
    }
}

fn group_json(group: &GroupStatistics) -> Value {
    json!({
        "traces": group.traces,
        "critical_traces": group.critical_traces,
        "mean_share": group.critical_share.mean(),
        "mean_slack_share": group.slack_share.mean(),
    })
}

/// A difference; an effect size that is infinite, as neither group varies, is null.
fn difference_json(difference: &Difference, q_value: f64) -> Value {
    json!({
        "difference": difference.mean,
        "effect_size": difference.effect_size.is_finite().then_some(difference.effect_size),
        "p_value": difference.p_value,
        "q_value": q_value,
    })
}

fn to_json(report: &AnomalyReport, labels: &Labels, top: usize) -> Value {
    let segment = |(rank, anomaly): (usize, &Anomaly)| {
        let label = labels.get(anomaly.segment);
        json!({
            "rank": rank + 1,
            "segment": anomaly.segment.0,
            "task": label.map(|label| &*label.task),
            "start": label.map(|label| &*label.start),
            "end": label.map(|label| &*label.end),
            "outliers": group_json(&anomaly.outliers),
            "others": group_json(&anomaly.others),
            "critical_share": difference_json(&anomaly.critical, anomaly.critical_q_value),
            "slack_share": difference_json(&anomaly.slack, anomaly.slack_q_value),
            "significant": anomaly.critical_q_value <= SIGNIFICANT_Q_VALUE,
            "examples": report.examples(anomaly),
        })
    };
    let segments: Vec<Value> = report.ranked.iter().take(top).enumerate().map(segment).collect();
    let mut keys = notes::keys(&report.notes);
    keys.insert("threshold_ns".into(), report.threshold_ns.into());
    keys.insert("outliers".into(), report.outliers.into());
    keys.insert("others".into(), report.others.into());
    keys.insert("segments".into(), segments.into());
    keys.into()
}

fn to_text(report: &AnomalyReport, labels: &Labels, top: usize) -> String {
    let mut table = Table::new(&["in slow", "in others", "effect", "q", "segment"]);
    for anomaly in report.ranked.iter().take(top) {
        let examples = report.examples(anomaly);
        let examples =
            if examples.is_empty() { String::new() } else { format!(" (see {})", examples.join(", ")) };
        table.row(vec![
            percent(anomaly.outliers.critical_share.mean()),
            percent(anomaly.others.critical_share.mean()),
            format!("{:+.2}", anomaly.critical.effect_size),
            format!("{:.1e}", anomaly.critical_q_value),
            name(labels, anomaly.segment) + &examples,
        ]);
    }
    let advice = if report.outliers < 2 {
        "\nToo few slow requests to compare; record more, or take more of them with --slowest."
    } else {
        ""
    };
    format!(
        "{} requests took longer than {}, {} did not\n\nMean share of the critical path ({} of {} segments shown)\n{}{advice}",
        report.outliers,
        duration(report.threshold_ns as f64),
        report.others,
        report.ranked.len().min(top),
        report.ranked.len(),
        table.render()
    )
}
