//! Determines the resolution of clocks from their timestamps.
//!
//! A program's resolution is the coarsest power of ten of nanoseconds, up to a second, that divides
//! nearly all of its timestamps. Recorders truncate to seconds, milliseconds and microseconds,
//! some clocks tick every 10 ms, and others count by 100 ns. One timestamp in ten is by chance a
//! multiple of the next power, so neither a few round timestamps nor a few odd ones decide. Fewer
//! than [`SURE_FROM`] timestamps of one kind have a resolution of milliseconds or microseconds if
//! that divides all of them, otherwise 1 ns. Other powers of ten too often divide a few timestamps
//! by chance.
//!
//! The kinds of timestamps are starts and ends of spans, and events. Each is judged separately. If
//! only starts are whole milliseconds, an end is a start plus a duration of finer resolution. The
//! order of such timestamps is unknown up to the sum of both resolutions. Programs of one host are
//! judged separately as well. The processes of one service that have few timestamps are judged
//! together.
//!
//! The clock of a host has the coarsest resolution for which at least one in [`COMMON_SHARE`] of
//! its timestamps has that or a coarser one. A service with few of the timestamps therefore does
//! not coarsen the others.

use crate::record::{SpanRecord, TraceRecords};
use crate::text_map::TextMap;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

/// Number of timestamps of one kind from which any power of ten is accepted, and only nearly all of
/// them must be its multiples. A process with as many timestamps in total is judged alone.
const SURE_FROM: u64 = 32;
/// Minimum share of [`SURE_FROM`] or more timestamps that a power of ten must divide, as numerator
/// and denominator. It is less than 1 because programs may add timestamps that they computed. With
/// one half, the evenly spaced times of a load generator would look coarse.
const NEARLY_ALL: (u64, u64) = (19, 20);
/// Number of powers of ten that are tried: 1 ns to 1 s.
const DECADES: usize = 10;
/// Inverse of the minimum share of a host's timestamps that must have a resolution, or a coarser
/// one, for the host to have it.
const COMMON_SHARE: u64 = 20;

/// Histogram of timestamps by the coarsest power of ten of nanoseconds, up to a second, that
/// divides them. Timestamps of 0 are left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
struct Grain([u64; DECADES]);

impl Grain {
    fn take(&mut self, at_ns: i64) {
        // A time that was never set is 0, which every unit divides.
        if at_ns == 0 {
            return;
        }
        let (mut rest, mut decade) = (at_ns.unsigned_abs(), 0);
        while decade + 1 < DECADES && rest.is_multiple_of(10) {
            rest /= 10;
            decade += 1;
        }
        self.0[decade] += 1;
    }

    fn merge(&mut self, other: Grain) {
        for (own, other) in self.0.iter_mut().zip(other.0) {
            *own += other;
        }
    }

    fn timestamps(self) -> u64 {
        self.0.iter().sum()
    }

    fn resolution_ns(self) -> u64 {
        let all = self.timestamps();
        let multiples = |decade: &usize| self.0[*decade..].iter().sum::<u64>();
        let nearly_all = |decade: &usize| multiples(decade) * NEARLY_ALL.1 >= all * NEARLY_ALL.0;
        let decade = match all {
            0 => None,
            SURE_FROM.. => (0..DECADES).rev().find(nearly_all),
            _ => [6, 3].into_iter().find(|decade| multiples(decade) == all),
        };
        10u64.pow(decade.unwrap_or(0) as u32)
    }
}

/// Histograms of timestamps, by their kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
struct Grains {
    starts: Grain,
    ends: Grain,
    events: Grain,
}

impl Grains {
    fn merge(&mut self, other: &Grains) {
        self.starts.merge(other.starts);
        self.ends.merge(other.ends);
        self.events.merge(other.events);
    }

    fn timestamps(&self) -> u64 {
        let kinds = [self.starts, self.ends, self.events];
        kinds.map(Grain::timestamps).iter().sum()
    }
}

/// Resolution of a host's timestamps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Resolution {
    /// Unit of the timestamps in nanoseconds, the coarsest one if starts, ends and events differ; 1
    /// if nothing coarser was found.
    pub unit_ns: u64,
    /// Largest distance in nanoseconds at which the order of timestamps is unknown; 0 if exact.
    pub tick_ns: u64,
    /// Number of timestamps of the programs that have this or a coarser resolution.
    pub timestamps: u64,
}

impl Resolution {
    /// Resolution of exact timestamps.
    pub const EXACT: Resolution = Resolution {
        unit_ns: 1,
        tick_ns: 0,
        timestamps: 0,
    };

