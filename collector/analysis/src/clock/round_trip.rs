//! Finds round trips, in which a thread of control goes to another host and comes back.

use crate::record::{EventRecord, SpanFlags, SpanRecord, TraceRecords};
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;
use std::sync::Arc;

/// A round trip: one estimate of the offset between two clocks.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct RoundTrip {
    /// Host that waited.
    pub client: Arc<str>,
    /// Host that the client waited for.
    pub server: Arc<str>,
    /// Middle of the client's interval, by the client's clock, in nanoseconds since the Unix epoch.
    pub client_ns: i64,
    /// Middle of the server's interval, by the server's clock, in nanoseconds since the Unix epoch.
    pub server_ns: i64,
    /// Time spent on the way: the client's interval minus the server's; 0 if that is negative.
    pub rtt_ns: u64,
}

impl RoundTrip {
    /// Returns the lead of the server's clock over the client's, in nanoseconds.
    pub fn offset_ns(&self) -> i128 {
        i128::from(self.server_ns) - i128::from(self.client_ns)
    }

    /// Returns the error bound of the offset in nanoseconds: half of the round-trip delay, plus the
    /// nanosecond lost by taking middles.
    pub fn error_ns(&self) -> u64 {
        self.rtt_ns / 2 + 1
    }

    fn of(client: &Stay<'_>, server: &Stay<'_>) -> Result<RoundTrip, Impossible> {
        let length = |of: &Stay<'_>| i128::from(of.to_ns) - i128::from(of.from_ns);
        let middle_ns = |of: &Stay<'_>| {
            // The middle lies between two i64, so it fits.
            ((i128::from(of.from_ns) + i128::from(of.to_ns)).div_euclid(2)) as i64
        };
        let rtt_ns = length(client) - length(server);
        let round_trip = RoundTrip {
            client: client.host.clone(),
            server: server.host.clone(),
            client_ns: middle_ns(client),
            server_ns: middle_ns(server),
            rtt_ns: u64::try_from(rtt_ns).unwrap_or(0),
        };
        match u64::try_from(-rtt_ns) {
            Ok(by_ns) if by_ns > 0 => Err(Impossible { round_trip, by_ns }),
            _ => Ok(round_trip),
        }
    }
}

/// A round trip that no offset explains: the server's interval is longer than the client's.
#[derive(Clone, Debug)]
pub(super) struct Impossible {
    /// The round trip, with 0 as its time on the way.
    pub(super) round_trip: RoundTrip,
    pub(super) by_ns: u64,
}

/// A span and its parent on hosts of different names, both recorded whole. Excludes spans for which
/// the parent is known to wait, if both hosts are known.
#[derive(Clone, Debug)]
pub(super) struct NestedSpan<'a> {
    pub(super) parent: &'a Arc<str>,
    pub(super) child: &'a Arc<str>,
    pub(super) sticks_out_ns: u64,
    pub(super) early_ns: u64,
}

/// Evidence from one trace about its hosts' clocks.
#[derive(Default)]
pub(super) struct Crossings<'a> {
    pub(super) round_trips: Vec<RoundTrip>,
    pub(super) impossible: Vec<Impossible>,
    pub(super) nested: Vec<NestedSpan<'a>>,
    /// Event-log tasks on several hosts.
    pub(super) tasks: Vec<TaskOrders>,
}

impl<'a> Crossings<'a> {
    fn add(&mut self, found: Result<RoundTrip, Impossible>) {
        match found {
            Ok(round_trip) => self.round_trips.push(round_trip),
            Err(impossible) => self.impossible.push(impossible),
        }
    }

