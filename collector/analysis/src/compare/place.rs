//! Whose time an edge's is: an operation's own, or of the way between two services.
//!
//! A client span does nothing but wait for its server: its time, without that of the server's span, is spent between the
//! two. Which spans are clients' is recorded by some, and told by what they do otherwise: one that only ever has children
//! of other services, and no work between two of them, hands a call over and waits. Such a client is no place of its own:
//! what calls is the operation around it.

use crate::flow::{EdgeId, EdgeTable, FlowEdge, Operation};
use crate::task_path;
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What spends time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// An operation works, or waits for what nobody recorded.
    Own(Operation),
    /// Between the operation that calls and the one that is called: networks, and queues at either end.
    Link {
        /// Who calls.
        caller: Operation,
        /// Who is called.
        callee: Operation,
    },
}

impl Place {
    /// The operation that answers for it, unless more is known: who is called, as its answer is late.
    pub fn operation(&self) -> &Operation {
        match self {
            Place::Own(operation)
            | Place::Link {
                callee: operation, ..
            } => operation,
        }
    }
}

/// The places of all edges.
#[derive(Debug)]
pub(super) struct Places {
    of_edges: Vec<usize>,
    places: Vec<Place>,
    clients: FxHashMap<Arc<str>, BTreeSet<Operation>>,
}

impl Places {
    /// Of these edges; `is_client` says which operations are recorded as clients'.
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

    /// The operations that are clients' somewhere.
    pub(super) fn client_operations(&self) -> BTreeSet<Operation> {
        self.clients
            .keys()
            .map(|task| FlowEdge::operation_of(task))
            .collect()
    }

    /// The number of an edge's place.
    pub(super) fn number(&self, edge: EdgeId) -> usize {
        self.of_edges[edge.0 as usize]
    }

    /// The edges of these places.
    pub(super) fn edges_of(&self, is_one: &dyn Fn(usize) -> bool) -> Vec<EdgeId> {
        let numbered = self.of_edges.iter().zip(0..);
        numbered
            .filter(|(place, _)| is_one(**place))
            .map(|(_, edge)| EdgeId(edge))
            .collect()
    }

    /// All places, by their numbers.
    pub(super) fn all(&self) -> &[Place] {
        &self.places
    }
}

/// What is known of a task's edges.
#[derive(Default)]
struct Seen {
    callees: BTreeSet<Operation>,
    has_own_children: bool,
    works_between: bool,
}

/// Tasks that are clients', each with those that it calls.
fn clients(
    edges: &EdgeTable,
    is_client: &dyn Fn(&Operation) -> bool,
) -> FxHashMap<Arc<str>, BTreeSet<Operation>> {
    let mut tasks: FxHashMap<Arc<str>, Seen> = FxHashMap::default();
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
            // A root that hands over all it gets is a proxy or a browser: its own time is somebody's.
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
    // The operation around the client, and around clients that it is inside of.
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
