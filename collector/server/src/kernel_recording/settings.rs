//! What is asked of a recording, and what came of it.

use std::time::Duration;

use stroboscope_analysis::kernel::event::LossCounts;

/// How to record.
#[derive(Clone, Debug)]
pub struct RecordingSettings {
    /// What, and when.
    pub kernel: stroboscope_kernel_model::Settings,
    /// A chunk is written at least so often.
    pub chunk: Duration,
}

impl Default for RecordingSettings {
    /// Chunks of 5 s.
    fn default() -> Self {
        Self {
            kernel: stroboscope_kernel_model::Settings::default(),
            chunk: Duration::from_secs(5),
        }
    }
}

/// What came of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordingSummary {
    /// Events in the store.
    pub events: u64,
    /// Windows in the store; one that a chunk's end divides counts twice.
    pub windows: u64,
    /// Chunks in the store.
    pub chunks: u64,
    /// Bytes they take.
    pub bytes: u64,
    /// Events that did not fit into the kernel's buffers.
    pub lost: LossCounts,
    /// Events that the kernel did not call the recorder's programs for.
    pub skipped: LossCounts,
    /// Events in chunks that could not be written.
    pub unwritten: u64,
}
