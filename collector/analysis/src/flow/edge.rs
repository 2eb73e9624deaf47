//! Edges of request-flow graphs. An edge stands for the time from the start boundary of a segment
//! to its end boundary.
//!
//! Requests of one category may number their tasks differently, and a loop has several tasks of one
//! name. An edge therefore stands for all segments whose labels differ only by spans' numbers. A
//! request's time on an edge is the sum over these segments on its critical path. Waits are
//! included, so that the times on all edges add up to the latency.

use super::shape::Operation;
use crate::by_root::{OTHER_ROOTS, ROOTS_MAX};
use crate::label::{Labels, SegmentId, SegmentLabel};
use crate::task_path::{self, unnumbered};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// Number of an edge in an [`EdgeTable`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EdgeId(pub u32);

/// An edge, identified by names without the numbers of spans.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowEdge {
    /// Path of the task, from the root.
    pub task: Arc<str>,
    /// Start boundary: the start of the segments' labels, without spans' numbers. A request's tail,
    /// the time from its last critical segment to its answer, has `last segment`.
    pub start: Arc<str>,
    /// End boundary: the end of the segments' labels, without spans' numbers. A request's tail has
    /// `answer`.
    pub end: Arc<str>,
}

/// Start boundary of the edge for a request's tail.
const LAST: &str = "last segment";
/// End boundary of the edge for a request's tail.
const ANSWER: &str = "answer";

impl FlowEdge {
    /// Returns the edge of the segments with this label.
    pub fn of(label: &SegmentLabel) -> FlowEdge {
        let components: Vec<&str> = label.task.split(task_path::JOINT).map(unnumbered).collect();
        let boundary = |text: &Arc<str>| -> Arc<str> {
            match unnumbered(text) {
                whole if whole.len() == text.len() => text.clone(),
                without => without.into(),
            }
        };
        FlowEdge {
            task: components.join(task_path::JOINT).into(),
            start: boundary(&label.start),
            end: boundary(&label.end),
        }
    }

    /// Returns the operations from the root to the operation of the edge.
    pub fn operations(&self) -> Vec<Operation> {
        self.task.split(task_path::JOINT).map(operation).collect()
    }

    /// Returns the operation of the edge's task.
    pub fn operation(&self) -> Operation {
        FlowEdge::operation_of(&self.task)
    }

    /// Iterates over the child that the edge leads to and the child from which it returns, if any.
    pub fn children(&self) -> impl Iterator<Item = Operation> {
        let to = self.end.strip_prefix('→');
        let from = self.start.strip_prefix('←');
        to.into_iter().chain(from).map(operation)
    }

    /// Returns the operation of a task with this path.
    pub fn operation_of(task: &str) -> Operation {
        operation(task_path::last_component(task))
    }

    fn is_tail(&self) -> bool {
        &*self.start == LAST && &*self.end == ANSWER
    }

    /// Reports whether the edge lies between two children.
    pub fn is_between(&self) -> bool {
        self.end.starts_with('→') && self.start.starts_with('←')
    }
}

impl std::fmt::Display for FlowEdge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} [{} … {}]", self.operation(), self.start, self.end)
    }
}

fn operation(component: &str) -> Operation {
    let text = task_path::unescape(component);
    // Names of services rarely contain a colon. A task of an event log need not have one.
    let (service, name) = text.split_once(':').unwrap_or((&text, ""));
    Operation {
        service: service.into(),
        name: name.into(),
        host: None,
    }
}

/// Table of numbered edges. It has at most one edge for each label of a segment, one tail for each
/// of the first [`ROOTS_MAX`] root operations, and one tail for all others.
#[derive(Clone, Debug, Default)]
pub struct EdgeTable {
    /// Number of tails of named root operations.
    tails: usize,
    edges: Vec<FlowEdge>,
    known: FxHashMap<FlowEdge, EdgeId>,
    /// Edge of each segment, by segment number.
    of_segments: Vec<Option<EdgeId>>,
}

