//! Compares formulas with their reference implementation on random bursts: fixed formulas, and
//! random ones.

use std::sync::Arc;

use proptest::prelude::*;
use stroboscope_analysis::record::{
    AttributeRecord, EventRecord, HostClock, RecordOwner, SpanFlags, SpanRecord, TraceId,
    TraceRecords,
};

use super::brute;
use crate::{
    Formula, KernelEvent, KernelKind, Order, Relation, Requirement, Selector, SharedProperty, Side,
    Truth, Unit, When, parse,
};

/// Random number generator (SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn one_in(&mut self, of: u64) -> bool {
        self.below(of) == 0
    }
}

const NAMES: [&str; 3] = ["read", "write", "lock"];
const SERVICES: [&str; 2] = ["web", "store"];
const HOSTS: [&str; 3] = ["h1", "h2", "h3"];

fn clocks(random: &mut Random) -> Vec<HostClock> {
    if !random.one_in(2) {
        return Vec::new();
    }
    let clock = |random: &mut Random, host: &str| HostClock {
        host: host.into(),
        error_ns: random.below(8),
        resolution_ns: [1, 1, 4][random.below(3) as usize],
        island: u32::from(random.one_in(6)),
    };
    HOSTS[1..].iter().map(|host| clock(random, host)).collect()
}

/// Returns a burst of one to three requests with up to six spans each, close together in time, and
/// the time range in which every span was recorded, in ns, if such a range is known.
fn burst(random: &mut Random) -> (Vec<TraceRecords>, Option<(i64, i64)>) {
    let clocks = clocks(random);
    let requests = (0..=random.below(3)).map(|number| {
        let mut records = TraceRecords {
            id: TraceId(u128::from(number)),
            clocks: clocks.clone(),
            ..TraceRecords::default()
        };
        for id in 1..=random.below(7) {
            let start_ns = random.below(60) as i64;
            let mut flags = SpanFlags(0);
            if random.one_in(8) {
                flags = flags.with(SpanFlags::CUT_OPEN);
            }
            if random.one_in(8) {
                flags = flags.with(SpanFlags::CUT_CLOSE);
            }
            if random.one_in(3) {
                flags = flags.with(SpanFlags::SERVER);
            }
            let text = |of: &[&str], random: &mut Random| -> Arc<str> {
                of[random.below(of.len() as u64) as usize].into()
            };
            records.spans.push(SpanRecord {
                span_id: id,
                // The parent is a span with a lower id, no span, or a span that was not recorded.
                parent_id: if random.one_in(10) {
                    99
                } else {
                    random.below(id)
                },
                service: text(&SERVICES, random),
                name: text(&NAMES, random),
                host: text(&HOSTS, random),
                process: u128::from(random.below(3)),
                start_ns,
                end_ns: start_ns + random.below(20) as i64,
                flags,
                events: Vec::new(),
            });
            if random.one_in(2) {
                records.attributes.push(AttributeRecord {
                    owner: RecordOwner::Span(id),
                    key: "bytes".into(),
                    value: random.below(10).to_string().into(),
                });
            }
        }
        if random.one_in(6) {
            records.events.push(EventRecord {
                host: "h1".into(),
                ts_ns: random.below(60) as i64,
                seq: 0,
                event: "lock".into(),
                task: "web".into(),
            });
        }
        records
    });
    let requests: Vec<TraceRecords> = requests.collect();
    let seen = match random.below(4) {
        0 => None,
        1 => Some((10, 50)),
        _ => Some((-crate::unit::NEVER_NS, crate::unit::NEVER_NS)),
    };
    (requests, seen)
}

