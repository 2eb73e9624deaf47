//! Histogram of latencies, with an exemplar in each bucket that is not empty.

use stroboscope_analysis::record::TraceId;
use stroboscope_analysis::sampling::{Weight, WeightedCount};

/// Upper bounds of the buckets of latencies, in ns. The bounds from 5 ms on are those of
/// OpenTelemetry for the durations of HTTP requests. A last bucket has all longer latencies.
pub const LATENCY_BOUNDS_NS: [u64; 19] = [
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    25_000_000,
    50_000_000,
    75_000_000,
    100_000_000,
    250_000_000,
    500_000_000,
    750_000_000,
    1_000_000_000,
    2_500_000_000,
    5_000_000_000,
    7_500_000_000,
    10_000_000_000,
];

/// Request, span or call that is an example of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exemplar {
    /// Id of its trace in the store.
    pub trace_id: TraceId,
    pub latency_ns: u64,
    /// Start, in ns since the Unix epoch, by its own clock.
    pub start_ns: i64,
}

/// Latencies in one bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LatencyBucket {
    pub count: WeightedCount,
    /// Latest recorded latency; `None` in an empty bucket.
    pub exemplar: Option<Exemplar>,
}

/// Latencies in the buckets of [`LATENCY_BOUNDS_NS`] and a last one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LatencyHistogram {
    pub buckets: [LatencyBucket; LATENCY_BOUNDS_NS.len() + 1],
    /// Sum of the latencies by weight, in ns.
    pub sum_ns: u128,
}

impl LatencyHistogram {
    pub(super) fn record(&mut self, latest: Exemplar, weight: Weight) {
        let latency_ns = latest.latency_ns;
        let at = LATENCY_BOUNDS_NS.partition_point(|bound_ns| *bound_ns < latency_ns);
        self.buckets[at].count.count(weight);
        self.buckets[at].exemplar = Some(latest);
        self.sum_ns += weight.times(latency_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_are_in_the_first_bucket_that_holds_them() {
        let mut histogram = LatencyHistogram::default();
        let ten = Weight::of_threshold(9 * ((1 << 56) / 10));
        for (latency_ns, weight) in [
            (0, Weight::ONE),
            (100_000, ten),
            (100_001, Weight::ONE),
            (u64::MAX, Weight::ONE),
        ] {
            let latest = Exemplar {
                trace_id: TraceId(7),
                latency_ns,
                start_ns: 5,
            };
            histogram.record(latest, weight);
        }
        let count = |count: WeightedCount| (count.recorded(), count.rounded());
        let buckets = histogram.buckets.iter().map(|bucket| count(bucket.count));
        let buckets: Vec<_> = buckets.enumerate().filter(|(_, of)| of.0 > 0).collect();
        assert_eq!(buckets, [(0, (2, 11)), (1, (1, 1)), (19, (1, 1))]);
        let exemplar = histogram.buckets[0].exemplar.unwrap();
        assert_eq!((exemplar.trace_id.0, exemplar.latency_ns), (7, 100_000));
        let expected_ns = ten.times(100_000) + 100_001 + u128::from(u64::MAX);
        assert_eq!(histogram.sum_ns, expected_ns);
    }
}
