//! Errors of runs over shards.

use std::io;
use std::path::PathBuf;

use super::{PROGRAM, Shard, VERSION};
use crate::query_error::QueryError;

/// Reason why a run over shards failed.
#[derive(Debug, thiserror::Error)]
pub enum ShardError {
    #[error(transparent)]
    Query(#[from] QueryError),
    #[error("cannot read the part {}: {error}", path.display())]
    Read { path: PathBuf, error: io::Error },
    #[error("cannot write to {}: {error}", path.display())]
    Write { path: PathBuf, error: io::Error },
    #[error("cannot encode the results of a shard: {0}")]
    Encode(io::Error),
    /// The store of a worker has other files than that of the driver.
    #[error(
        "its store {directory} is at snapshot {own:08x} ({own_files} files), and the driver's at {asked:08x} \
         ({asked_files} files): workers and driver must read the same store, which no collector writes to meanwhile"
    )]
    Stale {
        directory: String,
        own: u32,
        own_files: u64,
        asked: u32,
        asked_files: u64,
    },
    /// The request for a shard has another format, or its basis is invalid or does not fit it.
    #[error("the request for a shard cannot be decoded")]
    Task,
    /// The formula of `--where` cannot be parsed, although the driver has parsed it.
    #[error("cannot parse the formula of --where: {0}")]
    Formula(String),
    /// The files of the store changed while the shard was read.
    #[error(
        "the files of {0} changed while the shard was read, so it may not fit the others; read a copy of the store, or \
         one that no collector writes to, and run all shards again"
    )]
    Changing(String),
    /// The file has another format, or its contents contradict each other.
    #[error("{} is no part; `--shard NUMBER/COUNT --save PART` of `stroboscope infer` and of reports writes one", .0.display())]
    NotAPart(PathBuf),
    /// The file contains no alignment of clocks.
    #[error("{} has no clocks; `stroboscope merge --save-clocks FILE PART…` writes them", .0.display())]
    NotClocks(PathBuf),
    /// The file contains the alignment of clocks, and no results.
    #[error(
        "{} has the clocks of all shards, and no results: run the shards with --clocks {}, and merge their parts",
        .0.display(), .0.display()
    )]
    OnlyClocks(PathBuf),
    /// The file contains no inference of all shards, or one that contradicts itself.
    #[error(
        "{} has no inference of all shards; `stroboscope merge --save-inference FILE PART…` with the parts of `infer` \
         writes it", .0.display()
    )]
    NotAnInference(PathBuf),
    /// The file contains the inference of all shards, and is no part.
    #[error(
        "{} has the inference of all shards, and is no part: run the shards of a report with --inference {}, and merge \
         their parts", .0.display(), .0.display()
    )]
    OnlyInference(PathBuf),
    /// The parts belong to a report, but parts of `infer` are needed.
    #[error("{} is a part of `{report}`, and those of `infer` are needed", path.display())]
    NotOfInference { path: PathBuf, report: &'static str },
    /// The parts are of different reports.
    #[error(
        "{} is a part of `{first_report}`, and {} of `{report}`: merge the parts of each subcommand on their own",
        first.display(), path.display()
    )]
    Reports {
        first: PathBuf,
        first_report: &'static str,
        path: PathBuf,
        report: &'static str,
    },
    /// The parts used different inferences.
    #[error(
        "{} and {} used different inferences; run all shards with the same --inference FILE", first.display(),
        path.display()
    )]
    Inferences { first: PathBuf, path: PathBuf },
    /// The file has another version of the format.
    #[error(
        "the part {} has version {found} of the format, and this program reads version {VERSION}; merge it with the \
         program that wrote it, or run its shard again", path.display()
    )]
    Version { path: PathBuf, found: u32 },
    /// Another version of the program wrote the file.
    #[error(
        "the part {} was written by stroboscope {written_by}, and this is {PROGRAM}, whose results may differ; run its \
         shard again, or merge with that version", path.display()
    )]
    Program { path: PathBuf, written_by: String },
    /// The file was truncated, or its bytes changed.
    #[error(
        "the part {} is damaged: {reason}; run its shard again, or copy the file again", path.display()
    )]
    Damaged { path: PathBuf, reason: &'static str },
    /// The parts have different numbers of shards.
    #[error(
        "{} is shard {first_shard}, and {} is shard {shard}: merge parts with the same number of shards",
        first.display(), path.display()
    )]
    Count {
        first: PathBuf,
        first_shard: Shard,
        path: PathBuf,
        shard: Shard,
    },
    /// Two files, or a file and this run, are of different snapshots of the store.
    #[error(
        "{} and {} are of different snapshots: the files of the store were not the same ({first_files} and {files} \
         files). Read a copy of the store, or one that no collector writes to, and run all shards again",
        first.display(), path.display()
    )]
    Snapshot {
        first: PathBuf,
        first_files: u64,
        path: PathBuf,
        files: u64,
    },
    /// The settings of two files, or of a file and this run, differ.
    #[error(
        "{} and {} have different settings: {flag} is {first_value} in the first, and {value} in the second; run the \
         shards with the same one{}", first.display(), path.display(), advice(flag)
    )]
    Setting {
        first: PathBuf,
        path: PathBuf,
        flag: &'static str,
        first_value: String,
        value: String,
    },
    /// The parts used different alignments of the clocks.
    #[error(
        "{} and {} were read with different alignments of the clocks; run all shards with the same --clocks FILE, or \
         all without", first.display(), path.display()
    )]
    Alignment { first: PathBuf, path: PathBuf },
    /// Two parts are of the same shard.
    #[error("{} and {} are both shard {shard}; merge one of them", first.display(), path.display())]
    Duplicate {
        first: PathBuf,
        path: PathBuf,
        shard: Shard,
    },
    /// Some shards have no part.
    #[error("{} of {count} shards are missing: {}; run them, and merge all parts", missing.len(), listed(missing))]
    Missing { missing: Vec<u32>, count: u32 },
    #[error("the part {} was replaced while parts were merged; merge again", .0.display())]
    Replaced(PathBuf),
    /// The shards do not contain each trace once.
    #[error(
        "the shards were not cut alike, although their snapshots are equal; run all shards again"
    )]
    Cut,
    /// The evidence of all parts contradicts the alignment with which they were read.
    #[error(
        "the clocks of the hosts are not as the first traces of the store suggested, with which the parts were read. Run \
         `stroboscope merge --save-clocks CLOCKS PART…`, then all shards again with --clocks CLOCKS, and merge these \
         parts"
    )]
    Clocks,
}

/// Maximum number of missing shards that an error lists.
const LISTED_MAX: usize = 20;

fn listed(missing: &[u32]) -> String {
    let numbers = missing.iter().take(LISTED_MAX).map(u32::to_string);
    let more = if missing.len() > LISTED_MAX {
        ", …"
    } else {
        ""
    };
    format!("{}{more}", numbers.collect::<Vec<_>>().join(", "))
}

/// Returns advice on a flag whose value may depend on the time at which a shard starts; empty for
/// other flags.
fn advice(flag: &str) -> &'static str {
    match flag {
        "--since" | "--until" => ", as a time such as 2026-11-21T10:00, not as an age",
        _ => "",
    }
}
