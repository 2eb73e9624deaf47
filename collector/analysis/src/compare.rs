//! Finds the differences between two periods (Spectroscope, Diagnosing performance changes by
//! comparing system behaviours).
//!
//! The mean latency of all requests is a sum over root operations, over categories of their
//! requests, and over the places where their critical paths spend time. Its change is therefore a
//! sum of three parts:
//!
//! - places whose time changed in requests of one structure (response-time mutations, §5.1);
//! - requests that now have another structure (structural mutations, §5.2);
//! - root operations that are requested more or less often.
//!
//! The changed times of one operation, or of a service that changed as a whole, form one *cause*,
//! and so do an operation's changes of structure (the paper's future work, §5.3). A cause is tested
//! against the variation within each period.

mod blame;
mod budget;
mod cause;
mod contrast;
mod divergence;
mod environment;
mod evidence;
mod feature_test;
mod matched;
mod mutation;
mod partial;
mod place;
mod place_test;
mod production;
mod replaced;
mod response;
mod rows;
mod share_change;
mod sides;
mod slices;
mod strata;
mod structural;
mod structure;
#[cfg(test)]
mod tests;
mod variation;

pub use cause::{Cause, CauseKind, Example};
pub use contrast::{Contrast, ContrastRequest};
pub use divergence::{Divergence, PathDifference, divergence};
pub use environment::Environment;
pub use mutation::{EdgeChange, Mutation, MutationKind};
pub use partial::PartialChange;
pub use place::Place;
pub use place_test::TooFew;
pub use rows::Period;
pub use share_change::share_change;
pub use sides::Sides;
pub use structure::Precursor;
pub use variation::{Variation, VariationChange};

use crate::flow::{CategoryId, EdgeTable, Operation, PeriodFlows, Request, RootFlows, Shape};
use crate::statistics::{DEVIATIONS_95, benjamini_hochberg};
use matched::{Alike, CategoryPair, alike};
use place::Places;
use production::{OperationChange, operation_changes};
use response::{PlaceChange, place_changes};
use rows::{Rows, category_rows_max};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use structural::structural_changes;
use structure::{CountChange, Gain, count_changes, gains, raw_count_changes};

/// Parameters of a comparison.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CompareSettings {
    /// Maximum expected fraction of false discoveries among the differences that are found
    /// (Benjamini and Hochberg).
    pub false_discoveries: f64,
    /// Minimum change of a category's number of requests, or of the number of requests in which an
    /// operation behaves differently. Changes of shares are scaled to the later period. Smaller
    /// changes are ignored. The paper calls it `SM_THRESHOLD`.
    pub count_min: u64,
    /// Minimum relevant change of a place, as a fraction of the earlier latency of the requests
    /// compared at the place. A tenth of this suffices for a place whose own time changed by 30 %
    /// or more. A change below a tenth of this fraction of the earlier latency of all the root
    /// operation's requests is never relevant.
    pub effect_min: f64,
    /// True to relax the paper's 1:N rule: a precursor may have lost fewer requests than the
    /// mutation gained, even if another precursor lost enough.
    pub any_precursor: bool,
    /// True if both periods had the same workload. Categories' numbers of requests are then
    /// compared, instead of their shares of the root operation's requests.
    pub same_workload: bool,
}

impl Default for CompareSettings {
    fn default() -> CompareSettings {
        CompareSettings {
            false_discoveries: 0.01,
            count_min: 5,
            effect_min: 0.01,
            any_precursor: false,
            same_workload: false,
        }
    }
}

/// The result of comparing two periods.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// Change of the mean latency, in ns.
    pub change_ns: f64,
    /// 95 % confidence interval of `change_ns` for all requests, recorded or not. Both bounds are
    /// `change_ns` if all weights are 1.
    pub change_interval_ns: [f64; 2],
    /// Part of the change, in ns, that is due to the users' workload: to other shares of roots.
    pub workload_ns: f64,
    /// The edges that causes and mutations refer to.
    pub edges: EdgeTable,
    /// Causes in descending order of importance. The first [`principal`](Self::principal) explain
    /// the change, the others are further differences.
    pub causes: Vec<Cause>,
    /// Number of causes that explain the change.
    pub principal: usize,
    /// Places that changed a lot in too few requests to judge, the largest contribution first.
    pub too_few: Vec<TooFew>,
    /// Categories of requests that changed, the largest contribution first.
    pub mutations: Vec<Mutation>,
    /// Root operations, with their shares of the requests in both periods.
    pub roots: Vec<(String, [f64; 2])>,
    /// Usual change of the places of all services; `None` if there is too little data.
    pub environment: Option<Environment>,
    /// Variation of requests within one category.
    pub variation: Variation,
}

impl Comparison {
    /// Returns the part of the change, in ns, that the principal causes contribute.
    pub fn explained_ns(&self) -> f64 {
        let principal = self.causes.iter().take(self.principal);
        principal.map(|cause| cause.contribution_ns).sum()
    }

