//! Contrasts: the changed and unchanged sets of requests that an explanation must separate.

use super::cause::{Cause, CauseKind};
use super::divergence::PathDifference;
use super::mutation::{Mutation, MutationKind};
use super::partial::PartialChange;
use super::rows::Period;
use super::sides::Sides;
use crate::explain::{REQUESTS_MIN, Subject, Template};
use crate::flow::{
    EdgeId, EdgeTable, FlowCategory, FlowEdge, Operation, PeriodFlows, Request, RequestFlow, Shape,
};
use crate::record::TraceId;
use std::collections::{BTreeMap, BTreeSet};

/// A sampled request of either side of a contrast.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ContrastRequest {
    /// True for a request of the later period.
    pub is_later: bool,
    /// True for a request of the changed side. If only times changed, these are the later requests.
    /// If [`Contrast::within`] is the earlier period, they are those with the former structure.
    pub is_mutation: bool,
    /// True if the request's time is beyond the boundary of a partial change. `None` for earlier
    /// requests, and if the change is not partial.
    pub is_beyond: Option<bool>,
    /// Trace id.
    pub id: TraceId,
    /// Number of requests of its category that the sampled request represents.
    pub weight: f64,
    /// Latency of the whole request in nanoseconds.
    pub latency_ns: u64,
}

/// Sampled requests of both sides, and the features that may explain the difference.
#[derive(Clone, Debug)]
pub struct Contrast {
    /// Requests in order of period and id.
    pub requests: Vec<ContrastRequest>,
    /// Boundary of the changed requests, if times changed only in a part of the later requests.
    pub partial: Option<PartialChange>,
    /// Period of all requests; `None` if they are of both periods.
    pub within: Option<Period>,
    /// Features of a request that may be the reason for the change.
    pub template: Template,
    /// True if `requests` holds all recorded requests of both sides.
    pub is_whole: bool,
    /// Kind of change: of times, of structure or of failures.
    pub subject: Subject,
    sides: Vec<Sides>,
    edges: Option<BTreeSet<FlowEdge>>,
}

/// Minimum fraction of a side's requests in which an operation must run to be common to it.
const COMMON_MIN: f64 = 0.95;

impl Contrast {
    /// Creates the contrast that explains a cause. The cause's edges refer to `edges`, the table of
    /// the comparison. `periods` are the earlier and the later one.
    pub fn of_cause(cause: &Cause, edges: &EdgeTable, periods: [&PeriodFlows; 2]) -> Contrast {
        let subject = match &cause.kind {
            CauseKind::ResponseTime => Subject::Times,
            CauseKind::Structure(difference) => subject_of(difference),
        };
        // If requests take another path because of a callee, the structure differs at the caller.
        let at = match &cause.place {
            Some(super::Place::Own(at)) if subject != Subject::Times => at,
            _ => &cause.operation,
        };
        let edges: BTreeSet<&FlowEdge> = cause.edges.iter().map(|edge| edges.get(*edge)).collect();
        Contrast::of(&cause.sides, Some(at), subject, Some(&edges), periods)
    }

    /// Creates the contrast that explains a mutation. `periods` are the earlier and the later one.
    pub fn of_mutation(mutation: &Mutation, periods: [&PeriodFlows; 2]) -> Contrast {
        let sides = if mutation.kind == MutationKind::Structural {
            let former = mutation.precursors.iter();
            Sides {
                root: mutation.root.clone(),
                changed: BTreeSet::from([mutation.category]),
                former: former.map(|precursor| precursor.category).collect(),
            }
        } else {
            Sides::same(&mutation.root, mutation.category)
        };
        let mut precursors = mutation.precursors.iter();
        let divergence = precursors.find_map(|precursor| precursor.divergence.as_ref());
        let at = divergence.and_then(|divergence| divergence.operation().cloned());
        let subject = match mutation.kind {
            MutationKind::ResponseTime => Subject::Times,
            MutationKind::Structural => {
                divergence.map_or(Subject::Structure, |of| subject_of(&of.difference))
            }
        };
        Contrast::of(&[sides], at.as_ref(), subject, None, periods)
    }

