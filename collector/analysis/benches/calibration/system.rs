//! Random systems of services.

use super::latency::{Habits, Latency};
use super::random::Random;
use std::sync::Arc;

/// Prefix of the names of spans that wait for another service.
pub(crate) const CLIENT: &str = "call ";

/// A call that an operation makes.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) callee: usize,
    pub(crate) probability: f64,
    /// Minimum and maximum number of consecutive calls.
    pub(crate) repeats: (usize, usize),
    pub(crate) link: Latency,
}

#[derive(Clone, Debug)]
pub(crate) struct Operation {
    pub(crate) service: usize,
    pub(crate) name: Arc<str>,
    /// Name of the span in which a caller in another service waits for it.
    pub(crate) client_name: Arc<str>,
    pub(crate) own: Latency,
    /// Calls by stage. The calls of one stage run in parallel, and stages run sequentially.
    pub(crate) stages: Vec<Vec<Call>>,
    /// Fractions of the own time before, between and after the stages.
    pub(crate) gaps: Vec<f64>,
    /// Fraction of its executions that fail by chance.
    pub(crate) error_share: f64,
    /// Estimated number of spans in its subtree, including itself.
    spans: f64,
}

#[derive(Clone, Debug)]
pub(crate) struct Service {
    pub(crate) name: Arc<str>,
    /// Machines of the service's instances.
    pub(crate) machines: Vec<usize>,
}

#[derive(Clone, Debug)]
pub(crate) struct Machine {
    pub(crate) name: Arc<str>,
    /// Resolution of timestamps.
    pub(crate) tick_ns: i64,
}

/// Effects that requests share. Each field without another quantity is the standard deviation of an
/// effect's logarithm.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Variation {
    /// Mean number of requests in a burst.
    pub(crate) burst_size: f64,
    pub(crate) of_burst: f64,
    pub(crate) of_burst_and_service: f64,
    pub(crate) of_burst_and_machine: f64,
    /// Fraction of the pairs of burst and service in which the service is 2 to 30 times slower.
    pub(crate) incidents: f64,
    /// Drift of each service and of each machine.
    pub(crate) drift: f64,
    /// Correlation of the drifts of neighbouring minutes.
    pub(crate) persistence: f64,
}

/// Services, their operations, and the root operations that users call.
#[derive(Debug)]
pub(crate) struct System {
    pub(crate) seed: u64,
    pub(crate) services: Vec<Service>,
    pub(crate) machines: Vec<Machine>,
    pub(crate) operations: Vec<Operation>,
    /// Root operations and their weights.
    pub(crate) kinds: Vec<(usize, f64)>,
    /// True if services record client spans.
    pub(crate) has_client_spans: bool,
    pub(crate) variation: Variation,
    habits: Habits,
    /// Number of requests and of minutes in the earlier period.
    pub(crate) requests: usize,
    pub(crate) minutes: f64,
}

/// Bounds of a random system.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) services_max: usize,
    pub(crate) requests_max: usize,
}

/// Returns a word without digits, because digits would look like ids.
fn word(number: usize) -> String {
    const SYLLABLES: [&str; 8] = ["ba", "do", "ke", "li", "mu", "ra", "so", "ti"];
    let mut word = String::new();
    let mut rest = number;
    for _ in 0..3 {
        word.push_str(SYLLABLES[rest % 8]);
        rest /= 8;
    }
    word
}

impl System {
    pub(crate) fn random(seed: u64, bounds: Bounds) -> System {
        let mut random = Random::new(&[seed, 1]);
        let count = (random.log_between(3.0, bounds.services_max as f64 + 1.0) as usize).max(3);
        let machines = machines(&mut random, count);
        let services: Vec<Service> = (0..count)
            .map(|number| Service {
                name: format!("svc-{}", word(number)).into(),
                machines: (0..1 + random.below(3))
                    .map(|_| random.below(machines.len()))
                    .collect(),
            })
            .collect();
        let mut system = System {
            seed,
            services,
            machines,
            operations: Vec::new(),
            kinds: Vec::new(),
            has_client_spans: random.chance(0.75),
            variation: variation(&mut random),
            habits: Habits::random(&mut random),
            requests: random.log_between(20.0, bounds.requests_max as f64) as usize,
            minutes: random.between(2.0, 15.0),
        };
        let layers = 1 + random.below(4.min(count - 1));
        for service in (1..count).rev() {
            let layer = (service - 1) * layers / (count - 1);
            for _ in 0..1 + random.below(4) {
                let is_last = layer + 1 == layers;
                let budget = if is_last && random.chance(0.8) {
                    1.0
                } else {
                    random.log_between(2.0, 25.0)
                };
                let name = format!("op-{}", word(system.operations.len()));
                system.add_operation(&mut random, service, &name, budget, (layer, layers));
            }
        }
        system.add_kinds(&mut random, layers);
        system
    }

    /// Returns the layer of a service. The front end has layer 0, and so may others.
    fn layer(&self, service: usize, layers: usize) -> usize {
        service.saturating_sub(1) * layers / (self.services.len() - 1)
    }

