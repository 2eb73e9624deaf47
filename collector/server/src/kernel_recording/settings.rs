//! Settings and summary of a kernel recording.

use std::time::Duration;

use stroboscope_analysis::kernel::event::LossCounts;

/// Settings of a recording.
#[derive(Clone, Debug)]
pub struct RecordingSettings {
    /// Settings of the recorder, such as the processes and the windows to record.
    pub kernel: stroboscope_kernel_model::Settings,
    /// Interval after which a chunk ends. A chunk ends earlier if it has many events, if the
    /// burst-config changes, or with the recording.
    pub chunk: Duration,
}

impl Default for RecordingSettings {
    /// Returns settings with chunks of 5 s.
    fn default() -> Self {
        Self {
            kernel: stroboscope_kernel_model::Settings::default(),
            chunk: Duration::from_secs(5),
        }
    }
}

/// Summary of a recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordingSummary {
    /// Number of events in the store.
    pub events: u64,
    /// Number of windows in the store; a window that chunk boundaries divide counts once per chunk.
    pub windows: u64,
    /// Number of chunks in the store.
    pub chunks: u64,
    /// Size of the chunks in the store, in bytes.
    pub bytes: u64,
    /// Number of events that did not fit into the kernel's buffers.
    pub lost: LossCounts,
    /// Number of events for which the kernel did not call the recorder's programs.
    pub skipped: LossCounts,
    /// Number of events in chunks that could not be written.
    pub unwritten: u64,
}