/// Returns kernel events with the indexes of their requests, and true if all kernel events were
/// recorded.
fn kernel(random: &mut Random, requests: &[TraceRecords]) -> (Vec<(usize, KernelEvent)>, bool) {
    let count = if random.one_in(3) { 0 } else { random.below(6) };
    let events = (0..count).map(|_| {
        let start_ns = random.below(60) as i64;
        let kind = KernelKind::ALL[random.below(3) as usize];
        let mut attributes = Vec::new();
        if random.one_in(2) {
            attributes.push(("bytes", random.below(10).to_string().into()));
        }
        let event = KernelEvent {
            kind,
            name: NAMES[random.below(3) as usize].into(),
            host: HOSTS[random.below(3) as usize].into(),
            span_id: random.below(8),
            start_ns,
            end_ns: start_ns + random.below(20) as i64,
            is_cut_open: random.one_in(8),
            is_cut_close: random.one_in(8),
            attributes,
        };
        (random.below(requests.len() as u64) as usize, event)
    });
    (events.collect(), !random.one_in(4))
}

/// Formulas about kernel events.
const KERNEL_FORMULAS: [&str; 11] = [
    r#"{ kernel = "syscall" && name = "read" && duration > 5ns }"#,
    r#"{ kernel = lock_wait && .bytes != nil }"#,
    r#"{ name = "read" } overlaps { kernel = off_cpu } in the same request"#,
    r#"{ kernel != nil } during { service = "store" } at the same service"#,
    r#"{ service = "web" } >> { kernel = "syscall" }"#,
    r#"{ kernel = "off_cpu" } overlaps { kernel = "off_cpu" } at the same host in another request"#,
    r#"at least 2 of { kernel = "syscall" } within 20ns"#,
    r#"never { kernel = lock_wait }"#,
    r#"always { duration < 18ns } and { kernel = syscall }"#,
    r#"{ service = "web" } until { kernel = syscall }"#,
    r#"not { name = "read" } then { kernel = syscall }"#,
];

/// Formulas about spans, with every temporal operator.
const FORMULAS: [&str; 40] = [
    r#"{ name = "read" }"#,
    r#"{ service = "store" && name = "read" && duration > 5ns && .bytes > 4 }"#,
    r#"{ .bytes != nil } && { .bytes < 3 }"#,
    r#"{ name =~ "re.*|lock" || kind = server }"#,
    r#"{ service = "web" } >> { service = "store" }"#,
    r#"{ service = "web" } > { name = "read" }"#,
    r#"({ name = "read" } ~ { name = "write" }) >> { duration >= 3ns }"#,
    r#"{ name = "read" } | count() > 1"#,
    r#"{ name = "read" } | count() = 2"#,
    r#"{ duration < 4ns } | count() <= 1"#,
    r#"{ name = "read" } then { name = "write" }"#,
    r#"{ name = "read" } then { name = "write" } within 9ns"#,
    r#"{ name = "read" } then { name = "write" } then { name = "lock" } within 12ns"#,
    r#"{ name = "read" } before { name = "write" } within 4ns"#,
    r#"{ name = "lock" } during { name = "read" }"#,
    r#"{ name = "lock" } overlaps { name = "read" }"#,
    r#"{ name = "lock" } overlaps { name = "lock" } at the same service in another request"#,
    r#"{ name = "read" } overlaps { service = "store" } at the same host"#,
    r#"{ name = "read" } then { name = "read" } in another request within 8ns"#,
    r#"{ name = "read" } before { .bytes > 6 } in the same request"#,
    r#"{ name = "write" } during { service = "web" } at the same process in another request"#,
    r#"never { name = "lock" }"#,
    r#"never { name = "write" } before { name = "read" }"#,
    r#"always { duration < 18ns }"#,
    r#"always ({ name = "read" } implies eventually within 15ns { name = "write" })"#,
    r#"always ({ name = "write" } implies once { name = "read" })"#,
    r#"always ({ name = "write" } implies once within 10ns { name = "lock" })"#,
    r#"eventually within 20ns { .bytes = 5 }"#,
    r#"{ service = "web" } until { service = "store" }"#,
    r#"not { name = "lock" } until { name = "write" } within 30ns"#,
    r#"eventually ({ name = "read" } and ({ service = "web" } since { .bytes > 2 }))"#,
    r#"eventually ({ name = "read" } and ({ duration < 15ns } since { .bytes > 2 } within 25ns))"#,
    r#"at least 2 of { name = "read" } within 10ns"#,
    r#"at least 3 of { duration > 2ns }"#,
    r#"at most 1 of { name = "lock" } within 20ns"#,
    r#"{ name = "read" } and historically { duration < 19ns }"#,
    r#"not ({ name = "read" } then { name = "lock" }) or { .bytes = 9 }"#,
    r#"at least 2 of ({ name = "read" } overlaps { name = "write" }) within 25ns"#,
    r#"{ name = "read" } then { name = "read" } with the same .bytes within 30ns"#,
    r#"{ rootName = "read" && rootServiceName != "store" && traceDuration > 3ns }"#,
];

