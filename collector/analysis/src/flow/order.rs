//! Determines which operations with a common parent are serial and which are parallel.
//!
//! One request does not show that two calls are serial: two calls that did not overlap may have
//! been parallel and fast. If each request determined the order, parallel calls would yield a
//! category for each order. The order of a counted pair is therefore meaningful only if nearly all
//! observations show it.

use super::operation::{OperationCache, OperationId};
use crate::pass::Pass;
use crate::record::TraceRecords;
use crate::segment::SpanTree;
use rustc_hash::{FxHashMap, FxHashSet};

/// Maximum fraction of observations that may contradict an order. It is not 0, because clocks step
/// and recorders move spans.
const CONTRADICTED_MAX: f64 = 0.02;
/// Maximum number of pairs counted in one [`SiblingOrders`], and of fan-outs noted there. The order
/// of an uncounted pair is meaningful in each request, unless the parent is a noted fan-out.
const PAIRS_MAX: usize = 1 << 16;
/// Maximum number of distinct operations below a parent whose orders are counted. In a request with
/// more of them, the parent is a fan-out, and the orders below it are not counted. Below a parent
/// that was ever a fan-out, only the orders of counted pairs can be meaningful.
const SIBLINGS_MAX: usize = 32;

/// Number of times that two operations with a common parent ran in each order. `ab` counts the
/// order of their ids, `ba` the reverse, and `mixed` an overlap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct PairOrder {
    ab: u64,
    ba: u64,
    mixed: u64,
}

impl PairOrder {
    fn is_serial(self) -> bool {
        let all = self.ab + self.ba + self.mixed;
        (all - self.ab.max(self.ba)) as f64 <= CONTRADICTED_MAX * all as f64
    }
}

/// A parent and two operations below it, in the order of their ids.
type Siblings = (OperationId, OperationId, OperationId);

/// Orders of pairs of operations.
///
/// Most requests look up the same pairs in the same order. Each pair therefore keeps the pair that
/// followed it last, which saves most lookups in the map.
#[derive(Clone, Debug, Default)]
struct PairOrders {
    all: Vec<(Siblings, PairOrder)>,
    /// For each pair, the index that the next lookup probably finds: that of the last follower, or
    /// the following index if no pair has followed.
    next: Vec<usize>,
    /// Index of the pair that was counted last.
    last: usize,
    index_of: FxHashMap<Siblings, usize>,
}

impl PartialEq for PairOrders {
    fn eq(&self, other: &PairOrders) -> bool {
        let of_other = |pair| Some(other.all[*other.index_of.get(pair)?].1);
        let mut all = self.all.iter();
        self.all.len() == other.all.len() && all.all(|(pair, order)| of_other(pair) == Some(*order))
    }
}

impl PairOrders {
    /// Adds observations of a pair, unless it is a new pair beyond [`PAIRS_MAX`].
    fn add(&mut self, pair: Siblings, seen: PairOrder) {
        let expected = self.next.get(self.last).copied();
        let is_it = |at: &usize| self.all.get(*at).is_some_and(|known| known.0 == pair);
        let Some(at) = expected.filter(is_it).or_else(|| self.find(pair)) else {
            return;
        };
        self.last = at;
        let of_pair = &mut self.all[at].1;
        of_pair.ab += seen.ab;
        of_pair.ba += seen.ba;
        of_pair.mixed += seen.mixed;
    }

    /// Returns the index of a pair, and notes it as the next after the last one. Adds a new pair,
    /// or returns `None` if there is no room for it.
    fn find(&mut self, pair: Siblings) -> Option<usize> {
        let at = match self.index_of.get(&pair) {
            Some(at) => *at,
            None if self.all.len() < PAIRS_MAX => {
                let at = self.all.len();
                self.all.push((pair, PairOrder::default()));
                self.next.push(at + 1);
                self.index_of.insert(pair, at);
                at
            }
            None => return None,
        };
        self.next[self.last] = at;
        Some(at)
    }
}

/// Orders of operations with a common parent, counted over many requests. Merging is commutative
/// and associative while all pairs and all fan-outs fit.
#[derive(Clone, Debug, Default)]
pub struct SiblingOrders {
    pairs: PairOrders,
    /// Parents that were a fan-out in at least one request.
    fan_outs: FxHashSet<OperationId>,
    operations: OperationCache,
    tree: SpanTree,
    siblings: Vec<(OperationId, i64, i64)>,
}

impl PartialEq for SiblingOrders {
    fn eq(&self, other: &SiblingOrders) -> bool {
        self.pairs == other.pairs && self.fan_outs == other.fan_outs
    }
}

