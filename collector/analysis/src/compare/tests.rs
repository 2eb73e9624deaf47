//! Compares simulated periods, in which some requests change.

mod hosts;
mod periods;
mod rare;
mod simulated;

use super::*;
use crate::critical_path::analyse;
use crate::flow::{FlowPass, FlowSettings, KnownOrders, SiblingOrders};
use crate::model::Model;
use crate::pass::{Pass, TraceView};
use crate::record::TraceRecords;
use crate::segment::segment;
use simulated::{Fault, Random, request};
pub(super) use simulated::{USUAL, period, with_misses};

fn compared_as(periods: [&[TraceRecords]; 2], settings: &CompareSettings) -> Comparison {
    compared_flows(&flows_of(periods), settings)
}

fn compared_flows(flows: &[PeriodFlows; 2], settings: &CompareSettings) -> Comparison {
    Comparison::of(
        &flows[0],
        &flows[1],
        &|operation| {
            operation.service.starts_with("web")
                && &*operation.name != "page"
                && &*operation.name != "order"
        },
        settings,
    )
}

pub(super) fn flows_of(periods: [&[TraceRecords]; 2]) -> [PeriodFlows; 2] {
    flows_with(periods, FlowSettings::default())
}

fn flows_with(periods: [&[TraceRecords]; 2], settings: FlowSettings) -> [PeriodFlows; 2] {
    let orders = periods.map(|period| {
        let mut orders = SiblingOrders::default();
        period.iter().for_each(|records| orders.observe(records));
        orders
    });
    let orders = KnownOrders::of(&orders);
    let mut model = Model::new();
    for records in periods.iter().copied().flatten() {
        let (trace, _) = segment(records, model.labels_mut());
        model.observe(&trace);
    }
    let relations = model.relations(0.0);
    let mut labels = model.labels().clone();
    periods.map(|period| {
        // In two parts, as two threads would.
        let mut passes = [0, 1].map(|_| FlowPass::new(settings, &orders));
        for (at, records) in period.iter().enumerate() {
            let (trace, _) = segment(records, &mut labels);
            let path = analyse(&trace, &relations);
            passes[at % 2].observe(&TraceView {
                records,
                trace: &trace,
                labels: &labels,
                path: &path,
            });
        }
        let [mut one, other] = passes;
        one.merge(other);
        one.into_flows()
    })
}

fn compared(before: Fault, after: Fault, requests: usize) -> Comparison {
    compared_as(
        [&period(1, requests, before), &period(2, requests, after)],
        &CompareSettings::default(),
    )
}

/// Checks that `operation` is the first cause, and that its contribution is about `adds_ns`.
#[track_caller]
fn check(after: Fault, operation: &str, adds_ns: f64, is_structure: bool) -> Comparison {
    let found = compared(USUAL, after, 1_500);
    let first = found.causes.first().expect("a cause");
    assert_eq!(
        first.operation.to_string(),
        operation,
        "{:#?}",
        found.causes
    );
    assert_eq!(
        matches!(first.kind, CauseKind::Structure(_)),
        is_structure,
        "{first:?}"
    );
    assert!(
        (first.contribution_ns - adds_ns).abs() < 0.25 * adds_ns.abs() + 20_000.0,
        "{first:?}"
    );
    let of_all = |(root, ns): (&String, &f64)| {
        let mut roots = found.roots.iter();
        let (_, shares) = roots.find(|(name, _)| name == root).expect("a root");
        shares[1] * ns
    };
    let of_roots_ns: f64 = first.by_root_ns.iter().map(of_all).sum();
    assert!(
        (of_roots_ns - first.contribution_ns).abs() < 0.1 * first.contribution_ns.abs(),
        "{first:?}"
    );
    assert!(
        !first.mutations.is_empty() && first.examples.iter().all(Option::is_some),
        "{first:?}"
    );
    let explained = found.explained_ns() / (found.change_ns - found.workload_ns);
    assert!(
        (0.7..1.3).contains(&explained),
        "{explained}: {:#?}",
        found.causes
    );
    found
}

#[test]
fn a_slow_read_is_found() {
    let found = check(
        Fault {
            read_ns: 500_000,
            ..USUAL
        },
        "store:read",
        1_500_000.0,
        false,
    );
    assert!(matches!(found.causes[0].place, Some(Place::Own(_))));
    assert!(
        found
            .mutations
            .iter()
            .all(|mutation| mutation.kind == MutationKind::ResponseTime)
    );
    let responsible = found.mutations[0]
        .edges
        .iter()
        .find(|edge| edge.is_responsible)
        .expect("an edge");
    assert!(
        found
            .edges
            .get(responsible.edge)
            .to_string()
            .starts_with("store:read")
    );
    // About 3 % of a request's time.
    let found = compared(
        USUAL,
        Fault {
            read_ns: 50_000,
            ..USUAL
        },
        1_500,
    );
    assert_eq!(found.causes[0].operation.to_string(), "store:read");
    let faster = compared(
        Fault {
            read_ns: 500_000,
            ..USUAL
        },
        USUAL,
        1_500,
    );
    assert!(faster.causes[0].contribution_ns < -1_000_000.0);
}

