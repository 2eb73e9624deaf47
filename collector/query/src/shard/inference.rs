//! Inference by shards: reads a shard, merges the parts of all, and keeps the result for reports.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use stroboscope_analysis::by_root::ByRoot;
use stroboscope_analysis::category::SpanKinds;
use stroboscope_analysis::clock::{Alignment, ClockEvidence};
use stroboscope_analysis::convergence::Convergence;
use stroboscope_analysis::model::Model;
use stroboscope_store::query_memory::QueryShare;
use stroboscope_store::tables::AttributeKeys;

use super::error::ShardError;
use super::file::{PartFile, encode_part, read_part, write_part};
use super::merge::PartSet;
use super::reading::ShardReading;
use super::{Head, Kind, PROGRAM, PartNotes, Shard, ShardClocks, ShardSummary, StoreFacts};
use crate::clocks::{as_selected, sampled};
use crate::infer::observe;
use crate::infer_settings::InferSettings;
use crate::inference::{Inference, KEPT_FORMS, MODEL_FORMS, PassResult};
use crate::query_error::QueryError;
use crate::recorded::RecordedSummary;
use crate::saved_inference::SavedInference;
use crate::saved_model::SavedModel;
use crate::source::{Selection, Source};
use crate::study::Study;

/// Results of `infer` for one shard.
#[derive(Serialize, Deserialize)]
struct PartContents {
    model: SavedModel,
    clocks: ClockEvidence,
    roots: ByRoot,
    kinds: SpanKinds,
    notes: PartNotes,
    store: StoreFacts,
    recorded: RecordedSummary,
}

impl PartContents {
    /// Returns the results, without the notes about the whole store. `path` is that of the part,
    /// and `facts` are those of the first part.
    fn into_results(self, path: &Path, facts: &StoreFacts) -> Result<PassResult, ShardError> {
        let model = Model::from_parts(&self.model.into());
        Ok(PassResult {
            model: model.map_err(|_| ShardError::NotAPart(path.to_owned()))?,
            clocks: self.clocks,
            notes: self.notes.into_notes(facts),
            convergence: Vec::new(),
            roots: self.roots,
            kinds: self.kinds,
        })
    }
}

/// Reads one shard of the selected traces, and saves the results as a part. `location` is the
/// location of the data as the user gave it. `clocks` is needed only if [`merge_parts`] fails with
/// [`ShardError::Clocks`] without it.
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
    let reading = ShardReading::begin(source, selection, settings, shard)?;
    let alignment = match clocks {
        None => sampled(source, selection)?,
        Some(ShardClocks { path, head }) => {
            reading.check(path, head, part)?;
            head.alignment.clone()
        }
    };
    let read = (source, selection, settings);
    let known = (alignment, source.recorded()?);
    let (bytes, summary) = infer_part(reading, read, known, location)?;
    write_part(part, &bytes)?;
    Ok(summary)
}

/// Reads a shard, with timestamps corrected by `alignment`, and encodes its part.
pub(super) fn infer_part(
    reading: ShardReading<'_>,
    (source, selection, settings): (&Source, Selection, &InferSettings),
    (alignment, recorded): (Alignment, RecordedSummary),
    location: &Path,
) -> Result<(Vec<u8>, ShardSummary), ShardError> {
    let (observed, ()) = observe(
        source,
        selection,
        settings,
        (&alignment, reading.ids.as_ref()),
        (&AttributeKeys::none(), || ()),
    )?;
    let store = StoreFacts::of(source, location);
    let contents = PartContents {
        model: SavedModel::from(observed.model.parts()),
        clocks: observed.clocks,
        roots: observed.roots,
        kinds: observed.kinds,
        notes: PartNotes::of(&observed.notes, &store),
        store,
        recorded,
    };
    let bytes = reading.encode(Kind::Inference, (alignment, None), &contents)?;
    let summary = ShardSummary {
        model_traces: observed.model.traces(),
        notes: observed.notes,
    };
    Ok((bytes, summary))
}

/// Result of merged parts: equal to that of one run, except for the convergence and for results
/// that a limit cuts.
#[derive(Debug)]
pub struct MergedInference {
    pub inference: Inference,
    /// Summary of all batches in the store.
    pub recorded: RecordedSummary,
    /// Location of the data, as the user gave it to the first shard.
    pub location: PathBuf,
    head: Head,
}

