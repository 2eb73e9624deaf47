//! Breakdowns by category and stratum, and cumulative distributions, as text and JSON.

use serde_json::{Map, Value, json};
use stroboscope_analysis::breakdown::{Breakdown, CategoryTime, SHARE_STEPS};
use stroboscope_analysis::distribution::Distribution;

use super::critical_path::distribution_json;
use super::output::Table;
use crate::figures::{duration, percent};
use crate::query::{BreakdownReport, Categories};

/// Rows of a cumulative distribution in a text: 5 % apart.
const TEXT_STEPS: usize = 20;
/// Points of a cumulative distribution in JSON.
const JSON_STEPS: usize = 200;

/// The breakdown by stratum as a key of a JSON object.
pub(super) fn strata_json(report: &BreakdownReport, attribute: &str) -> Value {
    let stratum = |(number, (name, breakdown)): (usize, (&String, &Breakdown))| {
        let upper_edge = report.edges.as_ref().and_then(|edges| edges.get(number));
        let mut keys = breakdown_json(&report.categories, breakdown);
        keys.insert("stratum".into(), name.as_str().into());
        keys.insert("upper_edge".into(), json!(upper_edge));
        Value::from(keys)
    };
    let strata: Vec<Value> = report.strata.strata().iter().enumerate().map(stratum).collect();
    json!({"attribute": attribute, "quantiles": report.edges.is_some(), "strata": strata})
}

fn breakdown_json(categories: &Categories, breakdown: &Breakdown) -> Map<String, Value> {
    let per_request = |sum_ns: u128| sum_ns as f64 / breakdown.requests.max(1) as f64;
    let category = |(number, time): (&usize, &CategoryTime)| {
        json!({
            "category": categories.names()[*number],
            "mean_critical_ns": per_request(time.critical_duration_ns + time.critical_wait_ns),
            "mean_critical_wait_ns": per_request(time.critical_wait_ns),
            "mean_summed_delay_ns": per_request(time.summed_delay_ns),
        })
    };
    let mut keys = Map::new();
    keys.insert("requests".into(), breakdown.requests.into());
    keys.insert("latency".into(), distribution_json(&breakdown.latency));
    keys.insert("mean_tail_ns".into(), per_request(breakdown.tail_wait_ns).into());
    keys.insert("categories".into(), breakdown.categories.iter().map(category).collect::<Vec<_>>().into());
    keys
}

/// A row for each stratum: requests, latency, and mean time of each category on the critical path (figure 7).
pub(super) fn strata_text(report: &BreakdownReport, attribute: &str) -> String {
    let names: Vec<&str> = report.categories.names().iter().map(|name| &**name).collect();
    let heads = [&["requests", "of all", "p50", "p95", "mean"][..], &names, &["stratum"]].concat();
    let mut table = Table::new(&heads);
    let mut strata: Vec<(&String, &Breakdown)> = report.strata.strata().iter().collect();
    if report.edges.is_none() {
        // A stable sort: equals stay in order of name.
        strata.sort_by_key(|(_, breakdown)| std::cmp::Reverse(breakdown.requests));
    }
    for (number, (name, breakdown)) in strata.into_iter().enumerate() {
        let mean = |sum_ns: u128| duration(sum_ns as f64 / breakdown.requests.max(1) as f64);
        let latency = breakdown.latency.percentiles();
        let mut row = vec![
            breakdown.requests.to_string(),
            percent(breakdown.requests as f64 / report.whole.requests.max(1) as f64),
            duration(latency.p50_ns as f64),
            duration(latency.p95_ns as f64),
            duration(breakdown.latency.mean_ns()),
        ];
        row.extend((0..names.len()).map(|category| {
            let time = breakdown.categories.get(&category);
            mean(time.map_or(0, |time| time.critical_duration_ns + time.critical_wait_ns))
        }));
        let edge = report.edges.as_ref().and_then(|edges| edges.get(number));
        row.push(edge.map_or_else(|| name.clone(), |edge| format!("{name}: up to {edge}")));
        table.row(row);
    }
    format!("By {attribute}: mean time of each category on the critical path\n{}", table.render())
}

/// Points (part of all, ns) of a cumulative distribution.
pub(super) fn cdf_json(distribution: &Distribution) -> Value {
    if distribution.count() == 0 {
        return json!([]);
    }
    let point = |step: usize| {
        let part = step as f64 / JSON_STEPS as f64;
        json!([part, distribution.quantile_ns(part)])
    };
    (0..=JSON_STEPS).map(point).collect::<Vec<_>>().into()
}

/// Latency, and each category's share of the critical path, as cumulative distributions (figure 6).
pub(super) fn path_cdfs_json(report: &BreakdownReport) -> Value {
    let share = |number: usize| {
        let point = |(step, part): (usize, f64)| json!([part, step as f64 / SHARE_STEPS as f64]);
        report.whole.share_cdf(number).into_iter().enumerate().map(point).collect::<Vec<Value>>()
    };
    let names = report.categories.names().iter();
    let shares: Map<String, Value> =
        names.enumerate().map(|(number, name)| (name.clone(), share(number).into())).collect();
    json!({"latency_ns": cdf_json(&report.whole.latency), "critical_share": shares})
}

/// The same in steps of 5 %.
pub(super) fn path_cdfs_text(report: &BreakdownReport) -> String {
    let names = report.categories.names();
    let heads: Vec<String> = names.iter().map(|name| format!("share of {name}")).collect();
    let heads: Vec<&str> =
        ["of requests at most", "latency"].into_iter().chain(heads.iter().map(|head| &**head)).collect();
    let mut table = Table::new(&heads);
    let cdfs: Vec<Vec<f64>> = (0..names.len()).map(|number| report.whole.share_cdf(number)).collect();
    for step in 1..=TEXT_STEPS {
        let part = step as f64 / TEXT_STEPS as f64;
        let mut row = vec![percent(part), duration(report.whole.latency.quantile_ns(part) as f64)];
        row.extend(cdfs.iter().map(|cdf| {
            // Rounding may leave the last point a little below 1.
            let at = cdf.iter().position(|below| *below >= part - 1e-9).unwrap_or(SHARE_STEPS);
            percent(at as f64 / SHARE_STEPS as f64)
        }));
        table.row(row);
    }
    format!("Cumulative distributions\n{}", table.render())
}

/// A distribution in steps of 5 %.
pub(super) fn cdf_text(heading: &str, distribution: &Distribution) -> String {
    let mut table = Table::new(&["of requests at most", "slack"]);
    for step in 1..=TEXT_STEPS {
        let part = step as f64 / TEXT_STEPS as f64;
        table.row(vec![percent(part), duration(distribution.quantile_ns(part) as f64)]);
    }
    format!("{heading}\n{}", table.render())
}
