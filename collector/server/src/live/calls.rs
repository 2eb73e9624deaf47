//! Totals of spans by operation, and of calls between services, since the collector started.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rustc_hash::FxHashMap;
use stroboscope_analysis::by_root::OTHER_ROOTS;
use stroboscope_analysis::call::calls;
use stroboscope_analysis::name_rule::normalise;
use stroboscope_analysis::record::{SpanFlags, SpanRecord, TraceRecords};
use stroboscope_analysis::sampling::Weight;

use super::histogram::{Exemplar, LatencyHistogram};
use super::outcomes::Outcomes;
use super::totals::OperationTotals;

/// Maximum operations, and maximum edges. Each further one counts as [`OTHER_ROOTS`].
const KEYS_MAX: usize = 512;
/// Maximum keys remembered by their addresses. Beyond it, all are dropped at once.
const ADDRESSES_MAX: usize = 4_096;
/// Kinds of spans as OpenTelemetry's metrics name them.
const KINDS: [&str; 3] = ["SPAN_KIND_INTERNAL", "SPAN_KIND_SERVER", "SPAN_KIND_CLIENT"];

/// Service, kind and name of spans.
pub type SpanOperation = [Arc<str>; 3];
/// Calling service, called service, and name of the called operation.
pub type Edge = [Arc<str>; 3];

/// Totals of the calls along an edge.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EdgeTotals {
    pub outcomes: Outcomes,
    /// Durations of the spans that time the calls: clients' spans or, without these, called spans.
    pub client: LatencyHistogram,
    /// Durations of the called spans; if one call has several, of the first.
    pub server: LatencyHistogram,
}

/// Totals by three texts. The last text is a name in which ids are replaced.
///
/// Records share the texts of a service's names, so a look-up by addresses finds most keys without
/// comparing or copying texts.
#[derive(Debug)]
struct TotalsTable<V> {
    numbers: BTreeMap<[Arc<str>; 3], usize>,
    totals: Vec<V>,
    /// Indices in `totals`, by the addresses of a key's texts before ids were replaced.
    by_address: FxHashMap<[usize; 3], usize>,
    /// Texts in `by_address`: while they live, no other text has their addresses.
    texts: Vec<[Arc<str>; 3]>,
}

impl<V> Default for TotalsTable<V> {
    fn default() -> Self {
        Self {
            numbers: BTreeMap::new(),
            totals: Vec::new(),
            by_address: FxHashMap::default(),
            texts: Vec::new(),
        }
    }
}

impl<V: Clone + Default> TotalsTable<V> {
    fn of(&mut self, texts: [&Arc<str>; 3]) -> &mut V {
        let address = texts.map(|text| Arc::as_ptr(text).addr());
        let number = match self.by_address.get(&address) {
            Some(number) => *number,
            None => self.remember(address, texts.map(Arc::clone)),
        };
        &mut self.totals[number]
    }

    fn remember(&mut self, address: [usize; 3], texts: [Arc<str>; 3]) -> usize {
        if self.texts.len() >= ADDRESSES_MAX {
            self.by_address.clear();
            self.texts.clear();
        }
        let [first, second, name] = &texts;
        let key = [first.clone(), second.clone(), Arc::from(&*normalise(name))];
        let has_room = self.numbers.len() < KEYS_MAX || self.numbers.contains_key(&key);
        let other = || [(); 3].map(|()| Arc::from(OTHER_ROOTS));
        let next = self.totals.len();
        let key = if has_room { key } else { other() };
        let number = *self.numbers.entry(key).or_insert(next);
        if number == next {
            self.totals.push(V::default());
        }
        self.by_address.insert(address, number);
        self.texts.push(texts);
        number
    }

    fn all(&self) -> BTreeMap<[Arc<str>; 3], V> {
        let numbers = self.numbers.iter();
        numbers
            .map(|(key, number)| (key.clone(), self.totals[*number].clone()))
            .collect()
    }
}