    fn of(grains: &Grains) -> Resolution {
        let kinds = [grains.starts, grains.ends, grains.events];
        let [of_starts, of_ends, of_events] = kinds.map(Grain::resolution_ns);
        // If ends have another resolution than starts, an end is a start plus a duration.
        let of_durations = if of_starts == of_ends { 0 } else { of_ends };
        let tick_ns = (of_starts + of_durations).max(of_events);
        Resolution {
            unit_ns: of_starts.max(of_ends).max(of_events),
            tick_ns: if tick_ns > 1 { tick_ns } else { 0 },
            timestamps: grains.timestamps(),
        }
    }
}

/// Histograms of the timestamps of each process, by incarnation.
type ByProcess = BTreeMap<u128, Grains>;

/// Resolutions of all hosts. Merging is commutative and associative while the programs fit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub(super) struct Resolutions {
    /// Histograms by host, service, and incarnation of the process. Event logs have an empty
    /// service and incarnation 0.
    of: TextMap<2, ByProcess>,
    programs: usize,
}

/// Maximum number of distinct programs: processes, counted for each of their services, and event
/// logs of hosts. Timestamps of further programs are ignored.
const PROGRAMS_MAX: usize = 1 << 16;

impl Resolutions {
    pub(super) fn observe(&mut self, records: &TraceRecords) {
        let is_of_one = |a: &SpanRecord, b: &SpanRecord| {
            (&a.host, &a.service, a.process) == (&b.host, &b.service, b.process)
        };
        for spans in records.spans.chunk_by(is_of_one) {
            let of = &spans[0];
            if let Some(grains) = self.grains(&of.host, &of.service, of.process) {
                for span in spans {
                    grains.starts.take(span.start_ns);
                    grains.ends.take(span.end_ns);
                    for event in &span.events {
                        grains.events.take(event.time_ns);
                    }
                }
            }
        }
        if records.events.is_empty() {
            return;
        }
        let service: Arc<str> = "".into();
        for events in records.events.chunk_by(|a, b| a.host == b.host) {
            if let Some(grains) = self.grains(&events[0].host, &service, 0) {
                for event in events {
                    grains.events.take(event.ts_ns);
                }
            }
        }
    }

    pub(super) fn merge(&mut self, other: &Resolutions) {
        for ([host, service], processes) in other.of.iter() {
            for (process, seen) in processes {
                if let Some(grains) = self.grains(host, service, *process) {
                    grains.merge(seen);
                }
            }
        }
    }

    /// Returns the coarsest resolution for which at least one in [`COMMON_SHARE`] of a host's
    /// timestamps has that or a coarser one; [`Resolution::EXACT`] for a host without timestamps.
    pub(super) fn get(&self, host: &str) -> Resolution {
        let mut programs = self.programs(host);
        programs.sort_unstable_by_key(|program| Reverse((program.tick_ns, program.unit_ns)));
        let all: u64 = programs.iter().map(|program| program.timestamps).sum();
        let mut timestamps = 0;
        for alike in programs.chunk_by(|a, b| (a.tick_ns, a.unit_ns) == (b.tick_ns, b.unit_ns)) {
            timestamps += alike.iter().map(|program| program.timestamps).sum::<u64>();
            if timestamps * COMMON_SHARE >= all {
                return Resolution {
                    timestamps,
                    ..alike[0]
                };
            }
        }
        Resolution::EXACT
    }

    /// Returns the resolution of each process with at least [`SURE_FROM`] timestamps, and one for
    /// the remaining processes of each service together.
    fn programs(&self, host: &str) -> Vec<Resolution> {
        let mut found = Vec::new();
        let of_host = self.of.iter_from([host.into(), "".into()]);
        for (_, processes) in of_host.take_while(|([of, _], _)| **of == *host) {
            let mut together = Grains::default();
            for grains in processes.values() {
                match grains.timestamps() {
                    SURE_FROM.. => found.push(Resolution::of(grains)),
                    _ => together.merge(grains),
                }
            }
            found.push(Resolution::of(&together));
        }
        found
    }

    fn grains(
        &mut self,
        host: &Arc<str>,
        service: &Arc<str>,
        process: u128,
    ) -> Option<&mut Grains> {
        let as_given = |program: [&Arc<str>; 2]| program.map(Arc::clone);
        let fits = self.programs < PROGRAMS_MAX;
        let processes = self.of.value_of([host, service], as_given, |_, _| fits)?;
        match processes.entry(process) {
            Entry::Occupied(known) => Some(known.into_mut()),
            Entry::Vacant(_) if !fits => None,
            Entry::Vacant(new) => {
                self.programs += 1;
                Some(new.insert(Grains::default()))
            }
        }
    }
}
