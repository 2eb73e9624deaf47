//! Reports by several worker processes: arguments and rounds of the driver, and tasks of workers.
//!
//! The shards are those of `shard`. The driver estimates how to correct the clocks, lets the
//! workers infer, and merges their parts; if the evidence of all shards contradicts the estimate,
//! it repeats the round once. A report takes one more round, with the merged model. It takes only
//! that round if the model is cached.

#[cfg(feature = "cluster")]
mod rounds;
#[cfg(feature = "cluster")]
mod tasks;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use stroboscope_query::{MergedInference, RecordedSummary, ShardQuestion, ShardReport};
use tokio::runtime::Runtime;

use crate::arguments::{ReadingArguments, ShowArguments, parse_duration};
use crate::study::NamedInference;
use crate::verb::Report;
use crate::{Failure, Status};

#[cfg(feature = "cluster")]
pub use tasks::StoreTasks;

/// Arguments of a driver.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Cluster")]
pub struct ClusterArguments {
    /// Let these workers read the requests: HOST:PORT or https://HOST:PORT each, separated by
    /// commas, or one name with several addresses. `stroboscope worker` is a worker. All must read
    /// the store that --data names, and no collector may write to it meanwhile. Needs a binary
    /// built with the `cluster` feature
    #[arg(
        long,
        value_name = "HOST:PORT",
        value_delimiter = ',',
        conflicts_with = "shard"
    )]
    cluster: Vec<String>,
    /// Maximum time for a shard on a worker. There are four shards for each worker, at most 4096 in
    /// all. A shard that takes longer goes to another worker
    #[arg(long, value_name = "DURATION", default_value = "10min", value_parser = parse_duration)]
    cluster_deadline: Duration,
    /// Authority that signed the certificates of https workers, as PEM [default: those of the
    /// system]
    #[arg(long, value_name = "FILE", requires = "cluster")]
    cluster_ca: Option<PathBuf>,
    /// Certificate for workers that require one, with its chain, as PEM
    #[arg(long, value_name = "FILE", requires_all = ["cluster", "cluster_key"])]
    cluster_cert: Option<PathBuf>,
    /// Private key of --cluster-cert, as PEM
    #[arg(long, value_name = "FILE", requires = "cluster_cert")]
    cluster_key: Option<PathBuf>,
    /// File with the token for the workers, which has the role `read`
    #[arg(long, value_name = "FILE", requires = "cluster")]
    cluster_token_file: Option<PathBuf>,
}

impl ClusterArguments {
    /// Reports whether workers shall read the requests.
    pub fn is_asked(&self) -> bool {
        !self.cluster.is_empty()
    }

    /// Lets workers infer the model. Also returns a summary of all batches.
    pub fn infer(
        &self,
        reading: &ReadingArguments,
        runtime: &Runtime,
    ) -> Result<(MergedInference, RecordedSummary), Failure> {
        #[cfg(feature = "cluster")]
        return rounds::ClusterRun::open(self, reading, runtime)?.into_inference();
        #[cfg(not(feature = "cluster"))]
        return not_built((reading, runtime));
    }

    /// Lets workers read the requests for a report, and prints it.
    pub fn run<Q: ShardQuestion, R: Report>(
        &self,
        reading: &ReadingArguments,
        show: &ShowArguments,
        (question, report): (&Q, ShardReport),
        runtime: &Runtime,
        of: impl FnOnce(Q::Answer, NamedInference<'_>) -> R,
    ) -> Result<Status, Failure> {
        #[cfg(feature = "cluster")]
        return rounds::ClusterRun::open(self, reading, runtime)?.give(
            show,
            (question, report),
            of,
        );
        #[cfg(not(feature = "cluster"))]
        return not_built((reading, show, question, report, runtime, of));
    }
}

/// Returns the failure of a binary without the `cluster` feature.
#[cfg(not(feature = "cluster"))]
fn not_built<T, R>(_unused: T) -> Result<R, Failure> {
    Err(Failure::new(NOT_BUILT))
}

/// Reason why a binary without the `cluster` feature can neither drive workers nor be a worker.
#[cfg(not(feature = "cluster"))]
pub const NOT_BUILT: &str = "this binary was built without the cluster: build with `cargo build --release --features cluster` \
     (DataFusion compiles for many minutes). `--shard` and `merge` divide a report over machines without it";
