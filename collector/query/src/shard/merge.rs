//! Merges the parts of all shards.

use std::path::{Path, PathBuf};

use stroboscope_analysis::clock::ClockEvidence;
use stroboscope_analysis::convergence::Convergence;
use stroboscope_analysis::model::Model;
use stroboscope_store::query_memory::QueryShare;
use stroboscope_store::tables::{Damage, IdRange};

use super::error::ShardError;
use super::file::{read_part, write_part};
use super::settings::ShardSettings;
use super::{Head, Kind, PROGRAM, PartContents, Snapshot, StoreFacts};
use crate::clocks::as_selected;
use crate::inference::{Inference, MODEL_FORMS, PassResult};
use crate::notes::Notes;
use crate::query_error::QueryError;
use crate::recorded::RecordedSummary;

/// Multiple of the length of a part's contents that decoding them takes.
const CONTENTS_FORMS: usize = 4;

/// Result of merged parts: equal to that of one run.
#[derive(Debug)]
pub struct MergedInference {
    pub inference: Inference,
    /// Summary of all batches in the store.
    pub recorded: RecordedSummary,
    /// Location of the data, as the user gave it to the first shard.
    pub location: PathBuf,
}

/// Merges the parts of all shards, in any order. `share` bounds the memory. With `convergence`, the
/// inference gets the last point of its convergence; the points before it depend on the order of
/// traces, which parts do not have.
///
/// # Errors
/// Fails if a file is damaged or no part, if the parts do not belong together, if shards are
/// missing or repeated, if the clocks require a second reading, if no trace is selected and
/// complete, or if there is too little memory.
pub fn merge_parts(
    paths: &[PathBuf],
    convergence: bool,
    share: &mut QueryShare,
) -> Result<MergedInference, ShardError> {
    let PartSet { first, others } = PartSet::of(paths)?;
    let contents = first.contents(share)?;
    let facts = contents.store.clone();
    let mut seen = contents.into_results(&first.path, &facts)?;
    hold(&seen.model, share)?;
    for part in &others {
        seen.merge(part.contents(share)?.into_results(&part.path, &facts)?);
        hold(&seen.model, share)?;
    }
    let mut notes = facts.notes();
    notes.merge(std::mem::take(&mut seen.notes));
    seen.notes = notes;
    let KnownPart { path, head, .. } = &first;
    let settings = &head.settings;
    let clocks = as_selected(&seen.clocks, settings.selection());
    if !clocks.is_as(&head.alignment) {
        return Err(ShardError::Clocks);
    }
    let infer_settings = settings.infer_settings();
    let infer_settings = infer_settings.ok_or_else(|| ShardError::NotAPart(path.clone()))?;
    if convergence {
        let mut series = Convergence::every(u64::MAX, infer_settings.tolerance);
        series.finish(&seen.model);
        seen.convergence = series.points().to_vec();
    }
    let inference = seen.conclude(clocks, &infer_settings, settings.root())?;
    if inference.notes.traces == 0 {
        let none = QueryError::NoneInRange(facts.directory);
        return Err(none.with_damage(&inference.notes.damage).into());
    }
    Ok(MergedInference {
        inference,
        recorded: facts.recorded,
        location: facts.location.into(),
    })
}

/// Reserves the memory for a model that has grown.
fn hold(model: &Model, share: &mut QueryShare) -> Result<(), QueryError> {
    let more = (MODEL_FORMS * model.bytes()).saturating_sub(share.used());
    share.take(more).map_err(QueryError::lack_of_requests)
}

/// Merges the evidence of all parts about the clocks, and saves the alignment to `to`.
///
/// # Errors
/// Fails if a file is damaged or no part, if the parts do not belong together, if shards are
/// missing or repeated, if there is too little memory, or if the file cannot be written.
pub fn merge_clocks(
    paths: &[PathBuf],
    to: &Path,
    share: &mut QueryShare,
) -> Result<(), ShardError> {
    let parts = PartSet::of(paths)?;
    let mut evidence = ClockEvidence::new();
    for part in std::iter::once(&parts.first).chain(&parts.others) {
        evidence.merge(&part.contents(share)?.clocks);
    }
    let first = parts.first.head;
    let head = Head {
        written_by: PROGRAM.to_owned(),
        kind: Kind::Clocks,
        ids: None,
        alignment: as_selected(&evidence, first.settings.selection()),
        ..first
    };
    write_part(to, &head, &())
}

/// Part whose checksum and head were read.
struct KnownPart {
    path: PathBuf,
    head: Head,
    checksum: u128,
}

impl KnownPart {
    fn of(path: &Path) -> Result<Self, ShardError> {
        let file = read_part(path)?;
        if file.head.kind != Kind::Inference {
            return Err(ShardError::OnlyClocks(path.to_owned()));
        }
        Ok(Self {
            path: path.to_owned(),
            head: file.head,
            checksum: file.checksum,
        })
    }

