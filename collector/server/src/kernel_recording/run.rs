//! The two threads of a kernel recording.

use std::collections::VecDeque;
use std::hash::{BuildHasher as _, Hasher as _};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

use stroboscope_analysis::kernel::call::Architecture;
use stroboscope_analysis::kernel::event::{Event, LossCounts};
use stroboscope_burst::BurstConfig;
use stroboscope_kernel::{Recorder, StartError};
use stroboscope_kernel_model::{Facility, Processes, Settings};

use super::chunks::ChunkCutter;
use super::settings::{RecordingSettings, RecordingSummary};
use crate::capabilities::{self, CapabilitySet};
use stroboscope_store::flush::now_ns;
use stroboscope_store::tables::{KernelChunk, Store, StoreError, write_kernel};

/// Number of drained events at which draining pauses; half as many end a chunk early. In addition
/// to these events, at most three chunks are in memory (72 bytes per event) until recording stops.
const EVENTS_MAX: usize = 1 << 20;
/// Usual pause between drains of the kernel's buffers.
const DRAIN_EVERY: Duration = Duration::from_millis(5);
/// Time from the end of a chunk until all its events have been drained, unless draining has paused.
const SETTLED: Duration = Duration::from_millis(50);

/// A recording that is not started yet: a thread that waits.
///
/// The waiting thread inherits the capabilities of the thread that creates it, which may then drop
/// its own. The waiting thread drops those that it no longer needs, once its programs are loaded.
#[derive(Debug)]
pub struct PreparedRecording {
    stop: Arc<AtomicBool>,
    change: PendingChange,
    begin: SyncSender<()>,
    begun: Receiver<Result<(Facility, u64), StartError>>,
    chunks: Receiver<KernelChunk>,
    drain: JoinHandle<LossCounts>,
}

impl PreparedRecording {
    /// Spawns the waiting thread. It ends if the prepared recording is dropped without
    /// [`start`](Self::start).
    ///
    /// # Errors
    /// Returns an error if the thread cannot be spawned.
    pub fn new(settings: RecordingSettings) -> Result<Self, StartError> {
        let (begin, to_begin) = sync_channel(1);
        let (to_say, begun) = sync_channel(1);
        let (sender, chunks) = sync_channel(1);
        let stop = Arc::new(AtomicBool::new(false));
        let stopping = Arc::clone(&stop);
        let change = PendingChange::default();
        let changing = Arc::clone(&change);
        let drain = std::thread::Builder::new().name("kernel-drain".into());
        let drain = drain.spawn(move || {
            if to_begin.recv().is_err() {
                return LossCounts::default();
            }
            match record(&settings.kernel) {
                Ok(recorder) => {
                    // The thread that starts the recording waits for this message.
                    let _ = to_say.send(Ok((recorder.facility(), recorder.memory_bytes())));
                    Drain::new(&settings, sender, changing).run(recorder, &stopping)
                }
                Err(error) => {
                    let _ = to_say.send(Err(error));
                    LossCounts::default()
                }
            }
        });
        Ok(Self {
            stop,
            change,
            begin,
            begun,
            chunks,
            drain: drain.map_err(no_thread)?,
        })
    }

    /// Starts recording.
    ///
    /// # Errors
    /// Returns an error if the kernel or the system refuses. The waiting thread ends then.
    pub fn start(self, store: Store) -> Result<KernelRecording, StartError> {
        let gone = || no_thread(std::io::Error::other("it is gone"));
        self.begin.send(()).map_err(|_| gone())?;
        let (facility, memory_bytes) = self.begun.recv().map_err(|_| gone())??;
        let chunks = self.chunks;
        let writer = std::thread::Builder::new().name("kernel-writer".into());
        let writer = writer
            .spawn(move || write(&chunks, &store))
            .inspect_err(|_| self.stop.store(true, Relaxed));
        Ok(KernelRecording {
            stop: self.stop,
            change: self.change,
            facility,
            memory_bytes,
            drain: Some(self.drain),
            writer: Some(writer.map_err(no_thread)?),
        })
    }
}

fn no_thread(source: std::io::Error) -> StartError {
    StartError::System {
        action: "starting a thread".to_owned(),
        source,
    }
}

/// Opens a recorder, drops the capabilities that are no longer needed, and begins to record.
fn record(settings: &Settings) -> Result<Recorder, StartError> {
    let opened = Recorder::open(settings)?;
    let needed = match settings.processes {
        // The recorder adds new processes of the cgroup to a map. Before Linux 5.19, changing maps
        // usually needs this capability.
        Processes::Cgroup(_) => capabilities::bpf(),
        _ => CapabilitySet::empty(),
    };
    capabilities::drop_all_but(needed);
    let recorder = opened.begin()?;
    if let Some(error) = recorder.unannounced() {
        tracing::warn!(%error, "the kernel is recorded without markers");
    }
    Ok(recorder)
}

