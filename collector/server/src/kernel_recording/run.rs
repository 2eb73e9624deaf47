//! The two threads of a kernel recording.

use std::hash::{BuildHasher as _, Hasher as _};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use stroboscope_analysis::kernel::call::Architecture;
use stroboscope_analysis::kernel::event::LossCounts;
use stroboscope_kernel::{Recorder, StartError};
use stroboscope_kernel_model::{Facility, Processes, Settings};

use super::chunks::ChunkCutter;
use super::settings::{RecordingSettings, RecordingSummary};
use crate::capabilities::{self, CapabilitySet};
use stroboscope_store::tables::{KernelChunk, Store, StoreError, write_kernel};

/// Number of drained events at which draining pauses; half of it ends a chunk early. In addition to
/// these events, at most three chunks are in memory (72 bytes per event).
const EVENTS_MAX: usize = 1 << 20;
/// Interval between drains of the kernel's buffers.
const DRAIN_EVERY: Duration = Duration::from_millis(5);
/// Delay after the end of a chunk by which all its events have been drained.
const SETTLED: Duration = Duration::from_millis(50);

/// A recording that is not started yet: a thread that waits.
///
/// The waiting thread inherits the capabilities of the thread that creates it, which may then drop
/// its own. The waiting thread drops them too, after it has loaded its programs into the kernel.
#[derive(Debug)]
pub struct PreparedRecording {
    stop: Arc<AtomicBool>,
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
        let drain = std::thread::Builder::new().name("kernel-drain".into());
        let drain = drain.spawn(move || {
            if to_begin.recv().is_err() {
                return LossCounts::default();
            }
            match record(&settings.kernel) {
                Ok(recorder) => {
                    // The thread that started it waits for this.
                    let _ = to_say.send(Ok((recorder.facility(), recorder.memory_bytes())));
                    Drain::new(&settings, sender).run(recorder, &stopping)
                }
                Err(error) => {
                    let _ = to_say.send(Err(error));
                    LossCounts::default()
                }
            }
        });
        Ok(Self {
            stop,
            begin,
            begun,
            chunks,
            drain: drain.map_err(no_thread)?,
        })
    }

    /// Starts recording.
    ///
    /// # Errors
    /// Returns an error if the kernel or the system refuses. Nothing is left running then.
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

/// Opens a recorder with all capabilities, and drops those that are no longer needed before it
/// begins.
fn record(settings: &Settings) -> Result<Recorder, StartError> {
    let opened = Recorder::open(settings)?;
    let needed = match settings.processes {
        // The recorder adds new processes of the cgroup to a map. Before Linux 5.19, changing maps
        // needs this capability.
        Processes::Cgroup(_) => capabilities::bpf(),
        _ => CapabilitySet::empty(),
    };
    capabilities::drop_all_but(needed);
    opened.begin()
}

/// Running recording. It ends when it is dropped or [`stop`](Self::stop) is called. Both write the
/// recorded events to the store.
#[derive(Debug)]
pub struct KernelRecording {
    stop: Arc<AtomicBool>,
    facility: Facility,
    memory_bytes: u64,
    drain: Option<JoinHandle<LossCounts>>,
    writer: Option<JoinHandle<RecordingSummary>>,
}

impl KernelRecording {
    /// Starts recording.
    ///
    /// # Errors
    /// Returns an error if the kernel or the system refuses. Nothing is left running then.
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
        // If the thread panicked, the panic was printed. The writer keeps the chunks that it
        // received.
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

struct Drain {
    about: KernelChunk,
    chunk: Duration,
    sender: SyncSender<KernelChunk>,
}

impl Drain {
    fn new(settings: &RecordingSettings, sender: SyncSender<KernelChunk>) -> Self {
        let about = KernelChunk {
            recording: random(),
            host: host(),
            architecture: Architecture::native(),
            burst_config: settings.kernel.burst_config.bits(),
            ..KernelChunk::default()
        };
        Self {
            about,
            chunk: settings.chunk,
            sender,
        }
    }

    /// Runs until `stop` is set. Returns the counts of events for which the kernel did not call the
    /// recorder's programs.
    fn run(self, mut recorder: Recorder, stop: &AtomicBool) -> LossCounts {
        let mut cutter = ChunkCutter::new(self.about, recorder.started_ns());
        let mut began = Instant::now();
        // End of the next chunk, and the time when it was set.
        let mut due: Option<(u64, Instant)> = None;
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
            match due {
                None if began.elapsed() >= self.chunk || cutter.events.len() >= EVENTS_MAX / 2 => {
                    due = Some((recorder.introduce_again(), Instant::now()));
                    began = Instant::now();
                }
                Some((to_ns, since)) if since.elapsed() >= SETTLED && waiting.is_none() => {
                    due = None;
                    waiting = Some(cutter.cut(to_ns, &recorder));
                    continue;
                }
                _ => {}
            }
            std::thread::park_timeout(DRAIN_EVERY);
        }
        let (last, skipped) = cutter.finish(recorder);
        for chunk in waiting.into_iter().chain([last]) {
            // If the writer has ended, it has logged the reason.
            let _ = self.sender.send(chunk);
        }
        skipped
    }
}

fn write(chunks: &Receiver<KernelChunk>, store: &Store) -> RecordingSummary {
    let mut summary = RecordingSummary::default();
    while let Ok(chunk) = chunks.recv() {
        summary.lost = chunk.lost;
        // A chunk without windows and events is empty.
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

/// Returns the host name by the rules for services: `STROBOSCOPE_HOST`, or else the system's name.
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
