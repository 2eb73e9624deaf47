//! Simulated requests, some of which change.

mod periods;

use super::*;
use crate::critical_path::analyse;
use crate::flow::{FlowPass, FlowSettings, KnownOrders, SiblingOrders};
use crate::model::Model;
use crate::pass::{Pass, TraceView};
use crate::record::{AttributeRecord, RecordOwner, SpanFlags, SpanRecord, TraceId, TraceRecords};
use crate::segment::segment;

/// What is different about a period.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Fault {
    /// The store's reads take so much longer.
    read_ns: i64,
    /// So does the way to the bank.
    bank_link_ns: i64,
    /// Pages ask for advertisements.
    asks_for_ads: bool,
    /// So many of a hundred reads miss the cache.
    misses: u64,
    /// So many reads a page.
    reads: u64,
    /// The bank fails.
    bank_fails: bool,
    /// So many of a hundred requests are orders.
    orders: u64,
}

const USUAL: Fault = Fault {
    read_ns: 0,
    bank_link_ns: 0,
    asks_for_ads: false,
    misses: 5,
    reads: 3,
    bank_fails: false,
    orders: 20,
};

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }

    /// A time of about so long, with a tail.
    fn about_ns(&mut self, mean_ns: i64) -> i64 {
        let unit = (self.below(1 << 20) + 1) as f64 / f64::from(1 << 20);
        (mean_ns as f64 * (0.7 - 0.3 * unit.ln())) as i64
    }
}

/// A request in the making.
struct Making<'a> {
    records: TraceRecords,
    random: &'a mut Random,
}

impl Making<'_> {
    /// A span that takes so long by itself, and does `inner` in the midst of it; when it ends.
    fn span(
        &mut self,
        (parent_id, name): (u64, &str),
        flags: SpanFlags,
        start_ns: i64,
        own_ns: i64,
        inner: &mut dyn FnMut(&mut Self, u64, i64) -> i64,
    ) -> i64 {
        let span_id = self.records.spans.len() as u64 + 1;
        let at = self.records.spans.len();
        let (service, operation) = name.split_once(':').expect("service:name");
        self.records.spans.push(SpanRecord {
            span_id,
            parent_id,
            service: service.into(),
            name: operation.into(),
            host: "".into(),
            process: 1,
            start_ns,
            end_ns: start_ns,
            flags,
            events: Vec::new(),
        });
        let own_ns = self.random.about_ns(own_ns);
        let end_ns = inner(self, span_id, start_ns + own_ns / 2) + own_ns / 2;
        self.records.spans[at].end_ns = end_ns;
        end_ns
    }

    /// A call to another service, over a link that takes so long each way.
    fn call(
        &mut self,
        (parent_id, client, server): (u64, &str, &str),
        start_ns: i64,
        (link_ns, own_ns): (i64, i64),
        inner: &mut dyn FnMut(&mut Self, u64, i64) -> i64,
    ) -> i64 {
        self.span(
            (parent_id, client),
            SpanFlags::CLIENT,
            start_ns,
            2 * link_ns,
            &mut |made, client_id, at_ns| {
                made.span((client_id, server), SpanFlags::SERVER, at_ns, own_ns, inner)
            },
        )
    }
}

fn nothing(_: &mut Making<'_>, _: u64, at_ns: i64) -> i64 {
    at_ns
}

fn request(random: &mut Random, id: u128, start_ns: i64, fault: Fault) -> TraceRecords {
    let mut made = Making {
        records: TraceRecords {
            id: TraceId(id),
            ..TraceRecords::default()
        },
        random,
    };
    let is_order = made.random.below(100) < fault.orders;
    let mut bank = None;
    made.span(
        (0, if is_order { "web:order" } else { "web:page" }),
        SpanFlags::SERVER,
        start_ns,
        2_000_000,
        &mut |made, web, at_ns| {
            let mut at_ns = at_ns;
            for _ in 0..fault.reads {
                let misses = made.random.below(100) < fault.misses;
                at_ns = made.call(
                    (web, "web:get", "store:read"),
                    at_ns,
                    (200_000, 400_000),
                    &mut |made, read, at_ns| {
                        let at_ns = at_ns + fault.read_ns;
                        if misses {
                            made.span(
                                (read, "store:disk"),
                                SpanFlags::default(),
                                at_ns,
                                1_500_000,
                                &mut nothing,
                            )
                        } else {
                            at_ns
                        }
                    },
                );
            }
            if fault.asks_for_ads && !is_order {
                at_ns = made.call(
                    (web, "web:ads", "ads:pick"),
                    at_ns,
                    (200_000, 600_000),
                    &mut nothing,
                );
            }
            if is_order {
                let link_ns = 300_000 + fault.bank_link_ns;
                at_ns = made.call(
                    (web, "web:pay", "bank:charge"),
                    at_ns,
                    (link_ns, 900_000),
                    &mut |_, charge, at_ns| {
                        bank = Some(charge);
                        at_ns
                    },
                );
                if !fault.bank_fails {
                    at_ns = made.call(
                        (web, "web:mail", "mail:send"),
                        at_ns,
                        (200_000, 500_000),
                        &mut nothing,
                    );
                }
            }
            at_ns
        },
    );
    if let Some(bank) = bank.filter(|_| fault.bank_fails) {
        made.records.attributes.push(AttributeRecord {
            owner: RecordOwner::Span(bank),
            key: crate::flow::ERROR.into(),
            value: "true".into(),
        });
    }
    made.records
}

/// A period of so many requests, one each 10 ms.
fn period(seed: u64, requests: usize, fault: Fault) -> Vec<TraceRecords> {
    let mut random = Random(seed);
    (0..requests)
        .map(|at| {
            let id = u128::from(seed) << 64 | (at as u128 * 0x9e37_79b9_7f4a_7c15);
            request(&mut random, id, at as i64 * 10_000_000, fault)
        })
        .collect()
}

fn compared_as(periods: [&[TraceRecords]; 2], settings: &CompareSettings) -> Comparison {
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
    let flows = periods.map(|period| {
        // In two parts, as two threads would.
        let mut passes = [0, 1].map(|_| FlowPass::new(FlowSettings::default(), &orders));
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
    });
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

fn compared(before: Fault, after: Fault, requests: usize) -> Comparison {
    compared_as(
        [&period(1, requests, before), &period(2, requests, after)],
        &CompareSettings::default(),
    )
}

/// The first cause is this operation, and what it adds is about this much.
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
    // A fortieth of a request's time; the mean of all varies by as much.
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
    // That no mail is sent follows from it.
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
    for seed in 0..200 {
        let periods = [0, 1].map(|at| period(100 + 2 * seed + at, 400, USUAL));
        let found = compared_as([&periods[0], &periods[1]], &CompareSettings::default());
        alarms += usize::from(!found.causes.is_empty());
    }
    assert!(alarms <= 5, "{alarms} of 200");
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