/// Running recording. It ends when it is dropped or [`stop`](Self::stop) is called. Both write the
/// remaining events to the store.
#[derive(Debug)]
pub struct KernelRecording {
    stop: Arc<AtomicBool>,
    change: PendingChange,
    facility: Facility,
    memory_bytes: u64,
    drain: Option<JoinHandle<LossCounts>>,
    writer: Option<JoinHandle<RecordingSummary>>,
}

impl KernelRecording {
    /// Starts recording.
    ///
    /// # Errors
    /// Returns an error if the kernel or the system refuses. No thread keeps running then.
    pub fn start(settings: &RecordingSettings, store: Store) -> Result<Self, StartError> {
        PreparedRecording::new(settings.clone())?.start(store)
    }

    /// Returns the kernel facility that the recording uses.
    #[must_use]
    pub fn facility(&self) -> Facility {
        self.facility
    }

    /// Returns the size of the kernel's buffers, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.memory_bytes
    }

    /// Returns a handle that changes the recording's burst-config.
    #[must_use]
    pub fn config_switch(&self) -> ConfigSwitch {
        ConfigSwitch {
            change: Arc::clone(&self.change),
            drain: self.drain.as_ref().map(|drain| drain.thread().clone()),
        }
    }

    /// Stops recording and writes the remaining events to the store. Blocks until they are written.
    #[must_use]
    pub fn stop(mut self) -> RecordingSummary {
        let skipped = self.end();
        let summary = self
            .writer
            .take()
            .and_then(|writer| writer.join().ok())
            .unwrap_or_default();
        RecordingSummary { skipped, ..summary }
    }

    fn end(&mut self) -> LossCounts {
        self.stop.store(true, Relaxed);
        let Some(drain) = self.drain.take() else {
            return LossCounts::default();
        };
        drain.thread().unpark();
        // If the thread panicked, the panic was printed. The writer still writes the chunks that
        // it received.
        drain.join().unwrap_or_default()
    }
}

impl Drop for KernelRecording {
    fn drop(&mut self) {
        self.end();
        if let Some(writer) = self.writer.take() {
            let _ = writer.join();
        }
    }
}

/// Burst-config that the recording applies next, and the wall time from which it applies, in ns
/// since the Unix epoch.
type PendingChange = Arc<Mutex<Option<(BurstConfig, i64)>>>;

/// Handle that changes the burst-config of a recording. Does nothing once the recording has ended.
#[derive(Clone, Debug)]
pub struct ConfigSwitch {
    change: PendingChange,
    drain: Option<Thread>,
}

impl ConfigSwitch {
    /// Makes the recording apply another burst-config from wall time `at_ns` (ns since the Unix
    /// epoch) on; at once if that has passed. Replaces a change that is not applied yet.
    pub fn switch(&self, config: BurstConfig, at_ns: u64) {
        let at_ns = i64::try_from(at_ns).unwrap_or(i64::MAX);
        let mut change = self.change.lock().unwrap_or_else(PoisonError::into_inner);
        *change = Some((config, at_ns));
        drop(change);
        if let Some(drain) = &self.drain {
            drain.unpark();
        }
    }
}

/// End of a chunk that is not cut yet.
struct ChunkEnd {
    /// End of the chunk, in monotonic ns.
    to_ns: u64,
    /// Time when this end was set.
    since: Instant,
    /// Burst-config of the next chunk.
    next: BurstConfig,
}

struct Drain {
    about: KernelChunk,
    config: BurstConfig,
    change: PendingChange,
    chunk: Duration,
    sender: SyncSender<KernelChunk>,
}

impl Drain {
    fn new(
        settings: &RecordingSettings,
        sender: SyncSender<KernelChunk>,
        change: PendingChange,
    ) -> Self {
        let about = KernelChunk {
            recording: random(),
            host: host(),
            architecture: Architecture::native(),
            burst_config: settings.kernel.burst_config.bits(),
            ..KernelChunk::default()
        };
        Self {
            about,
            config: settings.kernel.burst_config,
            change,
            chunk: settings.chunk,
            sender,
        }
    }

