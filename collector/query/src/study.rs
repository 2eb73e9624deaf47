//! A study of a store: what is read of it, the model of that, and the answers to questions.
//!
//! A [`Question`] says which [passes](Pass) it needs: one over records, where it needs to know something before the paths
//! are found, and one over paths. A study runs them: what is to be known of records is found by the pass that infers,
//! unless the model is known already; questions that are asked together share their passes. So a question costs two
//! readings of the store, and none of them more because another one is asked with it.

use std::sync::{Arc, OnceLock};

use stroboscope_analysis::critical_path::{TracePath, analyse, drop_unsure_slack, settle};
use stroboscope_analysis::exclusion::Exclusion;
use stroboscope_analysis::label::Labels;
use stroboscope_analysis::pass::{Pass, TraceView};
use stroboscope_analysis::record::TraceRecords;
use stroboscope_analysis::segment::{SegmentedTrace, Segmenter};

use super::infer::{Inference, IsExcluded, exclusion, infer_riding, segmenter};
use super::infer_settings::InferSettings;
use super::kept_inference::KeptInference;
use super::notes::Notes;
use super::query_error::QueryError;
use super::source::{Selection, Source};
use stroboscope_store::tables::AttributeKeys;

/// What is known when a question is asked.
#[derive(Clone, Copy, Debug)]
pub struct Studied<'a> {
    /// What is read.
    pub source: &'a Source,
    pub selection: Selection,
    /// The model of that.
    pub inference: &'a Inference,
}

/// Something to be found out about the traces of a store.
pub trait Question: Sync {
    /// What it counts over records, before there is a model; `()`: nothing.
    type Records: Pass<TraceRecords>;
    /// What it makes of that, for its pass over paths.
    type Prepared: Sync;
    /// What it counts over paths; `()`: nothing.
    type Paths<'a>: for<'view> Pass<TraceView<'view>>
    where
        Self: 'a;
    type Answer;

    /// What it does, for the progress shown.
    fn what(&self) -> &'static str;

    /// The attributes that its pass over records sees.
    fn record_keys(&self) -> AttributeKeys {
        AttributeKeys::none()
    }

    /// Its pass over records, empty.
    fn records(&self) -> Self::Records;

    /// What all records have shown.
    ///
    /// # Errors
    /// When there is no answer.
    fn prepare(
        &self,
        studied: Studied<'_>,
        records: Self::Records,
    ) -> Result<Self::Prepared, QueryError>;

    /// The attributes that its pass over paths sees. What records say of elements is read in any case.
    fn path_keys(&self, _: &Self::Prepared) -> AttributeKeys {
        AttributeKeys::none()
    }

    /// Its pass over paths, empty.
    fn paths<'a>(&'a self, studied: Studied<'a>, prepared: &'a Self::Prepared) -> Self::Paths<'a>;

    /// What all paths have shown, and what was noticed on the way.
    ///
    /// # Errors
    /// When there is no answer.
    fn answer(
        &self,
        studied: Studied<'_>,
        prepared: &Self::Prepared,
        paths: Self::Paths<'_>,
        notes: Notes,
    ) -> Result<Self::Answer, QueryError>;
}

/// Nothing is asked.
impl Question for () {
    type Records = ();
    type Prepared = ();
    type Paths<'a> = ();
    type Answer = ();

    fn what(&self) -> &'static str {
        "inferring"
    }

    fn records(&self) {}

    fn prepare(&self, _: Studied<'_>, (): ()) -> Result<(), QueryError> {
        Ok(())
    }

    fn paths<'a>(&'a self, _: Studied<'a>, (): &'a ()) {}

    fn answer(&self, _: Studied<'_>, (): &(), (): (), _: Notes) -> Result<(), QueryError> {
        Ok(())
    }
}

