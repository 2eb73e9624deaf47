//! Distributions of durations, each with a sum, a maximum and a histogram.
//!
//! Each duration has the [`Weight`] of its request. While all weights are 1, the histogram's
//! counters are numbers of durations. From the first other weight on, they are sums of weights in
//! units of 2⁻¹⁶. Percentiles then describe the durations that the recorded ones represent, as if
//! each had occurred as often as its weight states.

use crate::sampling::{Weight, WeightedCount};
use crate::statistics::DEVIATIONS_95;
use hdrhistogram::{Counter, Histogram};
use std::collections::{BTreeMap, btree_map};

/// Significant decimal digits of the percentiles.
const SIGNIFICANT_DIGITS: u8 = 3;
/// Longest duration in the histogram, which bounds its memory: 2⁴⁶ ns, 19.5 hours. Longer durations
/// count as this long there, but not in the sum and the maximum.
pub const LONGEST_NS: u64 = 1 << 46;

/// Percentiles of durations, in nanoseconds, to three significant digits up to [`LONGEST_NS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Percentiles {
    /// The median: half of the durations are at most this long.
    pub p50_ns: u64,
    /// 95 % of the durations are at most this long.
    pub p95_ns: u64,
    /// 99 % of the durations are at most this long.
    pub p99_ns: u64,
}

/// Distribution of durations. Merging is commutative and associative.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Distribution {
    /// Histogram that grows with its largest value: 8 KiB to start with, 84 KiB for a second, 152
    /// KiB for [`LONGEST_NS`]. Each of its counters stops at 2³² - 1, which affects percentiles and
    /// [`counts`](Self::counts). The sum and the number of durations stay exact.
    #[cfg_attr(feature = "serde", serde(with = "written"))]
    histogram: Histogram<u32>,
    /// Replaces `histogram` once weights differ from 1. Its counters are sums of [`Weight::units`].
    weighted: Option<Box<WeightedHistogram>>,
    count: WeightedCount,
    /// Weighted sum, in which each weighted duration is rounded to the nanosecond.
    sum_ns: u128,
    max_ns: u64,
}

/// A histogram whose counters are sums of weights.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
struct WeightedHistogram {
    #[cfg_attr(feature = "serde", serde(with = "written"))]
    weights: Histogram<u64>,
    /// Sums of w (w - 1) over the durations in each [`band`], with w in units of 2⁻¹⁶.
    variances: BTreeMap<u16, u128>,
}

impl WeightedHistogram {
    fn record(&mut self, duration_ns: u64, weight: Weight) {
        add_to(&mut self.weights, duration_ns, weight.units());
        let (units, one) = (u128::from(weight.units()), u128::from(Weight::ONE.units()));
        if weight != Weight::ONE {
            *self.variances.entry(band(duration_ns)).or_default() += units * (units - one);
        }
    }

    /// Returns the standard error of the share of all represented durations up to `duration_ns`,
    /// if this share is `part`. Each duration was recorded with the probability 1 / w independently
    /// of the others, so it adds w (w - 1) times the square of its deviation.
    fn share_error(&self, duration_ns: u64, part: f64, whole: WeightedCount) -> f64 {
        let sum =
            |bands: btree_map::Range<'_, u16, u128>| bands.map(|of| *of.1 as f64).sum::<f64>();
        let below = sum(self.variances.range(..=band(duration_ns)));
        let above = sum(self.variances.range(band(duration_ns) + 1..));
        let one = Weight::ONE.units() as f64;
        let variance = below * (1.0 - part).powi(2) + above * part.powi(2);
        variance.sqrt() / one / whole.estimate()
    }

    /// Returns the standard error of the mean of all represented durations, by the method of
    /// [`share_error`](Self::share_error).
    fn mean_error_ns(&self, mean_ns: f64, whole: WeightedCount) -> f64 {
        let bands = self.variances.iter();
        let each = bands.map(|(band, of)| *of as f64 * (middle_ns(*band) - mean_ns).powi(2));
        each.sum::<f64>().sqrt() / Weight::ONE.units() as f64 / whole.estimate()
    }
}

/// Returns the middle of a band.
fn middle_ns(band: u16) -> f64 {
    let shift = (band / 16).saturating_sub(1);
    (f64::from(band - 16 * shift) + 0.5) * f64::from(shift).exp2()
}

/// Returns the number of a duration's band. From 16 ns on, powers of two have 16 bands each.
fn band(duration_ns: u64) -> u16 {
    let shift = duration_ns.max(16).ilog2() - 4;
    (16 * shift) as u16 + (duration_ns >> shift) as u16
}

fn empty<C: Counter>() -> Histogram<C> {
    let mut histogram =
        Histogram::new(SIGNIFICANT_DIGITS).expect("3 significant digits are within 0 to 5");
    histogram.auto(true);
    histogram
}

fn add_to<C: Counter>(histogram: &mut Histogram<C>, duration_ns: u64, count: C) {
    let recorded = histogram.record_n(duration_ns.min(LONGEST_NS), count);
    debug_assert!(
        recorded.is_ok(),
        "a histogram that resizes itself takes every value"
    );
}

