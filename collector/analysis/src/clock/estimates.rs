//! The best round trips between hosts, in bounded memory.

use super::alignment::Alignment;
use super::round_trip::{RoundTrip, round_trips};
use crate::record::TraceRecords;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// How many hosts are told apart. Records of others are left as they are, and counted.
pub const HOSTS_MAX: usize = 4096;
/// How many windows a pair of hosts has. Where there would be more, windows become twice as long.
pub const WINDOWS_MAX: usize = 512;
/// How many ordered pairs of hosts are kept.
const PAIRS_MAX: usize = 4 * HOSTS_MAX;
/// A window's length to start with, as a power of two: 2³³ ns, 8.6 s.
const WINDOW_SHIFT_MIN: u32 = 33;

/// The best round trip of each window, for one ordered pair of hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Windows {
    shift: u32,
    pub(super) best: BTreeMap<i64, RoundTrip>,
    pub(super) round_trips: u64,
}

impl Windows {
    fn new() -> Windows {
        Windows { shift: WINDOW_SHIFT_MIN, best: BTreeMap::new(), round_trips: 0 }
    }

    fn take(&mut self, round_trip: &RoundTrip) {
        let window = round_trip.client_ns >> self.shift;
        // The times only make the order total, so that the order of traces does not matter.
        let rank = |r: &RoundTrip| (r.rtt_ns, r.client_ns, r.server_ns);
        if self.best.get(&window).is_none_or(|best| rank(round_trip) < rank(best)) {
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
        other.best.values().for_each(|round_trip| self.take(round_trip));
        self.round_trips += other.round_trips;
    }
}

/// What the traces say about the clocks of their hosts. Merging is commutative and associative, as long as there are
/// no more hosts and pairs than fit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClockEstimates {
    pub(super) pairs: BTreeMap<(Arc<str>, Arc<str>), Windows>,
    pub(super) hosts: BTreeSet<Arc<str>>,
    impossible: u64,
    refused: u64,
}

impl ClockEstimates {
    /// Of no trace.
    pub fn new() -> ClockEstimates {
        ClockEstimates::default()
    }

    /// Takes one trace into account, as recorded: before any alignment.
    pub fn observe(&mut self, records: &TraceRecords) {
        for host in records.hosts() {
            self.take_host(host);
        }
        let (mut found, impossible) = round_trips(records);
        self.impossible += impossible;
        // Round trips of one pair are taken together, so that it is looked for once. Which allocations its names are in
        // decides nothing but the order, which does not matter.
        let address = |host: &Arc<str>| host.as_ptr() as usize;
        let pair = |r: &RoundTrip| (address(&r.client), address(&r.server));
        found.sort_unstable_by_key(pair);
        for of_pair in found.chunk_by(|a, b| pair(a) == pair(b)) {
            let (client, server) = (of_pair[0].client.clone(), of_pair[0].server.clone());
            if let Some(windows) = self.windows((client, server)) {
                windows.round_trips += of_pair.len() as u64;
                of_pair.iter().for_each(|round_trip| windows.take(round_trip));
            }
        }
    }

    /// Adds what others have seen.
    pub fn merge(&mut self, other: &ClockEstimates) {
        other.hosts.iter().for_each(|host| self.take_host(host));
        for (pair, windows) in &other.pairs {
            if let Some(own) = self.windows(pair.clone()) {
                own.merge(windows);
            }
        }
        self.impossible += other.impossible;
        self.refused += other.refused;
    }

    /// Round trips that no offset explains, see [`round_trips`].
    pub fn impossible(&self) -> u64 {
        self.impossible
    }

    /// How many times a host or a pair of hosts found no room.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Relates every host's clock to the clock of `reference`; without one, to that of the host with the most round
    /// trips (of several, the first by name).
    pub fn align(&self, reference: Option<&str>) -> Alignment {
        Alignment::of(self, reference)
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

    fn windows(&mut self, pair: (Arc<str>, Arc<str>)) -> Option<&mut Windows> {
        if self.pairs.len() >= PAIRS_MAX && !self.pairs.contains_key(&pair) {
            self.refused += 1;
            return None;
        }
        Some(self.pairs.entry(pair).or_insert_with(Windows::new))
    }
}
