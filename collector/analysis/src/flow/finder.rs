//! Finds the flow of a request: its structure, and its time by edge.

use super::build::{FlowBuilder, FlowSettings};
use super::category_id::CategoryId;
use super::edge::{EdgeId, EdgeTable};
use super::order::KnownOrders;
use super::shape::Shape;
use crate::pass::TraceView;
use std::borrow::Cow;
use std::sync::Arc;

/// Structure and time by edge of one request.
#[derive(Clone, Copy, Debug)]
pub struct RequestFlow<'a> {
    /// Root operation.
    pub root: &'a str,
    /// Category of the request's structure.
    pub category: CategoryId,
    /// Latency in nanoseconds.
    pub latency_ns: u64,
    /// Table that contains the edges of `edges_ns`.
    pub edges: &'a EdgeTable,
    /// Nonzero times on the edges of the critical path in nanoseconds, in order of edge numbers.
    pub edges_ns: &'a [(EdgeId, u64)],
}

/// Finds the flows of requests, one after another.
#[derive(Debug)]
pub struct FlowFinder<'a> {
    builder: FlowBuilder,
    orders: &'a KnownOrders,
    edges: EdgeTable,
    edges_ns: Vec<(EdgeId, u64)>,
}

impl<'a> FlowFinder<'a> {
    /// Creates a finder with these settings. `orders` must cover all periods that are compared.
    pub fn new(settings: FlowSettings, orders: &'a KnownOrders) -> FlowFinder<'a> {
        FlowFinder {
            builder: FlowBuilder::new(settings),
            orders,
            edges: EdgeTable::default(),
            edges_ns: Vec::new(),
        }
    }

    /// Calls `visit` with the flow of a request, and returns the result of `visit`.
    pub fn flow_of<T>(
        &mut self,
        seen: &TraceView<'_>,
        visit: impl FnOnce(&RequestFlow<'_>) -> T,
    ) -> T {
        let mut edges = std::mem::take(&mut self.edges);
        let (root, shape, edges_ns) = self.find(seen, &mut edges);
        let found = visit(&RequestFlow {
            root: &root,
            category: CategoryId(shape.digest),
            latency_ns: seen.path.latency_ns,
            edges: &edges,
            edges_ns,
        });
        self.edges = edges;
        found
    }

    /// Returns the root operation of a request, its structure, and its nonzero times by edge in
    /// nanoseconds. Adds these edges to the table.
    pub(super) fn find<'r>(
        &mut self,
        seen: &TraceView<'r>,
        edges: &mut EdgeTable,
    ) -> (Cow<'r, str>, Arc<Shape>, &[(EdgeId, u64)]) {
        let shape = self.builder.shape(seen.records, self.orders);
        let root = seen.records.root_name();
        let path = seen.path;
        self.edges_ns.clear();
        for timing in path.critical().map(|at| &path.segments[at]) {
            if timing.weight_ns() > 0
                && let Some(edge) = edges.of_segment(timing.segment, seen.labels)
            {
                self.edges_ns.push((edge, timing.weight_ns()));
            }
        }
        if path.tail_wait_ns > 0 {
            let tail = edges.tail(&shape.operation.of_any_host());
            self.edges_ns.push((tail, path.tail_wait_ns));
        }
        self.edges_ns.sort_unstable_by_key(|(edge, _)| *edge);
        self.edges_ns.dedup_by(|b, a| {
            let is_same = a.0 == b.0;
            a.1 += if is_same { b.1 } else { 0 };
            is_same
        });
        (root, shape, &self.edges_ns)
    }
}
