//! Intervals in which processes lost records, from all batches in the store.

use stroboscope_analysis::completeness::{Incomplete, ProcessLoss, completeness};
use stroboscope_analysis::record::TraceRecords;
use stroboscope_store::decode::loses_records;
use stroboscope_store::ledger::{BatchLosses, LossWatch};
use stroboscope_store::tables::BatchRead;

/// Reports whether spans may be missing anywhere in a trace that is incomplete for this reason.
pub(super) fn is_unseen(reason: &Incomplete) -> bool {
    matches!(
        reason,
        Incomplete::Lossy { .. } | Incomplete::MissingParent { .. }
    )
}

/// Reports whether records of a trace may be missing, because processes lost some or because spans
/// refer to spans that are not stored.
#[must_use]
pub fn may_lack_records(records: &TraceRecords, losses: &[ProcessLoss]) -> bool {
    let reasons = completeness(records, losses).reasons;
    reasons.iter().any(is_unseen)
}

/// Returns the intervals in which processes lost records, see [`LossWatch`]. The batches of each
/// process must be in order of sequence number.
pub fn losses(batches: impl Iterator<Item = BatchRead>) -> Vec<ProcessLoss> {
    let mut watch = LossWatch::default();
    let mut take = |batch: BatchRead| {
        let losses = batch.losses.iter();
        let lost = losses.filter(|(cause, _)| loses_records(cause));
        watch.take(BatchLosses {
            process: batch.process,
            sequence: batch.sequence,
            from_ns: batch.from_ns,
            to_ns: batch.to_ns,
            records: lost.fold(0u64, |sum, (_, records)| sum.saturating_add(*records)),
        })
    };
    batches.filter_map(&mut take).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(process: u128, sequence: u64, lost: u64) -> BatchRead {
        let at = sequence as i64 * 10;
        BatchRead {
            process,
            sequence,
            service: "s".into(),
            host: "h".into(),
            from_ns: at,
            to_ns: at + 10,
            spans: 0,
            events: 0,
            windows: vec![],
            losses: vec![
                ("ring_full".to_owned(), lost),
                ("string_cut".to_owned(), 99),
            ],
            kernel_clock: None,
            loads: Vec::new(),
        }
    }

    fn check(batches: &[(u128, u64, u64)], expected: &[(u128, i64, i64, u64)]) {
        let batches = batches
            .iter()
            .map(|&(process, sequence, lost)| batch(process, sequence, lost));
        let found: Vec<_> = losses(batches)
            .iter()
            .map(|l| (l.process, l.from_ns, l.to_ns, l.records))
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn totals_become_intervals() {
        check(&[(1, 0, 0), (1, 1, 0)], &[]);
        check(
            &[(1, 0, 3), (1, 1, 3), (1, 2, 5)],
            &[(1, 0, 10, 3), (1, 20, 30, 2)],
        );
        check(&[(1, 0, 3), (2, 0, 0)], &[(1, 0, 10, 3)]);
    }

    #[test]
    fn holes_are_losses() {
        check(&[(1, 0, 0), (1, 3, 0)], &[(1, 10, 40, 1)]);
        check(&[(1, 0, 0), (1, 3, 7)], &[(1, 10, 40, 7)]);
        check(&[(1, 2, 0)], &[(1, i64::MIN, 30, 1)]);
    }
}
