//! The resolution of a host's timestamps, found from the timestamps themselves.
//!
//! The coarsest power of ten of nanoseconds, up to a second, that divides every timestamp is the resolution: recorders cut
//! to seconds, milliseconds and microseconds, kernels tick each 10 ms, other systems count by 100 ns. Below [`SURE_FROM`]
//! timestamps only milliseconds and microseconds count, as recorders that cut are common, and of a few timestamps another
//! power of ten divides all by chance.
//!
//! Starts and ends of spans are looked at apart: where only starts are whole milliseconds, ends are a start and a
//! duration of its own, finer resolution, and no better known than both together. Programs of one host are looked at apart as
//! well, as one that records whole milliseconds is not made better by its neighbours.

use crate::record::TraceRecords;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// From so many timestamps on, any power of ten is believed.
const SURE_FROM: u64 = 32;
/// The coarsest resolution that is looked for: a second.
const UNIT_MAX: u64 = 1_000_000_000;

/// The coarsest power of ten of nanoseconds that divides all of so many timestamps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Grain {
    unit_ns: u64,
    timestamps: u64,
}

impl Default for Grain {
    fn default() -> Grain {
        Grain {
            unit_ns: UNIT_MAX,
            timestamps: 0,
        }
    }
}

impl Grain {
    fn take(&mut self, at_ns: i64) {
        // Of a time that was never set everything is a divisor.
        if at_ns == 0 {
            return;
        }
        self.timestamps += 1;
        while self.unit_ns > 1 && !at_ns.unsigned_abs().is_multiple_of(self.unit_ns) {
            self.unit_ns /= 10;
        }
    }

    fn merge(&mut self, other: Grain) {
        // Of powers of ten, the lesser divides what either does.
        self.unit_ns = self.unit_ns.min(other.unit_ns);
        self.timestamps += other.timestamps;
    }

    fn resolution_ns(self) -> u64 {
        let whole = |units: &[u64]| {
            units
                .iter()
                .copied()
                .find(|unit| self.unit_ns >= *unit)
                .unwrap_or(1)
        };
        match self.timestamps {
            0 => 1,
            SURE_FROM.. => self.unit_ns,
            _ => whole(&[1_000_000, 1000]),
        }
    }
}

/// What one program's timestamps are whole multiples of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Grains {
    starts: Grain,
    ends: Grain,
    events: Grain,
}

/// The resolution of a host's timestamps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Resolution {
    /// All timestamps of the host's coarsest program are whole multiples of this; 1: nothing coarser was found.
    pub unit_ns: u64,
    /// How far apart two timestamps may be and yet of unknown order; 0, where they are exact.
    pub tick_ns: u64,
    /// From how many timestamps this was found.
    pub timestamps: u64,
}

impl Resolution {
    /// Of timestamps that are exact.
    pub const EXACT: Resolution = Resolution {
        unit_ns: 1,
        tick_ns: 0,
        timestamps: 0,
    };

    fn of(grains: &Grains) -> Resolution {
        let Grains {
            starts,
            ends,
            events,
        } = *grains;
        let [of_starts, of_ends, of_events] = [starts, ends, events].map(Grain::resolution_ns);
        // An end of another resolution than the starts is a start and a duration.
        let of_spans = if of_starts == of_ends {
            of_starts
        } else {
            of_starts + of_ends
        };
        let tick_ns = of_spans.max(of_events);
        Resolution {
            unit_ns: of_starts.max(of_ends).max(of_events),
            tick_ns: if tick_ns > 1 { tick_ns } else { 0 },
            timestamps: starts.timestamps + ends.timestamps + events.timestamps,
        }
    }

    fn coarser(self, other: Resolution) -> Resolution {
        Resolution {
            unit_ns: self.unit_ns.max(other.unit_ns),
            tick_ns: self.tick_ns.max(other.tick_ns),
            timestamps: self.timestamps + other.timestamps,
        }
    }
}

/// The resolutions of all hosts. Merging is commutative and associative, as long as there are no more programs than fit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Resolutions {
    /// By host and service.
    of: FxHashMap<Arc<str>, FxHashMap<Arc<str>, Grains>>,
    programs: usize,
}

/// How many programs are told apart.
const PROGRAMS_MAX: usize = 1 << 16;

impl Resolutions {
    pub(super) fn observe(&mut self, records: &TraceRecords) {
        for span in &records.spans {
            if let Some(grains) = self.grains(&span.host, &span.service) {
                grains.starts.take(span.start_ns);
                grains.ends.take(span.end_ns);
                span.events
                    .iter()
                    .for_each(|event| grains.events.take(event.time_ns));
            }
        }
        if !records.events.is_empty() {
            let service: Arc<str> = "".into();
            for event in &records.events {
                if let Some(grains) = self.grains(&event.host, &service) {
                    grains.events.take(event.ts_ns);
                }
            }
        }
    }

    pub(super) fn merge(&mut self, other: &Resolutions) {
        for (host, services) in &other.of {
            for (service, seen) in services {
                if let Some(grains) = self.grains(host, service) {
                    grains.starts.merge(seen.starts);
                    grains.ends.merge(seen.ends);
                    grains.events.merge(seen.events);
                }
            }
        }
    }

    /// Of a host: that of its coarsest program.
    pub(super) fn get(&self, host: &str) -> Resolution {
        let services = self.of.get(host).into_iter().flat_map(FxHashMap::values);
        services
            .map(Resolution::of)
            .fold(Resolution::EXACT, Resolution::coarser)
    }

    fn grains(&mut self, host: &Arc<str>, service: &Arc<str>) -> Option<&mut Grains> {
        let known = self
            .of
            .get(host)
            .is_some_and(|services| services.contains_key(service));
        if !known {
            if self.programs >= PROGRAMS_MAX {
                return None;
            }
            self.programs += 1;
            self.of
                .entry(host.clone())
                .or_default()
                .insert(service.clone(), Grains::default());
        }
        self.of.get_mut(host)?.get_mut(service)
    }
}
