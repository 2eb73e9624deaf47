//! Matches similar requests of both periods, so that their times can be compared.
//!
//! Requests of one category are similar. If loops over data, retries or caches cause many
//! structures, most categories have few requests. [`super::strata`] groups those by their behaviour
//! at each place.

use super::rows::{Row, Rows};
use crate::flow::{CategoryId, EdgeId, FlowCategory, RootFlows};
use std::collections::{BTreeMap, BTreeSet};

/// A category, or the remainder of all small ones, in both periods.
#[derive(Clone, Debug, Default)]
pub(super) struct CategoryPair<'a> {
    /// The category; `None` for the remainder.
    pub(super) id: Option<CategoryId>,
    /// Number of requests in each period, weighted.
    pub(super) requests: [f64; 2],
    /// Weighted sum of the requests' latencies in each period, in nanoseconds.
    pub(super) latency_ns: [f64; 2],
    /// Weighted sum of the requests' times on each edge in each period, in nanoseconds.
    edges_ns: [BTreeMap<EdgeId, f64>; 2],
    /// Sampled requests of both periods; empty for the remainder.
    pub(super) rows: Vec<Row<'a>>,
}

/// Minimum number of requests in each period for a category to be compared on its own.
pub(super) const REQUESTS_MIN: u64 = 3;

impl CategoryPair<'_> {
    fn add(&mut self, period: usize, category: &FlowCategory) {
        self.requests[period] += category.count.estimate();
        self.latency_ns[period] += category.latency_ns as f64;
        for (edge, time_ns) in &category.edges_ns {
            *self.edges_ns[period].entry(*edge).or_default() += *time_ns as f64;
        }
    }

    /// Returns the edges that requests of either period use.
    pub(super) fn edges(&self) -> BTreeSet<EdgeId> {
        let periods = self.edges_ns.iter();
        periods.flat_map(|edges| edges.keys().copied()).collect()
    }

    /// Returns the mean time on an edge in a period, in nanoseconds.
    pub(super) fn edge_ns(&self, period: usize, edge: EdgeId) -> f64 {
        let sum = self.edges_ns[period].get(&edge).copied();
        sum.unwrap_or_default() / self.requests[period].max(1.0)
    }

    /// Returns the change of the mean time on an edge, in nanoseconds.
    pub(super) fn edge_change_ns(&self, edge: EdgeId) -> f64 {
        self.edge_ns(1, edge) - self.edge_ns(0, edge)
    }

    /// Returns the fraction of the root operation's earlier requests that are in this category.
    /// `all_before` is the number of the root operation's earlier requests.
    pub(super) fn share_before(&self, all_before: f64) -> f64 {
        self.requests[0] / all_before
    }

    /// Returns the mean latency in a period, in nanoseconds.
    pub(super) fn mean_ns(&self, period: usize) -> f64 {
        self.latency_ns[period] / self.requests[period].max(1.0)
    }
}

/// Requests of both periods, matched by category.
#[derive(Debug, Default)]
pub(super) struct Alike<'a> {
    /// Categories with at least [`REQUESTS_MIN`] requests in each period, then the remainder, whose
    /// id is `None`.
    pub(super) matched: Vec<CategoryPair<'a>>,
    /// Sampled requests of the categories in the remainder.
    pub(super) small: Vec<(CategoryId, Vec<Row<'a>>)>,
}

/// Matches the requests of both periods.
pub(super) fn alike<'a>(flows: [&RootFlows; 2], rows: &Rows<'a>) -> Alike<'a> {
    let mut rest = CategoryPair::default();
    let mut found = Alike::default();
    for (id, of_category) in &rows.categories {
        let both = flows.map(|flows| flows.categories.get(id));
        let is_matched = (both.iter()).all(|of| of.is_some_and(|of| of.requests >= REQUESTS_MIN));
        let mut own = CategoryPair {
            id: Some(*id),
            ..CategoryPair::default()
        };
        let one = if is_matched { &mut own } else { &mut rest };
        for (period, category) in both.into_iter().enumerate() {
            category.into_iter().for_each(|of| one.add(period, of));
        }
        if is_matched {
            own.rows.clone_from(of_category);
            found.matched.push(own);
        } else {
            found.small.push((*id, of_category.clone()));
        }
    }
    found.matched.push(rest);
    found
}
