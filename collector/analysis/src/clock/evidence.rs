//! Collects evidence about the clocks of all hosts, in bounded memory: the best round trips,
//! evidence for and against each pair's clocks as recorded, resolutions, and reports of kernels.
//! [`Alignment`](super::Alignment) has the offsets.

use super::kernel_clock::KernelClock;
use super::pair_evidence::{PairEvidence, RoundTripSample};
use super::resolution::{Resolution, Resolutions};
use super::round_trip::{Crossings, RoundTrip, in_order};
use crate::record::{HostClock, TraceRecords};
use crate::text_map::{AddressCache, TextMap};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Maximum number of distinct hosts that evidence lists, and of hosts with a kernel's report.
/// [`ClockEvidence::refused`] counts refusals of further hosts and of their pairs.
pub const HOSTS_MAX: usize = 4096;
/// Maximum number of time windows per ordered pair of hosts. Beyond it, windows double in length.
pub const WINDOWS_MAX: usize = 512;
/// Maximum number of ordered pairs of hosts, and of unordered ones.
const PAIRS_MAX: usize = 4 * HOSTS_MAX;
/// Initial length of a time window, as a power of two: 2³³ ns, 8.6 s.
const WINDOW_SHIFT_MIN: u32 = 33;

/// The round trip of lowest RTT in each time window, for one ordered pair of hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub(super) struct Windows {
    shift: u32,
    pub(super) best: BTreeMap<i64, RoundTrip>,
    pub(super) round_trips: u64,
}

impl Default for Windows {
    fn default() -> Windows {
        Windows {
            shift: WINDOW_SHIFT_MIN,
            best: BTreeMap::new(),
            round_trips: 0,
        }
    }
}

impl Windows {
    fn take(&mut self, round_trip: &RoundTrip) {
        let window = round_trip.client_ns >> self.shift;
        // Timestamps break ties, so that the order of traces does not matter.
        let rank = |r: &RoundTrip| (r.rtt_ns, r.client_ns, r.server_ns);
        let best = self.best.get(&window);
        if best.is_none_or(|best| rank(round_trip) < rank(best)) {
            self.best.insert(window, round_trip.clone());
        }
        while self.best.len() > WINDOWS_MAX {
            self.widen(self.shift + 1);
        }
    }

    fn widen(&mut self, shift: u32) {
        let narrow = std::mem::take(&mut self.best);
        self.shift = shift;
        narrow.values().for_each(|round_trip| self.take(round_trip));
    }

    fn merge(&mut self, other: &Windows) {
        if self.shift < other.shift {
            self.widen(other.shift);
        }
        other.best.values().for_each(|best| self.take(best));
        self.round_trips += other.round_trips;
    }
}

/// Evidence from traces and kernels about the clocks of hosts. Merging is commutative and
/// associative, as long as hosts, pairs and programs fit their limits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ClockEvidence {
    pub(super) pairs: TextMap<2, Windows>,
    pub(super) hosts: BTreeSet<Arc<str>>,
    /// Cache of texts that `hosts` contains.
    #[cfg_attr(feature = "serde", serde(skip))]
    known_hosts: AddressCache<1, ()>,
    /// Evidence by pair of hosts. The hosts of each pair are in order of name.
    pub(super) by_pair: TextMap<2, PairEvidence>,
    resolutions: Resolutions,
    pub(super) kernel_clocks: BTreeMap<Arc<str>, KernelClock>,
    disordered: u64,
    refused: u64,
}

impl ClockEvidence {
    /// Creates evidence without any observation.
    pub fn new() -> ClockEvidence {
        ClockEvidence::default()
    }

    /// Adds the evidence of one trace, whose timestamps must be as recorded, before any alignment.
    pub fn observe(&mut self, records: &TraceRecords) {
        self.take_hosts(records);
        self.resolutions.observe(records);
        let mut found = Crossings::of(records);
        // Sorting groups the round trips of a pair, so that few pairs are looked up twice. Any
        // order of pairs suffices, so names are compared by address.
        let address = |host: &Arc<str>| host.as_ptr() as usize;
        let pair = |r: &RoundTrip| (address(&r.client), address(&r.server));
        found.round_trips.sort_unstable_by_key(pair);
        for of_pair in found.round_trips.chunk_by(|a, b| pair(a) == pair(b)) {
            let (client, server) = (of_pair[0].client.clone(), of_pair[0].server.clone());
            if let Some(windows) = self.windows(&client, &server) {
                windows.round_trips += of_pair.len() as u64;
                of_pair.iter().for_each(|of| windows.take(of));
            }
            if let Some(evidence) = self.evidence(&client, &server) {
                for r in of_pair {
                    evidence.sample.take(seen(r, i128::from(r.rtt_ns)));
                }
            }
        }
        for impossible in found.impossible {
            let (round_trip, by_ns) = (&impossible.round_trip, impossible.by_ns);
            if let Some(evidence) = self.evidence(&round_trip.client, &round_trip.server) {
                evidence.impossible.take(by_ns);
                evidence.sample.take(seen(round_trip, -i128::from(by_ns)));
            }
        }
        for nested in found.nested {
            if let Some(evidence) = self.evidence(nested.parent, nested.child) {
                evidence.sticking_out.take(nested.sticks_out_ns);
                evidence.early.take(nested.early_ns);
            }
        }
        for task in found.tasks {
            self.disordered += u64::from(task.is_disordered);
            for (a, b) in &task.pairs {
                if let Some(evidence) = self.evidence(a, b) {
                    evidence.tasks += 1;
                    evidence.for_lines += u64::from(task.for_lines);
                    evidence.for_clocks += u64::from(task.for_clocks);
                    evidence.returns_by_time += u64::from(task.returns_by_time);
                }
            }
        }
    }

