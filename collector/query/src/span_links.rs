//! Links between spans of different requests: the spans that a request follows, and those that
//! follow it.

use std::collections::HashMap;

use serde_json::Value;
use stroboscope_analysis::clock::Alignment;
use stroboscope_analysis::record::{RecordOwner, SpanFlags, SpanRecord, TraceId, TraceRecords};
use stroboscope_analysis::segment::ClockBounds;
use stroboscope_store::tables::{AttributeKeys, Damage, RowGroupFacts, RowProbe, StoreTable};

use super::query_error::QueryError;
use super::search::align;
use super::source::Source;

/// Attribute with the links of a span to other spans.
pub(super) const LINKS: &str = "links";
/// Maximum number of a request's links to read, and of traces that may link to it.
const LINKS_MAX: usize = 10_000;
/// Maximum number of links that are listed.
const LISTED_MAX: usize = 50;

/// Id of a span, which may be missing from the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StoredSpanId {
    /// Id of the trace that contains the span.
    pub trace: u128,
    pub span: u64,
}

/// Link of a span to its producer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SpanLink {
    pub(super) producer: StoredSpanId,
    /// Id of the span that has the link.
    pub(super) consumer: u64,
}

/// Span at one end of a link. Its times are aligned if the clocks were compared, else as recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkedSpan {
    /// Request that contains the span.
    pub request: TraceId,
    pub span: u64,
    /// `service:name`.
    pub operation: String,
    /// Root operation of the request.
    pub root: String,
    /// Start, in ns since the Unix epoch.
    pub start_ns: i64,
    /// End, not before the start, in ns since the Unix epoch.
    pub end_ns: i64,
    host: std::sync::Arc<str>,
    clock: ClockBounds,
    flags: SpanFlags,
}

/// Order of a producer's end and its consumer's begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LinkOrder {
    /// The producer ended before or when the consumer began.
    Before,
    /// The producer ended after the consumer began.
    Overlaps,
    /// The clocks do not tell the order, or it depends on an instant that was not recorded.
    Unknown,
}

/// Link whose two spans are in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Follow {
    pub producer: LinkedSpan,
    pub consumer: LinkedSpan,
    pub order: LinkOrder,
}

/// Links of one request to other requests, or of other requests to it.
#[derive(Clone, Debug, Default)]
pub struct Follows {
    /// First 50 links found, in order of [`LinkOrder`], then of the time between the producer's end
    /// and the consumer's begin.
    pub first: Vec<Follow>,
    /// Number of links of a request; for links to it, those found plus `unread`.
    pub links: u64,
    /// Number of links whose other span was found in the store.
    pub found: u64,
    /// Number of links found whose order is [`LinkOrder::Before`].
    pub before: u64,
    /// Number of links found whose order is unknown.
    pub unknown: u64,
    /// Number of unread links, or of unread traces that may link: those beyond the maximum of
    /// 10,000.
    pub unread: u64,
    /// Files that could not be read in full.
    pub damage: Vec<Damage>,
    /// End and id of the last producer that certainly ended before or when a linking span began, by
    /// the span's id.
    pub(super) latest: HashMap<u64, (i64, StoredSpanId)>,
}

impl LinkedSpan {
    fn of(span: &SpanRecord, records: &TraceRecords) -> Self {
        let clock = records.clocks.iter().find(|of| *of.host == *span.host);
        Self {
            request: records.id,
            span: span.span_id,
            operation: span.operation(),
            root: records.root_name().into_owned(),
            start_ns: span.start_ns,
            end_ns: span.end_ns.max(span.start_ns),
            host: span.host.clone(),
            clock: clock.map_or_else(ClockBounds::default, ClockBounds::of),
            flags: span.flags,
        }
    }

    fn is(&self, flags: &[SpanFlags]) -> bool {
        flags.iter().any(|flag| self.flags.contains(*flag))
    }
}

