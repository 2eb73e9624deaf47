//! Starts and stops the recording of this process.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use stroboscope_proto::v1;
use tokio::sync::{mpsc, oneshot};

use crate::clock::{ClockSource, SystemClock};
use crate::config::{Builder, DEADLINE_MAX, InitError, host_name};
use crate::gate::timer::Timer;
use crate::loss::{LOSSES, LossCause};
use crate::running::{self, ThreadHandles};
use crate::ship::{Flush, ShipCounters, Shipper, Stop};
use crate::thread::RINGS;
use crate::{fork, gate, generation, id, sampling, sigterm, sys};
use stroboscope_burst::BurstConfig;

/// Guard of a recording, which continues until the guard is dropped. Dropping it closes open spans,
/// ships pending records within the shutdown deadline, and stops the SDK's threads. In a forked
/// child, dropping the parent's guard has no effect.
#[derive(Debug)]
#[must_use = "recording stops when this is dropped; keep it until the end of main: `let _tracing = …`"]
pub struct Guard {
    threads: Option<Threads>,
}

struct Threads {
    /// Generation of the process in which the threads run.
    generation: u32,
    timer: Arc<Timer>,
    gate: JoinHandle<()>,
    ship: JoinHandle<()>,
    stop: oneshot::Sender<Stop>,
    deadline: Duration,
}

impl std::fmt::Debug for Threads {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Threads")
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}

impl Guard {
    /// Reports whether this guard started the recording. A guard that was created while another one
    /// recorded in this process does nothing.
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.threads.is_some()
    }

    /// Ships pending records and stops recording. Waits for the collector at most for `deadline`.
    pub fn shutdown_within(mut self, deadline: Duration) {
        if let Some(threads) = self.threads.take() {
            threads.stop(deadline);
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(threads) = self.threads.take() {
            let deadline = threads.deadline;
            threads.stop(deadline);
        }
    }
}

impl Threads {
    fn stop(self, deadline: Duration) {
        if self.generation != generation::current() {
            // A forked child has a copy of its parent's guard, but not the threads; joining them
            // would block.
            std::mem::forget(self);
            return;
        }
        // Stops the gate first, so that no window opens while the rest is shipped.
        self.timer.stop();
        self.gate.thread().unpark();
        let _ = self.gate.join();
        crate::marker::stop();
        gate::set_followed(crate::marker::is_followed());
        let deadline = Instant::now() + deadline.min(DEADLINE_MAX);
        // Sending fails if the shipping thread has already ended.
        let _ = self.stop.send(Stop { deadline });
        let _ = self.ship.join();
        gate::set_read(false);
        gate::set_decide(false);
        *running::lock() = None;
    }
}

impl Builder {
    /// Starts recording.
    ///
    /// Starts two threads, `strobe-gate` and `strobe-ship`. Neither blocks the service, and an
    /// unreachable collector is no error. If this process is already recording, the returned guard
    /// does nothing.
    ///
    /// # Errors
    /// Returns an error if the collector's address, token or certificate authority is unusable, or
    /// if a thread cannot be started. With [`flush_on_sigterm`](Self::flush_on_sigterm), also
    /// returns one if the process already handles or ignores SIGTERM.
    pub fn init(self) -> Result<Guard, InitError> {
        self.init_with_clock(Arc::new(SystemClock))
    }

    pub(crate) fn init_with_clock(self, clock: Arc<dyn ClockSource>) -> Result<Guard, InitError> {
        let guard = self.start(clock)?;
        #[cfg(feature = "tracing")]
        if guard.is_active() {
            // Runs without the SDK's lock, because it calls the service's subscribers.
            crate::tracing_filter::ask_anew();
        }
        Ok(guard)
    }

