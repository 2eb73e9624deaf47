//! Study of a store: the selected data, their model, and the answers to questions.
//!
//! A [`Question`] declares the [passes](Pass) that it needs: one over records, for information that
//! it needs before critical paths are found, and one over critical paths. A study runs these
//! passes. The pass over records runs together with the inference, unless the model is known or
//! cached. Questions that are asked together share their passes: any number of them usually costs
//! two readings of the store together.

use std::sync::{Arc, OnceLock};

use stroboscope_analysis::critical_path::SlackUse;
use stroboscope_analysis::pass::{Pass, TraceView};
use stroboscope_analysis::record::TraceRecords;

use super::attribute_names::no_such_attribute;
use super::cutter::Cutter;
use super::infer::infer_riding;
use super::infer_settings::InferSettings;
use super::inference::Inference;
use super::kept_inference::KeptInference;
use super::notes::Notes;
use super::query_error::QueryError;
use super::source::{Selection, Source};
use stroboscope_store::tables::{AttributeKeys, IdRange};

/// Data that a question is asked about.
#[derive(Clone, Copy, Debug)]
pub struct StudyInput<'a> {
    /// Source of the data.
    pub source: &'a Source,
    pub selection: Selection,
    /// Model of the selected data.
    pub inference: &'a Inference,
}

/// Question about the traces of a store.
pub trait Question: Sync {
    /// Pass over records, which does not need the model; `()` for none.
    type Records: Pass<TraceRecords>;
    /// Information derived from the records, for the pass over paths.
    type Preparation: Sync;
    /// Pass over critical paths; `()` for none.
    type Paths<'a>: for<'view> Pass<TraceView<'view>>
    where
        Self: 'a;
    type Answer;

    /// Returns a description of the activity, for the progress display.
    fn what(&self) -> &'static str;

    /// Returns the attributes that the pass over records reads.
    fn record_keys(&self) -> AttributeKeys {
        AttributeKeys::none()
    }

    /// Creates the empty pass over records.
    fn records(&self) -> Self::Records;

    /// Derives the information for the pass over paths from the pass over records.
    ///
    /// # Errors
    /// Fails if there is no answer.
    fn prepare(
        &self,
        studied: StudyInput<'_>,
        records: Self::Records,
    ) -> Result<Self::Preparation, QueryError>;

    /// Returns the attributes that the pass over paths reads. The attributes of data elements are
    /// read in any case.
    fn path_keys(&self, _: &Self::Preparation) -> AttributeKeys {
        AttributeKeys::none()
    }

    /// Returns the use that the pass over paths makes of slack.
    fn slack_use(&self) -> SlackUse {
        SlackUse::Needed
    }

    /// Creates the empty pass over paths.
    fn paths<'a>(
        &'a self,
        studied: StudyInput<'a>,
        prepared: &'a Self::Preparation,
    ) -> Self::Paths<'a>;

    /// Observes a request that would be selected if it were complete. Its timestamps are aligned.
    fn pass_over<'a>(_: &mut Self::Paths<'a>, _: &TraceRecords)
    where
        Self: 'a,
    {
    }

    /// Derives the answer from the pass over paths and the notes taken while reading.
    ///
    /// # Errors
    /// Fails if there is no answer.
    fn answer(
        &self,
        studied: StudyInput<'_>,
        prepared: &Self::Preparation,
        paths: Self::Paths<'_>,
        notes: Notes,
    ) -> Result<Self::Answer, QueryError>;
}

/// Empty question, with which a study only infers the model.
impl Question for () {
    type Records = ();
    type Preparation = ();
    type Paths<'a> = ();
    type Answer = ();

    fn what(&self) -> &'static str {
        "inferring"
    }

    fn records(&self) {}

    fn prepare(&self, _: StudyInput<'_>, (): ()) -> Result<(), QueryError> {
        Ok(())
    }

    fn paths<'a>(&'a self, _: StudyInput<'a>, (): &'a ()) {}

    fn answer(&self, _: StudyInput<'_>, (): &(), (): (), _: Notes) -> Result<(), QueryError> {
        Ok(())
    }
}

