//! Where a thread of control went to another host and came back.

use crate::record::{EventRecord, SpanFlags, SpanRecord, TraceRecords};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// One estimate of how two clocks relate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoundTrip {
    /// The host that waited.
    pub client: Arc<str>,
    /// The host that it waited for.
    pub server: Arc<str>,
    /// The middle of the client's interval, by the client's clock, in nanoseconds since the Unix epoch.
    pub client_ns: i64,
    /// The middle of the server's interval, by the server's clock.
    pub server_ns: i64,
    /// The client's interval minus the server's: the time spent on the way.
    pub rtt_ns: u64,
}

impl RoundTrip {
    /// How far the server's clock is ahead of the client's.
    pub fn offset_ns(&self) -> i128 {
        i128::from(self.server_ns) - i128::from(self.client_ns)
    }

    /// How far the offset may be off: half the time on the way, and the nanosecond lost by taking middles.
    pub fn error_ns(&self) -> u64 {
        self.rtt_ns / 2 + 1
    }

    /// `None` where the server's interval is longer than the client's, which no offset explains.
    fn of(client: (&Arc<str>, i64, i64), server: (&Arc<str>, i64, i64)) -> Option<RoundTrip> {
        let length = |(_, from_ns, to_ns): (&Arc<str>, i64, i64)| i128::from(to_ns) - i128::from(from_ns);
        let middle_ns = |(_, from_ns, to_ns): (&Arc<str>, i64, i64)| {
            // Between two i64, so it is one.
            ((i128::from(from_ns) + i128::from(to_ns)).div_euclid(2)) as i64
        };
        let rtt_ns = u64::try_from(length(client) - length(server)).ok()?;
        Some(RoundTrip {
            client: client.0.clone(),
            server: server.0.clone(),
            client_ns: middle_ns(client),
            server_ns: middle_ns(server),
            rtt_ns,
        })
    }
}

/// Every round trip of a trace, and how many were impossible: the server took longer than the client waited, or events
/// of one host and task arrived against that host's own clock.
///
/// *Spans*: a span on another host than its parent, where the parent is a client's span or the child a server's, both
/// recorded whole. *Event logs*: a task's events in their order of arrival, where that agrees with each host's clock; the
/// thread of control is on A, then on B (and wherever B sends it), then on A again. The order of arrival must be the
/// thread's: a log sorted by skewed timestamps has lost what there is to find.
pub fn round_trips(records: &TraceRecords) -> (Vec<RoundTrip>, u64) {
    let (mut found, mut impossible) = (Vec::new(), 0);
    let mut add = |round_trip: Option<RoundTrip>| match round_trip {
        Some(round_trip) => found.push(round_trip),
        None => impossible += 1,
    };
    of_spans(&records.spans, &mut add);
    of_events(&records.events, &mut add);
    (found, impossible)
}

fn of_spans(spans: &[SpanRecord], add: &mut impl FnMut(Option<RoundTrip>)) {
    // Without a second host there is nothing to find, and nothing to pay for.
    if spans.windows(2).all(|pair| pair[0].host == pair[1].host) {
        return;
    }
    let by_id: FxHashMap<u64, &SpanRecord> = spans.iter().map(|span| (span.span_id, span)).collect();
    for child in spans.iter().filter(|span| span.parent_id != 0 && is_whole(span)) {
        let Some(parent) = by_id.get(&child.parent_id).filter(|parent| is_whole(parent)) else { continue };
        let waits = parent.flags.contains(SpanFlags::CLIENT) || child.flags.contains(SpanFlags::SERVER);
        if waits && are_two(&parent.host, &child.host) {
            let client = (&parent.host, parent.start_ns, parent.end_ns);
            add(RoundTrip::of(client, (&child.host, child.start_ns, child.end_ns)));
        }
    }
}

fn is_whole(span: &SpanRecord) -> bool {
    let cut = SpanFlags::CUT_OPEN.with(SpanFlags::CUT_CLOSE).with(SpanFlags::UNFINISHED);
    span.flags.0 & cut.0 == 0 && span.start_ns <= span.end_ns
}

/// An empty name stands for a host that nobody knows; two of them may be two hosts or one.
fn are_two(a: &str, b: &str) -> bool {
    a != b && !a.is_empty() && !b.is_empty()
}

/// A stretch of a task's events on one host.
struct Stay<'a> {
    host: &'a Arc<str>,
    from_ns: i64,
    to_ns: i64,
}

fn of_events(events: &[EventRecord], add: &mut impl FnMut(Option<RoundTrip>)) {
    if events.windows(2).all(|pair| pair[0].host == pair[1].host) {
        return;
    }
    let mut order: Vec<&EventRecord> = events.iter().collect();
    order.sort_by(|a, b| (&a.task, a.seq).cmp(&(&b.task, b.seq)));
    for task in order.chunk_by(|a, b| a.task == b.task) {
        let mut stays: Vec<Stay<'_>> = Vec::new();
        let mut latest: FxHashMap<&str, i64> = FxHashMap::default();
        let mut in_order = true;
        for event in task {
            let latest_ns = latest.entry(&event.host).or_insert(event.ts_ns);
            in_order &= *latest_ns <= event.ts_ns;
            *latest_ns = event.ts_ns;
            match stays.last_mut() {
                Some(stay) if *stay.host == event.host => stay.to_ns = event.ts_ns,
                _ => stays.push(Stay { host: &event.host, from_ns: event.ts_ns, to_ns: event.ts_ns }),
            }
        }
        match (in_order, stays.len()) {
            (false, 2..) => add(None),
            (true, 3..) => of_stays(&stays, add),
            _ => {}
        }
    }
}

fn of_stays(stays: &[Stay<'_>], add: &mut impl FnMut(Option<RoundTrip>)) {
    let mut next_stay: FxHashMap<&str, usize> = FxHashMap::default();
    for (at, client) in stays.iter().enumerate().rev() {
        if let Some(back) = next_stay.insert(client.host, at).filter(|back| *back > at + 1) {
            let (first, last) = (&stays[at + 1], &stays[back - 1]);
            // Whatever B sent the thread on to came back to B before A had it again.
            if first.host == last.host && are_two(client.host, first.host) {
                let interval = (client.host, client.to_ns, stays[back].from_ns);
                add(RoundTrip::of(interval, (first.host, first.from_ns, last.to_ns)));
            }
        }
    }
}
