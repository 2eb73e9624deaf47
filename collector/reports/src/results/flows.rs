//! Categories of requests, as `flows` lists them.

pub mod category;
mod density;

use std::cmp::Ordering;

use clap::ValueEnum;
use schemars::JsonSchema;
use serde::Serialize;
use stroboscope_analysis::flow::{CategoryId, FlowCategory};
use stroboscope_analysis::sampling::WeightedCount;

use crate::verb::{Report, Top};
use category::CategorySays;
use density::LatencyDensity;
use stroboscope_query::{Flows, Notes};
use stroboscope_render::humanise::{counted, duration};
use stroboscope_render::roots::requests_text;
use stroboscope_render::rows;
use stroboscope_render::show::Doc;

/// Report on all categories, or on one.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum FlowsSay {
    List(Box<FlowList>),
    Category(Box<CategorySays>),
}

impl Report for FlowsSay {
    fn notes(&self) -> &Notes {
        match self {
            Self::List(list) => &list.notes,
            Self::Category(category) => &category.notes,
        }
    }

    fn show(&self, doc: &mut Doc) {
        match self {
            Self::List(list) => list.show(doc),
            Self::Category(category) => category.show(doc),
        }
    }
}

/// Figure by which categories are ranked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum By {
    /// Number of requests
    Count,
    /// Mean latency
    Mean,
    /// Variance of the latencies
    Variance,
    /// Variance divided by the squared mean: how much requests of one structure differ
    #[value(name = "c2")]
    SquaredVariation,
    /// Sum of the latencies
    Total,
}

/// Categories of requests with equal structure.
#[derive(Debug, Serialize, JsonSchema)]
pub struct FlowList {
    #[serde(flatten)]
    notes: Notes,
    /// Number of requests in the requested range of latency.
    requests: u64,
    #[serde(skip)]
    requests_text: String,
    /// Number of requests outside of the requested range of latency.
    others: u64,
    /// Number of requests beyond the limit of categories, whose structure is not distinguished.
    uncategorised: u64,
    /// Number of all categories, including those that are not listed.
    category_count: u64,
    density: Option<LatencyDensity>,
    categories: Top<CategoryRow>,
}

/// Figures of the requests of one category.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct CategoryRow {
    rank: u64,
    category: String,
    root: String,
    requests: u64,
    /// Number of recorded requests, if requests have sampling weights.
    #[serde(skip_serializing_if = "Option::is_none")]
    recorded: Option<u64>,
    /// Share of all requests.
    share: f64,
    mean_ns: f64,
    variance_ns2: f64,
    deviation_ns: f64,
    /// Squared coefficient of variation; null if all latencies are 0.
    squared_variation: Option<f64>,
    total_ns: f64,
    /// Share of the summed latency of all requests.
    total_share: f64,
    /// Number of operations and events; repeated parts count once.
    operations: u64,
    /// True if an operation in the category's requests failed.
    fails: bool,
    example: Option<String>,
}

impl FlowList {
    /// Converts and ranks the categories; shows up to `top`, or all if it is 0.
    pub fn of(found: Flows, by: By, top: usize) -> Self {
        let flows = &found.flows;
        let requests = flows.count();
        let total_ns = flows.latency.sum_ns() as f64;
        let all = flows.roots.iter().flat_map(|(root, of_root)| {
            let of = of_root.categories.iter();
            of.map(move |(id, category)| (root, id, category))
        });
        let mut rows: Vec<CategoryRow> = all
            .map(|(root, id, category)| CategoryRow::of(root, *id, category, requests, total_ns))
            .collect();
        rows.sort_by(|a, b| b.compare(a, by).then_with(|| a.category.cmp(&b.category)));
        for (row, rank) in rows.iter_mut().zip(1..) {
            row.rank = rank;
        }
        Self {
            requests: requests.rounded(),
            requests_text: requests_text(requests),
            others: found.others.rounded(),
            uncategorised: flows.uncategorised_count().rounded(),
            category_count: rows.len() as u64,
            density: LatencyDensity::of(
                &flows.latency.counts(),
                flows.latency.weighted_count().effective(),
            ),
            categories: Top { rows, top },
            notes: found.notes,
        }
    }

    fn show(&self, doc: &mut Doc) {
        doc.heading("Requests by their structure");
        let of = match self.others {
            0 => String::new(),
            others => format!(
                " of {}, the others took another time",
                self.requests + others
            ),
        };
        let uncategorised = match self.uncategorised {
            0 => String::new(),
            more => format!("; {more} more are of structures that there was no room for"),
        };
        doc.sentence(format!(
            "{}{of}, in {} of equal structure{uncategorised}.",
            self.requests_text,
            counted(self.category_count, "category"),
        ));
        if let Some(density) = &self.density {
            density.show(doc);
        }
        doc.table("Categories", &self.categories.rows, self.categories.shown());
    }
}

impl CategoryRow {
    fn of(
        root: &str,
        id: CategoryId,
        category: &FlowCategory,
        requests: WeightedCount,
        total_ns: f64,
    ) -> Self {
        let own_ns = category.latency_ns as f64;
        Self {
            rank: 0,
            category: id.to_string(),
            root: root.to_owned(),
            requests: category.count.rounded(),
            recorded: category.count.is_weighted().then_some(category.requests),
            share: category.count.share_of(requests),
            mean_ns: category.mean_ns(),
            variance_ns2: category.variance_ns2(),
            deviation_ns: category.variance_ns2().sqrt(),
            squared_variation: category.squared_variation(),
            total_ns: own_ns,
            total_share: if total_ns > 0.0 {
                own_ns / total_ns
            } else {
                0.0
            },
            operations: category.shape.as_ref().map_or(0, |shape| shape.len()) as u64,
            fails: category
                .shape
                .as_ref()
                .is_some_and(|shape| shape.has_error()),
            example: CategorySays::example(category).map(|id| id.to_string()),
        }
    }

    fn compare(&self, other: &Self, by: By) -> Ordering {
        match by {
            By::Count => self.requests.cmp(&other.requests),
            By::Mean => self.mean_ns.total_cmp(&other.mean_ns),
            By::Variance => self.variance_ns2.total_cmp(&other.variance_ns2),
            By::SquaredVariation => {
                let of = |row: &Self| row.squared_variation.unwrap_or_default();
                of(self).total_cmp(&of(other))
            }
            By::Total => self.total_ns.total_cmp(&other.total_ns),
        }
    }

    fn sentence(&self) -> String {
        format!(
            "{} of {} ({:.1} % of all, {:.1} % of their time): {} on average, deviation {}{}{}.",
            counted(self.requests, "request"),
            self.root,
            100.0 * self.share,
            100.0 * self.total_share,
            duration(self.mean_ns),
            duration(self.deviation_ns),
            self.squared_variation
                .map_or_else(String::new, |squared| format!(
                    ", variance/mean² {squared:.2}"
                )),
            if self.fails { "; something fails" } else { "" }
        )
    }
}

rows! {
    CategoryRow as row, "flows": "Requests of one structure.";
    rank: Count, "#" = row.rank;
    category: Text, "category" = &*row.category;
    root: Text, "root operation" = &*row.root;
    requests: Count, "requests" = row.requests;
    share: Share, "of all" = row.share;
    total_share: Share, "of time" = row.total_share;
    mean_ns: DurationNs, "mean" = row.mean_ns;
    deviation_ns: DurationNs, "deviation" = row.deviation_ns;
    squared_variation: Mean, "variance/mean²" = row.squared_variation;
    operations: Count, "operations" = row.operations;
    fails: Flag, "fails" = row.fails;
    example: Request, "for example" = row.example.as_deref();
}
