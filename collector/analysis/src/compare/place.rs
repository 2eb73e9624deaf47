//! Places that spend time: an operation itself, or the link between two services.
//!
//! A client span only waits for its server: its time, without that of the server's span, is spent
//! between the two. Some sources record which spans are clients; for others, behaviour decides: a
//! span that only ever has children of other services, and no work between two of them, hands a
//! call over and waits. Such a client is no place of its own: the caller is the operation around
//! it.

use crate::flow::{EdgeId, EdgeTable, FlowEdge, Operation};
use crate::task_path;
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A place that spends time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// An operation that works, or waits for something that was not recorded.
    Own(Operation),
    /// The link between a calling operation and the called one: networks, and queues at either end.
    Link {
        /// Calling operation.
        caller: Operation,
        /// Called operation.
        callee: Operation,
    },
}

impl Place {
    /// Operation that answers for the place unless more is known; for a link the callee, as its
    /// answer is late.
    pub fn operation(&self) -> &Operation {
        match self {
            Place::Own(operation)
            | Place::Link {
                callee: operation, ..
            } => operation,
        }
    }
}

/// Places of all edges.
#[derive(Debug)]
pub(super) struct Places {
    of_edges: Vec<usize>,
    places: Vec<Place>,
    clients: FxHashMap<Arc<str>, BTreeSet<Operation>>,
}

impl Places {
    /// Determines the places of these edges; `is_client` reports which operations are recorded as
    /// clients.
    pub(super) fn of(edges: &EdgeTable, is_client: &dyn Fn(&Operation) -> bool) -> Places {
        let clients = clients(edges, is_client);
        let mut known: BTreeMap<Place, usize> = BTreeMap::new();
        let mut places = Vec::new();
        let of_edges = edges
            .iter()
            .map(|(_, edge)| {
                let place = place(edge, &clients);
                *known.entry(place.clone()).or_insert_with(|| {
                    places.push(place);
                    places.len() - 1
                })
            })
            .collect();
        Places {
            of_edges,
            places,
            clients,
        }
    }

    /// Operations that are clients anywhere.
    pub(super) fn client_operations(&self) -> BTreeSet<Operation> {
        self.clients
            .keys()
            .map(|task| FlowEdge::operation_of(task))
            .collect()
    }

    /// Number of an edge's place.
    pub(super) fn number(&self, edge: EdgeId) -> usize {
        self.of_edges[edge.0 as usize]
    }

    /// Edges of the places that `is_one` accepts.
    pub(super) fn edges_of(&self, is_one: &dyn Fn(usize) -> bool) -> Vec<EdgeId> {
        let numbered = self.of_edges.iter().zip(0..);
        numbered
            .filter(|(place, _)| is_one(**place))
            .map(|(_, edge)| EdgeId(edge))
            .collect()
    }

    /// Every place, by number.
    pub(super) fn all(&self) -> &[Place] {
        &self.places
    }
}

/// Facts about a task's edges.
#[derive(Default)]
struct TaskEdges {
    callees: BTreeSet<Operation>,
    has_own_children: bool,
    works_between: bool,
}

/// Client tasks, each with the operations that it calls.
fn clients(
    edges: &EdgeTable,
    is_client: &dyn Fn(&Operation) -> bool,
) -> FxHashMap<Arc<str>, BTreeSet<Operation>> {
    let mut tasks: FxHashMap<Arc<str>, TaskEdges> = FxHashMap::default();
    for (_, edge) in edges.iter() {
        let seen = tasks.entry(edge.task.clone()).or_default();
        seen.works_between |= edge.is_between();
        let own = edge.operation();
        for child in edge.children() {
            if child.service == own.service {
                seen.has_own_children = true;
            } else {
                seen.callees.insert(child);
            }
        }
    }
    let is_inner = |task: &Arc<str>| task.contains(task_path::JOINT);
    tasks
        .into_iter()
        .filter(|(task, seen)| {
            let operation = FlowEdge::operation_of(task);
            let waits_only =
                !seen.callees.is_empty() && !seen.works_between && !seen.has_own_children;
            // A root that hands over every request is a proxy or a browser: its own time belongs to
            // it.
            is_inner(task) && (waits_only || (is_client(&operation) && !seen.callees.is_empty()))
        })
        .map(|(task, seen)| (task, seen.callees))
        .collect()
}

fn place(edge: &FlowEdge, clients: &FxHashMap<Arc<str>, BTreeSet<Operation>>) -> Place {
    let own = edge.operation();
    let Some(callees) = clients.get(&edge.task) else {
        return Place::Own(own);
    };
    let child = edge.children().find(|child| child.service != own.service);
    let only = || callees.first().filter(|_| callees.len() == 1).cloned();
    let Some(callee) = child.or_else(only) else {
        return Place::Own(own);
    };
    // The operation around the client, and around clients that enclose it.
    let mut task = &*edge.task;
    let mut caller = own;
    while let Some(at) = task.rfind(task_path::JOINT) {
        task = &task[..at];
        caller = FlowEdge::operation_of(task);
        if !clients.contains_key(task) {
            break;
        }
    }
    Place::Link { caller, callee }
}