#[track_caller]
fn check(requests: &[TraceRecords], seen: Option<(i64, i64)>, formula: &Formula) -> Vec<Truth> {
    check_unit(&Unit::of(requests, seen), formula)
}

#[track_caller]
fn check_unit(unit: &Unit<'_>, formula: &Formula) -> Vec<Truth> {
    let found = unit.evaluate(formula);
    let expected: Vec<Truth> = (0..unit.len())
        .map(|place| brute::evaluate(unit, formula, place))
        .collect();
    assert_eq!(found, expected, "{formula:#?}\n{unit:#?}");
    // The truth of the whole burst is that of its first span, and every witness is a span of the
    // unit.
    let of_whole = unit.search(formula);
    let first = unit.first(formula);
    assert_eq!(
        of_whole.truth,
        first.map_or(Truth::False, |first| found[first])
    );
    assert!(of_whole.witness.iter().all(|place| *place < unit.len()));
    found
}

#[test]
fn forty_formulas_over_two_thousand_bursts() {
    let all = || FORMULAS.iter().chain(&KERNEL_FORMULAS);
    let formulas: Vec<Formula> = all()
        .map(|text| parse(text).unwrap_or_else(|error| panic!("{text}: {error}")))
        .collect();
    let (mut random, mut of_kernel) = (Random(14), Random(15));
    let mut seen = vec![[0u32; 3]; formulas.len()];
    for _ in 0..2_000 {
        let (requests, known) = burst(&mut random);
        let (events, is_seen) = kernel(&mut of_kernel, &requests);
        for (number, (formula, seen)) in formulas.iter().zip(&mut seen).enumerate() {
            let mut unit = Unit::of(&requests, known);
            // Formulas about spans alone are also evaluated without kernel events, which most
            // stores lack.
            if number >= FORMULAS.len() || is_seen {
                let events = events.iter().map(|(request, event)| (*request, event));
                unit = unit.with_kernel(events, is_seen);
            }
            let truths = check_unit(&unit, formula);
            if let Some(first) = unit.first(formula) {
                seen[truths[first] as usize] += 1;
            }
        }
    }
    for (seen, text) in seen.iter().zip(all()) {
        assert!(
            seen.iter().all(|count| *count >= 5),
            "{text} is hardly ever false, unknown and true: {seen:?}"
        );
    }
}

fn when() -> impl Strategy<Value = When> {
    let sides = prop_oneof![Just(Side::Future), Just(Side::Past), Just(Side::Anywhere)];
    (sides, proptest::option::of(0u64..40)).prop_map(|(side, within_ns)| When { side, within_ns })
}

