//! Service map: the [calls](stroboscope_analysis::call) between services, with their numbers,
//! durations and failures.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use stroboscope_analysis::call::calls;
use stroboscope_analysis::flow::{ERROR, failed_spans};
use stroboscope_analysis::pass::{Pass, TraceView};
use stroboscope_analysis::record::{TraceId, TraceRecords};
use stroboscope_analysis::sampling::{Weight, WeightedCount};
use stroboscope_store::tables::{AttributeKeys, IdRange};

use super::categories::CategoryRule;
use super::inference::Inference;
use super::notes::Notes;
use super::operations::OperationTimes;
use super::paths::PathsQuestion;
use super::query_error::QueryError;
use super::shard::ShardQuestion;
use super::study::{Question, StudyInput};

/// Question of the report on services, with their share of critical paths.
pub const MAP: (ServiceMapQuestion, PathsQuestion) =
    (ServiceMapQuestion, PathsQuestion(CategoryRule::Kinds));

/// Maximum number of services that are distinguished. Spans of further services are only counted.
const SERVICES_MAX: usize = 4_096;
/// Maximum number of pairs of calling and called service that are distinguished. Calls of further
/// pairs are only counted.
const PAIRS_MAX: usize = 4_096;

/// Counts of one service over all selected requests.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ServiceCounts {
    /// Number of requests with a span of the service.
    pub requests: WeightedCount,
    pub spans: WeightedCount,
    /// Number of spans that failed.
    pub failed: WeightedCount,
    /// Request that was counted last. All spans of a request are observed together, so this
    /// suffices to count each request once.
    counted: Option<TraceId>,
}

impl ServiceCounts {
    fn see(&mut self, has_failed: bool, id: TraceId, weight: Weight) {
        self.spans.count(weight);
        if has_failed {
            self.failed.count(weight);
        }
        if self.counted != Some(id) {
            self.counted = Some(id);
            self.requests.count(weight);
        }
    }

    fn merge(&mut self, other: &Self) {
        self.requests += other.requests;
        self.spans += other.spans;
        self.failed += other.failed;
    }
}

/// Services, and the calls between them.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ServiceMap {
    pub services: BTreeMap<Arc<str>, ServiceCounts>,
    /// Calls by calling and called service. Their durations are those of the caller's client span
    /// or, without one, of the called span.
    pub calls: BTreeMap<(Arc<str>, Arc<str>), OperationTimes>,
    /// Number of spans of services beyond the limit.
    pub other_spans: u64,
    /// Number of calls of pairs of services beyond the limit.
    pub other_calls: u64,
}

/// Asks for the services, and the frequency and duration of the calls between them.
#[derive(Clone, Copy, Debug, Default)]
pub struct ServiceMapQuestion;

impl Question for ServiceMapQuestion {
    type Records = ();
    type Preparation = ();
    type Paths<'a> = ServiceMap;
    type Answer = ServiceMap;

    fn what(&self) -> &'static str {
        "following calls"
    }

    fn records(&self) {}

    fn prepare(&self, _: StudyInput<'_>, (): ()) -> Result<(), QueryError> {
        Ok(())
    }

    fn path_keys(&self, (): &()) -> AttributeKeys {
        AttributeKeys::of([ERROR])
    }

    fn paths<'a>(&'a self, _: StudyInput<'a>, (): &'a ()) -> ServiceMap {
        ServiceMap::default()
    }

    fn answer(
        &self,
        _: StudyInput<'_>,
        (): &(),
        paths: ServiceMap,
        _: Notes,
    ) -> Result<ServiceMap, QueryError> {
        Ok(paths)
    }
}

impl ShardQuestion for ServiceMapQuestion {
    type State = ServiceMap;

    fn shard_preparation(&self, _: &Inference) {}

    fn state(
        &self,
        _: StudyInput<'_>,
        _: Option<&IdRange>,
        (): (),
        paths: ServiceMap,
    ) -> Result<ServiceMap, QueryError> {
        Ok(paths)
    }

