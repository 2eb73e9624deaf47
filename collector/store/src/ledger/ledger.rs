//! Ledger: record of the stored batches of each process.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};
use stroboscope_proto::v1::Loss;

use super::Ranges;
use crate::decode::{CheckedBatch, loss_cause_name};
use crate::limits::{INCARNATION_IDLE_NS_MAX, INCARNATIONS_MAX, RANGES_PER_INCARNATION_MAX};

/// Result of looking up a batch in the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The ledger does not list the batch as stored.
    New,
    /// The batch is stored already.
    Duplicate,
    /// The batch is so old that its number is no longer tracked, so it may or may not be stored.
    TooOld,
}

/// Facts that the ledger keeps about one process incarnation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LedgerEntry {
    /// Name of the process's service.
    pub service: String,
    /// Name of the process's host.
    pub host: String,
    /// Process id on the host; 0 if unknown.
    pub pid: u32,
    /// Arrival of the process's first batch since the ledger has known it, in ns since the Unix
    /// epoch; 0 if unknown.
    pub first_seen_ns: i64,
    /// Arrival of the process's latest batch, in ns since the Unix epoch. In a ledger rebuilt from
    /// the tables, this is the end of the time that the batch covers.
    pub last_seen_ns: i64,
    /// Burst-config that the process reported last; `None` if unknown.
    pub config: Option<ReportedConfig>,
    /// True if the process reported that it stops recording.
    pub has_ended: bool,
    /// Number of spans and events in the stored batches that the ledger has entered.
    pub records: u64,
    /// Number of losses since the process started, by cause, according to its reports.
    pub losses: BTreeMap<String, u64>,
    /// Sequence numbers of the stored batches.
    pub stored: Ranges,
}

/// Burst-config in force in a process, as it reported it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportedConfig {
    /// Burst-config as bits.
    pub burst_config: u64,
    /// Time since which the process has applied the burst-config, by the process's clock, in ns
    /// since the Unix epoch; 0 if unknown.
    pub since_ns: u64,
    /// Sequence number of the batch that reported it.
    pub sequence: u64,
}

/// Record of the stored batches and the losses of all known processes, by incarnation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    pub(super) entries: HashMap<u128, LedgerEntry>,
    /// Losses of forgotten processes by service and cause, so that totals never decrease.
    pub(super) past_losses: BTreeMap<(String, String), u64>,
}

impl Ledger {
    /// Looks up batch `sequence` of `incarnation`.
    #[must_use]
    pub fn verdict(&self, incarnation: u128, sequence: u64) -> Verdict {
        match self.entries.get(&incarnation) {
            Some(entry) if entry.stored.contains(sequence) => Verdict::Duplicate,
            Some(entry) if sequence < entry.stored.given_up_below() => Verdict::TooOld,
            _ => Verdict::New,
        }
    }

    /// Reports whether a batch that is not entered yet has new information: a record, a loss, a
    /// clock step, a changed burst-config or the first one known, or an unknown process. Other
    /// batches may report known losses, loads, provenance logs, the clock's state, the process's
    /// end, and windows without records.
    #[must_use]
    pub fn is_news(&self, batch: &CheckedBatch) -> bool {
        let Some(known) = self.entries.get(&batch.incarnation()) else {
            return true;
        };
        let is_more = |loss: &Loss| {
            let before = known.losses.get(&loss_cause_name(loss.cause));
            before.copied().unwrap_or(0) < loss.records
        };
        let batch_said = batch.batch();
        // Batches may come out of order.
        let is_change = |known: ReportedConfig| {
            known.sequence < batch.sequence() && known.burst_config != batch_said.burst_config
        };
        batch.records() > 0
            || known.config.is_none_or(is_change)
            || !batch_said.clock_steps.is_empty()
            || batch_said.losses.iter().any(is_more)
    }

