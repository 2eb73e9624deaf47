//! Resolution of many labels at once.

use alloc::vec::Vec;
use core::cell::Cell;

use super::{Resolver, end_of, leaf, per_node};
use crate::label::{Label, LabelKind};
use crate::node::Parents;
use crate::read::ReadLog;
use crate::set::InputSet;

/// Bit of nodes whose sets the caller wants.
const WANTED: u32 = 1 << 31;
/// Bit of wanted nodes, and of nodes on which they depend.
const REACHED: u32 = 1 << 30;
/// Bits of the number of a node's remaining uses.
const USES: u32 = REACHED - 1;
/// Maximum bytes of the sets that wait for their next use. Without it, a forged file of 12 KB took
/// 3.5 GB.
const SETS_BYTES_MAX: usize = 1 << 29;
/// Place of a set that was not kept.
const UNKEPT: u32 = u32::MAX;

/// Calls `visit` once for each distinct label, with its inputs.
///
/// One sweep over the nodes, parents before children, computes the set of each needed node once. At
/// its last use, a set becomes part of the result or is freed. The sweep thus holds only sets that
/// still have uses, plus 8 bytes for each node up to the last one of `labels`. Sets beyond 512 MiB
/// are not kept, and each use computes them again. A forged log can make the sweep take very long.
/// For logs of unknown origin, use [`sweep_within`].
pub fn sweep(log: &impl ReadLog, labels: &[Label], visit: impl FnMut(Label, &InputSet)) {
    sweep_within(&Cell::new(u64::MAX), log, labels, visit);
}

/// Sweeps like [`sweep`], but ends once no steps are left.
///
/// A step handles a node, or one range or page (of 4,096 inputs) of a set, and takes some 10 ns.
/// `visit` may take steps for its own work. If no steps are left at the end, some labels may be
/// missing.
pub fn sweep_within(
    steps: &Cell<u64>,
    log: &impl ReadLog,
    labels: &[Label],
    visit: impl FnMut(Label, &InputSet),
) {
    sweep_keeping(SETS_BYTES_MAX, steps, log, labels, visit);
}

pub(super) fn sweep_keeping(
    bytes_max: usize,
    steps: &Cell<u64>,
    log: &impl ReadLog,
    labels: &[Label],
    mut visit: impl FnMut(Label, &InputSet),
) {
    let mut leaves: Vec<Label> = labels
        .iter()
        .copied()
        .filter(|label| !is_known(log, *label))
        .collect();
    leaves.sort_unstable();
    leaves.dedup();
    let take = |count: u64| steps.set(steps.get().saturating_sub(count));
    for label in leaves {
        if steps.get() == 0 {
            return;
        }
        visit(label, &Resolver::default().inputs(log, label));
        take(1);
    }
    let mut sweep = Sweep::new(bytes_max, log, labels);
    for index in 0..sweep.uses.len() as u32 {
        if steps.get() == 0 {
            return;
        }
        take(sweep.step(log, index, &mut visit));
    }
}

/// Reports whether a label is a node that the log has.
fn is_known(log: &impl ReadLog, label: Label) -> bool {
    matches!(label.kind(), LabelKind::Node(index) if index < log.nodes())
}

pub(super) struct Sweep {
    /// Flags and number of remaining uses of each node.
    uses: Vec<u32>,
    /// Place of each node's set in `sets`, while it has uses.
    places: Vec<u32>,
    /// Kept sets, with their bytes.
    pub(super) sets: Vec<(InputSet, usize)>,
    free: Vec<u32>,
    /// Bytes that further sets may take.
    left: usize,
    resolver: Resolver,
}

/// Inputs of a node's parent.
enum ParentSet {
    /// Range of inputs, which needs no memory of its own.
    Range(u32, u32),
    /// Set that no other use shares.
    Owned(InputSet),
    /// Place of a set that has further uses.
    Shared(usize),
}

impl Sweep {
    pub(super) fn new(bytes_max: usize, log: &impl ReadLog, labels: &[Label]) -> Self {
        let end = end_of(log, labels);
        let mut uses = per_node(end);
        for label in labels {
            if let LabelKind::Node(index) = label.kind()
                && let Some(of) = uses.get_mut(index as usize)
            {
                *of = WANTED | REACHED;
            }
        }
        for index in (0..end).rev() {
            if uses[index as usize] & REACHED == 0 {
                continue;
            }
            if let Some(Parents::Union(a, b)) = log.node(index).map(|node| node.parents()) {
                for parent in [a, b] {
                    if let LabelKind::Node(parent) = parent.kind() {
                        let of = &mut uses[parent as usize];
                        // A set with the maximum number of uses is kept to the end.
                        let more = u32::from(*of & USES != USES);
                        *of = (*of | REACHED) + more;
                    }
                }
            }
        }
        Self {
            uses,
            places: per_node(end),
            sets: Vec::new(),
            free: Vec::new(),
            left: bytes_max,
            resolver: Resolver::default(),
        }
    }

