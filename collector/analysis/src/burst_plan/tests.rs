//! Tests burst plans against simulations of the mask.

use super::*;

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

    fn part(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

const MS: f64 = 1e6;

/// Compares the planned yield with requests that begin at random moments. A burst records while all
/// bits of the mask are set in the time in ms.
#[test]
fn what_is_foretold_is_what_the_mask_records() {
    let mut random = Random(1);
    for (burst_ms, period_ms) in [(4, 32), (64, 128), (256, 4_096), (32, 64), (8, 8)] {
        let lengths: Vec<f64> = (0..20).map(|_| random.part() * 40.0 * MS).collect();
        let arrivals = Arrivals::new(lengths.iter().map(|length| (*length, 500.0)).collect());
        let longest_ns = 30.0 * MS;
        let plan = planned(&arrivals, longest_ns, burst_ms, period_ms);
        let mask = plan.mask();
        let (mut whole, mut followed, mut meeting, mut all) = (0.0, 0.0, 0.0, 0.0);
        for _ in 0..100_000 {
            let length_ns = lengths[(random.next() % 20) as usize];
            all += 1.0;
            if length_ns > longest_ns {
                continue;
            }
            // Many periods after the epoch.
            let begin_ns = random.part() * 1e9 * 1_000.0 + 1.7e15;
            let ms = |ns: f64| (ns / MS) as u64;
            let mut is_on = (ms(begin_ns)..=ms(begin_ns + length_ns)).map(|at| at & mask == mask);
            let begins = (ms(begin_ns) & mask) == mask;
            followed += f64::from(u8::from(begins));
            if is_on.clone().all(|on| on) {
                whole += 1.0;
            }
            if is_on.any(|on| on) {
                meeting += 1.0;
            }
        }
        let per_hour = 20.0 * 500.0;
        // Allow four standard deviations, and errors of rounding.
        let near = |found: f64, expected: f64| {
            let part = found / all;
            let error = 4.0 * (part * (1.0 - part) / all).sqrt() + 1e-9;
            assert!(
                (part * per_hour - expected).abs() <= error * per_hour,
                "{burst_ms}/{period_ms}: {} {expected}",
                part * per_hour
            );
        };
        near(whole, plan.whole_per_hour);
        near(followed, plan.followed_per_hour);
        let cut = 1.0 - whole / meeting;
        assert!((cut - plan.cut_share).abs() < 0.02, "{cut} {plan:?}");
    }
}

/// Returns arrivals of one request every 100 ms: half of them take 5 ms, half 20 ms.
fn some() -> Arrivals {
    Arrivals::new(vec![(5.0 * MS, 18_000.0), (20.0 * MS, 18_000.0)])
}

#[test]
fn the_best_reaches_the_goal_and_half_of_it_does_not() {
    let goal = BurstGoal {
        longest_ns: 30.0 * MS,
        duty_max: 0.02,
        duty_max_relaxed: 1.0,
        whole_per_hour: 200.0,
    };
    let plans = plan_bursts(&some(), &goal);
    let best = plans.reaching[0];
    // Ten times 30 ms is 300 ms, so bursts take 512 ms. Their period is the longest that suffices.
    assert_eq!((best.burst_ms, best.period_ms), (512, 65_536));
    assert!(best.whole_per_hour >= 200.0 && best.duty() <= 0.02);
    let rarer = planned(&some(), goal.longest_ns, 512, 2 * 65_536);
    assert!(rarer.whole_per_hour < 200.0);
    assert_eq!(plans.giving_way, None);
    for plan in &plans.reaching {
        assert!(
            plan.whole_per_hour >= 200.0 && plan.duty() <= 0.02,
            "{plan:?}"
        );
        assert!(plan.period_ms as f64 * MS >= 10.0 * goal.longest_ns);
    }
}

#[test]
fn what_gives_way_reaches_the_rest() {
    let goal = BurstGoal {
        longest_ns: 30.0 * MS,
        duty_max: 0.01,
        duty_max_relaxed: 1.0,
        whole_per_hour: 5_000.0,
    };
    let plans = plan_bursts(&some(), &goal);
    assert_eq!(plans.reaching, []);
    let giving_way = plans.giving_way.unwrap();
    let fewer = giving_way.whole_per_hour.unwrap();
    assert!(fewer.duty() <= 0.01 && fewer.whole_per_hour < 5_000.0 && fewer.whole_per_hour > 100.0);
    let more = giving_way.duty.unwrap();
    assert!(more.duty() > 0.01 && more.whole_per_hour >= 5_000.0);
    // Shorter limits include fewer requests.
    assert_eq!(giving_way.longest, None);
    // No mask records more requests than there are.
    let impossible = BurstGoal {
        whole_per_hour: 40_000.0,
        ..goal
    };
    let plans = plan_bursts(&some(), &impossible);
    assert_eq!(plans.giving_way.unwrap().duty, None);
    let none = plan_bursts(&Arrivals::default(), &goal);
    assert_eq!(
        none.giving_way,
        Some(GivingWay {
            whole_per_hour: None,
            duty: None,
            longest: None
        })
    );
}

#[test]
fn everything_is_recorded_where_the_goal_is_everything() {
    let goal = BurstGoal {
        longest_ns: 30.0 * MS,
        duty_max: 1.0,
        duty_max_relaxed: 1.0,
        whole_per_hour: 36_000.0,
    };
    let plans = plan_bursts(&some(), &goal);
    assert_eq!(plans.reaching.len(), 1);
    assert_eq!(
        (plans.reaching[0].mask(), plans.reaching[0].cut_share),
        (0, 0.0)
    );
    assert_eq!(some().percentile_ns(0.5), Some(5.0 * MS));
    assert_eq!(some().percentile_ns(0.95), Some(20.0 * MS));
}

/// Checks that each relaxation keeps the other bounds, and compares the relaxed share of time with
/// an enumeration of bursts of 2ⁿ ms every 2ⁿ⁺ᵐ ms.
#[test]
fn relaxing_one_bound_keeps_the_other() {
    let longest_ns = 30.0 * MS;
    let masks: Vec<PlannedBursts> = (0..=20)
        .flat_map(|bits| (bits..=34).map(move |period| (bits, period)))
        .map(|(bits, period)| planned(&some(), longest_ns, 1 << bits, 1 << period))
        .collect();
    let mut seen = [0; 2];
    for duty_max in [0.003, 0.02, 0.1] {
        for duty_max_relaxed in [0.004, 0.02, 0.3, 1.0] {
            for whole_per_hour in [50.0, 600.0, 4_000.0, 20_000.0, 40_000.0] {
                let goal = BurstGoal {
                    longest_ns,
                    duty_max,
                    duty_max_relaxed,
                    whole_per_hour,
                };
                let Some(giving_way) = plan_bursts(&some(), &goal).giving_way else {
                    continue;
                };
                let meets = |of: &PlannedBursts| {
                    of.whole_per_hour >= whole_per_hour && of.duty() <= duty_max_relaxed
                };
                assert!(giving_way.duty.iter().all(meets), "{goal:?} {giving_way:?}");
                let fewer = giving_way.whole_per_hour;
                assert!(fewer.iter().all(|of| of.duty() <= duty_max), "{goal:?}");
                let meets_shorter = |(_, of): &(f64, PlannedBursts)| {
                    of.whole_per_hour >= whole_per_hour && of.duty() <= duty_max
                };
                assert!(
                    giving_way.longest.iter().all(meets_shorter),
                    "{goal:?} {giving_way:?}"
                );
                // Plans try bursts of these lengths.
                let wanted_ms = (longest_ns * TIMES_REQUEST / MS) as u64;
                let is_any = masks.iter().any(|of| {
                    of.burst_ms >= wanted_ms && of.burst_ms <= 4 * wanted_ms && meets(of)
                });
                assert!(!is_any || giving_way.duty.is_some(), "{goal:?}");
                seen[usize::from(giving_way.duty.is_some())] += 1;
            }
        }
    }
    assert!(seen.iter().all(|cases| *cases > 3), "{seen:?}");
}