/// Two questions, asked together.
impl<A: Question, B: Question> Question for (A, B) {
    type Records = (A::Records, B::Records);
    type Preparation = (A::Preparation, B::Preparation);
    type Paths<'a>
        = (A::Paths<'a>, B::Paths<'a>)
    where
        Self: 'a;
    type Answer = (A::Answer, B::Answer);

    fn what(&self) -> &'static str {
        self.0.what()
    }

    fn record_keys(&self) -> AttributeKeys {
        self.0.record_keys().and(&self.1.record_keys())
    }

    fn records(&self) -> Self::Records {
        (self.0.records(), self.1.records())
    }

    fn prepare(
        &self,
        studied: StudyInput<'_>,
        records: Self::Records,
    ) -> Result<Self::Preparation, QueryError> {
        Ok((
            self.0.prepare(studied, records.0)?,
            self.1.prepare(studied, records.1)?,
        ))
    }

    fn path_keys(&self, prepared: &Self::Preparation) -> AttributeKeys {
        self.0
            .path_keys(&prepared.0)
            .and(&self.1.path_keys(&prepared.1))
    }

    fn paths<'a>(
        &'a self,
        studied: StudyInput<'a>,
        prepared: &'a Self::Preparation,
    ) -> Self::Paths<'a> {
        (
            self.0.paths(studied, &prepared.0),
            self.1.paths(studied, &prepared.1),
        )
    }

    fn pass_over<'a>(paths: &mut Self::Paths<'a>, records: &TraceRecords)
    where
        Self: 'a,
    {
        A::pass_over(&mut paths.0, records);
        B::pass_over(&mut paths.1, records);
    }

    fn answer(
        &self,
        studied: StudyInput<'_>,
        prepared: &Self::Preparation,
        paths: Self::Paths<'_>,
        notes: Notes,
    ) -> Result<Self::Answer, QueryError> {
        let first = self
            .0
            .answer(studied, &prepared.0, paths.0, notes.clone())?;
        Ok((first, self.1.answer(studied, &prepared.1, paths.1, notes)?))
    }
}

/// Several questions of one kind, asked together.
impl<Q: Question> Question for Vec<Q> {
    type Records = Vec<Q::Records>;
    type Preparation = Vec<Q::Preparation>;
    type Paths<'a>
        = Vec<Q::Paths<'a>>
    where
        Self: 'a;
    type Answer = Vec<Q::Answer>;

    fn what(&self) -> &'static str {
        self.first().map_or("", Question::what)
    }

    fn record_keys(&self) -> AttributeKeys {
        self.iter().fold(AttributeKeys::none(), |keys, question| {
            keys.and(&question.record_keys())
        })
    }

    fn records(&self) -> Self::Records {
        self.iter().map(Question::records).collect()
    }

    fn prepare(
        &self,
        studied: StudyInput<'_>,
        records: Self::Records,
    ) -> Result<Self::Preparation, QueryError> {
        let each = self.iter().zip(records);
        each.map(|(question, records)| question.prepare(studied, records))
            .collect()
    }

    fn path_keys(&self, prepared: &Self::Preparation) -> AttributeKeys {
        let each = self.iter().zip(prepared);
        each.fold(AttributeKeys::none(), |keys, (question, of)| {
            keys.and(&question.path_keys(of))
        })
    }

    fn paths<'a>(
        &'a self,
        studied: StudyInput<'a>,
        prepared: &'a Self::Preparation,
    ) -> Self::Paths<'a> {
        let each = self.iter().zip(prepared);
        each.map(|(question, of)| question.paths(studied, of))
            .collect()
    }

    fn pass_over<'a>(paths: &mut Self::Paths<'a>, records: &TraceRecords)
    where
        Self: 'a,
    {
        let each = paths.iter_mut();
        each.for_each(|paths| Q::pass_over(paths, records));
    }

    fn answer(
        &self,
        studied: StudyInput<'_>,
        prepared: &Self::Preparation,
        paths: Self::Paths<'_>,
        notes: Notes,
    ) -> Result<Self::Answer, QueryError> {
        let each = self.iter().zip(prepared).zip(paths);
        each.map(|((question, of), paths)| question.answer(studied, of, paths, notes.clone()))
            .collect()
    }
}

