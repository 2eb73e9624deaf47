//! Publisher for simulations, which runs without a thread.

use std::sync::Arc;

use stroboscope_store::flush::Counters;
use tokio::runtime::Handle;

use super::{PublishSettings, Round, Rounds};
use crate::address::RemoteError;

/// Publisher whose rounds the simulation starts.
pub struct SimulatedPublisher(Rounds);

impl SimulatedPublisher {
    /// Prepares a publisher, like [`super::Publisher::start`].
    ///
    /// # Errors
    /// Fails like [`super::Publisher::start`].
    pub fn new(
        settings: PublishSettings,
        runtime: Handle,
        flushed: Arc<Counters>,
    ) -> Result<Self, RemoteError> {
        Rounds::of(settings, runtime, flushed, Arc::default()).map(Self)
    }

    /// Publishes the files that are ready, and blocks meanwhile. Returns true if all were uploaded.
    ///
    /// # Errors
    /// Returns an error if the round fails. After [`RemoteError::Fenced`], the caller must begin no
    /// further round.
    pub fn round(&mut self) -> Result<bool, RemoteError> {
        Ok(self.0.round(&|| true)? == Round::Complete)
    }
}
