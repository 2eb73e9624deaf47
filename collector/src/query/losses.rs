//! When which process lost records, from the totals in its batches and the holes between them.

use stroboscope_analysis::completeness::ProcessLoss;

use crate::decode::loses_records;
use crate::store::BatchRead;

/// Intervals in which processes lost records. `batches` come in order of process and sequence.
///
/// A batch tells totals since its process started, so what was lost between two batches is the difference; a batch
/// that never arrived is a loss of at least one record.
pub fn losses(batches: impl Iterator<Item = BatchRead>) -> Vec<ProcessLoss> {
    let mut losses = Vec::new();
    let mut before: Option<(u128, u64, i64, u64)> = None;
    for batch in batches {
        let lost = batch.losses.iter().filter(|(cause, _)| loses_records(cause));
        let total = lost.fold(0u64, |sum, (_, records)| sum.saturating_add(*records));
        let (expected, since_ns, total_before) = match before {
            Some((process, sequence, to_ns, total)) if process == batch.process => {
                (sequence.saturating_add(1), to_ns, total)
            }
            // A process that is seen for the first time has lost nothing before its first batch, unless that is
            // missing; when that was is not known.
            _ => (0, i64::MIN, 0),
        };
        let is_hole = batch.sequence > expected;
        let more = total.saturating_sub(total_before);
        if is_hole || more > 0 {
            let from_ns = if is_hole { since_ns.min(batch.from_ns) } else { batch.from_ns };
            let to_ns = batch.to_ns.max(from_ns.saturating_add(1));
            losses.push(ProcessLoss { process: batch.process, from_ns, to_ns, records: more.max(1) });
        }
        before = Some((batch.process, batch.sequence, batch.to_ns, total.max(total_before)));
    }
    losses
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
            losses: vec![("ring_full".to_owned(), lost), ("string_cut".to_owned(), 99)],
        }
    }

    fn check(batches: &[(u128, u64, u64)], expected: &[(u128, i64, i64, u64)]) {
        let batches = batches.iter().map(|&(process, sequence, lost)| batch(process, sequence, lost));
        let found: Vec<_> =
            losses(batches).iter().map(|l| (l.process, l.from_ns, l.to_ns, l.records)).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn totals_become_intervals() {
        check(&[(1, 0, 0), (1, 1, 0)], &[]);
        check(&[(1, 0, 3), (1, 1, 3), (1, 2, 5)], &[(1, 0, 10, 3), (1, 20, 30, 2)]);
        check(&[(1, 0, 3), (2, 0, 0)], &[(1, 0, 10, 3)]);
    }

    #[test]
    fn holes_are_losses() {
        check(&[(1, 0, 0), (1, 3, 0)], &[(1, 10, 40, 1)]);
        check(&[(1, 0, 0), (1, 3, 7)], &[(1, 10, 40, 7)]);
        check(&[(1, 2, 0)], &[(1, i64::MIN, 30, 1)]);
    }
}
