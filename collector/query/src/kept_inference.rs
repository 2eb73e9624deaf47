//! Caches a model and its by-products in the data directory, so that several subcommands share one
//! inference.

use super::cache::{Cache, ENTRY_BYTES_MAX};
use super::infer::LABELS_FULL;
use super::infer_settings::InferSettings;
use super::inference::{Inference, KEPT_FORMS};
use super::saved_inference::SavedInference;
use super::source::{Selection, Source};

/// Kind of the cache entries that contain models.
const MODEL: &str = "model";

/// Minimum size of a pair of segments in an entry, in bytes: two numbers and three counts.
const PAIR_BYTES_MIN: usize = 5;

/// Access to the cached inference of a selection and its settings.
pub(super) struct KeptInference<'a> {
    source: &'a Source,
    cache: &'a Cache,
    asked: String,
    /// Maximum size of a trace that is read, in bytes.
    trace_max: usize,
}

impl<'a> KeptInference<'a> {
    /// Creates the access for a selection and settings; `None` if the source has no cache.
    pub(super) fn of(
        source: &'a Source,
        selection: Selection,
        settings: &InferSettings,
    ) -> Option<Self> {
        let asked = format!("{selection:?} {} {}", source.chosen(), settings.asked());
        source.cache().map(|cache| Self {
            source,
            cache,
            asked,
            trace_max: source.memory.trace_max(),
        })
    }

    /// Returns the key of an entry that lacks large traces or segments. A query with more memory
    /// does not use this entry.
    fn asked_in_part(&self) -> String {
        format!("{} without traces beyond {}", self.asked, self.trace_max)
    }

    /// Returns the cached inference, with the relations that the tolerance accepts; `None` if there
    /// is no usable entry or too little memory.
    pub(super) fn find(&self, settings: &InferSettings) -> Option<Inference> {
        let whole = self.cache.find(MODEL, &self.asked);
        let entry: SavedInference =
            whole.or_else(|| self.cache.find(MODEL, &self.asked_in_part()))?;
        let inference = entry.into_inference(settings, self.source.first_notes());
        let inference = inference.ok()?;
        // If there is no memory for the model, the caller infers the model again and reports the
        // proper error.
        let bytes = KEPT_FORMS * inference.model.bytes();
        self.source.memory.keep_model(bytes).ok()?;
        Some(inference)
    }

    /// Caches the inference, if it is not too large and the store is undamaged and unchanged.
    pub(super) fn keep(&self, inference: &Inference) {
        // Encoding an entry takes more memory than the model itself.
        let is_too_large = inference.model.pair_count() > ENTRY_BYTES_MAX / PAIR_BYTES_MIN;
        if is_too_large
            || !inference.notes.damage.is_empty()
            || !self.cache.is_of(self.source.store())
        {
            return;
        }
        let entry = SavedInference::of(inference);
        let notes = &inference.notes;
        let is_whole =
            notes.left_out.large_traces == 0 && !notes.diagnostics.contains_key(LABELS_FULL);
        match is_whole {
            true => self.cache.keep(MODEL, &self.asked, &entry),
            false => self.cache.keep(MODEL, &self.asked_in_part(), &entry),
        }
    }
}
