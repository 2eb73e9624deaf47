//! Convergence of a model that several threads build. After a given number of traces of all threads
//! together, each hands over the traces that it has seen since the last time. These are merged to
//! the model of that instant.
//!
//! Rounds include every part that is still being read, so that the same store always produces the
//! same series. A part that is ahead of the others therefore waits for them. It cannot deadlock:
//! the merging side waits only for a part whose channel is empty, and such a part waits for no
//! other. A part that is read in full, or panics, has no channel any more, because the channel
//! belongs to the part's worker (see `Source::fold_to`).

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use stroboscope_analysis::convergence::{Convergence, LineLimit};
use stroboscope_analysis::model::Model;

use super::infer_settings::InferSettings;

/// Sending side of one part, dropped at the part's end.
pub(super) struct Rounds {
    pace: LineLimit,
    /// Number of this part, and number of all parts.
    part: (u64, u64),
    /// Number of traces of all parts up to this round.
    before: u64,
    sender: SyncSender<Model>,
}

impl Rounds {
    /// Hands the model over, and leaves an empty one, if the round is complete. Call it after each
    /// trace.
    pub(super) fn after_trace(&mut self, model: &mut Model) {
        if model.traces() >= self.share() {
            self.before += self.pace.next(self.before);
            // The empty model keeps the same numbers, which the segmenter remembers.
            let mut empty = Model::new();
            *empty.labels_mut() = model.labels().clone();
            // The receiver is gone only if its thread panicked, which is reported there.
            let _ = self.sender.send(std::mem::replace(model, empty));
        }
    }

    /// Returns the number of traces of this part in the round. The shares add up to the round. In
    /// very short rounds, each part has at least one trace.
    fn share(&self) -> u64 {
        let (round, (part, parts)) = (self.pace.next(self.before), self.part);
        (round * (part + 1) / parts - round * part / parts).max(1)
    }
}

/// Merging side.
pub(super) struct Merger {
    parts: Vec<Receiver<Model>>,
    convergence: Convergence,
}

impl Merger {
    /// Merges round after round, until all parts are read.
    pub(super) fn run(mut self) -> (Model, Option<Convergence>) {
        let mut model = Model::new();
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

/// Creates both sides if convergence is requested. Those of the parts are in order.
pub(super) fn rounds(
    settings: &InferSettings,
    parts: usize,
) -> (Option<Merger>, impl Iterator<Item = Rounds>) {
    let parts = parts as u64;
    let sides = settings.convergence.into_iter().flat_map(|pace| {
        (0..parts).map(move |part| {
            // One model waits while another one is merged, so no part gets further ahead.
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
    let converging = settings.convergence.map(|pace| {
        let convergence = Convergence::at(pace, settings.tolerance);
        Merger {
            parts: receivers,
            convergence,
        }
    });
    (converging, senders.into_iter())
}
