//! Totals of requests since the collector started, for counters that never decrease, with types
//! that totals of spans share. Unlike the model, the totals do not forget.

use std::collections::BTreeMap;
use std::sync::Arc;

use stroboscope_analysis::by_root::{OTHER_ROOTS, ROOTS_MAX};
use stroboscope_analysis::name_rule::normalise;
use stroboscope_analysis::record::TraceRecords;
use stroboscope_analysis::sampling::Weight;

use super::histogram::{Exemplar, LatencyHistogram};
use super::outcomes::Outcomes;

/// Totals of one root operation's requests, or of one operation's spans.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OperationTotals {
    /// Outcomes of all these requests or spans, including incomplete ones.
    pub outcomes: Outcomes,
    /// Latencies of complete requests, or of whole spans.
    pub latency: LatencyHistogram,
}

/// Service and name of an operation.
pub type ServiceOperation = (Arc<str>, Arc<str>);

/// Returns the key, or `other` if the key is new and there are already `max` keys.
pub(super) fn bounded<K: Ord, V>(
    totals: &BTreeMap<K, V>,
    key: K,
    max: usize,
    other: impl FnOnce() -> K,
) -> K {
    let has_room = totals.len() < max || totals.contains_key(&key);
    if has_room { key } else { other() }
}

/// Totals by root operation. Requests beyond the first [`ROOTS_MAX`] operations count as
/// [`OTHER_ROOTS`]. Fragments, which have no root span, are not counted.
#[derive(Clone, Debug, Default)]
pub(super) struct RootTotals(BTreeMap<ServiceOperation, OperationTotals>);

impl RootTotals {
    /// Counts a request. `latency_ns` is known if the request is complete. Returns the key under
    /// which the request counts; `None` for a fragment.
    pub(super) fn count(
        &mut self,
        records: &TraceRecords,
        has_failed: bool,
        latency_ns: Option<u64>,
        weight: Weight,
    ) -> Option<ServiceOperation> {
        let root = records.root()?;
        let key = (root.service.clone(), Arc::from(&*normalise(&root.name)));
        let other = || (Arc::from(""), Arc::from(OTHER_ROOTS));
        let key = bounded(&self.0, key, ROOTS_MAX, other);
        let totals = self.0.entry(key.clone()).or_default();
        totals.outcomes.count(has_failed, weight);
        if let Some(latency_ns) = latency_ns {
            let latest = Exemplar {
                trace_id: records.stored_id(),
                latency_ns,
                start_ns: root.start_ns,
            };
            totals.latency.record(latest, weight);
        }
        Some(key)
    }

    pub(super) fn all(&self) -> BTreeMap<ServiceOperation, OperationTotals> {
        self.0.clone()
    }
}

#[cfg(test)]
mod tests {
    use stroboscope_analysis::record::{SpanFlags, SpanRecord, TraceId};

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
    fn only_complete_requests_have_latencies_and_fragments_do_not_count() {
        let mut totals = RootTotals::default();
        let ten = Weight::of_threshold(9 * ((1 << 56) / 10));
        totals.count(&request("item 7", 0), false, Some(9), ten);
        totals.count(&request("item 8", 0), true, None, Weight::ONE);
        totals.count(&request("a fragment", 3), true, Some(1), Weight::ONE);
        let all = totals.all();
        let (key, of) = all.first_key_value().unwrap();
        assert_eq!((all.len(), &*key.0, &*key.1), (1, "web", "item *"));
        let Outcomes { all, failed } = of.outcomes;
        assert_eq!((all.recorded(), all.rounded()), (2, 11));
        assert_eq!((failed.recorded(), of.latency.sum_ns), (1, ten.times(9)));
        assert_eq!(of.latency.buckets[0].exemplar.unwrap().trace_id.0, 7);
    }

    #[test]
    fn operations_are_bounded() {
        let mut totals = RootTotals::default();
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
