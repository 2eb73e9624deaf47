//! One request, as its services record it.

use super::effects::Effects;
use super::fault::{Fault, FaultKind, Site};
use super::random::{Random, seed_of};
use super::system::{Call, System};
use std::collections::HashMap;
use std::sync::Arc;
use stroboscope_analysis::flow::ERROR;
use stroboscope_analysis::record::{
    AttributeRecord, HostClock, RecordOwner, SpanFlags, SpanRecord, TraceId, TraceRecords,
};

/// First instant of all simulations.
pub(crate) const ORIGIN_NS: i64 = 1_700_000_000_000_000_000;

/// Facts about a span that its record does not contain.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Note {
    pub(crate) operation: usize,
    /// Site of the call that started it.
    pub(crate) site: Option<Site>,
    /// True if it is a client span, in which the caller waits.
    pub(crate) is_client: bool,
    /// True if the operation fails by itself, whether or not its calls fail.
    pub(crate) is_origin: bool,
}

/// A request, with facts that its records do not contain.
#[derive(Clone, Debug)]
pub(crate) struct Simulated {
    pub(crate) records: TraceRecords,
    /// Facts about each span.
    pub(crate) notes: Vec<Note>,
    /// Number of the request's burst.
    pub(crate) burst: u64,
}

impl Simulated {
    pub(crate) fn latency_ns(&self) -> f64 {
        let root = &self.records.spans[0];
        (root.end_ns - root.start_ns) as f64
    }

    /// Returns the operation of each span that is not a client span.
    pub(crate) fn operations(&self) -> impl Iterator<Item = usize> {
        let served = self.notes.iter().filter(|note| !note.is_client);
        served.map(|note| note.operation)
    }

    pub(crate) fn calls_of(&self, operation: usize) -> usize {
        self.operations().filter(|of| *of == operation).count()
    }

    /// Returns the part of each span's time that no child covers.
    pub(crate) fn self_ns(&self) -> Vec<f64> {
        let spans = &self.records.spans;
        let mut children: HashMap<u64, Vec<(i64, i64)>> = HashMap::new();
        for span in spans {
            children
                .entry(span.parent_id)
                .or_default()
                .push((span.start_ns, span.end_ns));
        }
        spans
            .iter()
            .map(|span| {
                let mut of_span = children.remove(&span.span_id).unwrap_or_default();
                of_span.sort_unstable();
                let (mut own_ns, mut at_ns) = (0, span.start_ns);
                for (start_ns, end_ns) in of_span {
                    own_ns += (start_ns.min(span.end_ns) - at_ns).max(0);
                    at_ns = at_ns.max(end_ns);
                }
                (own_ns + (span.end_ns - at_ns).max(0)) as f64
            })
            .collect()
    }
}

/// Simulation of one request.
pub(crate) struct Running<'a> {
    pub(crate) system: &'a System,
    pub(crate) fault: Option<&'a Fault>,
    pub(crate) effects: Effects<'a>,
    pub(crate) seed: u64,
    pub(crate) records: TraceRecords,
    pub(crate) notes: Vec<Note>,
}

/// End of an execution or of a site's calls in nanoseconds since [`ORIGIN_NS`], and its failure.
type Outcome = (f64, bool);

