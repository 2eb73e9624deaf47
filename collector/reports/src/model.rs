//! The `model` subcommand.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Args;
use schemars::JsonSchema;
use stroboscope_analysis::model::{Model, Relations};
use stroboscope_analysis::structural_change::StructuralChange;
use tokio::runtime::Runtime;

use crate::arguments::{
    ReadingArguments, SelectionArguments, ShowArguments, parse_range, parse_share,
};
use crate::memory_limit::of_verb;
use crate::model_change::ModelChangeReport;
use crate::model_focus::operations;
use crate::model_report::ModelReport;
use crate::output::print;
use crate::study::{NamedStudy, Reader};
use crate::suggest::command_on;
use crate::verb::{PageVerb, TakeReport, give};
use crate::{Failure, Status, notes};
use stroboscope_query::{
    CategoryRule, CausalGraph, Notes, PathsQuestion, by_time, load_model, nearest, save_model,
};
use stroboscope_render::humanise::counted;
use stroboscope_render::show::Names;
use stroboscope_store::query_memory::QueryShare;

/// Bytes of memory for a relation in all forms in which it is shown.
const BYTES_PER_RELATION: usize = 160;
/// Maximum number of rows of each table on the served page, except for that of the operations below
/// a focus. More rows slow down the browser's layout. --json has all rows.
const PAGE_ROWS: usize = 40;
/// Print the causal model as a table, JSON or a graph; merge, save and compare models
///
/// Shows one operation with the segments right before and right after its own. --focus selects the
/// operation; by default, it is the one that requests wait for most, or with --load the one in most
/// requests. --all shows all operations. Tables and graphs show only relations that do not follow
/// from others. --json has all relations. For orders and exclusions, it has how many traces could
/// have contradicted each, and how many did.
///
/// Uses the model of the store, or with --load a saved one; --merge adds saved models. With
/// --compare, shows instead how it differs from an earlier model: relations that only one of the
/// two models contradicts, and segments that only one has. Each difference is tested by Fisher's
/// exact test, corrected for the number of relations compared. The list has the differences that
/// exceed sampling noise, the largest certain change first.
#[derive(Debug, Args)]
pub struct ModelVerb {
    #[command(flatten)]
    reading: ReadingArguments,
    #[command(flatten)]
    show: ShowArguments,
    /// Use this saved model instead of the store's
    #[arg(long, value_name = "FILE", conflicts_with_all = ["since", "until", "exclude", "include_incomplete"])]
    load: Option<PathBuf>,
    /// Add this saved model; repeatable
    #[arg(long, value_name = "FILE")]
    merge: Vec<PathBuf>,
    /// Save the model; compressed by zstd if the name ends in .zst
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// Show what changed since an earlier model: a saved one, or that of a range FROM..UNTIL of the
    /// store, such as 2h..1h or 2026-11-21T10:00..2026-11-21T11:00, in the format of --since
    #[arg(long, value_name = "FILE|RANGE", conflicts_with = "dot")]
    compare: Option<String>,
    /// Maximum number of changes of each kind to show; 0 shows all
    #[arg(long, value_name = "COUNT", default_value_t = 25, requires = "compare")]
    top: usize,
    /// Maximum false discovery rate of the listed changes; 1 lists all differences
    #[arg(long, value_name = "SHARE", default_value = "5%", value_parser = parse_share, requires = "compare")]
    false_discoveries: f64,
    /// Show this operation (service:name), with the segments right before and right after it
    #[arg(long, value_name = "OPERATION", conflicts_with_all = ["compare", "dot"])]
    focus: Option<String>,
    /// Show all operations
    #[arg(long, conflicts_with_all = ["compare", "dot", "focus"])]
    all: bool,
    /// Print a graph for Graphviz (`| dot -Tsvg`)
    #[arg(long, conflicts_with = "json")]
    dot: bool,
}