    fn merge_states(&self, whole: &mut ServiceMap, part: ServiceMap) {
        whole.merge(part);
    }

    fn conclude(
        &self,
        _: &Inference,
        whole: ServiceMap,
        _: Notes,
    ) -> Result<ServiceMap, QueryError> {
        Ok(whole)
    }
}

/// Returns the value of a key, and inserts a default for a new key. Returns `None` if the key is
/// new and there are already `max` keys.
fn entry<'a, K: Ord + Clone, V: Default>(
    known: &'a mut BTreeMap<K, V>,
    key: &K,
    max: usize,
) -> Option<&'a mut V> {
    if known.len() >= max && !known.contains_key(key) {
        return None;
    }
    Some(known.entry(key.clone()).or_default())
}

impl ServiceMap {
    fn see(&mut self, records: &TraceRecords, id: TraceId, weight: Weight) {
        let failed: foldhash::HashSet<u64> = failed_spans(records).collect();
        for span in &records.spans {
            match entry(&mut self.services, &span.service, SERVICES_MAX) {
                Some(service) => service.see(failed.contains(&span.span_id), id, weight),
                None => self.other_spans += 1,
            }
        }
        for call in calls(&records.spans, |span| failed.contains(&span.span_id)) {
            let pair = (call.caller.service.clone(), call.called.service.clone());
            let took_ns = call.timed().duration_ns();
            match entry(&mut self.calls, &pair, PAIRS_MAX) {
                Some(times) => times.see(took_ns, call.has_failed, id, weight),
                None => self.other_calls += 1,
            }
        }
    }
}

