//! Former behaviour of the requests in which an operation now behaves differently.

use super::production::ProductionChange;
use crate::flow::{CategoryId, RootFlows};
use std::collections::BTreeSet;

/// Minimum number of later requests with a former structure. With fewer, the times of earlier
/// requests are used.
pub(super) const REQUESTS_MIN: u64 = 5;
/// Minimum fraction of the changed requests that had a former production. The categories of rarer
/// ones do not count as former.
const FORMER_MIN: f64 = 0.05;

/// Former productions of changed requests, each with the share of requests that had it.
pub(super) struct ReplacedStructures<'a> {
    losses: Vec<(&'a ProductionChange, f64)>,
}

impl<'a> ReplacedStructures<'a> {
    /// Pairs productions that became more frequent with those that became rarer, the most similar
    /// first. Each lost request explains one gained request only. The part of a gain that no loss
    /// explains counts for the most similar loss.
    pub(super) fn of(gains: &[&ProductionChange], losses: &[&'a ProductionChange]) -> Self {
        let mut pairs: Vec<(usize, usize)> = (0..gains.len())
            .flat_map(|gain| (0..losses.len()).map(move |loss| (gain, loss)))
            .collect();
        let distance = |(gain, loss): (usize, usize)| {
            gains[gain].production.distance(&losses[loss].production)
        };
        pairs.sort_by(|a, b| {
            distance(*a)
                .cmp(&distance(*b))
                .then_with(|| losses[a.1].gain().total_cmp(&losses[b.1].gain()))
        });
        let mut more: Vec<f64> = gains.iter().map(|gain| gain.gain().max(0.0)).collect();
        let mut left: Vec<f64> = losses.iter().map(|loss| (-loss.gain()).max(0.0)).collect();
        let mut shares = vec![0.0; losses.len()];
        for (gain, loss) in &pairs {
            let moved = more[*gain].min(left[*loss]);
            more[*gain] -= moved;
            left[*loss] -= moved;
            shares[*loss] += moved;
        }
        for (gain, more) in more.into_iter().enumerate() {
            if let Some((_, loss)) = pairs.iter().find(|(of, _)| *of == gain) {
                shares[*loss] += more;
            }
        }
        Self {
            losses: losses.iter().copied().zip(shares).collect(),
        }
    }

    /// Returns the categories of former productions that are not rare, without `gained`.
    pub(super) fn categories(&self, gained: &BTreeSet<CategoryId>) -> BTreeSet<CategoryId> {
        let all: f64 = self.losses.iter().map(|(_, share)| share).sum();
        let is_many = |of: &&(&ProductionChange, f64)| of.1 >= FORMER_MIN * all && of.1 > 0.0;
        let many = self.losses.iter().filter(is_many);
        many.flat_map(|(loss, _)| loss.categories.difference(gained).copied())
            .collect()
    }

    /// Returns the mean latency that the changed requests would have with their former structures,
    /// in nanoseconds; 0 if no former request is known.
    pub(super) fn mean_ns(
        &self,
        gained: &BTreeSet<CategoryId>,
        [before, after]: [&RootFlows; 2],
    ) -> f64 {
        let (mut sum_ns, mut all) = (0.0, 0.0);
        for (loss, share) in self.losses.iter().filter(|(_, share)| *share > 0.0) {
            let ids: BTreeSet<_> = loss.categories.difference(gained).copied().collect();
            let is_known = after.requests_of(&ids) >= REQUESTS_MIN;
            let flows = if is_known { after } else { before };
            if flows.requests_of(&ids) > 0 {
                sum_ns += share * mean_ns(flows, &ids);
                all += share;
            }
        }
        if all > 0.0 { sum_ns / all } else { 0.0 }
    }
}

pub(super) fn mean_ns(flows: &RootFlows, ids: &BTreeSet<CategoryId>) -> f64 {
    let sum: u128 = flows.of(ids).map(|category| category.latency_ns).sum();
    flows.count_of(ids).mean(sum as f64)
}
