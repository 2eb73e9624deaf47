//! Encodes an inference for the cache and for files of shards.

use serde::{Deserialize, Serialize};
use stroboscope_analysis::by_root::ByRoot;
use stroboscope_analysis::category::SpanKinds;
use stroboscope_analysis::clock::Alignment;
use stroboscope_analysis::model::{Model, ModelPartsError};
use twox_hash::XxHash3_128;

use super::infer_settings::InferSettings;
use super::inference::Inference;
use super::notes::{KeptNotes, Notes};
use super::saved_model::SavedModel;

/// Inference without its settings, its convergence, and its relations. Decoding it computes the
/// relations.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SavedInference {
    findings: Findings,
    notes: KeptNotes,
}

/// Results apart from the notes.
#[derive(Debug, Serialize, Deserialize)]
struct Findings {
    model: SavedModel,
    clocks: Alignment,
    roots: ByRoot,
    kinds: SpanKinds,
}

impl SavedInference {
    pub(super) fn of(inference: &Inference) -> Self {
        Self {
            findings: Findings {
                model: SavedModel::from(inference.model.parts()),
                clocks: inference.clocks.clone(),
                roots: inference.roots.clone(),
                kinds: inference.kinds.clone(),
            },
            notes: KeptNotes::of(&inference.notes),
        }
    }

    /// Returns the inference without the counts of pairs, and therefore without relations. Its size
    /// does not grow with the square of the number of segments.
    pub(super) fn without_pairs(mut self) -> Self {
        self.findings.model.forget_pairs();
        self
    }

    /// Returns a hash of the results apart from the notes.
    pub(super) fn identity(&self) -> u128 {
        // An encoding error is reported when the results are saved.
        let bytes = postcard::to_stdvec(&self.findings).unwrap_or_default();
        XxHash3_128::oneshot(&bytes)
    }

    /// Decodes the inference, with the relations that the tolerance of `settings` accepts. `first`
    /// has the notes about the data directory.
    ///
    /// # Errors
    /// Fails if the parts of the model contradict each other.
    pub(super) fn into_inference(
        self,
        settings: &InferSettings,
        first: Notes,
    ) -> Result<Inference, ModelPartsError> {
        let found = self.findings;
        let model = Model::from_parts(&found.model.into())?;
        Ok(Inference {
            relations: model.relations(settings.tolerance),
            model,
            alignment: (!found.clocks.is_exact()).then(|| found.clocks.clone()),
            clocks: found.clocks,
            exclude: settings.exclude.clone(),
            trailing_elements: settings.trailing_elements,
            convergence: Vec::new(),
            roots: found.roots,
            kinds: found.kinds,
            notes: self.notes.with(first),
        })
    }
}