/// Two questions, asked together.
impl<A: Question, B: Question> Question for (A, B) {
    type Records = (A::Records, B::Records);
    type Prepared = (A::Prepared, B::Prepared);
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
        studied: Studied<'_>,
        records: Self::Records,
    ) -> Result<Self::Prepared, QueryError> {
        Ok((
            self.0.prepare(studied, records.0)?,
            self.1.prepare(studied, records.1)?,
        ))
    }

    fn path_keys(&self, prepared: &Self::Prepared) -> AttributeKeys {
        self.0
            .path_keys(&prepared.0)
            .and(&self.1.path_keys(&prepared.1))
    }

    fn paths<'a>(&'a self, studied: Studied<'a>, prepared: &'a Self::Prepared) -> Self::Paths<'a> {
        (
            self.0.paths(studied, &prepared.0),
            self.1.paths(studied, &prepared.1),
        )
    }

    fn answer(
        &self,
        studied: Studied<'_>,
        prepared: &Self::Prepared,
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
    type Prepared = Vec<Q::Prepared>;
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
        studied: Studied<'_>,
        records: Self::Records,
    ) -> Result<Self::Prepared, QueryError> {
        self.iter()
            .zip(records)
            .map(|(question, records)| question.prepare(studied, records))
            .collect()
    }

    fn path_keys(&self, prepared: &Self::Prepared) -> AttributeKeys {
        let each = self.iter().zip(prepared);
        each.fold(AttributeKeys::none(), |keys, (question, of)| {
            keys.and(&question.path_keys(of))
        })
    }

    fn paths<'a>(&'a self, studied: Studied<'a>, prepared: &'a Self::Prepared) -> Self::Paths<'a> {
        self.iter()
            .zip(prepared)
            .map(|(question, of)| question.paths(studied, of))
            .collect()
    }

    fn answer(
        &self,
        studied: Studied<'_>,
        prepared: &Self::Prepared,
        paths: Self::Paths<'_>,
        notes: Notes,
    ) -> Result<Self::Answer, QueryError> {
        let each = self.iter().zip(prepared).zip(paths);
        each.map(|((question, of), paths)| question.answer(studied, of, paths, notes.clone()))
            .collect()
    }
}

/// What is read of a store, and the model of that once it is known.
#[derive(Debug)]
pub struct Study {
    source: Arc<Source>,
    selection: Selection,
    settings: InferSettings,
    inference: OnceLock<Inference>,
}

impl Study {
    /// Of what is selected of a store. Nothing is read yet.
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

    /// The same, whose model is known.
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

    /// What it reads, to read it in another way as well.
    #[must_use]
    pub fn shared_source(&self) -> Arc<Source> {
        self.source.clone()
    }

    /// How it infers.
    #[must_use]
    pub fn settings(&self) -> &InferSettings {
        &self.settings
    }

    /// What it reads.
    #[must_use]
    pub fn source(&self) -> &Source {
        &self.source
    }

    #[must_use]
    pub fn selection(&self) -> Selection {
        self.selection
    }

    /// The model. Reads all selected traces when it is first asked for.
    ///
    /// # Errors
    /// When the store cannot be read, or no trace is selected and complete.
    pub fn inference(&self) -> Result<&Inference, QueryError> {
        self.inferred_with(&()).map(|(inference, _)| inference)
    }

    /// The model, for who wants nothing else.
    ///
    /// # Errors
    /// As [`inference`](Self::inference).
    pub fn into_inference(self) -> Result<Inference, QueryError> {
        self.inference()?;
        self.inference
            .into_inner()
            .ok_or_else(|| QueryError::NoneInRange(self.source.name()))
    }

    /// The answer to a question. The model is there from then on.
    ///
    /// # Errors
    /// When the store cannot be read, no trace is selected and complete, or there is no answer.
    pub fn ask<Q: Question>(&self, question: &Q) -> Result<Q::Answer, QueryError> {
        let (inference, records) = self.inferred_with(question)?;
        let records = match records {
            Some(records) => records,
            None => self.over_records(question)?,
        };
        let studied = Studied {
            source: &self.source,
            selection: self.selection,
            inference,
        };
        let prepared = question.prepare(studied, records)?;
        let (paths, notes) = studied.over_paths(question, &prepared)?;
        question.answer(studied, &prepared, paths, notes)
    }

