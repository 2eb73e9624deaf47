//! When which process lost records, from the totals in its batches and the holes between them.

use std::collections::HashMap;

use stroboscope_analysis::completeness::ProcessLoss;

/// What one batch says of losses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchLosses {
    /// Incarnation of the process.
    pub process: u128,
    /// Of the batch within it.
    pub sequence: u64,
    /// Begin of the time covered, ns since the Unix epoch.
    pub from_ns: i64,
    /// Its end.
    pub to_ns: i64,
    /// Records lost since the process started.
    pub records: u64,
}

/// Finds losses in batches that come one by one, in order of each process's sequence.
///
/// A batch tells totals since its process started, so what was lost between two batches is the difference; a batch
/// that never arrived is a loss of at least one record. A process that is seen for the first time has lost nothing
/// before its first batch, unless that is missing; when that was is not known.
#[derive(Clone, Debug, Default)]
pub struct LossWatch {
    /// The batch before, of each process.
    before: HashMap<u128, BatchLosses>,
}

impl LossWatch {
    /// The loss that a batch shows, if it does. A batch older than the one before shows none.
    pub fn take(&mut self, batch: BatchLosses) -> Option<ProcessLoss> {
        let before = self.before.get(&batch.process);
        if before.is_some_and(|before| batch.sequence < before.sequence) {
            return None;
        }
        let (expected, since_ns, total_before) = before.map_or((0, i64::MIN, 0), |before| {
            (
                before.sequence.saturating_add(1),
                before.to_ns,
                before.records,
            )
        });
        let is_hole = batch.sequence > expected;
        let more = batch.records.saturating_sub(total_before);
        self.before.insert(
            batch.process,
            BatchLosses {
                records: batch.records.max(total_before),
                ..batch
            },
        );
        (is_hole || more > 0).then(|| {
            let from_ns = if is_hole {
                since_ns.min(batch.from_ns)
            } else {
                batch.from_ns
            };
            let to_ns = batch.to_ns.max(from_ns.saturating_add(1));
            ProcessLoss {
                process: batch.process,
                from_ns,
                to_ns,
                records: more.max(1),
            }
        })
    }

    /// Forgets all processes.
    pub fn clear(&mut self) {
        self.before.clear();
    }

    /// Processes known.
    #[must_use]
    pub fn len(&self) -> usize {
        self.before.len()
    }

    /// Whether none is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.before.is_empty()
    }
}