    /// Adds an operation that may call some of the existing ones. Returns its number.
    fn add_operation(
        &mut self,
        random: &mut Random,
        service: usize,
        name: &str,
        budget: f64,
        (layer, layers): (usize, usize),
    ) -> usize {
        let mut spans = 1.0;
        let mut stages = Vec::new();
        while budget - spans >= 1.0 && stages.len() < 6 {
            let width = if random.chance(0.3) {
                2 + random.below(3)
            } else {
                1
            };
            let mut stage: Vec<Call> = Vec::new();
            for _ in 0..width {
                let may_call = |callee: usize| {
                    let of = &self.operations[callee];
                    let is_deeper = service == 0 || self.layer(of.service, layers) > layer;
                    (is_deeper || of.service == service)
                        && of.spans + 1.0 <= budget - spans
                        && stage.iter().all(|call| call.callee != callee)
                };
                let candidates: Vec<usize> = (0..self.operations.len())
                    .filter(|callee| may_call(*callee))
                    .collect();
                if candidates.is_empty() {
                    break;
                }
                let callee = *random.pick(&candidates);
                let mut call = call(random, &self.habits, callee);
                if self.operations[callee].spans > 6.0 {
                    call.repeats = (1, 1);
                }
                spans += call.probability
                    * (call.repeats.0 + call.repeats.1) as f64
                    * 0.5
                    * (self.operations[callee].spans + 1.0);
                stage.push(call);
            }
            if stage.is_empty() {
                break;
            }
            stages.push(stage);
        }
        let mut gaps: Vec<f64> = (0..=stages.len()).map(|_| random.exponential()).collect();
        let sum: f64 = gaps.iter().sum();
        gaps.iter_mut().for_each(|gap| *gap /= sum);
        self.operations.push(Operation {
            service,
            name: name.into(),
            client_name: format!("{CLIENT}{name}").into(),
            own: Latency::of_operation(random, &self.habits),
            stages,
            gaps,
            error_share: if random.chance(0.2) {
                random.log_between(0.0005, 0.01)
            } else {
                0.0
            },
            spans,
        });
        self.operations.len() - 1
    }

    /// Adds the root operations. Behind a gateway, all have one name, and each gets another
    /// operation as its first call, as long as there are enough operations.
    fn add_kinds(&mut self, random: &mut Random, layers: usize) {
        let has_gateway = random.chance(0.5);
        let kinds = random.log_between(1.0, 40.0) as usize;
        let exponent = random.between(0.0, 1.8);
        let mut first_calls: Vec<usize> = (0..self.operations.len()).collect();
        random.shuffle(&mut first_calls);
        for kind in 0..kinds {
            let name = if has_gateway {
                "any".to_owned()
            } else {
                format!("get-{}", word(kind))
            };
            let budget = random.log_between(4.0, 60.0);
            let budget = if has_gateway {
                budget.min(20.0)
            } else {
                budget
            };
            let root = self.add_operation(random, 0, &name, budget, (0, layers));
            let first = first_calls.pop().filter(|_| has_gateway);
            if let Some(first) = first {
                let certain = Call {
                    probability: 1.0,
                    repeats: (1, 1),
                    ..call(random, &self.habits, first)
                };
                let operation = &mut self.operations[root];
                operation.stages.insert(0, vec![certain]);
                operation.gaps.iter_mut().for_each(|gap| *gap *= 0.7);
                operation.gaps.insert(0, 0.3);
            }
            self.kinds.push((root, (kind as f64 + 1.0).powf(-exponent)));
        }
    }
}

fn call(random: &mut Random, habits: &Habits, callee: usize) -> Call {
    let probability = match random.below(20) {
        0..10 => 1.0,
        10..17 => random.between(0.05, 0.95),
        _ => random.log_between(0.005, 0.05),
    };
    let most = 2 + random.below(4);
    let repeats = match random.below(20) {
        0..15 => (1, 1),
        15..17 => (most, most),
        _ => (1, most),
    };
    Call {
        callee,
        probability,
        repeats,
        link: Latency::of_link(random, habits),
    }
}

fn machines(random: &mut Random, services: usize) -> Vec<Machine> {
    let count = 1 + random.below(services);
    let clocks = random.below(20);
    (0..count)
        .map(|number| Machine {
            name: format!("host-{}", word(number)).into(),
            tick_ns: match clocks {
                0..3 => 1,
                3..5 if number == 0 => 1_000_000,
                _ => 1_000,
            },
        })
        .collect()
}

fn variation(random: &mut Random) -> Variation {
    let burst_size = *random.pick(&[1.0, 1.0, 3.0, 10.0, 30.0]);
    let incidents = if burst_size > 1.0 && random.chance(0.5) {
        random.log_between(0.0005, 0.01)
    } else {
        0.0
    };
    let mut of_burst = || {
        if burst_size > 1.0 {
            random.between(0.0, 0.3)
        } else {
            0.0
        }
    };
    Variation {
        burst_size,
        incidents,
        of_burst: of_burst(),
        of_burst_and_service: of_burst(),
        of_burst_and_machine: of_burst(),
        // Services and machines both drift: together, the standard deviation is at most 7 %.
        drift: random.between(0.0, 0.05),
        persistence: random.between(0.2, 0.8),
    }
}
