//! Report of `model`: the relations of a model, for one operation or all.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::ser::Error as _;
use serde::{Serialize, Serializer};
use serde_json::{Value, json};
use stroboscope_analysis::label::SegmentId;
use stroboscope_analysis::model::{Model, Relations, Support};
use stroboscope_query::{CausalGraph, Notes};
use stroboscope_render::humanise::{counted, percent};
use stroboscope_render::rows;
use stroboscope_render::show::{Doc, Figure, Names, SegmentName};

use crate::model_focus::{Focus, ModelOperation};
use crate::model_json::{
    PipelineEntry, RelationEntry, SegmentEntry, SegmentRow, pipeline_entries, segment_entries,
};
use crate::results::figures::ModelGraph;
use crate::results::pipelines::pipeline_rows;
use crate::verb::Report;

/// A model, and the operation in focus.
#[derive(Serialize, JsonSchema)]
pub struct ModelReport<'a> {
    #[serde(flatten)]
    notes: ModelNotes<'a>,
    model_traces: u64,
    tolerance: f64,
    segments: Vec<SegmentEntry<'a>>,
    happens_before: Vec<RelationEntry>,
    mutual_exclusion: Vec<RelationEntry>,
    pipelines: Vec<PipelineEntry<'a>>,
    /// Pairs of segments, without those that follow from others.
    reduced_happens_before: Vec<(u32, u32)>,
    /// Operations, the largest `critical_share` first, and among equal ones the most `requests`.
    pub(crate) operations: Vec<ModelOperation>,
    /// Operation in focus; null if all operations are shown.
    pub(crate) focus: Option<Focus>,
    #[serde(skip)]
    pub(crate) model: &'a Model,
    #[serde(skip)]
    relations: &'a Relations,
    #[serde(skip)]
    pub(crate) graph: &'a CausalGraph,
    #[serde(skip)]
    names: &'a Names,
    /// Command that shows all operations.
    #[serde(skip)]
    pub(crate) all_command: String,
    /// Maximum number of rows of each table, except for that of the operations below a focus.
    #[serde(skip)]
    pub(crate) top: usize,
}

/// Notes about the traces of a model.
struct ModelNotes<'a> {
    notes: &'a Notes,
    /// True for a saved model. Its file does not state how many traces were complete, so their
    /// number is null in the JSON.
    is_saved: bool,
}

impl Serialize for ModelNotes<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if !self.is_saved {
            return self.notes.serialize(serializer);
        }
        let mut keys = serde_json::to_value(self.notes).map_err(S::Error::custom)?;
        keys["complete_traces"] = Value::Null;
        keys.serialize(serializer)
    }
}

impl JsonSchema for ModelNotes<'_> {
    fn schema_name() -> Cow<'static, str> {
        "ModelNotes".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut schema = Notes::json_schema(generator);
        if let Some(complete) = schema.pointer_mut("/properties/complete_traces") {
            complete["type"] = json!(["integer", "null"]);
            complete["description"] = json!(
                "Number of complete traces; null for a saved model, which does not state it."
            );
        }
        schema
    }
}

/// Maximum number of operations to list below the one in focus.
const OPERATIONS_LISTED: usize = 20;

impl<'a> ModelReport<'a> {
    /// Returns the operation of this name with its neighbours; `None` if the model does not have
    /// it.
    pub(crate) fn focus_on(&self, operation: &str) -> Option<Focus> {
        Focus::of(operation, self.model, self.relations, self.graph)
    }

    /// Creates a report without operations and a focus. `is_saved` is true for a model from a file.
    pub(crate) fn of(
        model: &'a Model,
        relations: &'a Relations,
        graph: &'a CausalGraph,
        names: &'a Names,
        (notes, is_saved): (&'a Notes, bool),
    ) -> Self {
        Self {
            notes: ModelNotes { notes, is_saved },
            model_traces: model.traces(),
            tolerance: relations.tolerance(),
            segments: segment_entries(model),
            happens_before: relations
                .all_happens_before()
                .iter()
                .map(Into::into)
                .collect(),
            mutual_exclusion: relations
                .all_mutual_exclusion()
                .iter()
                .map(Into::into)
                .collect(),
            pipelines: pipeline_entries(relations),
            reduced_happens_before: graph.edges.iter().map(|(a, b)| (a.0, b.0)).collect(),
            model,
            relations,
            graph,
            names,
            operations: Vec::new(),
            focus: None,
            all_command: String::new(),
            top: usize::MAX,
        }
    }
}

type Edge = (SegmentId, SegmentId);

/// Two segments with a relation, and the number of traces with both.
struct Pair {
    first: SegmentName,
    second: SegmentName,
    traces: u64,
}

/// Two segments; the first happens before the second.
struct InOrder(Pair);
/// Two segments that exclude each other.
struct Apart(Pair);

rows! {
    InOrder as row, "happens_before":
        "Two segments: the first always ended before the second began, and no other relations imply it.";
    first: Segment, "first" = &row.0.first;
    then: Segment, "then" = &row.0.second;
    traces: Count, "number of traces" = row.0.traces;
}

rows! {
    Apart as row, "mutual_exclusion": "Two segments that never overlapped, in either order.";
    one: Segment, "one" = &row.0.first;
    other: Segment, "other" = &row.0.second;
    traces: Count, "number of traces" = row.0.traces;
}

impl Report for ModelReport<'_> {
    fn notes(&self) -> &Notes {
        self.notes.notes
    }

