//! Finds operations that behave differently than before, and the time that this costs.

use super::divergence::PathDifference;
use super::feature_test::{FeatureTest, tested};
use super::production::{Feature, FeatureChange, OperationChange, ProductionChange};
use super::replaced::{REQUESTS_MIN, ReplacedStructures, mean_ns};
use super::rows::Period;
use super::{CompareSettings, OfRoot};
use crate::flow::{CategoryId, EdgeTable, Operation, RootFlows, Shape};
use std::collections::BTreeSet;

/// Minimum fraction of a caller's changed requests in which a callee changed too, for the callee's
/// change to explain the caller's.
const FOLLOWS_MIN: f64 = 0.5;

/// An operation that behaves differently in the requests of one root operation.
#[derive(Clone, Debug)]
pub(super) struct PathChange {
    pub(super) root: usize,
    /// Responsible operation.
    pub(super) operation: Operation,
    /// Operation that behaves differently.
    pub(super) at: Operation,
    pub(super) difference: PathDifference,
    /// Fraction of all requests that the change affects.
    pub(super) affected: f64,
    /// Fractions of requests that changed to new behaviour: of all requests, and of those in which
    /// the operation runs. Both are 0 if the behaviour is not new.
    pub(super) new: [f64; 2],
    /// Contribution to the change of the mean latency of all requests, in nanoseconds.
    pub(super) contribution_ns: f64,
    pub(super) q_value: f64,
    /// Period within which the behaviour begins or ends; `None` if the whole periods differ
    /// significantly.
    pub(super) changed_within: Option<Period>,
    /// Categories of affected requests.
    pub(super) gained: BTreeSet<CategoryId>,
    /// Categories of requests with the former behaviour.
    pub(super) lost: BTreeSet<CategoryId>,
}