impl Follow {
    fn of(producer: LinkedSpan, consumer: LinkedSpan) -> Self {
        let is_one_clock = producer.host == consumer.host;
        let tolerance_ns = producer.clock.tolerance_ns(consumer.clock, is_one_clock);
        let wait_ns = i128::from(consumer.start_ns) - i128::from(producer.end_ns);
        let is_end_seen = !producer.is(&[SpanFlags::CUT_CLOSE, SpanFlags::UNFINISHED]);
        let is_start_seen = !consumer.is(&[SpanFlags::CUT_OPEN]);
        let tolerance = i128::from(tolerance_ns);
        let is_before = wait_ns >= 0 && (wait_ns > tolerance || tolerance == 0);
        let order = if tolerance_ns == u64::MAX {
            LinkOrder::Unknown
        } else if wait_ns < -tolerance {
            LinkOrder::Overlaps
        } else if is_before && is_end_seen && is_start_seen {
            LinkOrder::Before
        } else {
            LinkOrder::Unknown
        };
        Self {
            producer,
            consumer,
            order,
        }
    }

    /// Returns the time from the producer's end to the consumer's begin, in ns; `None` unless the
    /// order is [`LinkOrder::Before`].
    #[must_use]
    pub fn waited_ns(&self) -> Option<u64> {
        let is_known = self.order == LinkOrder::Before;
        is_known.then(|| self.consumer.start_ns.abs_diff(self.producer.end_ns))
    }
}

impl Follows {
    /// Returns the number of a request's links that were read and whose producer was not found; 0
    /// for links to it.
    #[must_use]
    pub fn missing(&self) -> u64 {
        self.links.saturating_sub(self.found + self.unread)
    }

    fn add(&mut self, follow: Follow, producer: StoredSpanId) {
        self.found += 1;
        match follow.order {
            LinkOrder::Before => {
                self.before += 1;
                let end = (follow.producer.end_ns, producer);
                let latest = self.latest.entry(follow.consumer.span).or_insert(end);
                *latest = end.max(*latest);
            }
            LinkOrder::Overlaps => {}
            LinkOrder::Unknown => self.unknown += 1,
        }
        self.first.push(follow);
        if self.first.len() >= 2 * LISTED_MAX {
            self.list();
        }
    }

    fn list(&mut self) {
        self.first.sort_by_key(|follow| {
            let (producer, consumer) = (&follow.producer, &follow.consumer);
            let ids = (producer.request, producer.span, consumer.request);
            let wait_ns = consumer.start_ns.abs_diff(producer.end_ns);
            (follow.order, wait_ns, ids, consumer.span)
        });
        self.first.truncate(LISTED_MAX);
    }
}

/// Returns the valid links of a trace's spans to spans of other traces, in order and without
/// repetitions. The records must have been read with the attribute [`LINKS`].
pub(super) fn links_of(records: &TraceRecords) -> Vec<SpanLink> {
    let own = records.stored_id();
    let mut links = Vec::new();
    for stated in &records.attributes {
        let RecordOwner::Span(consumer) = stated.owner else {
            continue;
        };
        if &*stated.key != LINKS {
            continue;
        }
        let list: Vec<Value> = serde_json::from_str(&stated.value).unwrap_or_default();
        links.extend(list.iter().filter_map(|link| {
            let trace: TraceId = link["trace_id"].as_str()?.parse().ok()?;
            let span: TraceId = link["span_id"].as_str()?.parse().ok()?;
            let producer = StoredSpanId {
                trace: trace.0,
                span: u64::try_from(span.0).ok()?,
            };
            (trace != own).then_some(SpanLink { producer, consumer })
        }));
    }
    links.sort_unstable();
    links.dedup();
    links
}

/// Finds the spans at the other ends of links.
#[derive(Clone, Copy)]
pub(super) struct LinkReader<'a> {
    pub(super) source: &'a Source,
    /// Correction of the timestamps; `None` to use them as recorded.
    pub(super) alignment: Option<&'a Alignment>,
}

