//! Thread that reads the rings, builds batches and ships them to the collector.

mod buffer;
mod directives;
mod link;
mod notes;
#[cfg(feature = "simulation")]
pub(crate) mod simulated;
#[cfg(test)]
mod soak;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use stroboscope_burst::BurstConfig;
use stroboscope_proto::v1;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use crate::address::Destination;
use crate::baggage::load::Meter;
use crate::clock::{ClockSource, kernel};
use crate::drain::{Drain, Limits};
use crate::gate::timer::Timer;
use crate::loss::{LossCause, Losses};
use crate::{sigterm, sys, thread};
use buffer::Buffer;
use link::{Link, Progress};
use notes::{IDLE_WINDOWS_MAX, Notes};

/// Maximum interval between readings of the rings while little is recorded; a ring that is half
/// full is read earlier, unless its thread got a larger one. Each wakeup costs the service time,
/// and records lose nothing by waiting in a ring.
const QUIET_PASS: Duration = Duration::from_millis(100);
/// Interval between readings at a moderate load.
const BUSY_PASS: Duration = Duration::from_millis(5);
/// Interval between readings while a ring fills fast.
const FAST_PASS: Duration = Duration::from_millis(1);
/// Maximum interval between checks for SIGTERM if the SDK handles it. The signal handler sets a
/// flag, but does not wake this thread.
const SIGTERM_LOOK: Duration = Duration::from_millis(20);
/// Fill of the fullest ring, in 1/256, up to which little is being recorded.
const LITTLE: usize = 16;
/// Fill of a ring above which it fills fast, in 1/256.
const FAST: usize = 64;
/// Age in ns at which a batch with news is closed and shipped, even if it is not full.
const BATCH_AGE_NS: i64 = 200_000_000;
/// Age in ns at which a batch without news is closed and shipped, with the windows that wait. The
/// collector makes each batch durable, so a shorter age would cost it more syncs of its disk.
const IDLE_BATCH_AGE_NS: i64 = 60_000_000_000;
/// Maximum time to wait, when recording ends, for the collector to end the stream.
const GOODBYE: Duration = Duration::from_millis(200);

/// Figures for `stats()`, written by the shipping thread.
#[derive(Debug, Default)]
pub(crate) struct ShipCounters {
    pub(crate) spans: AtomicU64,
    pub(crate) events: AtomicU64,
    pub(crate) trimmed: AtomicU64,
    pub(crate) batches_acknowledged: AtomicU64,
    pub(crate) buffered_bytes: AtomicU64,
    pub(crate) open_spans: AtomicU64,
    /// Description of the last problem with the collector.
    pub(crate) trouble: Mutex<Option<String>>,
}

/// Configuration and shared state of the shipping thread.
pub(crate) struct Shipper {
    pub(crate) process: v1::Process,
    pub(crate) destination: Destination,
    pub(crate) buffer_bytes_max: usize,
    pub(crate) timer: Arc<Timer>,
    pub(crate) clock: Arc<dyn ClockSource>,
    pub(crate) progressed: Arc<ShipCounters>,
    pub(crate) losses: &'static Losses,
    /// Maximum time to ship pending records after a SIGTERM.
    pub(crate) shutdown_deadline: Duration,
    #[cfg(feature = "simulation")]
    pub(crate) simulated: Option<simulated::Simulation>,
}

/// Request to ship all pending records, report completion, and continue.
#[derive(Debug)]
pub(crate) struct Flush {
    pub(crate) until: std::time::Instant,
    /// Trace whose open spans the caller asks for; 0 for none.
    pub(crate) trace_id: u128,
    /// Receives the parents of these spans once the collector has stored everything, or `None` if a
    /// batch was rejected or discarded. Dropped without a message after `until` or at the end.
    pub(crate) done: std::sync::mpsc::SyncSender<Option<Vec<u64>>>,
}

/// Request to ship all pending records by the deadline, and end.
pub(crate) struct Stop {
    pub(crate) deadline: std::time::Instant,
}