    pub(super) fn of(records: &'a TraceRecords) -> Crossings<'a> {
        let mut crossings = Crossings::default();
        of_spans(&records.spans, &mut crossings);
        of_events(&records.events, &mut crossings);
        crossings
    }
}

/// Returns the possible round trips of a trace, and the number of impossible ones. A round trip is
/// impossible if the server took longer than the client waited. A task on several hosts also counts
/// as impossible if its events on one host did not arrive in order of time.
///
/// *Spans*: a span on another host than its parent is a round trip if the parent is a client span
/// or the child a server span. Both must have been recorded whole, on known hosts.
///
/// *Event logs*: a task's events are read in their order of arrival, if it agrees with each host's
/// timestamps. If the thread of control is on A, then on B and the hosts that B calls, then on A
/// again, B made a round trip. If it goes from A to B, then to C and from C back to A, both B and C
/// made one. The time on the way is the time that no visited host spent. These round trips are
/// correct only if the order of arrival is the order of control, which
/// [`ClockEvidence`](super::ClockEvidence) judges.
pub fn round_trips(records: &TraceRecords) -> (Vec<RoundTrip>, u64) {
    let crossings = Crossings::of(records);
    let tasks = crossings.tasks.iter();
    let disordered = tasks.filter(|task| task.is_disordered).count();
    let impossible = crossings.impossible.len() + disordered;
    (crossings.round_trips, impossible as u64)
}

fn of_spans<'a>(spans: &'a [SpanRecord], crossings: &mut Crossings<'a>) {
    // A trace on one host has no round trips.
    if spans.windows(2).all(|pair| pair[0].host == pair[1].host) {
        return;
    }
    let by_id: foldhash::HashMap<u64, &SpanRecord> =
        spans.iter().map(|span| (span.span_id, span)).collect();
    let is_child = |span: &&SpanRecord| span.parent_id != 0 && span.is_whole();
    for child in spans.iter().filter(is_child) {
        let parent = by_id.get(&child.parent_id);
        let Some(parent) = parent.filter(|parent| parent.is_whole()) else {
            continue;
        };
        let waits =
            parent.flags.contains(SpanFlags::CLIENT) || child.flags.contains(SpanFlags::SERVER);
        if waits && are_two(&parent.host, &child.host) {
            crossings.add(RoundTrip::of(&Stay::of(parent), &Stay::of(child)));
        } else if parent.host != child.host {
            let early_ns = interval(child.start_ns, parent.start_ns);
            crossings.nested.push(NestedSpan {
                parent: &parent.host,
                child: &child.host,
                sticks_out_ns: early_ns.max(interval(parent.end_ns, child.end_ns)),
                early_ns,
            });
        }
    }
}

/// Returns the nanoseconds from the first instant to the second, or 0 if the second is earlier.
fn interval(from_ns: i64, to_ns: i64) -> u64 {
    to_ns.max(from_ns).abs_diff(from_ns)
}

/// Reports whether both names are known and differ. An empty name stands for an unknown host.
fn are_two(a: &str, b: &str) -> bool {
    a != b && !a.is_empty() && !b.is_empty()
}

/// Consecutive events of a task on one host, a visit to it (see [`of_ring`]), or a span.
struct Stay<'a> {
    host: &'a Arc<str>,
    from_ns: i64,
    to_ns: i64,
}

impl<'a> Stay<'a> {
    fn of(span: &'a SpanRecord) -> Stay<'a> {
        Stay {
            host: &span.host,
            from_ns: span.start_ns,
            to_ns: span.end_ns,
        }
    }

    fn length_ns(&self) -> i64 {
        self.to_ns.saturating_sub(self.from_ns)
    }
}

/// Comparison of two orders of a task's events: that of the lines and that of the timestamps. If
/// control returns to its first host in only one of them, that order is the more plausible one.
///
/// Lines merged from several hosts arrive late by their shipping time, so their order may not be
/// the order of control. The order of timestamps may be wrong too, if clocks are off. As neither is
/// known to be right, a task counts for the order that explains it better, if one does.
#[derive(Clone, Debug)]
pub(super) struct TaskOrders {
    /// Pairs of hosts between which the task moves, each in order of name.
    pub(super) pairs: BTreeSet<(Arc<str>, Arc<str>)>,
    /// True if lines from one host are not in the order of that host's timestamps.
    pub(super) is_disordered: bool,
    /// True if only the order of lines returns to the first host, and `is_disordered` is false.
    pub(super) for_lines: bool,
    /// True if only the order of timestamps returns to the first host, or if `is_disordered`.
    pub(super) for_clocks: bool,
    /// True if the task returns to its first host in the order of timestamps.
    pub(super) returns_by_time: bool,
}

fn stays_of<'a>(events: &[&'a EventRecord]) -> Vec<Stay<'a>> {
    let mut stays: Vec<Stay<'_>> = Vec::new();
    for event in events {
        match stays.last_mut() {
            Some(stay) if *stay.host == event.host => stay.to_ns = event.ts_ns,
            _ => stays.push(Stay {
                host: &event.host,
                from_ns: event.ts_ns,
                to_ns: event.ts_ns,
            }),
        }
    }
    stays
}

