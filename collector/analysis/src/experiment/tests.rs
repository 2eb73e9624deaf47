//! Measures rates of false alarms and of detections in simulated experiments.

use super::*;
use crate::statistics::{benjamini_hochberg, kolmogorov_smirnov};

mod interval;

/// SplitMix64 generator of pseudo-random numbers.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Draws a number above 0 and up to 1.
    fn part(&mut self) -> f64 {
        ((self.next() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    fn normal(&mut self) -> f64 {
        (-2.0 * self.part().ln()).sqrt() * (std::f64::consts::TAU * self.part()).cos()
    }

    /// Draws a log-normal number with a median of 1.
    fn lognormal(&mut self, sigma: f64) -> f64 {
        (sigma * self.normal()).exp()
    }
}

/// Parameters of the simulated requests of a service with many users.
#[derive(Clone, Copy)]
struct World {
    users: usize,
    bursts: usize,
    /// Number of sessions, of random users, that each burst records.
    seen: usize,
    /// Factor by which the test is slower than the control.
    factor: f64,
    /// Exponent of the user's mailbox size in the latency.
    by_mailbox: f64,
    /// Fraction of the usual variation of load, sessions and requests.
    quiet: f64,
}

impl World {
    /// Simulates an experiment. The 99th percentile of the sizes of mailboxes is 10,000 times the
    /// median, and larger mailboxes make requests slower. Some users send far more requests than
    /// others. The load varies over seven days. One to three requests of a user follow each other.
    fn observe(self, random: &mut Random) -> Vec<ExperimentRequest> {
        let users: Vec<(f64, f64, bool)> = (0..self.users)
            .map(|_| {
                let mailbox = random.lognormal(1e4_f64.ln() / 2.326);
                (
                    mailbox.powf(self.by_mailbox),
                    random.lognormal(1.0),
                    random.next().is_multiple_of(2),
                )
            })
            .collect();
        let active: Vec<f64> = users
            .iter()
            .scan(0.0, |sum, user| {
                *sum += user.1;
                Some(*sum)
            })
            .collect();
        let all_active = active.last().copied().unwrap_or(0.0);
        let mut requests = Vec::new();
        for burst in 0..self.bursts {
            let day = (burst as f64 / self.bursts as f64 * 7.0 * std::f64::consts::TAU).sin();
            let load = (1.0 + 0.5 * self.quiet * day) * random.lognormal(0.3 * self.quiet);
            for _ in 0..self.seen {
                let place = random.part() * all_active;
                let unit = active
                    .partition_point(|sum| *sum < place)
                    .min(self.users - 1);
                let (slow, _, is_test) = users[unit];
                let session = random.lognormal(0.3 * self.quiet);
                for _ in 0..1 + random.next() % 3 {
                    let factor = if is_test { self.factor } else { 1.0 };
                    let own = random.lognormal(0.5 * self.quiet);
                    let took = 1e7 * slow * load * session * factor * own;
                    requests.push(ExperimentRequest {
                        unit: unit as u64,
                        burst: burst as u64,
                        is_test,
                        latency_ns: took as u64,
                    });
                }
            }
        }
        requests
    }
}

const METRICS: [(&str, Metric); 3] = [
    ("mean", Metric::Mean),
    ("p50", Metric::Quantile(0.5)),
    ("p95", Metric::Quantile(0.95)),
];

/// Returns the results of the trials, which four threads run. `STROBOSCOPE_TRIALS` sets their
/// number, rounded down to a multiple of four; the default is 200.
fn trials<T: Send>(seed: u64, one: impl Fn(&mut Random) -> T + Sync) -> Vec<T> {
    let trials = std::env::var("STROBOSCOPE_TRIALS").ok();
    let trials = trials.map_or(200, |trials| trials.parse().expect("a number"));
    let threads = 4;
    let one = &one;
    std::thread::scope(|scope| {
        let started: Vec<_> = (0..threads)
            .map(|thread| {
                scope.spawn(move || {
                    (0..trials / threads)
                        .map(|trial| one(&mut Random(seed + trial * threads + thread)))
                        .collect::<Vec<T>>()
                })
            })
            .collect();
        started
            .into_iter()
            .flat_map(|thread| thread.join().unwrap())
            .collect()
    })
}

/// Compares the 95th percentiles of each side over the bursts as if they were independent. Ardelean
/// et al. (NSDI 2018, §3.2) warn of this test.
fn naive_p_value(requests: &[ExperimentRequest]) -> f64 {
    let bursts = requests.iter().map(|one| one.burst).max().unwrap_or(0);
    let series = |is_test: bool| -> Vec<(u64, u64)> {
        let of_burst = |burst: u64| {
            let mut own: Vec<u64> = requests
                .iter()
                .filter(|one| one.is_test == is_test && one.burst == burst)
                .map(|one| one.latency_ns)
                .collect();
            own.sort_unstable();
            own.get((own.len() * 95 / 100).min(own.len().wrapping_sub(1)))
                .copied()
        };
        let mut values: Vec<u64> = (0..=bursts).filter_map(of_burst).collect();
        values.sort_unstable();
        values.into_iter().map(|value| (value, 1)).collect()
    };
    kolmogorov_smirnov(&series(false), &series(true)).p_value
}

const WORLD: World = World {
    users: 400,
    bursts: 84,
    seen: 12,
    factor: 1.0,
    by_mailbox: 0.2,
    quiet: 1.0,
};

#[test]
fn where_there_is_no_effect_one_in_twenty_is_seen_at_most() {
    let found = trials(1, |random| {
        let requests = WORLD.observe(random);
        let naive = naive_p_value(&requests);
        let experiment = Experiment::new(requests);
        (METRICS.map(|(_, metric)| experiment.p_value(metric)), naive)
    });
    type Found = ([f64; 3], f64);
    let part = |is_wrong: &dyn Fn(&Found) -> bool| {
        found.iter().filter(|one| is_wrong(one)).count() as f64 / found.len() as f64
    };
    for (place, (name, _)) in METRICS.iter().enumerate() {
        let wrong = part(&|one| one.0[place] < 0.05);
        println!("{name}: {:.1} % false alarms", wrong * 100.0);
        assert!(wrong <= one_in_twenty(found.len()), "{name}: {wrong}");
    }
    // After correction for the number of metrics, any metric differs as rarely.
    let any = part(&|one| benjamini_hochberg(&one.0).iter().any(|q| *q < 0.05));
    println!("any of the three: {:.1} %", any * 100.0);
    assert!(any <= one_in_twenty(found.len()), "{any}");
    let naive = part(&|one| one.1 < 0.05);
    println!(
        "Kolmogorov and Smirnov's test of percentiles over time: {:.1} %",
        naive * 100.0
    );
    assert!(
        naive > 0.1,
        "the world is not the one that is warned of: {naive}"
    );
}

/// Returns the share of `count` trials that an event of probability 5 % exceeds in only one case of
/// 1,000.
fn one_in_twenty(count: usize) -> f64 {
    0.05 + 3.1 * (0.05 * 0.95 / count as f64).sqrt()
}

/// Result of a planned experiment: its size relative to the pilot, its predicted power, whether it
/// detected the effect, and whether its interval contains the effect.
type Planned = (f64, f64, bool, bool);

/// Each pilot without an effect predicts how many times its users and bursts are needed. An
/// experiment of that size follows.
#[test]
fn effects_are_seen_as_often_as_foretold_and_their_intervals_hold_them() {
    for (effect, quiet) in [(0.2, 1.0), (0.05, 0.25), (0.01, 0.05)] {
        let metric = Metric::Quantile(0.5);
        let sized = |times: f64, factor: f64| World {
            users: (150.0 * times) as usize,
            bursts: (WORLD.bursts as f64 * times) as usize,
            by_mailbox: 0.1 * quiet,
            factor,
            quiet,
            ..WORLD
        };
        let ask = |random: &mut Random, times: f64, factor: f64| {
            Experiment::new(sized(times, factor).observe(random)).effect(metric, 0.05)
        };
        let found = trials(177, |random| {
            let pilot = ask(random, 1.0, 1.0).ok()?;
            // About one pilot in a hundred needs an experiment that would take minutes.
            let times = pilot.times_needed(effect, 0.05).min(12.0);
            let then = ask(random, times, 1.0 + effect);
            let foretold = then.map_or(0.0, |then| then.power(effect, 0.05));
            let is_seen = then.is_ok_and(|then| then.p_value < 0.05);
            let is_held = then.is_ok_and(|then| {
                let (low, high) = then.interval;
                low < effect && effect < high
            });
            Some((times, foretold, is_seen, is_held))
        });
        let all = found.len();
        let found: Vec<Planned> = found.into_iter().flatten().collect();
        assert!(found.len() * 100 >= all * 95, "{} of {all}", found.len());
        let mean =
            |of: &dyn Fn(&Planned) -> f64| found.iter().map(of).sum::<f64>() / found.len() as f64;
        let part = |is_so: bool| f64::from(u8::from(is_so));
        let (seen, held) = (mean(&|one| part(one.2)), mean(&|one| part(one.3)));
        let foretold = mean(&|one| one.1);
        println!(
            "{effect}: {:.2} times the pilot; seen {seen:.3} of 0.8 foretold by the pilot, {foretold:.3} at its own size; held \
             {held:.3}",
            mean(&|one| one.0)
        );
        let chance = 3.1 * (0.16 / found.len() as f64).sqrt();
        assert!((seen - 0.8).abs() < 0.05 + chance, "{effect}: {seen}");
        assert!(
            (foretold - seen).abs() < 0.05 + chance,
            "{effect}: {foretold} {seen}"
        );
        assert!(held >= 1.0 - one_in_twenty(found.len()), "{effect}: {held}");
    }
}

/// Five looks at growing data cause more false alarms than one, unless the later looks have
/// stricter levels.
#[test]
fn looks_are_corrected_for() {
    let world = World {
        users: 150,
        bursts: 60,
        by_mailbox: 0.1,
        ..WORLD
    };
    let found = trials(31, |random| {
        let requests = world.observe(random);
        let p_values = (1..=5_u64).map(|look| {
            let until = requests.iter().filter(|one| one.burst < look * 12);
            Experiment::new(until.copied()).p_value(Metric::Quantile(0.5))
        });
        let p_values: Vec<f64> = p_values.collect();
        let surer = |(place, p): (usize, &f64)| *p < alpha_of_look(0.05, place as u32 + 1);
        (
            p_values.iter().any(|p| *p < 0.05),
            p_values.iter().enumerate().any(surer),
        )
    });
    let part = |is_so: &dyn Fn(&(bool, bool)) -> bool| {
        found.iter().filter(|one| is_so(one)).count() as f64 / found.len() as f64
    };
    let (naive, corrected) = (part(&|one| one.0), part(&|one| one.1));
    println!("five looks: {corrected:.3} false alarms, {naive:.3} uncorrected");
    assert!(
        corrected <= one_in_twenty(found.len()),
        "{corrected} {naive}"
    );
    assert!(naive > corrected, "{corrected} {naive}");
}

/// Learns the chance difference between equal sides from the control alone (figure 10). Experiments
/// without an effect must differ by as much.
#[test]
fn noise_is_what_equal_sides_differ_by() {
    let world = World {
        users: 300,
        by_mailbox: 0.1,
        ..WORLD
    };
    for metric in [Metric::Mean, Metric::Quantile(0.5)] {
        let found = trials(51, |random| {
            let requests = world.observe(random);
            let control = requests.iter().filter(|one| !one.is_test).copied();
            let learned = noise(control, &[metric])[0].unwrap();
            let experiment = Experiment::new(requests);
            let effect = experiment.effect(metric, 0.05).ok();
            let (control, test) = experiment.units();
            let here = learned.at(control, test);
            (effect.map(|effect| effect.difference().ln_1p()), here)
        });
        let apart = found.iter().filter_map(|one| one.0);
        let deviation =
            (apart.clone().map(|apart| apart * apart).sum::<f64>() / apart.count() as f64).sqrt();
        let mean = found.iter().map(|one| one.1).sum::<f64>() / found.len() as f64;
        println!("{metric:?}: equal sides differ by {deviation:.3}, {mean:.3} learned");
        assert!((mean / deviation - 1.0).abs() < 0.2, "{mean} {deviation}");
    }
    let few = (0..19).map(|unit| ExperimentRequest {
        unit,
        burst: 0,
        is_test: false,
        latency_ns: 5,
    });
    assert_eq!(noise(few, &[Metric::Mean]), [None]);
}

/// Compares the variance with a jackknife that leaves out each cluster in turn.
#[test]
fn a_spread_is_that_of_leaving_out_each_cluster() {
    for seed in 0..50 {
        let world = World {
            users: 12,
            bursts: 9,
            seen: 3,
            ..WORLD
        };
        let requests = world.observe(&mut Random(seed));
        for metric in [Metric::Mean, Metric::Quantile(0.5), Metric::Quantile(0.9)] {
            let spread = Experiment::new(requests.clone()).spread(metric, 0.1);
            let value = counted(&requests, metric, 0.1);
            let difference = |keep: &dyn Fn(&ExperimentRequest) -> bool| {
                let mean = |is_test: bool| {
                    let own: Vec<f64> = requests
                        .iter()
                        .zip(&value)
                        .filter(|(one, _)| one.is_test == is_test && keep(one))
                        .map(|(_, value)| *value)
                        .collect();
                    (!own.is_empty()).then(|| own.iter().sum::<f64>() / own.len() as f64)
                };
                Some(mean(true)? - mean(false)?)
            };
            let variance = |key: &dyn Fn(&ExperimentRequest) -> (u64, u64)| {
                let all = difference(&|_| true)?;
                let mut keys: Vec<(u64, u64)> = requests.iter().map(key).collect();
                keys.sort_unstable();
                keys.dedup();
                let count = keys.len() as f64;
                let squares: Option<Vec<f64>> = keys
                    .iter()
                    .map(|left| Some((difference(&|one| key(one) != *left)? - all).powi(2)))
                    .collect();
                Some((count - 1.0) / count * squares?.iter().sum::<f64>())
            };
            let of_units = variance(&|one| (one.unit, u64::from(one.is_test)));
            let of_bursts = variance(&|one| (one.burst, 0));
            let of_cells = variance(&|one| (one.unit * 1_000 + one.burst, u64::from(one.is_test)));
            let (Some(of_units), Some(of_bursts), Some(of_cells)) = (of_units, of_bursts, of_cells)
            else {
                assert!(spread.variance().is_infinite());
                continue;
            };
            let expected = (of_units + of_bursts - of_cells)
                .max(of_units)
                .max(of_bursts);
            let is_near = (spread.variance() - expected).abs() <= expected * 1e-6 + 1e-12;
            assert!(
                is_near,
                "{seed} {metric:?}: {} {expected}",
                spread.variance()
            );
        }
    }
}

/// Returns the value of each request that the comparison counts. Finds the quantile by sorting all
/// requests with their weights.
fn counted(requests: &[ExperimentRequest], metric: Metric, shift: f64) -> Vec<f64> {
    let scale = (-shift).exp();
    let latency =
        |one: &ExperimentRequest| one.latency_ns as f64 * if one.is_test { scale } else { 1.0 };
    let Metric::Quantile(part) = metric else {
        return requests.iter().map(latency).collect();
    };
    let of_test = requests.iter().filter(|one| one.is_test).count() as f64;
    let of_control = requests.len() as f64 - of_test;
    let weight = |one: &ExperimentRequest| 0.5 / if one.is_test { of_test } else { of_control };
    let mut sorted: Vec<(f64, f64)> = requests
        .iter()
        .map(|one| (latency(one), weight(one)))
        .collect();
    sorted.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut seen = 0.0;
    let limit = sorted.iter().find(|(_, weight)| {
        seen += weight;
        seen >= part - 1e-12
    });
    let limit = limit.map_or(f64::INFINITY, |of| of.0);
    requests
        .iter()
        .map(|one| f64::from(u8::from(latency(one) > limit)))
        .collect()
}

#[test]
fn what_cannot_be_said_is_not() {
    let one = |unit, is_test, latency_ns| ExperimentRequest {
        unit,
        burst: unit,
        is_test,
        latency_ns,
    };
    let of_control = Experiment::new((0..100).map(|unit| one(unit, false, 5)));
    let said = of_control.effect(Metric::Mean, 0.05);
    assert_eq!(
        said,
        Err(NoComparison::OneSided {
            control: 100,
            test: 0
        })
    );
    assert_eq!(of_control.p_value(Metric::Mean), 1.0);

    let few = Experiment::new((0..100).map(|unit| one(unit, unit % 2 == 0, 5 + unit)));
    let said = few.effect(Metric::Quantile(0.99), 0.05);
    assert_eq!(
        said,
        Err(NoComparison::FewAbove {
            requests: 50,
            needed: 1_000
        })
    );

    // One user has nearly all requests of the test.
    let one_user =
        (0..1_000).map(|place| one(if place < 990 { 1 } else { place }, true, 5 + place % 7));
    let others = (0..1_000).map(|place| one(place, false, 5 + place % 5));
    let said = Experiment::new(one_user.chain(others)).effect(Metric::Mean, 0.05);
    assert!(
        matches!(said, Err(NoComparison::FewClusters { .. })),
        "{said:?}"
    );
}

#[test]
fn what_happened_to_both_sides_is_not_the_change() {
    let mut random = Random(3);
    let mut requests = Vec::new();
    for at in 0..48_000_i64 {
        let slot = at / 1_000;
        let is_test = match slot {
            30 => random.part() < 0.95,
            _ => random.part() < 0.5,
        };
        let factor = if slot == 10 { 40.0 } else { 1.0 } * if is_test { 1.3 } else { 1.0 };
        let observed = ExperimentRequest {
            unit: random.next() % 300,
            burst: at as u64 / 100,
            is_test,
            latency_ns: (1e6 * factor * random.lognormal(0.5)) as u64,
        };
        // In slot 20, only the test gets nothing but the other operation; in slot 40, both sides
        // do.
        let is_other = match slot {
            20 => is_test,
            40 => true,
            _ => random.next().is_multiple_of(3),
        };
        requests.push(TimedRequest {
            at_ns: at,
            operation: u32::from(is_other),
            observed,
        });
    }
    let found = one_offs(&requests);
    let found: Vec<_> = found
        .iter()
        .map(|one| (one.from_ns, one.to_ns, one.why))
        .collect();
    let expected = [
        (10_000, 11_000, OneOff::Both),
        (20_000, 21_000, OneOff::MixOfTest),
        (30_000, 31_000, OneOff::ShareOfTest),
    ];
    assert_eq!(found, expected);
}
