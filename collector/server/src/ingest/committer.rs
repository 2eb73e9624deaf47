//! Committing thread: collects the waiting appends, then does one write and one sync, then answers.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc as std_mpsc};
use std::time::{Duration, Instant};

use stroboscope::{CapturedContext, Span, span};
use tokio::sync::{mpsc, oneshot};

use super::IntakeError;
use crate::line_limit::{LineLimit, Turn};
use crate::pool::Share;
use stroboscope_store::decode::{CheckedBatch, OtlpTaken};
use stroboscope_store::flush::{Counters, now_ns};
use stroboscope_store::ledger::{Ledger, Verdict};
use stroboscope_store::limits::{WAL_BACKLOG_BYTES_MAX, WAL_GROUP_BYTES_MAX};
use stroboscope_store::wal::{Payload, WalError, Writer};

/// Outcome of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommitOutcome {
    /// The batch is durable.
    Stored,
    /// An earlier submission of the batch is durable.
    Duplicate,
    /// The batch is older than the ledger's range, and rejected permanently.
    TooOld,
}

pub(super) struct Append {
    pub(super) incoming: NewItem,
    pub(super) payload: Payload,
    pub(super) answer: oneshot::Sender<Result<CommitOutcome, IntakeError>>,
    /// Trace context of the batch; `None` if the batch is not traced.
    pub(super) context: Option<CapturedContext>,
    /// Share of the bytes in flight, released with the answer.
    pub(super) _share: Share,
}

/// Checked content of an append, which decides its outcome and its counts.
pub(super) enum NewItem {
    Batch(Box<CheckedBatch>),
    /// An OTLP request, which is always new: OTLP has no sequence numbers.
    Otlp(OtlpTaken),
}

impl NewItem {
    fn is_news(&self, ledger: &Ledger) -> bool {
        match self {
            Self::Batch(batch) => ledger.is_news(batch),
            Self::Otlp(_) => true,
        }
    }
}

/// A command to the flushing thread.
pub(super) enum FlushCommand {
    /// A segment is full and was closed.
    Closed,
    /// Flush everything now, and answer when done or failed.
    Now(oneshot::Sender<Result<(), String>>),
}

pub(super) enum Command {
    Append(Box<Append>),
    /// Close the open segment.
    Rotate(Rotate),
}

pub(super) struct Rotate {
    /// True if a segment that holds only quiet batches is closed as well.
    pub(super) even_if_quiet: bool,
    /// Channel that is answered once the segment is closed, or was left open because it is quiet.
    pub(super) answer: oneshot::Sender<()>,
}

/// Maximum time that quiet batches wait after the last commit. A batch is quiet if it has no news
/// (see [`Ledger::is_news`]); it waits to share the next sync. So an idle fleet costs about one
/// sync per second, whatever its size. Batches with news never wait, and commit the waiting ones
/// with them.
const QUIET_COMMIT: Duration = Duration::from_secs(1);

/// Interval at which a failed log is probed, even if no batch arrives. Otherwise a client that
/// checks `/healthz` before sending would wait forever.
const PROBE: Duration = Duration::from_secs(1);
/// Maximum size of a probe, in bytes. A probe tests the disk without filling it.
const PROBE_BYTES_MAX: usize = 1 << 20;

/// Rate limits for log messages that clients can trigger by retrying while the disk fails.
static FAILED: LineLimit = LineLimit::new();
static WORKS: LineLimit = LineLimit::new();

/// State shared by the committing thread, the flushing thread and [`Intake`](super::Intake).
#[derive(Debug)]
pub(super) struct IntakeState {
    pub(super) ledger: Mutex<Ledger>,
    /// True if closed segments are forwarded instead of stored.
    pub(super) is_agent: bool,
    /// Maximum size of the closed segments, in bytes; beyond it, batches are rejected for now.
    pub(super) backlog_bytes_max: u64,
    /// Closed segments that are not stored or forwarded yet, with their sizes in bytes (0 for
    /// abandoned ones).
    pub(super) closed: Mutex<BTreeMap<u64, u64>>,
    pub(super) counters: Arc<Counters>,
    pub(super) failing: Mutex<CommitFailures>,
    /// Closed segments whose flush is traced. Such a segment, or another one that was closed at the
    /// same time, holds news with a trace context.
    pub(super) traced: Mutex<BTreeSet<u64>>,
}