/// Finds the significant structural changes.
pub(super) fn structural_changes(
    roots: &[OfRoot<'_>],
    edges: &EdgeTable,
    clients: &BTreeSet<Operation>,
    settings: &CompareSettings,
) -> Vec<PathChange> {
    let operations = roots.iter().flat_map(|root| &root.operations);
    let mut tested = tested(operations, settings).into_iter();
    let mut found = Vec::new();
    for (number, root) in roots.iter().enumerate() {
        for operation in &root.operations {
            // The features come first, so that their end takes no further test.
            let tests = operation.features.iter().zip(tested.by_ref());
            let changed: Vec<(&FeatureChange, FeatureTest)> = tests
                .filter(|(_, test)| test.q_value <= settings.false_discoveries)
                .collect();
            let root = (number, root);
            found.extend(change(root, operation, &changed, clients, settings));
        }
    }
    let mut kept = without_what_follows(&found, roots);
    share_out(&mut kept, roots, edges);
    kept
}

/// Returns the structural change of an operation. Of the features whose change is about as large as
/// the largest, chooses the simplest. Returns `None` if no feature changed enough.
fn change(
    (number, root): (usize, &OfRoot<'_>),
    operation: &OperationChange,
    changed: &[(&FeatureChange, FeatureTest)],
    clients: &BTreeSet<Operation>,
    settings: &CompareSettings,
) -> Option<PathChange> {
    let requests = operation.runs[1] * root.after.requests() as f64;
    let size = |change: &FeatureChange| change.gain().abs();
    // Users choose what they ask of the root operation. Unless its failures changed, a change there
    // counts only if the behaviour, or its absence, is rare in one period compared with the other.
    // If few requests show existing behaviour slightly more often, their data are probably the
    // reason.
    let runs_in = root.share * operation.runs[1];
    let counts = |change: &FeatureChange| match change.feature {
        Feature::Fails => true,
        _ if change.is_plain() => true,
        _ => operation.called.caller.is_some() && runs_in * size(change) >= OF_REQUESTS_MIN,
    };
    let candidates = changed.iter().filter(|(change, _)| {
        size(change) * requests >= settings.count_min as f64 && counts(change)
    });
    let sizes = candidates.clone().map(|(change, _)| size(change));
    let largest = sizes.fold(0.0, f64::max);
    // Of several features that cover about the same requests, take the simplest, in the order of
    // `Feature`.
    let (most, test) = candidates
        .filter(|(change, _)| size(change) >= AS_LARGE * largest)
        .min_by(|a, b| a.0.feature.cmp(&b.0.feature))?;
    let is_gained = |at: usize| most.productions.contains(&at) == (most.gain() > 0.0);
    let side = |is_wanted: bool, is_more: bool| -> Vec<&ProductionChange> {
        let numbered = operation.productions.iter().enumerate();
        let of_side = numbered.filter(|(at, _)| is_gained(*at) == is_wanted);
        let of_side: Vec<_> = of_side.map(|(_, change)| change).collect();
        let mut changed = of_side.clone();
        changed.retain(|change| (change.gain() > 0.0) == is_more && change.gain() != 0.0);
        match changed.is_empty() {
            true => of_side,
            false => changed,
        }
    };
    let (gains, losses) = (side(true, true), side(false, false));
    let leading = gains.iter().max_by(|a, b| a.gain().total_cmp(&b.gain()))?;
    // Former production of the leading requests: the most similar one, if possible of those that
    // became rarer.
    let before = losses.iter().min_by(|a, b| {
        let off = |loss: &ProductionChange| leading.production.distance(&loss.production);
        let by_off = off(a).cmp(&off(b));
        by_off.then_with(|| a.gain().total_cmp(&b.gain()))
    })?;
    let gained = gains.iter().flat_map(|change| &change.categories);
    let gained: BTreeSet<CategoryId> = gained.copied().collect();
    let replaced = ReplacedStructures::of(&gains, &losses);
    let runs = root.share * operation.runs[1];
    let gain = size(most);
    let new = if most.is_new() { gain } else { 0.0 };
    let old_ns = replaced.mean_ns(&gained, [root.before, root.after]);
    let at = &operation.called.operation;
    Some(PathChange {
        root: number,
        operation: responsible(at, (leading, before), &losses, root, clients),
        at: at.clone(),
        difference: difference(most, (leading, before)),
        affected: runs * gain,
        new: [runs * new, new],
        contribution_ns: runs * gain * (mean_ns(root.after, &gained) - old_ns),
        q_value: test.q_value,
        changed_within: test.section,
        lost: replaced.categories(&gained),
        gained,
    })
}

/// Minimum fraction of all requests that a change must affect to matter, unless it is
/// [plain](FeatureChange::is_plain) or a change of failures.
const OF_REQUESTS_MIN: f64 = 0.1;
/// Minimum size of a feature's change, relative to the largest, to cover about the same requests.
const AS_LARGE: f64 = 0.8;

/// Returns the difference that a changed feature indicates. `gain` is the production whose
/// frequency rose most, and `before` is the production that it replaced.
fn difference(
    most: &FeatureChange,
    (gain, before): (&ProductionChange, &ProductionChange),
) -> PathDifference {
    let is_more = most.gain() > 0.0;
    let by_productions = gain.production.difference(&before.production);
    match (&most.feature, is_more) {
        (Feature::Fails, true) => PathDifference::Fails,
        (Feature::Fails, false) => PathDifference::Succeeds,
        (Feature::EndsWith(last), true)
            if gain.production.goes_on_with(&before.production).is_some() =>
        {
            PathDifference::BreaksOff(last.clone())
        }
        (Feature::Calls(what), true) => match by_productions {
            PathDifference::Replaced { before, .. } => PathDifference::Replaced {
                before,
                after: what.clone(),
            },
            _ => PathDifference::Added(what.clone()),
        },
        (Feature::Calls(what), false) => match by_productions {
            PathDifference::Replaced { after, .. } => PathDifference::Replaced {
                before: what.clone(),
                after,
            },
            _ => PathDifference::Removed(what.clone()),
        },
        _ => by_productions,
    }
}

/// Minimum size of a production's loss relative to the gain, for the loss to show where requests
/// broke off.
const LOSS_MIN: f64 = 0.05;

/// Returns the operation responsible for a structural change: usually the one that changed. If a
/// loop of calls is broken off, or several different calls no longer follow the same call, the
/// callee is responsible: it fails, or answers differently. If a client no longer reaches its
/// server, the server is responsible.
fn responsible(
    at: &Operation,
    (gain, before): (&ProductionChange, &ProductionChange),
    losses: &[&ProductionChange],
    root: &OfRoot<'_>,
    clients: &BTreeSet<Operation>,
) -> Operation {
    let (now, last) = (&gain.production, gain.production.last());
    let large = losses
        .iter()
        .filter(|loss| -loss.gain() >= LOSS_MIN * gain.gain());
    let goes_on = large.filter_map(|loss| now.goes_on_with(&loss.production));
    let goes_on: BTreeSet<&Operation> = goes_on.collect();
    if let Some(last) = last
        && (goes_on.len() >= 2 || goes_on.contains(last))
    {
        return callee(last, root).unwrap_or_else(|| last.clone());
    }
    match now.difference(&before.production) {
        PathDifference::Removed(callee)
            if callee.service != at.service && clients.contains(&at.of_any_host()) =>
        {
            callee
        }
        _ => at.clone(),
    }
}

/// Returns the operation of another service that this client calls, or `None` if no structure shows
/// it.
fn callee(client: &Operation, root: &OfRoot<'_>) -> Option<Operation> {
    fn find(shape: &Shape, client: &Operation) -> Option<Operation> {
        if shape.operation == *client {
            let mut called = shape.parts().map(|part| &part.shape.operation);
            let other = called.find(|operation| operation.service != client.service);
            return other.cloned();
        }
        shape.parts().find_map(|part| find(&part.shape, client))
    }
    let both = [root.after, root.before].into_iter();
    let categories = both.flat_map(|flows| flows.categories.values());
    let mut shapes = categories.filter_map(|category| category.shape.as_ref());
    shapes.find_map(|shape| find(shape, client))
}

/// Divides the time that requests gained or lost among the operations that behave differently in
/// these requests, in proportion to the change of the time inside each operation.
fn share_out(changes: &mut [PathChange], roots: &[OfRoot<'_>], edges: &EdgeTable) {
    let inside_ns = |change: &PathChange| {
        let root = &roots[change.root];
        let at = change.at.of_any_host();
        let of = |flows: &RootFlows, ids: &BTreeSet<CategoryId>| {
            let times = flows.of(ids).flat_map(|category| &category.edges_ns);
            let inside = times
                .filter(|(edge, _)| edges.get(**edge).operations().contains(&at))
                .map(|(_, time_ns)| *time_ns as f64);
            flows.count_of(ids).mean(inside.sum::<f64>())
        };
        let old = match root.after.requests_of(&change.lost) {
            REQUESTS_MIN.. => root.after,
            _ => root.before,
        };
        of(root.after, &change.gained) - of(old, &change.lost)
    };
    let inside_ns: Vec<f64> = changes.iter().map(inside_ns).collect();
    let together = |a: &PathChange, b: &PathChange| {
        let common = a.gained.intersection(&b.gained).count();
        a.root == b.root && 2 * common > a.gained.len().min(b.gained.len())
    };
    let all_ns = |change: &PathChange| -> f64 {
        let others = changes.iter().zip(&inside_ns);
        let others = others.filter(|(other, _)| together(change, other));
        others.map(|(_, inside_ns)| inside_ns.abs()).sum()
    };
    let all_ns: Vec<f64> = changes.iter().map(all_ns).collect();
    for (at, change) in changes.iter_mut().enumerate() {
        if all_ns[at] > inside_ns[at].abs() {
            change.contribution_ns *= inside_ns[at].abs() / all_ns[at];
        }
    }
}

/// Removes callers that behave differently because of a callee. The callee takes over the
/// contribution and the affected fraction of the caller if they are larger.
fn without_what_follows(found: &[PathChange], roots: &[OfRoot<'_>]) -> Vec<PathChange> {
    let common = |caller: &PathChange, callee: &PathChange| {
        let ids = caller.gained.intersection(&callee.gained);
        roots[caller.root].after.requests_of(ids)
    };
    let follows = |caller: &PathChange, callee: &PathChange| {
        let flows = roots[caller.root].after;
        let all = flows.requests_of(&caller.gained);
        let mut shapes = caller.gained.iter().filter_map(|id| flows.shape(*id));
        caller.root == callee.root
            && caller.at != callee.at
            && shapes.any(|shape| is_below(shape, &caller.at, &callee.at))
            && common(caller, callee) as f64 >= FOLLOWS_MIN * all as f64
    };
    let leader = |at: usize| -> Option<usize> {
        (0..found.len())
            .filter(|other| *other != at && follows(&found[at], &found[*other]))
            // Of several callees, take the one that shares the most changed requests with the
            // caller.
            .max_by_key(|other| common(&found[at], &found[*other]))
    };
    let leaders: Vec<Option<usize>> = (0..found.len()).map(leader).collect();
    let mut kept = found.to_vec();
    for (at, caller) in found.iter().enumerate() {
        let callee = &mut kept[last_leader(&leaders, at)];
        if caller.contribution_ns.abs() > callee.contribution_ns.abs() {
            callee.contribution_ns = caller.contribution_ns;
        }
        callee.affected = callee.affected.max(caller.affected);
    }
    let kept = kept.into_iter().enumerate();
    let ends = kept.filter(|(at, _)| last_leader(&leaders, *at) == *at);
    ends.map(|(_, change)| change).collect()
}

/// Returns the end of the chain of leaders from `at`. If operations call each other in a loop, the
/// chain has no end, and the result is the loop's lowest index.
fn last_leader(leaders: &[Option<usize>], at: usize) -> usize {
    let (mut last, mut chain) = (at, vec![at]);
    while let Some(next) = leaders[last] {
        if let Some(from) = chain.iter().position(|known| *known == next) {
            return chain[from..].iter().copied().fold(next, usize::min);
        }
        chain.push(next);
        last = next;
    }
    last
}

fn operations(shape: &Shape) -> BTreeSet<Operation> {
    let mut found = BTreeSet::from([shape.operation.clone()]);
    for part in shape.parts() {
        found.extend(operations(&part.shape));
    }
    found
}

/// Reports whether `inner` runs inside of `outer`.
fn is_below(shape: &Shape, outer: &Operation, inner: &Operation) -> bool {
    let is_outer = shape.operation == *outer;
    shape.parts().any(|part| match is_outer {
        true => operations(&part.shape).contains(inner),
        false => is_below(&part.shape, outer, inner),
    })
}

#[cfg(test)]
mod tests {
    use super::last_leader;

    #[test]
    fn a_loop_of_leaders_has_one_end() {
        let check = |leaders: &[Option<usize>], expected: &[usize]| {
            let found: Vec<usize> = (0..leaders.len())
                .map(|at| last_leader(leaders, at))
                .collect();
            assert_eq!(found, expected, "{leaders:?}");
        };
        check(&[None, Some(0), Some(1)], &[0, 0, 0]);
        check(&[Some(1), Some(0), Some(1), None], &[0, 0, 0, 3]);
        check(&[Some(2), Some(3), Some(1), Some(2)], &[1, 1, 1, 1]);
    }
}
