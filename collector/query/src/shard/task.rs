//! Shards as tasks for workers that read the same store.
//!
//! A task has a *basis*: the file of clocks or of an inference that all shards of a round use. It
//! names the snapshot, the settings and the alignment, so a task adds only the report and the
//! shard. A worker keeps its store open while the basis stays the same and no task fails.

use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use stroboscope_analysis::clock::Alignment;
use stroboscope_search::parse;
use stroboscope_store::query_memory::QueryMemory;
use stroboscope_store::tables::ShardPlan;
use tokio::runtime::Handle;
use twox_hash::XxHash3_128;

use super::error::ShardError;
use super::file::parse_part;
use super::inference::{ShardInference, infer_part};
use super::merge::CONTENTS_FORMS;
use super::reading::ShardReading;
use super::report::{ShardQuestion, report_part};
use super::settings::ShardSettings;
use super::{Kind, PROGRAM, Shard, ShardReport, Snapshot, VERSION};
use crate::filter::Filter;
use crate::query_error::QueryError;
use crate::recorded::RecordedSummary;
use crate::source::{Selection, Source};
use crate::study::Study;

/// Name of a basis in errors.
const BASIS: &str = "of the driver";

/// Shard of the inference or of a report, for a worker.
#[derive(Debug, Serialize, Deserialize)]
pub struct ShardTask<'a> {
    /// Report of the shard; `None` for the inference.
    pub report: Option<ShardReport>,
    pub shard: Shard,
    /// Contents of the basis: a file of clocks for the inference, or an inference for a report.
    #[serde(borrow)]
    basis: &'a [u8],
}

impl<'a> ShardTask<'a> {
    /// Creates the task of one shard. `basis` is the contents of a file of clocks, or of an
    /// inference for a report.
    #[must_use]
    pub fn new(report: Option<ShardReport>, shard: Shard, basis: &'a [u8]) -> Self {
        Self {
            report,
            shard,
            basis,
        }
    }

    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        // Encoding to memory cannot fail. A worker would reject an empty task.
        postcard::to_stdvec(self).unwrap_or_default()
    }

    /// Decodes a task. Only a program of the same [`task_version`] can run it.
    ///
    /// # Errors
    /// Fails if the bytes are no task.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, ShardError> {
        let task: Self = postcard::from_bytes(bytes).map_err(|_| ShardError::Task)?;
        // A number out of range would be no shard.
        let shard: Result<Shard, _> = task.shard.to_string().parse();
        match shard {
            Ok(shard) if shard == task.shard => Ok(task),
            _ => Err(ShardError::Task),
        }
    }

    fn basis_identity(&self) -> u128 {
        XxHash3_128::oneshot(self.basis)
    }
}

/// Returns the version of tasks and parts, which programs must share to exchange them.
#[must_use]
pub fn task_version() -> String {
    format!("stroboscope {PROGRAM} with parts of version {VERSION}")
}

/// Store that a worker has opened for the tasks of one basis.
#[derive(Debug)]
pub struct TaskStore {
    basis: u128,
    study: Study,
    settings: ShardSettings,
    plan: Arc<ShardPlan>,
    alignment: Alignment,
    /// Summary of all batches, for the inference; `None` for reports.
    recorded: Option<RecordedSummary>,
}

