//! Registry of the reports. Each entry is a subcommand, and may have a page and SQL tables.

use std::path::Path;

use clap::{ArgMatches, Args, Command};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use stroboscope_render::show::Doc;
use tokio::runtime::Runtime;

use crate::failure::{Failure, Status};
use crate::study::NamedStudy;
use crate::verb::{Page, PageVerb, ReadingVerb, Tables, document};
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
    /// Page of the subcommand; `None` if it has none.
    pub page: Option<Page>,
    /// Returns the schema of the JSON that the subcommand prints.
    pub schema: Option<fn(&mut SchemaGenerator) -> Schema>,
}

impl Entry {
    /// Sets the type whose JSON the subcommand prints.
    #[must_use]
    pub fn saying<R: JsonSchema>(self) -> Self {
        Self {
            schema: Some(R::json_schema),
            ..self
        }
    }

    /// Adds a page with the arguments of the subcommand, except for those in `without`.
    #[must_use]
    pub fn paged<V: PageVerb + Args>(self, without: &'static [&'static str]) -> Self {
        let words = self.name;
        self.paged_as::<V>(words, without)
    }

    /// Makes the worker threads of the subcommand drop their capabilities when they start. The main
    /// thread must drop its own.
    #[must_use]
    pub fn confined(self) -> Self {
        Self {
            is_confined: true,
            ..self
        }
    }

    /// Adds a page for a nested subcommand, whose full name is `words`. The page lacks the
    /// arguments in `without`.
    #[must_use]
    pub fn paged_as<V: PageVerb + Args>(
        self,
        words: &'static str,
        without: &'static [&'static str],
    ) -> Self {
        let page = Page {
            name: self.name,
            words,
            without,
            command: V::augment_args,
            document: |matches, reader| parsed::<V>(matches)?.document(reader),
        };
        Self {
            page: Some(page),
            ..self
        }
    }
}

/// Arguments for verdicts in CI, which pages do not have.
const GATE: &[&str] = &["fail_on", "worse_by", "junit", "markdown"];

/// Returns all reports.
#[must_use]
pub fn reports() -> Vec<Entry> {
    vec![
        // The site has richer pages for these two: the start page and Traces.
        Entry {
            page: None,
            ..reading::<overview::OverviewVerb>("overview")
        },
        Entry {
            page: None,
            ..reading::<requests::RequestsVerb>("requests")
        },
        reading::<failures::FailuresVerb>("failures"),
        other("infer", infer::Infer::run)
            .saying::<infer::InferenceReport<'_>>()
            .paged::<infer::Infer>(&["shard", "clocks"]),
        other("merge", merge::MergeVerb::run).saying::<infer::InferenceReport<'_>>(),
        other("model", model::ModelVerb::run)
            .saying::<model::ModelSays<'_>>()
            .paged::<model::ModelVerb>(&["compare", "top", "false_discoveries", "dot"]),
        reading::<critical_path::CriticalPath>("critical-path"),
        reading::<slack::Slack>("slack"),
        reading::<anomalies::AnomaliesVerb>("anomalies"),
        reading::<operations::OperationsVerb>("operations"),
        reading::<map::MapVerb>("map"),
        reading::<what_if::WhatIfVerb>("what-if"),
        reading::<compare::CompareVerb>("compare").paged::<compare::CompareVerb>(GATE),
        reading::<experiment::ExperimentVerb>("experiment")
            .paged::<experiment::ExperimentVerb>(GATE),
        other("pool", pool::PoolVerb::run).saying::<pool::PoolSays>(),
        reading::<explain::ExplainVerb>("explain"),
        reading::<flows::FlowsVerb>("flows"),
        other("timeline", timeline::TimelineVerb::run)
            .saying::<timeline::TimelineSays>()
            .paged::<timeline::TimelineVerb>(&["format"]),
        reading::<predict::PredictVerb>("predict"),
        reading::<search::SearchVerb>("search")
            .paged::<search::SearchVerb>(&["assert", "junit", "markdown"]),
        other("report", report::ReportVerb::run).saying::<report::WrittenPage<'_>>(),
        reading::<clocks::Clocks>("clocks"),
        other("burst", burst::Burst::run).saying::<burst::BurstSays>(),
        other("tradeoffs", tradeoffs::TradeoffsVerb::run)
            .saying::<results::tradeoffs::TradeoffsSay>()
            .paged_as::<tradeoffs::LogVerb>("tradeoffs log", &[]),
        other("provenance", provenance::ProvenanceVerb::run)
            .saying::<provenance::ProvenanceReport>(),
    ]
}

/// Returns the pages of all reports.
#[must_use]
pub fn pages() -> Vec<Page> {
    reports()
        .into_iter()
        .filter_map(|entry| entry.page)
        .collect()
}

/// Returns the SQL tables of all reports that have any.
#[must_use]
pub fn tables() -> Vec<Tables> {
    reports()
        .into_iter()
        .filter_map(|entry| entry.tables)
        .collect()
}

/// Creates an entry for a subcommand that makes a report of a study.
#[must_use]
pub fn reading<V: ReadingVerb + Args>(name: &'static str) -> Entry {
    let run: Run = Box::new(|matches, runtime| parsed::<V>(matches)?.run(runtime));
    let tables = Tables {
        specs: V::TABLES,
        document: document_of::<V>,
    };
    Entry {
        name,
        command: V::augment_args,
        run,
        tables: Some(tables).filter(|tables| !tables.specs.is_empty()),
        is_confined: false,
        page: None,
        schema: None,
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
        schema: None,
    }
}

pub fn parsed<V: Args>(matches: &ArgMatches) -> Result<V, Failure> {
    // The command accepted the arguments, so its type does, too.
    V::from_arg_matches(matches).map_err(Failure::of)
}

fn document_of<V: ReadingVerb + Args>(data: &Path, study: &NamedStudy) -> Result<Doc, Failure> {
    let command = V::augment_args(Command::new("verb"));
    let arguments = ["verb".as_ref(), "--data".as_ref(), data.as_os_str()];
    let matches = command
        .try_get_matches_from(arguments)
        .map_err(Failure::of)?;
    document(&parsed::<V>(&matches)?, study)
}