impl ModelVerb {
    pub fn run(self, runtime: &Runtime) -> Result<Status, Failure> {
        let (mut model, notes, waited) = match &self.load {
            Some(path) => {
                let (model, notes) = load(path)?;
                (model, notes, BTreeMap::new())
            }
            None => {
                let study = NamedStudy::of(&self.reading, runtime.handle())?;
                let waited = self.waited(&study)?;
                let inference = study.into_inference()?;
                (inference.model, inference.notes, waited)
            }
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
        if self.dot {
            let labels = model.labels().iter();
            let labels = labels.filter(|(id, _)| model.segment_counts(*id).traces > 0);
            print(graph.to_dot(labels).trim_end())?;
            return Ok(notes::tell(&notes));
        }
        let names = Names::of(model.labels());
        let mut share = of_verb(self.reading.from.memory_limit).share();
        take_for(&relations, &mut share)?;
        let noted = (&notes, self.load.is_some());
        let report = ModelReport::of(&model, &relations, &graph, &names, noted);
        let report = self.focused(report, &waited)?;
        give(&report, &self.reading.from, &self.show)
    }

    /// Returns the share of the critical path, 0 to 1, of each operation. The shares select the
    /// operation in focus. Returns an empty map if no focus has to be chosen: with `--focus`,
    /// `--all`, `--dot` or `--compare`.
    fn waited(&self, study: &NamedStudy) -> Result<BTreeMap<String, f64>, Failure> {
        if self.all || self.dot || self.focus.is_some() || self.compare.is_some() {
            return Ok(BTreeMap::new());
        }
        let paths = study.ask(&PathsQuestion(CategoryRule::default()))?;
        let operations = by_time(&paths.aggregate, study.known()?.inference.model.labels());
        let share = operations
            .into_iter()
            .map(|of| (of.operation, of.share_of_time));
        Ok(share.collect())
    }

    /// Adds the operations to the report, with one of them in focus unless there are none or all
    /// are requested. Fails if the model does not have the operation of `--focus`.
    fn focused<'a>(
        &self,
        mut report: ModelReport<'a>,
        waited: &BTreeMap<String, f64>,
    ) -> Result<ModelReport<'a>, Failure> {
        let data = &self.reading.from.data.data;
        let operations = operations(report.model, report.graph, waited);
        let first = operations.first().map(|first| &first.operation);
        let operation = self.focus.as_ref().or(first).filter(|_| !self.all);
        let focus = operation.and_then(|operation| report.focus_on(operation));
        if let (Some(operation), None) = (&self.focus, &focus) {
            let known = operations.iter().map(|of| &*of.operation);
            let nearest = nearest(operation, known);
            let nearest = nearest.map_or_else(String::new, |name| format!(" (is it {name}?)"));
            let listed = command_on("model", data);
            return Err(Failure::unknown(format!(
                "no segment is of the operation {operation}{nearest}; `{listed}` lists operations"
            )));
        }
        report.operations = operations;
        report.focus = focus;
        report.all_command = command_on("model --all", data);
        Ok(report)
    }

    fn compare(
        &self,
        earlier: &str,
        model: &Model,
        notes: &Notes,
        runtime: &Runtime,
    ) -> Result<Status, Failure> {
        // A file of this name takes precedence over a range.
        let (before, notes_before) = if Path::new(earlier).exists() {
            load(Path::new(earlier))?
        } else if earlier.contains("..") {
            let range = parse_range(earlier).map_err(|expected| {
                Failure::asked(format!(
                    "--compare {earlier}: expected a saved model or {expected}"
                ))
            })?;
            let from = SelectionArguments {
                since: range.since_ns,
                until: range.until_ns,
                ..self.reading.from.clone()
            };
            let reading = ReadingArguments {
                from,
                ..self.reading.clone()
            };
            // Name the earlier range in the error.
            inferred(&reading, runtime).map_err(|failure| Failure {
                cause: format!("--compare {earlier}, the earlier range: {}", failure.cause),
                ..failure
            })?
        } else {
            load(Path::new(earlier))?
        };
        let change = StructuralChange::between(
            &before,
            model,
            self.reading.tolerance,
            self.false_discoveries,
        );
        let top = if self.top == 0 { usize::MAX } else { self.top };
        let of_before = notes::tell(&notes_before);
        let of_now = give(
            &ModelChangeReport {
                change: &change,
                before: &before,
                after: model,
                top,
                notes,
            },
            &self.reading.from,
            &self.show,
        )?;
        Ok(if of_before == Status::Partly {
            of_before
        } else {
            of_now
        })
    }
}

impl PageVerb for ModelVerb {
    fn serve(&self, reader: &Reader, take: TakeReport<'_>) -> Result<(), Failure> {
        let study = NamedStudy::read_by(&self.reading, reader)?;
        let waited = self.waited(&study)?;
        let known = study.known()?;
        let (model, relations) = (&known.inference.model, &known.inference.relations);
        let mut share = study.source().share();
        take_for(relations, &mut share)?;
        let graph = CausalGraph::of(relations);
        let names = Names::of(model.labels());
        let noted = (&known.inference.notes, false);
        let report = ModelReport::of(model, relations, &graph, &names, noted);
        let mut report = self.focused(report, &waited)?;
        report.top = PAGE_ROWS;
        take(&report)
    }
}

/// Reserves the memory for showing all orders and exclusions. Fails if there is too little.
fn take_for(relations: &Relations, share: &mut QueryShare) -> Result<(), Failure> {
    let bytes = relations.count().saturating_mul(BYTES_PER_RELATION);
    share.take(bytes).map_err(|lack| {
        let relations = counted(relations.count() as u64, "relation");
        Failure::new(format!("{relations} to show: {lack}"))
    })
}

fn load(path: &Path) -> Result<(Model, Notes), Failure> {
    let model = load_model(path).map_err(Failure::of)?;
    // The file does not record how many traces were incomplete. With `--load`, `ModelReport` states
    // so.
    let notes = Notes {
        traces: model.traces(),
        complete_traces: model.traces(),
        ..Notes::default()
    };
    Ok((model, notes))
}

fn inferred(reading: &ReadingArguments, runtime: &Runtime) -> Result<(Model, Notes), Failure> {
    let inference = NamedStudy::of(reading, runtime.handle())?.into_inference()?;
    Ok((inference.model, inference.notes))
}

/// JSON output: the model, or with `--compare` its differences from an earlier one.
#[derive(JsonSchema)]
#[serde(untagged)]
#[allow(
    dead_code,
    clippy::large_enum_variant,
    reason = "the document's schema is made of it"
)]
pub enum ModelSays<'a> {
    Believed(ModelReport<'a>),
    Changed(ModelChangeReport<'a>),
}
