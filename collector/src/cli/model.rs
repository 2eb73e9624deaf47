//! `model`

use clap::Args;
use serde_json::{Value, json};
use stroboscope_analysis::model::Relation;
use tokio::runtime::Runtime;

use super::arguments::ReadingArguments;
use super::infer::{prepare, segments_json};
use super::output::{Table, print, print_json};
use super::{Failure, Status, notes};
use crate::query::{CausalGraph, Inference};

/// Print the causal model as a table, JSON or a graph
///
/// The table and the graph show only relations that do not follow from others; --json has all of them with their
/// support: how many traces could have contradicted each, and how many did.
#[derive(Debug, Args)]
pub struct ModelVerb {
    #[command(flatten)]
    reading: ReadingArguments,
    /// Print a graph for Graphviz (`| dot -Tsvg`)
    #[arg(long, conflicts_with = "json")]
    dot: bool,
}

impl ModelVerb {
    pub(super) fn run(self, runtime: &Runtime) -> Result<Status, Failure> {
        let (_, _, inference) = prepare(&self.reading, runtime)?;
        let graph = CausalGraph::of(&inference.relations);
        if self.reading.json {
            print_json(&to_json(&inference, &graph))?;
        } else if self.dot {
            print(graph.to_dot(inference.model.labels()).trim_end())?;
        } else {
            print(&to_text(&inference, &graph))?;
        }
        Ok(notes::tell(&inference.notes))
    }
}

fn to_json(inference: &Inference, graph: &CausalGraph) -> Value {
    let relation = |relation: &Relation| {
        json!({
            "first": relation.first.0,
            "second": relation.second.0,
            "traces": relation.support.cooccurrences,
            "contradictions": relation.support.contradictions,
        })
    };
    let mut keys = notes::keys(&inference.notes);
    keys.insert("tolerance".into(), inference.relations.tolerance().into());
    keys.insert("segments".into(), segments_json(inference).into());
    let all = |relations: &[Relation]| Value::from(relations.iter().map(relation).collect::<Vec<_>>());
    keys.insert("happens_before".into(), all(inference.relations.all_happens_before()));
    keys.insert("mutual_exclusion".into(), all(inference.relations.all_mutual_exclusion()));
    keys.insert("pipelines".into(), Value::Array(Vec::new()));
    let edges: Vec<Value> = graph.edges.iter().map(|(a, b)| json!([a.0, b.0])).collect();
    keys.insert("reduced_happens_before".into(), edges.into());
    keys.into()
}

fn to_text(inference: &Inference, graph: &CausalGraph) -> String {
    let labels = inference.model.labels();
    let mut segments = Table::new(&["id", "count", "segment"]);
    for (id, label) in labels.iter() {
        let counts = inference.model.segment_counts(id);
        segments.row(vec![id.0.to_string(), counts.occurrences.to_string(), label.to_string()]);
    }
    let mut before = Table::new(&["first", "then", "traces that could have contradicted it"]);
    for &(a, b) in &graph.edges {
        let support = inference.relations.happens_before_support(a, b).unwrap_or_default();
        before.row(vec![a.0.to_string(), b.0.to_string(), support.cooccurrences.to_string()]);
    }
    let mut exclusions = Table::new(&["one", "other", "traces that could have contradicted it"]);
    for &(a, b) in &graph.exclusions {
        let support = inference.relations.mutual_exclusion_support(a, b).unwrap_or_default();
        exclusions.row(vec![a.0.to_string(), b.0.to_string(), support.cooccurrences.to_string()]);
    }
    let (all, shown) = (inference.relations.all_happens_before().len(), graph.edges.len());
    format!(
        "Segments\n{}\n\nHappens before ({shown} shown; {} more follow from them)\n{}\n\nMutual exclusion\n{}",
        segments.render(),
        all - shown,
        before.render(),
        exclusions.render()
    )
}