/// Current failures, for `/healthz` and `/readyz`.
#[derive(Debug, Default)]
pub(super) struct CommitFailures {
    /// Error of the log, if the last append or probe failed.
    pub(super) log: Option<String>,
    /// Error of the store or the gateway, if the last flush of a segment failed.
    pub(super) store: Option<String>,
}

impl IntakeState {
    /// Creates the state with the ledger of everything acknowledged so far, for a collector with a
    /// store.
    pub(super) fn new(ledger: Ledger, counters: Arc<Counters>) -> Self {
        Self {
            ledger: Mutex::new(ledger),
            is_agent: false,
            backlog_bytes_max: WAL_BACKLOG_BYTES_MAX,
            closed: Mutex::default(),
            counters,
            failing: Mutex::default(),
            traced: Mutex::default(),
        }
    }

    /// Returns the error for a backlog of `bytes` bytes.
    pub(super) fn backlog_error(&self, bytes: u64) -> IntakeError {
        match self.is_agent {
            true => IntakeError::Unforwarded { bytes },
            false => IntakeError::Backlog { bytes },
        }
    }

    /// Locks the live ledger. A thread that panicked left it consistent: entries are added only
    /// after every step that can fail.
    pub(super) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn closed(&self) -> MutexGuard<'_, BTreeMap<u64, u64>> {
        self.closed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn traced(&self) -> MutexGuard<'_, BTreeSet<u64>> {
        self.traced.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn failing(&self) -> MutexGuard<'_, CommitFailures> {
        self.failing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn backlog_bytes(&self) -> u64 {
        self.closed().values().sum()
    }
}

pub(super) struct Committer {
    writer: Writer,
    state: Arc<IntakeState>,
    commands: mpsc::Receiver<Command>,
    flusher: std_mpsc::Sender<FlushCommand>,
    segment_bytes: u64,
    /// Quiet batches, which wait for the next sync.
    waiting: CommitGroup,
    /// Time of the last commit.
    committed: Option<Instant>,
    /// True if a batch with news or an OTLP request was stored, or an append failed, since the last
    /// rotation.
    has_news: bool,
    /// True if news with a trace context was stored since the last rotation.
    is_traced: bool,
    /// Size in bytes and time of the next probe, if the log has failed.
    probe: Option<(usize, Instant)>,
}

/// Appends that share one write and one sync (group commit).
#[derive(Default)]
struct CommitGroup {
    appends: Vec<Append>,
    bytes: usize,
}

impl Committer {
    /// Creates a committer with no waiting appends.
    pub(super) fn new(
        writer: Writer,
        state: Arc<IntakeState>,
        commands: mpsc::Receiver<Command>,
        flusher: std_mpsc::Sender<FlushCommand>,
        segment_bytes: u64,
    ) -> Self {
        Self {
            writer,
            state,
            commands,
            flusher,
            segment_bytes,
            waiting: CommitGroup::default(),
            committed: None,
            has_news: false,
            is_traced: false,
            probe: None,
        }
    }

    /// Runs until all senders are gone and every command is answered. Blocks while it commits.
    pub(super) async fn run(mut self) {
        let mut last_forgotten_ns = now_ns();
        while let Some(first) = self.next().await {
            let mut group = std::mem::take(&mut self.waiting);
            let mut rotate = first.and_then(|first| group.take(first));
            while rotate.is_none() && group.bytes < WAL_GROUP_BYTES_MAX {
                let Ok(command) = self.commands.try_recv() else {
                    break;
                };
                rotate = group.take(command);
            }
            let is_forced = rotate.as_ref().is_some_and(|rotate| rotate.even_if_quiet);
            if !is_forced && self.may_wait(&group) {
                self.waiting = group;
            } else if !group.appends.is_empty() {
                self.commit(group.appends);
                self.committed = Some(Instant::now());
            }
            let full = self.writer.open_bytes() > self.segment_bytes;
            if is_forced || full || rotate.is_some() && self.has_news {
                self.rotate();
            }
            if let Some(Rotate { answer, .. }) = rotate {
                // The requester may have gone.
                let _ = answer.send(());
            } else if full {
                let _ = self.flusher.send(FlushCommand::Closed);
            }
            self.probe_if_due();
            self.tell_wal_bytes();
            if now_ns() - last_forgotten_ns > 3_600_000_000_000 {
                last_forgotten_ns = now_ns();
                self.state.ledger().forget_idle(last_forgotten_ns);
            }
        }
    }

