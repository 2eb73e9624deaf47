//! Pairs of periods: quiet ones, and those with a planted change.

use super::effects::Drift;
use super::fault::{Fault, FaultKind, LEVELS, call};
use super::naive::{self, Named};
use super::oracle;
use super::period::Window;
use super::planting::planted;
use super::random::Random;
use super::request::Simulated;
use super::system::System;
use super::verdict::{Causes, compare};
use stroboscope_analysis::compare::Comparison;
use stroboscope_analysis::flow::Operation;

/// Kinds of pairs of quiet periods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum QuietKind {
    /// Random halves of one window.
    Halves,
    HalvesSwapped,
    /// Neighbouring windows.
    Adjacent,
    AdjacentSwapped,
}

impl QuietKind {
    pub(crate) const ALL: [QuietKind; 4] = [
        QuietKind::Halves,
        QuietKind::HalvesSwapped,
        QuietKind::Adjacent,
        QuietKind::AdjacentSwapped,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            QuietKind::Halves => "halves",
            QuietKind::HalvesSwapped => "halves-swapped",
            QuietKind::Adjacent => "adjacent",
            QuietKind::AdjacentSwapped => "adjacent-swapped",
        }
    }
}

/// A system, and two neighbouring periods of it in which nothing changes.
pub(crate) struct Bench {
    pub(crate) system: System,
    drift: Drift,
    windows: [Window; 2],
    pub(crate) quiet: [Vec<Simulated>; 2],
}

/// A planted change and the results for it.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) fault: Fault,
    /// Change of the mean latency of requests with the changed root operations, as a fraction of
    /// their trimmed mean.
    pub(crate) effect: f64,
    /// P-values of the oracle: with the change, and without it.
    pub(crate) oracle: f64,
    pub(crate) oracle_quiet: f64,
    /// True if the first cause names an operation of [`Truth`]; the next field, at least a service.
    pub(crate) names_operation: bool,
    pub(crate) names_service: bool,
    /// True if the first cause is right or, without causes, the first place with too few requests.
    pub(crate) lists_first: bool,
    pub(crate) naive_operation: bool,
    pub(crate) naive_service: bool,
    pub(crate) causes: Causes,
}

fn all(period: &[Simulated]) -> Vec<&Simulated> {
    period.iter().collect()
}

impl Bench {
    pub(crate) fn of(system: System) -> Bench {
        let drift = Drift::of(&system);
        let windows = Window::pair(&system);
        let quiet = windows.map(|window| window.simulate(&system, &drift, None));
        Bench {
            system,
            drift,
            windows,
            quiet,
        }
    }

    pub(crate) fn quiet(&self, kind: QuietKind) -> Comparison {
        let [before, after] = match kind {
            QuietKind::Halves | QuietKind::HalvesSwapped => self.halves(),
            QuietKind::Adjacent | QuietKind::AdjacentSwapped => {
                self.quiet.each_ref().map(|period| all(period))
            }
        };
        match kind {
            QuietKind::Halves | QuietKind::Adjacent => compare([&before, &after]),
            QuietKind::HalvesSwapped | QuietKind::AdjacentSwapped => compare([&after, &before]),
        }
    }

    /// Returns two random halves of the period with more requests.
    fn halves(&self) -> [Vec<&Simulated>; 2] {
        let longer = self.quiet.iter().max_by_key(|period| period.len());
        let mut one = longer.map_or(Vec::new(), |period| all(period));
        Random::new(&[self.system.seed, 6]).shuffle(&mut one);
        let other = one.split_off(one.len() / 2);
        [one, other]
    }

    /// Plants a change that affects latencies or structures. Returns `None` if no site allows it,
    /// or if the requests do not wait for the changed part in any of eight attempts.
    pub(crate) fn fault(&self, kind: FaultKind, level: usize) -> Option<Fault> {
        for attempt in 0..8 {
            let fault = |level| planted(&self.system, (kind, level), attempt, &self.quiet[1]);
            let largest = fault(LEVELS - 1)?;
            if kind.is_structural() || self.is_critical(&largest) {
                return fault(level);
            }
        }
        None
    }

    /// Returns the name of the operation that the call at the fault's site calls.
    pub(crate) fn called(&self, fault: &Fault) -> Option<&str> {
        let call = call(&self.system, fault.site)?;
        Some(&self.system.operations[call.callee].name)
    }