impl LinkReader<'_> {
    /// Returns the links of a request. The records must have been read with the attribute
    /// [`LINKS`], and `alignment` must have corrected their timestamps.
    pub(super) fn followed(self, records: &TraceRecords) -> Result<Follows, QueryError> {
        let mut links = links_of(records);
        let mut follows = Follows {
            links: links.len() as u64,
            unread: links.len().saturating_sub(LINKS_MAX) as u64,
            ..Follows::default()
        };
        if links.is_empty() {
            return Ok(follows);
        }
        links.truncate(LINKS_MAX);
        let mut producers: HashMap<StoredSpanId, LinkedSpan> = HashMap::new();
        let traces = links.iter().map(|link| link.producer.trace).collect();
        let keys = AttributeKeys::none();
        let unread = self.source.for_each_of(traces, &keys, |request| {
            align(self.alignment, request);
            let trace = request.stored_id().0;
            for span in &request.spans {
                let id = StoredSpanId {
                    trace,
                    span: span.span_id,
                };
                let link = links.binary_search_by_key(&id, |link| link.producer);
                if link.is_err() {
                    continue;
                }
                // Of several spans with the same id, the first to start counts.
                let known = producers.get(&id);
                if known.is_none_or(|known| span.start_ns < known.start_ns) {
                    producers.insert(id, LinkedSpan::of(span, request));
                }
            }
        })?;
        follows.damage = unread.damage;
        let consumers = spans_by_id(records);
        for link in links {
            let consumer = consumers.get(&link.consumer);
            let Some((producer, consumer)) = producers.get(&link.producer).zip(consumer) else {
                continue;
            };
            let follow = Follow::of(producer.clone(), LinkedSpan::of(consumer, records));
            follows.add(follow, link.producer);
        }
        follows.list();
        Ok(follows)
    }

    /// Returns the links of other traces to a request. Searches the files that may have
    /// a span that begins after this request begins, or up to an hour before.
    pub(super) fn followers(self, records: &TraceRecords) -> Result<Follows, QueryError> {
        let own = records.stored_id().0;
        let (mut traces, damage) = self.source.linking_traces(records)?;
        let mut follows = Follows {
            unread: traces.len().saturating_sub(LINKS_MAX) as u64,
            damage,
            ..Follows::default()
        };
        traces.truncate(LINKS_MAX);
        if traces.is_empty() {
            return Ok(follows);
        }
        let producers = spans_by_id(records);
        let keys = AttributeKeys::of([LINKS]);
        let unread = self.source.for_each_of(traces, &keys, |request| {
            align(self.alignment, request);
            let links = links_of(request);
            let to_own = links.iter().filter(|link| link.producer.trace == own);
            let mut consumers = None;
            for link in to_own {
                let consumers = consumers.get_or_insert_with(|| spans_by_id(request));
                let producer = producers.get(&link.producer.span);
                let Some((producer, consumer)) = producer.zip(consumers.get(&link.consumer)) else {
                    continue;
                };
                let producer = LinkedSpan::of(producer, records);
                let follow = Follow::of(producer, LinkedSpan::of(consumer, request));
                follows.links += 1;
                follows.add(follow, link.producer);
            }
        })?;
        follows.links += follows.unread;
        follows.damage.extend(unread.damage);
        follows.list();
        Ok(follows)
    }
}

/// Returns the spans of a request by id; of several with the same id, the first to start.
fn spans_by_id(records: &TraceRecords) -> HashMap<u64, &SpanRecord> {
    let mut spans: HashMap<u64, &SpanRecord> = HashMap::new();
    for span in &records.spans {
        let known = spans.entry(span.span_id).or_insert(span);
        if span.start_ns < known.start_ns {
            *known = span;
        }
    }
    spans
}

/// Probe for spans that may have a link to a trace.
pub(super) struct LinkProbe {
    /// Hexadecimal id of the trace in lower case, without leading zeros. Ids with leading zeros
    /// contain it, too.
    id: String,
}

impl LinkProbe {
    pub(super) fn to(trace: TraceId) -> Self {
        let id = format!("{:x}", trace.0);
        Self { id }
    }

    /// Reports whether a text contains the id, possibly within another id. Some sources write ids
    /// in upper case.
    fn is_in(&self, links: &str) -> bool {
        links.contains(&self.id) || links.to_ascii_lowercase().contains(&self.id)
    }
}

