//! Reports by several processes that need not communicate: each reads one shard of the store and
//! saves a part, and the parts merge to the result of one run.
//!
//! A shard is a range of trace ids. All processes cut the store by the same statistics of its files
//! ([`ShardPlan`]), so the shards of one snapshot hold each trace once. A part names the snapshot,
//! the settings and the alignment of the clocks with which it was read. Parts merge only if all of
//! these are equal.
//!
//! The inference ([`infer_shard`], [`merge_parts`]) takes one round. The first traces of the store
//! give an estimate of the clocks' alignment, as in [`infer`]. If the evidence of all parts
//! contradicts it, they must be read again: [`merge_clocks`] saves the right alignment, and
//! [`infer_shard`] takes it.
//!
//! Critical paths need the model of all requests. [`save_inference`] saves the merged one, and
//! [`shard_report`] takes it for a second round, whose parts [`merge_report`] merges. A part of a
//! report also names the inference that it used.
//!
//! [`infer`]: super::infer()

mod error;
mod file;
mod inference;
mod merge;
mod reading;
mod report;
mod settings;
mod task;

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use stroboscope_analysis::clock::Alignment;
use stroboscope_store::tables::{Damage, IdRange, ShardPlan};
use twox_hash::XxHash3_128;

use super::categories::CategoryRule;
use super::notes::{KeptNotes, Notes};
use super::source::Source;
pub use error::ShardError;
use file::read_part;
pub use inference::{
    MergedInference, ShardInference, infer_shard, load_inference, merge_clocks, merge_parts,
    save_first_clocks, save_inference, save_kept_inference,
};
pub use merge::PartSet;
pub use report::{MergedReport, ShardQuestion, merge_report, shard_report};
use settings::ShardSettings;
pub use task::{ShardTask, TaskStore, task_version};

/// Version of the file format. It increases with every change, also of types that a part contains.
const VERSION: u32 = 4;
/// Version of this program.
const PROGRAM: &str = env!("CARGO_PKG_VERSION");
/// Maximum number of shards.
const SHARDS_MAX: u32 = 4_096;

/// One of the shards into which a store is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shard {
    /// Number of this shard, from 1 to `count`.
    pub number: u32,
    /// Number of all shards.
    pub count: u32,
}

/// Parses `NUMBER/COUNT`. Number 0 is the last shard, so that schedulers may count from 0 or 1.
impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let numbers = text.split_once('/').and_then(|(number, count)| {
            Some(Self {
                number: number.parse().ok()?,
                count: count.parse().ok()?,
            })
        });
        numbers
            .filter(|shard| (1..=SHARDS_MAX).contains(&shard.count))
            .filter(|shard| (0..=shard.count).contains(&shard.number))
            .map(|shard| match shard.number {
                0 => Self {
                    number: shard.count,
                    ..shard
                },
                _ => shard,
            })
            .ok_or_else(|| {
                format!("expected NUMBER/COUNT, such as 3/16, with COUNT at most {SHARDS_MAX}")
            })
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.number, self.count)
    }
}

/// Snapshot of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Snapshot {
    /// Hash of the names and sizes of the files, and of some of their contents.
    hash: u128,
    files: u64,
}

impl Snapshot {
    fn of(plan: &ShardPlan) -> Self {
        Self {
            hash: XxHash3_128::oneshot(plan.identity().as_bytes()),
            files: plan.files() as u64,
        }
    }
}

/// Report that several processes make together, with its settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ShardReport {
    /// Critical paths, with categories by this rule.
    CriticalPath(CategoryRule),
    Slack,
    Operations,
    Map,
    /// Differences of this share of the requests, the slowest ones, from the others.
    Anomalies(f64),
}

impl ShardReport {
    /// Returns the name of the subcommand.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::CriticalPath(_) => "critical-path",
            Self::Slack => "slack",
            Self::Operations => "operations",
            Self::Map => "map",
            Self::Anomalies(_) => "anomalies",
        }
    }

    /// Returns the setting in which parts of this report may differ: its flag and its value.
    fn setting(&self) -> (&'static str, String) {
        match self {
            Self::CriticalPath(rule) => {
                let by = rule.attribute_name();
                let by = if by.is_empty() { "none" } else { by };
                ("--category-by", by.to_owned())
            }
            Self::Anomalies(slowest) => ("--slowest", slowest.to_string()),
            Self::Slack | Self::Operations | Self::Map => ("", String::new()),
        }
    }
}

/// Content of a file of this format.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum Kind {
    /// Results of `infer` for one shard.
    Inference,
    /// Results of a report for one shard.
    Report(ShardReport),
    /// Alignment of the clocks for all shards.
    Clocks,
    /// Inference for all shards.
    MergedInference,
}