    /// The model, and what a pass over records has found on the way, where this is when the model was made.
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
            return Err(QueryError::NoneInRange(self.source.name()));
        }
        if let Some(kept) = kept {
            kept.keep(&inference);
        }
        Ok((self.inference.get_or_init(|| inference), Some(records)))
    }

    /// Where the model is kept, if it is. How a model converged is not kept with it.
    fn kept(&self) -> Option<KeptInference<'_>> {
        let is_plain = self.settings.convergence.is_none();
        is_plain
            .then(|| KeptInference::of(&self.source, self.selection, &self.settings))
            .flatten()
    }

    fn over_records<Q: Question>(&self, question: &Q) -> Result<Q::Records, QueryError> {
        let mut whole = question.records();
        if whole.is_idle() {
            return Ok(whole);
        }
        let parts = self.source.parts(self.selection, &question.record_keys())?;
        let passes = (0..parts.count()).map(|_| question.records()).collect();
        let (passes, _) = self.source.fold(
            question.what(),
            self.selection,
            &parts,
            passes,
            |pass, records, _| {
                pass.observe(records);
            },
        )?;
        passes.into_iter().for_each(|of_part| whole.merge(of_part));
        Ok(whole)
    }
}

impl<'a> Studied<'a> {
    /// What a question's pass over paths has found.
    fn over_paths<Q: Question>(
        self,
        question: &'a Q,
        prepared: &'a Q::Prepared,
    ) -> Result<(Q::Paths<'a>, Notes), QueryError> {
        let mut whole = question.paths(self, prepared);
        if whole.is_idle() {
            return Ok((whole, self.source.first_notes()));
        }
        let keys = question.path_keys(prepared).with_elements();
        let parts = self.source.parts(self.selection, &keys)?;
        let worker = |_| (Cutter::of(self.inference), question.paths(self, prepared));
        let workers = (0..parts.count()).map(worker).collect();
        let (workers, mut notes) = self.source.fold(
            question.what(),
            self.selection,
            &parts,
            workers,
            |worker, records, _| {
                let (cutter, pass) = worker;
                let (trace, path) = cutter.path(self.inference, records);
                let labels = &cutter.labels;
                pass.observe(&TraceView {
                    records,
                    trace: &trace,
                    labels,
                    path: &path,
                });
            },
        )?;
        for (cutter, of_part) in workers {
            notes.excluded_segments += cutter.removed();
            whole.merge(of_part);
        }
        Ok((whole, notes))
    }
}

/// What cuts traces into segments and finds their critical paths.
pub(super) struct Cutter {
    labels: Labels,
    segmenter: Segmenter,
    excluded: Exclusion<IsExcluded>,
}

impl Cutter {
    pub(super) fn of(inference: &Inference) -> Self {
        Self {
            // The model knows all labels by now; interning finds them again under the same numbers.
            labels: inference.model.labels().clone(),
            segmenter: segmenter(inference.trailing_elements),
            excluded: exclusion(inference.exclude.as_ref()),
        }
    }

    /// Puts the records on one time axis, cuts them, and finds the path.
    pub(super) fn path(
        &mut self,
        inference: &Inference,
        records: &mut TraceRecords,
    ) -> (SegmentedTrace, TracePath) {
        if let Some(alignment) = &inference.alignment {
            alignment.apply(records);
        }
        let (mut trace, _) = self.segmenter.segment(records, &mut self.labels);
        self.excluded.remove_from(&mut trace, &self.labels);
        // Of a large trace, what the model had no memory for: it relates to nothing.
        let model = &inference.model;
        let is_known = |id| model.segment_counts(id).traces > 0;
        trace
            .segments
            .retain(|segment| segment.id.index() >= model.labels().len() || is_known(segment.id));
        settle(&mut trace, &inference.relations);
        let mut path = analyse(&trace, &inference.relations);
        drop_unsure_slack(&trace, &mut path);
        (trace, path)
    }

    /// What labels are called: those of the model, and what was cut since.
    pub(super) fn into_labels(self) -> Labels {
        self.labels
    }

    /// How many segments were left out.
    pub(super) fn removed(&self) -> u64 {
        self.excluded.removed()
    }
}