    /// Returns the next command; `Some(None)` when waiting batches or a probe are due; `None` at
    /// the end.
    async fn next(&mut self) -> Option<Option<Command>> {
        let is_waiting = !self.waiting.appends.is_empty();
        let quiet = self.committed.filter(|_| is_waiting);
        let until = quiet.map(|committed| committed + QUIET_COMMIT);
        let probe = self.probe.map(|(_, at)| at);
        let Some(until) = until.into_iter().chain(probe).min() else {
            return self.commands.recv().await.map(Some);
        };
        match tokio::time::timeout_at(until.into(), self.commands.recv()).await {
            // All senders are gone. If batches still wait, they are answered before the end.
            Ok(None) => is_waiting.then_some(None),
            received => Some(received.unwrap_or(None)),
        }
    }

    /// Reports whether a group may wait for others: it contains no news and is small, the last
    /// commit was recent, and further commands can arrive.
    fn may_wait(&self, group: &CommitGroup) -> bool {
        let is_soon = self
            .committed
            .is_some_and(|committed| committed.elapsed() < QUIET_COMMIT);
        let ledger = self.state.ledger();
        is_soon
            && !self.commands.is_closed()
            && group.bytes < WAL_GROUP_BYTES_MAX
            && !group
                .appends
                .iter()
                .any(|append| append.incoming.is_news(&ledger))
    }

    /// Decides the outcome of each append in a group, writes the new ones to the log, and answers
    /// all. If the backlog is too large, all answers are errors. If the write fails, the new
    /// appends and their repetitions in the group get errors.
    pub(super) fn commit(&mut self, group: Vec<Append>) {
        if group.is_empty() {
            return;
        }
        let backlog_bytes = self.state.backlog_bytes();
        if backlog_bytes > self.state.backlog_bytes_max {
            return self.push_back(group, &self.state.backlog_error(backlog_bytes));
        }
        let mut fresh = Vec::new();
        let mut payloads = Vec::new();
        let mut repeated = Vec::new();
        let mut in_group = HashSet::new();
        for mut append in group {
            let key = match &append.incoming {
                NewItem::Batch(batch) => Some((batch.incarnation(), batch.sequence())),
                NewItem::Otlp(_) => None,
            };
            let verdict = key.map_or(Verdict::New, |key| {
                self.state.ledger().verdict(key.0, key.1)
            });
            match verdict {
                Verdict::Duplicate => self.answer(append, CommitOutcome::Duplicate),
                Verdict::TooOld => self.answer(append, CommitOutcome::TooOld),
                // If a group contains a batch twice, the second is durable exactly if the first is.
                Verdict::New if key.is_some_and(|key| !in_group.insert(key)) => {
                    repeated.push(append);
                }
                Verdict::New => {
                    let emptied = Payload {
                        bytes: Vec::new(),
                        ..append.payload
                    };
                    payloads.push(std::mem::replace(&mut append.payload, emptied));
                    fresh.push(append);
                }
            }
        }
        // Each traced batch gets spans of the write and the sync, although both are done once.
        let spans = |begin: fn() -> Span| -> Vec<Span> {
            let contexts = fresh.iter().filter_map(|append| append.context.as_ref());
            let begun = contexts.map(|context| context.scope(begin));
            begun.filter(Span::is_recorded).collect()
        };
        let mut under_way = spans(|| span!("log_append"));
        let appended = self.writer.append_group_telling(&payloads, &mut || {
            under_way.clear();
            under_way = spans(|| span!("log_sync"));
        });
        drop(under_way);
        match appended {
            Ok(()) => {
                let bytes: u64 = payloads.iter().map(Payload::bytes_in_segment).sum();
                self.state
                    .counters
                    .wal_bytes_written
                    .fetch_add(bytes, Relaxed);
                self.state
                    .counters
                    .commits
                    .fetch_add(u64::from(bytes > 0), Relaxed);
                if bytes > 0 {
                    self.log_works();
                }
                fresh
                    .into_iter()
                    .for_each(|append| self.answer(append, CommitOutcome::Stored));
                repeated
                    .into_iter()
                    .for_each(|append| self.answer(append, CommitOutcome::Duplicate));
            }
            Err(error) => {
                if let Some(Turn { left_out }) = FAILED.next() {
                    tracing::error!(left_out, "{error}");
                }
                let bytes: u64 = payloads.iter().map(Payload::bytes_in_segment).sum();
                self.log_failed(&error, usize::try_from(bytes).unwrap_or(PROBE_BYTES_MAX));
                // An abandoned segment is flushed soon, whatever it contains.
                self.has_news = true;
                fresh.extend(repeated);
                self.push_back(fresh, &error.into());
            }
        }
    }

