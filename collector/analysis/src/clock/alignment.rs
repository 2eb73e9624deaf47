//! Alignment of the hosts' clocks to that of one reference host, as far as evidence connects them.

use super::anchors::{Anchor, Anchors};
use super::evidence::{ClockEvidence, HOSTS_MAX};
use super::island::{Neighbours, Step, Way, components, tie, tie_by_kernels, ways};
use super::kernel_clock::KernelClock;
use super::pair::{PairReport, lines, pair_reports, verdict};
use super::pair_evidence::{PairEvidence, Verdict};
use super::resolution::Resolution;
use super::round_trip::round_trips;
use crate::record::{HostClock, TraceRecords};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Corrections of timestamps to the clock of the reference host or, on an island without it, of the
/// island's host with the most round trips. See [`ClockEvidence::align`].
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Alignment {
    reference: Option<Arc<str>>,
    ways: BTreeMap<Arc<str>, Way>,
    unaligned: Vec<Arc<str>>,
    islands: Vec<Vec<Arc<str>>>,
    resolutions: BTreeMap<Arc<str>, Resolution>,
    pairs: Vec<PairReport>,
    verdicts: BTreeMap<(Arc<str>, Arc<str>), Verdict>,
    kernel_clocks: BTreeMap<Arc<str>, KernelClock>,
    disbelieved_lines: u64,
}

impl ClockEvidence {
    /// Relates the hosts' clocks to the clock of `reference`, as far as evidence connects them.
    /// Without a reference, chooses the host with the most round trips, the first by name.
    pub fn align(&self, reference: Option<&str>) -> Alignment {
        let of_host = |host: &Arc<str>| (host.clone(), self.resolution(host));
        let lines = lines(self);
        let judged = |(pair, of_pair): (&[Arc<str>; 2], &PairEvidence)| {
            let pair = <(Arc<str>, Arc<str>)>::from(pair.clone());
            let slop_ns = self.slop_ns(&pair.0, &pair.1);
            let judged = verdict(&pair, of_pair, lines.get(&pair), slop_ns)?;
            Some((pair, judged))
        };
        let verdicts: BTreeMap<_, _> = self.by_pair.iter().filter_map(judged).collect();
        let mut neighbours = neighbours(self, &verdicts, &lines);
        let tied = components(&self.hosts, &neighbours);
        tie_by_kernels(&tied, &self.kernel_clocks, &mut neighbours);
        let reference = match reference {
            Some(named) => Some(Arc::from(named)),
            None => busiest(self, self.hosts.iter()),
        };
        // A reference host without evidence is an island of its own.
        let hosts = self.hosts.iter().chain(&reference).cloned().collect();
        let mut tied = components(&hosts, &neighbours);
        let of_island =
            |hosts: &BTreeSet<Arc<str>>| reference.clone().filter(|of| hosts.contains(of));
        // The island of the reference host is the first.
        tied.sort_by_key(|hosts| of_island(hosts).is_none());
        let (mut all_ways, mut unaligned) = (BTreeMap::new(), Vec::new());
        for (island, hosts) in (0u32..).zip(&tied) {
            let own = of_island(hosts);
            if own.is_none() {
                unaligned.extend(hosts.iter().cloned());
            }
            if let Some(own) = own.or_else(|| busiest(self, hosts.iter())) {
                all_ways.append(&mut ways(&neighbours, &own, island));
            }
        }
        unaligned.sort_unstable();
        let pairs = self.by_pair.iter().map(|(_, of_pair)| of_pair);
        let disbelieved = pairs.filter(|of_pair| !of_pair.lines_are_in_order());
        let disbelieved_lines = disbelieved.map(|of_pair| of_pair.for_clocks).sum();
        let islands = tied.into_iter().map(Vec::from_iter).collect();
        Alignment {
            reference,
            ways: all_ways,
            unaligned,
            islands,
            resolutions: self.hosts.iter().map(of_host).collect(),
            pairs: pair_reports(self, &verdicts),
            verdicts,
            kernel_clocks: self.kernel_clocks.clone(),
            disbelieved_lines,
        }
    }
}