fn of_events(events: &[EventRecord], crossings: &mut Crossings<'_>) {
    if events.windows(2).all(|pair| pair[0].host == pair[1].host) {
        return;
    }
    let mut order: Vec<&EventRecord> = events.iter().collect();
    order.sort_by(|a, b| (&a.task, a.seq).cmp(&(&b.task, b.seq)));
    for task in order.chunk_by(|a, b| a.task == b.task) {
        let stays = stays_of(task);
        if stays.len() < 2 {
            continue;
        }
        let mut latest: FxHashMap<&str, i64> = FxHashMap::default();
        let mut is_disordered = false;
        for event in task {
            let latest_ns = latest.entry(&event.host).or_insert(event.ts_ns);
            is_disordered |= *latest_ns > event.ts_ns;
            *latest_ns = event.ts_ns;
        }
        let mut by_time = task.to_vec();
        by_time.sort_by_key(|event| (event.ts_ns, event.seq));
        let by_time = stays_of(&by_time);
        let orders = compare(&stays, &by_time, is_disordered);
        crossings.tasks.push(orders);
        if !is_disordered {
            of_stays(&stays, crossings);
        }
    }
}

fn compare(by_line: &[Stay<'_>], by_time: &[Stay<'_>], is_disordered: bool) -> TaskOrders {
    let is_open =
        |stays: &[Stay<'_>]| stays.first().map(|s| s.host) != stays.last().map(|s| s.host);
    // The number of host changes is no criterion: wrong clocks can lower it or raise it.
    let better = |stays: &[Stay<'_>], than: &[Stay<'_>]| !is_open(stays) && is_open(than);
    let moves = by_line.windows(2).chain(by_time.windows(2));
    let pairs = moves.map(|pair| in_order(pair[0].host, pair[1].host));
    TaskOrders {
        pairs: pairs.collect(),
        is_disordered,
        for_lines: !is_disordered && better(by_line, by_time),
        for_clocks: is_disordered || better(by_time, by_line),
        returns_by_time: !is_open(by_time) && by_time.len() > 2,
    }
}

pub(super) fn in_order(a: &Arc<str>, b: &Arc<str>) -> (Arc<str>, Arc<str>) {
    if a <= b {
        (a.clone(), b.clone())
    } else {
        (b.clone(), a.clone())
    }
}

fn of_stays(stays: &[Stay<'_>], crossings: &mut Crossings<'_>) {
    let mut next_stay: FxHashMap<&str, usize> = FxHashMap::default();
    for (at, client) in stays.iter().enumerate().rev() {
        let back = next_stay.insert(client.host, at);
        if let Some(back) = back.filter(|back| *back > at + 1) {
            of_ring(client, &stays[at + 1..back], &stays[back], crossings);
        }
    }
}

/// Adds the round trips from a host, via the stays in between, back to it. A visited host gets
/// control back from the hosts that it calls, before it passes control on to the next. So its visit
/// lasts from its first stay to its last, by its own clock, and visits do not overlap.
fn of_ring(
    client: &Stay<'_>,
    between: &[Stay<'_>],
    back: &Stay<'_>,
    crossings: &mut Crossings<'_>,
) {
    let mut visits: Vec<Stay<'_>> = Vec::new();
    let mut at = 0;
    while let Some(first) = between.get(at) {
        let last = between.iter().rposition(|stay| stay.host == first.host);
        let last = last.unwrap_or(at);
        visits.push(Stay {
            host: first.host,
            from_ns: first.from_ns,
            to_ns: between[last].to_ns,
        });
        at = last + 1;
    }
    let lengths_ns = visits.iter().map(Stay::length_ns);
    let all_ns = lengths_ns.fold(0, i64::saturating_add);
    let mut before_ns = 0i64;
    for visit in &visits {
        let left_ns = all_ns.saturating_sub(before_ns);
        let after_ns = left_ns.saturating_sub(visit.length_ns());
        // The time of the other visits does not count as time on the way to this host.
        let waited = Stay {
            host: client.host,
            from_ns: client.to_ns.saturating_add(before_ns),
            to_ns: back.from_ns.saturating_sub(after_ns),
        };
        if are_two(client.host, visit.host) {
            crossings.add(RoundTrip::of(&waited, visit));
        }
        before_ns = before_ns.saturating_add(visit.length_ns());
    }
}
