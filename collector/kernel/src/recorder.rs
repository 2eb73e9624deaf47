//! Recording from start to end, whichever source there is.

use stroboscope::BurstConfig;
use stroboscope_analysis::kernel::attribute;
use stroboscope_analysis::kernel::call::Architecture;
use stroboscope_analysis::kernel::event::{Event, LossCounts, Window};
use stroboscope_analysis::kernel::timeline::Timeline;

use crate::clock::{self, ClockLog};
use crate::gate::Gate;
use crate::listening::Listening;
use crate::processes;
use crate::settings::{Facility, Processes, Settings};
use crate::source::Source;
use crate::start_error::StartError;

/// Records while it lives. Its owner calls [`drain`](Self::drain) often enough for the buffers: every 10 ms or so.
pub struct Recorder {
    source: Source,
    config: BurstConfig,
    processes: Processes,
    gate: Gate,
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
        let source = Source::open(settings)?;
        let started_ns = clock::now_ns();
        let gate = Gate::start(settings.burst_config, source.switches())
            .map_err(|error| StartError::system("starting the gate's thread", error))?;
        Ok(Self {
            source,
            config: settings.burst_config,
            processes: settings.processes.clone(),
            gate,
            started_ns,
            looked_ns: started_ns,
            _listening: Listening::announce()?,
        })
    }

    /// Moves what was recorded to `events`; returns how many came.
    pub fn drain(&mut self, events: &mut Vec<Event>) -> usize {
        let now_ns = clock::now_ns();
        if matches!(self.processes, Processes::Cgroup(_)) && now_ns - self.looked_ns > LOOK_AGAIN_NS {
            self.looked_ns = now_ns;
            // A group that is gone has no newcomers.
            for process in processes::running(&self.processes).unwrap_or_default() {
                // The map is full only with 16,384 processes chosen; those there are go on being recorded.
                let _ = self.source.choose(process);
            }
        }
        self.source.drain(&self.gate, false, events)
    }

    /// Losses by processor, since the start.
    #[must_use]
    pub fn losses(&self) -> Vec<LossCounts> {
        self.source.losses()
    }

    /// By what it records.
    #[must_use]
    pub fn facility(&self) -> Facility {
        self.source.facility()
    }

    /// Memory of the buffers, bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.source.memory_bytes()
    }

    /// The clocks' samples so far.
    #[must_use]
    pub fn clocks(&self) -> ClockLog {
        self.gate.clocks()
    }

    /// Ends recording. `events` is what was drained before; the rest is added.
    #[must_use]
    pub fn finish(mut self, mut events: Vec<Event>) -> Recording {
        self.source.stop();
        let stopped_ns = clock::now_ns();
        while self.source.drain(&self.gate, true, &mut events) > 0 {}
        let windows = self.gate.windows(self.config, self.started_ns, stopped_ns);
        let until_ns = windows.last().map_or(stopped_ns, |window| window.close_ns - 1);
        self.source.drain_losses(until_ns, &mut events);
        Recording {
            events,
            windows,
            losses: self.source.losses(),
            unknown_events: self.source.unknown_events(),
            clocks: self.gate.clocks(),
        }
    }
}