impl Default for Distribution {
    fn default() -> Distribution {
        Distribution {
            histogram: empty(),
            weighted: None,
            count: WeightedCount::default(),
            sum_ns: 0,
            max_ns: 0,
        }
    }
}

impl Distribution {
    /// Records one duration.
    pub fn record(&mut self, duration_ns: u64) {
        self.record_weighted(duration_ns, Weight::ONE);
    }

    /// Records one duration, which represents as many durations as its weight states.
    pub fn record_weighted(&mut self, duration_ns: u64, weight: Weight) {
        self.count.count(weight);
        self.sum_ns += weight.times(duration_ns);
        self.max_ns = self.max_ns.max(duration_ns);
        if weight != Weight::ONE || self.weighted.is_some() {
            self.weighted().record(duration_ns, weight);
        } else {
            add_to(&mut self.histogram, duration_ns, 1);
        }
    }

    /// Returns the weighted histogram, which takes over the unweighted counts on first use.
    fn weighted(&mut self) -> &mut WeightedHistogram {
        let Distribution {
            histogram,
            weighted,
            ..
        } = self;
        weighted.get_or_insert_with(|| {
            let mut whole = empty();
            add_unweighted(&mut whole, &std::mem::replace(histogram, empty()));
            Box::new(WeightedHistogram {
                weights: whole,
                variances: BTreeMap::new(),
            })
        })
    }

    /// Adds the durations of `other`.
    pub fn merge(&mut self, other: &Distribution) {
        self.count += other.count;
        self.sum_ns += other.sum_ns;
        self.max_ns = self.max_ns.max(other.max_ns);
        let added = match &other.weighted {
            Some(weighted) => {
                let own = self.weighted();
                for (band, variance) in &weighted.variances {
                    *own.variances.entry(*band).or_default() += variance;
                }
                own.weights.add(&weighted.weights)
            }
            None if self.weighted.is_some() => {
                add_unweighted(&mut self.weighted().weights, &other.histogram);
                Ok(())
            }
            None => self.histogram.add(&other.histogram),
        };
        debug_assert!(
            added.is_ok(),
            "a histogram that resizes itself takes every value"
        );
    }

    /// Returns the number of durations recorded.
    pub fn count(&self) -> u64 {
        self.count.recorded()
    }

    /// Returns the number of durations recorded, and the number of durations that they represent.
    pub fn weighted_count(&self) -> WeightedCount {
        self.count
    }

    /// Returns the weighted sum in nanoseconds, which is exact if all weights are 1.
    pub fn sum_ns(&self) -> u128 {
        self.sum_ns
    }

    /// Returns the weighted mean of the exact durations in nanoseconds, or 0 without any durations.
    pub fn mean_ns(&self) -> f64 {
        self.count.mean(self.sum_ns as f64)
    }

    /// Returns the standard error in nanoseconds of the [mean](Self::mean_ns) as an estimate of the
    /// mean of all durations that occurred, recorded or not; 0 if all weights are 1.
    pub fn mean_error_ns(&self) -> f64 {
        self.weighted.as_ref().map_or(0.0, |weighted| {
            weighted.mean_error_ns(self.mean_ns(), self.count)
        })
    }

    /// Returns the exact longest duration in nanoseconds, or 0 without any durations.
    pub fn max_ns(&self) -> u64 {
        self.max_ns
    }

    /// Returns the duration in nanoseconds that this fraction (0 to 1) of all durations does not
    /// exceed, to three significant digits up to [`LONGEST_NS`]; at most the longest duration.
    pub fn quantile_ns(&self, quantile: f64) -> u64 {
        let found = match &self.weighted {
            Some(weighted) => weighted.weights.value_at_quantile(quantile),
            None => self.histogram.value_at_quantile(quantile),
        };
        found.min(self.max_ns)
    }

    /// Returns the 95 % confidence interval of a [quantile](Self::quantile_ns) of the durations
    /// that occurred, recorded or not (Woodruff, Confidence intervals for medians and other
    /// position measures, 1952). If all weights are 1, all durations were recorded, and the
    /// interval is the quantile itself. It does not cover differences between this time and
    /// another.
    pub fn quantile_interval_ns(&self, quantile: f64) -> [u64; 2] {
        let found_ns = self.quantile_ns(quantile);
        let error = self.weighted.as_ref().map_or(0.0, |weighted| {
            weighted.share_error(found_ns, quantile, self.count)
        });
        [-DEVIATIONS_95, DEVIATIONS_95]
            .map(|deviations| self.quantile_ns((quantile + deviations * error).clamp(0.0, 1.0)))
    }

    /// Returns the recorded durations in ascending order, to three significant digits and at most
    /// about [`LONGEST_NS`]. Each comes with its count or, if any weight differs from 1, with its
    /// sum of [`Weight::units`].
    pub fn counts(&self) -> Vec<(u64, u64)> {
        match &self.weighted {
            Some(weighted) => counts(&weighted.weights),
            None => counts(&self.histogram),
        }
    }

