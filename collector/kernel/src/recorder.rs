//! Recording from start to end, whichever source there is.

use stroboscope::BurstConfig;
use stroboscope_analysis::kernel::attribute;
use stroboscope_analysis::kernel::call::Architecture;
use stroboscope_analysis::kernel::event::{Event, LossCounts, Window};
use stroboscope_analysis::kernel::timeline::Timeline;

use crate::clock::{self, ClockLog, ClockSample};
use crate::ebpf::EbpfSource;
use crate::listening::Listening;
use crate::processes;
use crate::settings::{Processes, Settings};
use crate::start_error::StartError;

/// Records while it lives. Its owner calls [`drain`](Self::drain) often enough for the buffers: every 10 ms or so.
pub struct Recorder {
    source: EbpfSource,
    config: BurstConfig,
    processes: Processes,
    clocks: ClockLog,
    started_ns: u64,
    looked_ns: u64,
    _listening: Listening,
}

/// Newcomers of a control group are looked for this often.
const LOOK_AGAIN_NS: u64 = 250_000_000;

/// A finished recording.
#[derive(Clone, Debug, Default)]
pub struct Recording {
    /// All events; in order of time per processor only.
    pub events: Vec<Event>,
    /// The windows, monotonic ns.
    pub windows: Vec<Window>,
    /// From monotonic to wall time.
    pub clocks: ClockLog,
    /// Losses by processor.
    pub losses: Vec<LossCounts>,
    /// Events of kinds this version does not know; 0 unless program and recorder do not belong together.
    pub unknown_events: u64,
}

impl Recording {
    /// Finds the owner of everything.
    #[must_use]
    pub fn timeline(&self) -> Timeline {
        attribute(&self.events, &self.windows, Architecture::native())
    }
}

impl Recorder {
    /// Starts recording.
    ///
    /// # Errors
    /// See [`StartError`]; nothing is left in the kernel then.
    pub fn start(settings: &Settings) -> Result<Self, StartError> {
        let source = EbpfSource::open(settings)?;
        let started_ns = clock::now_ns();
        let mut recorder = Self {
            source,
            config: settings.burst_config,
            processes: settings.processes.clone(),
            clocks: ClockLog::default(),
            started_ns,
            looked_ns: started_ns,
            _listening: Listening::announce()?,
        };
        recorder.sample_clock();
        Ok(recorder)
    }

    fn sample_clock(&mut self) {
        let sample = ClockSample::take();
        self.source.set_wall_offset_ns(sample.wall_offset_ns);
        self.clocks.push(sample);
    }

    /// Moves what was recorded to `events`; returns how many came.
    pub fn drain(&mut self, events: &mut Vec<Event>) -> usize {
        let now_ns = clock::now_ns();
        if self.clocks.samples().last().is_none_or(|last| now_ns - last.at_ns > CLOCK_EVERY_NS) {
            self.sample_clock();
        }
        if matches!(self.processes, Processes::Cgroup(_)) && now_ns - self.looked_ns > LOOK_AGAIN_NS {
            self.looked_ns = now_ns;
            // A group that is gone has no newcomers.
            for process in processes::running(&self.processes).unwrap_or_default() {
                // The map is full only with 16,384 processes chosen; those there are go on being recorded.
                let _ = self.source.choose(process);
            }
        }
        self.source.drain(events)
    }

    /// Losses by processor, since the start.
    #[must_use]
    pub fn losses(&self) -> Vec<LossCounts> {
        self.source.losses()
    }

    /// Memory of the buffers, bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.source.memory_bytes()
    }

    /// The clocks' samples so far.
    #[must_use]
    pub fn clocks(&self) -> &ClockLog {
        &self.clocks
    }

    /// Ends recording. `events` is what was drained before; the rest is added.
    #[must_use]
    pub fn finish(mut self, mut events: Vec<Event>) -> Recording {
        self.source.stop();
        let stopped_ns = clock::now_ns();
        while self.source.drain(&mut events) > 0 {}
        self.source.drain_losses(&mut events);
        let windows = self.clocks.windows(self.config, self.started_ns, stopped_ns);
        Recording {
            events,
            windows,
            losses: self.source.losses(),
            unknown_events: self.source.unknown_slots(),
            clocks: self.clocks,
        }
    }
}

/// The wall clock is slewed by at most 0.5 ms a second: at ten samples a second an edge is exact to 50 µs then, and to
/// some ns on a machine whose clock is settled.
const CLOCK_EVERY_NS: u64 = 100_000_000;
