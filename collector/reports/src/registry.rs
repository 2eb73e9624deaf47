//! Registry of the reports. Each entry is a subcommand, and may have a page and SQL tables.

use std::path::Path;

use clap::{ArgMatches, Args, Command};
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use stroboscope_render::show::Doc;
use tokio::runtime::Runtime;

use crate::arguments::arguments_on;
use crate::failure::Failure;
use crate::shard::OF_SHARDS;
use crate::status::Status;
use crate::study::NamedStudy;
use crate::verb::{Page, PageVerb, ReadingVerb, ServedReport as _, Tables};
use crate::{
    anomalies, burst, clocks, compare, critical_path, experiment, explain, failures, flows, infer,
    map, merge, model, operations, overview, pool, predict, provenance, report, requests, results,
    search, slack, timeline, tradeoffs, what_if,
};

/// Function that runs a subcommand with its arguments.
pub type Run = Box<dyn Fn(&ArgMatches, &Runtime) -> Result<Status, Failure>>;

/// A subcommand in the registry.
pub struct Entry {
    pub name: &'static str,
    /// Adds the arguments of the subcommand to a command.
    pub command: fn(Command) -> Command,
    pub run: Run,
    /// SQL tables of the subcommand; `None` if it has none.
    pub tables: Option<Tables>,
    /// True if the worker threads of the subcommand drop their capabilities when they start.
    pub is_confined: bool,
    /// The subcommand as servers answer it; `None` if they do not.
    pub page: Option<Page>,
    /// True if the subcommand is a tool for agents.
    pub is_tool: bool,
    /// Returns the schema of the JSON that the subcommand prints.
    pub schema: Option<fn(&mut SchemaGenerator) -> Schema>,
}

impl Entry {
    /// Sets the type whose JSON the subcommand prints.
    pub fn saying<R: JsonSchema>(mut self) -> Self {
        self.schema = Some(R::json_schema);
        self
    }

    /// Sets a page for the subcommand. The page lacks the arguments in `without`.
    pub fn paged<V: PageVerb + Args>(self, without: &'static [&'static str]) -> Self {
        let words = self.name;
        self.paged_as::<V>(words, without)
    }

    /// Replaces the page of the subcommand by a richer one of the site, at `path`.
    pub fn shown_at(mut self, path: &'static str) -> Self {
        if let Some(page) = &mut self.page {
            page.richer_path = Some(path);
        }
        self
    }

    /// Sets the SQL tables.
    pub fn with_tables(mut self, tables: Tables) -> Self {
        self.tables = Some(tables);
        self
    }

    /// Makes the subcommand a tool for agents.
    pub fn tool(mut self) -> Self {
        self.is_tool = true;
        self
    }

    /// Makes the worker threads of the subcommand drop their capabilities when they start. The main
    /// thread must drop its own.
    pub fn confined(mut self) -> Self {
        self.is_confined = true;
        self
    }

    /// Sets a page for the subcommand of this full name: the entry's own, or one nested in it. The
    /// page lacks the arguments in `without`.
    pub fn paged_as<V: PageVerb + Args>(
        mut self,
        words: &'static str,
        without: &'static [&'static str],
    ) -> Self {
        self.page = Some(Page {
            name: self.name,
            words,
            without,
            richer_path: None,
            command: V::augment_args,
            serve: |matches, reader, take| parsed::<V>(matches)?.serve(reader, take),
        });
        self
    }
}

/// Arguments that pages do not have: those for verdicts in CI, and formulas for single periods.
const OF_COMMAND_LINE: &[&str] = &[
    "fail_on",
    "worse_by",
    "junit",
    "markdown",
    "before_where",
    "after_where",
];

