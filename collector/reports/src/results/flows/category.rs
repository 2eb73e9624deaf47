//! One category: its structure, an example request as a train schedule, and its graph.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;
use stroboscope_analysis::critical_path::TracePath;
use stroboscope_analysis::flow::{
    CategoryId, FlowCategory, FlowEdge, Part, PeriodFlows, Repeats, Shape,
};
use stroboscope_analysis::label::Labels;
use stroboscope_analysis::record::TraceId;
use stroboscope_analysis::sampling::Weight;
use stroboscope_analysis::task_path::{JOINT, escape as escape_component};

use super::super::flow_graph::DrawnFlow;
use super::CategoryRow;
use super::density::LatencyDensity;
use crate::graphviz::{beginning, escape};
use stroboscope_query::Notes;
use stroboscope_render::humanise::{counted, duration};
use stroboscope_render::rows;
use stroboscope_render::show::{Cell, Doc, Figure, Graph, Interval, Timeline, TimelineRow};

/// A category, and the structure of its requests.
#[derive(Debug, Serialize, JsonSchema)]
pub struct CategorySays {
    #[serde(flatten)]
    pub(super) notes: Notes,
    #[serde(flatten)]
    row: CategoryRow,
    density: Option<LatencyDensity>,
    /// Number of requests in the sample for the density.
    #[serde(skip)]
    sampled: u64,
    /// Operations and events of the category's requests, in order.
    structure: Vec<StructureRow>,
    /// Times between boundaries on critical paths, in the order of tasks.
    edges: Vec<EdgeRow>,
    /// Graph of the category's operations.
    #[serde(skip)]
    graph: Graph,
    /// Example request, with a lane for each service.
    #[serde(skip)]
    schedule: Option<Timeline>,
}

/// An operation or event in the structure of a category's requests.
#[derive(Clone, Debug, Serialize, JsonSchema)]
struct StructureRow {
    /// Number of enclosing operations.
    depth: usize,
    /// Number of the stage in the enclosing operation, from 1; the enclosing operation waits for
    /// its stages one after the other.
    stage: u64,
    operation: String,
    /// Minimum and maximum number of repetitions; a maximum of null is unbounded.
    repeats_from: u64,
    repeats_to: Option<u64>,
    fails: bool,
    /// Mean own time on the critical path per request of the category, in ns; sums operations with
    /// equal paths.
    mean_ns: f64,
}

/// Time between two boundaries of a task, such as its beginning and a call.
#[derive(Clone, Debug, Serialize, JsonSchema)]
struct EdgeRow {
    task: String,
    start: String,
    end: String,
    /// Mean time on the critical path per request of the category, in ns.
    mean_ns: f64,
    #[serde(skip)]
    operation: String,
}

impl CategorySays {
    /// Returns the sampled request whose latency is closest to the category's mean; `None` without
    /// a sample.
    pub fn example(category: &FlowCategory) -> Option<TraceId> {
        let mean_ns = category.mean_ns();
        let off = |latency_ns: u64| (latency_ns as f64 - mean_ns).abs();
        let nearest = category.sample.iter().min_by(|a, b| {
            let by_latency = off(a.latency_ns).total_cmp(&off(b.latency_ns));
            by_latency.then_with(|| a.id.cmp(&b.id))
        });
        nearest.map(|request| request.id)
    }

