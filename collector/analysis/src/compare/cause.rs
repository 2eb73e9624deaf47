//! Finds causes: changes that mutations have in common, each with the part of the total change that
//! it explains.

use super::blame::{OwnChange, links, responsible};
use super::divergence::PathDifference;
use super::environment::{Environment, keep_own};
use super::mutation::{Mutation, response_mutations, structural_mutations};
use super::place::{Place, Places};
use super::place_test::{ChangedPlaces, TooFew, changed_places};
use super::rows::Period;
use super::sides::Sides;
use super::structural::PathChange;
use super::{CompareSettings, OfRoot, largest_by_root, nearest};
use crate::flow::{CategoryId, EdgeId, EdgeTable, Operation, Request, RootFlows};
use crate::record::TraceId;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Kind of change that a cause explains.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CauseKind {
    /// The own time of an operation or of its service changed, or the time on its links.
    ResponseTime,
    /// Requests take another path from the operation on, or it fails more or less often.
    Structure(PathDifference),
}

/// A request, with the id that its source gives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Example {
    /// Trace id.
    pub id: TraceId,
    /// Id as the source wrote it; `None` if that is `id` in 32 lower-case hexadecimal digits.
    pub name: Option<Arc<str>>,
}

impl Example {
    fn of(request: &Request) -> Example {
        Example {
            id: request.id,
            name: request.name.clone(),
        }
    }
}

/// A cause of changes in requests.
#[derive(Clone, Debug)]
pub struct Cause {
    /// Kind of change: of times or of structure.
    pub kind: CauseKind,
    /// Responsible operation.
    pub operation: Operation,
    /// Place of the largest contribution in the requests of one root operation, or the operation at
    /// which the structure differs.
    pub place: Option<Place>,
    /// True if the change shows on one link only. Its caller, callee or network may be responsible.
    pub is_undecided: bool,
    /// Edge that changed most, at the place and in the category of the largest contribution; `None`
    /// if the structure changed, or if no edge is known.
    pub edge: Option<EdgeId>,
    /// Edges of the affected places; empty if the structure changed.
    pub edges: Vec<EdgeId>,
    /// Contribution to the change of the mean latency of all requests, in nanoseconds.
    pub contribution_ns: f64,
    /// Contribution to the change of the mean latency of each affected root operation's requests,
    /// in nanoseconds. If times changed, it excludes the part that a few slow requests make up.
    pub by_root_ns: BTreeMap<String, f64>,
    /// Estimated fraction of the later period's requests that show the change.
    pub affected: f64,
    /// P-value of the change, corrected for the number of tests. The smallest one, if several
    /// places or root operations changed.
    pub q_value: f64,
    /// Period within which a changed structure begins or ends. The test then compares the section
    /// of that period that shows the behaviour with the other period. `None` if the whole periods
    /// differ by more than chance, or if times changed. Of several root operations, the one with
    /// the most affected requests decides.
    pub changed_within: Option<Period>,
    /// Weight that ranks causes: the absolute contribution as a fraction of the earlier mean
    /// latency. If times changed, it excludes the part that a few slow requests make up. If the
    /// structure changed, the weight is at least a measure of how many requests have a new
    /// structure.
    pub weight: f64,
    /// Indices of this cause's mutations in [`super::Comparison::mutations`].
    pub mutations: Vec<usize>,
    /// Categories of requests before and after the change, with their root operations.
    pub sides: Vec<Sides>,
    /// A typical request of the earlier period, and one of the later period, if known.
    pub examples: [Option<Example>; 2],
}

/// Minimum fraction of the mean latency's change, without the workload's part, that a section of
/// the earlier period must contribute to explain the change.
const SECTION_MIN: f64 = 0.5;

impl Cause {
    /// Reports whether only a section of the earlier period differs from the later one, and
    /// explains less than half of `change_ns`: the change of the mean latency without the
    /// workload's part. The later requests then do nothing new, and the change has another reason.
    fn is_incidental(&self, change_ns: f64) -> bool {
        let explains = self.contribution_ns * change_ns.signum() >= SECTION_MIN * change_ns.abs();
        self.changed_within == Some(Period::Before) && !explains
    }
}

