//! Handle to the intake: submit, flush, stop.

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError, mpsc as std_mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use super::committer::{Append, Command, Committer, FlushCommand, IntakeState, NewItem};
use super::flushing::{FlushThread, SegmentSink};
use super::maintenance::{self, MaintenanceOptions, MaintenanceStop};
use super::recovery::{recovered, recovered_agent};
use super::{CommitOutcome, IntakeError};
use crate::live::{self, LiveModel, RECORDS_OPEN_MAX};
use crate::pool::{Peer, Pool, Share};
use crate::self_tracing;
use stroboscope_analysis::label::DEFAULT_MAX_LABELS;
use stroboscope_store::data_dir::{DataDir, Lock};
use stroboscope_store::decode::{CheckedBatch, OtlpTaken};
use stroboscope_store::flush::{Counters, FlushError, Upstream};
use stroboscope_store::ledger::Ledger;
use stroboscope_store::limits::{IN_FLIGHT_BYTES_MAX, WAL_BACKLOG_BYTES_MAX, WAL_SEGMENT_BYTES};
use stroboscope_store::maintenance::MaintenanceCounters;
use stroboscope_store::tables::Store;
use stroboscope_store::wal::{Payload, PayloadKind, WalError, Writer};

/// Capacity of the command channel, in commands.
pub(super) const QUEUE: usize = 4_096;

/// Default quiet time after a trace. Services usually send and retry within it.
const LIVE_QUIET: Duration = Duration::from_secs(30);

/// Default length of time that the live model covers.
const LIVE_WINDOW: Duration = Duration::from_secs(3_600);

/// Options of an intake.
#[derive(Clone, Debug)]
pub struct Options {
    /// Pause between timed flushes of the open segment. Only every 60th, and in an agent every
    /// 10th, includes an open segment without news (see `Ledger::is_news`).
    pub flush_interval: Duration,
    /// Size of a log segment, in bytes, above which it is closed, and flushed or forwarded.
    pub segment_bytes: u64,
    /// Maximum estimated memory of data that are received but not durable yet, in bytes.
    pub in_flight_bytes_max: usize,
    /// Quiet time after which the live model takes a trace as fully arrived; `None` for no model.
    pub live_quiet: Option<Duration>,
    /// Length of time that the live model covers.
    pub live_window: Duration,
    /// Maximum number of segments that the live model distinguishes.
    pub live_max_segments: usize,
    /// Options of store maintenance; with `None`, files stay as they were flushed.
    pub care: Option<MaintenanceOptions>,
    /// Maximum number of records that the live model holds of traces that are still arriving.
    pub live_records_max: usize,
    /// Size in bytes of an agent's closed segments above which it rejects data for now.
    pub backlog_bytes_max: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            flush_interval: Duration::from_secs(10),
            segment_bytes: WAL_SEGMENT_BYTES,
            in_flight_bytes_max: IN_FLIGHT_BYTES_MAX,
            live_quiet: Some(LIVE_QUIET),
            live_window: LIVE_WINDOW,
            live_max_segments: DEFAULT_MAX_LABELS,
            care: Some(MaintenanceOptions::default()),
            live_records_max: RECORDS_OPEN_MAX,
            backlog_bytes_max: WAL_BACKLOG_BYTES_MAX,
        }
    }
}

/// Mode of stopping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Flush everything to the store first; an agent forwards everything.
    Flush,
    /// Leave the log in place; the next start recovers it.
    Now,
}

/// Handle that accepts batches. Clones share the intake.
#[derive(Clone, Debug)]
pub struct Intake {
    pub(super) inner: Arc<Inner>,
}

#[derive(Debug)]
pub(super) struct Inner {
    pub(super) state: Arc<IntakeState>,
    /// Pool of bytes in flight.
    pub(super) in_flight: Pool,
    /// Channels to the threads; `None` once the intake is stopping.
    pub(super) channels: Mutex<Option<Channels>>,
    pub(super) threads: Mutex<Vec<JoinHandle<()>>>,
    pub(super) live: Option<LiveModel>,
    pub(super) care: Arc<MaintenanceCounters>,
}