/// Selected data of a store, and their model once it is inferred.
#[derive(Debug)]
pub struct Study {
    source: Arc<Source>,
    selection: Selection,
    settings: InferSettings,
    inference: OnceLock<Inference>,
}

impl Study {
    /// Creates a study of the selected data of a store. Reads nothing yet.
    #[must_use]
    pub fn new(
        source: impl Into<Arc<Source>>,
        selection: Selection,
        settings: InferSettings,
    ) -> Self {
        Self {
            source: source.into(),
            selection,
            settings,
            inference: OnceLock::new(),
        }
    }

    /// Creates a study whose model is already known.
    #[must_use]
    pub(super) fn knowing(
        source: Arc<Source>,
        selection: Selection,
        settings: InferSettings,
        inference: Inference,
    ) -> Self {
        Self {
            inference: OnceLock::from(inference),
            ..Self::new(source, selection, settings)
        }
    }

    /// Returns a shared handle of the source.
    #[must_use]
    pub fn shared_source(&self) -> Arc<Source> {
        self.source.clone()
    }

    /// Returns the settings of the inference.
    #[must_use]
    pub fn settings(&self) -> &InferSettings {
        &self.settings
    }

    #[must_use]
    pub fn source(&self) -> &Source {
        &self.source
    }

    #[must_use]
    pub fn selection(&self) -> Selection {
        self.selection
    }

    /// Returns the model. Infers it from all selected traces if it is neither known nor cached.
    ///
    /// # Errors
    /// Fails if the store cannot be read, memory is short, or no trace is selected and complete.
    pub fn inference(&self) -> Result<&Inference, QueryError> {
        self.inferred_with(&()).map(|(inference, _)| inference)
    }

    /// Returns the model if it is known or cached.
    pub(super) fn kept_inference(&self) -> Option<&Inference> {
        if self.inference.get().is_none() {
            let inference = self.kept()?.find(&self.settings)?;
            return Some(self.inference.get_or_init(|| inference));
        }
        self.inference.get()
    }

    /// Converts the study into its model, for callers that need nothing else.
    ///
    /// # Errors
    /// Fails under the same conditions as [`inference`](Self::inference).
    pub fn into_inference(self) -> Result<Inference, QueryError> {
        self.inference()?;
        self.inference
            .into_inner()
            .ok_or_else(|| QueryError::NoneInRange(self.source.name()))
    }

    /// Answers a question. Infers the model if it is neither known nor cached.
    ///
    /// # Errors
    /// Fails if the store cannot be read, if no trace is selected and complete, if memory is short,
    /// or if there is no answer.
    pub fn ask<Q: Question>(&self, question: &Q) -> Result<Q::Answer, QueryError> {
        let (inference, records) = self.inferred_with(question)?;
        let whole = Some(&IdRange::ALL);
        let studied = StudyInput {
            source: &self.source,
            selection: self.selection,
            inference,
        };
        let records = match records {
            Some(records) => records,
            None => studied.over_records(question, whole)?,
        };
        let prepared = question.prepare(studied, records)?;
        let (paths, notes) = studied.over_paths(question, &prepared, whole)?;
        question.answer(studied, &prepared, paths, notes)
    }

