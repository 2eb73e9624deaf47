//! Reports by shards, each with the model of all requests.

use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use stroboscope_store::query_memory::QueryShare;
use stroboscope_store::tables::IdRange;

use super::error::ShardError;
use super::file::write_part;
use super::inference::ShardInference;
use super::merge::PartSet;
use super::reading::ShardReading;
use super::{Kind, PartNotes, Shard, ShardReport, ShardSummary, StoreFacts};
use crate::inference::Inference;
use crate::notes::Notes;
use crate::query_error::QueryError;
use crate::saved_inference::SavedInference;
use crate::study::{Question, Study, StudyInput};

/// Question that several processes answer together: each saves the state of its passes over one
/// shard.
pub trait ShardQuestion: Question {
    /// State of the passes over the requests of a shard.
    type State: Serialize + DeserializeOwned;

    /// Returns the preparation of the pass over paths, which does not depend on the pass over
    /// records.
    fn shard_preparation(&self, inference: &Inference) -> Self::Preparation;

    /// Converts the passes over a shard to their state. `ids` are the trace ids of the shard;
    /// `None` if it is empty.
    ///
    /// # Errors
    /// Fails if the store cannot be read, or if there is too little memory.
    fn state(
        &self,
        studied: StudyInput<'_>,
        ids: Option<&IdRange>,
        records: Self::Records,
        paths: Self::Paths<'_>,
    ) -> Result<Self::State, QueryError>;

    /// Adds the state of another shard.
    fn merge_states(&self, whole: &mut Self::State, part: Self::State);

    /// Derives the answer from the state of all requests, like [`Question::answer`]. `inference`
    /// has no relations.
    ///
    /// # Errors
    /// Fails if there is no answer.
    fn conclude(
        &self,
        inference: &Inference,
        whole: Self::State,
        notes: Notes,
    ) -> Result<Self::Answer, QueryError>;
}

/// Two questions, asked together.
impl<A: ShardQuestion, B: ShardQuestion> ShardQuestion for (A, B) {
    type State = (A::State, B::State);

    fn shard_preparation(&self, inference: &Inference) -> Self::Preparation {
        (
            self.0.shard_preparation(inference),
            self.1.shard_preparation(inference),
        )
    }

    fn state(
        &self,
        studied: StudyInput<'_>,
        ids: Option<&IdRange>,
        records: Self::Records,
        paths: Self::Paths<'_>,
    ) -> Result<Self::State, QueryError> {
        Ok((
            self.0.state(studied, ids, records.0, paths.0)?,
            self.1.state(studied, ids, records.1, paths.1)?,
        ))
    }

    fn merge_states(&self, whole: &mut Self::State, part: Self::State) {
        self.0.merge_states(&mut whole.0, part.0);
        self.1.merge_states(&mut whole.1, part.1);
    }

    fn conclude(
        &self,
        inference: &Inference,
        whole: Self::State,
        notes: Notes,
    ) -> Result<Self::Answer, QueryError> {
        let first = self.0.conclude(inference, whole.0, notes.clone())?;
        Ok((first, self.1.conclude(inference, whole.1, notes)?))
    }
}

/// Results of a report for one shard.
#[derive(Serialize, Deserialize)]
struct ReportContents<S> {
    /// Inference that the report used, without pairs.
    inference: SavedInference,
    notes: PartNotes,
    store: StoreFacts,
    state: S,
}

/// Reads one shard of the selected traces for a report, and saves the state of its passes as a
/// part. The report uses `inference` or, without it, the inference of `study`, which is of all
/// traces. `location` is the location of the data as the user gave it.
///
/// # Errors
/// Fails if the store cannot be read or changes meanwhile, if `inference` is of another snapshot or
/// of other settings, if no trace is selected and complete, if there is too little memory, or if
/// the part cannot be written.
pub fn shard_report<Q: ShardQuestion>(
    study: &Study,
    (question, report): (&Q, ShardReport),
    (shard, inference): (Shard, Option<ShardInference>),
    (location, part): (&Path, &Path),
) -> Result<ShardSummary, ShardError> {
    let (source, selection) = (study.source(), study.selection());
    let reading = ShardReading::begin(source, selection, study.settings(), shard)?;
    let of_file;
    let study = match inference {
        None => study,
        Some(inference) => {
            reading.check(&inference.path, &inference.head, part)?;
            of_file = inference.into_study(study)?;
            &of_file
        }
    };
    let (bytes, summary) = report_part(reading, study, (question, report), location)?;
    write_part(part, &bytes)?;
    Ok(summary)
}

/// Reads a shard for a report, and encodes its part.
pub(super) fn report_part<Q: ShardQuestion>(
    reading: ShardReading<'_>,
    study: &Study,
    (question, report): (&Q, ShardReport),
    location: &Path,
) -> Result<(Vec<u8>, ShardSummary), ShardError> {
    let (source, selection) = (study.source(), study.selection());
    let inference = study.inference()?;
    let saved = SavedInference::of(inference);
    let identity = saved.identity();
    let saved = saved.without_pairs();
    let studied = StudyInput {
        source,
        selection,
        inference,
    };
    let ids = reading.ids.as_ref();
    let records = studied.over_records(question, ids)?;
    let prepared = question.shard_preparation(inference);
    let (paths, notes) = studied.over_paths(question, &prepared, ids)?;
    let store = StoreFacts::of(source, location);
    let contents = ReportContents {
        state: question.state(studied, ids, records, paths)?,
        inference: saved,
        notes: PartNotes::of(&notes, &store),
        store,
    };
    let used = (inference.clocks.clone(), Some(identity));
    let bytes = reading.encode(Kind::Report(report), used, &contents)?;
    let summary = ShardSummary {
        model_traces: inference.model.traces(),
        notes,
    };
    Ok((bytes, summary))
}

/// Answer of merged parts: equal to that of one run, except for results that a limit cuts.
#[derive(Debug)]
pub struct MergedReport<A> {
    pub answer: A,
    /// Inference that the report used, without relations.
    pub inference: Inference,
    /// Location of the data, as the user gave it to the first shard.
    pub location: PathBuf,
    /// Number of selected traces of all shards.
    pub traces: u64,
}

/// Merges the parts of all shards of a report. `question` must be the one of [`PartSet::report`].
/// Decodes one part at a time, so it needs the memory of two passes, as two threads of one run do.
/// `share` bounds the memory for decoding a part.
///
/// # Errors
/// Fails if a file is damaged or of another question, if there is no answer, or if there is too
/// little memory.
pub fn merge_report<Q: ShardQuestion>(
    parts: &PartSet,
    question: &Q,
    share: &mut QueryShare,
) -> Result<MergedReport<Q::Answer>, ShardError> {
    let first = &parts.first;
    let contents: ReportContents<Q::State> = first.contents(share)?;
    let (store, mut whole) = (contents.store, contents.state);
    let settings = first.infer_settings()?;
    let inference = contents.inference;
    let inference = inference.into_inference(&settings, store.notes());
    let inference = inference.map_err(|_| ShardError::NotAPart(first.path.clone()))?;
    let mut notes = store.notes();
    notes.merge(contents.notes.into_notes(&store));
    for part in &parts.others {
        let contents: ReportContents<Q::State> = part.contents(share)?;
        notes.merge(contents.notes.into_notes(&store));
        question.merge_states(&mut whole, contents.state);
    }
    Ok(MergedReport {
        traces: notes.traces,
        answer: question.conclude(&inference, whole, notes)?,
        inference,
        location: store.location.into(),
    })
}
