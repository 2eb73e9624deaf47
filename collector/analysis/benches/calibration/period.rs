//! Requests of a period.

use super::effects::{Drift, Effects};
use super::fault::Fault;
use super::random::{Random, seed_of};
use super::request::{Running, Simulated};
use super::system::System;
use stroboscope_analysis::record::TraceRecords;

/// Time and number of requests of a period.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    /// Number that makes the random numbers of periods differ.
    pub(crate) number: u64,
    pub(crate) start_minute: f64,
    pub(crate) minutes: f64,
    pub(crate) requests: usize,
}

const MINUTE_NS: f64 = 60e9;
/// Mean time between the requests of a burst.
const BURST_GAP_NS: f64 = 2e7;

impl Window {
    /// Returns two neighbouring periods of a system.
    pub(crate) fn pair(system: &System) -> [Window; 2] {
        let mut random = Random::new(&[system.seed, 4]);
        let ratio = random.log_between(0.5, 2.0);
        let before = Window {
            number: 0,
            start_minute: 0.0,
            minutes: system.minutes,
            requests: system.requests,
        };
        let after = Window {
            number: 1,
            start_minute: before.minutes,
            minutes: before.minutes * ratio,
            requests: ((before.requests as f64 * ratio) as usize).max(20),
        };
        [before, after]
    }

    /// Simulates the requests. A fault does not change the random numbers.
    pub(crate) fn simulate(
        &self,
        system: &System,
        drift: &Drift,
        fault: Option<&Fault>,
    ) -> Vec<Simulated> {
        let mut random = Random::new(&[system.seed, 3, self.number]);
        let weights: f64 = system.kinds.iter().map(|(_, weight)| weight).sum();
        let mut requests = Vec::new();
        while requests.len() < self.requests {
            let burst = random.next();
            let minute = self.start_minute + self.minutes * random.unit();
            let size =
                1 + (random.exponential() * (system.variation.burst_size - 1.0)).round() as usize;
            let mut start_ns = minute * MINUTE_NS;
            for _ in 0..size.min(self.requests - requests.len()) {
                let seed = seed_of(&[burst, requests.len() as u64]);
                let mut chosen = random.unit() * weights;
                let kind = system.kinds.iter().find(|(_, weight)| {
                    chosen -= weight;
                    chosen < 0.0
                });
                let root = kind.or(system.kinds.first()).map_or(0, |(root, _)| *root);
                let running = Running {
                    system,
                    fault,
                    effects: Effects {
                        drift,
                        minute,
                        burst,
                    },
                    seed,
                    records: TraceRecords::default(),
                    notes: Vec::new(),
                };
                let (records, notes) = running.run(root, start_ns);
                requests.push(Simulated {
                    records,
                    notes,
                    burst,
                });
                start_ns += random.exponential() * BURST_GAP_NS;
            }
        }
        requests
    }
}
