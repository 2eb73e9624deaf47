//! The `merge` subcommand.

use std::path::PathBuf;

use clap::Args;
use tokio::runtime::Runtime;

use crate::arguments::ShowArguments;
use crate::infer::InferenceReport;
use crate::memory_limit::{of_verb, parse_reading_limit};
use crate::output::print;
use crate::study::NamedInference;
use crate::verb::{Form, give_as};
use crate::{Failure, Status};
use stroboscope_query::{PartSet, merge_clocks, merge_parts, save_model};
use stroboscope_render::show::Names;

/// Print the causal model from the parts of all shards
///
/// `infer --shard NUMBER/COUNT --save PART` reads one shard of a store, on any machine. This
/// subcommand merges the parts of all shards, in any order, and prints the result of one run of
/// `infer`. It rejects parts of different snapshots of the store or with different settings, and
/// damaged files. It does not read the store.
#[derive(Debug, Args)]
pub struct MergeVerb {
    /// Parts of all shards
    #[arg(value_name = "PART", required = true)]
    parts: Vec<PathBuf>,
    /// Print JSON instead of text. Its `convergence` has only the last point
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    show: ShowArguments,
    /// Also save the model, for `model --load`; compressed by zstd if the name ends in .zst
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// Only save how to correct the hosts' clocks, for `infer --shard … --clocks FILE`. Needed if
    /// the first requests of the store, by which shards correct clocks, prove misleading
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["json", "html", "parquet", "full_names", "save"]
    )]
    save_clocks: Option<PathBuf>,
    /// Memory for the parts and the model [default: 60 % of the control group's limit, or of the
    /// machine's memory]
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
        let merged = merge_parts(&parts, self.json, &mut share).map_err(Failure::of)?;
        if let Some(path) = &self.save {
            save_model(&merged.inference.model, path).map_err(Failure::of)?;
        }
        let names = Names::of(merged.inference.model.labels());
        let known = NamedInference::new(&merged.inference, &names);
        let form = Form {
            data: &merged.location,
            is_json: self.json,
            out: None,
        };
        let of = (known, &merged.recorded);
        let report = InferenceReport::of(of, &merged.location, self.save.as_deref());
        give_as(&report, &form, &self.show)
    }
}
