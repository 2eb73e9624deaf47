//! `model`

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clap::Args;
use regex::Regex;
use schemars::JsonSchema;
use serde::Serialize;
use stroboscope_analysis::label::SegmentId;
use stroboscope_analysis::model::{Model, Relation, Relations, Support};
use stroboscope_analysis::structural_change::StructuralChange;
use tokio::runtime::Runtime;

use crate::arguments::{
    ReadingArguments, SelectionArguments, ShowArguments, parse_range, parse_share,
};
use crate::model_change::Changed;
use crate::model_json::{
    PipelineEntry, SegmentEntry, SegmentRow, pipeline_entries, segment_entries,
};
use crate::output::print;
use crate::reading_memory::of_verb;
use crate::results::figures::ModelGraph;
use crate::results::pipelines::pipeline_rows;
use crate::study::{NamedStudy, Reader};
use crate::verb::{PageVerb, Report, give, said};
use crate::{Failure, Status, notes};
use stroboscope_present::humanise::counted;
use stroboscope_present::rows;
use stroboscope_present::show::{Doc, Names, SegmentName};
use stroboscope_query::{CausalGraph, Notes, load_model, save_model};
use stroboscope_store::memory::QueryShare;

/// Print the causal model as a table, JSON or a graph; merge, save and compare models
///
/// The table and the graph show only relations that do not follow from others; --json has all of them with their
/// support: how many traces could have contradicted each, and how many did.
///
/// The model is that of the store, or with --load a saved one; --merge adds saved ones to it. With --compare, what is
/// shown instead is how it differs from an earlier one: relations that one of the two contradicts and the other does
/// not, and segments that only one has. Each difference is tested (Fisher's exact test, with regard to how many relations
/// were compared); listed are those that are more than sampling gives, the largest certain change first.
#[derive(Debug, Args)]
pub struct ModelVerb {
    #[command(flatten)]
    reading: ReadingArguments,
    #[command(flatten)]
    show: ShowArguments,
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
    /// 2h..1h or 2026-11-21T10:00..2026-11-21T11:00, times as for --since
    #[arg(long, value_name = "FILE|RANGE", conflicts_with = "dot")]
    compare: Option<String>,
    /// Show so many changes of each kind; 0 shows all
    #[arg(long, value_name = "COUNT", default_value_t = 25, requires = "compare")]
    top: usize,
    /// List changes of which at most this part is chance, on average; 1 lists all differences
    #[arg(long, value_name = "SHARE", default_value = "5%", value_parser = parse_share, requires = "compare")]
    false_discoveries: f64,
    /// In the table and the picture, show only segments that match, and those right before and after them: a regular
    /// expression over `task [start … end]`, as the verbs print segments
    #[arg(long, value_name = "REGEX", conflicts_with_all = ["compare", "dot"])]
    focus: Option<Regex>,
    /// Print a graph for Graphviz (`| dot -Tsvg`)
    #[arg(long, conflicts_with = "json")]
    dot: bool,
}

