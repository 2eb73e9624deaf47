//! Tradeoffs, as `tradeoffs` says them.

use std::borrow::Cow;
use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;
use stroboscope_analysis::tradeoff::{Made, Observed};
use stroboscope_tradeoff::{Capacity, Goal, PointPolicy, Policy};

use super::super::verb::Report;
use stroboscope_present::humanise::{counted, duration, percent};
use stroboscope_present::show::{
    Axis, Cell, Chart, Column, Doc, Figure, Kind, LegendPlace, Line, Row, TableSpec,
};
use stroboscope_query::Notes;

/// What `tradeoffs` says.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(untagged)]
pub(in super::super) enum TradeoffsSay {
    /// Models: `learn`, `show`.
    Policy(Box<PolicySays>),
    /// What would be decided: `plan`.
    Plan(Box<PlanSays>),
    /// What was given up: `log`.
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

/// The models of a policy.
#[derive(Debug, Serialize, JsonSchema)]
pub(in super::super) struct PolicySays {
    #[serde(flatten)]
    notes: Notes,
    version: u64,
    /// Ns since the Unix epoch.
    learned_ns: u64,
    /// 0: for good.
    valid_for_ns: u64,
    /// By name.
    points: Vec<String>,
    /// Latency by load and tradeoff rate.
    curves: Vec<CurveRow>,
    /// What the absence of an item costs, by its provenance.
    weights: Vec<WeightRow>,
    /// What tradeoffs cost answers that were not learned from.
    drops: Vec<DropRow>,
    /// Points without a model, and why.
    not_learned: Vec<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct CurveRow {
    point: String,
    /// The share that was given up.
    tradeoff_rate: f64,
    requests_per_second: f64,
    /// At the model's quantile.
    latency_ns: f64,
    /// Half of the 95 % interval.
    error_ns: f64,
    requests: u64,
}

#[derive(Debug, Serialize, JsonSchema)]
struct WeightRow {
    point: String,
    feature: String,
    /// Of a discrete feature; null: per unit.
    value: Option<String>,
    weight: f64,
    /// The 95 % interval.
    low: f64,
    high: f64,
}

#[derive(Debug, Serialize, JsonSchema)]
struct DropRow {
    point: String,
    tradeoff_rate: f64,
    /// The share of answers that were any worse.
    share_with_drop: f64,
    mean_drop: f64,
    /// The same, had chance chosen.
    random_share_with_drop: f64,
    random_mean_drop: f64,
    requests: u64,
}

impl Row for CurveRow {
    const TABLE: TableSpec = TableSpec {
        name: "tradeoff_curves",
        about: "Latency of a component by load and tradeoff rate.",
        columns: Cow::Borrowed(&[
            Column::new("point", "point", Kind::Text),
            Column::new("tradeoff_rate", "left out", Kind::Share),
            Column::new("requests_per_second", "requests/s", Kind::Mean),
            Column::new("latency_ns", "latency", Kind::DurationNs),
            Column::new("error_ns", "±", Kind::DurationNs),
            Column::new("requests", "requests", Kind::Count),
        ]),
    };

    fn cells(&self) -> Vec<Cell> {
        vec![
            (&*self.point).into(),
            self.tradeoff_rate.into(),
            self.requests_per_second.into(),
            self.latency_ns.into(),
            self.error_ns.into(),
            self.requests.into(),
        ]
    }
}

impl Row for WeightRow {
    const TABLE: TableSpec = TableSpec {
        name: "tradeoff_weights",
        about: "What the absence of an item costs, by its provenance.",
        columns: Cow::Borrowed(&[
            Column::new("point", "point", Kind::Text),
            Column::new("feature", "feature", Kind::Text),
            Column::new("value", "value", Kind::Text),
            Column::new("weight", "costs", Kind::Number),
            Column::new("low", "from", Kind::Number),
            Column::new("high", "to", Kind::Number),
        ]),
    };

