//! Arguments of reports that several processes make together, shard by shard.

use std::path::{Path, PathBuf};

use clap::Args;
use stroboscope_query::{
    Shard, ShardQuestion, ShardReport, ShardSummary, load_inference, shard_report,
};
use stroboscope_render::humanise::counted;
use tokio::runtime::Runtime;

use crate::arguments::{ReadingArguments, ShowArguments};
use crate::cluster::ClusterArguments;
use crate::output::print;
use crate::study::{NamedInference, NamedStudy};
use crate::verb::Report;
use crate::{Failure, Status, notes};

/// Arguments for one shard of a report.
#[derive(Clone, Debug, Args)]
pub struct ShardArguments {
    /// Read only this shard of the requests, such as 3/16, and save its results as a part. `merge`
    /// prints the report from the parts of all shards
    #[arg(
        long,
        value_name = "NUMBER/COUNT",
        requires = "save",
        conflicts_with_all = ["json", "html", "parquet", "full_names", "top"]
    )]
    shard: Option<Shard>,
    /// With --shard, the file to save the part to
    #[arg(long, value_name = "PART", requires = "shard")]
    save: Option<PathBuf>,
    /// With --shard, use the model in this file of `merge --save-inference`. Without it, each shard
    /// infers the model of all requests, unless it is in the cache of the data directory
    #[arg(long, value_name = "FILE", requires = "shard")]
    inference: Option<PathBuf>,
    #[command(flatten)]
    cluster: ClusterArguments,
}

/// Arguments of [`ShardArguments`] that pages do not have, besides those that name files.
pub const OF_SHARDS: &[&str] = &["shard", "cluster", "cluster_deadline"];

impl ShardArguments {
    /// Reads the requested shard, and saves its part. With `--cluster`, prints the report that
    /// `of` makes of the answer. Returns `None` if neither is requested.
    pub fn run<Q: ShardQuestion, R: Report>(
        &self,
        (reading, show): (&ReadingArguments, &ShowArguments),
        (question, report): (&Q, ShardReport),
        runtime: &Runtime,
        of: impl FnOnce(Q::Answer, NamedInference<'_>) -> R,
    ) -> Option<Result<Status, Failure>> {
        if self.cluster.is_asked() {
            let asked = (question, report);
            return Some(self.cluster.run(reading, show, asked, runtime, of));
        }
        let (shard, part) = (self.shard?, self.save.as_deref()?);
        let run = || {
            let inference = self.inference.as_deref().map(load_inference).transpose();
            let inference = inference.map_err(Failure::of)?;
            let study = NamedStudy::of(reading, runtime.handle())?;
            let data = &reading.from.data.data;
            let asked = (question, report);
            let summary = shard_report(study.inner(), asked, (shard, inference), (data, part));
            tell(&summary.map_err(Failure::of)?, shard, part)
        };
        Some(run())
    }
}

/// Prints a summary of a shard. Damaged files are no reason to fail: `merge` reports them, and a
/// scheduler would run the job again in vain.
pub fn tell(summary: &ShardSummary, shard: Shard, part: &Path) -> Result<Status, Failure> {
    print(&format!(
        "Shard {} of {}: {}, {} complete, {} in the model\nSaved to {}.\nNext: `stroboscope merge PART…` with the \
         parts of all shards prints the result.",
        shard.number,
        shard.count,
        counted(summary.notes.traces, "trace"),
        summary.notes.complete_traces,
        summary.model_traces,
        part.display(),
    ))?;
    notes::tell(&summary.notes);
    Ok(Status::Done)
}
