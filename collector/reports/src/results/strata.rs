//! Requests by stratum, and cumulative distributions, shared by `critical-path` and `report`.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value, json};
use stroboscope_analysis::breakdown::{Breakdown, SHARE_STEPS, quantile_stratum};

use super::figures::{latency_figure, shares_figure};
use crate::latency::{CdfPoint, Latency, TABLE_STEPS, cdf};
use crate::roots::{RootRow, root_rows, show_roots};
use crate::study::NamedInference;
use crate::verb::Report;
use stroboscope_query::{BreakdownReport, Notes};
use stroboscope_render::humanise::{counted, percent};
use stroboscope_render::roots::headline_is_of;
use stroboscope_render::show::{
    Axis, Cell, Chart, Column, Doc, Figure, Kind, Stack, StackPart, Table, TableSpec,
};

const STRATA_MAX: usize = 12;

/// Critical paths by an attribute, as cumulative distributions, or both.
#[derive(Debug, Serialize, JsonSchema)]
pub struct BrokenDown {
    #[serde(flatten)]
    notes: Notes,
    used_traces: u64,
    latency: Latency,
    latency_of: &'static str,
    roots: Vec<RootRow>,
    #[serde(skip_serializing_if = "Option::is_none")]
    by: Option<By>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cdf: Option<Cdfs>,
    /// Names of the categories by their numbers.
    #[serde(skip)]
    categories: Vec<String>,
    #[serde(skip)]
    cdf_rows: Vec<Vec<Cell>>,
    #[serde(skip)]
    cdf_figures: Vec<Figure>,
}

