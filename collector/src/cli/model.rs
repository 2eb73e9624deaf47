//! `model`

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};
use stroboscope_analysis::model::{Model, Relation, Relations};
use stroboscope_analysis::structural_change::StructuralChange;
use tokio::runtime::Runtime;

use super::arguments::{ReadingArguments, parse_range};
use super::infer::{pipelines_json, prepare, segments_json};
use super::output::{Table, print, print_json};
use super::{Failure, Status, model_change, notes};
use crate::query::{CausalGraph, Notes, load_model, save_model};

/// Print the causal model as a table, JSON or a graph; merge, save and compare models
///
/// The table and the graph show only relations that do not follow from others; --json has all of them with their
/// support: how many traces could have contradicted each, and how many did.
///
/// The model is that of the store, or with --load a saved one; --merge adds saved ones to it. With --compare, what is
/// shown instead is how it differs from an earlier one: relations that one of the two contradicts and the other does
/// not, and segments that only one has.
#[derive(Debug, Args)]
pub struct ModelVerb {
    #[command(flatten)]
    reading: ReadingArguments,
    /// Take this saved model instead of the store's
    #[arg(long, value_name = "FILE", conflicts_with_all = ["since", "until", "exclude", "include_incomplete"])]
    load: Option<PathBuf>,
    /// Add this saved model; may be given several times
    #[arg(long, value_name = "FILE")]
    merge: Vec<PathBuf>,
    /// Save the model; packed by zstd if the name ends in .zst
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// Show what changed since an earlier model: a saved one, or that of a range FROM..UNTIL of the store, such as
    /// 2h..1h or 2026-11-21T10:00:00Z..2026-11-21T11:00:00Z
    #[arg(long, value_name = "FILE|RANGE", conflicts_with = "dot")]
    compare: Option<String>,
    /// Show so many changes of each kind; 0 shows all
    #[arg(long, value_name = "COUNT", default_value_t = 25, requires = "compare")]
    top: usize,
    /// Print a graph for Graphviz (`| dot -Tsvg`)
    #[arg(long, conflicts_with = "json")]
    dot: bool,
}

impl ModelVerb {
    pub(super) fn run(self, runtime: &Runtime) -> Result<Status, Failure> {
        let (mut model, notes) = match &self.load {
            Some(path) => load(path)?,
            None => inferred(&self.reading, runtime)?,
        };
        for path in &self.merge {
            model.merge(&load(path)?.0);
        }
        if !self.merge.is_empty() {
            model = model.canonical();
        }
        if let Some(path) = &self.save {
            save_model(&model, path).map_err(Failure::of)?;
        }
        if let Some(earlier) = &self.compare {
            return self.compare(earlier, &model, &notes, runtime);
        }
        let relations = model.relations(self.reading.tolerance);
        let graph = CausalGraph::of(&relations);
        if self.reading.json {
            print_json(&to_json(&model, &relations, &graph, &notes))?;
        } else if self.dot {
            let labels = model.labels().iter().filter(|(id, _)| model.segment_counts(*id).traces > 0);
            print(graph.to_dot(labels).trim_end())?;
        } else {
            print(&to_text(&model, &relations, &graph))?;
        }
        Ok(notes::tell(&notes))
    }

    fn compare(
        &self,
        earlier: &str,
        model: &Model,
        notes: &Notes,
        runtime: &Runtime,
    ) -> Result<Status, Failure> {
        // A file of such a name is meant, rather than a range.
        let (before, notes_before) = if Path::new(earlier).exists() {
            load(Path::new(earlier))?
        } else if earlier.contains("..") {
            let range = parse_range(earlier).map_err(|expected| {
                Failure(format!("--compare {earlier}: expected a saved model or {expected}"))
            })?;
            let reading =
                ReadingArguments { since: range.since_ns, until: range.until_ns, ..self.reading.clone() };
            inferred(&reading, runtime)?
        } else {
            load(Path::new(earlier))?
        };
        let change = StructuralChange::between(&before, model, self.reading.tolerance);
        if self.reading.json {
            print_json(&model_change::to_json(&change, &before, model))?;
        } else {
            let top = if self.top == 0 { usize::MAX } else { self.top };
            print(&model_change::to_text(&change, &before, model, top))?;
        }
        let told = [notes::tell(&notes_before), notes::tell(notes)];
        Ok(if told.contains(&Status::Partly) { Status::Partly } else { Status::Done })
    }
}

