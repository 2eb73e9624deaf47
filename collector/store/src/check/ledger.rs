//! Compares the table of batches with the checkpoint's ledger.

use std::collections::{BTreeMap, HashMap};

use object_store::path::Path;

use super::finding::{Finding, FindingKind};
use crate::ledger::{Checkpoint, Ledger, LedgerEntry, Verdict};
use crate::tables::{
    BatchRead, Recorder, Segments, Store, StoreError, StoreTable, read_batches_of,
};

/// Maximum number of batches whose sequence numbers a finding lists. Further batches are only
/// counted.
const TOLD_MAX: u64 = 8;

/// Reports whether all log segments in a file are below `next`. Also returns true for files without
/// log segments, and for any compacted file, because `next` is too low if the checkpoint was lost.
pub(super) fn is_below(path: &Path, next: u64) -> bool {
    Segments::of(path).is_none_or(|of| of.is_compacted() || of.last < next)
}

/// Batches of the store by process and sequence number, each with its number of copies.
#[derive(Debug)]
pub(super) struct StoredBatches {
    rows: BTreeMap<(u128, u64), (u32, BatchRead)>,
}

impl StoredBatches {
    /// Reads the batches of the files for which [`is_below`] returns true.
    pub(super) fn read_below(store: &Store, next: u64) -> Result<Self, StoreError> {
        let mut files = store.list(StoreTable::Batches)?;
        files.retain(|(path, _)| is_below(path, next));
        let mut rows = BTreeMap::new();
        for row in read_batches_of(store, &files)? {
            let key = (row.process, row.sequence);
            rows.entry(key).or_insert((0, row)).0 += 1;
        }
        Ok(Self { rows })
    }

    /// Builds a ledger from the batches.
    pub(super) fn ledger(&self) -> Ledger {
        let mut ledger = Ledger::default();
        for ((process, sequence), (_, row)) in &self.rows {
            let said = LedgerEntry {
                service: row.service.to_string(),
                host: row.host.to_string(),
                last_seen_ns: row.to_ns,
                records: u64::from(row.spans) + u64::from(row.events),
                losses: row.losses.iter().cloned().collect(),
                ..LedgerEntry::default()
            };
            ledger.enter_stored(*process, *sequence, said);
        }
        ledger
    }

    pub(super) fn doubled(&self) -> Vec<Finding> {
        let doubled = self.rows.iter().filter(|(_, (count, _))| *count > 1);
        doubled
            .map(|((process, sequence), (count, _))| {
                let detail = format!("batch {sequence} is stored {count} times");
                Finding::new(FindingKind::DoubledBatch, format!("{process:032x}"), detail)
            })
            .collect()
    }

    /// Returns findings for batches that only the store or only the ledger has, for each process
    /// that the ledger lists. Omits batches that only the store has if `is_in_use` (a collector is
    /// running), and those before the first batch in the ledger: the ledger may have forgotten them
    /// while the process was idle. Unless `is_whole` (every file is readable, and no hour was ever
    /// deleted), omits missing batches before a process's first stored one, or all if it has none.
    pub(super) fn compare(
        &self,
        checkpoint: &Checkpoint,
        is_whole: bool,
        is_in_use: bool,
    ) -> Vec<Finding> {
        let (mut missing, mut unknown) = (BatchNumbers::default(), BatchNumbers::default());
        for (process, entry) in checkpoint.ledger.entries() {
            let from_on = |first: u64| self.rows.range((process, first)..=(process, u64::MAX));
            let first = from_on(0).next().map(|((_, sequence), _)| *sequence);
            let least = if is_whole {
                0
            } else {
                first.unwrap_or(u64::MAX)
            };
            for (from, to) in entry.stored.runs() {
                let from = from.max(least);
                if from > to {
                    continue;
                }
                let mut expected = from;
                let present = self.rows.range((process, from)..=(process, to));
                for ((_, sequence), _) in present {
                    missing.add(process, expected..*sequence);
                    expected = sequence.saturating_add(1);
                }
                missing.add(process, expected..to.saturating_add(1));
            }
            if !is_in_use {
                let listed = entry.stored.runs().next().map_or(0, |(first, _)| first);
                for ((_, sequence), _) in from_on(listed) {
                    if checkpoint.ledger.verdict(process, *sequence) == Verdict::New {
                        unknown.add(process, *sequence..sequence.saturating_add(1));
                    }
                }
            }
        }
        let mut findings = missing.findings(FindingKind::MissingBatch, "was stored and is missing");
        findings.extend(unknown.findings(
            FindingKind::UnknownBatch,
            "is stored, but not listed in the checkpoint: a retry would be stored again",
        ));
        findings
    }

