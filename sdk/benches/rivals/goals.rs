//! Goals for the SDK's figures, and the check whether they are met.

use crate::stacks::FLOORS;
use crate::{BY_HAND, BY_HAND_3};

/// Maximum cost of a stack's cases, in ns. It may apply to the difference from another stack
/// (`more_than`). It may be joined by a maximum multiple of a floor (`times`).
#[derive(Clone, Copy)]
struct Goal {
    stack: &'static str,
    /// Prefix of the names of the stack's cases to which the goal applies.
    cases: &'static str,
    ns: f64,
    more_than: Option<&'static str>,
    times: Option<(f64, &'static str)>,
}

const fn goal(stack: &'static str, cases: &'static str, ns: f64) -> Goal {
    Goal {
        stack,
        cases,
        ns,
        more_than: None,
        times: None,
    }
}

const fn more_than(other: &'static str, goal: Goal) -> Goal {
    Goal {
        more_than: Some(other),
        ..goal
    }
}

const fn times(times: f64, floor: &'static str, goal: Goal) -> Goal {
    Goal {
        times: Some((times, floor)),
        ..goal
    }
}

const REGISTRY: &str = "tracing, registry, empty layer";

const GOALS: &[Goal] = &[
    times(2.0, "flag check", goal("ours, gate closed", "", 2.0)),
    // Relative to records written by hand, because processors differ in the speed of reading the
    // counter.
    times(
        1.3,
        BY_HAND,
        goal("ours, gate open", "span!, no fields", f64::INFINITY),
    ),
    times(
        1.3,
        BY_HAND_3,
        goal("ours, gate open", "span!, 3 integers", f64::INFINITY),
    ),
    times(
        1.3,
        BY_HAND,
        goal("ours, gate open", "#[trace]", f64::INFINITY),
    ),
    goal("tracing, our subscriber, gate closed", "", 4.0),
    goal("tracing, our subscriber, gate open", "span", 35.0),
    goal("tracing, our layer gating all, gate closed", "", 4.0),
    more_than(
        REGISTRY,
        goal("tracing, our layer, gate closed", "span", 4.0),
    ),
    more_than(
        REGISTRY,
        goal("tracing, our layer, gate open", "span", 20.0),
    ),
];

/// Prints each goal whose stacks were measured. `median` returns the median of a stack's case in
/// ns, or `None` if it was not measured.
pub(crate) fn print(
    cases: &[(&'static str, &'static str)],
    median: impl Fn(&str, &str) -> Option<f64>,
) {
    println!("goals");
    for goal in GOALS {
        let own = cases
            .iter()
            .filter(|(stack, case)| *stack == goal.stack && case.starts_with(goal.cases));
        for (stack, case) in own {
            let Some(whole_ns) = median(stack, case) else {
                continue;
            };
            let (mut ns, mut text) = (whole_ns, format!("≤ {} ns", goal.ns));
            if let Some(other) = goal.more_than {
                let Some(other_ns) = median(other, case) else {
                    continue;
                };
                ns -= other_ns;
                text = format!("≤ {} ns more than {other}", goal.ns);
            }
            let mut is_met = ns <= goal.ns;
            if let Some((times, floor)) = goal.times {
                let Some(floor_ns) = median(FLOORS, floor) else {
                    continue;
                };
                is_met &= whole_ns <= times * floor_ns;
                let most_ns = if goal.ns.is_finite() {
                    format!("{text}, ")
                } else {
                    String::new()
                };
                text = format!(
                    "{most_ns}≤ {times} x {floor} ({:.2} x)",
                    whole_ns / floor_ns
                );
            }
            let verdict = if is_met { "met" } else { "MISSED" };
            println!("  {verdict:<6} {ns:>7.2} ns  {stack}: {case}; {text}");
        }
    }
}
