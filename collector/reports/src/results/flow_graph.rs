//! Graph of the requests of a category: boxes are operations with their mean times on critical
//! paths.

use std::collections::{BTreeMap, BTreeSet};

use stroboscope_analysis::flow::{EdgeTable, FlowCategory, Operation, Repeats, Shape};

use stroboscope_render::humanise::duration;
use stroboscope_render::show::{Graph, GraphEdge, GraphNode};

/// Maximum number of operations to draw. Changed operations come first, then those that take most
/// time; callers are drawn, too.
const DRAWN_MAX: usize = 40;

/// Colour of the first box and of unchanged operations; `CHANGED` is that of changed ones.
const SAME: usize = 0;
const CHANGED: usize = 1;

/// Operations and calls of the requests of a category.
pub(super) struct DrawnFlow {
    /// Operations, in the order in which a walk from the root meets them.
    operations: Vec<Operation>,
    /// Caller, callee, and number of repetitions.
    calls: Vec<(usize, usize, Repeats)>,
    /// Mean time on critical paths, in ns.
    times_ns: BTreeMap<Operation, f64>,
    latency_ns: f64,
}

impl DrawnFlow {
    /// Converts a category; `None` if its structure is unknown.
    pub(super) fn of(edges: &EdgeTable, category: &FlowCategory) -> Option<Self> {
        let mut side = Self {
            operations: Vec::new(),
            calls: Vec::new(),
            times_ns: BTreeMap::new(),
            latency_ns: category.mean_ns(),
        };
        for (number, edge) in edges.iter() {
            let time_ns = category.edge_ns(number);
            if time_ns > 0.0 {
                *side.times_ns.entry(edge.operation()).or_default() += time_ns;
            }
        }
        side.add(category.shape.as_ref()?, None);
        Some(side)
    }

    fn add(&mut self, shape: &Shape, caller: Option<usize>) -> usize {
        let mut operations = self.operations.iter();
        let known = operations.position(|known| *known == shape.operation);
        let number = known.unwrap_or_else(|| {
            self.operations.push(shape.operation.clone());
            self.operations.len() - 1
        });
        for part in shape.parts().filter(|part| !part.shape.is_event) {
            let callee = self.add(&part.shape, Some(number));
            let call = (number, callee, part.repeats);
            if callee != number && Some(callee) != caller && !self.calls.contains(&call) {
                self.calls.push(call);
            }
        }
        number
    }

    /// Returns the calls with the names of caller and callee, and the number of repetitions.
    pub(super) fn named_calls(&self) -> BTreeSet<(&Operation, &Operation, Repeats)> {
        let named = |(from, to, repeats): &(usize, usize, Repeats)| {
            (&self.operations[*from], &self.operations[*to], *repeats)
        };
        self.calls.iter().map(named).collect()
    }

    /// Selects up to [`DRAWN_MAX`] operations: the changed ones, then those that take most time,
    /// each with one chain of callers.
    fn drawn(&self, changed: &BTreeSet<Operation>) -> BTreeSet<usize> {
        let time_ns = |number: usize| {
            let time_ns = self.times_ns.get(&self.operations[number]);
            time_ns.copied().unwrap_or_default()
        };
        let mut order: Vec<usize> = (0..self.operations.len()).collect();
        order.sort_by(|a, b| {
            let is_changed = |number: usize| changed.contains(&self.operations[number]);
            is_changed(*b)
                .cmp(&is_changed(*a))
                .then_with(|| time_ns(*b).total_cmp(&time_ns(*a)))
        });
        let mut drawn = BTreeSet::from([0]);
        for number in order {
            let mut chain = BTreeSet::from([number]);
            let mut at = number;
            while let Some((caller, ..)) = self.calls.iter().find(|(_, callee, _)| *callee == at)
                && chain.insert(*caller)
            {
                at = *caller;
            }
            if drawn.union(&chain).count() > DRAWN_MAX {
                break;
            }
            drawn.extend(chain);
        }
        drawn
    }

    /// Adds up to [`DRAWN_MAX`] operations to a graph, below a box of this name; marks the changed
    /// ones.
    pub(super) fn draw(&self, name: &str, changed: &BTreeSet<Operation>, graph: &mut Graph) {
        let drawn = self.drawn(changed);
        let first = graph.nodes.len();
        let place =
            |number: usize| Some(first + 1 + drawn.iter().position(|drawn| *drawn == number)?);
        graph.nodes.push(GraphNode {
            name: name.to_owned(),
            lines: vec![name.to_owned(), duration(self.latency_ns)],
            share: 1.0,
            style: SAME,
            path: None,
        });
        for number in &drawn {
            let operation = &self.operations[*number];
            let time_ns = self.times_ns.get(operation).copied().unwrap_or_default();
            let is_changed = changed.contains(operation);
            graph.nodes.push(GraphNode {
                name: operation.to_string(),
                lines: vec![operation.to_string(), duration(time_ns)],
                share: time_ns / self.latency_ns.max(1.0),
                style: if is_changed { CHANGED } else { SAME },
                path: None,
            });
        }
        graph.edges.push(GraphEdge {
            from: first,
            to: first + 1,
            ..GraphEdge::default()
        });
        for (caller, callee, _) in &self.calls {
            if let (Some(from), Some(to)) = (place(*caller), place(*callee)) {
                graph.edges.push(GraphEdge {
                    from,
                    to,
                    share: 1.0,
                    is_marked: changed.contains(&self.operations[*callee]),
                    ..GraphEdge::default()
                });
            }
        }
    }
}