    fn show(&self, doc: &mut Doc) {
        doc.heading(format!(
            "Causal order, as far as {} can show",
            counted(self.model.traces(), "request")
        ));
        if self.notes.is_saved {
            doc.sentence(
                "How many of these requests were complete is unknown: a saved model does not state it.",
            );
        }
        match &self.focus {
            Some(focus) => self.show_focus(focus, doc),
            None => self.show_all(doc),
        }
    }
}

impl ModelReport<'_> {
    /// Shows the operation in focus, its neighbours and relations, and a list of operations.
    fn show_focus(&self, focus: &Focus, doc: &mut Doc) {
        let traces = self.model.traces().max(1) as f64;
        if let Some(of) = self
            .operations
            .iter()
            .find(|of| of.operation == focus.operation)
        {
            let share = of.critical_share.map_or_else(String::new, |share| {
                format!(", and {} of critical paths", percent(share))
            });
            doc.sentence(format!(
                "{} is in {} of requests{share}.",
                focus.operation,
                percent(of.requests as f64 / traces)
            ));
        }
        let title = format!(
            "{}, and the operations right before and after it",
            focus.operation
        );
        let alternative = "The tables list everything.";
        let graph = focus.graph(&self.operations, traces);
        doc.figure(Figure::new(title, alternative, graph).on_pages_only());
        for (neighbours, side) in [(&focus.before, "before"), (&focus.after, "after")] {
            let title = format!("Right {side} {}", focus.operation);
            if neighbours.is_empty() {
                doc.sentence(format!("{title}: nothing."));
            } else {
                doc.table(title, neighbours, self.top);
            }
        }
        let is_own = |(a, b): &&Edge| focus.own.contains(a) || focus.own.contains(b);
        let edges = self.graph.edges.iter().filter(is_own);
        doc.table("Orders of its segments", &self.orders(edges), self.top);
        let pairs = self.graph.exclusions.iter().filter(is_own);
        doc.table("Mutual exclusion", &self.apart(pairs), self.top);
        doc.table("Operations", &self.operations, OPERATIONS_LISTED);
        let all = format!("All {}", counted(self.operations.len() as u64, "operation"));
        doc.link(all, "/model?all=on", &self.all_command);
    }

    /// Shows the operations, segments and relations of the model.
    fn show_all(&self, doc: &mut Doc) {
        let (model, traces) = (self.model, self.model.traces());
        let seen = || {
            let labels = model.labels().iter();
            labels.filter(|(id, _)| model.segment_counts(*id).traces > 0)
        };
        let share = |id| model.segment_counts(id).traces as f64 / traces.max(1) as f64;
        let drawn = ModelGraph {
            labels: model.labels(),
            relations: self.relations,
            name: &|id| self.names.get(id),
            style: &|_| 0,
            traces,
        };
        let shares = seen().map(|(id, _)| (id, share(id)));
        doc.figures(drawn.figure(shares.collect(), "in most requests"));
        let segment = |(id, label)| {
            let counts = model.segment_counts(id);
            SegmentRow {
                name: self.names.get(id),
                label,
                occurrences: counts.occurrences,
                traces: counts.traces,
            }
        };
        doc.table("Operations", &self.operations, self.top);
        doc.table(
            "Segments",
            &seen().map(segment).collect::<Vec<_>>(),
            self.top,
        );
        let follow = self.relations.all_happens_before().len() - self.graph.edges.len();
        doc.table(
            format!("Happens before; {follow} more follow from these"),
            &self.orders(&self.graph.edges),
            self.top,
        );
        let apart = self.apart(&self.graph.exclusions);
        doc.table("Mutual exclusion", &apart, self.top);
        doc.table("Pipelines", &pipeline_rows(self.relations), self.top);
    }

    fn orders<'p>(&self, edges: impl IntoIterator<Item = &'p Edge>) -> Vec<InOrder> {
        let support = |(a, b): Edge| self.relations.happens_before_support(a, b);
        let order = |edge: &Edge| InOrder(self.pair(*edge, support(*edge)));
        edges.into_iter().map(order).collect()
    }

    fn apart<'p>(&self, pairs: impl IntoIterator<Item = &'p Edge>) -> Vec<Apart> {
        let support = |(a, b): Edge| self.relations.mutual_exclusion_support(a, b);
        let apart = |pair: &Edge| Apart(self.pair(*pair, support(*pair)));
        pairs.into_iter().map(apart).collect()
    }

    fn pair(&self, (a, b): Edge, support: Option<Support>) -> Pair {
        Pair {
            first: self.names.get(a),
            second: self.names.get(b),
            traces: support.unwrap_or_default().cooccurrences,
        }
    }
}