impl Shipper {
    /// Runs until `stop`, the end of its sender, or a SIGTERM, and then ships pending records.
    pub(crate) async fn run(
        self,
        mut stop: oneshot::Receiver<Stop>,
        mut flushes: mpsc::UnboundedReceiver<Flush>,
    ) {
        // However this thread ends, no thread is left to handle SIGTERM.
        let _sigterm = SigtermReset;
        let shutdown_deadline = self.shutdown_deadline;
        let mut state = ShipTask::new(self);
        let timer = Arc::clone(&state.shipper.timer);
        let mut next_pass = Instant::now();
        let mut pause = QUIET_PASS;
        let filling = thread::filling();
        let deadline = loop {
            tokio::select! {
                // A dropped sender means that `init` failed to start the gate, so there is nothing
                // to wait for.
                told = &mut stop => break told.map_or_else(|_| Instant::now(), |stop| stop.deadline.into()),
                Some(flush) = flushes.recv() => state.flush(flush),
                () = filling.notified() => {
                    state.pass(Pass::Regular);
                    pause = FAST_PASS;
                    next_pass = Instant::now() + pause;
                }
                () = tokio::time::sleep_until(next_pass) => {
                    pause = next_pause(pause, state.pass(Pass::Regular));
                    next_pass = Instant::now() + pause;
                }
                () = tokio::time::sleep(SIGTERM_LOOK), if sigterm::is_installed() => {}
                progress = state.link.progress() => state.on(progress),
            }
            if sigterm::is_seen() {
                timer.stop();
                break Instant::now() + shutdown_deadline;
            }
            state.send();
            state.settle_flushes();
        };
        state.finish(deadline).await;
        if sigterm::is_seen() {
            sigterm::end_process();
        }
    }
}

/// Returns the pause until the next reading, from the last pause and the fill of the fullest ring
/// in 1/256.
fn next_pause(last: Duration, fullest: usize) -> Duration {
    match fullest {
        0..=LITTLE => (last * 2).clamp(BUSY_PASS, QUIET_PASS),
        fullest if fullest <= FAST => BUSY_PASS,
        _ => FAST_PASS,
    }
}

struct SigtermReset;

impl Drop for SigtermReset {
    fn drop(&mut self) {
        sigterm::reset();
    }
}

/// Flush that waits for the collector.
struct PendingFlush {
    /// Sequence below which all batches must be settled.
    below: u64,
    /// [`ShipTask::failed`] before the flush.
    failed: u64,
    /// Parents of the trace's open spans.
    open: Vec<u64>,
    flush: Flush,
}

/// Reason for reading the rings.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pass {
    /// Ordinary reading; closes a batch if one is due.
    Regular,
    /// A caller waits for the records; closes any batch with records, clock steps or windows.
    Flush,
    /// Last reading before recording stops; also closes open spans.
    Last,
}

struct ShipTask {
    shipper: Shipper,
    drain: Drain,
    buffer: Buffer,
    notes: Notes,
    link: Link,
    /// Monotonic time of the last batch that was closed because it was due, in ns; at first, the
    /// start.
    last_batch_at_ns: i64,
    /// End of the last batch that the buffer took, in ns of wall time; at first, the start.
    last_batch_ns: i64,
    /// Total of losses when the buffer last took a batch.
    losses_said: u64,
    /// True if the last batch found the buffer full, and no batch has left the buffer since.
    is_full: bool,
    /// True if the buffer took a batch that reports the end of recording.
    end_said: bool,
    /// Burst-config of the last batch that the buffer took.
    config_said: Option<BurstConfig>,
    /// True if a batch was sent on the latest connection or waits to be sent, which announces this
    /// process to the collector.
    greeted: bool,
    flushing: Vec<PendingFlush>,
    meter: Meter,
    /// Number of batches that were rejected or found the buffer full.
    failed: u64,
    /// True once a lost or failed connection was reported on standard error. Only the first one is
    /// reported.
    said_down: bool,
    kernel_clock: kernel::KernelClockReports,
}

impl ShipTask {
    fn new(shipper: Shipper) -> Self {
        let drain = Drain::new(&*shipper.clock, Limits::default());
        let link = Link::new(
            shipper.destination.clone(),
            shipper.process.clone(),
            Arc::clone(&shipper.timer),
        );
        let last_batch_ns = shipper.clock.wall_ns();
        Self {
            drain,
            buffer: Buffer::with_max(shipper.buffer_bytes_max),
            notes: Notes::default(),
            link,
            last_batch_at_ns: shipper.clock.monotonic_ns(),
            last_batch_ns,
            losses_said: 0,
            is_full: false,
            end_said: false,
            config_said: None,
            greeted: false,
            said_down: false,
            kernel_clock: kernel::KernelClockReports::default(),
            flushing: Vec::new(),
            meter: Meter::new(),
            failed: 0,
            shipper,
        }
    }