/// Totals of spans and calls. Spans and calls of incomplete requests count as well.
#[derive(Debug)]
pub(super) struct SpanTotals {
    spans: TotalsTable<OperationTotals>,
    calls: TotalsTable<EdgeTotals>,
    kinds: [Arc<str>; 3],
}

impl Default for SpanTotals {
    fn default() -> Self {
        Self {
            spans: TotalsTable::default(),
            calls: TotalsTable::default(),
            kinds: KINDS.map(Arc::from),
        }
    }
}

impl SpanTotals {
    /// Counts the spans and calls of a request; `failed` has the ids of its failed spans.
    pub(super) fn count(&mut self, records: &TraceRecords, failed: &BTreeSet<u64>, weight: Weight) {
        let has_failed = |span: &SpanRecord| failed.contains(&span.span_id);
        let record = |histogram: &mut LatencyHistogram, span: &SpanRecord| {
            if span.is_whole() {
                let latest = Exemplar {
                    trace_id: records.stored_id(),
                    latency_ns: span.duration_ns(),
                    start_ns: span.start_ns,
                };
                histogram.record(latest, weight);
            }
        };
        for span in &records.spans {
            let kind = match span.flags {
                flags if flags.contains(SpanFlags::SERVER) => &self.kinds[1],
                flags if flags.contains(SpanFlags::CLIENT) => &self.kinds[2],
                _ => &self.kinds[0],
            };
            let totals = self.spans.of([&span.service, kind, &span.name]);
            totals.outcomes.count(has_failed(span), weight);
            record(&mut totals.latency, span);
        }
        for call in calls(&records.spans, has_failed) {
            let called = call.called;
            let edge = [&call.caller.service, &called.service, &called.name];
            let totals = self.calls.of(edge);
            totals.outcomes.count(call.has_failed, weight);
            record(&mut totals.client, call.timed());
            record(&mut totals.server, called);
        }
    }

    /// Iterates over the services of the counted operations, with repetitions. [`OTHER_ROOTS`] may
    /// be among them.
    pub(super) fn services(&self) -> impl Iterator<Item = &Arc<str>> {
        self.spans.numbers.keys().map(|[service, ..]| service)
    }

    pub(super) fn spans(&self) -> BTreeMap<SpanOperation, OperationTotals> {
        self.spans.all()
    }

    pub(super) fn calls(&self) -> BTreeMap<Edge, EdgeTotals> {
        self.calls.all()
    }
}

#[cfg(test)]
mod tests {
    use stroboscope_analysis::record::TraceId;

    use super::*;

