//! Finds the intervals in which processes lost records, from the totals in their batches and from
//! missing batches.

use std::collections::HashMap;

use stroboscope_analysis::completeness::ProcessLoss;

/// Total of losses that one batch reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchLosses {
    /// Incarnation of the process.
    pub process: u128,
    /// Sequence number of the batch within the incarnation.
    pub sequence: u64,
    /// Start of the covered time, in ns since the Unix epoch.
    pub from_ns: i64,
    /// End of the covered time, in ns since the Unix epoch.
    pub to_ns: i64,
    /// Number of records lost since the process started.
    pub records: u64,
}

/// Detects losses in batches. The batches of each process must come in the order of their sequence
/// numbers.
///
/// A batch carries totals since its process started, so the loss between two batches is the
/// difference of their totals. A gap of one or more missing batches counts as a loss of at least
/// one record. If the first batch of a process does not have number 0, the batches before it count
/// as missing. This loss starts at `i64::MIN`, because its start is unknown.
#[derive(Clone, Debug, Default)]
pub struct LossWatch {
    /// Previous batch of each process.
    before: HashMap<u128, BatchLosses>,
}

impl LossWatch {
    /// Returns the loss that a batch reveals; `None` if it reveals none. Ignores a batch that is
    /// older than the previous one of its process.
    pub fn take(&mut self, batch: BatchLosses) -> Option<ProcessLoss> {
        let before = self.before.get(&batch.process);
        if before.is_some_and(|before| batch.sequence < before.sequence) {
            return None;
        }
        let expected = before.map_or(0, |before| before.sequence.saturating_add(1));
        let since_ns = before.map_or(i64::MIN, |before| before.to_ns);
        let total_before = before.map_or(0, |before| before.records);
        let is_hole = batch.sequence > expected;
        let more = batch.records.saturating_sub(total_before);
        let records = batch.records.max(total_before);
        self.before
            .insert(batch.process, BatchLosses { records, ..batch });
        (is_hole || more > 0).then(|| {
            let since_ns = if is_hole { since_ns } else { i64::MAX };
            let from_ns = since_ns.min(batch.from_ns);
            let to_ns = batch.to_ns.max(from_ns.saturating_add(1));
            ProcessLoss {
                process: batch.process,
                from_ns,
                to_ns,
                records: more.max(1),
            }
        })
    }

    /// Forgets the previous batches of all processes.
    pub fn clear(&mut self) {
        self.before.clear();
    }

    /// Returns the number of known processes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.before.len()
    }

    /// Reports whether no process is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.before.is_empty()
    }
}
