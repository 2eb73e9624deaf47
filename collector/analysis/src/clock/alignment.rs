//! Every host's clock, related to one of them.

use super::anchors::{Anchor, Anchors};
use super::estimates::ClockEstimates;
use super::round_trip::round_trips;
use crate::record::{HostClock, TraceRecords};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;

/// What is known about the clocks of an ordered pair of hosts.
#[derive(Clone, Debug, PartialEq)]
pub struct PairReport {
    /// The host that waited.
    pub client: Arc<str>,
    /// The host that it waited for.
    pub server: Arc<str>,
    /// How many round trips were seen.
    pub round_trips: u64,
    /// How far the server's clock is ahead of the client's, by the round trip of lowest RTT.
    pub offset_ns: i128,
    /// That lowest RTT.
    pub rtt_ns: u64,
    /// How far the offset may be off.
    pub error_ns: u64,
    /// How much the server's clock gains on the client's, in parts per million.
    pub drift_ppm: f64,
    /// How many windows of time have an estimate of their own that was better than its neighbours'.
    pub estimates: usize,
    /// How often one of the clocks was set: neighbouring estimates differ by more than drift and error explain.
    pub steps: usize,
}

/// A host's way to the reference host, one clock after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Way {
    steps: Vec<Arc<Anchors>>,
}

impl Way {
    fn convert(&self, at_ns: i64) -> (i64, u64) {
        self.steps.iter().fold((at_ns, 0), |(at_ns, error_ns), step| {
            let (at_ns, more_ns) = step.convert(at_ns);
            (at_ns, error_ns.saturating_add(more_ns))
        })
    }
}

/// How to correct timestamps to the reference host's clock. See [`ClockEstimates::align`].
#[derive(Clone, Debug, PartialEq)]
pub struct Alignment {
    reference: Option<Arc<str>>,
    ways: BTreeMap<Arc<str>, Way>,
    unaligned: Vec<Arc<str>>,
    pairs: Vec<PairReport>,
}

/// For each host, what leads from it to its neighbours.
type Neighbours = BTreeMap<Arc<str>, BTreeMap<Arc<str>, Arc<Anchors>>>;

impl Alignment {
    pub(super) fn of(estimates: &ClockEstimates, reference: Option<&str>) -> Alignment {
        let reference = match reference {
            Some(named) => Some(Arc::from(named)),
            None => busiest(estimates),
        };
        let neighbours = neighbours(estimates);
        let ways = reference.as_ref().map_or_else(BTreeMap::new, |reference| ways(&neighbours, reference));
        let unaligned = estimates.hosts.iter().filter(|host| !ways.contains_key(*host)).cloned().collect();
        Alignment { reference, ways, unaligned, pairs: pair_reports(estimates) }
    }

    /// The host whose clock the others are corrected to; none, if there is no host at all.
    pub fn reference(&self) -> Option<&str> {
        self.reference.as_deref()
    }

    /// Hosts that no chain of round trips relates to the reference host, by name. Their timestamps stay as recorded,
    /// and count as exact.
    pub fn unaligned(&self) -> &[Arc<str>] {
        &self.unaligned
    }

    /// What is known about each ordered pair of hosts, by name.
    pub fn pairs(&self) -> &[PairReport] {
        &self.pairs
    }

    /// Whether some pair's clocks are proven to differ. Where this is false, all clocks may be right as they are, and
    /// to correct them only trades exact orders for error bounds.
    pub fn is_needed(&self) -> bool {
        self.pairs.iter().any(|pair| pair.offset_ns.unsigned_abs() > u128::from(pair.error_ns))
    }

    /// An instant on a host's clock, by the reference host's clock; and how far that may be off. `None` for a host
    /// that is not aligned.
    pub fn convert(&self, host: &str, at_ns: i64) -> Option<(i64, u64)> {
        self.ways.get(host).map(|way| way.convert(at_ns))
    }

    /// Corrects all timestamps of a trace, and notes the error bound of each host's. The order of one host's events
    /// stays as it is.
    pub fn apply(&self, records: &mut TraceRecords) {
        let mut clocks: Vec<HostClock> = records
            .hosts()
            .into_iter()
            .filter(|host| self.ways.contains_key(*host))
            .map(|host| HostClock { host: host.clone(), error_ns: 0 })
            .collect();
        let mut correct = |host: &Arc<str>, times_ns: &mut dyn Iterator<Item = &mut i64>| {
            let Some(way) = self.ways.get(host) else { return };
            let mut error_ns = 0;
            for time_ns in times_ns {
                let (corrected_ns, its_error_ns) = way.convert(*time_ns);
                *time_ns = corrected_ns;
                error_ns = error_ns.max(its_error_ns);
            }
            // In order of name, as `hosts` gives them.
            if let Ok(at) = clocks.binary_search_by(|clock| clock.host.cmp(host)) {
                clocks[at].error_ns = clocks[at].error_ns.max(error_ns);
            }
        };
        for span in &mut records.spans {
            let own = [&mut span.start_ns, &mut span.end_ns].into_iter();
            correct(&span.host, &mut own.chain(span.events.iter_mut().map(|event| &mut event.time_ns)));
        }
        for event in &mut records.events {
            correct(&event.host, &mut [&mut event.ts_ns].into_iter());
        }
        records.clocks = clocks;
    }