impl Kind {
    /// Returns the name of a subcommand that writes such files.
    fn name(&self) -> &'static str {
        match self {
            Self::Inference => "infer",
            Self::Report(report) => report.name(),
            Self::Clocks | Self::MergedInference => "merge",
        }
    }

    fn setting(&self) -> (&'static str, String) {
        match self {
            Self::Report(report) => report.setting(),
            Self::Inference | Self::Clocks | Self::MergedInference => ("", String::new()),
        }
    }
}

/// First section of a file: facts by which files are compared before their contents are decoded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Head {
    /// Version of the program that wrote the file.
    written_by: String,
    kind: Kind,
    shard: Shard,
    /// Trace ids of the shard; `None` if it is empty, or in a file that a merge wrote.
    ids: Option<IdRange>,
    snapshot: Snapshot,
    settings: ShardSettings,
    /// Alignment by which the timestamps were corrected; in a file of clocks, the one to use.
    alignment: Alignment,
    /// Hash of the inference that a report used, or that the file has; `None` in other files.
    inference: Option<u128>,
}

/// Notes about the requests of one shard.
#[derive(Serialize, Deserialize)]
struct PartNotes {
    notes: KeptNotes,
    /// Damaged files of traces.
    damage: Vec<Damage>,
}

impl PartNotes {
    fn of(notes: &Notes, store: &StoreFacts) -> Self {
        let is_of_traces =
            |flaw: &&Damage| store.damage.iter().all(|known| known.file != flaw.file);
        // Another shard may read a copy of the store in another directory.
        let named = |flaw: &Damage| Damage {
            file: below(&flaw.file, &store.directory),
            ..flaw.clone()
        };
        let damage = notes.damage.iter().filter(is_of_traces);
        Self {
            damage: damage.map(named).collect(),
            notes: KeptNotes::of(notes),
        }
    }

    /// Returns the notes, with damaged files named as in the directory of `store`.
    fn into_notes(self, store: &StoreFacts) -> Notes {
        let directory = Path::new(&store.directory);
        let named = |flaw: Damage| Damage {
            file: directory.join(&flaw.file).display().to_string(),
            ..flaw
        };
        self.notes.with(Notes {
            damage: self.damage.into_iter().map(named).collect(),
            ..Notes::default()
        })
    }
}

/// Returns the path of a file relative to `directory`, if it is in there.
fn below(file: &str, directory: &str) -> String {
    let relative = Path::new(file).strip_prefix(directory);
    relative.map_or_else(|_| file.to_owned(), |path| path.display().to_string())
}

/// Facts about the whole store. A merge uses those of the first part.
#[derive(Clone, Serialize, Deserialize)]
struct StoreFacts {
    /// Location of the data as the user gave it, and the directory that was read.
    location: String,
    directory: String,
    unsynchronised: Vec<Arc<str>>,
    unflushed_bytes: u64,
    /// Damaged files of batches.
    damage: Vec<Damage>,
}

impl StoreFacts {
    fn of(source: &Source, location: &Path) -> Self {
        let notes = source.first_notes();
        Self {
            location: location.display().to_string(),
            directory: source.name(),
            unsynchronised: notes.unsynchronised,
            unflushed_bytes: notes.unflushed_bytes,
            damage: notes.damage,
        }
    }

    fn notes(&self) -> Notes {
        Notes {
            unsynchronised: self.unsynchronised.clone(),
            unflushed_bytes: self.unflushed_bytes,
            damage: self.damage.clone(),
            ..Notes::default()
        }
    }
}

/// Alignment of the clocks for the shards of one snapshot and settings, by [`merge_clocks`] or
/// [`save_first_clocks`].
#[derive(Debug)]
pub struct ShardClocks {
    path: PathBuf,
    head: Head,
}

/// Loads the alignment of the clocks that [`merge_clocks`] or [`save_first_clocks`] has saved.
///
/// # Errors
/// Fails if the file cannot be read or is no such file.
pub fn load_clocks(path: &Path) -> Result<ShardClocks, ShardError> {
    let head = read_part(path)?.head;
    if head.kind != Kind::Clocks {
        return Err(ShardError::NotClocks(path.to_owned()));
    }
    Ok(ShardClocks {
        path: path.to_owned(),
        head,
    })
}

/// Summary of a shard that was read.
#[derive(Debug)]
pub struct ShardSummary {
    /// Number of traces in the model that the shard made or used.
    pub model_traces: u64,
    /// Notes about the data that was read.
    pub notes: Notes,
}
