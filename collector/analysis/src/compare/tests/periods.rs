//! Tests results about whole periods and their sections.

use super::*;
use crate::flow::{ERROR, FlowCategory};
use crate::record::{AttributeRecord, RecordOwner};
use crate::sampling::{Weight, WeightedCount};
use rustc_hash::FxHashMap;

#[test]
fn more_variation_with_the_same_mean_is_said() {
    let before = period(1, 1_500, USUAL);
    let mut after = period(2, 1_500, USUAL);
    for (at, records) in after.iter_mut().enumerate() {
        // The root is the first span, and works at its end: half of the requests end later, the
        // others earlier.
        let root = &mut records.spans[0];
        root.end_ns += if at % 2 == 0 { 700_000 } else { -700_000 };
    }
    let settings = CompareSettings::default();
    let found = compared_as([&before, &after], &settings);
    let largest = found.variation.changes.first().expect("it varies more");
    assert!(largest.squared[1] > 1.2 * largest.squared[0], "{largest:?}");
    assert!(largest.q_value <= settings.false_discoveries, "{largest:?}");
    // Two periods that vary alike show no change.
    let found = compared_as([&before, &period(3, 1_500, USUAL)], &settings);
    assert!(found.variation.changes.is_empty(), "{:?}", found.variation);
    assert!(
        found.variation.p_value.expect("large categories") > 0.05,
        "{:?}",
        found.variation
    );
    assert!(found.variation.low(0).expect("large categories") > 0.9);
}

#[test]
fn of_the_same_workload_more_requests_are_a_change() {
    let orders = Fault {
        orders: 60,
        ..USUAL
    };
    let periods = [period(1, 1_500, USUAL), period(2, 1_500, orders)];
    let compared = |same_workload| {
        let settings = CompareSettings {
            same_workload,
            ..CompareSettings::default()
        };
        compared_as([&periods[0], &periods[1]], &settings)
    };
    let structural = |found: &Comparison| -> Vec<String> {
        let some = found.mutations.iter();
        some.filter(|mutation| mutation.kind == MutationKind::Structural)
            .map(|mutation| mutation.root.clone())
            .collect()
    };
    // Users ask for something else.
    assert_eq!(structural(&compared(false)), [""; 0]);
    let found = structural(&compared(true));
    assert!(
        !found.is_empty() && found.iter().all(|root| root == "web:order"),
        "{found:?}"
    );
}

/// An interval of the mean wholly above a limit is no proof of a rise, because it treats requests
/// as independent. Requests of one burst are alike.
#[test]
fn equal_periods_differ_by_their_intervals_if_requests_are_alike() {
    const PAIRS: usize = 200;
    const REQUESTS: usize = 400;
    const OF_BURST: usize = 20;
    let mut random = Random(7);
    let mut normal = || -> f64 {
        let uniform = (0..12).map(|_| random.below(1 << 20) as f64 / f64::from(1 << 20));
        uniform.sum::<f64>() - 6.0
    };
    let mut period = |of_bursts: f64| {
        let mut all = FlowCategory {
            shape: None,
            requests: 0,
            count: WeightedCount::default(),
            latency_ns: 0,
            squares_ns2: 0,
            edges_ns: FxHashMap::default(),
            sample: Vec::new(),
        };
        let mut of_burst = 0.0;
        for at in 0..REQUESTS {
            if at % OF_BURST == 0 {
                of_burst = of_bursts * normal();
            }
            let latency_ns = (1e6 * (0.7 * normal() + of_burst).exp()) as u128;
            all.requests += 1;
            all.count.count(Weight::ONE);
            all.latency_ns += latency_ns;
            all.squares_ns2 += latency_ns * latency_ns;
        }
        RootFlows {
            overflow: Some(all),
            ..RootFlows::default()
        }
    };
    // Number of pairs whose interval is above a limit, and of those whose interval excludes zero.
    let mut counts = |of_bursts: f64| {
        let mut counts = [0; 2];
        for _ in 0..PAIRS {
            let [before, after] = [0, 1].map(|_| period(of_bursts));
            let [low_ns, high_ns] = before.change_interval_ns(&after);
            counts[0] += usize::from(low_ns > 0.05 * before.mean_ns());
            counts[1] += usize::from(low_ns > 0.0 || high_ns < 0.0);
        }
        counts
    };
    let (independent, alike) = (counts(0.0), counts(0.4));
    assert!(
        independent[0] <= 2 && alike[0] >= 15,
        "{independent:?}, {alike:?}"
    );
    assert!(
        independent[1] <= 18 && alike[1] >= 50,
        "{independent:?}, {alike:?}"
    );
}

