//! Compares counts of selected spans with sets of spans.

use std::collections::BTreeSet;

use proptest::prelude::*;
use stroboscope_analysis::record::{SpanFlags, SpanRecord, TraceRecords};

use crate::token::TOKENS_MAX;
use crate::{Requirement, Truth, Unit, parse};

#[derive(Clone, Debug)]
enum Selectors {
    Named(usize),
    Both(Box<Selectors>, Box<Selectors>),
    Either(Box<Selectors>, Box<Selectors>),
}

const NAMES: [&str; 3] = ["a", "b", "c"];

impl Selectors {
    fn text(&self) -> String {
        match self {
            Self::Named(name) => format!("{{ name = \"{}\" }}", NAMES[*name]),
            Self::Both(a, b) => format!("({} && {})", a.text(), b.text()),
            Self::Either(a, b) => format!("({} || {})", a.text(), b.text()),
        }
    }

    fn selected(&self, names: &[usize]) -> BTreeSet<usize> {
        match self {
            Self::Named(name) => (0..names.len()).filter(|at| names[*at] == *name).collect(),
            Self::Both(a, b) => {
                let (a, b) = (a.selected(names), b.selected(names));
                match a.is_empty() || b.is_empty() {
                    true => BTreeSet::new(),
                    false => &a | &b,
                }
            }
            Self::Either(a, b) => &a.selected(names) | &b.selected(names),
        }
    }
}

fn selectors() -> impl Strategy<Value = Selectors> {
    let named = (0..NAMES.len()).prop_map(Selectors::Named);
    named.prop_recursive(5, 16, 2, |inner| {
        let pair = (inner.clone().prop_map(Box::new), inner.prop_map(Box::new));
        prop_oneof![
            pair.clone().prop_map(|(a, b)| Selectors::Both(a, b)),
            pair.prop_map(|(a, b)| Selectors::Either(a, b)),
        ]
    })
}

proptest! {
    #[test]
    fn counts_are_those_of_the_selected_spans(
        selectors in selectors(), names in proptest::collection::vec(0..NAMES.len(), 1..6),
        low in 0u64..4, high in 0u64..6,
    ) {
        let span = |(name, id): (&usize, u64)| SpanRecord {
            span_id: id,
            parent_id: id - 1,
            service: "s".into(),
            name: NAMES[*name].into(),
            host: "h".into(),
            process: 1,
            start_ns: id as i64,
            end_ns: 9,
            flags: SpanFlags(0),
            events: Vec::new(),
        };
        let records = TraceRecords {
            spans: names.iter().zip(1..).map(span).collect(),
            ..TraceRecords::default()
        };
        let count = selectors.selected(&names).len() as u64;
        let query = format!("{} | count() >= {low} | count() < {high}", selectors.text());
        let found = Unit::of_request(&records, false).of_whole(&parse(&query).unwrap());
        prop_assert_eq!(found, Truth::from_bounds(low <= count && count < high, low <= count && count < high));
    }
}

/// The formula of a query grows with the query, not exponentially.
#[test]
fn formulas_of_long_queries_are_short() {
    for query in [
        "{} && ".repeat(16) + "{} | count() > 1",
        "{}".to_owned() + &" | count() = 1".repeat(16),
        "({} && ".repeat(16) + "{}" + &" || {})".repeat(16) + " | count() > 1",
    ] {
        let formula = format!("{:?}", parse(&query).unwrap());
        let size = formula.matches("Is(").count();
        assert!(size < 500, "{size} selectors of {query}");
    }
}

/// The threads that evaluate formulas have stacks of 2 MiB.
#[test]
fn the_longest_formulas_fit_on_the_stack() {
    // Each link has three tokens.
    let links = TOKENS_MAX / 3 - 1;
    let chains = ["{}||", "{}&&", "{}>>", "{}~", "{}then ", "{}or "];
    let mut all = chains.map(|link| link.repeat(links) + "{}").to_vec();
    let conditions = [".a=1||", ".a=1&&"].map(|link| link.repeat(TOKENS_MAX / 4 - 2));
    all.extend(conditions.map(|text| format!("{{{text}.a=1}}")));
    all.push("{}&&".repeat(links - 2) + "{}|count()=1");
    let records = TraceRecords {
        spans: vec![SpanRecord {
            span_id: 1,
            parent_id: 0,
            service: "s".into(),
            name: "a".into(),
            host: "h".into(),
            process: 1,
            start_ns: 0,
            end_ns: 9,
            flags: SpanFlags(0),
            events: Vec::new(),
        }],
        ..TraceRecords::default()
    };
    let evaluate = move || {
        for text in all {
            let formula = parse(&text).unwrap_or_else(|error| panic!("{}: {error}", &text[..20]));
            let unit = Unit::of_request(&records, false);
            let truth = unit.search(&formula).truth;
            let same = formula.clone();
            assert!(same == formula && same.keys().len() < 9 && !same.names_kernel());
            let _ = (same.compares_times(), Requirement::of(&same));
            assert_eq!(unit.of_whole(&same.negated()), !truth, "{}", &text[..20]);
        }
    };
    let thread = std::thread::Builder::new().stack_size(2 << 20);
    thread.spawn(evaluate).unwrap().join().unwrap();
}
