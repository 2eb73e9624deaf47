//! Changes that are no cause in a service: the mix and rate of requests, and their variation.

use schemars::JsonSchema;
use serde::Serialize;
use stroboscope_analysis::compare::{Comparison, Environment, Variation, VariationChange};

use super::PeriodSummary;
use stroboscope_render::humanise::duration;

/// A root operation, and its share of the requests.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(super) struct MixRow {
    root: String,
    before: f64,
    after: f64,
}

impl MixRow {
    pub(super) fn all(of: &Comparison) -> Vec<Self> {
        let mut rows: Vec<Self> = of
            .roots
            .iter()
            .map(|(root, [before, after])| Self {
                root: root.clone(),
                before: *before,
                after: *after,
            })
            .collect();
        rows.sort_by(|a, b| {
            let by_size = b.change().abs().total_cmp(&a.change().abs());
            by_size.then_with(|| a.root.cmp(&b.root))
        });
        rows
    }

    fn change(&self) -> f64 {
        self.after - self.before
    }
}

/// Variation of latency within categories, measured by C² (variance divided by the squared mean),
/// of categories with over ten requests.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(super) struct VariationSays {
    before: VariationOf,
    after: VariationOf,
    /// Probability that chance alone makes the periods' C² differ this much; null if a period has
    /// no category with over ten requests.
    p_value: Option<f64>,
    changes: Vec<VariationRow>,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
struct VariationOf {
    categories: u64,
    /// Share of categories with C² below 1.
    low: Option<f64>,
    median: Option<f64>,
    most: Option<f64>,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
struct VariationRow {
    root: String,
    category: String,
    before: f64,
    after: f64,
    q_value: f64,
}

impl VariationSays {
    pub(super) fn of(of: &Variation) -> Self {
        let period = |at: usize| VariationOf {
            categories: of.squared[at].len() as u64,
            low: of.low(at),
            median: of.squared[at].get(of.squared[at].len() / 2).copied(),
            most: of.squared[at].last().copied(),
        };
        let row = |change: &VariationChange| VariationRow {
            root: change.root.clone(),
            category: change.category.to_string(),
            before: change.squared[0],
            after: change.squared[1],
            q_value: change.q_value,
        };
        Self {
            before: period(0),
            after: period(1),
            p_value: of.p_value,
            changes: of.changes.iter().map(row).collect(),
        }
    }

    /// Describes the variation; `None` if a period has no category with enough requests.
    pub(super) fn sentence(&self) -> Option<String> {
        let (old, new) = (self.before.median?, self.after.median?);
        let many = self.changes.len();
        let changes = match self.changes.first() {
            None => "it changed by no more than chance".to_owned(),
            Some(first) => format!(
                "it changed in {many} of them by more than chance, in the largest from {:.2} to {:.2}",
                first.before, first.after
            ),
        };
        Some(format!(
            "Latency varies within categories of requests by {old:.2} before and {new:.2} after (variance/mean², the median of the \
             categories); {changes}."
        ))
    }
}

/// Minimum factor by which the rate of requests must change to be mentioned.
const RATE_MIN: f64 = 1.25;
/// Minimum change of a root operation's share of requests, 0 to 1, to be mentioned.
const MIX_MIN: f64 = 0.05;

/// Describes differences that are no causes: factors by which the times in all services changed,
/// the rate of requests, and their mix.
pub(super) fn surroundings(
    [old, new]: [&PeriodSummary; 2],
    mix: &[MixRow],
    environment: Option<&Environment>,
) -> Vec<String> {
    let mut found = Vec::new();
    if let Some(environment) = environment.filter(|environment| environment.within > 0) {
        let [low, high] =
            [-1.0, 1.0].map(|sign| environment.factor * (sign * environment.spread).exp());
        found.push(format!(
            "Places of all services changed, two thirds of them by factors from {low:.2} to {high:.2}, as machines and load do; {} that \
             did no more than that {} not among the causes.",
            environment.within,
            if environment.within == 1 { "is" } else { "are" }
        ));
    }
    if let (Some(before), Some(after)) = (old.inter_arrival_mean_ns, new.inter_arrival_mean_ns)
        && before > 0.0
        && after > 0.0
        && (before / after).max(after / before) >= RATE_MIN
    {
        found.push(format!(
            "Requests come every {} instead of every {}: what sends them has changed.",
            duration(after),
            duration(before)
        ));
    }
    for row in mix.iter().filter(|row| row.change().abs() >= MIX_MIN) {
        found.push(format!(
            "{} is asked for in {:.0} % of the requests instead of {:.0} %.",
            row.root,
            100.0 * row.after,
            100.0 * row.before
        ));
    }
    found
}