impl Pass<TraceRecords> for SiblingOrders {
    fn observe(&mut self, records: &TraceRecords) {
        if records.spans.is_empty() {
            return;
        }
        self.operations.bound();
        self.tree.build(&records.spans, &mut Vec::new());
        for parent in 0..self.tree.len() {
            let children = self.tree.children(parent);
            if children.len() < 2 {
                continue;
            }
            self.siblings.clear();
            for &child in children {
                let span = self.tree.span(&records.spans, child as usize);
                let id = self.operations.of_span(span, false).id;
                let ends_ns = span.end_ns.max(span.start_ns);
                match self.siblings.iter().position(|known| known.0 == id) {
                    Some(at) => self.siblings[at].2 = self.siblings[at].2.max(ends_ns),
                    None if self.siblings.len() <= SIBLINGS_MAX => {
                        self.siblings.push((id, span.start_ns, ends_ns));
                    }
                    None => {}
                }
            }
            let span = self.tree.span(&records.spans, parent);
            let of_parent = self.operations.of_span(span, false).id;
            if self.siblings.len() > SIBLINGS_MAX {
                note_fan_out(&mut self.fan_outs, of_parent);
                continue;
            }
            for (at, one) in self.siblings.iter().enumerate() {
                for other in &self.siblings[at + 1..] {
                    let (a, b) = (one.min(other), one.max(other));
                    let seen = PairOrder {
                        ab: u64::from(a.2 <= b.1),
                        ba: u64::from(b.2 <= a.1 && a.2 > b.1),
                        mixed: u64::from(a.2 > b.1 && b.2 > a.1),
                    };
                    self.pairs.add((of_parent, a.0, b.0), seen);
                }
            }
        }
    }

    fn merge(&mut self, other: SiblingOrders) {
        for (pair, seen) in other.pairs.all {
            self.pairs.add(pair, seen);
        }
        for parent in other.fan_outs {
            note_fan_out(&mut self.fan_outs, parent);
        }
    }
}

fn note_fan_out(fan_outs: &mut FxHashSet<OperationId>, parent: OperationId) {
    if fan_outs.len() < PAIRS_MAX {
        fan_outs.insert(parent);
    }
}

/// Meaningful orders over all compared periods. If the order of two operations varies within one
/// period, it is not meaningful in any, so that requests of all periods fall into the same
/// categories.
#[derive(Clone, Debug, Default)]
pub struct KnownOrders {
    /// Counted pairs; true if the order is meaningful.
    counted: FxHashMap<Siblings, bool>,
    fan_outs: FxHashSet<OperationId>,
}

impl KnownOrders {
    /// Combines the orders of all compared periods.
    pub fn of<'a>(periods: impl IntoIterator<Item = &'a SiblingOrders>) -> KnownOrders {
        let mut known = KnownOrders::default();
        for period in periods {
            for (pair, order) in &period.pairs.all {
                *known.counted.entry(*pair).or_insert(true) &= order.is_serial();
            }
            known.fan_outs.extend(&period.fan_outs);
        }
        known
    }

    /// Reports whether the order of `a` and `b` below this parent is meaningful.
    pub(super) fn is_serial(&self, parent: OperationId, a: OperationId, b: OperationId) -> bool {
        let counted = self.counted.get(&(parent, a.min(b), a.max(b)));
        a != b && counted.map_or_else(|| !self.fan_outs.contains(&parent), |serial| *serial)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{SpanFlags, SpanRecord};
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use std::sync::Arc;

    proptest! {
        #[test]
        fn pairs_are_counted_as_in_a_map(
            seen in proptest::collection::vec((0usize..4, 0usize..4, 0u64..3), 0..60),
        ) {
            let mut cache = OperationCache::default();
            let ids: Vec<OperationId> = (0..4)
                .map(|at| cache.of(&"web".into(), &name(at), None).id)
                .collect();
            let (mut orders, mut expected) = (PairOrders::default(), BTreeMap::new());
            for (a, b, ab) in seen {
                let pair = (ids[0], ids[a], ids[b]);
                orders.add(pair, PairOrder { ab, ..PairOrder::default() });
                *expected.entry(pair).or_insert(0) += ab;
            }
            let found: BTreeMap<Siblings, u64> =
                orders.all.iter().map(|(pair, order)| (*pair, order.ab)).collect();
            prop_assert_eq!(found.len(), orders.all.len());
            prop_assert_eq!(found, expected);
        }
    }

    /// Name of a span. Digits would make all of them one operation.
    fn name(at: usize) -> Arc<str> {
        "x".repeat(at + 1).into()
    }

    /// Returns a request whose root has this many children of different operations, one after the
    /// other.
    fn request(children: usize) -> TraceRecords {
        let span = |at: usize| SpanRecord {
            span_id: at as u64 + 1,
            parent_id: u64::from(at > 0),
            service: "web".into(),
            name: name(at),
            host: "h".into(),
            process: 1,
            start_ns: 10 * at as i64,
            end_ns: if at == 0 { 10_000 } else { 10 * at as i64 + 5 },
            flags: SpanFlags(0),
            events: Vec::new(),
        };
        TraceRecords {
            spans: (0..=children).map(span).collect(),
            ..TraceRecords::default()
        }
    }

    #[test]
    fn only_a_counted_order_counts_below_a_fan_out() {
        let mut cache = OperationCache::default();
        let [root, first, second, last] =
            [0, 1, 2, SIBLINGS_MAX + 1].map(|at| cache.of(&"web".into(), &name(at), None).id);
        let orders = |requests: &[usize]| {
            let mut merged = SiblingOrders::default();
            for children in requests {
                let mut orders = SiblingOrders::default();
                orders.observe(&request(*children));
                merged.merge(orders);
            }
            KnownOrders::of([&merged])
        };
        assert!(orders(&[SIBLINGS_MAX]).is_serial(root, first, second));
        let fan_out = orders(&[SIBLINGS_MAX + 1]);
        assert!(!fan_out.is_serial(root, first, second));
        assert!(!fan_out.is_serial(root, first, last));
        let sometimes = orders(&[SIBLINGS_MAX + 1, 2]);
        assert!(sometimes.is_serial(root, second, first));
        assert!(!sometimes.is_serial(root, first, last));
    }
}
