//! Recorder, which starts, drains and stops a recording from any source.

use std::time::Duration;

use stroboscope_analysis::kernel::event::{Body, Event, LossCounts, Window};
use stroboscope_burst::BurstConfig;
use stroboscope_kernel_model::{ClockLog, Facility, Processes, Recording, Settings};

use crate::clock;
use crate::doze::Gate;
use crate::listening::{MarkerFile, UnannouncedError};
use crate::processes;
use crate::source::Source;
use crate::start_error::StartError;

/// Running recorder. Its owner must call [`drain`](Self::drain) so often that no buffer fills up:
/// at least about every 10 ms.
pub struct Recorder {
    source: Source,
    processes: Processes,
    gate: Gate,
    started_ns: u64,
    looked_ns: u64,
    listening: Result<MarkerFile, UnannouncedError>,
}

/// Recorder whose buffers exist. With eBPF, recording has not begun; tracefs already fills them.
pub struct OpenedRecorder {
    source: Source,
    settings: Settings,
}

impl OpenedRecorder {
    /// Begins to record, even if services do not learn of it; see [`Recorder::unannounced`].
    ///
    /// # Errors
    /// See [`StartError`]; nothing remains in the kernel then.
    pub fn begin(self) -> Result<Recorder, StartError> {
        let (mut source, settings) = (self.source, self.settings);
        // The programs first get the clock's offset, then they record, and only then services are
        // notified.
        let gate = Gate::start(settings.burst_config, source.switches())
            .map_err(|error| StartError::system("starting the gate's thread", error))?;
        let started_ns = source.begin();
        let listening = MarkerFile::announce(&settings.announced_by);
        Ok(Recorder {
            source,
            processes: settings.processes,
            gate,
            started_ns,
            looked_ns: started_ns,
            listening,
        })
    }
}

/// Time for running programs to finish. A program takes less than a microsecond, but a virtual
/// machine may lose a processor for longer.
const LAST_PROGRAMS: Duration = Duration::from_millis(2);

/// Minimum interval between searches for new processes in a control group, in ns.
const LOOK_AGAIN_NS: u64 = 250_000_000;

impl Recorder {
    /// Starts recording.
    ///
    /// # Errors
    /// See [`StartError`]; nothing remains in the kernel then.
    pub fn start(settings: &Settings) -> Result<Self, StartError> {
        Self::open(settings)?.begin()
    }

    /// Loads programs and buffers into the kernel. After that, with eBPF, the calling thread needs
    /// no capability, except before Linux 5.19: there, adding new processes of a control group
    /// usually needs CAP_BPF or CAP_SYS_ADMIN.
    ///
    /// # Errors
    /// See [`StartError`]; nothing remains in the kernel then.
    pub fn open(settings: &Settings) -> Result<OpenedRecorder, StartError> {
        Ok(OpenedRecorder {
            source: Source::open(settings)?,
            settings: settings.clone(),
        })
    }

    /// Moves recorded events to `events`, but drops those during a change of the config, or before
    /// the oldest config kept. Returns the number of moved and dropped events.
    pub fn drain(&mut self, events: &mut Vec<Event>) -> usize {
        let now_ns = clock::now_ns();
        if matches!(self.processes, Processes::Cgroup(_)) && now_ns - self.looked_ns > LOOK_AGAIN_NS
        {
            self.looked_ns = now_ns;
            // A control group that no longer exists has no new processes.
            for process in processes::running(&self.processes).unwrap_or_default() {
                // If adding fails, such as at 16,384 processes with eBPF, those chosen before
                // continue to be recorded.
                let _ = self.source.choose(process);
            }
        }
        self.drain_source(false, events)
    }

    fn drain_source(&mut self, finally: bool, events: &mut Vec<Event>) -> usize {
        let before = events.len();
        let drained = self.source.drain(&self.gate, finally, events);
        self.drop_ambiguous(before, events);
        drained
    }

    /// Removes the events during changes of the config, and before the oldest config kept, from
    /// index `from` on. During a change, programs record by either config. Events that count
    /// losses stay.
    fn drop_ambiguous(&self, from: usize, events: &mut Vec<Event>) {
        self.gate.with_logs(|_, configs| {
            if configs.has_changed() {
                let drained = events.split_off(from);
                events.extend(drained.into_iter().filter(|event| {
                    matches!(event.body, Body::Lost { .. }) || configs.at(event.ts_ns).is_some()
                }));
            }
        });
    }

    /// Switches to another config at wall time `at_ns` (ns since the Unix epoch). The caller calls
    /// this as soon as that time has come. The new config applies from the returned instant on
    /// (monotonic ns). From then on, each thread is introduced again at its first event. The
    /// windows exclude the time from `at_ns` to the returned instant. `events` are the events
    /// drained so far; those of the excluded time are removed, except those that count losses.
    pub fn switch(&mut self, config: BurstConfig, at_ns: i64, events: &mut Vec<Event>) -> u64 {
        let source = &mut self.source;
        let from_ns = self.gate.switch(config, at_ns, || source.switch(config));
        self.drop_ambiguous(0, events);
        from_ns
    }

    /// Returns the start of recording, in monotonic ns.
    #[must_use]
    pub fn started_ns(&self) -> u64 {
        self.started_ns
    }

    /// Returns the actual windows between two past instants (monotonic ns).
    #[must_use]
    pub fn windows(&self, from_ns: u64, to_ns: u64) -> Vec<Window> {
        self.gate.windows(from_ns, to_ns)
    }

    /// Introduces each thread again at its first event after the returned instant (monotonic ns),
    /// so that later events can be interpreted without earlier ones.
    pub fn introduce_again(&mut self) -> u64 {
        self.source.introduce_again()
    }

    /// Returns the losses by processor, since the start.
    #[must_use]
    pub fn losses(&self) -> Vec<LossCounts> {
        self.source.losses()
    }

    /// Returns the counts of events since the start for which the kernel skipped a program, because
    /// that program was still running on the event's processor. The times of these losses are
    /// unknown. The counts are always 0 with tracefs, and before Linux 5.12.
    #[must_use]
    pub fn skipped(&self) -> LossCounts {
        self.source.skipped()
    }

    /// Returns the reason why services do not learn of this recorder; `None` if they do.
    #[must_use]
    pub fn unannounced(&self) -> Option<&UnannouncedError> {
        self.listening.as_ref().err()
    }

    /// Returns the kernel facility that records.
    #[must_use]
    pub fn facility(&self) -> Facility {
        self.source.facility()
    }

    /// Returns the size of the kernel's buffers, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.source.memory_bytes()
    }

    /// Returns the clock samples kept so far.
    #[must_use]
    pub fn clocks(&self) -> ClockLog {
        self.gate.clocks()
    }

    /// Ends recording and returns the result. `events` contains the events drained before; the
    /// remaining events are added to them.
    #[must_use]
    pub fn finish(mut self, mut events: Vec<Event>) -> Recording {
        let stopped_ns = clock::now_ns();
        self.source.stop();
        // Programs that are running at this moment finish their writes.
        std::thread::sleep(LAST_PROGRAMS);
        while self.drain_source(true, &mut events) > 0 {}
        // The last window ends before the programs do, so that no missed event falls into it.
        events.retain(|event| event.ts_ns < stopped_ns);
        let windows = self.gate.windows(self.started_ns, stopped_ns);
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