    fn start(self, clock: Arc<dyn ClockSource>) -> Result<Guard, InitError> {
        let mut slot = running::lock();
        if slot.is_some() {
            return Ok(Guard { threads: None });
        }
        let destination = self.collector.resolve()?;
        if let Some(text) = &self.rounded_from {
            sys::say(format_args!(
                "burst-config {text} rounded to {}",
                self.burst_config
            ));
        }
        for sentence in &self.unknown_variables {
            sys::say(format_args!("environment variable {sentence}"));
        }
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| InitError::Thread("strobe-ship", error))?;
        #[cfg(feature = "tracing")]
        {
            crate::tracing_filter::set(&self.tracing);
            crate::adapter::known::set_requests(self.requests.clone());
        }
        fork::watch();
        // Discards this thread's earlier ids: a process that forks before `init` must not share ids
        // with its children.
        crate::thread::forget_ids();
        RINGS.configure(self.ring_bytes, self.rings_bytes_max);
        crate::drain::rings::start_anew();
        if self.flush_on_sigterm {
            sigterm::install().map_err(|sigterm::SigtermTaken| InitError::SigtermTaken)?;
        }
        gate::foresight::set_names_all(self.propagate_always);
        #[cfg(feature = "provenance")]
        crate::tracked::set_ratio(self.provenance);
        let timer = Timer::new(self.burst_config, Arc::clone(&clock));
        let progressed = Arc::new(ShipCounters::default());
        let shipper = Shipper {
            process: self.process(&*clock),
            destination,
            buffer_bytes_max: self.buffer_bytes_max,
            timer: Arc::clone(&timer),
            clock,
            progressed: Arc::clone(&progressed),
            losses: &LOSSES,
            shutdown_deadline: self.shutdown_deadline,
            #[cfg(feature = "simulation")]
            simulated: None,
        };
        let (stop, stopped) = oneshot::channel();
        let (flushes, asked) = mpsc::unbounded_channel();
        let ship = std::thread::Builder::new()
            .name("strobe-ship".into())
            .spawn(move || {
                crate::thread::mute();
                run_and_leave(runtime, shipper.run(stopped, asked));
            })
            .map_err(|error| {
                sigterm::reset();
                InitError::Thread("strobe-ship", error)
            })?;
        // If this fails, dropping `stop` ends the other thread.
        let gate = timer
            .start()
            .map_err(|error| InitError::Thread("strobe-gate", error))?;
        sampling::configure(self.sample, self.accept_force, self.public_callers);
        crate::marker::configure(self.markers);
        crate::gate::set_followed(crate::marker::is_followed());
        gate::set_read(true);
        *slot = Some(ThreadHandles {
            timer: Arc::clone(&timer),
            progressed,
            flushes,
        });
        let (generation, deadline) = (generation::current(), self.shutdown_deadline);
        Ok(Guard {
            threads: Some(Threads {
                generation,
                timer,
                gate,
                ship,
                stop,
                deadline,
            }),
        })
    }

    fn process(&self, clock: &dyn ClockSource) -> v1::Process {
        v1::Process {
            incarnation: id::incarnation().to_vec(),
            service: self.service.clone(),
            host: self.host.clone().unwrap_or_else(host_name),
            pid: std::process::id(),
            started_ns: clock.wall_ns().max(0).cast_unsigned(),
            sdk_version: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }
}

/// Runs the work and leaves the runtime without waiting. Dropping a runtime would wait for its
/// blocking threads, possibly forever. Resolving the collector's name blocks such a thread while
/// the name server does not respond, so the process's end would exceed its deadline.
fn run_and_leave(runtime: tokio::runtime::Runtime, work: impl Future<Output = ()>) {
    runtime.block_on(work);
    runtime.shutdown_background();
}

/// Ships all records made so far. Waits at most for `deadline`. Call it before a checkpoint, where
/// the service handles SIGTERM (outside of the signal handler), or at the end of a batch job.
/// Recording continues, and a flush does not close open spans.
///
/// Blocks the calling thread, not the SDK. In async code, call it through `spawn_blocking`.
///
/// Returns `false` if the deadline passed, if the collector rejected a batch or the buffer was full
/// meanwhile, or if recording is not running or ends first. If only the deadline passed, the
/// remaining records stay pending.
#[must_use = "false means that some records did not reach the collector"]
pub fn flush(deadline: Duration) -> bool {
    flush_trace(0, deadline).is_some()
}

