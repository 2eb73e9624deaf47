//! Sets of parts that merge.

use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use stroboscope_store::query_memory::QueryShare;
use stroboscope_store::tables::IdRange;

use super::error::ShardError;
use super::file::read_part;
use super::settings::ShardSettings;
use super::{Head, Kind, ShardReport, Snapshot};
use crate::infer_settings::InferSettings;
use crate::query_error::QueryError;

/// Memory needed to decode the contents of a file, as a multiple of their length.
pub(super) const CONTENTS_FORMS: usize = 4;

/// Part whose checksum and head were read.
#[derive(Debug)]
pub(super) struct KnownPart {
    pub(super) path: PathBuf,
    pub(super) head: Head,
    checksum: u128,
}

impl KnownPart {
    fn of(path: &Path) -> Result<Self, ShardError> {
        let file = read_part(path)?;
        match file.head.kind {
            Kind::Inference | Kind::Report(_) => {}
            Kind::Clocks => return Err(ShardError::OnlyClocks(path.to_owned())),
            Kind::MergedInference => return Err(ShardError::OnlyInference(path.to_owned())),
        }
        Ok(Self {
            path: path.to_owned(),
            head: file.head,
            checksum: file.checksum,
        })
    }

    /// Reads the part again, and returns its contents. Checks that the memory suffices to decode
    /// them, but does not keep it reserved.
    pub(super) fn contents<C: DeserializeOwned>(
        &self,
        share: &mut QueryShare,
    ) -> Result<C, ShardError> {
        let file = read_part(&self.path)?;
        if file.checksum != self.checksum {
            return Err(ShardError::Replaced(self.path.clone()));
        }
        let bytes = CONTENTS_FORMS.saturating_mul(file.contents_bytes);
        share.take(bytes).map_err(QueryError::lack_of_requests)?;
        share.give_back(bytes);
        file.contents()
    }

    pub(super) fn infer_settings(&self) -> Result<InferSettings, ShardError> {
        let settings = self.head.settings.infer_settings();
        settings.ok_or_else(|| ShardError::NotAPart(self.path.clone()))
    }
}

/// Parts of all shards of one snapshot, all of `infer` or all of one report, in order of their
/// shards.
#[derive(Debug)]
pub struct PartSet {
    pub(super) first: KnownPart,
    pub(super) others: Vec<KnownPart>,
}

impl PartSet {
    /// Returns the report of the parts; `None` if they are of `infer`.
    #[must_use]
    pub fn report(&self) -> Option<&ShardReport> {
        match &self.first.head.kind {
            Kind::Report(report) => Some(report),
            Kind::Inference | Kind::Clocks | Kind::MergedInference => None,
        }
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &KnownPart> {
        std::iter::once(&self.first).chain(&self.others)
    }

    /// Checks that the parts are of `infer`.
    ///
    /// # Errors
    /// Fails if they are of a report.
    pub fn check_is_of_inference(&self) -> Result<(), ShardError> {
        self.report().map_or(Ok(()), |report| {
            Err(ShardError::NotOfInference {
                path: self.first.path.clone(),
                report: report.name(),
            })
        })
    }

    /// Verifies the files, and checks that their parts merge, in any order.
    ///
    /// # Errors
    /// Fails if a file is damaged or no part, if the parts do not belong together, or if shards are
    /// missing or repeated.
    pub fn of(paths: &[PathBuf]) -> Result<Self, ShardError> {
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

/// Checks that a part has the same subcommand, number of shards, snapshot, settings, categories,
/// alignment of the clocks and inference as the first one.
fn check_belongs(known: &KnownPart, part: &KnownPart) -> Result<(), ShardError> {
    let (head, other) = (&known.head, &part.head);
    let (first, path) = (known.path.clone(), part.path.clone());
    let [first_report, report] = [head, other].map(|head| head.kind.name());
    if first_report != report {
        return Err(ShardError::Reports {
            first,
            first_report,
            path,
            report,
        });
    }
    if head.shard.count != other.shard.count {
        return Err(ShardError::Count {
            first,
            first_shard: head.shard,
            path,
            shard: other.shard,
        });
    }
    check_alike((&first, head), &path, other.snapshot, &other.settings)?;
    if head.kind != other.kind {
        let [(flag, first_value), (_, value)] = [head, other].map(|head| head.kind.setting());
        return Err(ShardError::Setting {
            first,
            path,
            flag,
            first_value,
            value,
        });
    }
    // Encoded alignments are compared, because floating-point numbers may be unequal to themselves.
    let encoded = |head: &Head| postcard::to_stdvec(&head.alignment);
    if encoded(head) != encoded(other) {
        return Err(ShardError::Alignment { first, path });
    }
    if head.inference != other.inference {
        return Err(ShardError::Inferences { first, path });
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