#[test]
fn a_slow_way_is_its_callees() {
    let found = check(
        Fault {
            bank_link_ns: 2_000_000,
            ..USUAL
        },
        "bank:charge",
        800_000.0,
        false,
    );
    assert!(
        matches!(&found.causes[0].place, Some(Place::Link { caller, .. }) if caller.to_string() == "web:order")
    );
}

#[test]
fn one_more_call_is_found_where_it_is_made() {
    let found = check(
        Fault {
            asks_for_ads: true,
            ..USUAL
        },
        "web:page",
        800_000.0,
        true,
    );
    let CauseKind::Structure(PathDifference::Added(added)) = &found.causes[0].kind else {
        panic!("{:?}", found.causes[0]);
    };
    assert_eq!(added.to_string(), "web:ads");
    let mutation = &found.mutations[found.causes[0].mutations[0]];
    let nearest = mutation.precursors.first().expect("a precursor");
    assert!(
        nearest.distance < 0.5 && nearest.divergence.is_some(),
        "{nearest:?}"
    );
}

#[test]
fn a_cache_that_misses_is_found_where_it_is() {
    let found = check(
        Fault {
            misses: 60,
            ..USUAL
        },
        "store:read",
        2_400_000.0,
        true,
    );
    assert!(
        matches!(&found.causes[0].kind, CauseKind::Structure(PathDifference::Added(what)) if what.to_string() == "store:disk")
    );
}

#[test]
fn a_loop_that_grows_is_found_where_it_is() {
    let found = check(Fault { reads: 9, ..USUAL }, "web:page", 3_800_000.0, true);
    assert!(
        matches!(&found.causes[0].kind, CauseKind::Structure(PathDifference::Repeated { what, .. }) if what.to_string() == "web:get")
    );
}

#[test]
fn what_fails_first_is_the_cause() {
    let found = compared(
        USUAL,
        Fault {
            bank_fails: true,
            ..USUAL
        },
        1_500,
    );
    let first = &found.causes[0];
    assert_eq!(
        (first.operation.to_string().as_str(), &first.kind),
        ("bank:charge", &CauseKind::Structure(PathDifference::Fails))
    );
    // The missing mail is a consequence of this cause.
    assert_eq!(found.causes.len(), 1, "{:#?}", found.causes);
}

#[test]
fn what_users_ask_for_is_no_cause() {
    let found = compared(
        USUAL,
        Fault {
            orders: 60,
            ..USUAL
        },
        1_500,
    );
    assert!(found.causes.is_empty(), "{:#?}", found.causes);
    assert!(
        found.workload_ns > 0.8 * found.change_ns && found.change_ns > 500_000.0,
        "{found:?}"
    );
}

#[test]
fn nothing_is_found_where_nothing_changed() {
    let mut alarms = 0;
    for seed in 0..100 {
        let periods = [0, 1].map(|at| period(100 + 2 * seed + at, 400, USUAL));
        let found = compared_as([&periods[0], &periods[1]], &CompareSettings::default());
        alarms += usize::from(!found.causes.is_empty());
    }
    assert!(alarms <= 3, "{alarms} of 100");
}

#[test]
fn the_order_of_requests_changes_nothing() {
    let fault = Fault {
        read_ns: 200_000,
        misses: 30,
        ..USUAL
    };
    let (before, mut after) = (period(1, 600, USUAL), period(2, 600, fault));
    let settings = CompareSettings::default();
    let said = |found: &Comparison| {
        format!(
            "{:?} {:?} {}",
            found.causes, found.mutations, found.change_ns
        )
    };
    let one = said(&compared_as([&before, &after], &settings));
    let mut random = Random(9);
    for at in (1..after.len()).rev() {
        after.swap(at, random.below(at as u64 + 1) as usize);
        after[at].spans.reverse();
    }
    assert_eq!(said(&compared_as([&before, &after], &settings)), one);
}

#[test]
fn what_changed_adds_up() {
    let fault = Fault {
        read_ns: 200_000,
        misses: 30,
        orders: 30,
        asks_for_ads: true,
        ..USUAL
    };
    let found = compared(USUAL, fault, 1_500);
    let within: f64 = found.causes.iter().map(|cause| cause.contribution_ns).sum();
    let whole = found.change_ns - found.workload_ns;
    assert!(
        (within / whole - 1.0).abs() < 0.2,
        "{within} of {whole}: {:#?}",
        found.causes
    );
    for cause in &found.causes {
        assert!(cause.mutations.iter().all(|at| {
            found.mutations[*at]
                .causes
                .iter()
                .any(|of| std::ptr::eq(&found.causes[*of], cause))
        }));
    }
}