/// Ships like [`flush`]. Returns the parents of a trace's open spans, for `stroboscope-testkit`, or
/// `None` where `flush` returns `false`.
#[must_use]
pub fn flush_trace(trace_id: u128, deadline: Duration) -> Option<Vec<u64>> {
    // Clones it, so that the lock is not held while waiting.
    let running = running::lock().clone()?;
    let (done, shipped) = std::sync::mpsc::sync_channel(1);
    let deadline = deadline.min(DEADLINE_MAX);
    let flush = Flush {
        until: Instant::now() + deadline,
        trace_id,
        done,
    };
    running.flushes.send(flush).ok()?;
    shipped.recv_timeout(deadline).ok().flatten()
}

/// Statistics of the SDK in this process. Losses count from the start of the process, all other
/// counters from `init`. While nothing is running, all figures but `losses` and `rings_bytes` have
/// their default.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Stats {
    /// True while recording is running.
    pub running: bool,
    /// Burst-config in force.
    pub burst_config: BurstConfig,
    /// Number of windows opened.
    pub windows: u64,
    /// Number of spans added to batches.
    pub spans: u64,
    /// Number of events added to batches.
    pub events: u64,
    /// Number of spans, events and provenance logs of unsampled requests that were dropped because
    /// they began, or for events happened, outside the exact windows. They are expected and not a
    /// loss.
    pub trimmed: u64,
    /// Number of spans that have begun and not ended, as far as the drain has read; at most 65,536.
    pub open_spans: u64,
    /// Number of batches that the collector has made durable.
    pub batches_acknowledged: u64,
    /// Encoded size of the batches that wait for the collector, in bytes.
    pub buffered_bytes: u64,
    /// Memory of all rings, in bytes.
    pub rings_bytes: u64,
    /// Number of losses by cause; causes without losses are omitted.
    pub losses: Vec<(LossCause, u64)>,
    /// Description of the last problem with the collector, even if it is solved; `None` if there
    /// was none.
    pub trouble: Option<String>,
}

/// Returns statistics of the SDK in this process.
#[must_use]
pub fn stats() -> Stats {
    let mut stats = Stats {
        rings_bytes: RINGS.bytes() as u64,
        losses: LossCause::ALL
            .into_iter()
            .map(|cause| (cause, LOSSES.get(cause)))
            .filter(|&(_, records)| records > 0)
            .collect(),
        ..Stats::default()
    };
    let slot = running::lock().clone();
    if let Some(ThreadHandles {
        timer, progressed, ..
    }) = slot
    {
        stats.running = true;
        stats.burst_config = timer.config();
        stats.windows = timer.with_log(|log| log.count());
        stats.spans = progressed.spans.load(Relaxed);
        stats.events = progressed.events.load(Relaxed);
        stats.trimmed = progressed.trimmed.load(Relaxed);
        stats.open_spans = progressed.open_spans.load(Relaxed);
        stats.batches_acknowledged = progressed.batches_acknowledged.load(Relaxed);
        stats.buffered_bytes = progressed.buffered_bytes.load(Relaxed);
        stats.trouble = progressed
            .trouble
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
    }
    stats
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use super::run_and_leave;

    #[test]
    fn the_end_does_not_wait_for_a_name_that_is_looked_up() {
        let (answer, name_server) = channel::<()>();
        let (begun, is_begun) = channel();
        let (ended, is_ended) = channel();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .build()
                .unwrap();
            run_and_leave(runtime, async move {
                tokio::task::spawn_blocking(move || {
                    begun.send(()).unwrap();
                    // Blocks until the test is over.
                    let _ = name_server.recv();
                });
                // A thread of the runtime is blocked by now.
                is_begun.recv().unwrap();
            });
            ended.send(()).unwrap();
        });
        // Longer than any machine needs: a timeout means that it waits forever.
        assert_eq!(is_ended.recv_timeout(Duration::from_secs(60)), Ok(()));
        drop(answer);
    }
}