impl TaskStore {
    /// Opens the store in `directory` for tasks with the basis of `task`.
    ///
    /// # Errors
    /// Fails if the basis is damaged or of another kind, if the store cannot be read or has another
    /// snapshot or other settings, or if there is too little memory.
    pub fn open(
        directory: &Path,
        task: &ShardTask<'_>,
        memory: &QueryMemory,
        runtime: Handle,
    ) -> Result<Self, ShardError> {
        let path = Path::new(BASIS);
        let file = parse_part(path, task.basis)?;
        let (settings, alignment) = (file.head.settings.clone(), file.head.alignment.clone());
        let infer_settings = settings.infer_settings().ok_or(ShardError::Task)?;
        let source = Source::open_cached(directory, runtime)?.with_memory(memory);
        let selection = settings.whole_selection();
        let source = settings.apply(source, selection)?;
        let times_ns = selection.range.records_ns();
        let plan = ShardPlan::of(source.store(), &times_ns).map_err(QueryError::from)?;
        let (own, asked) = (Snapshot::of(&plan), file.head.snapshot);
        if own != asked {
            return Err(ShardError::Stale {
                directory: source.name(),
                own: own.short(),
                own_files: own.files,
                asked: asked.short(),
                asked_files: asked.files,
            });
        }
        // If the driver declares no requests, those that the directory declares apply here; there
        // must be none.
        let own = ShardSettings::of(&source, selection, &infer_settings);
        if let Some((flag, first_value, value)) = settings.difference(&own) {
            return Err(ShardError::Setting {
                first: path.to_owned(),
                path: directory.to_owned(),
                flag,
                first_value,
                value,
            });
        }
        let study = Study::new(source, selection, infer_settings);
        let (study, recorded) = match file.head.kind {
            Kind::Clocks => {
                let recorded = study.source().recorded()?;
                (study, Some(recorded))
            }
            _ => {
                // The driver states the size, so reserve the memory for decoding first.
                let bytes = CONTENTS_FORMS.saturating_mul(file.contents_bytes);
                let mut share = memory.share();
                share.take(bytes).map_err(QueryError::lack_of_requests)?;
                (ShardInference::of(path, file)?.into_study(&study)?, None)
            }
        };
        Ok(Self {
            basis: task.basis_identity(),
            study,
            settings,
            plan: Arc::new(plan),
            alignment,
            recorded,
        })
    }

    /// Reports whether the store was opened for the basis of `task`.
    #[must_use]
    pub fn is_for(&self, task: &ShardTask<'_>) -> bool {
        self.basis == task.basis_identity()
    }

    /// Reads a shard of the inference, and returns its part. `location` is the location of the data
    /// as the user gave it.
    ///
    /// # Errors
    /// Fails if the basis is no file of clocks, if the store cannot be read or changes meanwhile,
    /// or if there is too little memory.
    pub fn infer(&self, shard: Shard, location: &Path) -> Result<Vec<u8>, ShardError> {
        let recorded = self.recorded.clone().ok_or(ShardError::Task)?;
        let study = &self.study;
        let read = (study.source(), study.selection(), study.settings());
        let known = (self.alignment.clone(), recorded);
        let part = infer_part(self.reading(shard), read, known, location);
        part.map(|(bytes, _)| bytes)
    }

    /// Reads a shard for a report like [`infer`](Self::infer). The basis must be an inference.
    ///
    /// # Errors
    /// Fails if the basis is a file of clocks, if the store cannot be read or changes meanwhile, or
    /// if there is too little memory.
    pub fn report<Q: ShardQuestion>(
        &self,
        asked: (&Q, ShardReport),
        shard: Shard,
        location: &Path,
    ) -> Result<Vec<u8>, ShardError> {
        if self.recorded.is_some() {
            return Err(ShardError::Task);
        }
        let part = report_part(self.reading(shard), &self.study, asked, location);
        part.map(|(bytes, _)| bytes)
    }

    fn reading(&self, shard: Shard) -> ShardReading<'_> {
        let (source, plan) = (self.study.source(), self.plan.clone());
        ShardReading::of_plan(source, plan, self.settings.clone(), shard)
    }
}

impl ShardSettings {
    /// Applies the settings that select requests.
    fn apply(&self, source: Source, selection: Selection) -> Result<Source, ShardError> {
        let source = source.with_root(self.root.clone());
        let source = source.with_requests(&self.requests);
        let filter = match &*self.filter {
            "" => None,
            text => {
                let formula = parse(text);
                let formula = formula.map_err(|error| ShardError::Formula(error.to_string()))?;
                Some(Filter::new(&source, selection, text, formula)?)
            }
        };
        Ok(source.with_filter(filter))
    }
}

impl Snapshot {
    /// Returns the first digits of the hash, for messages.
    fn short(self) -> u32 {
        (self.hash >> 96) as u32
    }
}
