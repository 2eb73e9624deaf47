//! Learns the operations of connections from long traces.

use super::known::{Connections, Operation, is_worker, operation};
use crate::name_rule::normalise;
use crate::record::{SpanFlags, SpanRecord, TraceRecords};
use rustc_hash::FxHashSet;
use std::collections::BTreeMap;

/// Minimum duration of a span that the rule judges, in nanoseconds.
pub const CONNECTION_NS_MIN: i64 = 1_000_000_000;
/// Minimum duration of an operation's longest connection, in nanoseconds, for which no operation of
/// its children needs to begin traces.
const EVIDENT_NS_MIN: i64 = 10_000_000_000;
/// Minimum number of a connection's children that are not client spans.
pub const CHILDREN_MIN: usize = 16;
/// Minimum average number of children, other than client spans, per operation of these children.
const CHILDREN_PER_OPERATION_MIN: usize = 4;
/// Minimum ratio of a connection's duration to that of its median child.
const TIMES_MEDIAN_MIN: i64 = 50;
/// Maximum number of operations of each kind: judged spans, marked connections, roots, and
/// requests, which count once for each operation of connections. Connections of further operations
/// are not divided. Requests of further operations are found only below a recorded connection.
const OPERATIONS_MAX: usize = 4_096;

/// Evidence from traces for the operations of connections.
#[derive(Debug, Default)]
pub struct ConnectionLearning {
    /// Number of connections and number of other spans, by operation. Counts only spans of at least
    /// [`CONNECTION_NS_MIN`].
    votes: BTreeMap<Operation, [u64; 2]>,
    /// Requests by the operation of their connection, or `None` if the connection was not recorded.
    requests: BTreeMap<Option<Operation>, RequestsSeen>,
    /// Operations of root spans that are neither servers' nor clients'.
    roots: FxHashSet<Operation>,
    /// Operations of connections that the SDK marked.
    marked: FxHashSet<Operation>,
    operations: usize,
}

/// The requests inside connections of one operation.
#[derive(Debug, Default)]
struct RequestsSeen {
    operations: FxHashSet<Operation>,
    /// Duration of the longest of these connections, in nanoseconds.
    longest_ns: i64,
}

impl ConnectionLearning {
    /// Records the connections of a trace. Returns true if it judged any span, recorded or not, or
    /// found a marked one. Otherwise, it learned nothing.
    pub fn observe(&mut self, trace: &TraceRecords) -> bool {
        let mut is_judged = false;
        for span in trace.spans.iter().filter(|span| is_marked(span)) {
            self.mark(&span.service, &span.name);
            is_judged = true;
        }
        let ids = trace.spans.iter().map(|span| span.span_id);
        let places: foldhash::HashMap<u64, &SpanRecord> = ids.zip(&trace.spans).collect();
        let mut children: BTreeMap<u64, Vec<&SpanRecord>> = BTreeMap::new();
        for span in trace.spans.iter().filter(|span| span.parent_id != 0) {
            let parent = places.get(&span.parent_id);
            if parent.is_none_or(|parent| parent.parent_id == 0) {
                children.entry(span.parent_id).or_default().push(span);
            }
        }
        // Roots without children are judged as well.
        for root in trace.spans.iter().filter(|span| span.parent_id == 0) {
            children.entry(root.span_id).or_default();
        }
        for (parent, children) in children {
            let parent = places.get(&parent).copied();
            let Some((is_connection, length_ns)) = judge(parent, &children) else {
                continue;
            };
            is_judged = true;
            let connection = parent.map(operation);
            let has_room = connection.as_ref().is_none_or(|connection| {
                self.votes.len() < OPERATIONS_MAX || self.votes.contains_key(connection)
            });
            if !has_room {
                continue;
            }
            if let Some(connection) = &connection {
                self.votes.entry(connection.clone()).or_default()[usize::from(!is_connection)] += 1;
            }
            if is_connection {
                self.note(connection, &children, length_ns);
            }
        }
        is_judged
    }

    /// Records that spans of this operation are marked as connections.
    pub fn mark(&mut self, service: &str, name: &str) {
        if self.marked.len() < OPERATIONS_MAX {
            self.marked.insert((service.into(), normalise(name).into()));
        }
    }

