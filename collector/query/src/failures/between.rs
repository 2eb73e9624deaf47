//! Comparison of the failures of two periods: root operations whose requests fail more or less
//! often, and the origins of the failures.

use std::collections::BTreeSet;

use stroboscope_analysis::compare::share_change;
use stroboscope_analysis::record::TraceRecords;
use stroboscope_analysis::sampling::WeightedCount;

use super::super::compare::{PeriodOf, says};
use super::super::first_look::alignment;
use super::super::notes::Notes;
use super::super::query_error::QueryError;
use super::super::source::Selection;
use super::origins::{FailureGroup, GroupedFailures};
use super::rate::{Outcomes, differ};
use super::{FALSE_ALARMS_MAX, ROOTS_SEARCHED, RootFailures, Worker, failure_keys};

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

/// Compares the failures of two periods, for at most eight root operations: those with the most
/// failed requests. Reads each period once, including incomplete requests, and once more to compare
/// clocks unless the result is cached. Returns changed root operations first, and an empty list if
/// there are no failures.
///
/// # Errors
/// Fails if a store cannot be read.
pub fn failure_shifts(periods: [&PeriodOf; 2]) -> Result<Vec<FailureShift>, QueryError> {
    let [before, after] = [read(periods[0])?, read(periods[1])?];
    let names: BTreeSet<&String> = before.roots.keys().chain(after.roots.keys()).collect();
    let none = RootFailures::default();
    let both = |name: &String| [&before, &after].map(|of| of.roots.get(name).unwrap_or(&none));
    let failed =
        |name: &String| -> WeightedCount { both(name).iter().map(|of| of.outcomes.failed).sum() };
    let mut names: Vec<&String> = names
        .into_iter()
        .filter(|name| !failed(name).is_zero())
        .collect();
    names.sort_by_key(|name| std::cmp::Reverse(failed(name).rounded()));
    names.truncate(ROOTS_SEARCHED);
    let p_max = FALSE_ALARMS_MAX / names.len().max(1) as f64;
    let shift = |name: &String| {
        let both = both(name);
        let outcomes = both.map(|of| of.outcomes);
        let [earlier, later] = both.map(|of| of.over_time.shares());
        let p_value = share_change(&earlier, &later);
        FailureShift {
            root: name.clone(),
            outcomes,
            p_value,
            is_change: p_value <= p_max && differ(outcomes),
            origins: origins(name, [&before, &after], outcomes),
        }
    };
    let mut shifts: Vec<FailureShift> = names.into_iter().map(shift).collect();
    shifts.sort_by_key(|shift| !shift.is_change);
    Ok(shifts)
}

fn read(period: &PeriodOf) -> Result<Worker, QueryError> {
    let source = &*period.source;
    let alignment = alignment(source, period.selection)?;
    let selection = Selection {
        include_incomplete: true,
        ..period.selection
    };
    let only = period.only.as_ref();
    let asked = only.and_then(|(attribute, _)| attribute.recorded_key());
    let parts = source.parts(selection, &failure_keys(asked))?;
    let workers = vec![Worker::default(); parts.count()];
    let visit = |worker: &mut Worker, records: &mut TraceRecords, _: &mut Notes| {
        if says(only, records) {
            if let Some(alignment) = &alignment {
                alignment.apply(records);
            }
            worker.observe(records);
        }
    };
    let (workers, _) = source.fold("comparing failures", selection, &parts, workers, visit)?;
    let mut all = Worker::default();
    workers.into_iter().for_each(|worker| all.merge(worker));
    Ok(all)
}

fn origins(root: &str, workers: [&Worker; 2], outcomes: [Outcomes; 2]) -> Vec<OriginShift> {
    let groups: BTreeSet<&FailureGroup> = workers
        .iter()
        .flat_map(|worker| worker.origins.groups.keys())
        .filter(|group| group.root == root && group.has_reached_root)
        .collect();
    let shift = |group: &FailureGroup| {
        let failures = workers.map(|worker| {
            let known = worker.origins.groups.get(group);
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