#[test]
fn few_requests_say_nothing() {
    let one = [request(&mut Random(1), 1, 0, USUAL)];
    let found = compared_as(
        [
            &one,
            &period(
                2,
                50,
                Fault {
                    read_ns: 5_000_000,
                    ..USUAL
                },
            ),
        ],
        &CompareSettings::default(),
    );
    assert!(
        found.causes.is_empty() && found.change_ns > 0.0,
        "{:#?}",
        found.causes
    );
}

/// Samples requests: a quarter of those up to `split_ns`, and all slower ones.
fn sampled(
    period: &[TraceRecords],
    split_ns: i64,
    (bits, threshold): (u32, &str),
) -> Vec<TraceRecords> {
    let mut kept = Vec::new();
    for (at, records) in period.iter().enumerate() {
        let root = records.spans.iter().find(|span| span.parent_id == 0);
        let is_slow = root.is_some_and(|root| root.end_ns - root.start_ns > split_ns);
        let is_kept = (at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - bits) == 0;
        if is_slow || is_kept {
            let mut records = records.clone();
            let state = if is_slow { "ot=th:0" } else { threshold };
            records.sampling.observe(true, state);
            kept.push(records);
        }
    }
    kept
}

/// Checks that a comparison of sampled requests agrees with one of all requests. Slow requests were
/// kept more often, so without weights the recorded ones show another change.
#[test]
fn sampled_requests_are_weighted() {
    let fault = Fault {
        read_ns: 500_000,
        ..USUAL
    };
    let periods = [period(1, 6_000, USUAL), period(2, 6_000, fault)];
    let settings = CompareSettings::default();
    let all = compared_as([&periods[0], &periods[1]], &settings);
    assert_eq!(all.change_interval_ns, [all.change_ns; 2]);
    let mut latencies_ns: Vec<i64> = periods[0]
        .iter()
        .flat_map(|records| &records.spans)
        .filter(|span| span.parent_id == 0)
        .map(|span| span.end_ns - span.start_ns)
        .collect();
    latencies_ns.sort_unstable();
    let split_ns = latencies_ns[latencies_ns.len() * 3 / 4];
    let few = periods
        .each_ref()
        .map(|period| sampled(period, split_ns, (2, "ot=th:c")));
    let found = compared_as([&few[0], &few[1]], &settings);
    let [low_ns, high_ns] = found.change_interval_ns;
    assert!(
        low_ns < all.change_ns && all.change_ns < high_ns,
        "{found:#?}"
    );
    let first = [&all, &found].map(|of| &of.causes[0]);
    assert_eq!(first[0].operation, first[1].operation);
    let contributions = first.map(|cause| cause.contribution_ns);
    assert!(
        (contributions[1] / contributions[0] - 1.0).abs() < 0.1,
        "{contributions:?}"
    );
    for ((root, shares), (same, expected)) in found.roots.iter().zip(&all.roots) {
        assert_eq!(root, same);
        for (share, expected) in shares.iter().zip(expected) {
            assert!(
                (share - expected).abs() < 0.03,
                "{root}: {share} {expected}"
            );
        }
    }
    let unweighted = few.map(|mut period| {
        period
            .iter_mut()
            .for_each(|records| records.sampling = Default::default());
        period
    });
    let biased = compared_as([&unweighted[0], &unweighted[1]], &settings);
    assert!(
        !(low_ns..high_ns).contains(&biased.change_ns),
        "{} is in {low_ns} to {high_ns}",
        biased.change_ns
    );
}

/// Checks that one weight for all requests changes only the numbers of requests.
#[test]
fn equal_weights_change_nothing() {
    let fault = Fault {
        read_ns: 500_000,
        ..USUAL
    };
    let periods = [period(1, 800, USUAL), period(2, 800, fault)];
    let weighted = periods.clone().map(|mut period| {
        period
            .iter_mut()
            .for_each(|records| records.sampling.observe(true, "ot=th:c"));
        period
    });
    let settings = CompareSettings::default();
    let plain = compared_as([&periods[0], &periods[1]], &settings);
    let found = compared_as([&weighted[0], &weighted[1]], &settings);
    let causes = |of: &Comparison| -> Vec<(String, i64, i64)> {
        let cause = |cause: &Cause| {
            let operation = cause.operation.to_string();
            (
                operation,
                cause.contribution_ns.round() as i64,
                (cause.q_value * 1e9) as i64,
            )
        };
        of.causes.iter().map(cause).collect()
    };
    assert_eq!(causes(&found), causes(&plain));
    let requests = |of: &Comparison| of.mutations[0].requests;
    assert_eq!(
        requests(&found),
        requests(&plain).map(|requests| 4 * requests)
    );
}