impl Running<'_> {
    /// Runs a request from its root operation. Spans and notes have the same order, in which
    /// parents come before their children.
    pub(crate) fn run(mut self, root: usize, start_ns: f64) -> (TraceRecords, Vec<Note>) {
        self.records.id = TraceId(u128::from(self.seed));
        let seed = self.seed;
        self.serve(root, None, 0, start_ns, seed);
        let mut hosts: Vec<Arc<str>> = self.records.hosts().into_iter().cloned().collect();
        hosts.dedup();
        self.records.clocks = self
            .system
            .machines
            .iter()
            .filter(|machine| machine.tick_ns > 1 && hosts.contains(&machine.name))
            .map(|machine| HostClock {
                resolution_ns: machine.tick_ns as u64,
                ..HostClock::exact(machine.name.clone())
            })
            .collect();
        self.records
            .clocks
            .sort_unstable_by(|a, b| a.host.cmp(&b.host));
        (self.records, self.notes)
    }

    fn open(&mut self, parent_id: u64, machine: usize, start_ns: f64, note: Note) -> usize {
        let at = self.records.spans.len();
        let operation = &self.system.operations[note.operation];
        let (service, name, flags) = match note.site.filter(|_| note.is_client) {
            Some(site) => {
                let caller = self.system.operations[site.operation].service;
                (caller, &operation.client_name, SpanFlags::CLIENT)
            }
            None => (operation.service, &operation.name, SpanFlags::default()),
        };
        self.records.spans.push(SpanRecord {
            span_id: at as u64 + 1,
            parent_id,
            service: self.system.services[service].name.clone(),
            name: name.clone(),
            host: self.system.machines[machine].name.clone(),
            process: machine as u128 + 1,
            start_ns: self.timestamp(machine, start_ns),
            end_ns: 0,
            flags,
            events: Vec::new(),
        });
        self.notes.push(note);
        at
    }

    fn timestamp(&self, machine: usize, time_ns: f64) -> i64 {
        let tick_ns = self.system.machines[machine].tick_ns;
        (ORIGIN_NS + time_ns as i64).div_euclid(tick_ns) * tick_ns
    }

    fn close(&mut self, at: usize, machine: usize, end_ns: f64, failed: bool) {
        self.records.spans[at].end_ns = self.timestamp(machine, end_ns);
        if failed {
            self.records.attributes.push(AttributeRecord {
                owner: RecordOwner::Span(at as u64 + 1),
                key: ERROR.into(),
                value: "true".into(),
            });
        }
    }

    fn serve(
        &mut self,
        operation: usize,
        site: Option<Site>,
        parent_id: u64,
        start_ns: f64,
        seed: u64,
    ) -> Outcome {
        let system = self.system;
        let of = &system.operations[operation];
        let mut random = Random::new(&[seed, 0]);
        let machine = *random.pick(&system.services[of.service].machines);
        let factor = self.effects.factor(system, of.service, machine);
        let more_misses = self.fault.map_or(0.0, |fault| fault.more_misses(operation));
        let usual_ns = of.own.draw_ns(&mut random, more_misses) * factor;
        let own_ns = self.fault.map_or(usual_ns, |fault| {
            fault.own_ns(operation, usual_ns, self.seed)
        });
        let fails_by_chance = random.chance(of.error_share);
        let fails_before = random.below(of.stages.len() + 1);
        let broken_off = random.unit();
        let breaks_before = self
            .fault
            .filter(|fault| {
                fault.kind == FaultKind::BreaksOff
                    && fault.site.operation == operation
                    && broken_off < fault.size
            })
            .map(|fault| fault.site.stage + 1)
            .or(fails_by_chance.then_some(fails_before));
        let at = self.open(
            parent_id,
            machine,
            start_ns,
            Note {
                operation,
                site,
                is_client: false,
                is_origin: breaks_before.is_some(),
            },
        );
        if site.is_none_or(|site| system.operations[site.operation].service != of.service) {
            self.records.spans[at].flags = SpanFlags::SERVER;
        }
        let span_id = at as u64 + 1;
        let mut now_ns = start_ns + own_ns * of.gaps[0];
        let mut failed = false;
        for (stage, calls) in of.stages.iter().enumerate() {
            if failed || breaks_before == Some(stage) {
                break;
            }
            let mut end_ns = now_ns;
            for (call, of_call) in calls.iter().enumerate() {
                let site = Site {
                    operation,
                    stage,
                    call,
                };
                let (ended_ns, call_failed) =
                    self.calls(of_call, site, (span_id, machine), now_ns, seed);
                end_ns = end_ns.max(ended_ns);
                // Optional calls may fail.
                failed |= call_failed && of_call.probability >= 1.0;
            }
            now_ns = end_ns + own_ns * of.gaps[stage + 1];
        }
        failed |= breaks_before.is_some();
        self.close(at, machine, now_ns, failed);
        (now_ns, failed)
    }

    /// Makes the calls of one site, sequentially.
    fn calls(
        &mut self,
        call: &Call,
        site: Site,
        (parent_id, machine): (u64, usize),
        start_ns: f64,
        seed: u64,
    ) -> Outcome {
        let mut random = Random::new(&[seed, 1, site.stage as u64, site.call as u64]);
        let (made, changed) = (random.unit(), random.unit());
        let (fewest, most) = call.repeats;
        let repeats = fewest + random.below(most - fewest + 1);
        let fault = self.fault.filter(|fault| fault.site == site);
        let count = match fault.map(|fault| (fault.kind, fault.size)) {
            Some((FaultKind::MissCalls, more)) if made < call.probability + more => repeats,
            Some((FaultKind::Removed, share)) if changed < share => 0,
            Some((FaultKind::Doubled, share)) if changed < share && made < call.probability => {
                2 * repeats
            }
            _ if made < call.probability => repeats,
            _ => 0,
        };
        let mut outcome = (start_ns, false);
        for repeat in 0..count as u64 {
            let seed = seed_of(&[seed, 2, site.stage as u64, site.call as u64, repeat]);
            outcome = self.call(call, site, (parent_id, machine), outcome.0, seed);
            if outcome.1 {
                break;
            }
        }
        outcome
    }

    fn call(
        &mut self,
        call: &Call,
        site: Site,
        (parent_id, machine): (u64, usize),
        start_ns: f64,
        seed: u64,
    ) -> Outcome {
        let system = self.system;
        let caller = system.operations[site.operation].service;
        let callee = system.operations[call.callee].service;
        if caller == callee {
            return self.serve(call.callee, Some(site), parent_id, start_ns, seed);
        }
        let usual_ns = call.link.draw_ns(&mut Random::new(&[seed, 3]), 0.0);
        let slow = self.fault.filter(|fault| fault.is_link(caller, callee));
        let link_ns = usual_ns + slow.map_or(0.0, |fault| fault.size);
        let client = system.has_client_spans.then(|| {
            let note = Note {
                operation: call.callee,
                site: Some(site),
                is_client: true,
                is_origin: false,
            };
            self.open(parent_id, machine, start_ns, note)
        });
        let parent_id = client.map_or(parent_id, |at| at as u64 + 1);
        let (ended_ns, failed) = self.serve(
            call.callee,
            Some(site),
            parent_id,
            start_ns + 0.5 * link_ns,
            seed,
        );
        let end_ns = ended_ns + 0.5 * link_ns;
        if let Some(at) = client {
            self.close(at, machine, end_ns, failed);
        }
        (end_ns, failed)
    }
}
