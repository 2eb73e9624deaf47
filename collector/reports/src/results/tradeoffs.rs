//! Reports of `tradeoffs`. Submodules have plans, logs of omissions, and the model of slack.

mod log;
mod plan;
mod slack;

use std::collections::BTreeMap;
use std::path::Path;

use schemars::JsonSchema;
use serde::Serialize;
use stroboscope_tradeoff::{PointPolicy, Policy};

use crate::Failure;
use crate::verb::Report;
pub use log::LogSays;
pub use plan::PlanSays;
use slack::SlackSays;
use stroboscope_query::{Notes, SlackModelReport};
use stroboscope_render::humanise::{counted, duration, percent};
use stroboscope_render::rows;
use stroboscope_render::show::{Axis, Chart, Doc, Figure, Kind, Line};

/// Reads a policy, and validates it.
pub fn read_policy(path: &Path) -> Result<Policy, Failure> {
    let said = |error: &dyn std::fmt::Display| Failure::new(format!("{}: {error}", path.display()));
    let json = std::fs::read(path).map_err(|error| said(&error))?;
    let policy: Policy = serde_json::from_slice(&json).map_err(|error| {
        said(&format!(
            "no policy as `tradeoffs learn` writes it: {error}"
        ))
    })?;
    policy.check().map_err(|error| said(&error))?;
    Ok(policy)
}

/// Report of a subcommand of `tradeoffs`.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum TradeoffsSay {
    /// Models, for `learn` and `show`.
    Policy(Box<PolicySays>),
    /// Planned decisions, for `plan`.
    Plan(Box<PlanSays>),
    /// Log of omissions, for `log`.
    Log(Box<LogSays>),
}

impl Report for TradeoffsSay {
    fn notes(&self) -> &Notes {
        match self {
            Self::Policy(says) => &says.notes,
            Self::Plan(says) => &says.notes,
            Self::Log(says) => &says.notes,
        }
    }

    fn show(&self, doc: &mut Doc) {
        match self {
            Self::Policy(says) => says.show(doc),
            Self::Plan(says) => says.show(doc),
            Self::Log(says) => says.show(doc),
        }
    }
}

/// Models of a policy.
#[derive(Debug, Serialize, JsonSchema)]
pub struct PolicySays {
    #[serde(flatten)]
    notes: Notes,
    version: u64,
    /// Time of learning, ns since the Unix epoch.
    learned_ns: u64,
    /// Validity in ns; 0 for unlimited.
    valid_for_ns: u64,
    /// Names of the tradeoff points in the policy.
    points: Vec<String>,
    /// Latency by load and tradeoff rate.
    curves: Vec<CurveRow>,
    /// Cost of the absence of an item, by its provenance.
    weights: Vec<WeightRow>,
    /// Cost of tradeoffs to answers outside of the training set.
    drops: Vec<DropRow>,
    /// Slack by a request's key, if the policy predicts it.
    slack: Option<SlackSays>,
    /// Points without a model, or without a model of quality, and the reason for each.
    not_learned: Vec<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct CurveRow {
    point: String,
    /// Share of items that was left out.
    tradeoff_rate: f64,
    requests_per_second: f64,
    /// Latency at the model's quantile, in ns.
    latency_ns: f64,
    /// Half of the width of the latency's 95 % interval, in ns; 0 if unknown.
    error_ns: f64,
    requests: u64,
}

#[derive(Debug, Serialize, JsonSchema)]
struct WeightRow {
    point: String,
    feature: String,
    /// Value of a discrete feature; null for a weight per unit.
    value: Option<String>,
    weight: f64,
    /// Lower bound of the 95 % interval; `high` is the upper bound.
    low: f64,
    high: f64,
}

#[derive(Debug, Serialize, JsonSchema)]
struct DropRow {
    point: String,
    tradeoff_rate: f64,
    /// Share of answers that were worse than without tradeoffs.
    share_with_drop: f64,
    mean_drop: f64,
    /// Share of worse answers and mean drop with a random choice.
    random_share_with_drop: f64,
    random_mean_drop: f64,
    requests: u64,
}

rows! {
    CurveRow as row, "tradeoff_curves": "Latency of a component by load and tradeoff rate.";
    point: Text, "point" = &*row.point;
    tradeoff_rate: Share, "left out" = row.tradeoff_rate;
    requests_per_second: Mean, "requests/s" = row.requests_per_second;
    latency_ns: DurationNs, "latency" = row.latency_ns;
    error_ns: DurationNs, "±" = row.error_ns;
    requests: Count, "requests" = row.requests;
}

rows! {
    WeightRow as row, "tradeoff_weights": "The cost of the absence of an item, by its provenance.";
    point: Text, "point" = &*row.point;
    feature: Text, "feature" = &*row.feature;
    value: Text, "value" = row.value.as_deref();
    weight: Number, "costs" = row.weight;
    low: Number, "from" = row.low;
    high: Number, "to" = row.high;
}

rows! {
    DropRow as row, "tradeoff_drops": "The loss of quality at a tradeoff rate, judged by held-out requests.";
    point: Text, "point" = &*row.point;
    tradeoff_rate: Share, "left out" = row.tradeoff_rate;
    share_with_drop: Share, "worse answers" = row.share_with_drop;
    mean_drop: Mean, "mean drop" = row.mean_drop;
    random_share_with_drop: Share, "worse at random" = row.random_share_with_drop;
    random_mean_drop: Mean, "mean at random" = row.random_mean_drop;
    requests: Count, "answers" = row.requests;
}

impl PolicySays {
    /// Returns the report of a policy; `not_learned` states which models are missing, and why.
    pub fn of(policy: &Policy, not_learned: Vec<String>, notes: Notes) -> Self {
        let points = || policy.points.iter();
        Self {
            notes,
            version: policy.version,
            learned_ns: policy.learned_ns,
            valid_for_ns: policy.valid_for_ns,
            points: points().map(|point| point.point.clone()).collect(),
            curves: points().flat_map(curves_of).collect(),
            weights: points().flat_map(weights_of).collect(),
            drops: points().flat_map(drops_of).collect(),
            slack: policy.slack.as_ref().map(SlackSays::of),
            not_learned,
        }
    }

