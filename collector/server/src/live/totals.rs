//! Totals of requests by root operation since the collector started, for counters that never
//! decrease. Unlike the model, they do not forget.

use std::collections::BTreeMap;
use std::sync::Arc;

use stroboscope_analysis::by_root::{OTHER_ROOTS, ROOTS_MAX};
use stroboscope_analysis::name_rule::normalise;
use stroboscope_analysis::record::{TraceId, TraceRecords};
use stroboscope_analysis::sampling::{Weight, WeightedCount};

use super::outcomes::Outcomes;

/// Upper bounds of the buckets of latencies, in ns. Those from 5 ms are OpenTelemetry's for the
/// durations of HTTP requests. A last bucket has all longer latencies.
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

/// Request that is an example of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exemplar {
    /// Id of its trace in the store.
    pub trace_id: TraceId,
    pub latency_ns: u64,
    /// Start of the request, in ns since the Unix epoch, by its own clock.
    pub start_ns: i64,
}

/// Requests with latencies between two bounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LatencyBucket {
    pub requests: WeightedCount,
    /// Latest of the requests.
    pub exemplar: Option<Exemplar>,
}

/// Totals of one root operation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestTotals {
    /// Outcomes of all requests, also of incomplete ones.
    pub outcomes: Outcomes,
    /// Complete requests, in the buckets of [`LATENCY_BOUNDS_NS`] and a last one.
    pub latencies: [LatencyBucket; LATENCY_BOUNDS_NS.len() + 1],
    /// Sum of the latencies of complete requests, by weight, in ns.
    pub latency_sum_ns: u128,
}

/// Service and name of a root operation.
pub type RootOperation = (Arc<str>, Arc<str>);

/// Totals by root operation. Requests beyond the first [`ROOTS_MAX`] operations count as
/// [`OTHER_ROOTS`], and fragments, which have no root span, not at all.
#[derive(Clone, Debug, Default)]
pub(super) struct RequestTotalsByRoot(BTreeMap<RootOperation, RequestTotals>);

impl RequestTotalsByRoot {
    /// Counts a request. `latency_ns` is known if the request is complete.
    pub(super) fn count(
        &mut self,
        records: &TraceRecords,
        has_failed: bool,
        latency_ns: Option<u64>,
        weight: Weight,
    ) {
        let Some(root) = records.root() else {
            return;
        };
        let mut key = (root.service.clone(), Arc::from(&*normalise(&root.name)));
        if self.0.len() >= ROOTS_MAX && !self.0.contains_key(&key) {
            key = (Arc::from(""), Arc::from(OTHER_ROOTS));
        }
        let totals = self.0.entry(key).or_default();
        totals.outcomes.count(has_failed, weight);
        let Some(latency_ns) = latency_ns else {
            return;
        };
        let at = LATENCY_BOUNDS_NS.partition_point(|bound_ns| *bound_ns < latency_ns);
        totals.latencies[at].requests.count(weight);
        totals.latencies[at].exemplar = Some(Exemplar {
            trace_id: records.stored_id(),
            latency_ns,
            start_ns: root.start_ns,
        });
        totals.latency_sum_ns += weight.times(latency_ns);
    }

    pub(super) fn all(&self) -> BTreeMap<RootOperation, RequestTotals> {
        self.0.clone()
    }
}

#[cfg(test)]
mod tests {
    use stroboscope_analysis::record::{SpanFlags, SpanRecord};

    use super::*;

    fn request(name: &str, parent_id: u64) -> TraceRecords {
        TraceRecords {
            id: TraceId(7),
            spans: vec![SpanRecord {
                span_id: 1,
                parent_id,
                service: "web".into(),
                name: name.into(),
                host: "h".into(),
                process: 1,
                start_ns: 5,
                end_ns: 9,
                flags: SpanFlags(0),
                events: Vec::new(),
            }],
            ..TraceRecords::default()
        }
    }

    #[test]
    fn latencies_are_in_the_first_bucket_that_holds_them() {
        let mut totals = RequestTotalsByRoot::default();
        let ten = Weight::of_threshold(9 * ((1 << 56) / 10));
        for (latency_ns, weight) in [(0, Weight::ONE), (100_000, ten), (100_001, Weight::ONE)] {
            totals.count(&request("item 7", 0), false, Some(latency_ns), weight);
        }
        totals.count(&request("item 8", 0), true, None, Weight::ONE);
        totals.count(&request("item 9", 0), false, Some(u64::MAX), Weight::ONE);
        totals.count(&request("a fragment", 3), true, Some(1), Weight::ONE);
        let all = totals.all();
        let (key, of) = all.first_key_value().unwrap();
        assert_eq!((all.len(), &*key.0, &*key.1), (1, "web", "item *"));
        let count = |count: WeightedCount| (count.recorded(), count.rounded());
        assert_eq!(count(of.outcomes.all), (5, 14));
        assert_eq!(count(of.outcomes.failed), (1, 1));
        let buckets = of.latencies.iter().map(|bucket| count(bucket.requests));
        let buckets: Vec<_> = buckets.enumerate().filter(|(_, of)| of.0 > 0).collect();
        assert_eq!(buckets, [(0, (2, 11)), (1, (1, 1)), (19, (1, 1))]);
        let exemplar = of.latencies[0].exemplar.unwrap();
        assert_eq!((exemplar.trace_id.0, exemplar.latency_ns), (7, 100_000));
    }

    #[test]
    fn operations_are_bounded() {
        let mut totals = RequestTotalsByRoot::default();
        for number in 0..ROOTS_MAX + 10 {
            // Letters, because numbers would be ids.
            let digits = number.to_string();
            let name: String = digits.bytes().map(|digit| (digit + 49) as char).collect();
            totals.count(&request(&name, 0), false, None, Weight::ONE);
        }
        let all = totals.all();
        assert_eq!(all.len(), ROOTS_MAX + 1);
        let other = &all[&(Arc::from(""), Arc::from(OTHER_ROOTS))];
        assert_eq!(other.outcomes.all.recorded(), 10);
    }
}