    fn log_failed(&mut self, error: &WalError, bytes: usize) {
        self.state.failing().log = Some(error.to_string());
        self.probe = Some((bytes.min(PROBE_BYTES_MAX), Instant::now() + PROBE));
    }

    fn log_works(&mut self) {
        if self.probe.take().is_some() {
            if let Some(Turn { left_out }) = WORKS.next() {
                tracing::info!(left_out, "the log can be written again");
            }
            self.state.failing().log = None;
        }
    }

    fn probe_if_due(&mut self) {
        if let Some((bytes, at)) = self.probe
            && at <= Instant::now()
        {
            self.probe_log(bytes);
        }
    }

    /// Tests whether `bytes` bytes could be appended to the log now, and records the result for
    /// `/healthz`.
    pub(super) fn probe_log(&mut self, bytes: usize) {
        match self.writer.probe(bytes) {
            Ok(()) => self.log_works(),
            Err(error) => self.log_failed(&error, bytes),
        }
    }

    fn answer(&mut self, append: Append, outcome: CommitOutcome) {
        let counters = &self.state.counters;
        match outcome {
            CommitOutcome::Stored => {
                let mut ledger = self.state.ledger();
                let is_news = append.incoming.is_news(&ledger);
                self.has_news |= is_news;
                self.is_traced |= is_news && append.context.is_some();
                let records = match &append.incoming {
                    NewItem::Batch(batch) => {
                        ledger.enter(batch, append.payload.received_ns);
                        counters.stored.fetch_add(1, Relaxed);
                        batch.records() as u64
                    }
                    NewItem::Otlp(taken) => {
                        counters.otlp_requests.fetch_add(1, Relaxed);
                        counters.leave_out(append.payload.kind, taken);
                        taken.records
                    }
                };
                drop(ledger);
                counters.records.fetch_add(records, Relaxed);
            }
            CommitOutcome::Duplicate => drop(counters.duplicate.fetch_add(1, Relaxed)),
            CommitOutcome::TooOld => counters.refuse("too_old"),
        }
        // The sender may have gone; it will retry.
        let _ = append.answer.send(Ok(outcome));
    }

    /// Rejects a group for now (back pressure). The senders keep their batches and retry.
    fn push_back(&self, group: Vec<Append>, error: &IntakeError) {
        self.state
            .counters
            .pushed_back
            .fetch_add(group.len() as u64, Relaxed);
        for append in group {
            let _ = append.answer.send(Err(error.clone()));
        }
    }

    pub(super) fn rotate(&mut self) {
        self.has_news = false;
        let bytes = self.writer.open_bytes();
        let numbers = self.writer.rotate();
        let mut closed = self.state.closed();
        let last = numbers.last().copied();
        // Abandoned segments come first. Their sizes are unknown and hardly matter.
        if std::mem::take(&mut self.is_traced) {
            self.state.traced().extend(&numbers);
        }
        closed.extend(
            numbers
                .into_iter()
                .map(|number| (number, if Some(number) == last { bytes } else { 0 })),
        );
    }

    fn tell_wal_bytes(&self) {
        let bytes = self.state.backlog_bytes() + self.writer.open_bytes();
        self.state.counters.wal_bytes.store(bytes, Relaxed);
    }
}

impl CommitGroup {
    /// Adds an append, or returns the command to close the segment.
    fn take(&mut self, command: Command) -> Option<Rotate> {
        match command {
            Command::Append(append) => {
                self.bytes += append.payload.bytes.len();
                self.appends.push(*append);
                None
            }
            Command::Rotate(rotate) => Some(rotate),
        }
    }
}