    /// Returns the median and the 95th and 99th percentiles.
    pub fn percentiles(&self) -> Percentiles {
        Percentiles {
            p50_ns: self.quantile_ns(0.50),
            p95_ns: self.quantile_ns(0.95),
            p99_ns: self.quantile_ns(0.99),
        }
    }
}

fn counts<C: Counter>(histogram: &Histogram<C>) -> Vec<(u64, u64)> {
    let recorded = histogram.iter_recorded();
    recorded
        .map(|of| (of.value_iterated_to(), of.count_at_value().as_u64()))
        .collect()
}

fn add_unweighted(to: &mut Histogram<u64>, other: &Histogram<u32>) {
    for of in other.iter_recorded() {
        let units = u64::from(of.count_at_value()) * Weight::ONE.units();
        add_to(to, of.value_iterated_to(), units);
    }
}

/// Serializes a histogram as the recorded values, each with its count.
#[cfg(feature = "serde")]
mod written {
    use super::{Counter, Histogram, empty};
    use serde::de::{Deserialize, Deserializer, Error};
    use serde::ser::{Serialize, Serializer};

    pub(super) fn serialize<C: Counter + Serialize, S: Serializer>(
        histogram: &Histogram<C>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        let values = histogram
            .iter_recorded()
            .map(|at| (at.value_iterated_to(), at.count_at_value()));
        // Some formats reject a sequence of unknown length.
        to.collect_seq(values.collect::<Vec<(u64, C)>>())
    }

    pub(super) fn deserialize<'de, C: Counter + Deserialize<'de>, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Histogram<C>, D::Error> {
        let mut histogram = empty();
        for (value, count) in Vec::<(u64, C)>::deserialize(from)? {
            histogram.record_n(value, count).map_err(D::Error::custom)?;
        }
        Ok(histogram)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Records each duration as often as its weight states.
    fn expanded(durations: &[(u64, u64)]) -> Distribution {
        let mut whole = Distribution::default();
        for (duration_ns, weight) in durations {
            (0..*weight).for_each(|_| whole.record(*duration_ns));
        }
        whole
    }

    fn weighted(durations: &[(u64, u64)]) -> Distribution {
        let mut whole = Distribution::default();
        for (duration_ns, times) in durations {
            let weight = Weight::of_threshold((1 << 56) - (1 << 56) / times);
            whole.record_weighted(*duration_ns, weight);
        }
        whole
    }

    #[test]
    fn bands_are_a_sixteenth_wide() {
        let mut last = 0;
        for duration_ns in 0..100_000u64 {
            let next = band(duration_ns);
            let is_new =
                duration_ns <= 32 || duration_ns.trailing_zeros() >= duration_ns.ilog2() - 4;
            assert_eq!(
                next,
                last + u16::from(is_new && duration_ns > 0),
                "{duration_ns}"
            );
            last = next;
        }
        assert_eq!(band(u64::MAX), 16 * 59 + 31);
        for duration_ns in [16, 33, 1_000, 123_456_789, 1 << 45] {
            let middle_ns = middle_ns(band(duration_ns));
            assert!(
                (middle_ns / duration_ns as f64 - 1.0).abs() <= 1.0 / 16.0,
                "{duration_ns}"
            );
        }
    }

    #[test]
    fn one_in_a_hundred_is_a_hundred() {
        let mut durations = vec![(10_000_000, 100); 10];
        durations.extend([(900_000_000, 1); 10]);
        let whole = weighted(&durations);
        let percentiles = whole.percentiles();
        assert!(percentiles.p95_ns.abs_diff(10_000_000) < 10_000);
        assert!(percentiles.p99_ns.abs_diff(10_000_000) < 10_000);
        assert_eq!(
            (whole.count(), whole.weighted_count().rounded()),
            (20, 1_010)
        );
        assert_eq!(whole.mean_ns(), 19_000_000_000.0 / 1_010.0);
    }

    proptest! {
        #[test]
        fn weighted_percentiles_are_those_of_the_expansion(
            // Powers of two have exact weights.
            durations in proptest::collection::vec((1u64..1 << 40, (0u32..8).prop_map(|bits| 1u64 << bits)), 1..40),
            cut in 0usize..40,
        ) {
            let (found, expected) = (weighted(&durations), expanded(&durations));
            for step in 0..=200 {
                let quantile = f64::from(step) / 200.0;
                prop_assert_eq!(found.quantile_ns(quantile), expected.quantile_ns(quantile));
            }
            prop_assert_eq!((found.sum_ns(), found.max_ns()), (expected.sum_ns(), expected.max_ns()));
            prop_assert_eq!(found.weighted_count().rounded(), expected.count());
            let is_weighted = found.weighted_count().is_weighted();
            let unit = if is_weighted { Weight::ONE.units() } else { 1 };
            let counts: Vec<_> = found.counts().into_iter().map(|(value, of)| (value, of / unit)).collect();
            prop_assert_eq!(counts, expected.counts());
            let (before, after) = durations.split_at(cut.min(durations.len()));
            let mut merged = weighted(after);
            merged.merge(&weighted(before));
            prop_assert_eq!(merged, found);
        }
    }
}
