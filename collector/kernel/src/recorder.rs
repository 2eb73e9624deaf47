//! Recording from start to end, whichever source there is.

use std::time::Duration;

use stroboscope_analysis::kernel::event::{Event, LossCounts, Window};
use stroboscope_burst::BurstConfig;
use stroboscope_kernel_model::{ClockLog, Facility, Processes, Recording, Settings};

use crate::clock;
use crate::gate::Gate;
use crate::listening::Listening;
use crate::processes;
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

/// A recorder that has its programs and buffers, and does not record yet.
pub struct OpenedRecorder {
    source: Source,
    settings: Settings,
}

impl OpenedRecorder {
    /// Begins to record.
    ///
    /// # Errors
    /// See [`StartError`]; nothing is left in the kernel then.
    pub fn begin(self) -> Result<Recorder, StartError> {
        let (mut source, settings) = (self.source, self.settings);
        // First of all the programs learn the time, then they record, and only then services are told.
        let gate = Gate::start(settings.burst_config, source.switches())
            .map_err(|error| StartError::system("starting the gate's thread", error))?;
        let started_ns = source.begin();
        let listening = Listening::announce(&settings.announced_by)?;
        Ok(Recorder {
            source,
            config: settings.burst_config,
            processes: settings.processes,
            gate,
            started_ns,
            looked_ns: started_ns,
            _listening: listening,
        })
    }
}

/// A program takes less than a microsecond; a processor may be taken away from a virtual machine for longer.
const LAST_PROGRAMS: Duration = Duration::from_millis(2);

/// Newcomers of a control group are looked for this often.
const LOOK_AGAIN_NS: u64 = 250_000_000;

impl Recorder {
    /// Starts recording.
    ///
    /// # Errors
    /// See [`StartError`]; nothing is left in the kernel then.
    pub fn start(settings: &Settings) -> Result<Self, StartError> {
        Self::open(settings)?.begin()
    }

    /// Puts programs and buffers into the kernel. All that comes after needs no capability of the calling thread, but CAP_BPF
    /// for the newcomers of a control group.
    ///
    /// # Errors
    /// See [`StartError`]; nothing is left in the kernel then.
    pub fn open(settings: &Settings) -> Result<OpenedRecorder, StartError> {
        Ok(OpenedRecorder {
            source: Source::open(settings)?,
            settings: settings.clone(),
        })
    }

    /// Moves what was recorded to `events`; returns how many came.
    pub fn drain(&mut self, events: &mut Vec<Event>) -> usize {
        let now_ns = clock::now_ns();
        if matches!(self.processes, Processes::Cgroup(_)) && now_ns - self.looked_ns > LOOK_AGAIN_NS
        {
            self.looked_ns = now_ns;
            // A group that is gone has no newcomers.
            for process in processes::running(&self.processes).unwrap_or_default() {
                // The map is full only with 16,384 processes chosen; those there are go on being recorded.
                let _ = self.source.choose(process);
            }
        }
        self.source.drain(&self.gate, false, events)
    }

    /// From when on it records, monotonic ns.
    #[must_use]
    pub fn started_ns(&self) -> u64 {
        self.started_ns
    }

    /// The windows between two moments (monotonic ns) that have passed, as they really were.
    #[must_use]
    pub fn windows(&self, from_ns: u64, to_ns: u64) -> Vec<Window> {
        self.gate.windows(self.config, from_ns, to_ns)
    }

    /// From the moment returned (monotonic ns) on, each thread is introduced again at its next event, so that what is
    /// recorded after that moment can be understood without what was recorded before.
    pub fn introduce_again(&mut self) -> u64 {
        self.source.introduce_again()
    }

    /// Losses by processor, since the start.
    #[must_use]
    pub fn losses(&self) -> Vec<LossCounts> {
        self.source.losses()
    }

    /// Events since the start that the recorder's programs were not called for, because the same program was still running
    /// on that processor: of losses, the kind that has no place in time. Always 0 by tracefs.
    #[must_use]
    pub fn skipped(&self) -> LossCounts {
        self.source.skipped()
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
        let stopped_ns = clock::now_ns();
        self.source.stop();
        // Programs that were running at that moment finish what they write.
        std::thread::sleep(LAST_PROGRAMS);
        while self.source.drain(&self.gate, true, &mut events) > 0 {}
        let windows = self.gate.windows(self.config, self.started_ns, stopped_ns);
        let until_ns = windows
            .last()
            .map_or(stopped_ns, |window| window.close_ns - 1);
        self.source.drain_losses(until_ns, &mut events);
        Recording {
            events,
            windows,
            losses: self.source.losses(),
            skipped: self.source.skipped(),
            unknown_events: self.source.unknown_events(),
            clocks: self.gate.clocks(),
        }
    }
}
