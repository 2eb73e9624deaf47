//! Summary of a recording: processes, bursts, the agreement of the processes' windows, and losses.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use stroboscope_burst::BurstConfig;
use stroboscope_store::decode::loses_records;
use stroboscope_store::tables::BatchRead;

use crate::query_error::QueryError;
use crate::sampled_notes::SamplingNotes;

/// Maximum number of bursts of samplers that a report distinguishes: 37 hours of `4ms/32ms`. A
/// single request with a wrong clock could otherwise add thousands of millions.
const SAMPLED_BURSTS_MAX: u64 = 1 << 22;

/// Half-open intervals in ns since the Unix epoch.
type Intervals = Vec<(i64, i64)>;

/// Summary of all batches in the store.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RecordedSummary {
    /// Number of process incarnations.
    pub processes: u64,
    /// Number of process incarnations by service.
    pub services: BTreeMap<String, u64>,
    /// Number of batches.
    pub batches: u64,
    /// Number of spans and events in all batches.
    pub records: u64,
    /// Number of windows in which at least one process recorded. Windows that overlap or touch
    /// count as one.
    pub bursts: u64,
    /// Agreement of the processes' windows, 0 to 1. It is the time in which both processes of a
    /// pair recorded, divided by the time in which at least one did; both times are sums over all
    /// pairs. Only time in which both processes ran counts. `None` if no process of a pair recorded
    /// in such time.
    pub window_overlap: Option<f64>,
    /// Number of lost records by service and cause, as the processes counted them.
    pub lost: BTreeMap<(String, String), u64>,
    /// Number of batches that are missing before a stored batch of the same process.
    pub missing_batches: u64,
}

#[derive(Default)]
struct Process {
    windows: Intervals,
    /// First and last time that the process's batches cover, in ns since the Unix epoch.
    covered: Option<(i64, i64)>,
    service: String,
    /// Largest total of lost records that the process reported for each cause.
    lost: BTreeMap<String, u64>,
}

impl RecordedSummary {
    /// Summarises batches, which must be in order of process and sequence number.
    pub fn of(batches: impl Iterator<Item = BatchRead>) -> Self {
        let mut recorded = Self::default();
        let mut processes: Vec<Process> = Vec::new();
        let mut latest: Option<BatchRead> = None;
        for batch in batches {
            let before = latest
                .take()
                .filter(|before| before.process == batch.process);
            let expected = match before {
                Some(before) => before.sequence.saturating_add(1),
                None => {
                    processes.push(Process {
                        service: batch.service.to_string(),
                        ..Process::default()
                    });
                    let known = recorded.services.entry(batch.service.to_string());
                    *known.or_default() += 1;
                    0
                }
            };
            recorded.take(&batch, expected, processes.last_mut());
            latest = Some(batch);
        }
        recorded.processes = processes.len() as u64;
        for process in &mut processes {
            process.windows = merged(std::mem::take(&mut process.windows));
            let lost = std::mem::take(&mut process.lost).into_iter();
            for (cause, records) in lost.filter(|(_, records)| *records > 0) {
                let known = recorded.lost.entry((process.service.clone(), cause));
                let sum = known.or_default();
                *sum = sum.saturating_add(records);
            }
        }
        let windows = processes.iter().flat_map(|process| &process.windows);
        recorded.bursts = merged(windows.copied().collect()).len() as u64;
        recorded.window_overlap = overlap(&processes);
        recorded
    }

    fn take(&mut self, batch: &BatchRead, expected: u64, process: Option<&mut Process>) {
        self.batches += 1;
        self.records += u64::from(batch.spans) + u64::from(batch.events);
        self.missing_batches = self
            .missing_batches
            .saturating_add(batch.sequence.saturating_sub(expected));
        let Some(process) = process else { return };
        let windows = batch.windows.iter();
        process
            .windows
            .extend(windows.map(|window| (window.open_ns, window.close_ns)));
        let (from_ns, to_ns) = process.covered.unwrap_or((batch.from_ns, batch.to_ns));
        process.covered = Some((from_ns.min(batch.from_ns), to_ns.max(batch.to_ns)));
        let losses = batch.losses.iter();
        for (cause, records) in losses.filter(|(cause, _)| loses_records(cause)) {
            let total = process.lost.entry(cause.clone()).or_default();
            *total = (*records).max(*total);
        }
    }

    /// Returns the number of lost records of all services and causes.
    #[must_use]
    pub fn lost_records(&self) -> u64 {
        self.lost
            .values()
            .fold(0, |sum, records| sum.saturating_add(*records))
    }
}

/// Returns the windows in which at least one process recorded, in ns since the Unix epoch, in order
/// of time. Windows that overlap or touch are merged.
pub(super) fn windows(batches: impl Iterator<Item = BatchRead>) -> Vec<(i64, i64)> {
    merged(windows_of(batches))
}

/// Returns the windows in which at least one process recorded, and the bursts of samplers of
/// OpenTelemetry's SDKs, from the first used request of each burst-config to its last one. Merges
/// them as [`windows`] does. These samplers record requests that begin in a burst, but no others
/// that run in it.
///
/// # Errors
/// Fails if there are more than [`SAMPLED_BURSTS_MAX`] bursts of samplers.
pub(super) fn bursts(
    batches: impl Iterator<Item = BatchRead>,
    sampling: &SamplingNotes,
) -> Result<Vec<(i64, i64)>, QueryError> {
    let counts = sampling.bursts.iter();
    let counts = counts.map(|(bits, of)| of.burst_count(BurstConfig::from_bits(*bits)));
    let count = counts.fold(0, u64::saturating_add);
    if count > SAMPLED_BURSTS_MAX {
        return Err(QueryError::ManyBursts(count));
    }
    let mut intervals = windows_of(batches);
    for (bits, of) in &sampling.bursts {
        intervals.extend(of.bursts(BurstConfig::from_bits(*bits)));
    }
    Ok(merged(intervals))
}