/// Strata of requests by the values or quantiles of an attribute.
#[derive(Debug, Serialize, JsonSchema)]
struct By {
    attribute: String,
    quantiles: bool,
    strata: Vec<Stratum>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Stratum {
    requests: u64,
    latency: Latency,
    mean_tail_ns: f64,
    categories: Vec<CategoryTime>,
    stratum: String,
    upper_edge: Option<f64>,
}

impl Stratum {
    fn mean_critical_ns(&self, category: &str) -> f64 {
        let mut times = self.categories.iter();
        let time = times.find(|time| time.category == category);
        time.map_or(0.0, |time| time.mean_critical_ns)
    }
}

#[derive(Debug, Serialize, JsonSchema)]
struct CategoryTime {
    category: String,
    mean_critical_ns: f64,
    mean_critical_wait_ns: f64,
    mean_summed_delay_ns: f64,
}

/// Cumulative distributions of latency, and of each category's share of the critical path (Chow et
/// al., OSDI 2014, figure 6).
#[derive(Debug, Serialize, JsonSchema)]
struct Cdfs {
    latency_ns: Vec<CdfPoint>,
    #[schemars(with = "BTreeMap<String, Vec<(f64, f64)>>")]
    critical_share: Map<String, Value>,
}

impl BrokenDown {
    pub fn of(
        report: BreakdownReport,
        known: NamedInference<'_>,
        attribute: Option<&str>,
        with_cdf: bool,
    ) -> Self {
        let names = report.categories.names();
        let by = attribute.map(|attribute| By {
            attribute: attribute.to_owned(),
            quantiles: report.edges.is_some(),
            strata: strata(&report),
        });
        let roots = &known.inference.roots;
        let figures = || {
            vec![
                latency_figure(&roots.headline()),
                shares_figure(names, &report.whole),
            ]
        };
        Self {
            cdf_figures: if with_cdf && !report.whole.requests.is_zero() {
                figures()
            } else {
                Vec::new()
            },
            used_traces: report.whole.requests.rounded(),
            latency: Latency::of(&roots.headline()),
            latency_of: headline_is_of(roots),
            roots: root_rows(roots, None),
            by,
            cdf: with_cdf.then(|| cdfs(&report)),
            cdf_rows: if with_cdf {
                cdf_rows(&report)
            } else {
                Vec::new()
            },
            categories: names.to_vec(),
            notes: report.notes,
        }
    }
}

fn strata(report: &BreakdownReport) -> Vec<Stratum> {
    let names = report.categories.names();
    let stratum = |(name, breakdown): (&String, &Breakdown)| {
        let per_request = |sum_ns: u128| breakdown.requests.mean(sum_ns as f64);
        let categories = breakdown
            .categories
            .iter()
            .map(|(number, time)| CategoryTime {
                category: names[*number].clone(),
                mean_critical_ns: per_request(time.critical_duration_ns + time.critical_wait_ns),
                mean_critical_wait_ns: per_request(time.critical_wait_ns),
                mean_summed_delay_ns: per_request(time.summed_delay_ns),
            });
        Stratum {
            requests: breakdown.requests.rounded(),
            latency: Latency::of(&breakdown.latency),
            mean_tail_ns: per_request(breakdown.tail_wait_ns),
            categories: categories.collect(),
            stratum: name.clone(),
            upper_edge: report.edges.as_ref().and_then(|edges| {
                let mut edges_of = edges.iter().copied();
                edges_of.find(|edge| quantile_stratum(edges, *edge) == *name)
            }),
        }
    };
    report.strata.strata().iter().map(stratum).collect()
}

fn cdfs(report: &BreakdownReport) -> Cdfs {
    let share = |number: usize| {
        let point = |(step, part): (usize, f64)| json!([part, step as f64 / SHARE_STEPS as f64]);
        report
            .whole
            .share_cdf(number)
            .into_iter()
            .enumerate()
            .map(point)
            .collect::<Vec<Value>>()
    };
    let names = report.categories.names().iter().enumerate();
    let critical_share = names
        .map(|(number, name)| (name.clone(), share(number).into()))
        .collect();
    Cdfs {
        latency_ns: cdf(&report.whole.latency),
        critical_share,
    }
}

/// Returns rows in steps of 5 % of the requests. Each row has the share of requests, and the
/// latency and the categories' shares of the critical path that this share of the requests does not
/// exceed.
fn cdf_rows(report: &BreakdownReport) -> Vec<Vec<Cell>> {
    let names = report.categories.names();
    let cdfs: Vec<Vec<f64>> = (0..names.len())
        .map(|number| report.whole.share_cdf(number))
        .collect();
    let row = |step: usize| {
        let part = step as f64 / TABLE_STEPS as f64;
        let mut row: Vec<Cell> = vec![
            part.into(),
            (report.whole.latency.quantile_ns(part) as f64).into(),
        ];
        row.extend(cdfs.iter().map(|cdf| {
            // Rounding may leave the last point slightly below 1.
            let at = cdf
                .iter()
                .position(|below| *below >= part - 1e-9)
                .unwrap_or(SHARE_STEPS);
            Cell::from(at as f64 / SHARE_STEPS as f64)
        }));
        row
    };
    (1..=TABLE_STEPS).map(row).collect()
}

impl BrokenDown {
    /// Builds one row for each stratum: requests, latency, and mean time of each category on the
    /// critical path (Chow et al., OSDI 2014, figure 7).
    fn strata_table(&self, by: &By) -> Table {
        let mut columns = vec![
            Column::new("stratum", "stratum", Kind::Text),
            Column::new("requests", "requests", Kind::Count),
            Column::new("share", "of all", Kind::Share),
            Column::new("latency_p50_ns", "p50", Kind::DurationNs),
            Column::new("latency_p95_ns", "p95", Kind::DurationNs),
            Column::new("latency_mean_ns", "mean", Kind::DurationNs),
        ];
        let category = |name: &String| {
            Column::named(format!("{name}_mean_ns"), name.clone(), Kind::DurationNs)
        };
        columns.extend(self.categories.iter().map(category));
        let row = |stratum: &Stratum| {
            let edge = stratum.upper_edge;
            let name = edge.map_or_else(
                || stratum.stratum.clone(),
                |edge| format!("{}: up to {edge}", stratum.stratum),
            );
            let mut row: Vec<Cell> = vec![
                (&*name).into(),
                stratum.requests.into(),
                (stratum.requests as f64 / self.used_traces.max(1) as f64).into(),
                (stratum.latency.p50_ns as f64).into(),
                (stratum.latency.p95_ns as f64).into(),
                stratum.latency.mean_ns.into(),
            ];
            row.extend(
                self.categories
                    .iter()
                    .map(|name| Cell::from(stratum.mean_critical_ns(name))),
            );
            row
        };
        let mut strata: Vec<&Stratum> = by.strata.iter().collect();
        if !by.quantiles {
            // A stable sort keeps equal strata in order of name.
            strata.sort_by_key(|stratum| Reverse(stratum.requests));
        }
        let rows: Vec<Vec<Cell>> = strata.into_iter().map(row).collect();
        let about = "Requests of one value of an attribute, and the mean time of each category on their critical path.";
        Table {
            spec: TableSpec {
                name: "strata",
                about,
                columns: Cow::Owned(columns),
            },
            title: format!(
                "By {}: mean time of each category on the critical path",
                by.attribute
            ),
            shown: rows.len(),
            rows,
        }
    }