    /// Builds a contrast.
    ///
    /// If the structure changed, requests with the new structure are separated from those with the
    /// former one, in both periods. An event that coincides with the change without causing it
    /// usually separates these sets less well than the reason does. If the former structure
    /// vanished, the other one is not new, and enough earlier requests had each of the two, the
    /// contrast contains only earlier requests.
    ///
    /// If times changed, later requests are separated from earlier ones. If only a part of the
    /// later requests changed, their times on `edges` determine that part, or their whole latency
    /// if `edges` is `None`.
    fn of(
        sides: &[Sides],
        at: Option<&Operation>,
        subject: Subject,
        edges: Option<&BTreeSet<&FlowEdge>>,
        periods: [&PeriodFlows; 2],
    ) -> Contrast {
        let is_structural = subject != Subject::Times;
        let within = match is_structural {
            true => period_of_vanished(sides, periods),
            false => None,
        };
        let mut requests = Vec::new();
        let mut is_whole = true;
        let mut times_ns: [Vec<f64>; 2] = Default::default();
        let mut common = [Common::default(), Common::default()];
        for (period, flows) in periods.into_iter().enumerate() {
            let is_later = period == 1;
            if is_outside(within, is_later) {
                continue;
            }
            // Each period has its own numbers of edges.
            let edges: Option<BTreeSet<EdgeId>> = edges.map(|edges| {
                let own = flows.edges.iter();
                own.filter(|(_, edge)| edges.contains(edge))
                    .map(|(id, _)| id)
                    .collect()
            });
            for side in sides {
                let Some(root) = flows.roots.get(&side.root) else {
                    continue;
                };
                let both = if is_structural {
                    let has_vanished = within == Some(Period::Before);
                    vec![(has_vanished, &side.former), (!has_vanished, &side.changed)]
                } else {
                    vec![(is_later, &side.changed)]
                };
                for (is_mutation, ids) in both {
                    for category in root.of(ids) {
                        common[usize::from(is_mutation)].add(category);
                        let kept = category.sample.len();
                        let weight = category.sample_weight(category.sample.iter());
                        is_whole &= kept as u64 == category.requests;
                        for request in &category.sample {
                            let time_ns = time_on_ns(request, edges.as_ref());
                            times_ns[period].push(time_ns);
                            let contrasted = ContrastRequest {
                                is_later,
                                is_mutation,
                                is_beyond: None,
                                id: request.id,
                                weight: weight * f64::from(request.weight),
                                latency_ns: request.latency_ns,
                            };
                            requests.push((contrasted, time_ns));
                        }
                    }
                }
            }
        }
        let partial = match is_structural {
            true => None,
            false => PartialChange::of(times_ns),
        };
        let requests = requests.into_iter().map(|(contrasted, time_ns)| {
            let partial = partial.filter(|_| contrasted.is_later);
            ContrastRequest {
                is_beyond: partial.map(|partial| partial.holds(time_ns)),
                ..contrasted
            }
        });
        let mut requests: Vec<ContrastRequest> = requests.collect();
        // A category on both sides counts as former.
        requests.sort_unstable_by_key(|request| {
            let is_former = request.is_mutation == (within == Some(Period::Before));
            (request.is_later, request.id, !is_former)
        });
        requests.dedup_by_key(|request| (request.is_later, request.id));
        let [former, changed] = common.map(Common::operations);
        let operations = former.intersection(&changed).cloned().collect();
        Contrast {
            requests,
            partial,
            within,
            template: Template::new(&operations, at, is_structural),
            is_whole,
            subject,
            sides: sides.to_vec(),
            edges: edges.map(|edges| edges.iter().map(|edge| (*edge).clone()).collect()),
        }
    }

