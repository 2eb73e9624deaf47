//! Productions: the behaviour of each operation when it runs.
//!
//! A request's structure changes because an operation behaves differently. The frequency of a
//! production is its share of the requests in which the operation runs. It does not depend on the
//! number of these requests or on their other operations. A change therefore moves the frequencies
//! of a rare operation as much as those of a frequent one, and they stay if only the number of
//! requests with the operation changes. The name comes from grammars, in which requests would be
//! derivations. Pinpoint (Spectroscope §2.2) counts productions in this way too.

use super::divergence::PathDifference;
use super::evidence::{RankEvidence, SectionEvidence};
use super::rows::{Period, Row, Rows};
use super::share_change::share_of_sample;
use crate::flow::{CategoryId, Operation, Repeats, RootFlows, Shape};
use rustc_hash::FxHasher;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};

/// An operation and its caller, which is `None` for the root operation.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct CalledOperation {
    pub(super) caller: Option<Operation>,
    pub(super) operation: Operation,
}

/// Behaviour of an operation: whether it fails, and its calls, in stages. Events count as calls. A
/// failure of a callee is part of the callee's production only.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Production {
    pub(super) fails: bool,
    pub(super) stages: Vec<Vec<Call>>,
}

/// Calls to one operation within a stage, combined.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Call {
    pub(super) operation: Operation,
    pub(super) repeats: Repeats,
}

impl Production {
    fn of(shape: &Shape) -> Production {
        let stages = shape.stages.iter().map(|stage| {
            // Differences inside a callee belong to the callee's own productions.
            let mut calls: BTreeMap<Operation, Repeats> = BTreeMap::new();
            for part in stage {
                let called = part.shape.operation.clone();
                let sum = calls.entry(called).or_insert(Repeats { from: 0, to: 0 });
                sum.from = sum.from.saturating_add(part.repeats.from);
                sum.to = sum.to.saturating_add(part.repeats.to);
            }
            let call = |(operation, repeats): (Operation, Repeats)| Call {
                operation,
                repeats: rounded(repeats),
            };
            calls.into_iter().map(call).collect()
        });
        Production {
            fails: shape.is_error,
            stages: stages.collect(),
        }
    }

    /// Iterates over the calls, in order of stages.
    pub(super) fn calls(&self) -> impl DoubleEndedIterator<Item = &Call> {
        self.stages.iter().flatten()
    }

    /// Returns the difference from the former production `before`.
    pub(super) fn difference(&self, before: &Production) -> PathDifference {
        match (before.fails, self.fails) {
            (false, true) => return PathDifference::Fails,
            (true, false) => return PathDifference::Succeeds,
            _ => {}
        }
        let find = |of: &Production, what: &Operation| {
            of.calls().find(|call| call.operation == *what).cloned()
        };
        let lacks = |of: &Production, call: &Call| find(of, &call.operation).is_none();
        let added = self.calls().find(|call| lacks(before, call));
        let removed = before.calls().find(|call| lacks(self, call));
        match (removed, added) {
            (Some(old), Some(new)) => PathDifference::Replaced {
                before: old.operation.clone(),
                after: new.operation.clone(),
            },
            (None, Some(new)) => PathDifference::Added(new.operation.clone()),
            (old, None) => {
                let repeated = self.calls().find_map(|call| {
                    let other = find(before, &call.operation)?;
                    (other.repeats != call.repeats).then(|| PathDifference::Repeated {
                        what: call.operation.clone(),
                        before: other.repeats,
                        after: call.repeats,
                    })
                });
                let removed = old.map(|old| PathDifference::Removed(old.operation.clone()));
                repeated.or(removed).unwrap_or(PathDifference::Reordered)
            }
        }
    }

