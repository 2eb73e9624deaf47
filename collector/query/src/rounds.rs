//! The convergence of a model that several threads make: after every so many traces of all of them together, each hands
//! over what it has seen since the last time, and all that is merged to the model of that instant.
//!
//! Rounds are of all parts that are still read, so that the same store gives the same series each time; a part that is
//! ahead of the others therefore waits for them. It cannot wait for ever: the merging side waits only for a part whose
//! channel is empty, which does not wait for anybody, and a part that is read in full, or panics, has no channel any more,
//! since it belongs to the part's worker (see `Source::fold_to`).

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use stroboscope_analysis::convergence::{Convergence, Pace};
use stroboscope_analysis::model::Model;

use super::infer_settings::InferSettings;

/// One part's side, to be dropped with the part's end.
pub(super) struct Rounds {
    pace: Pace,
    /// Which part this is, and of how many.
    part: (u64, u64),
    /// Traces of all parts up to this round.
    before: u64,
    sender: SyncSender<Model>,
}

impl Rounds {
    /// To be called after each trace; hands the model over, and leaves an empty one, when the round is done.
    pub(super) fn after_trace(&mut self, model: &mut Model) {
        if model.traces() >= self.share() {
            self.before += self.pace.next(self.before);
            // An empty model with the same numbers, which whoever cuts traces remembers.
            let mut empty = Model::new();
            *empty.labels_mut() = model.labels().clone();
            // Whoever listens is gone only when it panicked, which is noticed there.
            let _ = self.sender.send(std::mem::replace(model, empty));
        }
    }

    /// Traces of this part in the round: shares add up to it; of very short rounds, at least one trace each.
    fn share(&self) -> u64 {
        let (round, (part, parts)) = (self.pace.next(self.before), self.part);
        (round * (part + 1) / parts - round * part / parts).max(1)
    }
}

/// The side that merges.
pub(super) struct Converging {
    parts: Vec<Receiver<Model>>,
    convergence: Convergence,
}

impl Converging {
    /// Merges round after round, until all parts are done.
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

/// Both sides, if the convergence is asked for; the parts' in order.
pub(super) fn rounds(
    settings: &InferSettings,
    parts: usize,
) -> (Option<Converging>, impl Iterator<Item = Rounds>) {
    let parts = parts as u64;
    let sides = settings.convergence.into_iter().flat_map(|pace| {
        (0..parts).map(move |part| {
            // One waits while another one is merged: no part gets further ahead.
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
        Converging {
            parts: receivers,
            convergence,
        }
    });
    (converging, senders.into_iter())
}
