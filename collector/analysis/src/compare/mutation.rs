//! Mutations: categories of requests that changed.

use super::matched::CategoryPair;
use super::place::Places;
use super::response::times_by_place;
use super::rows::Row;
use super::structural::PathChange;
use super::structure::{Precursor, mean_ns};
use super::variation::sorted_ks;
use super::{CompareSettings, OfRoot};
use crate::flow::{CategoryId, EdgeId, Operation, RootFlows, Shape};
use crate::statistics::benjamini_hochberg;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Kind of change of a category.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MutationKind {
    /// Requests of this structure became slower or faster.
    ResponseTime,
    /// Requests have this structure more often than before.
    Structural,
}

/// Change of the time on one edge, in requests of one category.
#[derive(Clone, Debug, PartialEq)]
pub struct EdgeChange {
    /// The edge.
    pub edge: EdgeId,
    /// Mean time on critical paths in the earlier period, in nanoseconds.
    pub before_ns: f64,
    /// Mean time on critical paths in the later period, in nanoseconds.
    pub after_ns: f64,
    /// P-value of the difference between both periods' distributions (Kolmogorov and Smirnov).
    pub p_value: f64,
    /// True if the edge belongs to a place that made this category's requests slower or faster.
    pub is_responsible: bool,
}

impl EdgeChange {
    /// Returns the change of the mean time, in nanoseconds.
    pub fn change_ns(&self) -> f64 {
        self.after_ns - self.before_ns
    }
}

/// A category that changed. A category whose times and whose frequency changed can yield two
/// mutations (virtual categories, §5.3).
#[derive(Clone, Debug)]
pub struct Mutation {
    /// Kind of change: of response time or of frequency.
    pub kind: MutationKind,
    /// Root operation of its requests.
    pub root: String,
    /// The category.
    pub category: CategoryId,
    /// Structure of the category; `None` if it is unknown.
    pub shape: Option<Arc<Shape>>,
    /// Contribution to the change of the mean latency of all requests, in nanoseconds.
    pub contribution_ns: f64,
    /// P-value of the change.
    pub p_value: f64,
    /// P-value of the change, corrected for the number of categories tested.
    pub q_value: f64,
    /// Number of requests in each period that the recorded ones represent.
    pub requests: [u64; 2],
    /// Mean latency in each period, in nanoseconds.
    pub means_ns: [f64; 2],
    /// Edges that changed, the largest change first; empty for a structural mutation.
    pub edges: Vec<EdgeChange>,
    /// Possible former structures of a structural mutation's requests, the most similar first.
    pub precursors: Vec<Precursor>,
    /// Causes of the mutation, as indices into [`Comparison::causes`](super::Comparison::causes).
    pub causes: Vec<usize>,
}

/// Minimum contribution of a responsible place to a category's change, as a fraction of all places'
/// absolute contributions together.
const PART_MIN: f64 = 0.2;