    /// Creates the report on a category, with the path of its example.
    pub fn of(
        (root, id, category): (&str, CategoryId, &FlowCategory),
        flows: &PeriodFlows,
        example: Option<&TracePath>,
        labels: &Labels,
        notes: Notes,
    ) -> Self {
        let mut latencies: BTreeMap<u64, u64> = BTreeMap::new();
        let (mut sum, mut squares) = (0.0, 0.0);
        let units = Weight::ONE.units() as f64;
        for request in &category.sample {
            let (weight, counted) = if category.count.is_weighted() {
                let weight = f64::from(request.weight);
                (weight, (weight * units).round() as u64)
            } else {
                (1.0, 1)
            };
            (sum, squares) = (sum + weight, squares + weight * weight);
            *latencies.entry(request.latency_ns).or_default() += counted;
        }
        let mut structure = Vec::new();
        let edges = &flows.edges;
        let mut rows: Vec<EdgeRow> = edges
            .iter()
            .map(|(number, edge)| (edge, category.edge_ns(number)))
            .filter(|(_, mean_ns)| *mean_ns > 0.0)
            .map(|(edge, mean_ns)| EdgeRow {
                task: edge.task.to_string(),
                start: edge.start.to_string(),
                end: edge.end.to_string(),
                mean_ns,
                operation: edge.operation().to_string(),
            })
            .collect();
        rows.sort_by(|a, b| (&a.task, &a.start, &a.end).cmp(&(&b.task, &b.start, &b.end)));
        if let Some(shape) = &category.shape {
            let mut times_ns: BTreeMap<&str, f64> = BTreeMap::new();
            for row in &rows {
                *times_ns.entry(&row.task).or_default() += row.mean_ns;
            }
            let once = Repeats { from: 1, to: 1 };
            describe(shape, (0, 1, once), "", &times_ns, &mut structure);
        }
        let mut graph = Graph {
            nodes: Vec::new(),
            edges: Vec::new(),
        };
        if let Some(drawn) = DrawnFlow::of(edges, category) {
            drawn.draw("requests", &BTreeSet::new(), &mut graph);
        }
        Self {
            graph,
            row: CategoryRow::of(
                root,
                id,
                category,
                flows.count(),
                flows.latency.sum_ns() as f64,
            ),
            density: LatencyDensity::of(
                &latencies.into_iter().collect::<Vec<_>>(),
                sum * sum / squares,
            ),
            sampled: category.sample.len() as u64,
            structure,
            edges: rows,
            schedule: example.map(|path| schedule(path, labels)),
            notes,
        }
    }

    pub fn show(&self, doc: &mut Doc) {
        doc.heading(format!("Category {}", self.row.category));
        doc.sentence(self.row.sentence());
        if let Some(density) = &self.density {
            density.show(doc);
            let recorded = self.row.recorded.unwrap_or(self.row.requests);
            if self.sampled < recorded {
                doc.sentence(format!(
                    "The density is of a random sample: {} of {}.",
                    self.sampled,
                    counted(recorded, "request")
                ));
            }
        }
        doc.table("Structure", &self.structure, self.structure.len());
        if let Some(schedule) = &self.schedule {
            let title = format!(
                "Train schedule of {}, whose latency is nearest to the mean",
                self.row.example.as_deref().unwrap_or("a request")
            );
            let alternative = format!(
                "{}, a lane each.",
                counted(schedule.rows.len() as u64, "service")
            );
            doc.figure(Figure::new(title, alternative, schedule.clone()));
        }
        let mut longest: Vec<&EdgeRow> = self.edges.iter().collect();
        longest.sort_by(|a, b| b.mean_ns.total_cmp(&a.mean_ns));
        doc.table(
            "Time on the critical path, between boundaries",
            longest,
            EDGES_SHOWN,
        );
        doc.figure(self.picture().on_pages_only());
    }

    /// Formats the graph in Graphviz's language: nodes are boundaries, edges are the times between
    /// them. Edges to another operation, and back from its end, have no time.
    pub fn dot(&self) -> String {
        let mut dot = beginning(&self.row.category);
        let mut numbers: BTreeMap<(&str, &str), usize> = BTreeMap::new();
        for edge in &self.edges {
            for boundary in [&edge.start, &edge.end] {
                let next = numbers.len();
                numbers.entry((&edge.task, boundary)).or_insert(next);
            }
        }
        for ((task, boundary), number) in &numbers {
            let operation = FlowEdge::operation_of(task).to_string();
            let _ = writeln!(
                dot,
                "  b{number} [label=\"{}\\n{}\"];",
                escape(&operation),
                escape(boundary)
            );
        }
        for edge in &self.edges {
            let _ = writeln!(
                dot,
                "  b{} -> b{} [label=\"{}\"];",
                numbers[&(&*edge.task, &*edge.start)],
                numbers[&(&*edge.task, &*edge.end)],
                escape(&duration(edge.mean_ns))
            );
        }
        for ((task, boundary), number) in &numbers {
            let child = |name: &str| format!("{task}{JOINT}{name}");
            if let Some(name) = boundary.strip_prefix('→')
                && let Some(to) = numbers.get(&(&*child(name), "start"))
            {
                let _ = writeln!(dot, "  b{number} -> b{to} [style=dashed];");
            }
            if let Some(name) = boundary.strip_prefix('←')
                && let Some(from) = numbers.get(&(&*child(name), "end"))
            {
                let _ = writeln!(dot, "  b{from} -> b{number} [style=dashed];");
            }
        }
        dot.push_str("}\n");
        dot
    }