    /// Computes the set of a node if it is needed, and returns the number of steps that this took.
    pub(super) fn step(
        &mut self,
        log: &impl ReadLog,
        index: u32,
        visit: &mut impl FnMut(Label, &InputSet),
    ) -> u64 {
        let uses = self.uses[index as usize];
        if uses & REACHED == 0 {
            return 1;
        }
        let mut set = InputSet::new();
        match log.node(index).map(|node| node.parents()) {
            Some(Parents::Union(a, b)) => {
                let (a, b) = (self.take(log, a), self.take(log, b));
                set = self.union(a, b);
            }
            Some(Parents::Range(first, last)) => set.insert(first, last),
            None => set = self.resolver.inputs(log, Label::node(index)),
        }
        if uses & WANTED != 0 {
            visit(Label::node(index), &set);
        }
        // The sets of the node's parents have at most as many pages.
        let steps = 1 + set.parts() as u64 + self.resolver.take_visits();
        if uses & USES != 0 {
            self.places[index as usize] = self.keep(set);
        }
        steps
    }

    /// Keeps a set for its uses, and returns its place; [`UNKEPT`] if there is no room.
    fn keep(&mut self, set: InputSet) -> u32 {
        let bytes = set.bytes();
        let Some(left) = self.left.checked_sub(bytes) else {
            return UNKEPT;
        };
        self.left = left;
        let place = self.free.pop().unwrap_or(self.sets.len() as u32);
        match self.sets.get_mut(place as usize) {
            Some(unused) => *unused = (set, bytes),
            None => self.sets.push((set, bytes)),
        }
        place
    }

    fn take(&mut self, log: &impl ReadLog, parent: Label) -> ParentSet {
        let LabelKind::Node(index) = parent.kind() else {
            return match leaf(log, parent) {
                Some((first, last)) => ParentSet::Range(first, last),
                None => ParentSet::Owned(InputSet::new()),
            };
        };
        let place = self.places[index as usize];
        let uses = &mut self.uses[index as usize];
        if *uses & USES != USES {
            *uses -= 1;
        }
        if place == UNKEPT {
            return ParentSet::Owned(self.resolver.inputs(log, parent));
        }
        if *uses & USES != 0 {
            return ParentSet::Shared(place as usize);
        }
        self.free.push(place);
        let (set, bytes) = core::mem::take(&mut self.sets[place as usize]);
        self.left += bytes;
        ParentSet::Owned(set)
    }

    fn union(&self, a: ParentSet, b: ParentSet) -> InputSet {
        match (a, b) {
            (ParentSet::Range(first, last), other) | (other, ParentSet::Range(first, last)) => {
                let mut set = match other {
                    ParentSet::Range(first, last) => InputSet::from_range(first, last),
                    ParentSet::Owned(set) => set,
                    ParentSet::Shared(place) => self.sets[place].0.clone(),
                };
                set.insert(first, last);
                set
            }
            (ParentSet::Owned(a), ParentSet::Owned(b)) => {
                let (mut large, small) = if a.weight() < b.weight() {
                    (b, a)
                } else {
                    (a, b)
                };
                large.union_with(&small);
                large
            }
            (ParentSet::Owned(mut owned), ParentSet::Shared(place))
            | (ParentSet::Shared(place), ParentSet::Owned(mut owned)) => {
                let shared = &self.sets[place].0;
                if owned.weight() < shared.weight() {
                    let mut set = shared.clone();
                    set.union_with(&owned);
                    return set;
                }
                owned.union_with(shared);
                owned
            }
            (ParentSet::Shared(a), ParentSet::Shared(b)) => {
                let (a, b) = (&self.sets[a].0, &self.sets[b].0);
                let (large, small) = if a.weight() < b.weight() {
                    (b, a)
                } else {
                    (a, b)
                };
                let mut set = large.clone();
                set.union_with(small);
                set
            }
        }
    }
}