impl RowProbe for LinkProbe {
    fn of_group(&self, group: &RowGroupFacts<'_>) -> u64 {
        if group.table() != StoreTable::Spans {
            return 0;
        }
        let links = group.attribute(LINKS);
        u64::from(links.is_unknown || links.texts.iter().any(|text| self.is_in(text)))
    }

    fn of_row(&self, row: &TraceRecords) -> u64 {
        let mut links = row.attributes.iter().filter(|one| &*one.key == LINKS);
        u64::from(links.any(|one| self.is_in(&one.value)))
    }
}

#[cfg(test)]
mod tests {
    use stroboscope_analysis::record::HostClock;

    use super::*;

    /// Returns the order of a producer that ends at 1,000 ns on host `a`, and a consumer.
    fn order(host: &str, start_ns: i64, flags: [SpanFlags; 2], clocks: &[HostClock]) -> LinkOrder {
        let span = |host: &str, start_ns, end_ns, flags| SpanRecord {
            span_id: 1,
            parent_id: 0,
            service: "s".into(),
            name: "n".into(),
            host: host.into(),
            process: 1,
            start_ns,
            end_ns,
            flags,
            events: Vec::new(),
        };
        let records = TraceRecords {
            clocks: clocks.to_vec(),
            ..TraceRecords::default()
        };
        let [of_producer, of_consumer] = flags;
        let producer = LinkedSpan::of(&span("a", 0, 1_000, of_producer), &records);
        let consumer = span(host, start_ns, 9_000, of_consumer);
        Follow::of(producer, LinkedSpan::of(&consumer, &records)).order
    }

    #[test]
    fn the_order_is_known_beyond_the_error_of_the_clocks() {
        use LinkOrder::{Before, Overlaps, Unknown};
        let clock = |host: &str, error_ns, resolution_ns, island| HostClock {
            error_ns,
            resolution_ns,
            island,
            ..HostClock::exact(host.into())
        };
        let check = |host, clocks: &[HostClock], expected: [(i64, LinkOrder); 3]| {
            for (start_ns, expected) in expected {
                let found = order(host, start_ns, [SpanFlags(0); 2], clocks);
                assert_eq!(found, expected, "{host} {start_ns} {clocks:?}");
            }
        };
        check(
            "b",
            &[],
            [(999, Overlaps), (1_000, Before), (1_001, Before)],
        );
        let wide = [clock("a", 30, 1, 0), clock("b", 20, 1, 0)];
        check(
            "b",
            &wide,
            [(949, Overlaps), (1_050, Unknown), (1_051, Before)],
        );
        // The errors of one clock do not change the order of its own instants.
        check(
            "a",
            &wide,
            [(999, Overlaps), (1_000, Before), (1_001, Before)],
        );
        let coarse = [clock("a", 0, 100, 0)];
        check(
            "a",
            &coarse,
            [(800, Overlaps), (1_100, Unknown), (1_200, Before)],
        );
        let apart = [clock("b", 0, 1, 1)];
        check(
            "b",
            &apart,
            [(0, Unknown), (1_000, Unknown), (9_000, Unknown)],
        );
    }

    #[test]
    fn edges_that_a_burst_cut_are_unknown() {
        use LinkOrder::{Before, Overlaps, Unknown};
        let none = SpanFlags(0);
        for (flags, expected) in [
            ([none, none], Before),
            ([SpanFlags::CUT_OPEN, SpanFlags::CUT_CLOSE], Before),
            ([SpanFlags::CUT_CLOSE, none], Unknown),
            ([SpanFlags::UNFINISHED, none], Unknown),
            ([none, SpanFlags::CUT_OPEN], Unknown),
        ] {
            assert_eq!(order("a", 2_000, flags, &[]), expected, "{flags:?}");
            // The unrecorded end was later, and the unrecorded start was earlier.
            assert_eq!(order("a", 500, flags, &[]), Overlaps, "{flags:?}");
        }
    }
}