impl Alignment {
    /// Returns the host to whose clock the others on its island are corrected, or `None` if there
    /// is no host at all.
    pub fn reference(&self) -> Option<&str> {
        self.reference.as_deref()
    }

    /// Returns the hosts that are not on the reference host's island, by name. The order between
    /// their events and those of other hosts is unknown, except between hosts of one
    /// [island](Self::islands).
    pub fn unaligned(&self) -> &[Arc<str>] {
        &self.unaligned
    }

    /// Returns the sets of hosts that share a time. The reference host's set comes first.
    pub fn islands(&self) -> &[Vec<Arc<str>>] {
        &self.islands
    }

    /// Returns estimates and verdict for each ordered pair of hosts with round trips, by name.
    pub fn pairs(&self) -> &[PairReport] {
        &self.pairs
    }

    /// Returns the resolution of a host's timestamps; [`Resolution::EXACT`] for an unknown host.
    pub fn resolution(&self, host: &str) -> Resolution {
        let known = self.resolutions.get(host).copied();
        known.unwrap_or(Resolution::EXACT)
    }

    /// Returns the status of a host's clock as reported by its kernel, or `None` without a report.
    pub fn kernel_clock(&self, host: &str) -> Option<KernelClock> {
        self.kernel_clocks.get(host).copied()
    }

    /// Iterates over the hosts whose kernels report an unsynchronised clock, by name.
    pub fn unsynchronised(&self) -> impl Iterator<Item = &Arc<str>> {
        let off = self.kernel_clocks.iter().filter(|of| !of.1.synchronised);
        off.map(|(host, _)| host)
    }

    /// Iterates over the pairs of hosts with the verdict [`Verdict::Contradictory`], by name. Such
    /// a pair does not connect its hosts.
    pub fn contradictory(&self) -> impl Iterator<Item = &(Arc<str>, Arc<str>)> {
        let judged = self.verdicts.iter();
        let found = judged.filter(|(_, verdict)| **verdict == Verdict::Contradictory);
        found.map(|(pair, _)| pair)
    }

    /// Returns the number of event-log tasks that support the timestamps against the order of
    /// lines, over all pairs of hosts whose order of lines is disbelieved. A task that crosses
    /// several such pairs counts for each.
    pub fn disbelieved_lines(&self) -> u64 {
        self.disbelieved_lines
    }

    /// Reports whether any pair of clocks differs ([`Verdict::Differ`]).
    pub fn is_needed(&self) -> bool {
        self.verdicts.values().any(|of| *of == Verdict::Differ)
    }

    /// Reports whether every timestamp is exact as recorded and all hosts are on one island.
    pub fn is_exact(&self) -> bool {
        let mut resolutions = self.resolutions.values();
        self.ways.values().all(|way| *way == Way::default())
            && resolutions.all(|resolution| resolution.tick_ns == 0)
    }

    /// Reports whether `guess`, an alignment from fewer traces, treats every host like this
    /// alignment. A host that one of the two does not know counts as exact in it. Error bounds of
    /// agreeing clocks tighten as traces arrive, so the wider bounds of `guess` hold as well. They
    /// may be up to twice as wide.
    pub fn is_as(&self, guess: &Alignment) -> bool {
        let exact = Way::default();
        let does_alike = |host: &Arc<str>| {
            let [own, guessed] = [self, guess].map(|of| of.ways.get(host).unwrap_or(&exact));
            let is_way_alike = match (own.agreed_ns(), guessed.agreed_ns()) {
                (Some(own_ns), Some(guessed_ns)) => {
                    let widest_ns = own_ns.saturating_mul(2);
                    own.island == guessed.island && (own_ns..=widest_ns).contains(&guessed_ns)
                }
                _ => own == guessed,
            };
            is_way_alike && self.resolution(host).tick_ns == guess.resolution(host).tick_ns
        };
        self.ways.keys().chain(guess.ways.keys()).all(does_alike)
    }

    /// Removes all corrections and error bounds, and puts all hosts on one island. Timestamps stay
    /// as recorded, with their resolutions.
    #[must_use]
    pub fn trusting(mut self) -> Alignment {
        self.ways.values_mut().for_each(|way| *way = Way::default());
        self.verdicts.clear();
        self.unaligned.clear();
        self.islands = vec![self.resolutions.keys().cloned().collect()];
        self
    }