    /// Compares two periods. `is_client` reports whether an operation is recorded as a client.
    pub fn of(
        before: &PeriodFlows,
        after: &PeriodFlows,
        is_client: &dyn Fn(&Operation) -> bool,
        settings: &CompareSettings,
    ) -> Comparison {
        let (before, after) = numbered_alike(before, after);
        let places = Places::of(&before.edges, is_client);
        let clients = places.client_operations();
        let rows_max = category_rows_max([&before, &after]);
        let means = [&before, &after].map(|period| period.latency.mean_ns());
        let errors = [&before, &after].map(|period| period.latency.mean_error_ns());
        let change_ns = means[1] - means[0];
        let nothing = RootFlows::default();
        let mut roots = Vec::new();
        let mut shares = Vec::new();
        let later = after.roots.keys();
        let only_later = later.filter(|root| !before.roots.contains_key(*root));
        for root in before.roots.keys().chain(only_later) {
            let flows = [&before, &after].map(|period| period.roots.get(root).unwrap_or(&nothing));
            let periods = [&before, &after].map(PeriodFlows::count);
            let of_all = [0, 1].map(|at: usize| flows[at].count().share_of(periods[at]));
            shares.push((root.clone(), of_all));
            if flows.iter().all(|flows| flows.requests() > 0) {
                let rows = Rows::of(flows[0], flows[1], rows_max);
                roots.push(OfRoot {
                    name: root,
                    before: flows[0],
                    after: flows[1],
                    share: of_all[1],
                    operations: operation_changes(flows, &rows, &clients),
                    counts: match settings.same_workload {
                        true => raw_count_changes(flows, &rows),
                        false => count_changes(flows, &rows),
                    },
                    gains: Vec::new(),
                    matched: Vec::new(),
                    places: BTreeMap::new(),
                    rows,
                });
            }
        }
        let within_roots: f64 = roots.iter().map(|root| root.share * root.change_ns()).sum();
        let structural = structural_changes(&roots, &before.edges, &clients, settings);
        let alike: Vec<Alike<'_>> = roots
            .iter()
            .map(|root| alike([root.before, root.after], &root.rows))
            .collect();
        let changes = place_changes(&roots, &alike, &places);
        let of_roots = roots.iter_mut().zip(alike).zip(changes).enumerate();
        for (number, ((root, alike), changes)) in of_roots {
            let of_root = structural.iter().filter(|change| change.root == number);
            let changed = of_root.flat_map(|change| change.gained.union(&change.lost));
            let changed: BTreeSet<CategoryId> = changed.copied().collect();
            root.places = changes;
            root.matched = alike.matched;
            root.pair(settings, &changed);
        }
        let (edges, of_means) = (&before.edges, (means[0], within_roots));
        let found = cause::causes(&roots, &structural, edges, &places, of_means, settings);
        let variation = Variation::of(&roots, settings.false_discoveries);
        Comparison {
            variation,
            change_ns,
            change_interval_ns: [-DEVIATIONS_95, DEVIATIONS_95]
                .map(|deviations| change_ns + deviations * errors[0].hypot(errors[1])),
            workload_ns: change_ns - within_roots,
            edges: before.edges.clone(),
            causes: found.causes,
            principal: found.principal,
            too_few: found.too_few,
            mutations: found.mutations,
            environment: found.environment,
            roots: shares,
        }
    }
}

/// Renumbers the edges of both periods in the order of their names, so that equal ones match.
fn numbered_alike(before: &PeriodFlows, after: &PeriodFlows) -> (PeriodFlows, PeriodFlows) {
    let both = before.edges.iter().chain(after.edges.iter());
    let mut edges: Vec<_> = both.map(|(_, edge)| edge.clone()).collect();
    edges.sort_unstable();
    edges.dedup();
    (before.renumbered(&edges), after.renumbered(&edges))
}

/// A root operation that has requests in both periods, and its changes.
pub(crate) struct OfRoot<'a> {
    name: &'a str,
    before: &'a RootFlows,
    after: &'a RootFlows,
    /// Share of the later period's requests that have this root operation.
    share: f64,
    rows: Rows<'a>,
    operations: Vec<OperationChange>,
    matched: Vec<CategoryPair<'a>>,
    places: BTreeMap<usize, PlaceChange>,
    counts: Vec<CountChange>,
    gains: Vec<Gain>,
}

impl OfRoot<'_> {
    fn change_ns(&self) -> f64 {
        self.after.mean_ns() - self.before.mean_ns()
    }

    /// Returns the structure of a category; `None` if neither period has it.
    fn shape(&self, id: CategoryId) -> Option<Arc<Shape>> {
        let shape = self.before.shape(id).or_else(|| self.after.shape(id));
        shape.cloned()
    }

    /// Finds the precursors of the categories that became more frequent. Categories in `known`,
    /// whose change an operation explains, need no significant q-value.
    fn pair(&mut self, settings: &CompareSettings, known: &BTreeSet<CategoryId>) {
        let p_values: Vec<f64> = self.counts.iter().map(|change| change.p_value).collect();
        let q_values = benjamini_hochberg(&p_values);
        // Number of requests to which changes of shares are scaled.
        let requests = match settings.same_workload {
            true => self.before.requests(),
            false => self.after.requests(),
        } as f64;
        let changed = self
            .counts
            .iter()
            .zip(q_values)
            .filter(|(change, q_value)| {
                (*q_value <= settings.false_discoveries || known.contains(&change.id))
                    && change.gain().abs() * requests >= settings.count_min as f64
            });
        let changed: Vec<&CountChange> = changed.map(|(change, _)| change).collect();
        let shape = |id| self.shape(id);
        self.gains = gains(&changed, &shape, settings.any_precursor);
    }
}

/// Adds up the largest fraction of each root operation. Several changes in the requests of one root
/// operation may be in the same requests.
fn largest_by_root(fractions: impl Iterator<Item = (usize, f64)>) -> f64 {
    let mut largest: BTreeMap<usize, f64> = BTreeMap::new();
    for (root, fraction) in fractions {
        let known = largest.entry(root).or_default();
        *known = known.max(fraction);
    }
    largest.into_values().sum()
}

/// Returns the request of a sample whose latency is nearest to `latency_ns`.
pub(crate) fn nearest(sample: &[Request], latency_ns: f64) -> Option<&Request> {
    sample.iter().min_by(|a, b| {
        let off = |request: &Request| (request.latency_ns as f64 - latency_ns).abs();
        off(a).total_cmp(&off(b)).then_with(|| a.id.cmp(&b.id))
    })
}
