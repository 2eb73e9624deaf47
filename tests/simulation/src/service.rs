//! A simulated service: it records spans, and observes the batches that its SDK builds.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use stroboscope::simulation::{Clock, LossCounters, RecordedSpan, Service, ShipEvent};
use stroboscope_fixtures::random::Random;
use stroboscope_proto::v1::ShipOutcome;

use crate::clock::{self, EPOCH_NS};
use crate::log::{Log, lock};

/// Clocks of a host. Its wall clock has an offset, runs fast or slow, and is stepped.
#[derive(Debug, Default)]
pub(crate) struct HostClock {
    pub(crate) skew_ns: AtomicI64,
    pub(crate) drift_ppm: AtomicI64,
}

impl Clock for HostClock {
    fn wall_ns(&self) -> i64 {
        let now_ns = clock::now_ns();
        let drift_ns = now_ns / 1_000_000 * self.drift_ppm.load(Relaxed);
        EPOCH_NS + now_ns + drift_ns + self.skew_ns.load(Relaxed)
    }

    fn monotonic_ns(&self) -> i64 {
        5_000_000_000 + clock::now_ns()
    }
}

/// One process of a service, from its start to its end.
pub(crate) struct Incarnation {
    pub(crate) id: u128,
    pub(crate) host: usize,
    pub(crate) name: String,
    pub(crate) losses: &'static LossCounters,
    clock: Arc<HostClock>,
    log: Log,
    known: Mutex<Known>,
}

/// State of a process.
pub(crate) struct Known {
    random: Random,
    /// Number of passes that record spans, per thousand.
    busy_per_mille: usize,
    next_span: u64,
    /// True if it records nothing more.
    pub(crate) is_quiet: bool,
    /// True if it was killed: its unshipped spans are gone, and not counted.
    pub(crate) is_killed: bool,
    pub(crate) has_ended: bool,
    pub(crate) recorded: u64,
    /// Span ids of the batches that the SDK has built, by sequence.
    pub(crate) batches: BTreeMap<u64, Vec<u64>>,
    /// Answered sequences, and whether the collector reported them as durable.
    pub(crate) acknowledged: BTreeMap<u64, bool>,
}

impl Incarnation {
    pub(crate) fn new(
        host: usize,
        number: usize,
        random: Random,
        busy_per_mille: usize,
        clock: Arc<HostClock>,
        log: Log,
    ) -> Self {
        let id = 1 + ((host as u128) << 8) + number as u128;
        Self {
            id,
            host,
            name: format!("sdk-{host}.{number}"),
            losses: LossCounters::leaked(),
            clock,
            log,
            known: Mutex::new(Known {
                random,
                busy_per_mille,
                next_span: (id as u64) << 32,
                is_quiet: false,
                is_killed: false,
                has_ended: false,
                recorded: 0,
                batches: BTreeMap::new(),
                acknowledged: BTreeMap::new(),
            }),
        }
    }

    pub(crate) fn known(&self) -> std::sync::MutexGuard<'_, Known> {
        lock(&self.known)
    }

    /// Returns the number of batches that the SDK has built and the collector has not answered.
    pub(crate) fn waiting(&self) -> usize {
        let known = self.known();
        let is_open = |sequence: &&u64| !known.acknowledged.contains_key(sequence);
        known.batches.keys().filter(is_open).count()
    }
}

impl Service for Incarnation {
    fn recorded(&self) -> (Vec<RecordedSpan>, u64) {
        let mut known = self.known();
        let busy_per_mille = known.busy_per_mille;
        if known.is_quiet || !known.random.happens(busy_per_mille) {
            return (Vec::new(), 0);
        }
        // Some bursts exceed a buffer.
        let most = [3, 3, 20, 2_000][known.random.below(4)];
        let spans = 1 + known.random.below(most);
        let lost = if known.random.happens(30) {
            1 + known.random.below(9) as u64
        } else {
            0
        };
        known.recorded += spans as u64 + lost;
        let start_ns = self.clock.wall_ns();
        let ids = known.next_span..known.next_span + spans as u64;
        known.next_span = ids.end;
        let span = |span_id| RecordedSpan {
            trace_id: u128::from(span_id),
            span_id,
            start_ns: start_ns - 2_000_000,
            duration_ns: 1_000_000,
        };
        (ids.map(span).collect(), lost)
    }

    fn notice(&self, happened: ShipEvent<'_>) {
        let mut known = self.known();
        match happened {
            ShipEvent::Kept(batch) => {
                let spans = batch.spans.as_ref();
                let ids = spans.map_or_else(Vec::new, |spans| spans.span_ids.clone());
                if let Entry::Vacant(new) = known.batches.entry(batch.sequence) {
                    self.log.add(
                        &self.name,
                        format_args!("batch {} of {} spans", batch.sequence, ids.len()),
                    );
                    new.insert(ids);
                }
            }
            ShipEvent::Connected => self.log.add(&self.name, "connected"),
            ShipEvent::Replied(reply) => {
                let outcome = ShipOutcome::try_from(reply.outcome);
                self.log.add(
                    &self.name,
                    format_args!("batch {}: {outcome:?} {}", reply.sequence, reply.detail),
                );
                let is_durable = !matches!(outcome, Ok(ShipOutcome::Refused));
                known.acknowledged.insert(reply.sequence, is_durable);
            }
            ShipEvent::Troubled(problem) => self.log.add(&self.name, problem),
        }
    }
}
