//! A publisher in a simulation, which has no thread for it.

use std::sync::Arc;

use stroboscope_store::flush::Counters;
use tokio::runtime::Handle;

use super::{PublishSettings, Round, Rounds};
use crate::address::RemoteError;

/// A publisher whose rounds a simulation begins.
pub struct SimulatedPublisher(Rounds);

impl SimulatedPublisher {
    /// # Errors
    /// Prepares a publisher, as [`super::Publisher::start`] does.
    pub fn new(
        settings: PublishSettings,
        runtime: Handle,
        flushed: Arc<Counters>,
    ) -> Result<Self, RemoteError> {
        Rounds::of(settings, runtime, flushed, Arc::default()).map(Self)
    }

    /// Publishes the files that are ready; returns true if none is left. Blocks.
    ///
    /// # Errors
    /// When a round fails. After [`RemoteError::Fenced`], a publisher begins no other round.
    pub fn round(&mut self) -> Result<bool, RemoteError> {
        Ok(self.0.round(&|| true)? == Round::Complete)
    }
}