    /// Draws the graph: boxes for operations, with their mean times on critical paths.
    pub fn picture(&self) -> Figure {
        Figure::new(
            format!("Category {}", self.row.category),
            "Each box is an operation and its mean time on critical paths; arrows say what calls what.",
            self.graph.clone(),
        )
    }
}

/// Maximum number of edges in the table, for readability.
const EDGES_SHOWN: usize = 25;

fn describe(
    shape: &Shape,
    (depth, stage, repeats): (usize, u64, Repeats),
    around: &str,
    times_ns: &BTreeMap<&str, f64>,
    into: &mut Vec<StructureRow>,
) {
    let name = shape.operation.to_string();
    let own = escape_component(&name);
    let task = match around {
        "" => own.into_owned(),
        around => format!("{around}{JOINT}{own}"),
    };
    into.push(StructureRow {
        depth,
        stage,
        operation: shape.operation.to_string(),
        repeats_from: u64::from(repeats.from),
        repeats_to: (repeats.to != u32::MAX).then_some(u64::from(repeats.to)),
        fails: shape.is_error,
        mean_ns: times_ns.get(&*task).copied().unwrap_or_default(),
    });
    for (parts, stage) in shape.stages.iter().zip(1..) {
        let mut parts: Vec<&Part> = parts.iter().collect();
        parts.sort_by(|a, b| {
            (&a.shape.operation, a.shape.digest).cmp(&(&b.shape.operation, b.shape.digest))
        });
        for part in parts {
            describe(
                &part.shape,
                (depth + 1, stage, part.repeats),
                &task,
                times_ns,
                into,
            );
        }
    }
}

/// Builds a lane for each service, in order of first use.
fn schedule(path: &TracePath, labels: &Labels) -> Timeline {
    let start_ns = path.segments.iter().map(|timing| timing.start_ns).min();
    let since = |ns: i64| u64::try_from(ns.saturating_sub(start_ns.unwrap_or(ns))).unwrap_or(0);
    let mut lanes: Vec<(Arc<str>, Vec<Interval>)> = Vec::new();
    let mut order: Vec<usize> = (0..path.segments.len()).collect();
    order.sort_by_key(|at| path.segments[*at].start_ns);
    for timing in order.into_iter().map(|at| &path.segments[at]) {
        let Some(label) = labels.get(timing.segment) else {
            continue;
        };
        let service = FlowEdge::of(label).operation().service;
        let place = lanes.iter().position(|(known, _)| *known == service);
        let place = place.unwrap_or_else(|| {
            lanes.push((service, Vec::new()));
            lanes.len() - 1
        });
        lanes[place].1.push(Interval {
            from_ns: since(timing.start_ns),
            to_ns: since(timing.end_ns),
            is_critical: timing.critical,
            waited_ns: timing.wait_ns,
            slack_ns: 0,
        });
    }
    let row = |(service, intervals): (Arc<str>, Vec<Interval>)| TimelineRow {
        name: service.to_string(),
        depth: 0,
        intervals,
    };
    Timeline {
        length_ns: path.latency_ns,
        marks: Vec::new(),
        rows: lanes.into_iter().map(row).collect(),
    }
}

impl StructureRow {
    fn repeats(&self) -> String {
        match (self.repeats_from, self.repeats_to) {
            (1, Some(1)) => String::new(),
            (from, Some(to)) if from == to => format!("{from}×"),
            (from, Some(to)) => format!("{from}–{to}×"),
            (_, None) => "any number".to_owned(),
        }
    }
}

rows! {
    StructureRow as row, "structure": "What requests of one category do, in order.";
    operation: Text, "operation" = Cell::Nested(row.depth, row.operation.clone());
    depth: Count, "" = row.depth as u64;
    stage: Count, "stage" = row.stage;
    repeats: Text, "how often" = &*row.repeats();
    mean_ns: DurationNs, "own time" = row.mean_ns;
    fails: Flag, "fails" = row.fails;
}

rows! {
    EdgeRow as row, "flow_edges": "Time between two boundaries of a category's requests, on critical paths.";
    operation: Text, "operation" = &*row.operation;
    start: Text, "from" = &*row.start;
    end: Text, "to" = &*row.end;
    mean_ns: DurationNs, "mean" = row.mean_ns;
    task: Text, "" = &*row.task;
}