    /// Id, parent, `service:name`, duration and flags of a span.
    type Span<'a> = (u64, u64, &'a str, i64, SpanFlags);

    const INTERNAL: SpanFlags = SpanFlags(0);

    fn request(spans: &[Span<'_>]) -> TraceRecords {
        let span = |&(span_id, parent_id, operation, took_ns, flags): &Span<'_>| {
            let (service, name) = operation.split_once(':').unwrap();
            SpanRecord {
                span_id,
                parent_id,
                service: service.into(),
                name: name.into(),
                host: "h".into(),
                process: 1,
                // Clocks of the services differ by hours.
                start_ns: 3_600_000_000_000 * span_id as i64,
                end_ns: 3_600_000_000_000 * span_id as i64 + took_ns,
                flags,
                events: Vec::new(),
            }
        };
        TraceRecords {
            id: TraceId(7),
            spans: spans.iter().map(span).collect(),
            ..TraceRecords::default()
        }
    }

    /// Describes the counts and sums of latencies, one key a line.
    fn text(totals: &SpanTotals) -> Vec<String> {
        let counts = |of: &Outcomes| format!("{} {}", of.all.rounded(), of.failed.rounded());
        let spans = totals
            .spans()
            .into_iter()
            .map(|([service, kind, name], of)| {
                let kind = kind.trim_start_matches("SPAN_KIND_");
                let (counts, sum_ns) = (counts(&of.outcomes), of.latency.sum_ns);
                format!("{service}:{name} {kind} {counts}, {sum_ns}")
            });
        let calls = totals
            .calls()
            .into_iter()
            .map(|([client, server, name], of)| {
                let (counts, sums) = (counts(&of.outcomes), (of.client.sum_ns, of.server.sum_ns));
                format!(
                    "{client} -> {server}:{name} {counts}, {} {}",
                    sums.0, sums.1
                )
            });
        spans.chain(calls).collect()
    }

    #[track_caller]
    fn check(spans: &[Span<'_>], failed: &[u64], weight: Weight, expected: &[&str]) {
        let mut totals = SpanTotals::default();
        totals.count(&request(spans), &failed.iter().copied().collect(), weight);
        assert_eq!(text(&totals), expected);
    }

    #[test]
    fn operations_and_edges_are_counted() {
        let (client, server) = (SpanFlags::CLIENT, SpanFlags::SERVER);
        // A retry is two calls. A call inside a service is none.
        check(
            &[
                (1, 0, "web:GET /item/17", 90, server),
                (2, 1, "web:call", 30, client),
                (3, 2, "shop:find", 20, server),
                (4, 1, "web:call", 40, client),
                (5, 4, "shop:find", 35, server),
                (6, 5, "shop:again", 9, server),
            ],
            &[3],
            Weight::ONE,
            &[
                "shop:again SERVER 1 0, 9",
                "shop:find SERVER 2 1, 55",
                "web:call CLIENT 2 0, 70",
                "web:GET /item/* SERVER 1 0, 90",
                "web -> shop:find 2 1, 70 55",
            ],
        );
        // A producer is no client span: the consumer, which outlasts it, times the call.
        let ten = Weight::of_threshold(9 * ((1 << 56) / 10));
        check(
            &[
                (1, 0, "web:send", 5, INTERNAL),
                (2, 1, "mail:receive", 700, INTERNAL),
                (3, 1, ":no service", 1, INTERNAL),
                (4, 99, "lost:parent", 3, server),
            ],
            &[],
            ten,
            &[
                ":no service INTERNAL 10 0, 10",
                "lost:parent SERVER 10 0, 30",
                "mail:receive INTERNAL 10 0, 7000",
                "web:send INTERNAL 10 0, 50",
                "web -> :no service 10 0, 10 10",
                "web -> mail:receive 10 0, 7000 7000",
            ],
        );
    }

    #[test]
    fn spans_without_their_end_have_no_latency() {
        let cut = SpanFlags::CLIENT.with(SpanFlags::UNFINISHED);
        check(
            &[
                (1, 0, "web:call", 30, cut),
                (2, 1, "shop:find", 20, SpanFlags::SERVER),
                (3, 0, "web:backwards", -5, INTERNAL),
            ],
            &[1],
            Weight::ONE,
            &[
                "shop:find SERVER 1 0, 20",
                "web:call CLIENT 1 1, 0",
                "web:backwards INTERNAL 1 0, 0",
                "web -> shop:find 1 1, 0 20",
            ],
        );
    }

    #[test]
    fn keys_and_addresses_are_bounded() {
        let mut totals = SpanTotals::default();
        for number in 0..ADDRESSES_MAX + 100 {
            let digits = number.to_string();
            let name: String = digits.bytes().map(|digit| (digit + 49) as char).collect();
            let called = format!("shop:{name}");
            let spans = [
                (1, 0, "web:call", 1, SpanFlags::CLIENT),
                (2, 1, &*called, 1, SpanFlags::SERVER),
            ];
            totals.count(&request(&spans), &BTreeSet::new(), Weight::ONE);
        }
        let (spans, calls) = (totals.spans(), totals.calls());
        assert_eq!((spans.len(), calls.len()), (KEYS_MAX + 1, KEYS_MAX + 1));
        let all = (ADDRESSES_MAX + 100) as u64;
        let spans: u64 = spans.values().map(|of| of.outcomes.all.recorded()).sum();
        let calls: u64 = calls.values().map(|of| of.outcomes.all.recorded()).sum();
        assert_eq!((spans, calls), (2 * all, all));
        for table in [&totals.spans.texts, &totals.calls.texts] {
            assert!(table.len() <= ADDRESSES_MAX);
        }
    }
}