    /// Adds the kernel's report on a host's clock. Of several reports, the worst values hold.
    pub fn note_kernel(&mut self, host: &Arc<str>, said: KernelClock) {
        if let Some(known) = self.kernel_clocks.get_mut(host) {
            *known = known.worse(said);
        } else if self.kernel_clocks.len() < HOSTS_MAX {
            self.kernel_clocks.insert(host.clone(), said);
        } else {
            self.refused += 1;
        }
    }

    /// Adds other evidence.
    pub fn merge(&mut self, other: &ClockEvidence) {
        other.hosts.iter().for_each(|host| self.take_host(host));
        for (host, clock) in &other.kernel_clocks {
            self.note_kernel(host, *clock);
        }
        for ([client, server], windows) in other.pairs.iter() {
            if let Some(own) = self.windows(client, server) {
                own.merge(windows);
            }
        }
        for ([a, b], evidence) in other.by_pair.iter() {
            if let Some(own) = self.evidence(a, b) {
                own.merge(evidence);
            }
        }
        self.resolutions.merge(&other.resolutions);
        self.disordered += other.disordered;
        self.refused += other.refused;
    }

    /// Returns the number of round trips that neither an offset (see
    /// [`round_trips`](super::round_trips)) nor the resolutions of the clocks explain. The sum of
    /// both resolutions counts as the next power of ten above it. Includes the tasks of
    /// [`disordered`](Self::disordered).
    pub fn impossible(&self) -> u64 {
        let beyond = |([a, b], evidence): (&[Arc<str>; 2], &PairEvidence)| {
            let explained = match self.slop_ns(a, b) {
                0 => 0,
                slop_ns => evidence.impossible.upto(slop_ns),
            };
            evidence.impossible.all() - explained
        };
        self.by_pair.iter().map(beyond).sum::<u64>() + self.disordered
    }

    /// Returns the number of event-log tasks that cross hosts and whose lines from one host are not
    /// in the order of that host's timestamps.
    pub fn disordered(&self) -> u64 {
        self.disordered
    }

    /// Returns the resolution of a host's timestamps.
    pub fn resolution(&self, host: &str) -> Resolution {
        self.resolutions.get(host)
    }

    /// Returns the clocks of a trace's hosts with the resolutions known so far; empty if exact.
    pub fn resolved(&self, records: &TraceRecords) -> Vec<HostClock> {
        let of_host = |host: &Arc<str>| HostClock {
            resolution_ns: self.resolution(host).tick_ns.max(1),
            ..HostClock::exact(host.clone())
        };
        let mut clocks: Vec<HostClock> = records.hosts().into_iter().map(of_host).collect();
        if clocks.iter().all(HostClock::is_exact) {
            clocks.clear();
        }
        clocks
    }

    /// Returns the sum of the resolutions of two hosts, as the largest distance at which the order
    /// of their timestamps may be unknown.
    pub(super) fn slop_ns(&self, a: &str, b: &str) -> u64 {
        let [a, b] = [a, b].map(|host| self.resolution(host).tick_ns);
        a.saturating_add(b)
    }

    /// Returns the number of times that a limit refused a host or a pair of hosts.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    fn take_host(&mut self, host: &Arc<str>) {
        if self.hosts.contains(host) {
            return;
        }
        if self.hosts.len() < HOSTS_MAX {
            self.hosts.insert(host.clone());
        } else {
            self.refused += 1;
        }
    }

    /// Adds the hosts of a trace.
    fn take_hosts(&mut self, records: &TraceRecords) {
        let of_spans = records.spans.iter().map(|span| &span.host);
        let mut hosts = of_spans.chain(records.events.iter().map(|event| &event.host));
        if hosts.all(|host| self.known_hosts.get([host]).is_some()) {
            return;
        }
        for host in records.hosts() {
            self.take_host(host);
            if self.hosts.contains(host) {
                self.known_hosts.insert([host], ());
            }
        }
    }

    fn evidence(&mut self, a: &Arc<str>, b: &Arc<str>) -> Option<&mut PairEvidence> {
        let hosts = &self.hosts;
        let in_order = |[a, b]: [&Arc<str>; 2]| <[Arc<str>; 2]>::from(in_order(a, b));
        let fits = |pair: &[Arc<str>; 2], pairs| fits(hosts, pair, pairs);
        let found = self.by_pair.value_of([a, b], in_order, fits);
        self.refused += u64::from(found.is_none());
        found
    }

    fn windows(&mut self, client: &Arc<str>, server: &Arc<str>) -> Option<&mut Windows> {
        let hosts = &self.hosts;
        let as_given = |pair: [&Arc<str>; 2]| pair.map(Arc::clone);
        let fits = |pair: &[Arc<str>; 2], pairs| fits(hosts, pair, pairs);
        let found = self.pairs.value_of([client, server], as_given, fits);
        self.refused += u64::from(found.is_none());
        found
    }
}

/// Reports whether this pair may be added to this number of pairs. Its hosts must be listed.
fn fits(hosts: &BTreeSet<Arc<str>>, pair: &[Arc<str>; 2], pairs: usize) -> bool {
    pairs < PAIRS_MAX && pair.iter().all(|host| hosts.contains(host))
}

/// Converts a round trip to a sample, in which the first host by name is the client.
fn seen(round_trip: &RoundTrip, rtt_ns: i128) -> RoundTripSample {
    let (mut client_ns, mut server_ns) = (round_trip.client_ns, round_trip.server_ns);
    if round_trip.client > round_trip.server {
        std::mem::swap(&mut client_ns, &mut server_ns);
    }
    RoundTripSample {
        client_ns,
        server_ns,
        rtt_ns,
    }
}