    /// Converts an instant on a host's clock to the reference host's clock, and returns it with its
    /// error bound in nanoseconds. Returns `None` for a host on another island.
    pub fn convert(&self, host: &str, at_ns: i64) -> Option<(i64, u64)> {
        let way = self.ways.get(host).filter(|way| way.island == 0);
        way.map(|way| way.convert(at_ns))
    }

    /// Reports whether the alignment takes every clock as recorded, so that durations stay.
    pub fn keeps_times(&self) -> bool {
        self.ways.values().all(|way| way.agreed_ns().is_some())
    }

    /// Corrects all timestamps of a trace, and notes the error bound, resolution and island of each
    /// host. Notes nothing if all clocks are exact. Keeps the order of one host's events. If the
    /// evidence is full ([`HOSTS_MAX`] hosts) and the clocks of its hosts do not all agree exactly,
    /// each unlisted host of the trace is an island of its own.
    pub fn apply(&self, records: &mut TraceRecords) {
        let exact = Way::default();
        let is_full =
            self.resolutions.len() >= HOSTS_MAX && self.ways.values().any(|way| *way != exact);
        let alone = u32::try_from(self.islands.len()).unwrap_or(u32::MAX);
        let of_host = |(at, host): (u32, &Arc<str>)| {
            let way = self.ways.get(host);
            HostClock {
                host: host.clone(),
                error_ns: way.and_then(Way::agreed_ns).unwrap_or(0),
                resolution_ns: self.resolution(host).tick_ns.max(1),
                island: match way {
                    Some(way) => way.island,
                    None if is_full => alone.saturating_add(at),
                    None => 0,
                },
            }
        };
        let hosts = (0_u32..).zip(records.hosts());
        let mut clocks: Vec<HostClock> = hosts.map(of_host).collect();
        self.correct(records, &mut clocks);
        if clocks.iter().all(HostClock::is_exact) {
            clocks.clear();
        }
        records.clocks = clocks;
    }

    /// Corrects the timestamps of the hosts whose clocks are not taken as recorded. `clocks` holds
    /// the clocks of the trace's hosts, in order of name. Sets the error bound of each corrected
    /// host's clock to the largest one of its timestamps.
    fn correct(&self, records: &mut TraceRecords, clocks: &mut [HostClock]) {
        let is_corrected = |way: &&Way| way.agreed_ns().is_none();
        let of_host = |host: &Arc<str>| self.ways.get(host).filter(is_corrected);
        if !clocks.iter().any(|clock| of_host(&clock.host).is_some()) {
            return;
        }
        let mut correct = |host: &Arc<str>, times_ns: &mut dyn Iterator<Item = &mut i64>| {
            let Some(way) = of_host(host) else {
                return;
            };
            let mut error_ns = 0;
            for time_ns in times_ns {
                let (corrected_ns, its_error_ns) = way.convert(*time_ns);
                *time_ns = corrected_ns;
                error_ns = error_ns.max(its_error_ns);
            }
            if let Ok(at) = clocks.binary_search_by(|clock| clock.host.cmp(host)) {
                clocks[at].error_ns = clocks[at].error_ns.max(error_ns);
            }
        };
        for span in &mut records.spans {
            let own = [&mut span.start_ns, &mut span.end_ns].into_iter();
            correct(
                &span.host,
                &mut own.chain(span.events.iter_mut().map(|event| &mut event.time_ns)),
            );
        }
        for event in &mut records.events {
            correct(&event.host, &mut [&mut event.ts_ns].into_iter());
        }
    }

    /// Counts the round trips of a trace, given as recorded, that contradict the alignment. Ignores
    /// round trips of hosts that are not on the reference host's island. A round trip contradicts
    /// the alignment if the aligned middles of both intervals are farther apart than the sum of all
    /// error bounds and both resolutions. A contradiction suggests that a clock was set, or that an
    /// event log's lines are not in the order of its threads.
    pub fn contradictions(&self, records: &TraceRecords) -> u64 {
        let contradicts = |r: &&super::RoundTrip| {
            let client = self.convert(&r.client, r.client_ns);
            let server = self.convert(&r.server, r.server_ns);
            let ticks_ns = [&r.client, &r.server].map(|host| self.resolution(host).tick_ns);
            client.zip(server).is_some_and(|(client, server)| {
                let errors_ns = [r.error_ns(), client.1, server.1, ticks_ns[0], ticks_ns[1]];
                let allowed_ns = errors_ns.into_iter().fold(0, u64::saturating_add);
                client.0.abs_diff(server.0) > allowed_ns
            })
        };
        round_trips(records).0.iter().filter(contradicts).count() as u64
    }
}