    fn cells(&self) -> Vec<Cell> {
        vec![
            (&*self.point).into(),
            (&*self.feature).into(),
            self.value.as_deref().into(),
            self.weight.into(),
            self.low.into(),
            self.high.into(),
        ]
    }
}

impl Row for DropRow {
    const TABLE: TableSpec = TableSpec {
        name: "tradeoff_drops",
        about: "What a tradeoff rate costs answers, as judged by those that were held out.",
        columns: Cow::Borrowed(&[
            Column::new("point", "point", Kind::Text),
            Column::new("tradeoff_rate", "left out", Kind::Share),
            Column::new("share_with_drop", "worse answers", Kind::Share),
            Column::new("mean_drop", "mean drop", Kind::Number),
            Column::new("random_share_with_drop", "worse at random", Kind::Share),
            Column::new("random_mean_drop", "mean at random", Kind::Number),
            Column::new("requests", "answers", Kind::Count),
        ]),
    };

    fn cells(&self) -> Vec<Cell> {
        vec![
            (&*self.point).into(),
            self.tradeoff_rate.into(),
            self.share_with_drop.into(),
            self.mean_drop.into(),
            self.random_share_with_drop.into(),
            self.random_mean_drop.into(),
            self.requests.into(),
        ]
    }
}

impl PolicySays {
    /// Of a policy, and of what could not be learned.
    pub(in super::super) fn of(policy: &Policy, not_learned: Vec<String>, notes: Notes) -> Self {
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
            not_learned,
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
        for problem in &self.not_learned {
            doc.sentence(problem.clone());
        }
        for point in &self.points {
            doc.figures(self.latency_chart(point));
            doc.figures(self.drop_chart(point));
        }
        doc.table("Latency by load", &self.curves, usize::MAX);
        doc.table("What is worth how much", &self.weights, usize::MAX);
        doc.table("What it costs answers", &self.drops, usize::MAX);
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
                legend: LegendPlace::Upper,
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
                legend: LegendPlace::Lower,
            };
            Figure::new(
                format!("{point}: answers that are worse, by what is left out"),
                "the table of what it costs answers",
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

/// What would be decided at stated loads.
#[derive(Debug, Serialize, JsonSchema)]
pub(in super::super) struct PlanSays {
    #[serde(flatten)]
    notes: Notes,
    version: u64,
    plan: Vec<PlanRow>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct PlanRow {
    point: String,
    goal: String,
    requests_per_second: f64,
    /// What would be left out.
    tradeoff_rate: f64,
    /// Null: more load than was ever measured.
    predicted_ns: Option<f64>,
    /// Whether the goal is predicted to be met.
    met: bool,
    expected_drop: f64,
    /// With a goal of utility: what a second is worth,
    utility_per_second: Option<f64>,
    /// and whether another number of instances pays: `add` or `remove`.
    instances: Option<String>,
}

impl Row for PlanRow {
    const TABLE: TableSpec = TableSpec {
        name: "tradeoff_plan",
        about: "What would be decided at a load.",
        columns: Cow::Borrowed(&[
            Column::new("point", "point", Kind::Text),
            Column::new("requests_per_second", "requests/s", Kind::Mean),
            Column::new("tradeoff_rate", "left out", Kind::Share),
            Column::new("predicted_ns", "latency", Kind::DurationNs),
            Column::new("met", "goal met", Kind::Flag),
            Column::new("expected_drop", "drop", Kind::Number),
            Column::new("utility_per_second", "utility/s", Kind::Number),
            Column::new("instances", "instances", Kind::Text),
            Column::new("goal", "goal", Kind::Text),
        ]),
    };

    fn cells(&self) -> Vec<Cell> {
        vec![
            (&*self.point).into(),
            self.requests_per_second.into(),
            self.tradeoff_rate.into(),
            self.predicted_ns.into(),
            self.met.into(),
            self.expected_drop.into(),
            self.utility_per_second.into(),
            self.instances.as_deref().into(),
            (&*self.goal).into(),
        ]
    }
}

impl PlanSays {
    /// At these loads; of a point, without any, at all that were measured.
    pub(in super::super) fn of(policy: &Policy, loads: &[f64]) -> Self {
        let plan = policy.points.iter().flat_map(|point| {
            let mut of_point = loads.to_vec();
            if of_point.is_empty() {
                let curves = point
                    .performance
                    .curves
                    .iter()
                    .flat_map(|curve| &curve.points);
                of_point.extend(curves.map(|measured| measured.requests_per_second));
                of_point.sort_by(f64::total_cmp);
                of_point.dedup_by(|a, b| *a < *b * 1.1);
            }
            of_point
                .into_iter()
                .map(|load| planned(point, load))
                .collect::<Vec<_>>()
        });
        Self {
            notes: Notes::default(),
            version: policy.version,
            plan: plan.collect(),
        }
    }

    fn show(&self, doc: &mut Doc) {
        doc.heading("What would be decided");
        doc.sentence(format!("By policy {}.", self.version));
        doc.table("Plan", &self.plan, usize::MAX);
    }
}

fn planned(point: &PointPolicy, requests_per_second: f64) -> PlanRow {
    let rate = point.rate(requests_per_second);
    let decided = match &point.goal {
        Goal::Utility(utility) => Some(utility.decide(point, requests_per_second)),
        _ => None,
    };
    let advised = decided.and_then(|decided| decided.advised());
    PlanRow {
        point: point.point.clone(),
        goal: goal_text(&point.goal),
        requests_per_second,
        tradeoff_rate: rate.rate,
        predicted_ns: Some(rate.predicted_ns).filter(|ns| ns.is_finite()),
        met: rate.is_met,
        expected_drop: point.quality.mean_drop(rate.rate),
        utility_per_second: decided.map(|decided| decided.per_second),
        instances: advised.map(|advised| match advised {
            Capacity::Add => "add".to_owned(),
            Capacity::Remove => "remove".to_owned(),
        }),
    }
}

fn goal_text(goal: &Goal) -> String {
    match goal {
        Goal::Full => "full fidelity".to_owned(),
        Goal::Latency { limit_ns } => format!("latency within {}", duration(*limit_ns)),
        Goal::Slack {
            component,
            default_rate,
        } => format!(
            "{} left out, less within the slack of {component}",
            percent(*default_rate)
        ),
        Goal::Utility(utility) => format!(
            "utility, {} instances of at most {}",
            utility.instances, utility.instances_max
        ),
    }
}

/// What was given up.
#[derive(Debug, Serialize, JsonSchema)]
pub(in super::super) struct LogSays {
    #[serde(flatten)]
    notes: Notes,
    /// Requests that gave something up, not those that explored.
    requests: u64,
    /// Requests that explored what they were told to.
    explored: u64,
    /// Tradeoffs whose component was cut by a burst's edge, and records that cannot be read.
    cut: u64,
    malformed: u64,
    log: Vec<LogRow>,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
struct LogRow {
    /// The beginning of the stretch of time, ns since the Unix epoch.
    from_ns: i64,
    point: String,
    service: String,
    /// `omit`, `default` or `low_fidelity`.
    kind: String,
    /// Decided beforehand, and not forced.
    proactive: bool,
    /// The version of the policy; 0: none.
    policy: u64,
    requests: u64,
    /// The mean share of items that was left out.
    mean_rate: f64,
    /// Requests a second at the point, on average.
    requests_per_second: f64,
    mean_latency_ns: f64,
    /// Most of what was left out: `ads 45 %, pages 30 %`.
    left_out: String,
    /// Of those that were forced: the most frequent cause.
    cause: String,
}

impl Row for LogRow {
    const TABLE: TableSpec = TableSpec {
        name: "tradeoffs",
        about: "What a point gave up in a stretch of time, by policy.",
        columns: Cow::Borrowed(&[
            Column::new("from_ns", "since the first", Kind::DurationNs),
            Column::new("point", "point", Kind::Text),
            Column::new("requests", "requests", Kind::Count),
            Column::new("mean_rate", "left out", Kind::Share),
            Column::new("requests_per_second", "requests/s", Kind::Mean),
            Column::new("mean_latency_ns", "latency", Kind::DurationNs),
            Column::new("proactive", "proactive", Kind::Flag),
            Column::new("policy", "policy", Kind::Count),
            Column::new("left_out", "most of it", Kind::Text),
            Column::new("cause", "forced by", Kind::Text),
            Column::new("service", "service", Kind::Text),
            Column::new("kind", "kind", Kind::Text),
        ]),
    };

    fn cells(&self) -> Vec<Cell> {
        vec![
            (self.from_ns as f64).into(),
            (&*self.point).into(),
            self.requests.into(),
            self.mean_rate.into(),
            self.requests_per_second.into(),
            self.mean_latency_ns.into(),
            self.proactive.into(),
            self.policy.into(),
            (&*self.left_out).into(),
            (&*self.cause).into(),
            (&*self.service).into(),
            (&*self.kind).into(),
        ]
    }
}

/// Stretches of time that a log is cut into.
const STRETCHES: i64 = 12;

impl LogSays {
    pub(in super::super) fn of(observed: &Observed, notes: Notes) -> Self {
        let all = || {
            observed
                .points
                .iter()
                .flat_map(|(name, point)| point.made.iter().map(move |made| (name, made)))
        };
        let given_up = || all().filter(|(_, made)| !made.is_explored && made.omitted > 0);
        let first_ns = given_up()
            .map(|(_, made)| made.start_ns)
            .min()
            .unwrap_or_default();
        let last_ns = given_up()
            .map(|(_, made)| made.start_ns)
            .max()
            .unwrap_or_default();
        let stretch_ns = ((last_ns - first_ns) / STRETCHES).max(1_000_000_000);
        let mut groups: BTreeMap<_, Vec<&Made>> = BTreeMap::new();
        for (name, made) in given_up() {
            let stretch = (made.start_ns - first_ns) / stretch_ns;
            let key = (
                name,
                stretch,
                made.is_proactive,
                made.policy,
                &made.service,
                &made.kind,
            );
            groups.entry(key).or_default().push(made);
        }
        let rows = groups.into_iter().map(
            |((name, stretch, proactive, policy, service, kind), made)| {
                let count = made.len() as f64;
                let mean =
                    |of: fn(&Made) -> f64| made.iter().map(|made| of(made)).sum::<f64>() / count;
                LogRow {
                    from_ns: first_ns + stretch * stretch_ns,
                    point: name.to_string(),
                    service: service.to_string(),
                    kind: kind.to_string(),
                    proactive,
                    policy,
                    requests: made.len() as u64,
                    mean_rate: mean(Made::rate),
                    requests_per_second: mean(|made| made.requests_per_second),
                    mean_latency_ns: mean(|made| made.latency_ns as f64),
                    left_out: left_out(&made),
                    cause: most_frequent(&made),
                }
            },
        );
        Self {
            notes,
            requests: given_up().count() as u64,
            explored: all().filter(|(_, made)| made.is_explored).count() as u64,
            cut: observed.cut,
            malformed: observed.malformed,
            log: rows.collect(),
        }
    }

    fn show(&self, doc: &mut Doc) {
        doc.heading("What was given up");
        let explored = match self.explored {
            0 => String::new(),
            explored => format!("; {explored} explored"),
        };
        doc.sentence(match self.requests {
            0 => format!("No request that is recorded gave anything up{explored}."),
            requests => format!(
                "{} gave something up{explored}.",
                counted(requests, "request")
            ),
        });
        if self.cut + self.malformed > 0 {
            doc.sentence(format!(
                "{} at a burst's edge are not counted, and {} cannot be read.",
                counted(self.cut, "tradeoff"),
                self.malformed
            ));
        }
        let first_ns = self
            .log
            .iter()
            .map(|row| row.from_ns)
            .min()
            .unwrap_or_default();
        let rows: Vec<LogRow> = self
            .log
            .iter()
            .map(|row| LogRow {
                from_ns: row.from_ns - first_ns,
                ..row.clone()
            })
            .collect();
        doc.table("Tradeoffs", &rows, usize::MAX);
    }
}

fn left_out(made: &[&Made]) -> String {
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for (class, count) in made.iter().flat_map(|made| &made.omitted_by) {
        *counts.entry(class).or_default() += count;
    }
    let all: u64 = counts.values().sum();
    let mut counts: Vec<(&str, u64)> = counts.into_iter().collect();
    counts.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(b.0)));
    let shares = counts
        .iter()
        .take(3)
        .map(|(class, count)| format!("{class} {}", percent(*count as f64 / all.max(1) as f64)));
    shares.collect::<Vec<_>>().join(", ")
}

fn most_frequent(made: &[&Made]) -> String {
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for made in made {
        *counts.entry(&made.cause).or_default() += 1;
    }
    counts
        .into_iter()
        .max_by_key(|(_, count)| *count)
        .map_or(String::new(), |(cause, _)| cause.to_owned())
}
