//! Operations of a model, and one in focus with the operations right before and right after it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::Serialize;
use stroboscope_analysis::label::SegmentId;
use stroboscope_analysis::model::{Model, Relation, Relations};
use stroboscope_query::CausalGraph;
use stroboscope_render::humanise::{counted, percent};
use stroboscope_render::page::path_segment;
use stroboscope_render::rows;
use stroboscope_render::show::{Cell, Graph, GraphEdge, GraphNode};

use crate::model_json::RelationEntry;

/// Returns the path of the model's page with this operation in focus.
pub(crate) fn focus_path(operation: &str) -> String {
    format!("/model?focus={}", path_segment(operation))
}

/// Figures of one operation of a model.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ModelOperation {
    /// Name of the operation, as `service:name`.
    pub operation: String,
    /// Share of the critical path of all requests, 0 to 1; null if shares were not computed, or if
    /// no request of the store that took time has the operation.
    pub critical_share: Option<f64>,
    /// Number of requests with the operation's most frequent segment.
    pub requests: u64,
    segments: u64,
    /// Number of other operations right before this one.
    before: u64,
    /// Number of other operations right after this one.
    after: u64,
}

rows! {
    ModelOperation as row, "model_operations": "An operation of the model, and how many others come right before and right after it.";
    operation: Text, "operation" = Cell::Linked(row.operation.clone(), focus_path(&row.operation));
    critical_share: Share, "of critical paths" = row.critical_share;
    requests: Count, "in requests" = row.requests;
    segments: Count, "segments" = row.segments;
    before: Count, "operations right before" = row.before;
    after: Count, "right after" = row.after;
}

/// Returns the operations of a model, those with the largest shares first, and among equal shares
/// those in most requests. `waited` maps operations to their shares of the critical path.
pub(crate) fn operations(
    model: &Model,
    graph: &CausalGraph,
    waited: &BTreeMap<String, f64>,
) -> Vec<ModelOperation> {
    let of_segment = operations_of(model);
    let mut found: BTreeMap<&str, ModelOperation> = BTreeMap::new();
    for (id, operation) in &of_segment {
        let entry = found.entry(operation).or_insert_with(|| ModelOperation {
            operation: operation.clone(),
            critical_share: waited.get(operation).copied(),
            requests: 0,
            segments: 0,
            before: 0,
            after: 0,
        });
        entry.segments += 1;
        entry.requests = entry.requests.max(model.segment_counts(*id).traces);
    }
    let pairs = graph.edges.iter().filter_map(|(a, b)| {
        let (first, second) = (&**of_segment.get(a)?, &**of_segment.get(b)?);
        (first != second).then_some((first, second))
    });
    for (first, second) in pairs.collect::<BTreeSet<_>>() {
        found.entry(first).and_modify(|of| of.after += 1);
        found.entry(second).and_modify(|of| of.before += 1);
    }
    let mut operations: Vec<ModelOperation> = found.into_values().collect();
    // A stable sort keeps equal operations in order of name.
    operations.sort_by(|a, b| {
        let share = |of: &ModelOperation| of.critical_share.unwrap_or_default();
        share(b)
            .total_cmp(&share(a))
            .then(b.requests.cmp(&a.requests))
    });
    operations
}

/// Returns the operation of each segment that occurs in the model.
fn operations_of(model: &Model) -> BTreeMap<SegmentId, String> {
    let labels = model.labels().iter();
    let seen = labels.filter(|(id, _)| model.segment_counts(*id).traces > 0);
    seen.map(|(id, label)| (id, label.operation())).collect()
}

/// An operation, and the operations right before and after it, by relations of segments that do not
/// follow from others.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Focus {
    pub operation: String,
    /// Operations with a segment right before a segment of the operation in focus.
    pub before: Vec<Neighbour>,
    /// Operations with a segment right after a segment of the operation in focus.
    pub after: Vec<Neighbour>,
    #[serde(skip)]
    pub own: BTreeSet<SegmentId>,
}

/// An operation right before or after the one in focus.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Neighbour {
    operation: String,
    /// Number of traces with both segments of the most frequent pair.
    traces: u64,
    /// Number of the `traces` in which the two segments are not in this order.
    contradictions: u64,
    /// Ratio of `traces` to all traces with the pair's segment of the operation in focus, 0 to 1.
    share: f64,
    /// Pairs of segments, the earlier segment first.
    pairs: Vec<RelationEntry>,
    #[serde(skip)]
    is_after: bool,
}