    /// Records that traces begin with spans of this operation, which are neither servers' nor
    /// clients'.
    pub fn note_root(&mut self, service: &str, name: &str) {
        if self.roots.len() < OPERATIONS_MAX {
            self.roots.insert((service.into(), normalise(name).into()));
        }
    }

    fn note(&mut self, connection: Option<Operation>, children: &[&SpanRecord], length_ns: i64) {
        let requests = self.requests.entry(connection).or_default();
        requests.longest_ns = requests.longest_ns.max(length_ns);
        for child in children.iter().filter(|child| is_worker(child)) {
            if self.operations < OPERATIONS_MAX && requests.operations.insert(operation(child)) {
                self.operations += 1;
            }
        }
    }

    /// Returns the connections learned so far.
    #[must_use]
    pub fn learned(&self) -> Connections {
        let is_connection = |connection: &Option<Operation>| match connection {
            None => true,
            Some(of) => self.votes.get(of).is_some_and(|[yes, no]| yes > no),
        };
        let mut learned = Connections::default();
        learned.connections.extend(self.marked.iter().cloned());
        for (connection, seen) in &self.requests {
            let is_evident =
                seen.longest_ns >= EVIDENT_NS_MIN || !seen.operations.is_disjoint(&self.roots);
            if is_evident && is_connection(connection) {
                learned.connections.extend(connection.clone());
                learned.requests.extend(seen.operations.iter().cloned());
            }
        }
        learned
    }
}

/// Returns true for a connection that the SDK marked.
#[must_use]
pub fn is_marked(span: &SpanRecord) -> bool {
    span.parent_id == 0 && span.flags.contains(SpanFlags::CONNECTION)
}

/// Judges by its children whether a span is a connection, by the rule of the parent module. Also
/// returns the span's duration in nanoseconds. Returns `None` if the span is short, or is a
/// server's or a client's.
fn judge(parent: Option<&SpanRecord>, children: &[&SpanRecord]) -> Option<(bool, i64)> {
    let (from_ns, to_ns) = match parent {
        Some(parent) => (parent.start_ns, parent.end_ns),
        None => (
            children.iter().map(|child| child.start_ns).min()?,
            children.iter().map(|child| child.end_ns).max()?,
        ),
    };
    let length_ns = to_ns.saturating_sub(from_ns);
    let takes_part = |parent: &SpanRecord| {
        parent.flags.contains(SpanFlags::SERVER) || parent.flags.contains(SpanFlags::CLIENT)
    };
    if length_ns < CONNECTION_NS_MIN || parent.is_some_and(takes_part) {
        return None;
    }
    let workers = || children.iter().filter(|child| is_worker(child));
    let lengths = workers().map(|child| child.end_ns.saturating_sub(child.start_ns));
    let mut lengths: Vec<i64> = lengths.collect();
    if lengths.len() < CHILDREN_MIN {
        return Some((false, length_ns));
    }
    let operations = workers().map(|child| (&child.service, normalise(&child.name)));
    let operations: FxHashSet<_> = operations.collect();
    let middle = lengths.len() / 2;
    let median = *lengths.select_nth_unstable(middle).1;
    let is_connection = operations.len() * CHILDREN_PER_OPERATION_MIN <= lengths.len()
        && median.saturating_mul(TIMES_MEDIAN_MIN) <= length_ns
        && covered_ns(children, from_ns, to_ns).saturating_mul(3) <= length_ns;
    Some((is_connection, length_ns))
}

/// Returns the time from `from_ns` to `to_ns` in which at least one child runs, in nanoseconds.
fn covered_ns(children: &[&SpanRecord], from_ns: i64, to_ns: i64) -> i64 {
    let times = children.iter().map(|child| (child.start_ns, child.end_ns));
    let mut times: Vec<(i64, i64)> = times.collect();
    times.sort_unstable();
    let (mut covered, mut until) = (0i64, from_ns);
    for (start, end) in times {
        let (start, end) = (start.max(until), end.min(to_ns));
        covered += end.saturating_sub(start).max(0);
        until = until.max(end);
    }
    covered
}