    /// Reads the rings and closes a batch if one is due. Returns the fill of the fullest ring in
    /// 1/256.
    fn pass(&mut self, why: Pass) -> usize {
        let Self { shipper, drain, .. } = self;
        let now_ns = shipper.clock.wall_ns();
        let mut full = Vec::new();
        let fullest = drain.pass(
            &*shipper.clock,
            || shipper.timer.with_log(|log| log.snapshot()),
            &mut |batch| full.push(batch),
        );
        #[cfg(feature = "simulation")]
        if let Some(simulated) = &shipper.simulated {
            simulated.record(drain, shipper.losses);
        }
        if why == Pass::Last {
            drain.close_all(shipper.clock.ticks(), &mut |batch| full.push(batch));
        }
        for batch in full {
            self.push(now_ns, batch);
        }
        let (last, at_ns) = (why == Pass::Last, self.shipper.clock.monotonic_ns());
        let timer = &self.shipper.timer;
        let windows = timer.with_log(|log| log.take_unreported(now_ns, last));
        self.notes.add_windows(windows);
        if self.is_batch_due(why, at_ns - self.last_batch_at_ns) {
            let mut batch = self.drain.batch();
            batch.is_last = last;
            self.end_said = self.push(now_ns, batch) && last;
            self.last_batch_at_ns = at_ns;
        }
        self.publish();
        fullest
    }

    /// Reports whether the open batch, which has this age, must be closed. A flush and the last
    /// pass close any batch with records, clock steps or windows. A regular pass closes a batch of
    /// at least [`BATCH_AGE_NS`] that contains news or [`IDLE_WINDOWS_MAX`] windows, or that has
    /// reached [`IDLE_BATCH_AGE_NS`]. Records, clock steps, losses and another burst-config are
    /// news. Windows are not. The first batch on a new connection is news, too: it announces this
    /// process to the collector. So a process that records nothing sends a batch when it connects,
    /// when its config changes, and once a minute, or sooner if windows are frequent. While the
    /// buffer is full, only records and clock steps are news: a discarded batch reports nothing.
    fn is_batch_due(&self, why: Pass, age_ns: i64) -> bool {
        let (has_records, windows) = (self.drain.has_something(), self.notes.windows());
        if why != Pass::Regular {
            return has_records || windows > 0;
        }
        let is_old = windows >= IDLE_WINDOWS_MAX || age_ns >= IDLE_BATCH_AGE_NS;
        let has_news = has_records
            || !self.is_full
                && (!self.greeted
                    || self.shipper.losses.total() != self.losses_said
                    || self.config_said != Some(self.shipper.timer.config()));
        age_ns >= BATCH_AGE_NS && (has_news || is_old)
    }

    /// Adds a batch with the notes to the buffer. Returns false if the buffer is full; the batch is
    /// then discarded without reporting anything. The next batch covers its time, and carries its
    /// notes up to a limit.
    fn push(&mut self, now_ns: i64, mut batch: v1::Batch) -> bool {
        batch.process = Some(self.shipper.process.clone());
        let losses = self.shipper.losses.total();
        batch.losses = self.shipper.losses.wire();
        self.notes.move_into(&mut batch);
        // The clock may have been set back since.
        batch.from_ns = self.last_batch_ns.clamp(0, now_ns.max(0)).cast_unsigned();
        batch.to_ns = now_ns.max(0).cast_unsigned();
        let (config, since_ns) = self.shipper.timer.config_since();
        batch.burst_config = config.bits();
        batch.burst_config_since_ns = since_ns.max(0).cast_unsigned();
        let clock = &self.shipper.clock;
        batch.kernel_clock = self
            .kernel_clock
            .due(clock.kernel_clock(), clock.monotonic_ns());
        self.is_full = match self.buffer.push(batch) {
            Ok(()) => {
                (self.losses_said, self.config_said) = (losses, Some(config));
                self.greeted = true;
                self.last_batch_ns = now_ns;
                false
            }
            Err((batch, records)) => {
                let (losses, bytes_max) = (self.shipper.losses, self.shipper.buffer_bytes_max);
                losses.add(LossCause::BufferFull, records);
                losses.add(
                    LossCause::NotesDropped,
                    self.notes.restore(*batch, bytes_max),
                );
                self.kernel_clock = kernel::KernelClockReports::default();
                self.failed += 1;
                true
            }
        };
        #[cfg(feature = "simulation")]
        self.tell_kept();
        !self.is_full
    }

    fn flush(&mut self, flush: Flush) {
        let failed = self.failed;
        // Runs two passes, because an end can be in another thread's ring than its begin.
        self.pass(Pass::Regular);
        self.pass(Pass::Flush);
        self.link.hurry();
        self.flushing.push(PendingFlush {
            below: self.buffer.next_sequence(),
            failed,
            open: self.drain.open_spans().parents(flush.trace_id),
            flush,
        });
    }