    /// Runs until `stop` is set or the writer has ended. Returns the counts of events for which the
    /// kernel did not call the recorder's programs.
    fn run(mut self, mut recorder: Recorder, stop: &AtomicBool) -> LossCounts {
        let mut cutter = ChunkCutter::new(self.about.clone(), recorder.started_ns());
        let mut began = Instant::now();
        // Ends of the next chunks, in order.
        let mut ends: VecDeque<ChunkEnd> = VecDeque::new();
        let mut waiting: Option<KernelChunk> = None;
        while !stop.load(Relaxed) {
            if cutter.events.len() < EVENTS_MAX {
                recorder.drain(&mut cutter.events);
            }
            if let Some(chunk) = waiting.take() {
                match self.sender.try_send(chunk) {
                    Err(TrySendError::Full(chunk)) => waiting = Some(chunk),
                    // Without a writer, recording is pointless.
                    Err(TrySendError::Disconnected(_)) => return recorder.skipped(),
                    Ok(()) => {}
                }
            }
            let pause = self.change_config(&mut recorder, &mut cutter.events, &mut ends);
            match ends.front() {
                None if began.elapsed() >= self.chunk || cutter.events.len() >= EVENTS_MAX / 2 => {
                    ends.push_back(ChunkEnd {
                        to_ns: recorder.introduce_again(),
                        since: Instant::now(),
                        next: self.config,
                    });
                    began = Instant::now();
                }
                Some(end) if end.since.elapsed() >= SETTLED && waiting.is_none() => {
                    waiting = Some(cutter.cut(end.to_ns, &recorder));
                    cutter.about.burst_config = end.next.bits();
                    ends.pop_front();
                    continue;
                }
                _ => {}
            }
            std::thread::park_timeout(pause);
        }
        let mut rest = Vec::from_iter(waiting);
        if !ends.is_empty() {
            // After this time, all events of the chunks that have ended can be drained.
            std::thread::sleep(SETTLED);
            recorder.drain(&mut cutter.events);
        }
        for end in ends {
            rest.push(cutter.cut(end.to_ns, &recorder));
            cutter.about.burst_config = end.next.bits();
        }
        let (last, skipped) = cutter.finish(recorder);
        for chunk in rest.into_iter().chain([last]) {
            // Fails only if the writer panicked or was not started; both were reported.
            let _ = self.sender.send(chunk);
        }
        skipped
    }

    /// Applies a change of the burst-config that is due, and ends the chunk there unless the config
    /// is already in force. Returns the time until the next drain, or until a sooner change.
    fn change_config(
        &mut self,
        recorder: &mut Recorder,
        events: &mut Vec<Event>,
        ends: &mut VecDeque<ChunkEnd>,
    ) -> Duration {
        let mut change = self.change.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((config, at_ns)) = *change else {
            return DRAIN_EVERY;
        };
        let in_ns = at_ns.saturating_sub(now_ns());
        if in_ns > 0 {
            return DRAIN_EVERY.min(Duration::from_nanos(in_ns.unsigned_abs()));
        }
        *change = None;
        if config != self.config {
            self.config = config;
            ends.push_back(ChunkEnd {
                to_ns: recorder.switch(config, at_ns, events),
                since: Instant::now(),
                next: config,
            });
        }
        DRAIN_EVERY
    }
}

fn write(chunks: &Receiver<KernelChunk>, store: &Store) -> RecordingSummary {
    let mut summary = RecordingSummary::default();
    while let Ok(chunk) = chunks.recv() {
        summary.lost = chunk.lost;
        if chunk.windows.is_empty() && chunk.events.is_empty() {
            continue;
        }
        let events = chunk.events.len() as u64;
        let written = write_kernel(store, &chunk).and_then(|written| {
            store.make_durable(&written.paths)?;
            Ok::<_, StoreError>(written.bytes)
        });
        match written {
            Ok(bytes) => {
                summary.events += events;
                summary.windows += chunk.windows.len() as u64;
                summary.chunks += 1;
                summary.bytes += bytes;
            }
            Err(error) => {
                summary.unwritten += events;
                tracing::error!(count = events, %error, "kernel events could not be stored");
            }
        }
    }
    summary
}

/// Returns a random number that identifies this recording.
fn random() -> u128 {
    let half = || u128::from(std::hash::RandomState::new().build_hasher().finish());
    half() << 64 | half()
}

/// Returns the host name: `STROBOSCOPE_HOST`, or else the system's name, or else `localhost`.
fn host() -> String {
    let named = std::env::var("STROBOSCOPE_HOST")
        .ok()
        .filter(|name| !name.is_empty());
    named.unwrap_or_else(|| {
        let system = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        Some(system.trim())
            .filter(|name| !name.is_empty())
            .unwrap_or("localhost")
            .to_owned()
    })
}