/// Finds the categories that have a responsible place with a cause, and a significant change of
/// their latencies or of their times at such a place. `cause_of` maps (root operation, place) to
/// the index of the cause.
pub(super) fn response_mutations(
    roots: &[OfRoot<'_>],
    places: &Places,
    cause_of: &BTreeMap<(usize, usize), usize>,
    false_discoveries: f64,
) -> Vec<Mutation> {
    let mut found: Vec<Mutation> = Vec::new();
    for (number, root) in roots.iter().enumerate() {
        for alike in &root.matched {
            found.extend(of_category(root, number, alike, places, cause_of));
        }
    }
    let p_values: Vec<f64> = found.iter().map(|mutation| mutation.p_value).collect();
    for (mutation, q_value) in found.iter_mut().zip(benjamini_hochberg(&p_values)) {
        mutation.q_value = q_value;
    }
    found.retain(|mutation| mutation.q_value <= false_discoveries);
    found
}

fn of_category(
    root: &OfRoot<'_>,
    number: usize,
    alike: &CategoryPair<'_>,
    places: &Places,
    cause_of: &BTreeMap<(usize, usize), usize>,
) -> Option<Mutation> {
    let id = alike.id?;
    let part = |place: usize| {
        let contributions_ns = &root.places[&place].contributions_ns;
        contributions_ns.get(&Some(id)).copied().unwrap_or_default()
    };
    let whole: f64 = root.places.keys().map(|place| part(*place).abs()).sum();
    let mut responsible: BTreeMap<usize, usize> = BTreeMap::new();
    for place in root.places.keys() {
        if let Some(cause) = cause_of.get(&(number, *place))
            && part(*place).abs() >= PART_MIN * whole
        {
            responsible.insert(*place, *cause);
        }
    }
    if responsible.is_empty() {
        return None;
    }
    let rows = &alike.rows;
    let mut p_value = compared(rows.iter().map(|row| (row, row.request.latency_ns)));
    for (place, times_ns) in &times_by_place(rows, places) {
        if responsible.contains_key(place) {
            let times = rows.iter().zip(times_ns);
            let of_place = times.map(|(row, time_ns)| (row, *time_ns as u64));
            p_value = p_value.min(compared(of_place) * responsible.len() as f64);
        }
    }
    let causes: BTreeSet<usize> = responsible.values().copied().collect();
    let all_before = root.before.count().estimate().max(1.0);
    let share = root.share * alike.share_before(all_before);
    Some(Mutation {
        kind: MutationKind::ResponseTime,
        root: root.name.to_owned(),
        category: id,
        shape: root.shape(id),
        contribution_ns: share * (alike.mean_ns(1) - alike.mean_ns(0)),
        p_value: p_value.min(1.0),
        q_value: 1.0,
        requests: alike.requests.map(|requests| requests.round() as u64),
        means_ns: [alike.mean_ns(0), alike.mean_ns(1)],
        edges: edges(alike, places, &responsible),
        precursors: Vec::new(),
        causes: causes.into_iter().collect(),
    })
}

/// Returns the categories that structural causes made more frequent. With the same workload in both
/// periods, also returns those that became significantly more frequent without a cause. Omits
/// changes of fewer than [`CompareSettings::count_min`] requests.
pub(super) fn structural_mutations(
    roots: &[OfRoot<'_>],
    structural: &[PathChange],
    rank: &BTreeMap<(Operation, bool), usize>,
    settings: &CompareSettings,
) -> Vec<Mutation> {
    let mut found = Vec::new();
    for (number, root) in roots.iter().enumerate() {
        let p_values: Vec<f64> = root.counts.iter().map(|count| count.p_value).collect();
        let q_values = benjamini_hochberg(&p_values);
        for gain in &root.gains {
            let changes = structural.iter().filter(|change| change.root == number);
            let causes: BTreeSet<usize> = changes
                .filter(|change| change.gained.contains(&gain.id))
                .filter_map(|change| rank.get(&(change.operation.clone(), true)).copied())
                .collect();
            // With the same workload, a higher frequency needs no cause to count as a change.
            if causes.is_empty() && !settings.same_workload {
                continue;
            }
            let mean_ns = |id| mean_ns(id, root.before, root.after);
            let moved_ns = gain.precursors.iter().map(|precursor| {
                precursor.moved * (mean_ns(gain.id) - mean_ns(precursor.category))
            });
            // With the same workload, requests without a precursor contribute all of their time.
            let new_ns = match settings.same_workload {
                true => gain.unexplained * mean_ns(gain.id),
                false => 0.0,
            };
            let at = root.counts.iter().position(|count| count.id == gain.id);
            let of = |flows: &RootFlows| {
                let category = flows.categories.get(&gain.id);
                category.map_or((0, 0.0), |one| (one.count.rounded(), one.mean_ns()))
            };
            let (old, new) = (of(root.before), of(root.after));
            found.push(Mutation {
                kind: MutationKind::Structural,
                root: root.name.to_owned(),
                category: gain.id,
                shape: root.shape(gain.id),
                contribution_ns: root.share * (moved_ns.sum::<f64>() + new_ns),
                p_value: at.map_or(1.0, |at| p_values[at]),
                q_value: at.map_or(1.0, |at| q_values[at]),
                requests: [old.0, new.0],
                means_ns: [old.1, new.1],
                edges: Vec::new(),
                precursors: gain.precursors.clone(),
                causes: causes.into_iter().collect(),
            });
        }
    }
    found
}

/// Edges whose change is below this fraction of the largest one are omitted.
const EDGE_MIN: f64 = 0.02;

fn edges(
    alike: &CategoryPair<'_>,
    places: &Places,
    responsible: &BTreeMap<usize, usize>,
) -> Vec<EdgeChange> {
    let all = alike.edges();
    let size_ns = |edge: &EdgeId| alike.edge_change_ns(*edge).abs();
    let most_ns = all.iter().map(size_ns).fold(0.0, f64::max);
    let listed = all.into_iter();
    let listed = listed.filter(|edge| size_ns(edge) >= EDGE_MIN * most_ns);
    let change = |edge: EdgeId| {
        let time = |row: &Row<'_>| {
            let edges_ns = &row.request.edges_ns;
            let at = edges_ns.binary_search_by_key(&edge, |(edge, _)| *edge);
            at.map_or(0, |at| edges_ns[at].1 as u64)
        };
        EdgeChange {
            edge,
            before_ns: alike.edge_ns(0, edge),
            after_ns: alike.edge_ns(1, edge),
            p_value: compared(alike.rows.iter().map(|row| (row, time(row)))),
            is_responsible: responsible.contains_key(&places.number(edge)),
        }
    };
    let mut changes: Vec<EdgeChange> = listed.map(change).collect();
    changes.sort_by(|a, b| {
        let by_size = b.change_ns().abs().total_cmp(&a.change_ns().abs());
        by_size.then_with(|| a.edge.cmp(&b.edge))
    });
    changes
}

/// Returns the p-value of the hypothesis that the values of both periods have the same
/// distribution. Only [even](Row::is_even) requests count.
fn compared<'a>(values: impl Iterator<Item = (&'a Row<'a>, u64)>) -> f64 {
    let mut of: [Vec<u64>; 2] = [Vec::new(), Vec::new()];
    let even = values.filter(|(row, _)| row.is_even);
    even.for_each(|(row, value)| of[row.period as usize].push(value));
    of.iter_mut().for_each(|values| values.sort_unstable());
    sorted_ks(of)
}