rows! {
    Neighbour as row, "model_neighbours": "An operation right before or right after the one in focus.";
    side: Text, "" = if row.is_after { "after" } else { "before" };
    operation: Text, "operation" = Cell::Linked(row.operation.clone(), focus_path(&row.operation));
    pairs: Count, "pairs of segments" = row.pairs.len() as u64;
    traces: Count, "requests with both" = row.traces;
    share: Share, "of those with the focus" = row.share;
    contradictions: Count, "not in this order" = (row.contradictions > 0).then_some(row.contradictions);
}

impl Focus {
    /// Finds the operations right before and after one; `None` if the model has no segment of it.
    pub(crate) fn of(
        operation: &str,
        model: &Model,
        relations: &Relations,
        graph: &CausalGraph,
    ) -> Option<Self> {
        let of_segment = operations_of(model);
        let own = of_segment.iter().filter(|(_, of)| *of == operation);
        let own: BTreeSet<SegmentId> = own.map(|(id, _)| *id).collect();
        if own.is_empty() {
            return None;
        }
        // Pairs of segments, by the other operation and by whether it comes after the operation in
        // focus.
        let mut pairs: BTreeMap<(&str, bool), Vec<(SegmentId, SegmentId)>> = BTreeMap::new();
        for (a, b) in &graph.edges {
            let (other, is_after) = match (own.contains(a), own.contains(b)) {
                (true, false) => (b, true),
                (false, true) => (a, false),
                _ => continue,
            };
            if let Some(of) = of_segment.get(other) {
                pairs.entry((of, is_after)).or_default().push((*a, *b));
            }
        }
        let neighbour = |((of, is_after), pairs): ((&str, bool), Vec<(SegmentId, SegmentId)>)| {
            let entries = pairs.iter().map(|(first, second)| {
                let support = relations.happens_before_support(*first, *second);
                RelationEntry::from(&Relation {
                    first: *first,
                    second: *second,
                    support: support.unwrap_or_default(),
                })
            });
            let entries: Vec<RelationEntry> = entries.collect();
            let most = entries
                .iter()
                .max_by_key(|entry| (entry.traces, Reverse(entry.first)));
            let (traces, contradictions, own) = most.map_or((0, 0, 0), |most| {
                let own = if is_after { most.first } else { most.second };
                (most.traces, most.contradictions, own)
            });
            let of_own = model.segment_counts(SegmentId(own)).traces;
            Neighbour {
                operation: of.to_owned(),
                traces,
                contradictions,
                share: traces as f64 / of_own.max(1) as f64,
                pairs: entries,
                is_after,
            }
        };
        let neighbours: Vec<Neighbour> = pairs.into_iter().map(neighbour).collect();
        let (mut after, mut before): (Vec<Neighbour>, Vec<Neighbour>) =
            neighbours.into_iter().partition(|of| of.is_after);
        for side in [&mut before, &mut after] {
            // A stable sort keeps equal operations in order of name.
            side.sort_by_key(|of| Reverse(of.traces));
        }
        Some(Self {
            operation: operation.to_owned(),
            before,
            after,
            own,
        })
    }

    /// Draws the operation and its neighbours; a neighbour on both sides has two boxes.
    pub(crate) fn graph(&self, operations: &[ModelOperation], model_traces: f64) -> Graph {
        let node = |operation: &str, style: usize| {
            let of = operations.iter().find(|of| of.operation == operation);
            let share = of.map_or(0.0, |of| of.requests as f64 / model_traces);
            let waited = of.and_then(|of| of.critical_share);
            let waited = waited.map(|share| format!("{} of critical paths", percent(share)));
            let lines = [
                operation.to_owned(),
                format!("in {} of requests", percent(share)),
            ];
            GraphNode {
                name: operation.to_owned(),
                lines: lines.into_iter().chain(waited).collect(),
                share,
                style,
                path: Some(focus_path(operation)),
            }
        };
        let mut graph = Graph {
            nodes: vec![node(&self.operation, 1)],
            edges: Vec::new(),
        };
        for of in self.before.iter().chain(&self.after) {
            let other = graph.nodes.len();
            graph.nodes.push(node(&of.operation, 0));
            let (from, to) = if of.is_after { (0, other) } else { (other, 0) };
            graph.edges.push(GraphEdge {
                from,
                to,
                share: of.traces as f64 / model_traces,
                is_marked: false,
                label: Vec::new(),
                note: format!(
                    "{} before {}: {} with both",
                    graph.nodes[from].name,
                    graph.nodes[to].name,
                    counted(of.traces, "request")
                ),
            });
        }
        graph
    }
}
