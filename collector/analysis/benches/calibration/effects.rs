//! Effects that requests share: bursts, and the slow drift of services and machines.

use super::random::Random;
use super::system::System;

/// Number of minutes for which drift is simulated.
const MINUTES_MAX: usize = 80;

/// Logarithms of the drift of each service and each machine, minute by minute.
#[derive(Debug)]
pub(crate) struct Drift {
    of_services: Vec<Vec<f64>>,
    of_machines: Vec<Vec<f64>>,
}

/// Returns a first-order autoregressive series.
fn series(seed: &[u64], deviation: f64, persistence: f64) -> Vec<f64> {
    let mut random = Random::new(seed);
    let mut value = deviation * random.normal();
    let innovation = deviation * (1.0 - persistence * persistence).sqrt();
    (0..MINUTES_MAX)
        .map(|_| {
            value = persistence * value + innovation * random.normal();
            value
        })
        .collect()
}

/// Returns the value of a series between its minutes.
fn at(series: &[f64], minute: f64) -> f64 {
    let whole = (minute as usize).min(series.len() - 2);
    let part = (minute - whole as f64).clamp(0.0, 1.0);
    series[whole] * (1.0 - part) + series[whole + 1] * part
}

impl Drift {
    pub(crate) fn of(system: &System) -> Drift {
        let variation = &system.variation;
        let all = |what: u64, count: usize| {
            (0..count as u64)
                .map(|number| {
                    let seed = [system.seed, 2, what, number];
                    series(&seed, variation.drift, variation.persistence)
                })
                .collect()
        };
        Drift {
            of_services: all(0, system.services.len()),
            of_machines: all(1, system.machines.len()),
        }
    }
}

/// Effects that a request shares with others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effects<'a> {
    pub(crate) drift: &'a Drift,
    pub(crate) minute: f64,
    /// Seed of the request's burst.
    pub(crate) burst: u64,
}

impl Effects<'_> {
    /// Returns the factor for the own times of this service's operations on this machine.
    pub(crate) fn factor(&self, system: &System, service: usize, machine: usize) -> f64 {
        let variation = &system.variation;
        let mut log = at(&self.drift.of_services[service], self.minute)
            + at(&self.drift.of_machines[machine], self.minute);
        if variation.burst_size > 1.0 {
            let normal =
                |what: u64, number: usize| Random::new(&[self.burst, what, number as u64]).normal();
            log += variation.of_burst * normal(0, 0)
                + variation.of_burst_and_service * normal(1, service)
                + variation.of_burst_and_machine * normal(2, machine);
            let mut incident = Random::new(&[self.burst, 3, service as u64]);
            if incident.chance(variation.incidents) {
                log += incident.log_between(2.0, 30.0).ln();
            }
        }
        log.exp()
    }
}
