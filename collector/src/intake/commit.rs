//! The committing thread: all waiting appends, one write, one sync, then the answers.

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc as std_mpsc};

use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};

use super::flush::now_ns;
use super::gate::FlushCommand;
use super::{Counters, IntakeError};
use crate::decode::CheckedBatch;
use crate::ledger::{Ledger, Verdict};
use crate::limits::{WAL_BACKLOG_BYTES_MAX, WAL_GROUP_BYTES_MAX};
use crate::wal::{Payload, Writer};

/// What became of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is durable.
    Stored,
    /// It was durable already.
    Duplicate,
    /// It is older than the ledger reaches: refused for good.
    TooOld,
}

pub(super) struct Append {
    pub(super) batch: CheckedBatch,
    pub(super) payload: Payload,
    pub(super) answer: oneshot::Sender<Result<Outcome, IntakeError>>,
    /// Its share of the bytes in flight, given back when it is answered.
    pub(super) _permit: OwnedSemaphorePermit,
}

pub(super) enum Command {
    Append(Box<Append>),
    /// Closes the open segment; answered when that is done.
    Rotate(oneshot::Sender<()>),
}

/// What the two threads and the doors share.
#[derive(Debug, Default)]
pub(super) struct Shared {
    pub(super) ledger: Mutex<Ledger>,
    /// Closed segments that are not in the store yet, and their bytes.
    pub(super) closed: Mutex<BTreeMap<u64, u64>>,
    pub(super) counters: Arc<Counters>,
}

impl Shared {
    /// The live ledger. A thread that panicked left it whole: entries are only added after everything that can fail.
    pub(super) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn closed(&self) -> MutexGuard<'_, BTreeMap<u64, u64>> {
        self.closed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn backlog_bytes(&self) -> u64 {
        self.closed().values().sum()
    }
}

pub(super) struct Committer {
    pub(super) writer: Writer,
    pub(super) shared: Arc<Shared>,
    pub(super) commands: mpsc::Receiver<Command>,
    pub(super) flusher: std_mpsc::Sender<FlushCommand>,
    pub(super) segment_bytes: u64,
}

impl Committer {
    /// Runs until all senders are gone and everything sent is answered.
    pub(super) fn run(mut self) {
        let mut last_forgotten_ns = now_ns();
        while let Some(first) = self.commands.blocking_recv() {
            let mut group = Vec::new();
            let mut bytes = 0;
            let mut rotate = self.sort(first, &mut group, &mut bytes);
            while rotate.is_none() && bytes < WAL_GROUP_BYTES_MAX {
                let Ok(command) = self.commands.try_recv() else { break };
                rotate = self.sort(command, &mut group, &mut bytes);
            }
            self.commit(group);
            let full = self.writer.open_bytes() > self.segment_bytes;
            if rotate.is_some() || full {
                self.rotate();
            }
            if let Some(answer) = rotate {
                // Whoever asked may have gone.
                let _ = answer.send(());
            } else if full {
                let _ = self.flusher.send(FlushCommand::Closed);
            }
            self.tell_wal_bytes();
            if now_ns() - last_forgotten_ns > 3_600_000_000_000 {
                last_forgotten_ns = now_ns();
                self.shared.ledger().forget_idle(last_forgotten_ns);
            }
        }
    }

    #[allow(clippy::unused_self)] // reads better beside its caller
    fn sort(
        &self,
        command: Command,
        group: &mut Vec<Append>,
        bytes: &mut usize,
    ) -> Option<oneshot::Sender<()>> {
        match command {
            Command::Append(append) => {
                *bytes += append.payload.batch.len();
                group.push(*append);
                None
            }
            Command::Rotate(answer) => Some(answer),
        }
    }

    /// Decides, appends and answers one group.
    fn commit(&mut self, group: Vec<Append>) {
        if group.is_empty() {
            return;
        }
        let backlog_bytes = self.shared.backlog_bytes();
        if backlog_bytes > WAL_BACKLOG_BYTES_MAX {
            return self.push_back(group, &IntakeError::Backlog { bytes: backlog_bytes });
        }
        let mut fresh = Vec::new();
        let mut payloads = Vec::new();
        let mut repeated = Vec::new();
        let mut in_group = HashSet::new();
        for mut append in group {
            let key = (append.batch.incarnation(), append.batch.sequence());
            match self.shared.ledger().verdict(key.0, key.1) {
                Verdict::Duplicate => self.answer(append, Outcome::Duplicate),
                Verdict::TooOld => self.answer(append, Outcome::TooOld),
                // The same batch twice in one group: the second is durable exactly when the first is.
                Verdict::New if !in_group.insert(key) => repeated.push(append),
                Verdict::New => {
                    let received_ns = append.payload.received_ns;
                    let emptied = Payload { received_ns, batch: Vec::new() };
                    payloads.push(std::mem::replace(&mut append.payload, emptied));
                    fresh.push(append);
                }
            }
        }
        match self.writer.append_group(&payloads) {
            Ok(()) => {
                let bytes: u64 = payloads.iter().map(Payload::bytes_in_segment).sum();
                self.shared.counters.wal_bytes_written.fetch_add(bytes, Relaxed);
                self.shared.counters.commits.fetch_add(u64::from(bytes > 0), Relaxed);
                fresh.into_iter().for_each(|append| self.answer(append, Outcome::Stored));
                repeated.into_iter().for_each(|append| self.answer(append, Outcome::Duplicate));
            }
            Err(error) => {
                tracing::error!("{error}");
                fresh.extend(repeated);
                self.push_back(fresh, &error.into());
            }
        }
    }

    fn answer(&self, append: Append, outcome: Outcome) {
        let counters = &self.shared.counters;
        match outcome {
            Outcome::Stored => {
                self.shared.ledger().enter(&append.batch, append.payload.received_ns);
                counters.stored.fetch_add(1, Relaxed);
                counters.records.fetch_add(append.batch.records() as u64, Relaxed);
            }
            Outcome::Duplicate => drop(counters.duplicate.fetch_add(1, Relaxed)),
            Outcome::TooOld => counters.refuse("too_old"),
        }
        // The sender may have gone; it will ask again.
        let _ = append.answer.send(Ok(outcome));
    }

    fn push_back(&self, group: Vec<Append>, error: &IntakeError) {
        self.shared.counters.pushed_back.fetch_add(group.len() as u64, Relaxed);
        for append in group {
            let _ = append.answer.send(Err(error.clone()));
        }
    }

    fn rotate(&mut self) {
        let bytes = self.writer.open_bytes();
        let numbers = self.writer.rotate();
        let mut closed = self.shared.closed();
        let last = numbers.last().copied();
        // Abandoned segments come first; what they weigh is not known, and hardly matters.
        closed
            .extend(numbers.into_iter().map(|number| (number, if Some(number) == last { bytes } else { 0 })));
    }

    fn tell_wal_bytes(&self) {
        let bytes = self.shared.backlog_bytes() + self.writer.open_bytes();
        self.shared.counters.wal_bytes.store(bytes, Relaxed);
    }
}