/// Checks that a structure in a part of one period that the other period lacks is found, in both
/// directions.
#[test]
fn what_begins_within_a_period_is_found() {
    let slower = |seed: u64, requests: usize, read_ns: i64| {
        let fault = Fault {
            read_ns,
            misses: 0,
            orders: 0,
            ..USUAL
        };
        period(seed, requests, fault)
    };
    let usual = |seed: u64, requests: usize| slower(seed, requests, 0);
    let mixed = || {
        let mut random = Random(9);
        let fault = |at: u64, random: &mut Random| Fault {
            misses: 0,
            orders: 0,
            reads: if at >= 220 && random.below(8) == 0 {
                40
            } else {
                3
            },
            ..USUAL
        };
        (0..420)
            .map(|at| {
                let fault = fault(at, &mut random);
                request(
                    &mut random,
                    u128::from(at),
                    at as i64 * 1_000_000_000,
                    fault,
                )
            })
            .collect::<Vec<_>>()
    };
    let settings = CompareSettings::default();
    for within in [Period::Before, Period::After] {
        let periods = match within {
            Period::Before => [mixed(), usual(2, 340)],
            Period::After => [usual(2, 340), mixed()],
        };
        let found = compared_as([&periods[0], &periods[1]], &settings);
        let first = found.causes.first().expect("a cause");
        assert!(
            matches!(
                &first.kind,
                CauseKind::Structure(PathDifference::Repeated { .. })
            ),
            "{first:?}"
        );
        assert_eq!(first.changed_within, Some(within), "{first:?}");
        let explained = found.explained_ns() / (found.change_ns - found.workload_ns);
        assert!((0.8..1.2).contains(&explained), "{explained}");
        assert_eq!(found.causes.len(), 1, "{:#?}", found.causes);
    }
    // If all later requests are slower, the section does not explain the change.
    let found = compared_as([&mixed(), &slower(2, 340, 2_000_000)], &settings);
    let (principal, others) = found.causes.split_at(found.principal);
    let is_section = |cause: &Cause| cause.changed_within == Some(Period::Before);
    assert!(
        !principal.is_empty() && !principal.iter().any(is_section),
        "{:#?}",
        found.causes
    );
    assert!(others.iter().any(is_section), "{:#?}", found.causes);
}

/// Checks that a new structure in two thirds of the later requests does not count as a section,
/// even if a coarse clock shows all starts as equal.
#[test]
fn requests_of_one_instant_come_in_no_runs() {
    let made = |first: u64, is_new: fn(u64) -> bool| {
        let mut random = Random(first);
        let one = |at: u64| {
            let fault = Fault {
                misses: 0,
                orders: 0,
                asks_for_ads: is_new(at),
                ..USUAL
            };
            request(&mut random, u128::from(first + at), 0, fault)
        };
        (0..24).map(one).collect::<Vec<_>>()
    };
    let periods = [made(100, |_| false), made(200, |at| at % 3 != 0)];
    let found = compared_as([&periods[0], &periods[1]], &CompareSettings::default());
    let first = found.causes.first().expect("a cause");
    assert!(matches!(first.kind, CauseKind::Structure(_)), "{first:?}");
    assert_eq!(first.changed_within, None, "{first:?}");
}

/// Checks that a fix that replaces all calls by one call of another name saves the time of the
/// requests that made many calls.
#[test]
fn a_structure_that_vanishes_counts_although_others_change_too() {
    let made = |seed: u64, is_fixed: bool| {
        let mut records = Vec::new();
        let mut random = Random(seed);
        for at in 0..600u64 {
            let is_slow = !is_fixed && random.below(10) == 0;
            let fault = Fault {
                misses: 0,
                orders: 0,
                reads: if is_slow { 40 } else { 1 },
                ..USUAL
            };
            let id = u128::from(seed) << 64 | u128::from(at);
            let mut one = request(&mut random, id, at as i64 * 10_000_000, fault);
            if is_fixed {
                let clients = one.spans.iter_mut().filter(|span| &*span.name == "get");
                clients.for_each(|span| span.name = "get_all".into());
            }
            records.push(one);
        }
        records
    };
    let found = compared_as(
        [&made(1, false), &made(2, true)],
        &CompareSettings::default(),
    );
    let structural: f64 = found
        .causes
        .iter()
        .filter(|cause| matches!(cause.kind, CauseKind::Structure(_)))
        .map(|cause| cause.contribution_ns)
        .sum();
    let credited = structural / found.change_ns;
    assert!(
        (0.8..1.2).contains(&credited),
        "{credited}: {:#?}",
        found.causes
    );
}

