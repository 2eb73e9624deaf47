//! Flushing thread: converts closed segments to Parquet, or forwards them, in order.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, mpsc as std_mpsc};
use std::time::{Duration, Instant};

use stroboscope::span;
use tokio::sync::{mpsc, oneshot};

use super::committer::{Command, FlushCommand, IntakeState, Rotate};
use crate::self_tracing::span_if;
use stroboscope_store::data_dir::Lock;
use stroboscope_store::flush::{FlushError, Flusher, Forwarder, now_ns};
use stroboscope_store::limits::FORWARD_RATE_MIN;

/// Maximum number of flush intervals until a segment without news (see `Ledger::is_news`) is
/// flushed too. The log already keeps it durably, and a Parquet file without news costs more than
/// it is worth. The first batch of a process is news, so the store soon knows every process.
const QUIET_FLUSHES: u32 = 60;

/// Maximum number of flush intervals until an agent forwards a segment without news. The next
/// collector must be informed in time that a process is still alive.
const QUIET_FORWARDS: u32 = 10;

/// Maximum time for one attempt to forward a segment, in addition to its transfer at
/// [`FORWARD_RATE_MIN`].
const FORWARD: Duration = Duration::from_secs(30);
/// Maximum time of a requested flush of an agent, such as the one at its end. The service managers
/// in `examples/deploy/` wait a minute.
const LAST_FORWARD: Duration = Duration::from_secs(20);

/// Destination of closed segments.
pub(super) enum SegmentSink {
    Store(Flusher),
    Upstream(Forwarder),
}

impl SegmentSink {
    fn put(&mut self, segment: u64, until: Instant) -> Result<(), FlushError> {
        match self {
            Self::Store(flusher) => flusher.flush(segment),
            Self::Upstream(forwarder) => forwarder.forward(segment, until),
        }
    }

    fn all_flushed_until(&self, now_ns: i64) {
        if let Self::Store(flusher) = self {
            flusher.all_flushed_until(now_ns);
        }
    }

    fn quiet_flushes(&self) -> u32 {
        match self {
            Self::Store(_) => QUIET_FLUSHES,
            Self::Upstream(_) => QUIET_FORWARDS,
        }
    }
}

/// Thread that flushes closed segments, on request and at an interval.
pub(super) struct FlushThread {
    pub(super) sink: SegmentSink,
    pub(super) state: Arc<IntakeState>,
    pub(super) committer: mpsc::WeakSender<Command>,
    pub(super) commands: std_mpsc::Receiver<FlushCommand>,
    pub(super) interval: Duration,
    /// Number of timed flushes since the last one that included segments without news.
    pub(super) quiet_flushes: u32,
    /// Deadline of a requested flush while it runs; `None` at other times. Only agents heed it.
    pub(super) until: Option<Instant>,
    /// Set when a traced segment is flushed. The maintenance thread resets it.
    pub(super) others_flushed: Arc<AtomicBool>,
    /// Lock of the data directory, held as long as this thread may write.
    pub(super) _lock: Arc<Lock>,
}

impl FlushThread {
    pub(super) fn run(mut self) {
        use std_mpsc::RecvTimeoutError::{Disconnected, Timeout};
        let mut due = Instant::now() + self.interval;
        loop {
            match self
                .commands
                .recv_timeout(due.saturating_duration_since(Instant::now()))
            {
                Ok(command) => self.run_all(command),
                Err(Timeout) => {
                    self.quiet_flushes = (self.quiet_flushes + 1) % self.sink.quiet_flushes();
                    let _ = self.flush_all(self.quiet_flushes == 0);
                    due = Instant::now() + self.interval;
                }
                Err(Disconnected) => return,
            }
        }
    }

    /// Satisfies this command and those that wait behind it by one flush. Otherwise an ending agent
    /// might try to forward in vain for each of them.
    fn run_all(&mut self, first: FlushCommand) {
        let mut answers = Vec::new();
        for command in std::iter::once(first).chain(self.commands.try_iter()) {
            if let FlushCommand::Now(answer) = command {
                answers.push(answer);
            }
        }
        if answers.is_empty() {
            let _ = self.flush_closed();
            return;
        }
        self.until = Some(Instant::now() + LAST_FORWARD);
        let flushed = self.flush_all(true);
        self.until = None;
        for answer in answers {
            let _ = answer.send(flushed.clone());
        }
    }

    /// Flushes everything acknowledged so far. Unless `even_if_quiet`, an open segment without news
    /// stays open and is not flushed.
    fn flush_all(&mut self, even_if_quiet: bool) -> Result<(), String> {
        let now_ns = now_ns();
        self.rotate(even_if_quiet);
        self.flush_closed()?;
        self.sink.all_flushed_until(now_ns);
        Ok(())
    }

    /// Makes the committer close the open segment, and waits for that. Unless `even_if_quiet`, a
    /// segment without news stays open.
    fn rotate(&self, even_if_quiet: bool) {
        let (answer, done) = oneshot::channel();
        if let Some(committer) = self.committer.upgrade()
            && committer
                .blocking_send(Command::Rotate(Rotate {
                    even_if_quiet,
                    answer,
                }))
                .is_ok()
        {
            let _ = done.blocking_recv();
        }
    }

    /// Flushes closed segments in order, and stops at the first failure. The next call retries the
    /// failed segment.
    pub(super) fn flush_closed(&mut self) -> Result<(), String> {
        loop {
            let first = self.state.closed().first_key_value().map(|(n, b)| (*n, *b));
            let Some((segment, bytes)) = first else {
                return Ok(());
            };
            let now = Instant::now();
            let transfer = Duration::from_secs(bytes / FORWARD_RATE_MIN);
            let until = self.until.unwrap_or(now + FORWARD + transfer);
            if self.state.is_agent && until <= now {
                return Err(format!(
                    "{} bytes of log could not be forwarded in {} s; the next start forwards them",
                    self.state.backlog_bytes(),
                    LAST_FORWARD.as_secs()
                ));
            }
            let is_traced = self.state.traced().contains(&segment);
            let flush = span_if(is_traced, || span!("flush", segment));
            if let Err(error) = flush.scope(|| self.sink.put(segment, until)) {
                self.state.counters.flush_failures.fetch_add(1, Relaxed);
                let action = match self.state.is_agent {
                    true => "forward a WAL segment",
                    false => "put a WAL segment into the store",
                };
                tracing::error!(segment, %error, "cannot {action}; trying again soon");
                let text = error.to_string();
                self.state.failing().store = Some(text.clone());
                return Err(text);
            }
            self.state.failing().store = None;
            self.state.closed().remove(&segment);
            self.state.traced().remove(&segment);
            self.others_flushed.fetch_or(is_traced, Relaxed);
        }
    }
}