/// Merges the parts of all shards. `share` bounds the memory. With `convergence`, the inference
/// gets the last point of its convergence; the points before it depend on the order of traces,
/// which parts do not preserve.
///
/// # Errors
/// Fails if a file is damaged, if the parts are of a report, if the clocks require a second
/// reading, if no trace is selected and complete, or if there is too little memory.
pub fn merge_parts(
    parts: &PartSet,
    convergence: bool,
    share: &mut QueryShare,
) -> Result<MergedInference, ShardError> {
    parts.check_is_of_inference()?;
    let PartSet { first, others } = parts;
    let contents: PartContents = first.contents(share)?;
    let (facts, recorded) = (contents.store.clone(), contents.recorded.clone());
    let mut seen = contents.into_results(&first.path, &facts)?;
    hold(&seen.model, share)?;
    for part in others {
        let contents: PartContents = part.contents(share)?;
        seen.merge(contents.into_results(&part.path, &facts)?);
        hold(&seen.model, share)?;
    }
    let mut notes = facts.notes();
    notes.merge(std::mem::take(&mut seen.notes));
    seen.notes = notes;
    let head = first.head.clone();
    let clocks = as_selected(&seen.clocks, head.settings.selection());
    if !clocks.is_as(&head.alignment) {
        return Err(ShardError::Clocks);
    }
    let infer_settings = first.infer_settings()?;
    if convergence {
        let mut series = Convergence::every(u64::MAX, infer_settings.tolerance);
        series.finish(&seen.model);
        seen.convergence = series.points().to_vec();
    }
    let chosen = (head.settings.root.as_deref(), &*head.settings.filter);
    let inference = seen.conclude(clocks, &infer_settings, chosen)?;
    if inference.notes.traces == 0 {
        let none = QueryError::NoneInRange(facts.directory);
        return Err(none.with_damage(&inference.notes.damage).into());
    }
    Ok(MergedInference {
        inference,
        recorded,
        location: facts.location.into(),
        head,
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
/// Fails if a file is damaged, if the parts are of a report, if there is too little memory, or if
/// the file cannot be written.
pub fn merge_clocks(parts: &PartSet, to: &Path, share: &mut QueryShare) -> Result<(), ShardError> {
    parts.check_is_of_inference()?;
    let mut evidence = ClockEvidence::new();
    for part in parts.all() {
        evidence.merge(&part.contents::<PartContents>(share)?.clocks);
    }
    let first = parts.first.head.clone();
    let head = Head {
        written_by: PROGRAM.to_owned(),
        kind: Kind::Clocks,
        ids: None,
        alignment: as_selected(&evidence, first.settings.selection()),
        ..first
    };
    write_part(to, &encode_part(&head, &())?)
}

/// Saves an estimate of the clocks' alignment by the first traces of a store, for the shards of an
/// inference. [`merge_parts`] rejects it if the evidence of all traces contradicts it.
///
/// # Errors
/// Fails if the store cannot be read or changes meanwhile, if there is too little memory, or if the
/// file cannot be written.
pub fn save_first_clocks(study: &Study, to: &Path) -> Result<(), ShardError> {
    let alignment = sampled(study.source(), study.selection())?;
    let bytes = whole(study)?.encode(Kind::Clocks, (alignment, None), &())?;
    write_part(to, &bytes)
}

/// Saves the known or cached inference of a study to `to`, like [`save_inference`]. Returns false
/// if there is none.
///
/// # Errors
/// Fails if the store cannot be read or changes meanwhile, or if the file cannot be written.
pub fn save_kept_inference(study: &Study, to: &Path) -> Result<bool, ShardError> {
    let Some(inference) = study.kept_inference() else {
        return Ok(false);
    };
    let saved = SavedInference::of(inference);
    let known = (inference.clocks.clone(), Some(saved.identity()));
    let bytes = whole(study)?.encode(Kind::MergedInference, known, &saved)?;
    write_part(to, &bytes)?;
    Ok(true)
}

fn whole(study: &Study) -> Result<ShardReading<'_>, ShardError> {
    let one = Shard {
        number: 1,
        count: 1,
    };
    ShardReading::begin(study.source(), study.selection(), study.settings(), one)
}

/// Saves a merged inference to `to`, for [`shard_report`](super::shard_report).
///
/// # Errors
/// Fails if the file cannot be written.
pub fn save_inference(merged: &MergedInference, to: &Path) -> Result<(), ShardError> {
    let saved = SavedInference::of(&merged.inference);
    let head = Head {
        written_by: PROGRAM.to_owned(),
        kind: Kind::MergedInference,
        ids: None,
        alignment: merged.inference.clocks.clone(),
        inference: Some(saved.identity()),
        ..merged.head.clone()
    };
    write_part(to, &encode_part(&head, &saved)?)
}

/// Inference of one snapshot and settings, by [`save_inference`] or [`save_kept_inference`].
#[derive(Debug)]
pub struct ShardInference {
    pub(super) path: PathBuf,
    pub(super) head: Head,
    saved: SavedInference,
}

/// Loads the inference that [`save_inference`] or [`save_kept_inference`] has saved.
///
/// # Errors
/// Fails if the file cannot be read or is no such file.
pub fn load_inference(path: &Path) -> Result<ShardInference, ShardError> {
    ShardInference::of(path, read_part(path)?)
}

impl ShardInference {
    /// Decodes a file that was read.
    pub(super) fn of(path: &Path, file: PartFile) -> Result<Self, ShardError> {
        if file.head.kind != Kind::MergedInference {
            return Err(ShardError::NotAnInference(path.to_owned()));
        }
        Ok(Self {
            path: path.to_owned(),
            saved: file.contents()?,
            head: file.head,
        })
    }

    /// Returns a study of the same data as `study`, with this inference.
    pub(super) fn into_study(self, study: &Study) -> Result<Study, ShardError> {
        let (source, settings) = (study.shared_source(), study.settings().clone());
        let inference = self.saved.into_inference(&settings, source.first_notes());
        let inference = inference.map_err(|_| ShardError::NotAnInference(self.path))?;
        let bytes = KEPT_FORMS * inference.model.bytes();
        let kept = source.memory.keep_model(bytes);
        kept.map_err(QueryError::lack_of_requests)?;
        let selection = study.selection();
        Ok(Study::knowing(source, selection, settings, inference))
    }
}