    /// Reports whether a large change delays the requests, because they wait for the changed part.
    fn is_critical(&self, fault: &Fault) -> bool {
        let changed = self.simulate(fault);
        let (mut latency_ns, mut own_ns) = (0.0, 0.0);
        for (quiet, changed) in self.quiet[1].iter().zip(&changed) {
            let sum = |request: &Simulated| request.self_ns().iter().sum::<f64>();
            latency_ns += changed.latency_ns() - quiet.latency_ns();
            own_ns += sum(changed) - sum(quiet);
        }
        latency_ns > 0.4 * own_ns && own_ns > 0.0
    }

    /// Simulates the later period with a change.
    fn simulate(&self, fault: &Fault) -> Vec<Simulated> {
        self.windows[1].simulate(&self.system, &self.drift, Some(fault))
    }

    pub(crate) fn outcome(&self, fault: &Fault) -> (Outcome, Comparison) {
        let changed = self.simulate(fault);
        let [before, after] = [&self.quiet[0], &self.quiet[1]];
        let p_value = |after: &[Simulated]| oracle::p_value(&self.system, fault, [before, after]);
        let comparison = compare([&all(before), &all(&changed)]);
        let truth = Truth::of(&self.system, fault);
        let named = |of: &Operation| (of.service.clone(), of.name.clone());
        let first = comparison
            .causes
            .first()
            .map(|cause| named(&cause.operation));
        let too_few = comparison
            .too_few
            .first()
            .map(|few| named(few.place.operation()));
        let listed = first.clone().or(too_few);
        let naive = naive::first([before, &changed]);
        let outcome = Outcome {
            fault: *fault,
            effect: effect(after, &changed),
            oracle: p_value(&changed),
            oracle_quiet: p_value(after),
            names_operation: first
                .as_ref()
                .is_some_and(|first| truth.is_operation(first)),
            names_service: first.as_ref().is_some_and(|first| truth.is_service(first)),
            lists_first: listed
                .as_ref()
                .is_some_and(|first| truth.is_operation(first)),
            naive_operation: naive
                .as_ref()
                .is_some_and(|first| truth.is_operation(first)),
            naive_service: naive.as_ref().is_some_and(|first| truth.is_service(first)),
            causes: Causes::of(&comparison),
        };
        (outcome, comparison)
    }
}

/// Returns the change of the mean latency of the changed root operations, as a fraction of their
/// trimmed mean.
fn effect(quiet: &[Simulated], changed: &[Simulated]) -> f64 {
    let root = |request: &Simulated| request.records.root_name();
    let pairs = || quiet.iter().zip(changed);
    let mut roots: Vec<_> = pairs()
        .filter(|(quiet, changed)| quiet.latency_ns() != changed.latency_ns())
        .map(|(quiet, _)| root(quiet))
        .collect();
    roots.sort_unstable();
    roots.dedup();
    let (mut latencies_ns, mut change_ns) = (Vec::new(), 0.0);
    for (quiet, changed) in pairs().filter(|(quiet, _)| roots.contains(&root(quiet))) {
        latencies_ns.push(quiet.latency_ns());
        change_ns += changed.latency_ns() - quiet.latency_ns();
    }
    latencies_ns.sort_unstable_by(f64::total_cmp);
    let kept = &latencies_ns[..latencies_ns.len() * 9 / 10];
    let trimmed_ns = kept.iter().sum::<f64>() / kept.len().max(1) as f64;
    change_ns / latencies_ns.len().max(1) as f64 / trimmed_ns.max(1.0)
}

/// Correct answers.
struct Truth {
    operations: Vec<Named>,
}

impl Truth {
    fn of(system: &System, fault: &Fault) -> Truth {
        let caller = &system.operations[fault.site.operation];
        let service = |of: usize| system.services[of].name.clone();
        let mut operations = vec![(service(caller.service), caller.name.clone())];
        let concerns_call = fault.kind == FaultKind::Link || fault.kind.is_structural();
        if let Some(call) = call(system, fault.site).filter(|_| concerns_call)
            && fault.kind != FaultKind::BreaksOff
        {
            let callee = &system.operations[call.callee];
            operations.push((service(callee.service), callee.name.clone()));
            operations.push((service(caller.service), callee.client_name.clone()));
        }
        Truth { operations }
    }

    fn is_operation(&self, first: &Named) -> bool {
        self.operations.contains(first)
    }

    fn is_service(&self, first: &Named) -> bool {
        self.operations.iter().any(|right| right.0 == first.0)
    }
}