    /// Answers flushes whose batches the collector has stored or rejected, and drops flushes whose
    /// caller no longer waits.
    fn settle_flushes(&mut self) {
        let (unsettled, failed) = (self.buffer.first_sequence(), self.failed);
        let now = std::time::Instant::now();
        self.flushing.retain_mut(|flushing| {
            let shipped = unsettled.is_none_or(|first| first >= flushing.below);
            if shipped {
                let open = std::mem::take(&mut flushing.open);
                // The caller may be gone.
                let _ = (flushing.flush.done).try_send((failed == flushing.failed).then_some(open));
            }
            !shipped && now < flushing.flush.until
        });
    }

    fn on(&mut self, progress: Progress) {
        #[cfg(feature = "simulation")]
        self.tell_progress(&progress);
        match progress {
            Progress::Connected => {
                self.buffer.resend_all();
                // The peer may be another collector, to which this process must be announced.
                self.greeted = !self.buffer.is_empty();
            }
            Progress::Reply(reply) => {
                let Some(records) = self.buffer.settle(reply.sequence) else {
                    return;
                };
                self.is_full = false;
                if reply.outcome == v1::ShipOutcome::Refused as i32 {
                    let losses = self.shipper.losses;
                    losses.add(LossCause::CollectorRefused, records);
                    self.failed += 1;
                    let why = link::for_people(&reply.detail);
                    self.note_trouble(format!("the collector refused a batch: {why}"));
                } else {
                    self.shipper
                        .progressed
                        .batches_acknowledged
                        .fetch_add(1, Relaxed);
                }
            }
            Progress::Slow(problem) => self.note_trouble(problem),
            Progress::Down(problem) => {
                if !std::mem::replace(&mut self.said_down, true) {
                    // Reported once: this shows that the collector is missing or unreachable, and
                    // repeating it would not help.
                    sys::say(format_args!(
                        "{problem}; records wait in memory, trying again"
                    ));
                }
                self.note_trouble(problem);
            }
        }
    }

    fn note_trouble(&self, problem: String) {
        *self
            .shipper
            .progressed
            .trouble
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some(problem);
    }

    fn send(&mut self) {
        while let Some(batch) = self.buffer.next_unsent() {
            if !self.link.try_send(batch) {
                break;
            }
            self.buffer.mark_sent();
        }
    }

    fn publish(&mut self) {
        let clock = &self.shipper.clock;
        if let Some(used) = self.meter.tick(clock.monotonic_ns()) {
            #[cfg(feature = "simulation")]
            let used = simulated::without_machine(used, self.shipper.simulated.as_ref());
            let dropped = self.notes.add_load(used.until(clock.wall_ns()));
            self.shipper.losses.add(LossCause::NotesDropped, dropped);
        }
        let (counts, progressed) = (self.drain.counts(), &self.shipper.progressed);
        progressed.spans.store(counts.spans, Relaxed);
        progressed.events.store(counts.events, Relaxed);
        progressed.trimmed.store(counts.trimmed, Relaxed);
        progressed
            .open_spans
            .store(self.drain.open_spans().len() as u64, Relaxed);
        progressed
            .buffered_bytes
            .store(self.buffer.bytes() as u64, Relaxed);
    }

    /// Runs the last passes, then ships as much as the deadline allows.
    async fn finish(mut self, deadline: Instant) {
        self.pass(Pass::Regular);
        self.pass(Pass::Last);
        self.link.hurry();
        let mut has_told = !self.greeted;
        loop {
            if self.buffer.is_empty() {
                // Ships losses since the last batch, which usually come from a batch that found the
                // buffer full. Done once, because other threads may continue to lose records. A
                // collector that is connected also learns of the end.
                let has_losses = self.shipper.losses.total() != self.losses_said;
                let is_unsaid = !self.end_said && self.link.is_up();
                if has_told || !(has_losses || is_unsaid) {
                    break;
                }
                has_told = true;
                let mut batch = self.drain.batch();
                batch.is_last = true;
                self.end_said = self.push(self.shipper.clock.wall_ns(), batch);
            }
            self.send();
            match tokio::time::timeout_at(deadline, self.link.progress()).await {
                Ok(progress) => self.on(progress),
                Err(_) => break,
            }
        }
        self.settle_flushes();
        let undelivered = self.buffer.records();
        if undelivered > 0 {
            sys::say(format_args!(
                "{undelivered} records could not be delivered before the end of the process"
            ));
        }
        self.shipper
            .losses
            .add(LossCause::ShutdownDeadline, undelivered);
        self.publish();
        // If time is left, a short goodbye shows the collector a regular end instead of a broken
        // stream.
        let _ =
            tokio::time::timeout_at(deadline.min(Instant::now() + GOODBYE), self.link.hang_up())
                .await;
    }
}
