//! The `merge` subcommand.

use std::path::{Path, PathBuf};

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use stroboscope_query::{
    AnomalyQuestion, MAP, Notes, OPERATIONS, PartSet, PathsQuestion, ShardQuestion, ShardReport,
    merge_clocks, merge_parts, merge_report, save_inference, save_model,
};
use stroboscope_render::show::{Doc, Names};
use stroboscope_store::query_memory::QueryShare;
use tokio::runtime::Runtime;

use crate::arguments::ShowArguments;
use crate::critical_path::{self, CriticalPathReport};
use crate::infer::InferenceReport;
use crate::map::{self, MapReport};
use crate::memory_limit::{of_verb, parse_reading_limit};
use crate::operations::{self, OperationsReport};
use crate::output::print;
use crate::results::anomalies::Anomalies;
use crate::slack::{self, SlackReport};
use crate::study::NamedInference;
use crate::verb::{Report, give_as};
use crate::{Failure, Status, anomalies};

/// Print a report from the parts of all shards
///
/// A subcommand with `--shard NUMBER/COUNT --save PART` reads one shard of a store, on any machine.
/// This subcommand merges the parts of all shards, in any order, and prints the result that a run
/// without shards prints. It rejects parts of different snapshots of the store, of different
/// subcommands, models or settings, and damaged files. It does not read the store.
#[derive(Debug, Args)]
pub struct MergeVerb {
    /// Parts of all shards
    #[arg(value_name = "PART", required = true)]
    parts: Vec<PathBuf>,
    /// Print JSON instead of text. The `convergence` of `infer` has only the last point
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    show: ShowArguments,
    /// Maximum number of segments, operations or services to show; 0 shows all [default: that of
    /// the subcommand]
    #[arg(long, value_name = "COUNT")]
    top: Option<usize>,
    /// With parts of `infer`, also save the model, for `model --load`; compressed by zstd if the
    /// name ends in .zst
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// With parts of `infer`, also save the model with the clocks and the root operations, for the
    /// shards of other subcommands with `--inference FILE`
    #[arg(long, value_name = "FILE")]
    save_inference: Option<PathBuf>,
    /// Only save how to correct the hosts' clocks, for `infer --shard … --clocks FILE`. Needed if
    /// the first requests of the store, by which shards correct clocks, prove misleading
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["json", "html", "parquet", "full_names", "top", "save", "save_inference"]
    )]
    save_clocks: Option<PathBuf>,
    /// Memory for the parts and the model [default: 60 % of the control group's limit or the
    /// machine's memory; at least 256 MiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_reading_limit)]
    memory_limit: Option<u64>,
}

impl MergeVerb {
    pub fn run(self, _: &Runtime) -> Result<Status, Failure> {
        let mut share = of_verb(self.memory_limit).share();
        let parts = PartSet::of(&self.parts).map_err(Failure::of)?;
        if let Some(path) = &self.save_clocks {
            merge_clocks(&parts, path, &mut share).map_err(Failure::of)?;
            print(&format!(
                "Saved to {}.\nNext: run all shards again with `--clocks {}`, and merge their parts.",
                path.display(),
                path.display()
            ))?;
            return Ok(Status::Done);
        }
        let Some(report) = parts.report() else {
            return self.give_inference(&parts, &mut share);
        };
        if self.save.is_some() || self.save_inference.is_some() {
            parts.check_is_of_inference().map_err(Failure::of)?;
        }
        let top = |default: usize| self.top.unwrap_or(default);
        match report {
            ShardReport::CriticalPath(rule) => {
                let question = PathsQuestion(rule.clone());
                self.give_report((&parts, &question), &mut share, |paths, known, _| {
                    let top = top(critical_path::TOP);
                    MergedSays::CriticalPath(CriticalPathReport::of(paths, known, top))
                })
            }
            ShardReport::Slack => {
                let question = PathsQuestion::default();
                self.give_report((&parts, &question), &mut share, |paths, known, _| {
                    MergedSays::Slack(SlackReport::of(&paths, known, top(slack::TOP)))
                })
            }
            ShardReport::Operations => {
                self.give_report((&parts, &OPERATIONS), &mut share, |found, known, _| {
                    let top = top(operations::TOP);
                    MergedSays::Operations(Box::new(OperationsReport::of(found, known, top)))
                })
            }
            ShardReport::Map => {
                self.give_report((&parts, &MAP), &mut share, |found, known, data| {
                    let top = top(map::TOP);
                    MergedSays::Map(Box::new(MapReport::of(found, known, (top, data))))
                })
            }
            ShardReport::Anomalies(slowest) => {
                let question = AnomalyQuestion(*slowest);
                self.give_report((&parts, &question), &mut share, |found, known, _| {
                    let top = top(anomalies::TOP);
                    MergedSays::Anomalies(Box::new(Anomalies::of(found, known, top)))
                })
            }
        }
    }

    fn give_inference(&self, parts: &PartSet, share: &mut QueryShare) -> Result<Status, Failure> {
        let merged = merge_parts(parts, self.json, share).map_err(Failure::of)?;
        if let Some(path) = &self.save {
            save_model(&merged.inference.model, path).map_err(Failure::of)?;
        }
        if let Some(path) = &self.save_inference {
            save_inference(&merged, path).map_err(Failure::of)?;
        }
        let names = Names::of(merged.inference.model.labels());
        let known = NamedInference::new(&merged.inference, &names);
        let of = (known, &merged.recorded);
        let saved = self.save.as_deref().or(self.save_inference.as_deref());
        let report = InferenceReport::of(of, &merged.location, saved);
        self.give(&MergedSays::Inference(Box::new(report)), &merged.location)
    }

    fn give_report<Q: ShardQuestion>(
        &self,
        (parts, question): (&PartSet, &Q),
        share: &mut QueryShare,
        report: impl FnOnce(Q::Answer, NamedInference<'_>, &Path) -> MergedSays<'static>,
    ) -> Result<Status, Failure> {
        let merged = merge_report(parts, question, share).map_err(Failure::of)?;
        let names = Names::of(merged.inference.model.labels());
        let known = NamedInference::new(&merged.inference, &names);
        let report = report(merged.answer, known, &merged.location);
        self.give(&report, &merged.location)
    }

    fn give(&self, report: &MergedSays<'_>, data: &Path) -> Result<Status, Failure> {
        give_as(report, data, self.json, None, &self.show)
    }
}

/// Report of merged parts.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
pub enum MergedSays<'a> {
    Inference(Box<InferenceReport<'a>>),
    CriticalPath(CriticalPathReport),
    Slack(SlackReport),
    Operations(Box<OperationsReport>),
    Map(Box<MapReport>),
    Anomalies(Box<Anomalies>),
}

impl Report for MergedSays<'_> {
    fn notes(&self) -> &Notes {
        match self {
            Self::Inference(report) => report.notes(),
            Self::CriticalPath(report) => report.notes(),
            Self::Slack(report) => report.notes(),
            Self::Operations(report) => report.notes(),
            Self::Map(report) => report.notes(),
            Self::Anomalies(report) => report.notes(),
        }
    }

    fn show(&self, doc: &mut Doc) {
        match self {
            Self::Inference(report) => report.show(doc),
            Self::CriticalPath(report) => report.show(doc),
            Self::Slack(report) => report.show(doc),
            Self::Operations(report) => report.show(doc),
            Self::Map(report) => report.show(doc),
            Self::Anomalies(report) => report.show(doc),
        }
    }
}