impl EdgeTable {
    /// Returns the edge of a segment, added if it is new; `None` for an unknown segment.
    pub fn of_segment(&mut self, id: SegmentId, labels: &Labels) -> Option<EdgeId> {
        if let Some(Some(known)) = self.of_segments.get(id.index()) {
            return Some(*known);
        }
        let edge = self.intern(FlowEdge::of(labels.get(id)?));
        if self.of_segments.len() <= id.index() {
            self.of_segments.resize(id.index() + 1, None);
        }
        self.of_segments[id.index()] = Some(edge);
        Some(edge)
    }

    /// Returns the edge between the last critical segment of a request and its answer, and adds it
    /// if it is new.
    pub fn tail(&mut self, root: &Operation) -> EdgeId {
        self.intern(FlowEdge {
            task: task_path::escape(&root.to_string()).into(),
            start: LAST.into(),
            end: ANSWER.into(),
        })
    }

    /// Returns the number of an edge, and adds the edge if it is new. A tail beyond the bound gets
    /// the number of the tail of [`OTHER_ROOTS`].
    pub fn intern(&mut self, mut edge: FlowEdge) -> EdgeId {
        if let Some(known) = self.known.get(&edge) {
            return *known;
        }
        if edge.is_tail() && &*edge.task != OTHER_ROOTS {
            if self.tails >= ROOTS_MAX {
                edge.task = OTHER_ROOTS.into();
                return self.intern(edge);
            }
            self.tails += 1;
        }
        let id = EdgeId(u32::try_from(self.edges.len()).unwrap_or(u32::MAX));
        self.edges.push(edge.clone());
        self.known.insert(edge, id);
        id
    }

    /// Returns the edge with this number. Panics if the table has no such edge.
    pub fn get(&self, id: EdgeId) -> &FlowEdge {
        &self.edges[id.0 as usize]
    }

    /// Iterates over the edges with their numbers.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (EdgeId, &FlowEdge)> {
        let numbered = self.edges.iter().enumerate();
        numbered.map(|(at, edge)| (EdgeId(at as u32), edge))
    }

    /// Returns the number of edges.
    pub fn len(&self) -> usize {
        self.edges.len()
    }

    /// Reports whether there are no edges.
    pub fn is_empty(&self) -> bool {
        self.edges.is_empty()
    }

    /// Adds another table's edges. Returns the new number of each, by its number in `other`.
    pub fn adopt(&mut self, other: &EdgeTable) -> Vec<EdgeId> {
        let edges = other.edges.iter();
        edges.map(|edge| self.intern(edge.clone())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(label: (&str, &str, &str), edge: &str, child: Option<&str>) {
        let of = FlowEdge::of(&SegmentLabel::new(label.0, label.1, label.2));
        assert_eq!(of.to_string(), edge);
        assert_eq!(
            of.children()
                .next()
                .map(|child| child.to_string())
                .as_deref(),
            child
        );
    }

    #[test]
    fn numbers_are_left_out() {
        check(
            ("web:page#2 > store:read#*", "start", "→disk:get#12"),
            "store:read [start … →disk:get]",
            Some("disk:get"),
        );
        check(
            ("web:page", "←store:a#1", "→store:b"),
            "web:page [←store:a … →store:b]",
            Some("store:b"),
        );
        check(
            ("web:issue#12", "start", "end"),
            "web:issue [start … end]",
            None,
        );
        check(("loader", "sent#1", "got"), "loader: [sent#1 … got]", None);
        check((r"web:a \> b", "x", "y"), "web:a > b [x … y]", None);
    }

    #[test]
    fn tails_are_bounded() {
        let table = |roots: std::ops::Range<usize>| {
            let mut table = EdgeTable::default();
            for root in roots {
                table.tail(&operation(&format!("web:{root}")));
            }
            table
        };
        let mut table_of_some = table(0..ROOTS_MAX + 9);
        assert_eq!(table_of_some.len(), ROOTS_MAX + 1);
        let renumbered = table_of_some.adopt(&table(ROOTS_MAX..2 * ROOTS_MAX));
        assert_eq!(table_of_some.len(), ROOTS_MAX + 1);
        let other = table_of_some.get(renumbered[0]);
        assert_eq!(&*other.operation().service, OTHER_ROOTS);
        assert_eq!(table_of_some.tail(&operation("web:7")), EdgeId(7));
    }
}
