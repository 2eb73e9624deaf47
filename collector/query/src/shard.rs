//! Inference by several processes that do not communicate: each reads one shard of the store and
//! saves a part, and the parts merge to the result of one run.
//!
//! A shard is a range of trace ids. All processes cut the store by the same statistics of its files
//! ([`ShardPlan`]), so the shards of one snapshot hold each trace once. A part names the snapshot,
//! the settings and the alignment of the clocks that it was read with, and parts merge only if all
//! of these are equal.
//!
//! The first traces of the store give an estimate of the clocks' alignment, as in [`infer`]. If the
//! evidence of all parts contradicts it, they must be read again: [`merge_clocks`] saves the right
//! alignment, and [`infer_shard`] takes it.
//!
//! [`infer`]: super::infer()

mod error;
mod file;
mod merge;
mod settings;

use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use stroboscope_analysis::by_root::ByRoot;
use stroboscope_analysis::category::SpanKinds;
use stroboscope_analysis::clock::{Alignment, ClockEvidence};
use stroboscope_store::tables::{AttributeKeys, Damage, IdRange, ShardPlan};
use twox_hash::XxHash3_128;

use super::clocks::sampled;
use super::infer::observe;
use super::infer_settings::InferSettings;
use super::notes::{KeptNotes, Notes};
use super::query_error::QueryError;
use super::recorded::RecordedSummary;
use super::saved_model::SavedModel;
use super::source::{Selection, Source};
pub use error::ShardError;
use file::{read_part, write_part};
pub use merge::{MergedInference, merge_clocks, merge_parts};
use settings::ShardSettings;

/// Version of the file format. It increases with every change, also of types that a part contains.
const VERSION: u32 = 1;
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

/// Content of a file of this format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Kind {
    /// Results of `infer` for one shard.
    Inference,
    /// Alignment of the clocks by all shards.
    Clocks,
}

/// First section of a file: facts by which files are compared before their contents are decoded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Head {
    /// Version of the program that wrote the file.
    written_by: String,
    kind: Kind,
    shard: Shard,
    /// Trace ids of the shard; `None` if it is empty.
    ids: Option<IdRange>,
    snapshot: Snapshot,
    settings: ShardSettings,
    /// Alignment by which the timestamps were corrected; in a file of clocks, the right one.
    alignment: Alignment,
}

/// Second section of a part: the results for one shard.
#[derive(Serialize, Deserialize)]
struct PartContents {
    model: SavedModel,
    clocks: ClockEvidence,
    roots: ByRoot,
    kinds: SpanKinds,
    notes: KeptNotes,
    /// Damaged files of traces.
    damage: Vec<Damage>,
    store: StoreFacts,
}

/// Facts about the whole store, which are equal in all parts.
#[derive(Clone, Serialize, Deserialize)]
struct StoreFacts {
    /// Location of the data as the user gave it, and the directory that was read.
    location: String,
    directory: String,
    recorded: RecordedSummary,
    unsynchronised: Vec<Arc<str>>,
    unflushed_bytes: u64,
    /// Damaged files of batches.
    damage: Vec<Damage>,
}

impl StoreFacts {
    fn notes(&self) -> Notes {
        Notes {
            unsynchronised: self.unsynchronised.clone(),
            unflushed_bytes: self.unflushed_bytes,
            damage: self.damage.clone(),
            ..Notes::default()
        }
    }
}

/// Alignment of the clocks for the shards of one snapshot and settings, by [`merge_clocks`].
#[derive(Debug)]
pub struct ShardClocks {
    path: std::path::PathBuf,
    head: Head,
}

/// Loads the alignment of the clocks that [`merge_clocks`] has saved.
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
    /// Number of traces in the model of the shard.
    pub model_traces: u64,
    /// Notes about the data that was read.
    pub notes: Notes,
}

/// Reads one shard of the selected traces, and saves the results as a part. `location` is the
/// location of the data as the user gave it. `clocks` is needed only if [`merge_parts`] asks for
/// it.
///
/// # Errors
/// Fails if the store cannot be read or changes meanwhile, if `clocks` are of another snapshot or
/// of other settings, if there is too little memory, or if the part cannot be written.
pub fn infer_shard(
    source: &Source,
    selection: Selection,
    settings: &InferSettings,
    (shard, clocks): (Shard, Option<&ShardClocks>),
    (location, part): (&Path, &Path),
) -> Result<ShardSummary, ShardError> {
    let store = source.store();
    let plan = ShardPlan::of(store, &selection.range.records_ns()).map_err(QueryError::from)?;
    let snapshot = Snapshot::of(&plan);
    let shard_settings = ShardSettings::of(source, selection, settings);
    let alignment = match clocks {
        None => sampled(source, selection)?,
        Some(ShardClocks { path, head }) => {
            merge::check_alike((path, head), part, snapshot, &shard_settings)?;
            head.alignment.clone()
        }
    };
    let shards = plan.shards(shard.count as usize);
    let ids = shards.get(shard.number as usize - 1).copied();
    let (observed, ()) = observe(
        source,
        selection,
        settings,
        (&alignment, ids.as_ref()),
        (&AttributeKeys::none(), || ()),
    )?;
    let facts = StoreFacts {
        location: location.display().to_string(),
        directory: source.name(),
        recorded: source.recorded()?,
        unsynchronised: observed.notes.unsynchronised.clone(),
        unflushed_bytes: observed.notes.unflushed_bytes,
        damage: source.first_notes().damage,
    };
    let is_unchanged = plan.is_of(store).map_err(QueryError::from)?
        && source.cache().is_none_or(|cache| cache.is_of(store));
    if !is_unchanged {
        return Err(ShardError::Changing(source.name()));
    }
    let is_of_traces = |flaw: &&Damage| facts.damage.iter().all(|known| known.file != flaw.file);
    // Another shard may read a copy of the store in another directory.
    let named = |flaw: &Damage| Damage {
        file: below(&flaw.file, &facts.directory),
        ..flaw.clone()
    };
    let damage = observed.notes.damage.iter().filter(is_of_traces);
    let contents = PartContents {
        damage: damage.map(named).collect(),
        model: SavedModel::from(observed.model.parts()),
        clocks: observed.clocks,
        roots: observed.roots,
        kinds: observed.kinds,
        notes: KeptNotes::of(&observed.notes),
        store: facts,
    };
    let head = Head {
        written_by: PROGRAM.to_owned(),
        kind: Kind::Inference,
        shard,
        ids,
        snapshot,
        settings: shard_settings,
        alignment,
    };
    write_part(part, &head, &contents)?;
    Ok(ShardSummary {
        model_traces: observed.model.traces(),
        notes: observed.notes,
    })
}

/// Returns the path of a file relative to `directory`, if it is in there.
fn below(file: &str, directory: &str) -> String {
    let relative = Path::new(file).strip_prefix(directory);
    relative.map_or_else(|_| file.to_owned(), |path| path.display().to_string())
}
