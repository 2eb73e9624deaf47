//! Systems whose kernel is not recorded.

use stroboscope_kernel_model::Facility;

use super::settings::{RecordingSettings, RecordingSummary};
use stroboscope_store::tables::Store;

/// Why a recording does not start.
#[derive(Debug, thiserror::Error)]
#[error(
    "recording the kernel needs Linux; recordings that were made there are read on every system"
)]
pub struct StartError;

/// A recording that was not started yet.
#[derive(Debug)]
pub struct PreparedRecording;

impl PreparedRecording {
    /// Does nothing, on this system.
    ///
    /// # Errors
    /// Never, on this system.
    #[allow(clippy::needless_pass_by_value, reason = "as on Linux")]
    pub fn new(_: RecordingSettings) -> Result<Self, StartError> {
        Ok(Self)
    }

    /// Starts recording.
    ///
    /// # Errors
    /// Always, on this system.
    #[allow(
        clippy::needless_pass_by_value,
        reason = "as on Linux, where the store is written to"
    )]
    pub fn start(self, _: Store) -> Result<KernelRecording, StartError> {
        Err(StartError)
    }
}

/// A recording that runs: here there is none.
#[derive(Debug)]
pub enum KernelRecording {}

impl KernelRecording {
    /// Starts recording.
    ///
    /// # Errors
    /// Always, on this system.
    #[allow(
        clippy::needless_pass_by_value,
        reason = "as on Linux, where the store is written to"
    )]
    pub fn start(_: &RecordingSettings, _: Store) -> Result<Self, StartError> {
        Err(StartError)
    }

    /// By what it records.
    #[must_use]
    pub fn facility(&self) -> Facility {
        match *self {}
    }

    /// The kernel's buffers, bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        match *self {}
    }

    /// Ends recording.
    #[must_use]
    pub fn stop(self) -> RecordingSummary {
        match self {}
    }
}
