//! Aligns observations of both periods by their stratum's median, and computes ranks and exact
//! probabilities.

use super::{Observation, SLOW_MIN};
use crate::compare::rows::Period;
use crate::record::TraceId;
use crate::statistics::normal_deviation;
use crate::statistics::stratified::{
    RankStratum, ShareStratum, rank_sum_two_sided, shares_two_sided,
};

/// An observation. Its value is its time, divided by the median of its stratum's nonzero times: the
/// upper one of two middle times. In evidence of shares, the value is 1 for a request with the
/// property, otherwise 0.
#[derive(Clone, Copy, Debug)]
pub(super) struct AlignedObservation {
    pub(super) stratum: usize,
    pub(super) period: Period,
    pub(super) start_ns: i64,
    pub(super) id: TraceId,
    pub(super) slice: usize,
    pub(super) value: f64,
}

/// Aligns the observations of the strata in which both periods have some, and renumbers these
/// strata.
pub(super) fn aligned(observations: &[Observation]) -> Vec<AlignedObservation> {
    let mut order: Vec<&Observation> = observations.iter().collect();
    order.sort_by(|a, b| {
        (a.stratum, a.time_ns)
            .partial_cmp(&(b.stratum, b.time_ns))
            .unwrap_or(std::cmp::Ordering::Equal)
    });
    let mut rows = Vec::with_capacity(order.len());
    let mut number = 0;
    for stratum in order.chunk_by(|a, b| a.stratum == b.stratum) {
        let later = stratum.iter().filter(|of| of.period == Period::After);
        let later = later.count();
        if later == 0 || later == stratum.len() {
            continue;
        }
        let some = &stratum[stratum.partition_point(|one| one.time_ns <= 0.0)..];
        let middle = some.get(some.len() / 2);
        let usual_ns = middle.map_or(1.0, |one| f64::from(one.time_ns));
        rows.extend(stratum.iter().map(|one| AlignedObservation {
            stratum: number,
            period: one.period,
            start_ns: one.start_ns,
            id: one.id,
            slice: 0,
            value: f64::from(one.time_ns) / usual_ns,
        }));
        number += 1;
    }
    rows
}

/// Returns the values in ascending order, each with the index of its row.
pub(super) fn ascending(rows: &[AlignedObservation]) -> Vec<(f64, u32)> {
    let mut values: Vec<(f64, u32)> = rows.iter().map(|row| row.value).zip(0..).collect();
    values.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    values
}

/// Returns twice the rank of each of the [ascending] values, by row. Equal values share the middle
/// of their ranks.
pub(super) fn doubled_ranks(values: &[(f64, u32)]) -> Vec<u32> {
    let mut doubled = vec![0; values.len()];
    let mut below = 0;
    for alike in values.chunk_by(|a, b| a.0 == b.0) {
        for (_, row) in alike {
            doubled[*row as usize] = (2 * below + alike.len() + 1) as u32;
        }
        below += alike.len();
    }
    doubled
}

/// Marks the rows of the largest of the [ascending] values, about this fraction of all. Returns
/// `None` if they are too few, or if too many equal the smallest of them.
pub(super) fn slowest(
    rows: &[AlignedObservation],
    values: &[(f64, u32)],
    part: f64,
) -> Option<Vec<bool>> {
    let (bound, _) = values[((1.0 - part) * values.len() as f64) as usize];
    let slow: Vec<bool> = rows.iter().map(|row| row.value >= bound).collect();
    let count = slow.iter().filter(|slow| **slow).count();
    // If many values equal the bound, it does not separate the slowest.
    (count >= SLOW_MIN && count as f64 <= 2.0 * part * rows.len() as f64).then_some(slow)
}

pub(super) fn strata(rows: &[AlignedObservation]) -> usize {
    rows.iter().map(|row| row.stratum + 1).max().unwrap_or(0)
}

/// Subtracts from each score the mean of its stratum.
pub(super) fn centred(rows: &[AlignedObservation], scores: &[f64]) -> Vec<f64> {
    let mut sums = vec![(0.0, 0.0); strata(rows)];
    for (row, score) in rows.iter().zip(scores) {
        sums[row.stratum].0 += score;
        sums[row.stratum].1 += 1.0;
    }
    let centre = |(row, score): (&AlignedObservation, &f64)| {
        score - sums[row.stratum].0 / sums[row.stratum].1
    };
    rows.iter().zip(scores).map(centre).collect()
}

/// Returns the exact significance of the rank sum, as the z-score of equal probability. `None` if
/// there are too many observations for the exact distribution.
pub(super) fn exact_rank_deviations(rows: &[AlignedObservation], doubled: &[u32]) -> Option<f64> {
    let mut strata = vec![RankStratum::default(); strata(rows)];
    // The smaller period requires fewer combinations.
    let later = rows.iter().filter(|row| row.period == Period::After);
    let chosen = match 2 * later.count() <= rows.len() {
        true => Period::After,
        false => Period::Before,
    };
    let mut sum = 0;
    for (row, rank) in rows.iter().zip(doubled) {
        strata[row.stratum].doubled_ranks.push(*rank);
        if row.period == chosen {
            strata[row.stratum].later += 1;
            sum += u64::from(*rank);
        }
    }
    rank_sum_two_sided(&strata, sum).map(normal_deviation)
}

/// Returns the p-value for the case that, in each stratum, all later observations are slower than
/// all earlier ones; 0 if they are too many to count.
pub(super) fn least_p_value(rows: &[AlignedObservation]) -> f64 {
    let mut strata = vec![ShareStratum::default(); strata(rows)];
    let mut all = 0;
    for row in rows {
        let later = u64::from(row.period == Period::After);
        let of = &mut strata[row.stratum];
        of.of += 1;
        of.with += later;
        of.later += later;
        all += later;
    }
    shares_two_sided(&strata, all).unwrap_or(0.0)
}

/// Returns the exact significance of the number of slow later observations, as the z-score of equal
/// probability. `None` if there are too many observations for the exact distribution.
pub(super) fn exact_share_deviations(rows: &[AlignedObservation], slow: &[bool]) -> Option<f64> {
    let mut strata = vec![ShareStratum::default(); strata(rows)];
    let mut seen = 0;
    for (row, slow) in rows.iter().zip(slow) {
        let (of, later) = (&mut strata[row.stratum], row.period == Period::After);
        of.of += 1;
        of.with += u64::from(*slow);
        of.later += u64::from(later);
        seen += u64::from(later && *slow);
    }
    shares_two_sided(&strata, seen).map(normal_deviation)
}