/// Returns all reports.
pub fn reports() -> Vec<Entry> {
    vec![
        reading::<overview::OverviewVerb>("overview")
            .shown_at("/")
            .tool(),
        reading::<requests::RequestsVerb>("requests")
            .shown_at("/traces")
            .tool(),
        reading::<failures::FailuresVerb>("failures").tool(),
        other("infer", infer::Infer::run)
            .saying::<infer::InferenceReport<'_>>()
            .paged::<infer::Infer>(&["shard", "clocks", "cluster", "cluster_deadline"]),
        other("merge", merge::MergeVerb::run).saying::<merge::MergedSays<'_>>(),
        other("model", model::ModelVerb::run)
            .saying::<model::ModelSays<'_>>()
            .paged::<model::ModelVerb>(&["compare", "top", "false_discoveries", "dot"]),
        reading::<critical_path::CriticalPath>("critical-path")
            .paged::<critical_path::CriticalPath>(OF_SHARDS)
            .tool(),
        reading::<slack::Slack>("slack")
            .paged::<slack::Slack>(OF_SHARDS)
            .tool(),
        reading::<anomalies::AnomaliesVerb>("anomalies")
            .paged::<anomalies::AnomaliesVerb>(OF_SHARDS)
            .tool(),
        reading::<operations::OperationsVerb>("operations")
            .paged::<operations::OperationsVerb>(OF_SHARDS)
            .tool(),
        reading::<map::MapVerb>("map")
            .paged::<map::MapVerb>(OF_SHARDS)
            .tool(),
        reading::<what_if::WhatIfVerb>("what-if").tool(),
        reading::<compare::CompareVerb>("compare")
            .paged::<compare::CompareVerb>(OF_COMMAND_LINE)
            .tool(),
        reading::<experiment::ExperimentVerb>("experiment")
            .paged::<experiment::ExperimentVerb>(OF_COMMAND_LINE)
            .tool(),
        other("pool", pool::PoolVerb::run).saying::<pool::PoolSays>(),
        reading::<explain::ExplainVerb>("explain")
            .paged::<explain::ExplainVerb>(OF_COMMAND_LINE)
            .tool(),
        reading::<flows::FlowsVerb>("flows").tool(),
        other("timeline", timeline::TimelineVerb::run)
            .saying::<timeline::TimelineSays>()
            .paged::<timeline::TimelineVerb>(&["format"])
            .tool(),
        reading::<predict::PredictVerb>("predict"),
        reading::<search::SearchVerb>("search")
            .paged::<search::SearchVerb>(&["assert", "junit", "markdown"])
            .tool(),
        other("report", report::ReportVerb::run).saying::<report::WrittenPage<'_>>(),
        reading::<clocks::Clocks>("clocks"),
        other("burst", burst::Burst::run).saying::<burst::BurstSays>(),
        other("tradeoffs", tradeoffs::TradeoffsVerb::run)
            .saying::<results::tradeoffs::TradeoffsSay>()
            .paged_as::<tradeoffs::LogVerb>("tradeoffs log", &[]),
        other("provenance", provenance::ProvenanceVerb::run)
            .saying::<provenance::ProvenanceSays>()
            .with_tables(provenance::TABLES)
            .paged_as::<provenance::ItemsVerb>("provenance show", &[]),
    ]
}

/// Returns the pages of all reports, except for those that richer pages replace.
pub fn pages() -> Vec<Page> {
    reports()
        .into_iter()
        .filter_map(|entry| entry.page)
        .filter(|page| page.richer_path.is_none())
        .collect()
}

/// Returns the reports that are tools for agents.
pub fn tools() -> impl Iterator<Item = Entry> {
    reports().into_iter().filter(|entry| entry.is_tool)
}

/// Returns the schema of a JSON output as a document of its own.
pub fn schema_document(of: fn(&mut SchemaGenerator) -> Schema, title: &str) -> Schema {
    let mut generator = SchemaSettings::draft2020_12()
        .for_serialize()
        .into_generator();
    let mut schema = of(&mut generator);
    let meta = generator.settings().meta_schema.clone();
    schema.insert("$schema".to_owned(), meta.into());
    schema.insert("title".to_owned(), title.into());
    let definitions = generator.take_definitions(true);
    if !definitions.is_empty() {
        schema.insert("$defs".to_owned(), definitions.into());
    }
    schema
}

/// Returns the SQL tables of all reports that have any.
pub fn tables() -> Vec<Tables> {
    reports()
        .into_iter()
        .filter_map(|entry| entry.tables)
        .collect()
}

/// Creates an entry for a subcommand that makes a report of a study.
pub fn reading<V: ReadingVerb + Args + 'static>(name: &'static str) -> Entry {
    let tables = Tables {
        specs: V::TABLES,
        document: document_of::<V>,
    };
    Entry {
        tables: Some(tables).filter(|tables| !tables.specs.is_empty()),
        ..other(name, |verb: V, runtime| verb.run(runtime))
    }
    .saying::<V::Report>()
    .paged::<V>(&[])
}

/// Creates an entry for any other subcommand, without SQL tables and without a page.
pub fn other<V: Args + 'static>(
    name: &'static str,
    run: impl Fn(V, &Runtime) -> Result<Status, Failure> + 'static,
) -> Entry {
    let run: Run = Box::new(move |matches, runtime| run(parsed::<V>(matches)?, runtime));
    Entry {
        name,
        command: V::augment_args,
        run,
        tables: None,
        is_confined: false,
        page: None,
        is_tool: false,
        schema: None,
    }
}

pub fn parsed<V: Args>(matches: &ArgMatches) -> Result<V, Failure> {
    // The command accepted the arguments, so its type does, too.
    V::from_arg_matches(matches).map_err(Failure::of)
}

fn document_of<V: ReadingVerb + Args>(data: &Path, study: &NamedStudy) -> Result<Doc, Failure> {
    Ok(arguments_on::<V>(data)?.answer(study)?.document())
}
