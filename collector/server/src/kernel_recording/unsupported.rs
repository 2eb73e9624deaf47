//! Kernel recording on systems other than Linux, and without the feature `kernel`, where it is
//! unsupported.

use stroboscope_burst::BurstConfig;
use stroboscope_kernel_model::Facility;

use super::settings::{RecordingSettings, RecordingSummary};
use stroboscope_store::tables::Store;

/// Reason why a recording does not start.
#[derive(Debug, thiserror::Error)]
#[error(
    "recording the kernel needs Linux and the feature `kernel`; recordings are read on every system"
)]
pub struct StartError;

/// A recording that is not started yet.
#[derive(Debug)]
pub struct PreparedRecording;

impl PreparedRecording {
    /// Does nothing, as recording is unsupported.
    ///
    /// # Errors
    /// Never fails.
    #[allow(clippy::needless_pass_by_value, reason = "as on Linux")]
    pub fn new(_: RecordingSettings) -> Result<Self, StartError> {
        Ok(Self)
    }

    /// Fails, as recording is unsupported.
    ///
    /// # Errors
    /// Always returns an error.
    #[allow(
        clippy::needless_pass_by_value,
        reason = "as on Linux, where the store is written to"
    )]
    pub fn start(self, _: Store) -> Result<KernelRecording, StartError> {
        Err(StartError)
    }
}

/// Handle that changes the burst-config of a recording; none exists, as no recording starts.
#[derive(Clone, Debug)]
pub enum ConfigSwitch {}

impl ConfigSwitch {
    /// Makes the recording apply another burst-config.
    pub fn switch(&self, _: BurstConfig, _: u64) {
        match *self {}
    }
}

/// A running recording; none exists, as recording is unsupported.
#[derive(Debug)]
pub enum KernelRecording {}

impl KernelRecording {
    /// Fails, as recording is unsupported.
    ///
    /// # Errors
    /// Always returns an error.
    #[allow(
        clippy::needless_pass_by_value,
        reason = "as on Linux, where the store is written to"
    )]
    pub fn start(_: &RecordingSettings, _: Store) -> Result<Self, StartError> {
        Err(StartError)
    }

    /// Returns the kernel facility that the recording uses.
    #[must_use]
    pub fn facility(&self) -> Facility {
        match *self {}
    }

    /// Returns the size of the kernel's buffers, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        match *self {}
    }

    /// Returns a handle that changes the recording's burst-config.
    #[must_use]
    pub fn config_switch(&self) -> ConfigSwitch {
        match *self {}
    }

    /// Stops recording.
    #[must_use]
    pub fn stop(self) -> RecordingSummary {
        match self {}
    }
}