    /// Adds the quality of the slack predictions, and the keys and services without a prediction.
    pub fn judge_slack(&mut self, learned: &SlackModelReport) {
        if let Some(slack) = &mut self.slack {
            slack.judge(learned);
        }
    }

    fn show(&self, doc: &mut Doc) {
        doc.heading("Models of tradeoffs");
        let validity = match self.valid_for_ns {
            0 => "hold for good".to_owned(),
            ns => format!("hold for {}", duration(ns as f64)),
        };
        doc.sentence(format!(
            "Policy {} has models of {}; they {validity}.",
            self.version,
            counted(self.points.len() as u64, "point")
        ));
        doc.sentences(&self.not_learned);
        for point in &self.points {
            doc.figures(self.latency_chart(point));
            doc.figures(self.drop_chart(point));
        }
        doc.table("Latency by load", &self.curves, usize::MAX);
        doc.table("Worth of items", &self.weights, usize::MAX);
        doc.table("Cost in quality of answers", &self.drops, usize::MAX);
        if let Some(slack) = &self.slack {
            slack.show(doc);
        }
    }

    fn latency_chart(&self, point: &str) -> Option<Figure> {
        let mut by_rate: BTreeMap<u64, Vec<(f64, f64)>> = BTreeMap::new();
        for row in self.curves.iter().filter(|row| row.point == point) {
            let rate = (1_000.0 * row.tradeoff_rate).round() as u64;
            by_rate
                .entry(rate)
                .or_default()
                .push((row.requests_per_second, row.latency_ns));
        }
        let lines = by_rate
            .into_iter()
            .enumerate()
            .map(|(style, (rate, points))| Line {
                name: format!("{} left out", percent(rate as f64 / 1_000.0)),
                style,
                points,
            });
        let lines: Vec<Line> = lines.collect();
        (!lines.is_empty()).then(|| {
            let chart = Chart::Lines {
                x: Axis::new("requests per second", Kind::Mean),
                y: Axis::new("latency", Kind::DurationNs),
                lines,
            };
            Figure::new(
                format!("{point}: latency by load, for each share that is left out"),
                "the table of latency by load",
                chart,
            )
            .on_pages_only()
        })
    }

    fn drop_chart(&self, point: &str) -> Option<Figure> {
        let rows: Vec<&DropRow> = self.drops.iter().filter(|row| row.point == point).collect();
        let line = |name: &str, style: usize, of: fn(&DropRow) -> f64| Line {
            name: name.to_owned(),
            style,
            points: std::iter::once((0.0, 0.0))
                .chain(rows.iter().map(|row| (row.tradeoff_rate, of(row))))
                .collect(),
        };
        (!rows.is_empty()).then(|| {
            let chart = Chart::Lines {
                x: Axis::new("left out", Kind::Share),
                y: Axis::new("answers that are worse", Kind::Share),
                lines: vec![
                    line("by provenance", 0, |row| row.share_with_drop),
                    line("at random", 1, |row| row.random_share_with_drop),
                ],
            };
            Figure::new(
                format!("{point}: answers that are worse, by what is left out"),
                "the table of the cost in quality of answers",
                chart,
            )
            .on_pages_only()
        })
    }
}

fn curves_of(point: &PointPolicy) -> impl Iterator<Item = CurveRow> {
    point.performance.curves.iter().flat_map(|curve| {
        curve.points.iter().map(|measured| CurveRow {
            point: point.point.clone(),
            tradeoff_rate: curve.tradeoff_rate,
            requests_per_second: measured.requests_per_second,
            latency_ns: measured.latency_ns,
            error_ns: measured.error_ns,
            requests: measured.requests,
        })
    })
}

fn weights_of(point: &PointPolicy) -> impl Iterator<Item = WeightRow> {
    point.quality.weights.iter().map(|weight| WeightRow {
        point: point.point.clone(),
        feature: point
            .quality
            .schema
            .get(weight.feature)
            .cloned()
            .unwrap_or_default(),
        value: weight.value.clone(),
        weight: weight.weight,
        low: weight.low,
        high: weight.high,
    })
}

fn drops_of(point: &PointPolicy) -> impl Iterator<Item = DropRow> {
    point.quality.drops.iter().map(|drop| DropRow {
        point: point.point.clone(),
        tradeoff_rate: drop.tradeoff_rate,
        share_with_drop: drop.share_with_drop,
        mean_drop: drop.mean_drop,
        random_share_with_drop: drop.random_share_with_drop,
        random_mean_drop: drop.random_mean_drop,
        requests: drop.requests,
    })
}
