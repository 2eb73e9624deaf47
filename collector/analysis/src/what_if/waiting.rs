//! Waits of requests: for segments of the same request, and in queues that requests share.

use super::load::Load;
use super::sample::WaitingSample;
use super::shared_queues::{ChangedWaits, SharedQueues};
use super::waits::Waits;
use super::{Assumption, Change, ChangedLengths};
use crate::label::{Labels, SegmentId, SegmentLabel};
use crate::model::Relations;
use std::sync::Arc;

/// Waits that were learned from the requests of one model.
#[derive(Clone, Debug)]
pub struct WaitModel {
    /// Waits for segments of the same request.
    pub(super) own: Waits,
    /// Waits for resources that other requests hold.
    queues: Arc<SharedQueues>,
    /// Segments whose length depends on load, although no queue that explains this was found.
    pub(super) load: Load,
}

impl WaitModel {
    /// Creates a model without known waits, from the relations alone. A replay then keeps the
    /// lengths of all unchanged segments.
    pub fn unknown(relations: &Relations) -> WaitModel {
        WaitModel {
            own: Waits::unknown(relations),
            queues: Arc::default(),
            load: Load::default(),
        }
    }

    /// Learns waits from a sample of requests. The sample must be cut with the labels that the
    /// relations refer to.
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

    /// Returns the waits in shared queues after a change of segments. `change` returns the change
    /// of each label, or `None`. The result is empty if all changes scale by 1 or add 0.
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

    /// Returns the number of shared queues found.
    pub fn shared_queues(&self) -> usize {
        self.queues.len()
    }

    /// Returns two numbers of labels: those whose segments contain a wait, and those whose segments
    /// wait before they start. Waits in shared queues do not count.
    pub fn found(&self) -> (usize, usize) {
        let count = |waits: &[Option<_>]| waits.iter().flatten().count();
        (count(&self.own.ends), count(&self.own.starts))
    }
}