    /// Reads the part again, and returns its contents. Their memory is only checked: it is free
    /// again when the next part is read.
    fn contents(&self, share: &mut QueryShare) -> Result<PartContents, ShardError> {
        let file = read_part(&self.path)?;
        if file.checksum != self.checksum {
            return Err(ShardError::Replaced(self.path.clone()));
        }
        let bytes = CONTENTS_FORMS.saturating_mul(file.contents_bytes);
        share.take(bytes).map_err(QueryError::lack_of_requests)?;
        share.give_back(bytes);
        file.contents()
    }
}

/// Parts of all shards of one snapshot, in order of their shards.
struct PartSet {
    first: KnownPart,
    others: Vec<KnownPart>,
}

impl PartSet {
    /// Verifies the files, and checks that their parts merge.
    fn of(paths: &[PathBuf]) -> Result<Self, ShardError> {
        let mut parts: Vec<KnownPart> = Vec::with_capacity(paths.len());
        for path in paths {
            let part = KnownPart::of(path)?;
            if let Some(first) = parts.first() {
                check_belongs(first, &part)?;
            }
            parts.push(part);
        }
        parts.sort_by_key(|part| part.head.shard.number);
        let repeated = parts
            .windows(2)
            .find(|pair| pair[0].head.shard == pair[1].head.shard);
        if let Some([first, second]) = repeated {
            return Err(ShardError::Duplicate {
                first: first.path.clone(),
                path: second.path.clone(),
                shard: first.head.shard,
            });
        }
        let count = parts.first().map_or(0, |part| part.head.shard.count);
        let is_missing = |number: &u32| {
            let number_of = |part: &KnownPart| part.head.shard.number;
            parts.binary_search_by_key(number, number_of).is_err()
        };
        let missing: Vec<u32> = (1..=count).filter(is_missing).collect();
        if !missing.is_empty() || parts.is_empty() {
            return Err(ShardError::Missing { missing, count });
        }
        if !IdRange::cover_all(parts.iter().filter_map(|part| part.head.ids)) {
            return Err(ShardError::Cut);
        }
        let mut parts = parts.into_iter();
        let first = parts.next().ok_or(ShardError::Cut)?;
        let others = parts.collect();
        Ok(Self { first, others })
    }
}

/// Checks that a part was read from the same snapshot as the first one, with the same settings.
fn check_belongs(known: &KnownPart, part: &KnownPart) -> Result<(), ShardError> {
    let (head, other) = (&known.head, &part.head);
    let (first, path) = (known.path.clone(), part.path.clone());
    if head.shard.count != other.shard.count {
        return Err(ShardError::Count {
            first,
            first_shard: head.shard,
            path,
            shard: other.shard,
        });
    }
    check_alike((&first, head), &path, other.snapshot, &other.settings)?;
    // Encoded alignments are compared, because floating-point numbers may be unequal to themselves.
    let encoded = |head: &Head| postcard::to_stdvec(&head.alignment);
    if encoded(head) != encoded(other) {
        return Err(ShardError::Alignment { first, path });
    }
    Ok(())
}

/// Checks that the file `path` is of the same snapshot and settings as the first one.
pub(super) fn check_alike(
    (first, head): (&Path, &Head),
    path: &Path,
    snapshot: Snapshot,
    settings: &ShardSettings,
) -> Result<(), ShardError> {
    let (first, path) = (first.to_owned(), path.to_owned());
    if head.snapshot != snapshot {
        return Err(ShardError::Snapshot {
            first,
            first_files: head.snapshot.files,
            path,
            files: snapshot.files,
        });
    }
    match head.settings.difference(settings) {
        None => Ok(()),
        Some((flag, first_value, value)) => Err(ShardError::Setting {
            first,
            path,
            flag,
            first_value,
            value,
        }),
    }
}

impl PartContents {
    /// Returns the results, without the notes about the whole store. `path` is that of the part,
    /// and damaged files are named as in the directory of `facts`.
    fn into_results(self, path: &Path, facts: &StoreFacts) -> Result<PassResult, ShardError> {
        let model = Model::from_parts(&self.model.into());
        let directory = Path::new(&facts.directory);
        let named = |flaw: Damage| Damage {
            file: directory.join(&flaw.file).display().to_string(),
            ..flaw
        };
        let notes = self.notes.with(Notes {
            damage: self.damage.into_iter().map(named).collect(),
            ..Notes::default()
        });
        Ok(PassResult {
            model: model.map_err(|_| ShardError::NotAPart(path.to_owned()))?,
            clocks: self.clocks,
            notes,
            convergence: Vec::new(),
            roots: self.roots,
            kinds: self.kinds,
        })
    }
}