impl ModelVerb {
    pub fn run(self, runtime: &Runtime) -> Result<Status, Failure> {
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
        if self.dot {
            let labels = model
                .labels()
                .iter()
                .filter(|(id, _)| model.segment_counts(*id).traces > 0);
            print(graph.to_dot(labels).trim_end())?;
            return Ok(notes::tell(&notes));
        }
        let names = Names::of(model.labels());
        let mut share = of_verb(self.reading.from.memory_limit).share();
        take_for(&relations, &mut share)?;
        let report = Believed::of(&model, &relations, &graph, &names, &notes);
        let report = report.focused(self.focus.as_ref());
        give(&report, &self.reading.from, &self.show)
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
                Failure::new(format!(
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
            // Which of the two ranges it is about, is said.
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
            &Changed {
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
    fn document(&self, reader: &Reader) -> Result<(Doc, Notes), Failure> {
        let study = NamedStudy::read_by(&self.reading, reader)?;
        let known = study.known()?;
        let (model, relations) = (&known.inference.model, &known.inference.relations);
        let mut share = study.source().share();
        take_for(relations, &mut share)?;
        let graph = CausalGraph::of(relations);
        let names = Names::of(model.labels());
        let report = Believed::of(model, relations, &graph, &names, &known.inference.notes);
        let report = report.focused(self.focus.as_ref());
        Ok(said(&Believed {
            top: PAGE_ROWS,
            ..report
        }))
    }
}

/// Takes the memory of all relations as they are shown.
fn take_for(relations: &Relations, share: &mut QueryShare) -> Result<(), Failure> {
    let bytes = relations.count().saturating_mul(BYTES_PER_RELATION);
    share.take(bytes).map_err(|lack| {
        let relations = counted(relations.count() as u64, "relation");
        Failure::new(format!("{relations} to show: {lack}"))
    })
}

fn load(path: &Path) -> Result<(Model, Notes), Failure> {
    let model = load_model(path).map_err(Failure::of)?;
    // Only what could be used is in a saved model.
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

/// A relation between two segments.
#[derive(Serialize, JsonSchema)]
struct RelationEntry {
    first: u32,
    second: u32,
    /// Traces that have both.
    traces: u64,
    contradictions: u64,
}

impl From<&Relation> for RelationEntry {
    fn from(relation: &Relation) -> Self {
        Self {
            first: relation.first.0,
            second: relation.second.0,
            traces: relation.support.cooccurrences,
            contradictions: relation.support.contradictions,
        }
    }
}

/// What the verb says in JSON: what the model believes, or with `--compare` how it differs from an earlier one.
#[derive(JsonSchema)]
#[serde(untagged)]
#[allow(dead_code, reason = "the document's schema is made of it")]
pub enum ModelSays<'a> {
    Believed(Believed<'a>),
    Changed(Changed<'a>),
}

/// What a model believes.
#[derive(Serialize, JsonSchema)]
pub struct Believed<'a> {
    #[serde(flatten)]
    notes: &'a Notes,
    model_traces: u64,
    tolerance: f64,
    segments: Vec<SegmentEntry<'a>>,
    happens_before: Vec<RelationEntry>,
    mutual_exclusion: Vec<RelationEntry>,
    pipelines: Vec<PipelineEntry<'a>>,
    /// Pairs of segments: without those that follow from others.
    reduced_happens_before: Vec<(u32, u32)>,
    #[serde(skip)]
    model: &'a Model,
    #[serde(skip)]
    relations: &'a Relations,
    #[serde(skip)]
    graph: &'a CausalGraph,
    #[serde(skip)]
    names: &'a Names,
    /// Segments that are shown; none: all.
    #[serde(skip)]
    focus: Option<BTreeSet<SegmentId>>,
    /// Rows of each table.
    #[serde(skip)]
    top: usize,
}

/// Memory of a relation in all forms that it is shown in.
const BYTES_PER_RELATION: usize = 160;
/// More rows of a table nobody reads on a page, and with 100 in each of three the browser took twice as long to lay it out;
/// --json has all, and --focus what somebody looks for.
const PAGE_ROWS: usize = 40;

impl<'a> Believed<'a> {
    /// Shows what matches, and what is right before and after it.
    fn focused(self, focus: Option<&Regex>) -> Self {
        let Some(focus) = focus else { return self };
        let matching = self.model.labels().iter();
        let matching: BTreeSet<SegmentId> = matching
            .filter(|(_, label)| focus.is_match(&label.to_string()))
            .map(|(id, _)| id)
            .collect();
        let beside = self.graph.edges.iter().flat_map(|(a, b)| {
            let is_beside = matching.contains(a) || matching.contains(b);
            is_beside.then_some([*a, *b]).into_iter().flatten()
        });
        let shown = beside.chain(matching.iter().copied()).collect();
        Self {
            focus: Some(shown),
            ..self
        }
    }

    fn shows(&self, id: SegmentId) -> bool {
        self.focus.as_ref().is_none_or(|shown| shown.contains(&id))
    }

    fn of(
        model: &'a Model,
        relations: &'a Relations,
        graph: &'a CausalGraph,
        names: &'a Names,
        notes: &'a Notes,
    ) -> Self {
        Self {
            notes,
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
            focus: None,
            top: usize::MAX,
        }
    }
}

/// Two segments of which something is believed.
struct Pair {
    first: SegmentName,
    second: SegmentName,
    traces: u64,
}

/// They are in this order.
struct InOrder(Pair);
/// They exclude each other.
struct Apart(Pair);

rows! {
    InOrder as row, "happens_before":
        "Two segments of which the first always ended before the second began, and that follows from no others.";
    first: Segment, "first" = &row.0.first;
    then: Segment, "then" = &row.0.second;
    traces: Count, "in so many traces" = row.0.traces;
}

rows! {
    Apart as row, "mutual_exclusion": "Two segments that never overlapped, in either order.";
    one: Segment, "one" = &row.0.first;
    other: Segment, "other" = &row.0.second;
    traces: Count, "in so many traces" = row.0.traces;
}

impl Report for Believed<'_> {
    fn notes(&self) -> &Notes {
        self.notes
    }

    fn show(&self, doc: &mut Doc) {
        let Self {
            model,
            relations,
            graph,
            names,
            top,
            ..
        } = *self;
        doc.heading(format!(
            "What causes what, as far as {} can show",
            counted(model.traces(), "request")
        ));
        let seen = model
            .labels()
            .iter()
            .filter(|(id, _)| model.segment_counts(*id).traces > 0 && self.shows(*id));
        let segment = |(id, label)| {
            let counts = model.segment_counts(id);
            SegmentRow {
                name: names.get(id),
                label,
                occurrences: counts.occurrences,
                traces: counts.traces,
            }
        };
        let in_traces = |(id, _)| {
            (
                id,
                model.segment_counts(id).traces as f64 / model.traces().max(1) as f64,
            )
        };
        let shares = model
            .labels()
            .iter()
            .map(in_traces)
            .filter(|(id, share)| *share > 0.0 && self.shows(*id));
        let drawn = ModelGraph {
            labels: model.labels(),
            relations,
            name: &|id| names.get(id),
            style: &|_| 0,
            traces: model.traces(),
        };
        doc.figures(drawn.figure(shares.collect(), "in most requests"));
        doc.table("Segments", &seen.map(segment).collect::<Vec<_>>(), top);
        let pair = |a: SegmentId, b: SegmentId, support: Option<Support>| Pair {
            first: names.get(a),
            second: names.get(b),
            traces: support.unwrap_or_default().cooccurrences,
        };
        let order = |(a, b): &(SegmentId, SegmentId)| {
            InOrder(pair(*a, *b, relations.happens_before_support(*a, *b)))
        };
        let both = |(a, b): &&(SegmentId, SegmentId)| self.shows(*a) && self.shows(*b);
        let orders: Vec<InOrder> = graph.edges.iter().filter(both).map(order).collect();
        let follow = relations.all_happens_before().len() - graph.edges.len();
        doc.table(
            format!("Happens before; {follow} more follow from these"),
            &orders,
            top,
        );
        let apart = |(a, b): &(SegmentId, SegmentId)| {
            Apart(pair(*a, *b, relations.mutual_exclusion_support(*a, *b)))
        };
        doc.table(
            "Mutual exclusion",
            &graph
                .exclusions
                .iter()
                .filter(both)
                .map(apart)
                .collect::<Vec<_>>(),
            top,
        );
        doc.table("Pipelines", &pipeline_rows(relations), top);
    }
}