    /// Returns the call of `before` that follows the last call of this production, if this
    /// production breaks `before` off. It does if both have the same outcome, and `before` makes
    /// all of this production's calls up to that point, at least as often. If the last call is a
    /// loop that ended early, returns the looping call.
    pub(super) fn goes_on_with<'a>(&self, before: &'a Production) -> Option<&'a Operation> {
        let last = self.calls().next_back()?;
        let old: Vec<&Call> = before.calls().collect();
        let is_of = |call: &Call, other: &Call| call.operation == other.operation;
        let at = old.iter().position(|call| is_of(call, last))?;
        let is_fewer = |call: &Call| {
            let same = old[..=at].iter().find(|other| is_of(other, call));
            same.is_some_and(|other| call.repeats.to <= other.repeats.to)
        };
        if self.fails != before.fails || !self.calls().all(is_fewer) {
            return None;
        }
        if last.repeats.to < old[at].repeats.from {
            return Some(&old[at].operation);
        }
        old.get(at + 1).map(|next| &next.operation)
    }

    /// Returns the operation of the last call: of several in the last stage, the last by name.
    pub(super) fn last(&self) -> Option<&Operation> {
        self.calls().next_back().map(|call| &call.operation)
    }

    /// Returns the number of calls that only one of the two has, plus 1 if only one fails.
    pub(super) fn distance(&self, other: &Production) -> usize {
        let set = |of: &Production| of.calls().cloned().collect::<BTreeSet<_>>();
        set(self).symmetric_difference(&set(other)).count() + usize::from(self.fails != other.fails)
    }
}

/// Rounds a sum of bucketed numbers of repeats to the bucket of its middle. Other sums stay.
fn rounded(repeats: Repeats) -> Repeats {
    if repeats.from == repeats.to || repeats.to == u32::MAX {
        return repeats;
    }
    crate::flow::Fold::Buckets.repeats((repeats.from as usize + repeats.to as usize) / 2)
}

/// Returns the productions of all operations of a structure.
fn productions(shape: &Shape) -> BTreeMap<CalledOperation, BTreeSet<Production>> {
    let mut found = BTreeMap::new();
    add_productions(shape, None, &mut found);
    found
}

fn add_productions(
    shape: &Shape,
    caller: Option<&Operation>,
    found: &mut BTreeMap<CalledOperation, BTreeSet<Production>>,
) {
    if shape.is_event {
        return;
    }
    let called = CalledOperation {
        caller: caller.cloned(),
        operation: shape.operation.clone(),
    };
    let productions = found.entry(called).or_default();
    productions.insert(Production::of(shape));
    for part in shape.parts() {
        add_productions(&part.shape, Some(&shape.operation), found);
    }
}

/// Merges the productions of a client that have the same number of [`Call`]s and the same outcome.
/// Clients of many servers may share one name, and their caller chooses the server.
fn of_client(
    known: BTreeMap<Production, BTreeSet<CategoryId>>,
) -> BTreeMap<Production, BTreeSet<CategoryId>> {
    let mut merged: BTreeMap<(bool, usize), (Production, BTreeSet<CategoryId>)> = BTreeMap::new();
    for (production, ids) in known {
        let key = (production.fails, production.calls().count());
        let (_, all) = merged.entry(key).or_insert((production, BTreeSet::new()));
        all.extend(ids);
    }
    merged.into_values().collect()
}

/// Digests of the behaviour of an operation in a structure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LocalStructure {
    /// Digest of its productions for each caller, and of its number of runs.
    pub(super) calls: u64,
    /// Digest of its number of runs and, for each caller, of whether any, or all, fail.
    pub(super) runs: u64,
}

/// Returns the behaviour of each operation of a structure, on all hosts together.
pub(super) fn local_structure(shape: &Shape) -> BTreeMap<Operation, LocalStructure> {
    let mut found: BTreeMap<Operation, [FxHasher; 2]> = BTreeMap::new();
    for (called, productions) in productions(shape) {
        let [calls, runs] = found.entry(called.operation.of_any_host()).or_default();
        productions.hash(calls);
        let fails: BTreeSet<bool> = productions.iter().map(|of| of.fails).collect();
        fails.hash(runs);
    }
    let mut runs = BTreeMap::new();
    count_runs(shape, 1, &mut runs);
    let finished = found.into_iter().map(|(operation, mut hashers)| {
        let runs = runs.get(&operation);
        hashers.iter_mut().for_each(|hasher| runs.hash(hasher));
        let [calls, runs] = hashers.map(|hasher| hasher.finish());
        (operation, LocalStructure { calls, runs })
    });
    finished.collect()
}

/// Adds the maximum number of runs of each operation, on all hosts, to `runs`, if the structure
/// itself runs `times` times.
fn count_runs(shape: &Shape, times: u64, runs: &mut BTreeMap<Operation, u64>) {
    let known = runs.entry(shape.operation.of_any_host()).or_default();
    *known = known.saturating_add(times);
    for part in shape.parts() {
        let times = times.saturating_mul(u64::from(part.repeats.to));
        count_runs(&part.shape, times, runs);
    }
}

