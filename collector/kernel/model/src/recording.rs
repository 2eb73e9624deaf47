//! Result of a recording.

use stroboscope_analysis::kernel::attribute;
use stroboscope_analysis::kernel::call::Architecture;
use stroboscope_analysis::kernel::event::{Event, LossCounts, Window};
use stroboscope_analysis::kernel::timeline::Timeline;

use crate::clock::ClockLog;

/// Events of a finished recording, with its windows, clocks and losses.
#[derive(Clone, Debug, Default)]
pub struct Recording {
    /// Events in order of time for each processor, but not always across processors. Interrupts
    /// may cause exceptions.
    pub events: Vec<Event>,
    /// Windows in which the kernel recorded, in monotonic ns.
    pub windows: Vec<Window>,
    /// Conversion from monotonic to wall time.
    pub clocks: ClockLog,
    /// Numbers of events lost, by processor.
    pub losses: Vec<LossCounts>,
    /// Numbers of events that the kernel did not pass to the recorder's programs, because the same
    /// program was still running on the event's processor.
    pub skipped: LossCounts,
    /// Number of events that the recorder does not decode. With eBPF, it is 0 unless the programs
    /// and the recorder do not match.
    pub unknown_events: u64,
}

impl Recording {
    /// Finds the owners of all system calls and intervals, by the system-call numbers of this
    /// machine's architecture.
    #[must_use]
    pub fn timeline(&self) -> Timeline {
        attribute(&self.events, &self.windows, Architecture::native())
    }
}