    /// How many of a trace's round trips, as recorded, the alignment puts outside both their own error bounds and
    /// its: a sign that a clock was set, or that an event log's lines are not in the order of its threads.
    pub fn contradictions(&self, records: &TraceRecords) -> u64 {
        let contradicts = |r: &&super::RoundTrip| {
            let client = self.convert(&r.client, r.client_ns);
            let server = self.convert(&r.server, r.server_ns);
            client.zip(server).is_some_and(|((client_ns, client_error), (server_ns, server_error))| {
                let allowed = r.error_ns().saturating_add(client_error).saturating_add(server_error);
                client_ns.abs_diff(server_ns) > allowed
            })
        };
        round_trips(records).0.iter().filter(contradicts).count() as u64
    }
}

fn busiest(estimates: &ClockEstimates) -> Option<Arc<str>> {
    let mut round_trips: BTreeMap<&Arc<str>, u64> = estimates.hosts.iter().map(|host| (host, 0)).collect();
    for ((client, server), windows) in &estimates.pairs {
        *round_trips.entry(client).or_default() += windows.round_trips;
        *round_trips.entry(server).or_default() += windows.round_trips;
    }
    round_trips.into_iter().min_by_key(|(_, count)| Reverse(*count)).map(|(host, _)| host.clone())
}

/// Both directions of a pair say the same thing about its clocks, so their estimates go together.
fn neighbours(estimates: &ClockEstimates) -> Neighbours {
    let mut found: BTreeMap<(Arc<str>, Arc<str>), Vec<Anchor>> = BTreeMap::new();
    for ((client, server), windows) in &estimates.pairs {
        let to_client = || windows.best.values().map(Anchor::to_client);
        found.entry((server.clone(), client.clone())).or_default().extend(to_client());
        found.entry((client.clone(), server.clone())).or_default().extend(to_client().map(Anchor::flipped));
    }
    let mut neighbours = Neighbours::new();
    for ((from, to), anchors) in found {
        if let Some(anchors) = Anchors::of(anchors) {
            neighbours.entry(from).or_default().insert(to, Arc::new(anchors));
        }
    }
    neighbours
}

/// The ways of least total error to the reference host, by Dijkstra's algorithm.
fn ways(neighbours: &Neighbours, reference: &Arc<str>) -> BTreeMap<Arc<str>, Way> {
    let mut ways: BTreeMap<Arc<str>, Way> = BTreeMap::new();
    let mut open = BinaryHeap::from([Reverse((0u64, reference.clone(), reference.clone()))]);
    while let Some(Reverse((error_ns, host, next))) = open.pop() {
        if ways.contains_key(&host) {
            continue;
        }
        let first = neighbours.get(&host).and_then(|near| near.get(&next));
        let rest = ways.get(&next).map(|way| way.steps.clone()).unwrap_or_default();
        let steps = first.cloned().into_iter().chain(rest).collect();
        ways.insert(host.clone(), Way { steps });
        for (near, anchors) in neighbours.get(&host).into_iter().flatten() {
            if !ways.contains_key(near) {
                let total_ns = error_ns.saturating_add(anchors.mean_error_ns());
                open.push(Reverse((total_ns, near.clone(), host.clone())));
            }
        }
    }
    ways
}

fn pair_reports(estimates: &ClockEstimates) -> Vec<PairReport> {
    let mut reports = Vec::with_capacity(estimates.pairs.len());
    for ((client, server), windows) in &estimates.pairs {
        let best = windows.best.values().min_by_key(|r| (r.rtt_ns, r.client_ns, r.server_ns));
        let anchors = Anchors::of(windows.best.values().map(Anchor::to_client).collect());
        if let Some((best, anchors)) = best.zip(anchors) {
            reports.push(PairReport {
                client: client.clone(),
                server: server.clone(),
                round_trips: windows.round_trips,
                offset_ns: best.offset_ns(),
                rtt_ns: best.rtt_ns,
                error_ns: best.error_ns(),
                drift_ppm: anchors.drift_ppm(),
                estimates: anchors.list().len(),
                steps: anchors.steps,
            });
        }
    }
    reports
}