    /// Returns the model. If this call infers it, also returns the result of the question's pass
    /// over records; otherwise `None`.
    fn inferred_with<Q: Question>(
        &self,
        question: &Q,
    ) -> Result<(&Inference, Option<Q::Records>), QueryError> {
        if let Some(inference) = self.inference.get() {
            return Ok((inference, None));
        }
        let kept = self.kept();
        if let Some(inference) = kept.as_ref().and_then(|kept| kept.find(&self.settings)) {
            return Ok((self.inference.get_or_init(|| inference), None));
        }
        let (keys, new) = (question.record_keys(), || question.records());
        let (inference, records) =
            infer_riding(&self.source, self.selection, &self.settings, &keys, new)?;
        if inference.notes.traces == 0 {
            let none = QueryError::NoneInRange(self.source.name());
            return Err(none.with_damage(&inference.notes.damage));
        }
        if let Some(kept) = kept {
            kept.keep(&inference);
        }
        Ok((self.inference.get_or_init(|| inference), Some(records)))
    }

    /// Returns access to the cached model. Returns `None` if the source has no cache, or if the
    /// convergence is requested, which is not cached.
    fn kept(&self) -> Option<KeptInference<'_>> {
        let is_plain = self.settings.convergence.is_none();
        is_plain
            .then(|| KeptInference::of(&self.source, self.selection, &self.settings))
            .flatten()
    }
}

impl<'a> StudyInput<'a> {
    pub(super) fn no_such_attribute(self, attribute: &str) -> QueryError {
        no_such_attribute(self.source, self.selection, attribute)
    }

    /// Runs a question's pass over records of the traces with these ids; `None` for no traces.
    pub(super) fn over_records<Q: Question>(
        self,
        question: &Q,
        ids: Option<&IdRange>,
    ) -> Result<Q::Records, QueryError> {
        let mut whole = question.records();
        if whole.is_idle() {
            return Ok(whole);
        }
        let times_ns = self.selection.range.records_ns();
        let keys = question.record_keys();
        let parts = self.source.parts_between(times_ns, ids, &keys)?;
        let passes = (0..parts.count()).map(|_| question.records()).collect();
        let visit = |pass: &mut Q::Records, records: &mut TraceRecords, _: &mut Notes| {
            pass.observe(records);
        };
        let (what, selection) = (question.what(), self.selection);
        let (passes, _) = self.source.fold(what, selection, &parts, passes, visit)?;
        passes.into_iter().for_each(|of_part| whole.merge(of_part));
        Ok(whole)
    }

    /// Runs a question's pass over paths of the traces with these ids; `None` for no traces.
    pub(super) fn over_paths<Q: Question>(
        self,
        question: &'a Q,
        prepared: &'a Q::Preparation,
        ids: Option<&IdRange>,
    ) -> Result<(Q::Paths<'a>, Notes), QueryError> {
        let mut whole = question.paths(self, prepared);
        if whole.is_idle() {
            return Ok((whole, self.source.first_notes()));
        }
        let keys = question.path_keys(prepared).with_elements();
        let times_ns = self.selection.range.records_ns();
        let parts = self.source.parts_between(times_ns, ids, &keys)?;
        let slack = question.slack_use();
        let worker = |_| (Cutter::of(self.inference), question.paths(self, prepared));
        let workers = (0..parts.count()).map(worker).collect();
        type Worker<'a, Q> = (Cutter, <Q as Question>::Paths<'a>);
        let visit = |(cutter, pass): &mut Worker<'a, Q>, records: &mut TraceRecords, _: &mut _| {
            let (trace, path) = cutter.path_for(self.inference, records, slack);
            pass.observe(&TraceView {
                records,
                trace: &trace,
                labels: &cutter.labels,
                path: &path,
            });
        };
        let pass_over = |(_, pass): &mut Worker<'a, Q>, records: &mut TraceRecords| {
            self.inference.align(records);
            Q::pass_over(pass, records);
        };
        let (after, finish) = (|_: &mut _| Ok(0), |worker| worker);
        let made = (visit, pass_over, after, finish);
        let (what, selection) = (question.what(), self.selection);
        let (workers, mut notes) = self
            .source
            .fold_to(what, selection, &parts, workers, made)?;
        for (cutter, of_part) in workers {
            cutter.add_to(&mut notes);
            whole.merge(of_part);
        }
        Ok((whole, notes))
    }
}