#[derive(Clone, Debug)]
pub(super) struct Channels {
    pub(super) commands: mpsc::Sender<Command>,
    pub(super) flusher: std_mpsc::Sender<FlushCommand>,
    /// Stop signal of maintenance, which ends when the last clone is dropped.
    #[allow(dead_code, reason = "it is held")]
    pub(super) care: Option<MaintenanceStop>,
}

/// A submitted batch or OTLP request, whose outcome is pending.
#[derive(Debug)]
pub struct Submission(oneshot::Receiver<Result<CommitOutcome, IntakeError>>);

impl Submission {
    /// Waits until the outcome is decided.
    ///
    /// # Errors
    /// Returns an error if the data are not stored for now; the sender keeps them and retries.
    pub async fn outcome(self) -> Result<CommitOutcome, IntakeError> {
        self.0.await.unwrap_or(Err(IntakeError::Stopping))
    }
}

impl Intake {
    /// Locks the data directory, flushes the log of an earlier process to the store, and starts the
    /// threads.
    ///
    /// Blocks, so async code must not call it.
    ///
    /// # Errors
    /// Returns an error if the directory is in use or damaged, if the disk or the store fails, or
    /// if a thread cannot be started.
    pub fn open(root: &Path, store: Store, options: &Options) -> Result<Self, FlushError> {
        Self::open_in(&DataDir::create(root)?, store, options)
    }

    pub(super) fn open_in(
        data: &DataDir,
        store: Store,
        options: &Options,
    ) -> Result<Self, FlushError> {
        let lock = Arc::new(data.lock()?);
        let (writer, mut flusher, state) = recovered(data, store.clone())?;
        let requests = data.requests()?;
        let live = options
            .live_quiet
            .map(|quiet| {
                let times = (quiet, options.live_window);
                let limits = (options.live_records_max, options.live_max_segments);
                live::start(times, limits, requests)
            })
            .transpose()
            .map_err(FlushError::Thread)?;
        let live = live.map(|(model, feed, thread)| {
            flusher.feed(Box::new(feed));
            (model, thread)
        });
        let sink = SegmentSink::Store(flusher);
        Self::start(writer, sink, (Some(store), lock), state, live, options)
    }

    /// Opens the intake of an agent, which keeps no store: closed segments go to `upstream`. Blocks
    /// like [`Self::open`].
    ///
    /// # Errors
    /// Returns an error if the directory holds a store, and in the cases of [`Self::open`].
    pub fn open_agent(
        root: &Path,
        upstream: Box<dyn Upstream>,
        options: &Options,
    ) -> Result<Self, FlushError> {
        let data = DataDir::create(root)?;
        let lock = Arc::new(data.lock()?);
        let (writer, forwarder, state) =
            recovered_agent(&data, upstream, options.backlog_bytes_max)?;
        let sink = SegmentSink::Upstream(forwarder);
        Self::start(writer, sink, (None, lock), state, None, options)
    }

