//! Shard of a snapshot that is being read, and the encoding of its results.

use std::path::Path;
use std::sync::Arc;

use serde::Serialize;
use stroboscope_analysis::clock::Alignment;
use stroboscope_store::tables::{IdRange, ShardPlan};

use super::error::ShardError;
use super::file::encode_part;
use super::merge::check_alike;
use super::settings::ShardSettings;
use super::{Head, Kind, PROGRAM, Shard, Snapshot};
use crate::infer_settings::InferSettings;
use crate::query_error::QueryError;
use crate::source::{Selection, Source};

/// Shard of a snapshot that is being read.
pub(super) struct ShardReading<'a> {
    source: &'a Source,
    plan: Arc<ShardPlan>,
    settings: ShardSettings,
    shard: Shard,
    /// Trace ids of the shard; `None` if it is empty.
    pub(super) ids: Option<IdRange>,
}

impl<'a> ShardReading<'a> {
    pub(super) fn begin(
        source: &'a Source,
        selection: Selection,
        settings: &InferSettings,
        shard: Shard,
    ) -> Result<Self, ShardError> {
        let times_ns = selection.range.records_ns();
        let plan = ShardPlan::of(source.store(), &times_ns).map_err(QueryError::from)?;
        let settings = ShardSettings::of(source, selection, settings);
        Ok(Self::of_plan(source, Arc::new(plan), settings, shard))
    }

    pub(super) fn of_plan(
        source: &'a Source,
        plan: Arc<ShardPlan>,
        settings: ShardSettings,
        shard: Shard,
    ) -> Self {
        let shards = plan.shards(shard.count as usize);
        Self {
            source,
            settings,
            shard,
            ids: shards.get(shard.number as usize - 1).copied(),
            plan,
        }
    }

    /// Checks that the file `path` is of the same snapshot and settings. `part` is the part that
    /// the shard will write.
    pub(super) fn check(&self, path: &Path, head: &Head, part: &Path) -> Result<(), ShardError> {
        let snapshot = Snapshot::of(&self.plan);
        check_alike((path, head), part, snapshot, &self.settings)
    }

    /// Checks that the snapshot is still that of the store, and encodes a file with the contents.
    pub(super) fn encode(
        self,
        kind: Kind,
        (alignment, inference): (Alignment, Option<u128>),
        contents: &impl Serialize,
    ) -> Result<Vec<u8>, ShardError> {
        let store = self.source.store();
        let is_unchanged = self.plan.is_of(store).map_err(QueryError::from)?
            && self.source.cache().is_none_or(|cache| cache.is_of(store));
        if !is_unchanged {
            return Err(ShardError::Changing(self.source.name()));
        }
        let head = Head {
            written_by: PROGRAM.to_owned(),
            kind,
            shard: self.shard,
            ids: self.ids,
            snapshot: Snapshot::of(&self.plan),
            settings: self.settings,
            alignment,
            inference,
        };
        encode_part(&head, contents)
    }
}