    /// Draws the strata with most requests as stacked bars (Chow et al., OSDI 2014, figure 7). The
    /// table next to the picture has the same numbers.
    fn strata_figure(&self, by: &By) -> Figure {
        let mut strata: Vec<(usize, &Stratum)> = by.strata.iter().enumerate().collect();
        // Select the largest, then restore their own order.
        strata.sort_by_key(|(_, stratum)| Reverse(stratum.requests));
        let left_out = strata.len().saturating_sub(STRATA_MAX);
        strata.truncate(STRATA_MAX);
        strata.sort_by_key(|(number, _)| *number);
        let stack = |(_, stratum): &(usize, &Stratum)| {
            let part = |(style, name): (usize, &String)| StackPart {
                name: name.clone(),
                length: stratum.mean_critical_ns(name),
                style,
            };
            let edge = stratum
                .upper_edge
                .map_or_else(String::new, |edge| format!(" ≤ {edge}"));
            let share = stratum.requests as f64 / self.used_traces.max(1) as f64;
            Stack {
                name: format!("{}{edge} ({})", stratum.stratum, percent(share)),
                parts: self.categories.iter().enumerate().map(part).collect(),
            }
        };
        let stacks: Vec<Stack> = strata.iter().map(stack).collect();
        let names: Vec<&str> = stacks.iter().map(|stack| &*stack.name).collect();
        let more = match left_out {
            0 => String::new(),
            more => format!("; {more} more values, of fewer requests, are not shown"),
        };
        let title = format!(
            "Mean critical path by {}, with the part of all requests{more}",
            by.attribute
        );
        let alternative = format!("Stacked bars of {}.", names.join(", "));
        let axis = Axis::new("mean time per request", Kind::DurationNs);
        Figure::new(title, alternative, Chart::Stacks { axis, stacks }).on_pages_only()
    }

    /// Shows the strata, if requested.
    pub fn show_strata(&self, doc: &mut Doc) {
        if let Some(by) = &self.by {
            doc.figure(self.strata_figure(by))
                .table_of(self.strata_table(by));
        }
    }

    fn cdf_table(&self) -> Table {
        let mut columns = vec![
            Column::new("share", "of requests at most", Kind::Share),
            Column::new("latency_ns", "latency", Kind::DurationNs),
        ];
        let category = |name: &String| {
            Column::named(
                format!("{name}_share"),
                format!("share of {name}"),
                Kind::Share,
            )
        };
        columns.extend(self.categories.iter().map(category));
        let about =
            "Cumulative share of requests by their latency, and by their share of each category.";
        Table {
            spec: TableSpec {
                name: "latency_cdf",
                about,
                columns: Cow::Owned(columns),
            },
            title: "Cumulative distributions".to_owned(),
            rows: self.cdf_rows.clone(),
            shown: self.cdf_rows.len(),
        }
    }
}

impl Report for BrokenDown {
    fn notes(&self) -> &Notes {
        &self.notes
    }

    fn show(&self, doc: &mut Doc) {
        doc.heading(counted(self.used_traces, "request"));
        show_roots(&self.roots, doc);
        self.show_strata(doc);
        doc.figures(self.cdf_figures.clone());
        if !self.cdf_rows.is_empty() {
            doc.table_of(self.cdf_table());
        }
    }
}
