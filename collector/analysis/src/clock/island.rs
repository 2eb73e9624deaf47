//! Islands: sets of hosts with a common time, and the conversion of each host's clock to it.

use super::anchors::Anchors;
use super::kernel_clock::KernelClock;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::sync::Arc;

/// Conversion from one clock to another.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub(super) enum Step {
    /// Both clocks show the same time within this number of nanoseconds.
    Same(u64),
    /// A line through estimates of the offset converts one clock to the other.
    Line(Arc<Anchors>),
}

impl Step {
    fn mean_error_ns(&self) -> u64 {
        match self {
            Step::Same(error_ns) => *error_ns,
            Step::Line(anchors) => anchors.mean_error_ns(),
        }
    }

    pub(super) fn convert(&self, at_ns: i64) -> (i64, u64) {
        match self {
            Step::Same(error_ns) => (at_ns, *error_ns),
            Step::Line(anchors) => anchors.convert(at_ns),
        }
    }
}

/// Steps from each host to its neighbours.
pub(super) type Neighbours = BTreeMap<Arc<str>, BTreeMap<Arc<str>, Step>>;

/// Conversion of a host's clock to the common time of its island: a chain of steps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub(super) struct Way {
    pub(super) steps: Vec<Step>,
    pub(super) island: u32,
}

impl Way {
    /// Returns the error bound of the host's clock if the clock is taken as recorded. `None` if a
    /// line corrects it, as the bound then varies over time.
    pub(super) fn agreed_ns(&self) -> Option<u64> {
        self.steps.iter().try_fold(0u64, |sum_ns, step| match step {
            Step::Same(error_ns) => Some(sum_ns.saturating_add(*error_ns)),
            Step::Line(_) => None,
        })
    }

    pub(super) fn convert(&self, at_ns: i64) -> (i64, u64) {
        let steps = self.steps.iter();
        steps.fold((at_ns, 0), |(at_ns, error_ns), step| {
            let (at_ns, more_ns) = step.convert(at_ns);
            (at_ns, error_ns.saturating_add(more_ns))
        })
    }
}

/// Returns the connected sets of hosts, ordered by their first host.
pub(super) fn components(
    hosts: &BTreeSet<Arc<str>>,
    neighbours: &Neighbours,
) -> Vec<BTreeSet<Arc<str>>> {
    let mut left = hosts.clone();
    let mut found = Vec::new();
    while let Some(first) = left.pop_first() {
        let mut component = BTreeSet::from([first.clone()]);
        let mut open = vec![first];
        while let Some(host) = open.pop() {
            for near in neighbours.get(&host).into_iter().flat_map(BTreeMap::keys) {
                if left.remove(near) {
                    component.insert(near.clone());
                    open.push(near.clone());
                }
            }
        }
        found.push(component);
    }
    found
}

/// Connects islands by hosts whose kernels report synchronised clocks. On each island, the one of
/// these hosts with the smallest maximum error is connected to the best one of all islands.
pub(super) fn tie_by_kernels(
    components: &[BTreeSet<Arc<str>>],
    kernel_clocks: &BTreeMap<Arc<str>, KernelClock>,
    neighbours: &mut Neighbours,
) {
    let error_ns = |host: &Arc<str>| {
        let clock = kernel_clocks.get(host).filter(|clock| clock.synchronised);
        clock.map(|clock| (clock.max_error_ns, host.clone()))
    };
    let best_of = |component: &BTreeSet<Arc<str>>| component.iter().filter_map(error_ns).min();
    let mut best: Vec<(u64, Arc<str>)> = components.iter().filter_map(best_of).collect();
    best.sort_unstable();
    let Some(((hub_error_ns, hub), others)) = best.split_first() else {
        return;
    };
    for (error_ns, host) in others {
        let step = Step::Same(error_ns.saturating_add(*hub_error_ns));
        tie(neighbours, (hub, host), step.clone(), step);
    }
}

/// Connects two hosts: by `back` from the second to the first, and by `forth` the other way.
pub(super) fn tie(
    neighbours: &mut Neighbours,
    (a, b): (&Arc<str>, &Arc<str>),
    back: Step,
    forth: Step,
) {
    for (from, to, step) in [(b, a, back), (a, b, forth)] {
        let steps = neighbours.entry(from.clone()).or_default();
        steps.insert(to.clone(), step);
    }
}

/// Finds each host's way of least total mean error to the reference host, by Dijkstra's algorithm.
pub(super) fn ways(
    neighbours: &Neighbours,
    reference: &Arc<str>,
    island: u32,
) -> BTreeMap<Arc<str>, Way> {
    let mut ways: BTreeMap<Arc<str>, Way> = BTreeMap::new();
    let mut open = BinaryHeap::from([Reverse((0u64, reference.clone(), reference.clone()))]);
    while let Some(Reverse((error_ns, host, next))) = open.pop() {
        if ways.contains_key(&host) {
            continue;
        }
        let first = neighbours.get(&host).and_then(|near| near.get(&next));
        // Identical clocks need no step.
        let first = first.filter(|step| **step != Step::Same(0));
        let rest = ways.get(&next).into_iter().flat_map(|way| &way.steps);
        let steps = first.into_iter().chain(rest).cloned().collect();
        ways.insert(host.clone(), Way { steps, island });
        for (near, step) in neighbours.get(&host).into_iter().flatten() {
            if !ways.contains_key(near) {
                let total_ns = error_ns.saturating_add(step.mean_error_ns());
                open.push(Reverse((total_ns, near.clone(), host.clone())));
            }
        }
    }
    ways
}
