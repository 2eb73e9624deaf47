//! A change of the burst-config in a fleet too large for one machine, on paper: one gateway, 1,000
//! agents, 100 processes at each. `cargo test -p stroboscope-simulation control -- --nocapture`
//! prints the tables of `collector/docs/scale.md`.
//!
//! The gateway sends the change to its agents, and these to their processes. A connection that
//! breaks is made again after the pauses of the SDK, and the new connection gets the newest change
//! at once. A process switches at the announced instant of its own clock, or on receipt if that is
//! later.

use stroboscope_burst::BurstConfig;
use stroboscope_fixtures::random::Random;

const AGENTS: usize = 1_000;
const PROCESSES_PER_AGENT: usize = 100;
/// Pauses of the SDK before it connects again: the first, and the longest in the first minute.
const PAUSES_S: (f64, f64) = (0.05, 0.2);
/// Time to connect again, without the pauses.
const CONNECT_S: f64 = 0.01;

/// Conditions of a fleet.
#[derive(Clone, Copy)]
struct Conditions {
    /// Median delay of a message, in seconds. Delays are log-normal.
    delay_s: f64,
    /// Deviation of the logarithm of the delays. With 1, one in 100 takes 10 times the median.
    spread: f64,
    /// Share of messages with which the connection breaks, and of connections that fail.
    broken: f64,
    /// Share of agents that cannot be reached at first, for an exponential time with this mean in
    /// seconds.
    away: (f64, f64),
    /// Deviation of the processes' clocks, in seconds.
    skew_s: f64,
    /// Lead time of the change, in seconds.
    lead_s: f64,
}

/// Number of processes by when they switched.
struct Outcome {
    /// Processes that had the change before its instant by their own clocks.
    in_time: usize,
    /// Time in seconds from the instant, by the true time, until each late process switched, in
    /// order.
    late_s: Vec<f64>,
}

impl Conditions {
    /// Returns the time in seconds until one message has arrived.
    fn message_s(&self, random: &mut Random) -> f64 {
        let mut at_s = 0.0;
        let mut pause_s = PAUSES_S.0;
        while uniform(random) < self.broken {
            at_s += pause_s * (0.5 + uniform(random)) + CONNECT_S;
            pause_s = (2.0 * pause_s).min(PAUSES_S.1);
        }
        at_s + self.delay_s * (self.spread * normal(random)).exp()
    }

    fn switch(&self, random: &mut Random) -> Outcome {
        let mut outcome = Outcome {
            in_time: 0,
            late_s: Vec::new(),
        };
        for _ in 0..AGENTS {
            let mut at_agent_s = self.message_s(random);
            if uniform(random) < self.away.0 {
                at_agent_s += -self.away.1 * uniform(random).ln();
            }
            for _ in 0..PROCESSES_PER_AGENT {
                let arrival_s = at_agent_s + self.message_s(random);
                let own_instant_s = self.lead_s - self.skew_s * normal(random);
                if arrival_s <= own_instant_s {
                    outcome.in_time += 1;
                } else {
                    outcome.late_s.push(arrival_s - self.lead_s);
                }
            }
        }
        outcome.late_s.sort_by(f64::total_cmp);
        outcome
    }
}

/// Returns the share of time that two processes both record, of the time that at least one of them
/// records, if their clocks differ by the difference of two normal skews. Both have 4 ms bursts
/// every 32 ms.
fn common_share(skew_s: f64, random: &mut Random) -> f64 {
    let config = BurstConfig::DEFAULT;
    let rounds = 2_000;
    let mut both = 0u64;
    let mut either = 0u64;
    for _ in 0..rounds {
        let shift_us = (skew_s * 1e6 * (normal(random) - normal(random))) as i64;
        for at_us in (0..32_000i64).step_by(50) {
            let is_open = |at_us: i64| {
                let at_ms = (1_000_000_000 + at_us).div_euclid(1_000);
                config.contains_ms(at_ms.unsigned_abs())
            };
            let (a, b) = (is_open(at_us), is_open(at_us + shift_us));
            both += u64::from(a && b);
            either += u64::from(a || b);
        }
    }
    both as f64 / either as f64
}

/// Returns a number between 0 (exclusive) and 1.
fn uniform(random: &mut Random) -> f64 {
    (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64 + f64::MIN_POSITIVE
}

/// Returns a number of the normal distribution with mean 0 and deviation 1 (Box and Muller).
fn normal(random: &mut Random) -> f64 {
    let radius = (-2.0 * uniform(random).ln()).sqrt();
    radius * (2.0 * std::f64::consts::PI * uniform(random)).cos()
}

#[test]
fn a_change_reaches_a_hundred_thousand_processes() {
    let usual = Conditions {
        delay_s: 0.005,
        spread: 1.0,
        broken: 0.0,
        away: (0.0, 0.0),
        skew_s: 0.000_5,
        lead_s: 1.0,
    };
    let cases = [
        ("usual", usual),
        (
            "1 % of messages lost",
            Conditions {
                broken: 0.01,
                ..usual
            },
        ),
        (
            "10 % of messages lost",
            Conditions {
                broken: 0.1,
                ..usual
            },
        ),
        (
            "half of the messages lost",
            Conditions {
                broken: 0.5,
                ..usual
            },
        ),
        (
            "the same, lead 5 s",
            Conditions {
                broken: 0.5,
                lead_s: 5.0,
                ..usual
            },
        ),
        (
            "slow network (median 200 ms)",
            Conditions {
                delay_s: 0.2,
                ..usual
            },
        ),
        (
            "the same, lead 5 s",
            Conditions {
                delay_s: 0.2,
                lead_s: 5.0,
                ..usual
            },
        ),
        (
            "1 % of agents away for 10 s",
            Conditions {
                away: (0.01, 10.0),
                ..usual
            },
        ),
        (
            "the same, lead 30 s",
            Conditions {
                away: (0.01, 10.0),
                lead_s: 30.0,
                ..usual
            },
        ),
        (
            "clocks ± 50 ms",
            Conditions {
                skew_s: 0.05,
                ..usual
            },
        ),
    ];
    let mut random = Random(17);
    println!("| conditions | in time | late | half of the late by | last |");
    println!("|---|---|---|---|---|");
    let mut in_time = Vec::new();
    for (name, conditions) in cases {
        let Outcome {
            in_time: punctual,
            late_s,
        } = conditions.switch(&mut random);
        assert_eq!(punctual + late_s.len(), AGENTS * PROCESSES_PER_AGENT);
        let after = |at: usize| {
            late_s
                .get(at)
                .map_or("—".into(), |late_s| format!("{late_s:.1} s"))
        };
        println!(
            "| {name} | {:.3} % | {} | {} | {} |",
            100.0 * punctual as f64 / (AGENTS * PROCESSES_PER_AGENT) as f64,
            late_s.len(),
            after(late_s.len() / 2),
            after(late_s.len().wrapping_sub(1))
        );
        in_time.push(punctual);
    }
    assert!(in_time[0] >= in_time[2] && in_time[2] >= in_time[3]);
    assert!(in_time[4] > in_time[3] && in_time[6] > in_time[5] && in_time[8] > in_time[7]);

    println!("\n| clocks (deviation) | common part of the windows |\n|---|---|");
    let mut shares = Vec::new();
    for skew_us in [0.0, 50.0, 500.0, 1_000.0, 5_000.0, 50_000.0] {
        let share = common_share(skew_us / 1e6, &mut random);
        println!("| {skew_us} µs | {:.1} % |", 100.0 * share);
        shares.push(share);
    }
    assert!(shares[0] == 1.0 && shares.is_sorted_by(|a, b| a > b));
}