fn relation() -> impl Strategy<Value = Relation> {
    let orders = prop_oneof![
        Just(Order::Then),
        Just(Order::Before),
        Just(Order::During),
        Just(Order::Overlaps)
    ];
    let shared = prop_oneof![
        Just(SharedProperty::Service),
        Just(SharedProperty::Host),
        Just(SharedProperty::Process),
        Just(SharedProperty::Attribute(crate::Field::AnyScope(
            "bytes".into()
        )))
    ];
    (
        orders,
        proptest::option::of(0u64..40),
        proptest::collection::vec(shared, 0..3),
        proptest::option::of(any::<bool>()),
    )
        .prop_map(|(order, within_ns, same, same_request)| Relation {
            order,
            within_ns: within_ns.filter(|_| matches!(order, Order::Then | Order::Before)),
            same,
            same_request,
        })
}

fn formula() -> impl Strategy<Value = Formula> {
    let leaf = (0..8usize).prop_map(|number| {
        let formula = parse(FORMULAS[number]).expect("a formula");
        match formula {
            Formula::Some(_, inner) => *inner,
            other => other,
        }
    });
    leaf.prop_recursive(3, 8, 2, |inner| {
        let boxed = inner.prop_map(Box::new);
        prop_oneof![
            boxed.clone().prop_map(Formula::Not),
            (boxed.clone(), boxed.clone()).prop_map(|(a, b)| Formula::And(a, b)),
            (boxed.clone(), boxed.clone()).prop_map(|(a, b)| Formula::Implies(a, b)),
            (boxed.clone(), relation(), boxed.clone()).prop_map(|(a, r, b)| Formula::Pair(a, r, b)),
            (when(), boxed.clone()).prop_map(|(w, f)| Formula::Some(w, f)),
            (when(), boxed.clone()).prop_map(|(w, f)| Formula::All(w, f)),
            (0u64..4, when(), boxed.clone()).prop_map(|(n, w, f)| Formula::AtLeast(n, w, f)),
            (boxed.clone(), when(), boxed).prop_map(|(a, mut w, b)| {
                if w.side == Side::Anywhere {
                    w.side = Side::Future;
                }
                Formula::Until(a, w, b)
            }),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn what_a_whole_request_lacks_makes_it_false(formula in formula(), seed in any::<u64>()) {
        let (requests, _) = burst(&mut Random(seed));
        let formula = formula.of_whole();
        let need = Requirement::of(&formula);
        for records in &requests {
            let ids = || records.spans.iter().map(|span| span.span_id);
            let is_orphan = |span: &SpanRecord| {
                span.parent_id != 0 && ids().all(|id| id != span.parent_id)
            };
            if !Unit::is_whole(records) || records.spans.iter().any(is_orphan) {
                continue;
            }
            let unit = Unit::of_request(records, false);
            let is_there = |condition: &crate::Condition| {
                (0..unit.len()).any(|place| condition.of(&|field| unit.said(place, field)).is_possible())
            };
            let bits = need.spans().iter().enumerate();
            let there = bits.fold(0, |there, (number, condition)| {
                there | u64::from(is_there(condition)) << number
            });
            if !need.is_met(there) {
                prop_assert_eq!(unit.of_whole(&formula), Truth::False);
            }
        }
    }

    #[test]
    fn a_negated_formula_is_false_where_the_formula_is_true(formula in formula(), seed in any::<u64>()) {
        let (requests, seen) = burst(&mut Random(seed));
        let unit = Unit::of(&requests, seen);
        let opposite: Vec<Truth> = unit.evaluate(&formula).into_iter().map(|of| !of).collect();
        prop_assert_eq!(unit.evaluate(&formula.negated()), opposite);
    }

    #[test]
    fn any_formula_over_any_burst(formula in formula(), seed in any::<u64>()) {
        let (requests, seen) = burst(&mut Random(seed));
        check(&requests, seen, &formula);
    }
}

#[test]
fn selectors_are_what_their_parts_are() {
    let Ok(Formula::Some(_, inner)) = parse(r#"{ name = "a" } >> { name = "b" } > { }"#) else {
        panic!("a formula about a span");
    };
    assert!(
        matches!(*inner, Formula::Is(Selector::Child(ref a, _)) if matches!(**a, Selector::Descendant(..)))
    );
}