    /// Enters a batch that is being stored. `received_ns` is its time of arrival, in ns since the
    /// Unix epoch. If the process is new and the ledger is full, forgets the processes that have
    /// been idle longest.
    pub fn enter(&mut self, batch: &CheckedBatch, received_ns: u64) {
        if !self.entries.contains_key(&batch.incarnation())
            && self.entries.len() >= INCARNATIONS_MAX
        {
            self.forget_longest_idle();
        }
        let received_ns = i64::try_from(received_ns).unwrap_or(i64::MAX);
        let first = || LedgerEntry {
            first_seen_ns: received_ns,
            ..LedgerEntry::default()
        };
        let entry = self.entries.entry(batch.incarnation());
        let entry = entry.or_insert_with(first);
        if let Some(process) = &batch.batch().process {
            entry.service.clone_from(&process.service);
            entry.host.clone_from(&process.host);
            entry.pid = process.pid;
        }
        entry.last_seen_ns = entry.last_seen_ns.max(received_ns);
        entry.has_ended |= batch.batch().is_last;
        let reported = ReportedConfig {
            burst_config: batch.batch().burst_config,
            since_ns: batch.batch().burst_config_since_ns,
            sequence: batch.sequence(),
        };
        // Batches may come out of order.
        let is_older = |known: ReportedConfig| known.sequence < reported.sequence;
        if entry.config.is_none_or(is_older) {
            entry.config = Some(reported);
        }
        entry.records += batch.records() as u64;
        let stored = &mut entry.stored;
        stored.insert(batch.sequence(), RANGES_PER_INCARNATION_MAX);
        for loss in &batch.batch().losses {
            // Keeps the larger total, because batches may come out of order.
            let total = entry.losses.entry(loss_cause_name(loss.cause)).or_default();
            *total = loss.records.max(*total);
        }
    }

    /// Enters a batch that was stored earlier, from its row in the table. `said` holds the data of
    /// the row; its `records` count this batch alone. Ignores its process id, first arrival,
    /// burst-config and end, because they are not read from the table.
    pub fn enter_stored(&mut self, incarnation: u128, sequence: u64, said: LedgerEntry) {
        let entry = self.entries.entry(incarnation).or_default();
        entry.service = said.service;
        entry.host = said.host;
        entry.last_seen_ns = entry.last_seen_ns.max(said.last_seen_ns);
        entry.records += said.records;
        entry.stored.insert(sequence, RANGES_PER_INCARNATION_MAX);
        for (cause, records) in said.losses {
            let total = entry.losses.entry(cause).or_default();
            *total = records.max(*total);
        }
    }

    /// Replaces the losses of forgotten processes by those of another ledger.
    pub fn keep_forgotten_losses(&mut self, other: &Self) {
        self.past_losses.clone_from(&other.past_losses);
    }

    /// Forgets processes that have been idle for more than seven days at `now_ns` (ns since the
    /// Unix epoch).
    pub fn forget_idle(&mut self, now_ns: i64) {
        let idle = |entry: &LedgerEntry| {
            now_ns.saturating_sub(entry.last_seen_ns) > INCARNATION_IDLE_NS_MAX
        };
        let gone = self.entries().filter(|(_, entry)| idle(entry));
        let gone: Vec<u128> = gone.map(|(id, _)| id).collect();
        gone.into_iter().for_each(|id| self.forget(id));
    }

    /// Forgets the processes that have been idle longest: about a sixteenth of the maximum at once,
    /// so that a flood of processes costs little per process.
    fn forget_longest_idle(&mut self) {
        let ages = self.entries().map(|(id, entry)| (entry.last_seen_ns, id));
        let mut by_age: Vec<(i64, u128)> = ages.collect();
        by_age.sort_unstable();
        by_age.truncate(INCARNATIONS_MAX / 16 + 1);
        by_age.into_iter().for_each(|(_, id)| self.forget(id));
    }

    fn forget(&mut self, incarnation: u128) {
        if let Some(entry) = self.entries.remove(&incarnation) {
            for (cause, records) in entry.losses {
                let total = self.past_losses.entry((entry.service.clone(), cause));
                let total = total.or_default();
                *total = total.saturating_add(records);
            }
        }
    }

    /// Iterates over all known processes, each with its incarnation and entry.
    pub fn entries(&self) -> impl Iterator<Item = (u128, &LedgerEntry)> {
        self.entries.iter().map(|(&id, entry)| (id, entry))
    }

    /// Returns the entry of a process; `None` if it is not known.
    #[must_use]
    pub fn entry(&self, incarnation: u128) -> Option<&LedgerEntry> {
        self.entries.get(&incarnation)
    }

    /// Returns the number of missing batches of all processes, each below the highest stored number
    /// of its process. Does not count numbers that are no longer tracked.
    #[must_use]
    pub fn holes(&self) -> u64 {
        let holes = self.entries.values().map(|entry| entry.stored.holes());
        holes.fold(0, u64::saturating_add)
    }

    /// Returns the number of losses by service and cause, including those of forgotten processes.
    #[must_use]
    pub fn losses(&self) -> BTreeMap<(String, String), u64> {
        let mut totals = self.past_losses.clone();
        for entry in self.entries.values() {
            for (cause, &records) in &entry.losses {
                let total = totals.entry((entry.service.clone(), cause.clone()));
                let total = total.or_default();
                *total = total.saturating_add(records);
            }
        }
        totals
    }
}