/// Removes the windows of recordings that were always on. They are no bursts: only restarts and
/// lost batches divide them.
pub(super) fn without_always_on(
    batches: impl Iterator<Item = BatchRead>,
) -> impl Iterator<Item = BatchRead> {
    batches.map(|mut batch| {
        let always_on = BurstConfig::ALWAYS_ON.bits();
        batch
            .windows
            .retain(|window| window.burst_config != always_on);
        batch
    })
}

fn windows_of(batches: impl Iterator<Item = BatchRead>) -> Intervals {
    let windows = batches.flat_map(|batch| {
        let windows = batch.windows.into_iter();
        windows
            .map(|window| (window.open_ns, window.close_ns))
            .collect::<Vec<_>>()
    });
    windows.collect()
}

fn merged(mut intervals: Intervals) -> Intervals {
    intervals.retain(|(from, to)| from < to);
    intervals.sort_unstable();
    let mut apart: Intervals = Vec::new();
    for (from, to) in intervals {
        match apart.last_mut() {
            Some((_, end)) if *end >= from => *end = to.max(*end),
            _ => apart.push((from, to)),
        }
    }
    apart
}

fn length(intervals: &Intervals) -> i128 {
    let length = |(from, to): &(i64, i64)| i128::from(*to) - i128::from(*from);
    intervals.iter().map(length).sum()
}

fn clipped(intervals: &Intervals, within: (i64, i64)) -> Intervals {
    let clip = |&(from, to): &(i64, i64)| (from.max(within.0), to.min(within.1));
    let clipped = intervals.iter().map(clip);
    clipped.filter(|(from, to)| from < to).collect()
}

fn overlap(processes: &[Process]) -> Option<f64> {
    let (mut together, mut either) = (0i128, 0i128);
    for (i, a) in processes.iter().enumerate() {
        for b in &processes[i + 1..] {
            let (Some(a_ran), Some(b_ran)) = (a.covered, b.covered) else {
                continue;
            };
            let both_ran = (a_ran.0.max(b_ran.0), a_ran.1.min(b_ran.1));
            let (a, b) = (clipped(&a.windows, both_ran), clipped(&b.windows, both_ran));
            let union = length(&merged(a.iter().chain(&b).copied().collect()));
            either += union;
            together += length(&a) + length(&b) - union;
        }
    }
    (either > 0).then(|| together as f64 / either as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use stroboscope_store::record::WindowRow;

    fn batch(process: u128, sequence: u64, windows: &[(i64, i64)], lost: u64) -> BatchRead {
        let at = sequence as i64 * 100;
        let window = |&(open_ns, close_ns): &(i64, i64)| WindowRow {
            open_ns,
            close_ns,
            burst_config: 28,
        };
        BatchRead {
            process,
            sequence,
            service: "web".into(),
            host: "h".into(),
            from_ns: at,
            to_ns: at + 100,
            spans: 2,
            events: 1,
            windows: windows.iter().map(window).collect(),
            losses: vec![("ring_full".to_owned(), lost), ("string_cut".to_owned(), 9)],
            kernel_clock: None,
            loads: Vec::new(),
        }
    }

    #[test]
    fn batches_are_summed_up() {
        let all = || {
            let one = [
                batch(1, 0, &[(0, 10), (40, 50)], 1),
                batch(1, 1, &[(140, 150)], 3),
            ];
            let two = [batch(2, 0, &[(0, 10), (40, 48)], 0), batch(2, 3, &[], 5)];
            one.into_iter().chain(two)
        };
        let recorded = RecordedSummary::of(all());
        assert_eq!(
            (recorded.processes, recorded.batches, recorded.records),
            (2, 4, 12)
        );
        assert_eq!(
            (
                recorded.bursts,
                recorded.missing_batches,
                recorded.lost_records()
            ),
            (3, 2, 8)
        );
        assert_eq!(recorded.services["web"], 2);
        // Both ran from 0 to 200. They recorded 18 together, out of 30 that either recorded.
        assert_eq!(recorded.window_overlap, Some(18.0 / 30.0));
    }

    #[test]
    fn windows_that_are_always_on_are_no_bursts() {
        let mut always = batch(1, 0, &[(0, 10), (40, 50)], 0);
        always
            .windows
            .iter_mut()
            .for_each(|window| window.burst_config = 0);
        let batches = [always, batch(2, 0, &[(44, 48)], 0)].into_iter();
        let bursts = bursts(without_always_on(batches), &SamplingNotes::default()).unwrap();
        assert_eq!(bursts, [(44, 48)]);
    }

    #[test]
    fn processes_that_never_ran_together_have_no_overlap() {
        assert_eq!(
            RecordedSummary::of([batch(1, 0, &[(0, 10)], 0)].into_iter()).window_overlap,
            None
        );
        let apart = [batch(1, 0, &[(0, 10)], 0), batch(2, 5, &[(510, 520)], 0)];
        assert_eq!(RecordedSummary::of(apart.into_iter()).window_overlap, None);
        assert_eq!(
            RecordedSummary::of(std::iter::empty()),
            RecordedSummary::default()
        );
    }
}