fn load(path: &Path) -> Result<(Model, Notes), Failure> {
    let model = load_model(path).map_err(Failure::of)?;
    // Only what could be used is in a saved model.
    let notes = Notes { traces: model.traces(), complete_traces: model.traces(), ..Notes::default() };
    Ok((model, notes))
}

fn inferred(reading: &ReadingArguments, runtime: &Runtime) -> Result<(Model, Notes), Failure> {
    let (_, _, inference) = prepare(reading, runtime)?;
    Ok((inference.model, inference.notes))
}

fn to_json(model: &Model, relations: &Relations, graph: &CausalGraph, notes: &Notes) -> Value {
    let relation = |relation: &Relation| {
        json!({
            "first": relation.first.0,
            "second": relation.second.0,
            "traces": relation.support.cooccurrences,
            "contradictions": relation.support.contradictions,
        })
    };
    let mut keys = notes::keys(notes);
    keys.insert("model_traces".into(), model.traces().into());
    keys.insert("tolerance".into(), relations.tolerance().into());
    keys.insert("segments".into(), segments_json(model).into());
    let all = |relations: &[Relation]| Value::from(relations.iter().map(relation).collect::<Vec<_>>());
    keys.insert("happens_before".into(), all(relations.all_happens_before()));
    keys.insert("mutual_exclusion".into(), all(relations.all_mutual_exclusion()));
    keys.insert("pipelines".into(), pipelines_json(relations).into());
    let edges: Vec<Value> = graph.edges.iter().map(|(a, b)| json!([a.0, b.0])).collect();
    keys.insert("reduced_happens_before".into(), edges.into());
    keys.into()
}

fn to_text(model: &Model, relations: &Relations, graph: &CausalGraph) -> String {
    let mut segments = Table::new(&["id", "count", "segment"]);
    for (id, label) in model.labels().iter() {
        let counts = model.segment_counts(id);
        if counts.traces > 0 {
            segments.row(vec![id.0.to_string(), counts.occurrences.to_string(), label.to_string()]);
        }
    }
    let mut before = Table::new(&["first", "then", "traces that could have contradicted it"]);
    for &(a, b) in &graph.edges {
        let support = relations.happens_before_support(a, b).unwrap_or_default();
        before.row(vec![a.0.to_string(), b.0.to_string(), support.cooccurrences.to_string()]);
    }
    let mut exclusions = Table::new(&["one", "other", "traces that could have contradicted it"]);
    for &(a, b) in &graph.exclusions {
        let support = relations.mutual_exclusion_support(a, b).unwrap_or_default();
        exclusions.row(vec![a.0.to_string(), b.0.to_string(), support.cooccurrences.to_string()]);
    }
    let mut pipelines = Table::new(&["traces", "elements", "one task ≫ the next"]);
    for pipeline in relations.all_pipelines() {
        pipelines.row(vec![
            pipeline.support.cooccurrences.to_string(),
            pipeline.elements.to_string(),
            format!("{} ≫ {}", pipeline.first, pipeline.second),
        ]);
    }
    let (all, shown) = (relations.all_happens_before().len(), graph.edges.len());
    format!(
        "Segments\n{}\n\nHappens before ({shown} shown; {} more follow from them)\n{}\n\nMutual exclusion\n{}\n\n\
         Pipelines\n{}",
        segments.render(),
        all - shown,
        before.render(),
        exclusions.render(),
        pipelines.render()
    )
}
