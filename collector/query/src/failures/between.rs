//! Comparison of the failures of two periods: root operations whose requests fail more or less
//! often, and the origins of the failures.

use std::collections::BTreeSet;

use stroboscope_analysis::compare::share_change;
use stroboscope_analysis::sampling::WeightedCount;

use super::origins::{FailureGroup, GroupedFailures};
use super::rate::{Outcomes, differ};
use super::{FALSE_ALARMS_MAX, OutcomePass, ROOTS_SEARCHED, RootFailures};

/// Failed requests of one root operation in two periods. The first element of each pair is of the
/// earlier period.
#[derive(Clone, Debug)]
pub struct FailureShift {
    pub root: String,
    pub outcomes: [Outcomes; 2],
    /// Probability of so large a difference if nothing changed.
    pub p_value: f64,
    /// True if the difference is significant and large enough to matter.
    pub is_change: bool,
    /// Origins of failures, largest increase first. Failures from which the request recovered are
    /// excluded.
    pub origins: Vec<OriginShift>,
}

/// Failures of one origin in two periods.
#[derive(Clone, Debug)]
pub struct OriginShift {
    pub group: FailureGroup,
    pub failures: [GroupedFailures; 2],
    /// Increase of the origin's share of the root operation's requests, -1 to 1.
    pub gain: f64,
}

/// Compares the outcomes of two periods, for at most eight root operations: those with the most
/// failed requests. Returns changed root operations first, and an empty list if no request failed.
pub(in super::super) fn failure_shifts([before, after]: &[OutcomePass; 2]) -> Vec<FailureShift> {
    let names: BTreeSet<&String> = before.roots.keys().chain(after.roots.keys()).collect();
    let none = RootFailures::default();
    let both = |name: &String| [before, after].map(|of| of.roots.get(name).unwrap_or(&none));
    let failed =
        |name: &String| -> WeightedCount { both(name).iter().map(|of| of.outcomes.failed).sum() };
    let failing = names.into_iter().filter(|name| !failed(name).is_zero());
    let mut names: Vec<&String> = failing.collect();
    names.sort_by_key(|name| std::cmp::Reverse(failed(name).rounded()));
    names.truncate(ROOTS_SEARCHED);
    let p_max = FALSE_ALARMS_MAX / names.len().max(1) as f64;
    let shift = |name: &String| {
        let both = both(name);
        let outcomes = both.map(|of| of.outcomes);
        let [earlier, later] = both.map(|of| of.over_time.counts());
        let p_value = share_change(&earlier, &later);
        FailureShift {
            root: name.clone(),
            outcomes,
            p_value,
            is_change: p_value <= p_max && differ(outcomes),
            origins: origins(name, [before, after], outcomes),
        }
    };
    let mut shifts: Vec<FailureShift> = names.into_iter().map(shift).collect();
    shifts.sort_by_key(|shift| !shift.is_change);
    shifts
}

fn origins(root: &str, passes: [&OutcomePass; 2], outcomes: [Outcomes; 2]) -> Vec<OriginShift> {
    let is_own = |group: &&FailureGroup| group.root == root && group.has_reached_root;
    let groups = passes.iter().flat_map(|pass| pass.origins.groups.keys());
    let groups: BTreeSet<&FailureGroup> = groups.filter(is_own).collect();
    let shift = |group: &FailureGroup| {
        let failures = passes.map(|pass| {
            let known = pass.origins.groups.get(group);
            known.cloned().unwrap_or_default()
        });
        let share = |at: usize| failures[at].requests.share_of(outcomes[at].requests);
        OriginShift {
            group: group.clone(),
            gain: share(1) - share(0),
            failures,
        }
    };
    let mut shifts: Vec<OriginShift> = groups.into_iter().map(shift).collect();
    shifts.sort_by(|a, b| b.gain.total_cmp(&a.gain));
    shifts
}
