//! Distribution of durations in reports.

use schemars::JsonSchema;
use serde::Serialize;
use stroboscope_analysis::distribution::Distribution;

use stroboscope_render::rows;

/// Mean, quantiles and maximum of durations, in ns.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Latency {
    pub mean_ns: f64,
    pub p50_ns: u64,
    pub p95_ns: u64,
    pub p99_ns: u64,
    pub max_ns: u64,
}

impl Latency {
    pub(crate) fn of(distribution: &Distribution) -> Self {
        let percentiles = distribution.percentiles();
        Self {
            mean_ns: distribution.mean_ns(),
            p50_ns: percentiles.p50_ns,
            p95_ns: percentiles.p95_ns,
            p99_ns: percentiles.p99_ns,
            max_ns: distribution.max_ns(),
        }
    }
}

/// Number of steps of a cumulative distribution in JSON.
const JSON_STEPS: usize = 200;
/// Number of rows of a cumulative distribution in a table: 5 % apart.
pub(crate) const TABLE_STEPS: usize = 20;

/// Share of the values, and the duration in ns that this share does not exceed.
pub(crate) type CdfPoint = (f64, u64);

/// Returns a cumulative distribution in steps of 0.5 %; empty if there are no values.
pub(crate) fn cdf(distribution: &Distribution) -> Vec<CdfPoint> {
    if distribution.count() == 0 {
        return Vec::new();
    }
    let point = |step: usize| {
        let part = step as f64 / JSON_STEPS as f64;
        (part, distribution.quantile_ns(part))
    };
    (0..=JSON_STEPS).map(point).collect()
}

/// Returns a cumulative distribution in steps of 5 %, from 5 % on.
pub(crate) fn cdf_rows(distribution: &Distribution) -> Vec<CdfRow> {
    let row = |step: usize| {
        let share = step as f64 / TABLE_STEPS as f64;
        CdfRow {
            share,
            most_ns: distribution.quantile_ns(share),
        }
    };
    (1..=TABLE_STEPS).map(row).collect()
}

/// One point of a cumulative distribution.
#[derive(Clone, Debug)]
pub(crate) struct CdfRow {
    share: f64,
    most_ns: u64,
}

rows! {
    CdfRow as row, "slack_cdf": "Cumulative share of requests by their slack.";
    share: Share, "of requests at most" = row.share;
    slack_ns: DurationNs, "slack" = row.most_ns;
}