    /// Compares the number of events of each service on each host with the total in the batches of
    /// its processes. A surplus is no finding, because events from OpenTelemetry have no batches.
    pub(super) fn event_counts(&self, counts: &RecordCounts) -> Vec<Finding> {
        let mut said: BTreeMap<(String, String), u64> = BTreeMap::new();
        for (count, row) in self.rows.values() {
            let of = (row.service.to_string(), row.host.to_string());
            *said.entry(of).or_default() += u64::from(row.events) * u64::from(*count);
        }
        said.into_iter()
            .filter_map(|(of, said)| {
                let found = counts.events.get(&of).copied().unwrap_or(0);
                (found < said).then(|| {
                    let detail =
                        format!("its batches have {said} events, but the store has {found}");
                    let at = format!("{} on {}", of.0, of.1);
                    Finding::new(FindingKind::EventCount, at, detail)
                })
            })
            .collect()
    }

    /// Compares each process's number of stored spans with the sum that its batches state. Skips
    /// processes without batches.
    pub(super) fn span_counts(&self, counts: &RecordCounts) -> Vec<Finding> {
        let mut said: BTreeMap<u128, u64> = BTreeMap::new();
        for ((process, _), (count, row)) in &self.rows {
            *said.entry(*process).or_default() += u64::from(row.spans) * u64::from(*count);
        }
        said.into_iter()
            .filter_map(|(process, said)| {
                let found = counts.spans.get(&process).copied().unwrap_or(0);
                (found != said).then(|| {
                    let detail =
                        format!("its batches have {said} spans, but the store has {found}");
                    Finding::new(FindingKind::SpanCount, format!("{process:032x}"), detail)
                })
            })
            .collect()
    }
}

/// Numbers of stored spans and events by recorder, to compare with those that the batches state.
#[derive(Debug, Default)]
pub(super) struct RecordCounts {
    spans: HashMap<u128, u64>,
    /// Number of events by service and host.
    events: HashMap<(String, String), u64>,
}

impl RecordCounts {
    pub(super) fn add(&mut self, recorder: Recorder<'_>, rows: u64) {
        match recorder {
            Recorder::Process(process) => *self.spans.entry(process).or_default() += rows,
            Recorder::Service(service, host) => {
                let of = (service.to_owned(), host.to_owned());
                *self.events.entry(of).or_default() += rows;
            }
        }
    }
}

/// Batches by process: the first few sequence numbers, and the number of all batches.
#[derive(Default)]
struct BatchNumbers(BTreeMap<u128, (Vec<u64>, u64)>);

impl BatchNumbers {
    fn add(&mut self, process: u128, numbers: std::ops::Range<u64>) {
        if numbers.is_empty() {
            return;
        }
        let (told, count) = self.0.entry(process).or_default();
        let room = (TOLD_MAX as usize).saturating_sub(told.len());
        *count += numbers.end - numbers.start;
        told.extend(numbers.take(room));
    }

    fn findings(self, kind: FindingKind, what: &str) -> Vec<Finding> {
        self.0
            .into_iter()
            .map(|(process, (told, count))| {
                let numbers: Vec<String> = told.iter().map(u64::to_string).collect();
                let more = match count - told.len() as u64 {
                    0 => String::new(),
                    more => format!(" and {more} more"),
                };
                let detail = format!("batch {}{more} {what}", numbers.join(", "));
                Finding::new(kind, format!("{process:032x}"), detail)
            })
            .collect()
    }
}
