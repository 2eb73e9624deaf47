//! Finds structures that became more frequent, and the structures that they replaced (Spectroscope,
//! §5.2).
//!
//! Unless both periods had the same workload, counts are compared as shares of the root operation's
//! requests. A busier hour therefore does not look like a mutation. The significance of a change
//! follows from the variation of each period's counts between slices.

use super::divergence::{Divergence, divergence};
use super::rows::{Row, Rows};
use super::slices::{Slice, difference};
use crate::edit_distance::normalised_edit_distance;
use crate::flow::{CategoryId, FlowCategory, RootFlows, Shape, Symbol};
use crate::sampling::WeightedCount;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A category, and the change of its frequency.
#[derive(Clone, Debug)]
pub(super) struct CountChange {
    pub(super) id: CategoryId,
    /// Share of the root operation's requests, for each period. With the same workload, both are
    /// fractions of the earlier requests.
    pub(super) shares: [f64; 2],
    pub(super) p_value: f64,
}

impl CountChange {
    pub(super) fn gain(&self) -> f64 {
        self.shares[1] - self.shares[0]
    }
}

/// Computes the change of each category's share.
pub(super) fn count_changes(flows: [&RootFlows; 2], rows: &Rows<'_>) -> Vec<CountChange> {
    let requests = flows.map(RootFlows::count);
    let mut totals = rows.slices.map(|count| vec![0.0; count]);
    for row in rows.categories.iter().flat_map(|(_, rows)| rows) {
        totals[row.period as usize][row.slice] += row.weight;
    }
    let change = |(id, of): &(CategoryId, Vec<Row<'_>>)| {
        let mut own = rows.slices.map(|count| vec![0.0; count]);
        for row in of {
            own[row.period as usize][row.slice] += row.weight;
        }
        let slices = [0, 1].map(|period: usize| -> Vec<Slice> {
            let slice = |(own, all): (&f64, &f64)| Slice {
                weight: *all,
                sum: *own,
                squares: *own,
            };
            own[period].iter().zip(&totals[period]).map(slice).collect()
        });
        let rows = requests.map(|count| count.effective().round() as usize);
        CountChange {
            id: *id,
            shares: [0, 1].map(|period: usize| share(flows[period], *id, requests[period])),
            p_value: difference((&slices[0], rows[0]), (&slices[1], rows[1])),
        }
    };
    rows.categories.iter().map(change).collect()
}

/// Computes the change of each category's number of requests, as a fraction of all earlier
/// requests. The significance follows from the variation of counts between equal parts of each
/// period's time.
pub(super) fn raw_count_changes(flows: [&RootFlows; 2], rows: &Rows<'_>) -> Vec<CountChange> {
    let spans_ns = [0, 1].map(|period| {
        let all = rows.categories.iter().flat_map(|(_, rows)| rows);
        let own = all.filter(|row| row.period as usize == period);
        let starts_ns = own.map(|row| row.request.start_ns);
        let least = starts_ns.clone().min().unwrap_or_default();
        let most = starts_ns.max().unwrap_or_default();
        (least, most.saturating_sub(least) + 1)
    });
    let before = flows[0].count();
    let change = |(id, of): &(CategoryId, Vec<Row<'_>>)| {
        let mut counts = rows.slices.map(|count| vec![0.0; count]);
        for row in of {
            let period = row.period as usize;
            let (from_ns, length_ns) = spans_ns[period];
            let part = (row.request.start_ns - from_ns) as f64 / length_ns as f64;
            let slice = (part * counts[period].len() as f64) as usize;
            counts[period][slice.min(rows.slices[period] - 1)] += row.weight;
        }
        // Scales each part's count to the whole period.
        let slices = counts.map(|counts| -> Vec<Slice> {
            let parts = counts.len() as f64;
            let slice = |count: f64| Slice {
                weight: 1.0,
                sum: count * parts,
                squares: (count * parts).powi(2),
            };
            counts.into_iter().map(slice).collect()
        });
        CountChange {
            id: *id,
            shares: flows.map(|flows| share(flows, *id, before)),
            p_value: difference((&slices[0], slices[0].len()), (&slices[1], slices[1].len())),
        }
    };
    rows.categories.iter().map(change).collect()
}