fn busiest<'a>(
    evidence: &ClockEvidence,
    hosts: impl Iterator<Item = &'a Arc<str>>,
) -> Option<Arc<str>> {
    let mut round_trips: BTreeMap<&Arc<str>, u64> = hosts.map(|host| (host, 0)).collect();
    for ([client, server], windows) in evidence.pairs.iter() {
        for host in [client, server] {
            if let Some(count) = round_trips.get_mut(host) {
                *count += windows.round_trips;
            }
        }
    }
    let counted = round_trips.into_iter();
    let most = counted.min_by_key(|(_, count)| Reverse(*count));
    most.map(|(host, _)| host.clone())
}

/// Returns the steps between the clocks of neighbouring hosts. The step between agreeing clocks
/// takes them as equal. Its error bound is [`Anchors::agreed_ns`] if the pair has a line of
/// offsets, event-log tasks cross both hosts, and their order of lines is accepted; otherwise 0.
/// The step between differing clocks is their line of offsets. If two clocks differ within a group
/// of agreeing ones, the agreeing pairs of the group that have a line use it too. Contradictory
/// pairs have no step.
fn neighbours(
    evidence: &ClockEvidence,
    verdicts: &BTreeMap<(Arc<str>, Arc<str>), Verdict>,
    lines: &BTreeMap<(Arc<str>, Arc<str>), Anchors>,
) -> Neighbours {
    let mut neighbours = Neighbours::new();
    let of = |wanted: Verdict| verdicts.iter().filter(move |of| *of.1 == wanted);
    for (pair, _) in of(Verdict::Agree) {
        let known = evidence.by_pair.get(&pair.clone().into());
        let is_crossed = known.is_some_and(PairEvidence::are_lines_compared);
        let line = lines.get(pair).filter(|_| is_crossed);
        let same = Step::Same(line.map_or(0, Anchors::agreed_ns));
        tie(&mut neighbours, (&pair.0, &pair.1), same.clone(), same);
    }
    let pairs = verdicts.keys();
    let hosts = pairs.flat_map(|(a, b)| [a.clone(), b.clone()]).collect();
    let agreeing = components(&hosts, &neighbours);
    let numbered = agreeing.iter().enumerate();
    let number_of: BTreeMap<&Arc<str>, usize> = numbered
        .flat_map(|(number, hosts)| hosts.iter().map(move |host| (host, number)))
        .collect();
    let together = |(a, b): &(Arc<str>, Arc<str>)| {
        let number = number_of.get(a).copied();
        number.filter(|number| number_of.get(b) == Some(number))
    };
    let differing = of(Verdict::Differ).map(|(pair, _)| pair);
    let torn: BTreeSet<usize> = differing.filter_map(together).collect();
    let is_torn = |pair: &(Arc<str>, Arc<str>)| together(pair).is_some_and(|at| torn.contains(&at));
    let measured = verdicts.iter().filter(|(pair, verdict)| match verdict {
        Verdict::Differ => true,
        Verdict::Agree => is_torn(pair),
        Verdict::Contradictory => false,
    });
    for (pair, _) in measured {
        if let Some(line) = lines.get(pair) {
            let back: Vec<Anchor> = line.list.clone();
            let forth: Vec<Anchor> = back.iter().map(|anchor| anchor.flipped()).collect();
            if let (Some(back), Some(forth)) = (Anchors::of(back), Anchors::of(forth)) {
                let (back, forth) = (Step::Line(Arc::new(back)), Step::Line(Arc::new(forth)));
                tie(&mut neighbours, (&pair.0, &pair.1), back, forth);
            }
        }
    }
    neighbours
}