    /// Returns the side of a request, sampled or not, as [`ContrastRequest::is_mutation`] and
    /// [`ContrastRequest::is_beyond`]. Returns `None` if the request is on neither side.
    pub fn side_of(&self, is_later: bool, flow: &RequestFlow<'_>) -> Option<(bool, Option<bool>)> {
        let of_root = || self.sides.iter().filter(|side| side.root == flow.root);
        let is_changed = of_root().any(|side| side.changed.contains(&flow.category));
        if is_outside(self.within, is_later) {
            return None;
        }
        let is_mutation = if self.subject == Subject::Times {
            is_changed.then_some(is_later)
        } else {
            // As in samples, a category on both sides counts as former.
            let is_former = of_root().any(|side| side.former.contains(&flow.category));
            let has_vanished = self.within == Some(Period::Before);
            (is_former || is_changed).then_some(is_former == has_vanished)
        }?;
        let is_beyond = self.partial.filter(|_| is_later).map(|partial| {
            let time_ns = match &self.edges {
                None => flow.latency_ns as f64,
                Some(edges) => {
                    let on = flow.edges_ns.iter();
                    on.filter(|(edge, _)| edges.contains(flow.edges.get(*edge)))
                        .map(|(_, time_ns)| f64::from(*time_ns as f32))
                        .sum()
                }
            };
            partial.holds(time_ns)
        });
        Some((is_mutation, is_beyond))
    }
}

/// Maximum ratio of a vanished structure's later share to its earlier share, and of a new
/// structure's earlier share to its later share.
const LACKS_MAX: f64 = 0.25;

/// Returns the earlier period if the former structure vanished, and a part of the earlier requests
/// already had the other one. `None` if there are too few of either, or if the other structure is
/// new.
fn period_of_vanished(sides: &[Sides], periods: [&PeriodFlows; 2]) -> Option<Period> {
    let counts = periods.map(|flows| {
        let mut counts = [0; 2];
        for side in sides {
            if let Some(root) = flows.roots.get(&side.root) {
                counts[0] += root.requests_of(&side.former);
                counts[1] += root.requests_of(side.changed.difference(&side.former));
            }
        }
        counts
    });
    let shares = |side: usize| {
        counts.map(|counts| counts[side] as f64 / (counts[0] + counts[1]).max(1) as f64)
    };
    let ([former_before, former_after], [new_before, new_after]) = (shares(0), shares(1));
    let is_enough = counts[0].iter().all(|count| *count >= REQUESTS_MIN as u64);
    let has_vanished = former_after <= LACKS_MAX * former_before;
    let is_new = new_before <= LACKS_MAX * new_after;
    (has_vanished && !is_new && is_enough).then_some(Period::Before)
}

/// Reports whether a contrast that is limited to a period excludes a request.
fn is_outside(within: Option<Period>, is_later: bool) -> bool {
    within.is_some_and(|period| (period == Period::After) != is_later)
}

/// Returns the subject of an explanation of this difference.
fn subject_of(difference: &PathDifference) -> Subject {
    match difference {
        PathDifference::Fails | PathDifference::Succeeds => Subject::Failures,
        _ => Subject::Structure,
    }
}

/// Returns the time of a request on these edges, or its latency if `edges` is `None`.
fn time_on_ns(request: &Request, edges: Option<&BTreeSet<EdgeId>>) -> f64 {
    let Some(edges) = edges else {
        return request.latency_ns as f64;
    };
    let on = request.edges_ns.iter();
    on.filter(|(edge, _)| edges.contains(edge))
        .map(|(_, time_ns)| f64::from(*time_ns))
        .sum()
}

/// Number of requests of known structure on one side, in total and for each operation that runs in
/// them.
#[derive(Default)]
struct Common {
    requests: u64,
    running: BTreeMap<Operation, u64>,
}

