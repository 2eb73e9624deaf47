//! Waits of requests: for parts of their own, and in queues that all requests share.

use super::load::Load;
use super::sample::WaitingSample;
use super::shared_queues::{ChangedWaits, SharedQueues};
use super::waits::Waits;
use super::{Assumption, Change, ChangedLengths};
use crate::label::{Labels, SegmentId, SegmentLabel};
use crate::model::Relations;
use std::sync::Arc;

/// Waits of the requests of one model.
#[derive(Clone, Debug)]
pub struct WaitModel {
    /// Waits for parts of the same request.
    pub(super) own: Waits,
    /// Waits for resources that other requests hold.
    queues: Arc<SharedQueues>,
    /// Lengths that depend on load, and not on a queue that was found.
    pub(super) load: Load,
}

impl WaitModel {
    /// Creates waits from the relations alone: a replay keeps all lengths.
    pub fn unknown(relations: &Relations) -> WaitModel {
        WaitModel {
            own: Waits::unknown(relations),
            queues: Arc::default(),
            load: Load::default(),
        }
    }

    /// Learns from a sample of requests, which must be cut with the labels that the relations refer
    /// to.
    pub fn learn(sample: &WaitingSample, relations: &Relations, labels: &Labels) -> WaitModel {
        let mut own = Waits::learn(sample, relations, labels);
        let (queues, load) = SharedQueues::find(sample, &own, labels);
        // Waits in shared queues are replayed for all requests together.
        for (id, place) in queues.waits() {
            own.forget(id, place);
        }
        WaitModel {
            own,
            queues: Arc::new(queues),
            load,
        }
    }

    /// Waits in shared queues after a change of segments.
    pub fn changed_queues(
        &self,
        labels: &Labels,
        change: impl Fn(SegmentId, &SegmentLabel) -> Option<Change>,
    ) -> ChangedWaits {
        let decided: Vec<Option<Change>> =
            labels.iter().map(|(id, label)| change(id, label)).collect();
        let is_nothing = |change: &Change| matches!(change, Change::Scale(1.0) | Change::AddNs(0));
        if decided.iter().flatten().all(is_nothing) {
            return ChangedWaits::default();
        }
        self.queues
            .changed(&self.own, |trace, waits| ChangedLengths {
                trace,
                waiting: self,
                decided: &decided,
                assuming: Assumption::AsTold,
                waits: waits.into(),
                others: None,
                loads: &[],
            })
    }

    /// Number of queues that requests share.
    pub fn shared_queues(&self) -> usize {
        self.queues.len()
    }

    /// Numbers of labels whose segments were found to wait: inside, and before they start.
    pub fn found(&self) -> (usize, usize) {
        let count = |waits: &[Option<_>]| waits.iter().flatten().count();
        (count(&self.own.ends), count(&self.own.starts))
    }
}
