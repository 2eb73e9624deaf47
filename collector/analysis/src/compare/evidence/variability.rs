//! Estimates how much the times of places, or the frequencies of features, vary within a period.

use super::{RankEvidence, Statistic};
use crate::statistics::median;

/// Variation of places within a period beyond that of independent requests. In tests of features,
/// each feature counts as a place.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::compare) struct Variability {
    /// Correlation of observations in one slice.
    within_slices: f64,
    /// Variance between the halves of a period, in units of the variance of ranks.
    between_windows: f64,
    /// Weight of the estimate from all places when it is combined with a place's own, in degrees of
    /// freedom.
    weight: f64,
    /// Number of places that are compared, counted for each root operation.
    places: f64,
}

/// Weight of the estimate from all places. A place's own estimate weighs its degrees of freedom.
const WEIGHT: f64 = 10.0;
/// Minimum number of places for an estimate of the variance between halves.
const PLACES_MIN: usize = 6;
/// Median of the chi-squared distribution with one degree of freedom.
const CHI_SQUARED_MEDIAN: f64 = 0.4549;

impl Variability {
    /// Estimates the variability from all places that are compared. Each component rests on a
    /// median over places, because some places change, and on the period that varies less, because
    /// a change within a period increases its variation.
    pub(in crate::compare) fn of(evidence: &[&RankEvidence]) -> Variability {
        let quieter = |of: &dyn Fn(usize) -> Option<f64>| {
            let known = [0, 1].into_iter().filter_map(of);
            known.fold(f64::INFINITY, f64::min)
        };
        let within = |period: usize| {
            let one = |evidence: &&RankEvidence| {
                let inflation = evidence.statistics.first()?.inflation[period]?.ratio;
                let rows = evidence.rows[period] as f64 / evidence.slices[period] as f64;
                Some((inflation - 1.0) / (rows - 1.0).max(1.0))
            };
            median(evidence.iter().filter_map(one).collect())
        };
        let between = |period: usize| {
            let halves = evidence.iter().filter_map(|one| one.halves[period]);
            let halves: Vec<[f64; 2]> = halves.collect();
            (halves.len() >= PLACES_MIN).then(|| between_windows(&halves))
        };
        let (within, between) = (quieter(&within), quieter(&between));
        let known = |value: f64| match value.is_finite() {
            true => value.max(0.0),
            false => 0.0,
        };
        Variability {
            within_slices: known(within),
            between_windows: known(between),
            weight: if within.is_finite() { WEIGHT } else { 0.0 },
            places: evidence.len() as f64,
        }
    }

    /// Returns the ratio of a statistic's variance to that of independent observations, and the
    /// degrees of freedom of this estimate. The latter are `None` if the ratio is 1.
    pub(super) fn inflation(
        &self,
        evidence: &RankEvidence,
        statistic: &Statistic,
    ) -> (f64, Option<f64>) {
        let rows_per_slice = evidence.rows_per_slice();
        let usual = 1.0 + (rows_per_slice - 1.0).max(0.0) * self.within_slices;
        let own = statistic.inflation.into_iter().flatten();
        let own = own.min_by(|a, b| a.ratio.total_cmp(&b.ratio));
        let of_slices = own.map_or(usual, |own| {
            (self.weight * usual + own.freedom * own.ratio) / (self.weight + own.freedom)
        });
        let [before, after] = evidence.rows.map(|rows| rows as f64);
        let of_windows = 1.0 + self.between_windows * before * after / (before + after);
        let inflation = of_slices.max(of_windows).max(1.0);
        let freedom = self.places + own.map_or(0.0, |own| own.freedom);
        let is_estimated = inflation > 1.0 && freedom > 0.0;
        (inflation, is_estimated.then_some(freedom))
    }
}

/// Returns the variance between halves at which the median of their squared differences equals its
/// expectation, from 0 to 12.
fn between_windows(halves: &[[f64; 2]]) -> f64 {
    let ratio = |variance: f64| {
        let halves = halves.iter();
        let ratios = halves.map(|[squared, expected]| squared / (expected + variance));
        median(ratios.collect()).unwrap_or_default()
    };
    if ratio(0.0) <= CHI_SQUARED_MEDIAN {
        return 0.0;
    }
    let (mut low, mut high) = (0.0, 12.0);
    for _ in 0..40 {
        let middle = (low + high) / 2.0;
        match ratio(middle) > CHI_SQUARED_MEDIAN {
            true => low = middle,
            false => high = middle,
        }
    }
    low
}