    fn start(
        writer: Writer,
        sink: SegmentSink,
        (store, lock): (Option<Store>, Arc<Lock>),
        state: Arc<IntakeState>,
        live: Option<(LiveModel, JoinHandle<()>)>,
        options: &Options,
    ) -> Result<Self, FlushError> {
        let (live, live_thread) = live.unzip();
        let (command_sender, commands) = mpsc::channel(QUEUE);
        let (flush_sender, flush_commands) = std_mpsc::channel();
        let committer = Committer::new(
            writer,
            state.clone(),
            commands,
            flush_sender.clone(),
            options.segment_bytes,
        );
        // Runtime that provides the committer's timers.
        let timer = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .map_err(FlushError::Thread)?;
        let others_flushed = Arc::new(AtomicBool::new(false));
        let flushing = FlushThread {
            sink,
            state: state.clone(),
            // A strong sender would keep both threads alive forever.
            committer: command_sender.downgrade(),
            commands: flush_commands,
            interval: options.flush_interval,
            quiet_flushes: 0,
            until: None,
            others_flushed: others_flushed.clone(),
            _lock: lock.clone(),
        };
        let spawn = |name: &str, body: Box<dyn FnOnce() + Send>| {
            std::thread::Builder::new()
                .name(name.to_owned())
                .spawn(body)
                .map_err(FlushError::Thread)
        };
        let mut threads = vec![
            spawn(
                "wal-commit",
                Box::new(move || timer.block_on(committer.run())),
            )?,
            spawn("store-flush", Box::new(move || flushing.run()))?,
        ];
        threads.extend(live_thread);
        let care = Arc::new(MaintenanceCounters::default());
        let mut channels = Channels {
            commands: command_sender,
            flusher: flush_sender,
            care: None,
        };
        if let Some((options, store)) = options.care.clone().zip(store) {
            let lock = maintenance::held(lock, state.counters.clone());
            let started = maintenance::start(store, options, lock, others_flushed, care.clone());
            let (stop, thread) = started.map_err(FlushError::Thread)?;
            channels.care = Some(stop);
            threads.push(thread);
        }
        let in_flight = Pool::new(options.in_flight_bytes_max);
        let inner = Inner {
            state,
            in_flight,
            channels: Mutex::new(Some(channels)),
            threads: Mutex::new(threads),
            live,
            care,
        };
        Ok(Self {
            inner: Arc::new(inner),
        })
    }