impl Common {
    fn add(&mut self, category: &FlowCategory) {
        let Some(shape) = &category.shape else {
            return;
        };
        self.requests += category.requests;
        let mut operations = BTreeSet::new();
        collect(shape, &mut operations);
        for operation in operations {
            *self.running.entry(operation).or_default() += category.requests;
        }
    }

    fn operations(self) -> BTreeSet<Operation> {
        let least = COMMON_MIN * self.requests as f64;
        let all = self.running.into_iter();
        all.filter(|(_, requests)| *requests as f64 >= least)
            .map(|(operation, _)| operation)
            .collect()
    }
}

fn collect(shape: &Shape, into: &mut BTreeSet<Operation>) {
    into.insert(shape.operation.clone());
    for part in shape.parts() {
        collect(&part.shape, into);
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{USUAL, flows_of, period};
    use super::*;
    use crate::flow::CategoryId;

    /// A structure that vanished is sought in the earlier period only.
    #[test]
    fn both_sides_are_earlier_if_a_structure_vanished() {
        let periods = [(1, 20), (2, 0)]
            .map(|(seed, misses)| period(seed, 400, super::super::tests::with_misses(misses)));
        let [before, after] = flows_of(periods.each_ref().map(Vec::as_slice));
        let settings = super::super::CompareSettings::default();
        let compared = |before, after| {
            let found = super::super::Comparison::of(before, after, &|_| false, &settings);
            let cause = found.causes.into_iter().next().expect("a cause");
            let contrast = Contrast::of_cause(&cause, &found.edges, [before, after]);
            (cause, contrast)
        };
        assert_eq!(compared(&after, &before).1.within, None);
        let (cause, contrast) = compared(&before, &after);
        assert_eq!(contrast.within, Some(Period::Before), "{cause:?}");
        let sides = &cause.sides[0];
        let categories = &before.roots[&sides.root].categories;
        let expected: u64 = sides.former.iter().map(|id| categories[id].requests).sum();
        let changed = contrast.requests.iter().filter(|one| one.is_mutation);
        assert_eq!(changed.count() as u64, expected);
        assert!(contrast.requests.iter().all(|one| !one.is_later));
        let flow = RequestFlow {
            root: &sides.root,
            category: *sides.former.first().expect("a category"),
            latency_ns: 1,
            edges: &before.edges,
            edges_ns: &[],
        };
        assert_eq!(contrast.side_of(false, &flow), Some((true, None)));
        assert_eq!(contrast.side_of(true, &flow), None);
    }

    #[test]
    fn a_category_on_both_sides_is_former() {
        let [before, after] = flows_of([&period(1, 300, USUAL), &period(2, 300, USUAL)]);
        let (root, flows) = after
            .roots
            .iter()
            .max_by_key(|(_, flows)| flows.categories.len())
            .unwrap();
        let mut ids: Vec<CategoryId> = flows.categories.keys().copied().collect();
        ids.sort_by_key(|id| flows.categories[id].requests);
        let [changed, both] = *ids.last_chunk().unwrap();
        let sides = |changed, former: &[CategoryId]| Sides {
            root: root.clone(),
            changed: BTreeSet::from([changed]),
            former: former.iter().copied().collect(),
        };
        let sides = [sides(both, &[]), sides(changed, &[both])];
        let periods = [&before, &after];
        let contrast = Contrast::of(&sides, None, Subject::Structure, None, periods);
        let mutations = contrast.requests.iter().filter(|one| one.is_mutation);
        let expected = periods.map(|period| period.roots[root].categories[&changed].requests);
        assert_eq!(mutations.count() as u64, expected.iter().sum::<u64>());
        for (category, expected) in [(both, false), (changed, true)] {
            let flow = RequestFlow {
                root,
                category,
                latency_ns: 1,
                edges: &after.edges,
                edges_ns: &[],
            };
            assert_eq!(contrast.side_of(true, &flow), Some((expected, None)));
        }
    }
}