/// Finds the causes and their mutations. `within_roots_ns` is the change of the mean latency
/// without the part of the workload.
pub(super) fn causes(
    roots: &[OfRoot<'_>],
    structural: &[PathChange],
    edges: &EdgeTable,
    places: &Places,
    (mean_before_ns, within_roots_ns): (f64, f64),
    settings: &CompareSettings,
) -> CauseList {
    let ChangedPlaces {
        mut changed,
        too_few,
    } = changed_places(roots, &places.all, settings);
    let environment = keep_own(&mut changed, roots, &places.all, mean_before_ns);
    let mut drafts: BTreeMap<(Operation, bool), Draft> = BTreeMap::new();
    let mut of_place: BTreeMap<(usize, usize), (Operation, bool)> = BTreeMap::new();
    let totals = totals(roots, &changed, places.all.len());
    let with_totals = places.all.iter().enumerate().map(|(number, place)| {
        let total_ns = totals[number];
        let contribution_ns = total_ns.unwrap_or_default();
        (number, place, contribution_ns, total_ns.is_some())
    });
    let own = own_changes(roots, &changed, places);
    let blamed = responsible(&links(with_totals), &own);
    let operation_of = |place: usize| match (&places.all[place], blamed.get(&place)) {
        (Place::Link { caller, .. }, Some(service)) if caller.service == *service => caller,
        (of, _) => of.operation(),
    };
    let leading = leading(&totals, &operation_of);
    for ((root, place), q_value) in &changed {
        let operation = operation_of(*place);
        let (share, change) = (roots[*root].share, &roots[*root].places[place]);
        let contribution_ns = change.contribution_ns();
        let key = (whole(operation, contribution_ns, &own, &leading), false);
        let draft = drafts.entry(key.clone()).or_default();
        for (category, part_ns) in &change.contributions_ns {
            *draft.parts_ns.entry((*root, *category)).or_default() += share * part_ns;
        }
        *draft.places.entry((*root, *place)).or_default() += share * contribution_ns;
        draft.q_value = draft.q_value.min(*q_value);
        of_place.insert((*root, *place), key);
    }
    for change in structural {
        let draft = drafts.entry((change.operation.clone(), true)).or_default();
        draft.structural.push(change.clone());
        draft.q_value = draft.q_value.min(change.q_value);
    }
    let cause = |(key, draft): ((Operation, bool), Draft)| {
        let cause = draft.cause(&key.0, roots, edges, places, mean_before_ns);
        (key, cause)
    };
    let mut causes: Vec<((Operation, bool), Cause)> = drafts.into_iter().map(cause).collect();
    causes.sort_by(|a, b| {
        let is_incidental = |cause: &Cause| cause.is_incidental(within_roots_ns);
        is_incidental(&a.1)
            .cmp(&is_incidental(&b.1))
            .then_with(|| b.1.weight.total_cmp(&a.1.weight))
            .then_with(|| a.0.cmp(&b.0))
    });
    let keys = causes.iter().map(|(key, _)| key.clone());
    let rank: BTreeMap<(Operation, bool), usize> = keys.zip(0..).collect();
    let of_place = of_place.into_iter();
    let cause_of = of_place.map(|(place, key)| (place, rank[&key])).collect();
    let mut mutations = response_mutations(roots, places, &cause_of, settings.false_discoveries);
    mutations.extend(structural_mutations(roots, structural, &rank, settings));
    mutations.sort_by(|a, b| {
        let by_size = b.contribution_ns.abs().total_cmp(&a.contribution_ns.abs());
        by_size.then_with(|| (&a.root, a.category, a.kind).cmp(&(&b.root, b.category, b.kind)))
    });
    let mut causes: Vec<Cause> = causes.into_iter().map(|(_, cause)| cause).collect();
    for (at, mutation) in mutations.iter().enumerate() {
        for cause in &mutation.causes {
            causes[*cause].mutations.push(at);
        }
    }
    let most = causes.first().map_or(0.0, |cause| cause.weight);
    CauseList {
        principal: causes.partition_point(|cause| {
            !cause.is_incidental(within_roots_ns) && cause.weight >= PRINCIPAL_MIN * most
        }),
        causes,
        mutations,
        environment,
        too_few,
    }
}

/// Minimum weight of a principal cause, as a fraction of the first cause's weight.
const PRINCIPAL_MIN: f64 = 0.2;

/// Result of the search for causes.
pub(super) struct CauseList {
    /// Number of causes at the head of `causes` that explain the change.
    pub(super) principal: usize,
    pub(super) too_few: Vec<TooFew>,
    pub(super) causes: Vec<Cause>,
    pub(super) mutations: Vec<Mutation>,
    pub(super) environment: Option<Environment>,
}

/// Computes each service's [`OwnChange`] from the places in `changed` whose time changed by
/// [`PLAINLY_MIN`] or more.
fn own_changes(
    roots: &[OfRoot<'_>],
    changed: &BTreeMap<(usize, usize), f64>,
    places: &Places,
) -> BTreeMap<Arc<str>, OwnChange> {
    let mut all_ns: BTreeMap<Arc<str>, f64> = BTreeMap::new();
    let mut own: BTreeMap<Arc<str>, OwnChange> = BTreeMap::new();
    for (number, root) in roots.iter().enumerate() {
        for (place, change) in &root.places {
            let Place::Own(operation) = &places.all[*place] else {
                continue;
            };
            let before_ns = root.share * change.before_ns;
            *all_ns.entry(operation.service.clone()).or_default() += before_ns;
            let change_ns = change.contribution_ns();
            if changed.contains_key(&(number, *place))
                && change_ns.abs() >= PLAINLY_MIN * change.before_ns
            {
                let own = own.entry(operation.service.clone()).or_default();
                match change_ns < 0.0 {
                    true => own.faster += before_ns,
                    false => own.slower += before_ns,
                }
                own.contribution_ns += root.share * change_ns;
            }
        }
    }
    for (service, own) in &mut own {
        let all_ns = all_ns.get(service).copied().unwrap_or_default();
        if all_ns > 0.0 {
            own.slower /= all_ns;
            own.faster /= all_ns;
        }
    }
    own
}

/// Minimum relative change of an operation's time that counts as a change of its service.
const PLAINLY_MIN: f64 = 0.3;

/// Returns each service's operation of largest contribution, separately for slower and faster
/// places. The key's flag is true for faster ones.
fn leading<'a>(
    totals: &[Option<f64>],
    operation_of: &dyn Fn(usize) -> &'a Operation,
) -> BTreeMap<(Arc<str>, bool), Operation> {
    let mut sums: BTreeMap<(Arc<str>, bool), BTreeMap<&Operation, f64>> = BTreeMap::new();
    for (place, total_ns) in totals.iter().enumerate() {
        if let Some(total_ns) = total_ns {
            let operation = operation_of(place);
            let key = (operation.service.clone(), *total_ns < 0.0);
            let of_service = sums.entry(key).or_default();
            *of_service.entry(operation).or_default() += total_ns.abs();
        }
    }
    let most = |sums: BTreeMap<&Operation, f64>| {
        let most = sums.into_iter().max_by(|a, b| a.1.total_cmp(&b.1));
        most.map(|(operation, _)| operation.clone())
    };
    let sums = sums.into_iter();
    let leading = sums.filter_map(|(of, sums)| Some((of, most(sums)?)));
    leading.collect()
}

/// Returns the operation that a change is attributed to. For a service that changed as a whole in
/// the same direction, that is its operation of largest contribution, so that it forms one cause.
fn whole(
    operation: &Operation,
    contribution_ns: f64,
    own: &BTreeMap<Arc<str>, OwnChange>,
    leading: &BTreeMap<(Arc<str>, bool), Operation>,
) -> Operation {
    let own = own.get(&operation.service);
    let is_whole = own.is_some_and(|own| own.is_whole(contribution_ns));
    let most = leading.get(&(operation.service.clone(), contribution_ns < 0.0));
    most.filter(|_| is_whole).unwrap_or(operation).clone()
}

/// Returns each place's contribution over the root operations in whose requests it changed, in ns;
/// `None` if it changed in none.
fn totals(
    roots: &[OfRoot<'_>],
    changed: &BTreeMap<(usize, usize), f64>,
    places: usize,
) -> Vec<Option<f64>> {
    let mut totals = vec![None; places];
    for (root, place) in changed.keys() {
        *totals[*place].get_or_insert(0.0) +=
            roots[*root].share * roots[*root].places[place].contribution_ns();
    }
    totals
}

/// A cause under construction.
#[derive(Debug)]
struct Draft {
    parts_ns: BTreeMap<(usize, Option<CategoryId>), f64>,
    places: BTreeMap<(usize, usize), f64>,
    structural: Vec<PathChange>,
    q_value: f64,
}

impl Default for Draft {
    fn default() -> Draft {
        Draft {
            parts_ns: BTreeMap::new(),
            places: BTreeMap::new(),
            structural: Vec::new(),
            q_value: 1.0,
        }
    }
}

impl Draft {
    /// Iterates over the contributions of changed times to the change of the mean latency of all
    /// requests, each with its root operation, without the parts that a few slow requests make up.
    fn robust_ns(&self, roots: &[OfRoot<'_>]) -> impl Iterator<Item = (usize, f64)> {
        let places = self.places.iter();
        places.map(move |((root, place), contribution_ns)| {
            let robust = roots[*root].places[place].robust;
            (*root, contribution_ns * robust)
        })
    }

    /// Computes [`Cause::by_root_ns`].
    fn by_root_ns(&self, roots: &[OfRoot<'_>]) -> BTreeMap<String, f64> {
        let structural = self.structural.iter();
        let structural = structural.map(|change| (change.root, change.contribution_ns));
        let mut sums: BTreeMap<String, f64> = BTreeMap::new();
        for (root, contribution_ns) in structural.chain(self.robust_ns(roots)) {
            let root = &roots[root];
            *sums.entry(root.name.to_owned()).or_default() += contribution_ns / root.share;
        }
        sums
    }

    fn cause(
        self,
        operation: &Operation,
        roots: &[OfRoot<'_>],
        edges: &EdgeTable,
        places: &Places,
        mean_before_ns: f64,
    ) -> Cause {
        let relative = |ns: f64| match mean_before_ns > 0.0 {
            true => ns.abs() / mean_before_ns,
            false => 0.0,
        };
        let by_root_ns = self.by_root_ns(roots);
        let structural = self.structural.iter();
        let by_affected = |a: &&PathChange, b: &&PathChange| a.affected.total_cmp(&b.affected);
        let largest = structural.clone().max_by(by_affected);
        if let Some(largest) = largest {
            let sum = |of: fn(&PathChange) -> f64| structural.clone().map(of).sum::<f64>();
            let contribution_ns = sum(|change| change.contribution_ns);
            let shares = structural.clone().map(|change| change.new[1]);
            let always = shares.fold(0.0, f64::max);
            // New behaviour that now always occurs is a clear change, even if few requests run the
            // operation.
            let new = (sum(|change| change.new[0]) * always).sqrt();
            let root = &roots[largest.root];
            let side = |change: &PathChange| Sides {
                root: roots[change.root].name.to_owned(),
                changed: change.gained.clone(),
                former: change.lost.clone(),
            };
            return Cause {
                kind: CauseKind::Structure(largest.difference.clone()),
                operation: operation.clone(),
                place: Some(Place::Own(largest.at.clone())),
                is_undecided: false,
                edge: None,
                edges: Vec::new(),
                contribution_ns,
                by_root_ns,
                affected: largest_by_root(structural.clone().map(|of| (of.root, of.affected))),
                q_value: self.q_value,
                changed_within: largest.changed_within,
                weight: relative(contribution_ns).max(new),
                mutations: Vec::new(),
                sides: structural.map(side).collect(),
                examples: [
                    example(root.before, &largest.lost),
                    example(root.after, &largest.gained),
                ],
            };
        }
        let contribution_ns: f64 = self.parts_ns.values().sum();
        let by_size = |a: &f64, b: &f64| a.abs().total_cmp(&b.abs());
        let most = self.parts_ns.iter().max_by(|a, b| by_size(a.1, b.1));
        let most = most.map(|(of, _)| *of);
        let place = self.places.iter().max_by(|a, b| by_size(a.1, b.1));
        let place = place.map(|((_, place), _)| *place);
        let edge = most.and_then(|(root, category)| {
            let mut matched = roots[root].matched.iter();
            let alike = matched.find(|alike| alike.id == category)?;
            let edges = alike.edges().into_iter();
            let of_place = edges.filter(|edge| Some(places.number(*edge)) == place);
            of_place.max_by(|a, b| by_size(&alike.edge_change_ns(*a), &alike.edge_change_ns(*b)))
        });
        let affected = largest_by_root(self.places.keys().map(|(root, place)| {
            let change = &roots[*root].places[place];
            let affected = change.runs * change.affected;
            (*root, roots[*root].share * affected)
        }));
        let robust_ns: f64 = self.robust_ns(roots).map(|(_, ns)| ns).sum();
        debug_assert!(
            edge.is_none_or(|edge| (edge.0 as usize) < edges.len()),
            "edges are of the table"
        );
        let examples = most.map_or([None, None], |(root, category)| {
            let ids: BTreeSet<CategoryId> = category.into_iter().collect();
            [roots[root].before, roots[root].after].map(|flows| example(flows, &ids))
        });
        Cause {
            kind: CauseKind::ResponseTime,
            operation: operation.clone(),
            place: place.map(|place| places.all[place].clone()),
            is_undecided: place.is_some_and(|one| {
                matches!(places.all[one], Place::Link { .. })
                    && self.places.keys().all(|(_, other)| *other == one)
            }),
            edge,
            edges: places.edges_of(&|place| self.places.keys().any(|(_, own)| *own == place)),
            contribution_ns,
            by_root_ns,
            affected,
            q_value: self.q_value,
            changed_within: None,
            weight: relative(robust_ns),
            mutations: Vec::new(),
            sides: (self.parts_ns.keys())
                .filter_map(|(root, category)| Some(Sides::same(roots[*root].name, (*category)?)))
                .collect(),
            examples,
        }
    }
}

/// Returns the request nearest to the mean latency of the largest of these categories.
fn example(flows: &RootFlows, ids: &BTreeSet<CategoryId>) -> Option<Example> {
    let largest = flows.of(ids).max_by_key(|category| category.requests)?;
    nearest(&largest.sample, largest.mean_ns()).map(Example::of)
}