    pub(super) fn channels(&self) -> Option<Channels> {
        self.inner
            .channels
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Submits a batch. Waits while too many bytes are in flight (back pressure). The returned
    /// submission resolves to the batch's outcome.
    ///
    /// # Errors
    /// Returns an error if the collector is stopping, or if the batch is too long for the log.
    pub async fn submit(
        &self,
        batch: CheckedBatch,
        received_ns: u64,
    ) -> Result<Submission, IntakeError> {
        self.submit_of(Peer::default(), batch, received_ns).await
    }

    /// Submits a batch like [`Self::submit`], charged to the quota of `peer`.
    ///
    /// # Errors
    /// Returns an error if the collector is stopping, or if the batch is too long for the log.
    pub(crate) async fn submit_of(
        &self,
        peer: Peer,
        batch: CheckedBatch,
        received_ns: u64,
    ) -> Result<Submission, IntakeError> {
        let payload = Payload::of(received_ns, batch.batch());
        let in_flight = &self.inner.in_flight;
        let share = in_flight.lend_when_free(peer, lent_for(&payload)).await;
        self.append(NewItem::Batch(Box::new(batch)), payload, share)
            .await
    }

    /// Returns the estimated memory of data that are received but not durable yet, in bytes.
    #[must_use]
    pub fn in_flight_bytes(&self) -> usize {
        self.inner.in_flight.lent()
    }

    /// Waits until a forwarded request of `bytes` bytes may be in flight, and returns its share.
    pub(crate) async fn share_for_forwarded(&self, peer: Peer, bytes: usize) -> Share {
        let in_flight = &self.inner.in_flight;
        in_flight.lend_when_free(peer, bytes + BESIDE_BYTES).await
    }

    /// Submits an OTLP request; `taken` counts its checked content. Without a `share` of the bytes
    /// in flight, takes one, or rejects the request at once if too many bytes are in flight: the
    /// client may retry after the delay that the response specifies.
    ///
    /// # Errors
    /// Returns an error for such a rejection, if the collector is stopping, or if the request is
    /// too long for the log.
    pub(crate) async fn submit_otlp(
        &self,
        peer: Peer,
        kind: PayloadKind,
        bytes: Vec<u8>,
        received_ns: u64,
        taken: OtlpTaken,
        share: Option<Share>,
    ) -> Result<Submission, IntakeError> {
        let payload = Payload {
            received_ns,
            kind,
            bytes,
        };
        let in_flight = &self.inner.in_flight;
        let share = match share {
            Some(share) => share,
            None => {
                let lent = in_flight.lend(peer, lent_for(&payload));
                lent.map_err(|_| IntakeError::Busy {
                    bytes: in_flight.lent(),
                })?
            }
        };
        self.append(NewItem::Otlp(taken), payload, share).await
    }

    async fn append(
        &self,
        incoming: NewItem,
        payload: Payload,
        share: Share,
    ) -> Result<Submission, IntakeError> {
        if !payload.fits() {
            let bytes = payload.bytes.len();
            return Err(WalError::TooLong { bytes }.into());
        }
        let commands = self.channels().ok_or(IntakeError::Stopping)?.commands;
        let (answer, submission) = oneshot::channel();
        let is_traced = match &incoming {
            NewItem::Batch(batch) => self_tracing::is_traced(batch.batch()),
            NewItem::Otlp(_) => self_tracing::is_on(),
        };
        let append = Append {
            context: is_traced.then(stroboscope::capture),
            incoming,
            payload,
            answer,
            _share: share,
        };
        commands
            .send(Command::Append(Box::new(append)))
            .await
            .map_err(|_| IntakeError::Stopping)?;
        Ok(Submission(submission))
    }

    /// Flushes everything acknowledged so far to Parquet, or forwards it in an agent.
    ///
    /// # Errors
    /// Returns the reason as text for people.
    pub async fn flush(&self) -> Result<(), String> {
        let stopping = || IntakeError::Stopping.to_string();
        let flusher = self.channels().ok_or_else(stopping)?.flusher;
        let (answer, done) = oneshot::channel();
        flusher
            .send(FlushCommand::Now(answer))
            .map_err(|_| stopping())?;
        done.await.map_err(|_| stopping())?
    }

    /// Flushes first if `how` is [`Stop::Flush`]. Answers the batches in flight and ends the
    /// threads. Afterwards the intake rejects every batch.
    ///
    /// # Errors
    /// Returns an error if the last flush failed or a thread panicked. Acknowledged batches that
    /// were not flushed or forwarded are then still in the log.
    pub async fn stop(&self, how: Stop) -> Result<(), String> {
        let flushed = match how {
            Stop::Flush => self.flush().await,
            Stop::Now => Ok(()),
        };
        drop(
            self.inner
                .channels
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take(),
        );
        let threads = std::mem::take(
            &mut *self
                .inner
                .threads
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
        );
        let join = move || threads.into_iter().try_for_each(|thread| thread.join());
        match tokio::task::spawn_blocking(join).await {
            Ok(Ok(())) => flushed,
            _ => Err(
                "a thread of the intake panicked; acknowledged batches are in the log".to_owned(),
            ),
        }
    }

    /// Returns the counters of the intake.
    #[must_use]
    pub fn counters(&self) -> &Arc<Counters> {
        &self.inner.state.counters
    }

    /// Returns the counters of store maintenance.
    #[must_use]
    pub fn care(&self) -> &MaintenanceCounters {
        &self.inner.care
    }

    /// Returns the live model, if there is one.
    #[must_use]
    pub fn live(&self) -> Option<&LiveModel> {
        self.inner.live.as_ref()
    }

    /// Calls `look` with the live ledger. The ledger stays locked meanwhile, so `look` must be
    /// brief.
    pub fn with_ledger<T>(&self, look: impl FnOnce(&Ledger) -> T) -> T {
        look(&self.inner.state.ledger())
    }
}

/// Memory that a payload needs in addition to its own bytes.
const BESIDE_BYTES: usize = 1_024;

/// Returns the bytes in flight that a payload counts for. A small payload needs more memory than
/// its bytes, and a batch is also held decoded, with all its columns.
fn lent_for(payload: &Payload) -> usize {
    let times = match payload.kind {
        PayloadKind::Batch => 3,
        _ => 1,
    };
    times * payload.bytes.len() + BESIDE_BYTES
}
