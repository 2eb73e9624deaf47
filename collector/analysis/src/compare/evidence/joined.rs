//! Joins evidence that a property became more or less frequent among several groups of requests.

use super::{Inflation, RankEvidence, Statistic, least_p_value_of_shares};
use crate::statistics::normal_deviation;
use crate::statistics::stratified::{ShareStratum, shares_two_sided};

/// Evidence about one group of requests, and its numbers of requests with the property.
#[derive(Clone, Copy, Debug)]
pub(in crate::compare) struct GroupEvidence<'a> {
    pub(in crate::compare) evidence: &'a RankEvidence,
    /// For each period, the number of requests with the property.
    pub(in crate::compare) with: [u64; 2],
    /// For each period, the number of requests.
    pub(in crate::compare) of: [u64; 2],
}

impl RankEvidence {
    /// Joins the evidence of groups, each of which is a stratum. Returns `None` without groups.
    pub(in crate::compare) fn joined(groups: &[GroupEvidence<'_>]) -> Option<RankEvidence> {
        let statistics: Vec<&Statistic> = (groups.iter())
            .filter_map(|group| group.evidence.statistics.first())
            .collect();
        let sum: f64 = statistics.iter().map(|of| of.sum).sum();
        let variance: f64 = statistics.iter().map(|of| of.variance).sum();
        if variance <= 0.0 {
            return None;
        }
        let stratum = |group: &GroupEvidence<'_>| ShareStratum {
            with: group.with[0] + group.with[1],
            of: group.of[0] + group.of[1],
            later: group.of[1],
        };
        let strata: Vec<ShareStratum> = groups.iter().map(stratum).collect();
        let later = groups.iter().map(|group| group.with[1]).sum();
        let by_moments = sum.abs() / variance.sqrt();
        let exact = shares_two_sided(&strata, later).map_or(by_moments, normal_deviation);
        let of_slice = |of: &&Statistic| of.sum.abs() - of.without_one * of.variance.sqrt();
        let alike = statistics.iter().filter(|of| of.sum * sum > 0.0);
        let most = alike.map(of_slice).fold(0.0, f64::max);
        let sums = |of: fn(&RankEvidence) -> [usize; 2]| {
            [0, 1].map(|period: usize| groups.iter().map(|one| of(one.evidence)[period]).sum())
        };
        Some(RankEvidence {
            rows: sums(|of| of.rows),
            least_p_value: least_p_value_of_shares(&strata),
            slices: sums(|of| of.slices),
            statistics: vec![Statistic {
                share: 1.0,
                sum,
                variance,
                deviations: exact.copysign(sum),
                without_one: (sum.abs() - most) / variance.sqrt(),
                inflation: [0, 1].map(|period: usize| {
                    mean(statistics.iter().filter_map(|of| of.inflation[period]))
                }),
            }],
            halves: [None; 2],
        })
    }
}

/// Returns the mean of estimates, weighted by their degrees of freedom; `None` without estimates.
fn mean(estimates: impl Iterator<Item = Inflation>) -> Option<Inflation> {
    let (freedom, sum) = estimates.fold((0.0, 0.0), |(freedom, sum), one| {
        (freedom + one.freedom, sum + one.freedom * one.ratio)
    });
    (freedom > 0.0).then(|| Inflation {
        ratio: sum / freedom,
        freedom,
    })
}