/// A production of an operation, and its frequency in each period.
#[derive(Clone, Debug)]
pub(super) struct ProductionChange {
    pub(super) production: Production,
    /// Fraction of the requests with the operation that have the production, for each period.
    pub(super) shares: [f64; 2],
    /// Categories whose requests have the production.
    pub(super) categories: BTreeSet<CategoryId>,
}

impl ProductionChange {
    pub(super) fn gain(&self) -> f64 {
        self.shares[1] - self.shares[0]
    }
}

/// A property of productions. If one aspect of an operation with many productions changes, some
/// productions become slightly more frequent and others less. Their common property shows the
/// change.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Feature {
    /// The operation fails.
    Fails,
    /// The operation makes this call [last](Production::last).
    EndsWith(Operation),
    /// The operation makes this call.
    Calls(Operation),
    /// The operation makes this call at least this many times.
    CallsOften(Operation, u32),
    /// The operation has exactly this production, given by its index in
    /// [`OperationChange::productions`].
    Exactly(usize),
}

impl Feature {
    fn holds(&self, at: usize, production: &Production) -> bool {
        match self {
            Feature::Fails => production.fails,
            Feature::EndsWith(last) => production.last() == Some(last),
            Feature::Calls(what) => production.calls().any(|call| call.operation == *what),
            Feature::CallsOften(what, least) => {
                let calls = production.calls().filter(|call| call.operation == *what);
                calls.map(|call| call.repeats.from).sum::<u32>() >= *least
            }
            Feature::Exactly(of) => at == *of,
        }
    }

    /// Returns the features to test. [`Feature::Exactly`] is tested only for productions with a
    /// frequency of at least [`EXACT_MIN`] in a period.
    fn all(productions: &[ProductionChange]) -> BTreeSet<Feature> {
        let mut found = BTreeSet::new();
        for (at, change) in productions.iter().enumerate() {
            let production = &change.production;
            if production.fails {
                found.insert(Feature::Fails);
            }
            found.extend(production.last().cloned().map(Feature::EndsWith));
            for call in production.calls() {
                found.insert(Feature::Calls(call.operation.clone()));
                let least = call.repeats.from;
                if least > 1 {
                    found.insert(Feature::CallsOften(call.operation.clone(), least));
                }
            }
            if change.shares.iter().any(|share| *share >= EXACT_MIN) {
                found.insert(Feature::Exactly(at));
            }
        }
        found
    }
}

/// Frequency of a feature in both periods.
#[derive(Clone, Debug)]
pub(super) struct FeatureChange {
    pub(super) feature: Feature,
    /// Fraction of the requests with the operation that have the feature, for each period.
    pub(super) shares: [f64; 2],
    /// Productions with the feature, as indices into [`OperationChange::productions`].
    pub(super) productions: BTreeSet<usize>,
    pub(super) evidence: RankEvidence,
    /// For each period, the number of requests with the feature, and that of requests in which the
    /// operation runs; in an [unweighted sample](share_of_sample).
    pub(super) requests: [[u64; 2]; 2],
    /// Evidence from a section of a period; `None` if [`SectionEvidence::of_shares`] finds none.
    pub(super) section: Option<SectionEvidence>,
}

impl FeatureChange {
    pub(super) fn gain(&self) -> f64 {
        self.shares[1] - self.shares[0]
    }

    /// Reports whether the change is new behaviour: compared with the later period, few earlier
    /// requests had the feature, or few lacked it if it became rarer.
    pub(super) fn is_new(&self) -> bool {
        let [before, after] = match self.gain() > 0.0 {
            true => self.shares,
            false => self.shares.map(|share| 1.0 - share),
        };
        before <= NEW_BEFORE_MAX * after
    }

    /// Reports whether few requests of one period have the feature, or few lack it, compared with
    /// the other period.
    pub(super) fn is_plain(&self) -> bool {
        let of =
            |[before, after]: [f64; 2]| before.min(after) <= NEW_BEFORE_MAX * before.max(after);
        of(self.shares) || of(self.shares.map(|share| 1.0 - share))
    }
}

/// Maximum ratio of the earlier to the later frequency of new behaviour, and of the smaller to the
/// larger frequency of a plain change. Existing behaviour that became more frequent may be the
/// users' choice.
const NEW_BEFORE_MAX: f64 = 0.25;
/// Minimum frequency of a production for [`Feature::Exactly`], in at least one period. Rarer
/// productions count only by their other features.
const EXACT_MIN: f64 = 0.05;

