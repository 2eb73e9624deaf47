//! Durations, summed exactly and kept as a histogram.

use hdrhistogram::Histogram;

/// Significant decimal digits of the percentiles.
const SIGNIFICANT_DIGITS: u8 = 3;
/// Longer durations are counted as this long, which bounds the histogram's memory: 2⁴⁶ ns, 19.5 hours.
pub const LONGEST_NS: u64 = 1 << 46;

/// Percentiles of durations, in nanoseconds, to three significant digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Percentiles {
    /// The median.
    pub p50_ns: u64,
    /// 95 % are at most this long.
    pub p95_ns: u64,
    /// 99 % are at most this long.
    pub p99_ns: u64,
}

/// How a duration was distributed. Merging is commutative and associative.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Distribution {
    /// Grows with its largest value: 8 KiB to start with, 84 KiB for a second, 148 KiB for [`LONGEST_NS`]. Each of its
    /// counters stops at 2³² - 1, which only blurs percentiles; the sum and the number of durations stay exact.
    #[cfg_attr(feature = "serde", serde(with = "written"))]
    histogram: Histogram<u32>,
    count: u64,
    sum_ns: u128,
    max_ns: u64,
}

impl Default for Distribution {
    fn default() -> Distribution {
        let histogram =
            Histogram::new(SIGNIFICANT_DIGITS).expect("3 significant digits are within 0 to 5");
        Distribution {
            histogram,
            count: 0,
            sum_ns: 0,
            max_ns: 0,
        }
    }
}

impl Distribution {
    /// Takes one duration into account.
    pub fn record(&mut self, duration_ns: u64) {
        self.record_n(duration_ns, 1);
    }

    /// Takes the same duration into account `count` times.
    pub fn record_n(&mut self, duration_ns: u64, count: u64) {
        if count == 0 {
            return;
        }
        self.count += count;
        self.sum_ns += u128::from(duration_ns) * u128::from(count);
        self.max_ns = self.max_ns.max(duration_ns);
        self.histogram.auto(true);
        let step = u32::try_from(count).unwrap_or(u32::MAX);
        let recorded = self.histogram.record_n(duration_ns.min(LONGEST_NS), step);
        debug_assert!(
            recorded.is_ok(),
            "a histogram that resizes itself takes every value"
        );
    }

    /// Adds what another one has seen.
    pub fn merge(&mut self, other: &Distribution) {
        self.count += other.count;
        self.sum_ns += other.sum_ns;
        self.max_ns = self.max_ns.max(other.max_ns);
        self.histogram.auto(true);
        let added = self.histogram.add(&other.histogram);
        debug_assert!(
            added.is_ok(),
            "a histogram that resizes itself takes every value"
        );
    }

    /// How many durations.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Their exact sum.
    pub fn sum_ns(&self) -> u128 {
        self.sum_ns
    }

    /// Their exact mean; 0 without any.
    pub fn mean_ns(&self) -> f64 {
        if self.count() == 0 {
            0.0
        } else {
            self.sum_ns as f64 / self.count() as f64
        }
    }

    /// The longest, exactly.
    pub fn max_ns(&self) -> u64 {
        self.max_ns
    }

    /// The duration that this part (0 to 1) of all do not exceed, never more than the longest.
    pub fn quantile_ns(&self, quantile: f64) -> u64 {
        self.histogram.value_at_quantile(quantile).min(self.max_ns)
    }

    /// What was recorded, to three significant digits, each with how often, in order.
    pub fn counts(&self) -> Vec<(u64, u64)> {
        let recorded = self.histogram.iter_recorded();
        recorded
            .map(|of| (of.value_iterated_to(), u64::from(of.count_at_value())))
            .collect()
    }

    /// The usual three.
    pub fn percentiles(&self) -> Percentiles {
        Percentiles {
            p50_ns: self.quantile_ns(0.50),
            p95_ns: self.quantile_ns(0.95),
            p99_ns: self.quantile_ns(0.99),
        }
    }
}

/// A histogram as the values that were recorded, each with its count.
#[cfg(feature = "serde")]
mod written {
    use super::{Histogram, SIGNIFICANT_DIGITS};
    use serde::de::{Deserialize, Deserializer, Error};
    use serde::ser::Serializer;

    pub(super) fn serialize<S: Serializer>(
        histogram: &Histogram<u32>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        let values = histogram
            .iter_recorded()
            .map(|at| (at.value_iterated_to(), at.count_at_value()));
        // Not all formats take a sequence of unknown length.
        to.collect_seq(values.collect::<Vec<(u64, u32)>>())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Histogram<u32>, D::Error> {
        let mut histogram = Histogram::new(SIGNIFICANT_DIGITS).map_err(D::Error::custom)?;
        histogram.auto(true);
        for (value, count) in Vec::<(u64, u32)>::deserialize(from)? {
            histogram.record_n(value, count).map_err(D::Error::custom)?;
        }
        Ok(histogram)
    }
}