/// Returns requests of blocks of 60. The requests of a heavy block read 20 times, others 3 times.
fn in_blocks(seed: u64, is_heavy: impl Fn(u64) -> bool) -> Vec<TraceRecords> {
    let mut random = Random(seed);
    let one = |at: u64| {
        let reads = if is_heavy(at / 60) { 20 } else { 3 };
        let fault = Fault {
            reads,
            misses: 0,
            orders: 0,
            ..USUAL
        };
        let id = u128::from(seed) << 64 | u128::from(at);
        request(&mut random, id, at as i64 * 1_000_000_000, fault)
    };
    (0..600).map(one).collect()
}

/// Checks that a change between periods that vary as much within themselves has no cause, and shows
/// only in the interval of the mean.
#[test]
fn a_mix_that_changes_in_steps_has_no_cause_but_another_mean() {
    for (heavy, has_changed) in [([3, 3], false), ([3, 4], true), ([2, 6], true)] {
        for seed in 0..2 {
            let made = [0, 1].map(|later| {
                let is_heavy = |block| (block * 7 + seed) % 10 < heavy[later];
                in_blocks(1 + 2 * seed + later as u64, is_heavy)
            });
            let [before, after] = flows_of(made.each_ref().map(Vec::as_slice));
            let found = Comparison::of(&before, &after, &|_| false, &CompareSettings::default());
            assert!(found.causes.is_empty(), "{heavy:?}: {:#?}", found.causes);
            let changed = before.roots.iter().any(|(root, flows)| {
                let later = after.roots.get(root);
                let interval_ns = later.map(|later| flows.change_interval_ns(later));
                interval_ns.is_some_and(|[low, high]| low >= 1.0 || high <= -1.0)
            });
            assert_eq!(changed, has_changed, "{heavy:?}, seed {seed}");
        }
    }
}

#[test]
fn a_request_in_which_two_callers_see_a_failure_counts_once() {
    let fault = Fault {
        reads: 2,
        misses: 0,
        orders: 0,
        ..USUAL
    };
    let pages = |seed: u64, failing: usize| {
        let mut pages = period(seed, 300, fault);
        for (at, records) in pages.iter_mut().enumerate() {
            let mut gets = records.spans.iter_mut().filter(|span| &*span.name == "get");
            gets.next_back().expect("a read").name = "find".into();
            let reads = records.spans.iter().filter(|span| &*span.name == "read");
            let failed = reads.map(|read| AttributeRecord {
                owner: RecordOwner::Span(read.span_id),
                key: ERROR.into(),
                value: "true".into(),
            });
            if at % 10 < failing {
                records.attributes.extend(failed);
            }
        }
        pages
    };
    let found = compared_as([&pages(1, 0), &pages(2, 7)], &CompareSettings::default());
    let first = &found.causes[0];
    assert_eq!(
        (first.operation.to_string().as_str(), &first.kind),
        ("store:read", &CauseKind::Structure(PathDifference::Fails))
    );
    assert!((first.affected - 0.7).abs() < 0.01, "{first:?}");
}

/// Thinning keeps slow requests, and here one in sixteen of the others. Among the recorded requests
/// of a thinned period, more are slow than among those of any other period.
#[test]
fn a_thinned_period_differs_from_no_other_by_what_was_kept() {
    let compared = |seed: u64, fault: Fault| {
        let [before, after] = [period(seed, 1_500, USUAL), period(seed + 1, 1_500, fault)];
        let thinned = sampled(&before, 5_500_000, (4, "ot=th:f"));
        compared_as([&thinned, &after], &CompareSettings::default())
    };
    let is_alarm = |at: &u64| {
        let found = compared(500 + 2 * at, USUAL);
        !found.causes.is_empty() || !found.variation.changes.is_empty()
    };
    let alarms = (0..30).filter(is_alarm).count();
    println!("{alarms} of 30");
    assert!(alarms <= 2, "{alarms}");
    let slow = Fault {
        read_ns: 500_000,
        ..USUAL
    };
    let found = compared(500, slow);
    let operation = found.causes[0].operation.to_string();
    assert_eq!(operation, "store:read", "{:#?}", found.causes);
}
