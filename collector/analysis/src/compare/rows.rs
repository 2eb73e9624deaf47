//! Collects the sampled requests of a root operation's categories in both periods, and assigns them
//! to time slices.

use super::slices::slice_count;
use crate::explain::place_of;
use crate::flow::{CategoryId, PeriodFlows, Request, RootFlows, SAMPLE_MAX};
use std::collections::BTreeSet;

/// Earlier or later period.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Period {
    /// The earlier period.
    Before,
    /// The later period.
    After,
}

/// A sampled request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row<'a> {
    pub(super) period: Period,
    pub(super) slice: usize,
    /// Number of requests that the sampled request represents.
    pub(super) weight: f64,
    /// True if the request is in a random sample of its category and period to which all requests
    /// of equal weight belong. Tests that ignore weights use only this sample.
    pub(super) is_even: bool,
    pub(super) request: &'a Request,
}

/// Seed of the random sample, which is independent of other samples.
const EVEN_SEED: u64 = 0xe7e2;

/// Reports whether a request is in the sample in which each request has the chance of its weight,
/// divided by `heaviest`, the largest weight.
fn is_even(request: &Request, heaviest: f32) -> bool {
    // The upper 24 bits are exact, and the chance is below 1.
    let chance = (place_of(request.id, EVEN_SEED) >> 40) as f32 / (1u32 << 24) as f32;
    chance * heaviest <= request.weight
}

/// Sampled requests by category, of both periods.
#[derive(Debug)]
pub(super) struct Rows<'a> {
    /// Sampled requests of each category that occurs in either period.
    pub(super) categories: Vec<(CategoryId, Vec<Row<'a>>)>,
    /// Number of slices of each period.
    pub(super) slices: [usize; 2],
}

impl<'a> Rows<'a> {
    /// Collects the sampled requests of a root operation's categories, at most `most` for each
    /// category and period.
    pub(super) fn of(before: &'a RootFlows, after: &'a RootFlows, most: usize) -> Rows<'a> {
        let periods = [(Period::Before, before), (Period::After, after)];
        let bounds = periods.map(|(_, flows)| bounds(flows));
        let ids = before.categories.keys().chain(after.categories.keys());
        let ids: BTreeSet<CategoryId> = ids.copied().collect();
        let rows_of = |id: CategoryId| {
            let mut rows = Vec::new();
            for ((period, flows), bounds) in periods.iter().zip(&bounds) {
                let Some(category) = flows.categories.get(&id) else {
                    continue;
                };
                let (all, used) = (category.sample.len(), category.sample.len().min(most));
                let sample = (0..used).map(|at| &category.sample[at * all / used]);
                let weight = category.sample_weight(sample.clone());
                let weights = sample.clone().map(|request| request.weight);
                let heaviest = weights.fold(0.0, f32::max);
                rows.extend(sample.map(|request| Row {
                    period: *period,
                    slice: bounds.partition_point(|bound| *bound <= request.start_ns),
                    weight: weight * f64::from(request.weight),
                    is_even: is_even(request, heaviest),
                    request,
                }));
            }
            (id, rows)
        };
        Rows {
            categories: ids.into_iter().map(rows_of).collect(),
            slices: bounds.map(|bounds| bounds.len() + 1),
        }
    }
}

/// Approximate maximum number of sampled requests that are compared in each period. More than 1,024
/// categories can exceed it.
const ROWS_MAX: usize = 1 << 14;

/// Returns the maximum number of requests per category and period that keeps each period within
/// [`ROWS_MAX`]: [`SAMPLE_MAX`], halved as often as necessary, but at least 16.
pub(super) fn category_rows_max(periods: [&PeriodFlows; 2]) -> usize {
    let rows = |most: usize| {
        let of = |period: &PeriodFlows| -> usize {
            let roots = period.roots.values();
            let categories = roots.flat_map(|root| root.categories.values());
            categories.map(|of| of.sample.len().min(most)).sum()
        };
        let [before, after] = periods.map(of);
        before.max(after)
    };
    let mut most = SAMPLE_MAX;
    while most > 16 && rows(most) > ROWS_MAX {
        most /= 2;
    }
    most
}

/// Returns the boundaries between slices of about equally many requests, in nanoseconds since the
/// Unix epoch.
fn bounds(flows: &RootFlows) -> Vec<i64> {
    let sampled = flows.categories.values().flat_map(|of| &of.sample);
    let mut starts_ns: Vec<i64> = sampled.map(|request| request.start_ns).collect();
    starts_ns.sort_unstable();
    let count = slice_count(starts_ns.len());
    let mut bounds: Vec<i64> = (1..count)
        .filter_map(|at| starts_ns.get(at * starts_ns.len() / count).copied())
        .collect();
    bounds.dedup();
    bounds
}