/// Returns a category's number of requests as a share of `all`; 0 if the category is unknown.
fn share(flows: &RootFlows, id: CategoryId, all: WeightedCount) -> f64 {
    flows.count_of([&id]).share_of(all)
}

/// A structure that requests may have had before.
#[derive(Clone, Debug, PartialEq)]
pub struct Precursor {
    /// Category of the former structure.
    pub category: CategoryId,
    /// Distance between the structures, from 0 to 1.
    pub distance: f64,
    /// Share of the root operation's requests that changed from this category to the mutation.
    pub moved: f64,
    /// First difference between the two structures; `None` if none is found.
    pub divergence: Option<Divergence>,
}

/// A category that became more frequent, with its former categories.
#[derive(Clone, Debug)]
pub(super) struct Gain {
    pub(super) id: CategoryId,
    pub(super) precursors: Vec<Precursor>,
    /// Part of the gain without a known precursor, as a share of the root operation's requests.
    pub(super) unexplained: f64,
}

/// Pairs the categories that became more frequent with those that became rarer, the most similar
/// first. Each lost request explains one gained request only. Unless `any` is true, a precursor
/// must have lost about as many requests as the mutation gained, or more (1:N, §5.2), if such a
/// precursor exists.
pub(super) fn gains(
    changed: &[&CountChange],
    categories: &dyn Fn(CategoryId) -> Option<Arc<Shape>>,
    any: bool,
) -> Vec<Gain> {
    let (gaining, losing): (Vec<&CountChange>, Vec<&CountChange>) =
        changed.iter().partition(|change| change.gain() > 0.0);
    let string = |change: &&CountChange| {
        let shape = categories(change.id)?;
        let string = shape.string();
        Some((change.id, (shape, string)))
    };
    let strings: BTreeMap<CategoryId, (Arc<Shape>, Vec<Symbol>)> =
        changed.iter().filter_map(string).collect();
    let losses = losing.iter().map(|change| (change.id, -change.gain()));
    let mut left: BTreeMap<CategoryId, f64> = losses.collect();
    let mut pairs = Vec::new();
    for gain in &gaining {
        let Some((_, own)) = strings.get(&gain.id) else {
            continue;
        };
        let fits = |loss: &&&CountChange| any || -loss.gain() >= gain.gain() * ONE_TO_N_SLACK;
        let has_fitting = losing.iter().any(|loss| fits(&loss));
        for loss in losing.iter().filter(|loss| !has_fitting || fits(loss)) {
            if let Some((_, other)) = strings.get(&loss.id) {
                pairs.push((normalised_edit_distance(own, other), gain.id, loss.id));
            }
        }
    }
    pairs.sort_by(|a, b| {
        a.0.total_cmp(&b.0)
            .then_with(|| (a.1, a.2).cmp(&(b.1, b.2)))
    });
    let new = |change: &&CountChange| Gain {
        id: change.id,
        precursors: Vec::new(),
        unexplained: change.gain(),
    };
    let gains = gaining.iter().map(|change| (change.id, new(change)));
    let mut gains: BTreeMap<CategoryId, Gain> = gains.collect();
    for (distance, to, from) in pairs {
        let (Some(gain), Some(loss)) = (gains.get_mut(&to), left.get_mut(&from)) else {
            continue;
        };
        let moved = gain.unexplained.min(*loss).max(0.0);
        gain.unexplained -= moved;
        *loss -= moved;
        let both = strings.get(&from).zip(strings.get(&to));
        let divergence = both.and_then(|((before, _), (after, _))| divergence(before, after));
        gain.precursors.push(Precursor {
            category: from,
            distance,
            moved,
            divergence,
        });
    }
    gains.into_values().collect()
}

/// Minimum ratio of a precursor's loss to the mutation's gain, below 1 because counts vary.
const ONE_TO_N_SLACK: f64 = 0.9;

/// Returns the mean latency of a category in the later period, in nanoseconds. If the category has
/// no later requests, returns its mean latency in the earlier period.
pub(super) fn mean_ns(id: CategoryId, before: &RootFlows, after: &RootFlows) -> f64 {
    let of = |flows: &RootFlows| {
        let category = flows.categories.get(&id);
        let some = category.filter(|of| of.requests > 0);
        some.map(FlowCategory::mean_ns)
    };
    of(after).or_else(|| of(before)).unwrap_or_default()
}
