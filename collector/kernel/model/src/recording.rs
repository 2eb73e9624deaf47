//! Result of a recording.

use stroboscope_analysis::kernel::attribute;
use stroboscope_analysis::kernel::call::Architecture;
use stroboscope_analysis::kernel::event::{Event, LossCounts, Window};
use stroboscope_analysis::kernel::timeline::Timeline;

use crate::clock::ClockLog;

/// A finished recording.
#[derive(Clone, Debug, Default)]
pub struct Recording {
    /// Every event; in order of time per processor only.
    pub events: Vec<Event>,
    /// The windows, monotonic ns.
    pub windows: Vec<Window>,
    /// Conversion from monotonic to wall time.
    pub clocks: ClockLog,
    /// Losses by processor.
    pub losses: Vec<LossCounts>,
    /// Events that the kernel did not pass to the recorder's programs, because the same program was
    /// still running on that processor.
    pub skipped: LossCounts,
    /// Events of kinds that this version does not know; 0 unless program and recorder do not match.
    pub unknown_events: u64,
}

impl Recording {
    /// Finds the owner of everything, for system calls of this machine's architecture.
    #[must_use]
    pub fn timeline(&self) -> Timeline {
        attribute(&self.events, &self.windows, Architecture::native())
    }
}