/// An operation in the requests of one root operation, and the changes of its productions.
#[derive(Clone, Debug)]
pub(super) struct OperationChange {
    pub(super) called: CalledOperation,
    /// Fractions of the root operation's requests in which the operation runs for this caller, for
    /// each period.
    pub(super) runs: [f64; 2],
    pub(super) productions: Vec<ProductionChange>,
    pub(super) features: Vec<FeatureChange>,
}

/// Minimum number of requests of each period in which an operation must run to be compared.
const REQUESTS_MIN: u64 = 4;

/// Computes the changes in the productions of each operation that has more than one, and runs in at
/// least [`REQUESTS_MIN`] requests of each period.
pub(super) fn operation_changes(
    flows: [&RootFlows; 2],
    rows: &Rows<'_>,
    clients: &BTreeSet<Operation>,
) -> Vec<OperationChange> {
    let mut operations: BTreeMap<CalledOperation, BTreeMap<Production, BTreeSet<CategoryId>>> =
        BTreeMap::new();
    for (id, _) in &rows.categories {
        let shape = flows.iter().find_map(|flows| flows.shape(*id));
        for (called, productions) in shape.map(|shape| productions(shape)).unwrap_or_default() {
            let known = operations.entry(called).or_default();
            for production in productions {
                known.entry(production).or_default().insert(*id);
            }
        }
    }
    let categories = rows.categories.iter();
    let by_id: BTreeMap<CategoryId, &Vec<Row<'_>>> =
        categories.map(|(id, rows)| (*id, rows)).collect();
    let mut changes = Vec::new();
    for (called, known) in operations {
        let known = match clients.contains(&called.operation.of_any_host()) {
            true => of_client(known),
            false => known,
        };
        if known.len() < 2 {
            continue;
        }
        let runs_in: BTreeSet<CategoryId> = known.values().flatten().copied().collect();
        if (flows.iter()).any(|flows| flows.requests_of(&runs_in) < REQUESTS_MIN) {
            continue;
        }
        let represented = |ids: &BTreeSet<CategoryId>| flows.map(|flows| flows.count_of(ids));
        let all_represented = represented(&runs_in);
        let share = |ids: &BTreeSet<CategoryId>| {
            let own = represented(ids);
            [0, 1].map(|period: usize| own[period].share_of(all_represented[period]))
        };
        let production = |(production, ids): (Production, BTreeSet<CategoryId>)| ProductionChange {
            production,
            shares: share(&ids),
            categories: ids,
        };
        let productions: Vec<ProductionChange> = known.into_iter().map(production).collect();
        let runs = runs_in.iter();
        let runs = runs.flat_map(|id| by_id[id].iter().map(move |row| (row, *id)));
        let mut runs: Vec<(&Row<'_>, CategoryId)> = runs.collect();
        // Requests of one instant, as coarse clocks show them, are in the order of their ids, not
        // in that of their structures.
        runs.sort_by_key(|(row, _)| (row.period, row.request.start_ns, row.request.id));
        let feature = |feature: Feature| {
            let having: BTreeSet<usize> = (0..productions.len())
                .filter(|at| feature.holds(*at, &productions[*at].production))
                .collect();
            let ids = having.iter().flat_map(|at| &productions[*at].categories);
            let ids: BTreeSet<CategoryId> = ids.copied().collect();
            let own = represented(&ids);
            let parts = [0, 1].map(|period: usize| [own[period], all_represented[period]]);
            let samples = [0, 1].map(|at: usize| share_of_sample(parts[at], parts[1 - at]));
            let (own, all) = (samples.map(|of| of.part), samples.map(|of| of.of));
            let has = runs.iter().map(|(row, id)| (row.period, ids.contains(id)));
            let has: Vec<(Period, bool)> = has.collect();
            Some(FeatureChange {
                feature,
                shares: share(&ids),
                productions: having,
                evidence: RankEvidence::of_shares(&has, own, all)?,
                requests: [0, 1].map(|period| [own[period], all[period]]),
                section: SectionEvidence::of_shares(&has, own, all),
            })
        };
        changes.push(OperationChange {
            called,
            runs: [0, 1].map(|period| all_represented[period].share_of(flows[period].count())),
            features: Feature::all(&productions)
                .into_iter()
                .filter_map(feature)
                .collect(),
            productions,
        });
    }
    changes
}
