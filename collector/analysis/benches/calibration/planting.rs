//! Sites and sizes of planted changes.

use super::fault::{Fault, FaultKind, Site, call};
use super::latency::Tail;
use super::random::Random;
use super::request::Simulated;
use super::system::System;

/// Plants a change of this kind and level at a random site; returns `None` if no site allows it.
pub(crate) fn planted(
    system: &System,
    (kind, level): (FaultKind, usize),
    attempt: u64,
    requests: &[Simulated],
) -> Option<Fault> {
    let mut random = Random::new(&[system.seed, 5, kind as u64, attempt]);
    let sites = sites(system, kind, requests);
    if sites.is_empty() {
        return None;
    }
    let site = *random.pick(&sites);
    let mut latencies_ns: Vec<f64> = requests
        .iter()
        .filter(|request| request.calls_of(site.operation) > 0)
        .map(Simulated::latency_ns)
        .collect();
    let at = latencies_ns.len() / 2;
    let (_, median_ns, _) = latencies_ns.select_nth_unstable_by(at, f64::total_cmp);
    let is_time = matches!(
        kind,
        FaultKind::Slower | FaultKind::Share | FaultKind::Rare | FaultKind::Link
    );
    let unit = if is_time { *median_ns } else { 1.0 };
    let caller = &system.operations[site.operation];
    let callee = call(system, site).map_or(caller.service, |call| {
        system.operations[call.callee].service
    });
    Some(Fault {
        kind,
        site,
        link: (caller.service, callee),
        size: kind.sizes()[level] * unit,
        share: if kind == FaultKind::Share {
            random.log_between(0.05, 0.5)
        } else {
            1.0
        },
    })
}

/// Returns the sites where a change of this kind is possible, in operations that enough requests
/// have and, for kind `Rare`, few requests.
fn sites(system: &System, kind: FaultKind, requests: &[Simulated]) -> Vec<Site> {
    let mut seen = vec![0usize; system.operations.len()];
    for request in requests {
        let mut of_request: Vec<usize> = request.operations().collect();
        of_request.sort_unstable();
        of_request.dedup();
        of_request.iter().for_each(|at| seen[*at] += 1);
    }
    let share = |operation: usize| seen[operation] as f64 / requests.len().max(1) as f64;
    let mut sites = Vec::new();
    for (operation, of) in system.operations.iter().enumerate() {
        let is_seen = match kind {
            FaultKind::Rare => seen[operation] >= 4 && share(operation) <= 0.08,
            _ => seen[operation] >= 5 && share(operation) >= 0.03,
        };
        let has_misses = matches!(of.own.tail, Tail::Misses { .. });
        if !is_seen || (kind == FaultKind::MissTimes && !has_misses) {
            continue;
        }
        let needs_call = kind == FaultKind::Link || kind.is_structural();
        if !needs_call {
            sites.push(Site {
                operation,
                stage: 0,
                call: 0,
            });
            continue;
        }
        for (stage, calls) in of.stages.iter().enumerate() {
            for (at, call) in calls.iter().enumerate() {
                let is_remote = system.operations[call.callee].service != of.service;
                let is_possible = match kind {
                    FaultKind::Link => is_remote && call.probability > 0.2,
                    FaultKind::MissCalls => call.probability < 0.7,
                    FaultKind::Doubled => call.repeats == (1, 1) && call.probability > 0.2,
                    FaultKind::Removed => call.probability > 0.2,
                    _ => stage + 1 < of.stages.len(),
                };
                if is_possible {
                    sites.push(Site {
                        operation,
                        stage,
                        call: at,
                    });
                }
            }
        }
    }
    sites
}