impl Pass<TraceView<'_>> for ServiceMap {
    fn observe(&mut self, seen: &TraceView<'_>) {
        self.see(seen.records, seen.trace.id, seen.weight());
    }

    fn merge(&mut self, other: Self) {
        self.other_spans += other.other_spans;
        self.other_calls += other.other_calls;
        for (service, counts) in other.services {
            match entry(&mut self.services, &service, SERVICES_MAX) {
                Some(known) => known.merge(&counts),
                None => self.other_spans += counts.spans.recorded(),
            }
        }
        for (pair, times) in other.calls {
            match entry(&mut self.calls, &pair, PAIRS_MAX) {
                Some(known) => known.merge(&times),
                None => self.other_calls += times.duration.count(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use stroboscope_analysis::distribution::Distribution;
    use stroboscope_analysis::record::{SpanFlags, SpanRecord};

    use super::*;

    const SERVICES: [&str; 4] = ["bank", "db", "shop", "web"];

    /// Service, parent, client flag, duration, and failure of a span.
    type Span = (usize, u64, bool, u8, bool);

    /// Builds a request from these spans, whose ids count from 1. Parents may be missing, or form a
    /// cycle.
    fn request(id: u128, spans: &[Span]) -> TraceRecords {
        let span = |(span_id, span): (u64, &Span)| {
            let (service, parent_id, is_client, took_ns, has_failed) = *span;
            let flag = |is: bool, flag| if is { flag } else { SpanFlags(0) };
            SpanRecord {
                span_id,
                parent_id,
                service: SERVICES[service].into(),
                name: "work".into(),
                host: "h".into(),
                process: 1,
                start_ns: 0,
                end_ns: i64::from(took_ns),
                flags: flag(is_client, SpanFlags::CLIENT)
                    .with(flag(has_failed, SpanFlags::PANICKED)),
                events: Vec::new(),
            }
        };
        TraceRecords {
            id: TraceId(id),
            spans: (1..).zip(spans).map(span).collect(),
            ..TraceRecords::default()
        }
    }

    fn map(requests: &[TraceRecords]) -> ServiceMap {
        let mut map = ServiceMap::default();
        for records in requests {
            map.see(records, records.id, Weight::ONE);
        }
        map
    }

    /// Requests, calls, failed calls, and durations of the calls.
    type Counts = (u64, u64, u64, Vec<(u64, u64)>);

    fn counts(times: Option<&OperationTimes>) -> Counts {
        times.map_or_else(Counts::default, |times| {
            let calls = times.duration.weighted_count().rounded();
            let (requests, failed) = (times.requests.rounded(), times.failed.rounded());
            (requests, calls, failed, times.duration.counts())
        })
    }

    fn spans_of<'a>(records: &'a TraceRecords, service: &str) -> Vec<&'a SpanRecord> {
        let spans = records.spans.iter();
        spans.filter(|span| *span.service == *service).collect()
    }

    /// Finds the calls between two services by comparing all spans of the one with all spans of the
    /// other.
    fn obvious(requests: &[TraceRecords], caller: &str, callee: &str) -> Counts {
        let has_failed = |span: &SpanRecord| span.flags.contains(SpanFlags::PANICKED);
        let (mut of, mut took) = (Counts::default(), Distribution::default());
        for records in requests {
            let mut calls: Vec<(i64, bool)> = Vec::new();
            for parent in spans_of(records, caller) {
                let mut below = spans_of(records, callee);
                below.retain(|span| span.parent_id == parent.span_id);
                if parent.flags.contains(SpanFlags::CLIENT) && !below.is_empty() {
                    let any = has_failed(parent) || below.iter().any(|span| has_failed(span));
                    calls.push((parent.end_ns, any));
                } else {
                    calls.extend(below.iter().map(|span| (span.end_ns, has_failed(span))));
                }
            }
            of.0 += u64::from(!calls.is_empty());
            of.1 += calls.len() as u64;
            of.2 += calls.iter().filter(|call| call.1).count() as u64;
            calls.iter().for_each(|call| took.record(call.0 as u64));
        }
        of.3 = took.counts();
        of
    }

    proptest! {
        #[test]
        fn in_parts_it_is_the_obvious_one(
            requests in proptest::collection::vec(
                proptest::collection::vec((0usize..4, 0u64..10, any::<bool>(), 0u8..60, any::<bool>()), 0..10),
                0..6,
            ),
            cut in 0usize..6,
        ) {
            let requests: Vec<TraceRecords> =
                (1..).zip(&requests).map(|(id, spans)| request(id, spans)).collect();
            let (before, after) = requests.split_at(cut.min(requests.len()));
            let mut merged = map(after);
            merged.merge(map(before));
            for caller in SERVICES {
                for callee in SERVICES.into_iter().filter(|callee| *callee != caller) {
                    let pair: (Arc<str>, Arc<str>) = (caller.into(), callee.into());
                    prop_assert_eq!(counts(merged.calls.get(&pair)), obvious(&requests, caller, callee));
                }
                let spans = || requests.iter().map(|request| {
                    let spans = request.spans.iter().filter(|span| *span.service == *caller);
                    let failed = spans.clone().filter(|s| s.flags.contains(SpanFlags::PANICKED));
                    (spans.count() as u64, failed.count() as u64)
                });
                let found = merged.services.get(caller).cloned().unwrap_or_default();
                prop_assert_eq!(
                    (found.requests.rounded(), found.spans.rounded(), found.failed.rounded()),
                    (
                        spans().filter(|of| of.0 > 0).count() as u64,
                        spans().map(|of| of.0).sum::<u64>(),
                        spans().map(|of| of.1).sum::<u64>(),
                    )
                );
            }
            prop_assert!(merged.calls.keys().all(|(caller, callee)| caller != callee));
        }
    }

    #[test]
    fn what_finds_no_room_is_counted() {
        let shop = request(1, &[(2, 0, false, 9, false), (0, 1, false, 5, false)]);
        let mut full = ServiceMap::default();
        for number in 0..SERVICES_MAX {
            let name: Arc<str> = format!("s{number}").into();
            full.calls
                .insert((name.clone(), name.clone()), OperationTimes::default());
            full.services.insert(name, ServiceCounts::default());
        }
        full.see(&shop, shop.id, Weight::ONE);
        full.merge(map(&[shop]));
        assert_eq!((full.other_spans, full.other_calls), (4, 2));
        assert_eq!(
            (full.services.len(), full.calls.len()),
            (SERVICES_MAX, PAIRS_MAX)
        );
    }
}
