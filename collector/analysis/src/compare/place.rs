//! Places: the consumers of time, which are operations and the links between services.
//!
//! A client span only waits for its server. Its time, without that of the server's span, is spent
//! on the link between the two. Some sources record which spans are clients. Other spans count as
//! clients if they have children on critical paths, all of these are of other services, and no work
//! lies between two of them. A root span never counts as a client. The caller of the link is the
//! innermost operation around the client that is no client itself. If the callee is unknown, the
//! time is the client's own.

use crate::flow::{EdgeId, EdgeTable, FlowEdge, Operation};
use crate::task_path;
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A consumer of time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// An operation that works, or that waits for unrecorded work.
    Own(Operation),
    /// The link between a calling and a called operation: the network, and queues at its ends.
    Link {
        /// Calling operation.
        caller: Operation,
        /// Called operation.
        callee: Operation,
    },
}

impl Place {
    /// Returns the operation that is responsible for the place by default; of a link, the callee.
    pub fn operation(&self) -> &Operation {
        match self {
            Place::Own(operation) => operation,
            Place::Link { callee, .. } => callee,
        }
    }
}

/// Numbered places, and the place of each edge.
#[derive(Debug)]
pub(super) struct Places {
    of_edges: Vec<usize>,
    /// Places, by number.
    pub(super) all: Vec<Place>,
    clients: FxHashMap<Arc<str>, BTreeSet<Operation>>,
}

impl Places {
    /// Determines the places of these edges. `is_client` reports whether an operation is a client.
    pub(super) fn of(edges: &EdgeTable, is_client: &dyn Fn(&Operation) -> bool) -> Places {
        let clients = clients(edges, is_client);
        let mut known: BTreeMap<Place, usize> = BTreeMap::new();
        let mut all = Vec::new();
        let number = |(_, edge)| {
            let place = place(edge, &clients);
            *known.entry(place.clone()).or_insert_with(|| {
                all.push(place);
                all.len() - 1
            })
        };
        Places {
            of_edges: edges.iter().map(number).collect(),
            all,
            clients,
        }
    }

    /// Returns the operations that are clients in any task.
    pub(super) fn client_operations(&self) -> BTreeSet<Operation> {
        let tasks = self.clients.keys();
        tasks.map(|task| FlowEdge::operation_of(task)).collect()
    }

    /// Returns the number of an edge's place.
    pub(super) fn number(&self, edge: EdgeId) -> usize {
        self.of_edges[edge.0 as usize]
    }

    /// Returns the edges of the places that `is_one` accepts.
    pub(super) fn edges_of(&self, is_one: &dyn Fn(usize) -> bool) -> Vec<EdgeId> {
        let numbered = self.of_edges.iter().zip(0..);
        let found = numbered.filter(|(place, _)| is_one(**place));
        found.map(|(_, edge)| EdgeId(edge)).collect()
    }
}

/// Properties of a task, collected from its edges.
#[derive(Default)]
struct TaskEdges {
    callees: BTreeSet<Operation>,
    has_own_children: bool,
    works_between: bool,
}

/// Returns the client tasks, each with the operations of other services that it calls.
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
    // A root that only calls other services, such as a proxy or a browser, does not count as a
    // client, so its own time is attributed to it.
    tasks.retain(|task, seen| {
        let is_inner = task.contains(task_path::JOINT);
        let waits_only = !seen.works_between && !seen.has_own_children;
        let is_client = || waits_only || is_client(&FlowEdge::operation_of(task));
        is_inner && !seen.callees.is_empty() && is_client()
    });
    let clients = tasks.into_iter();
    clients.map(|(task, seen)| (task, seen.callees)).collect()
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
    // The caller is the innermost operation around the client that is not a client itself.
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
