//! Convergence of a model that several threads build. A round ends after a given number of traces,
//! over all threads together. Each thread then hands over a model of the traces that it has seen
//! since the previous round. The merging thread combines these to the model at that point.
//!
//! Rounds include every part that is still being read, so that the same parts of a store always
//! produce the same series. A part that is ahead of the others therefore waits for them. This
//! cannot deadlock: the merging side waits only for a part whose channel is empty, and such a part
//! does not wait to send. When the reading of a part ends or panics, its channel is closed, because
//! the part's worker owns it (see `Source::fold_to`).

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use stroboscope_analysis::convergence::{Convergence, LineLimit};
use stroboscope_analysis::model::Model;

use super::infer_settings::InferSettings;

/// Sending side of one part of the store, dropped when the reading of the part ends.
pub(super) struct Rounds {
    pace: LineLimit,
    /// Index of this part, and number of parts.
    part: (u64, u64),
    /// Nominal number of traces in the previous rounds, over all parts.
    before: u64,
    sender: SyncSender<Model>,
}

impl Rounds {
    /// Sends the model and replaces it by an empty one, if it contains this part's share of the
    /// round's traces. The worker calls this once for each selected request.
    pub(super) fn after_trace(&mut self, model: &mut Model) {
        if model.traces() >= self.share() {
            self.before += self.pace.next(self.before);
            // The empty model keeps the numbers of the labels, because the segmenter caches them.
            let mut empty = Model::new();
            *empty.labels_mut() = model.labels().clone();
            // The receiver is gone only if its thread panicked, which is reported there.
            let _ = self.sender.send(std::mem::replace(model, empty));
        }
    }

    /// Returns the number of traces that this part contributes to the round, at least one. The
    /// shares of all parts add up to the round, unless it has fewer traces than there are parts.
    fn share(&self) -> u64 {
        let (round, (part, parts)) = (self.pace.next(self.before), self.part);
        (round * (part + 1) / parts - round * part / parts).max(1)
    }
}

/// Merging side, which receives the models of all parts.
pub(super) struct Merger {
    parts: Vec<Receiver<Model>>,
    convergence: Convergence,
    max_segments: usize,
}

impl Merger {
    /// Merges round after round until the readings of all parts have ended. Returns the merge of
    /// the models that the parts sent, and the series.
    pub(super) fn run(mut self) -> (Model, Option<Convergence>) {
        let mut model = Model::with_max_labels(self.max_segments);
        while !self.parts.is_empty() {
            self.parts.retain(|part| {
                part.recv().is_ok_and(|seen| {
                    model.merge(&seen);
                    true
                })
            });
            self.convergence.observe(&model);
        }
        (model, Some(self.convergence))
    }
}

/// Creates the merging side and the sending sides, in order of the parts. Without a request for
/// convergence, returns `None` and an empty iterator.
pub(super) fn rounds(
    settings: &InferSettings,
    parts: usize,
) -> (Option<Merger>, impl Iterator<Item = Rounds>) {
    let parts = parts as u64;
    let sides = settings.convergence.into_iter().flat_map(|pace| {
        (0..parts).map(move |part| {
            // The channel holds one model; a part that sends another one waits.
            let (sender, receiver) = sync_channel(1);
            (
                Rounds {
                    pace,
                    part: (part, parts),
                    before: 0,
                    sender,
                },
                receiver,
            )
        })
    });
    let (senders, receivers): (Vec<_>, Vec<_>) = sides.unzip();
    let converging = settings.convergence.map(|pace| Merger {
        parts: receivers,
        convergence: Convergence::at(pace, settings.tolerance),
        max_segments: settings.max_segments,
    });
    (converging, senders.into_iter())
}
