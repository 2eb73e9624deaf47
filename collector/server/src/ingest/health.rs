//! Health and readiness of the intake.

use std::sync::PoisonError;
use std::thread::JoinHandle;

use super::{Intake, IntakeError};

impl Intake {
    /// Checks that all threads of the intake are running.
    fn check_threads(&self) -> Result<(), String> {
        let threads = self
            .inner
            .threads
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if threads.is_empty() || threads.iter().any(JoinHandle::is_finished) {
            return Err("the intake has stopped; restart the collector".to_owned());
        }
        Ok(())
    }

    /// Checks that batches are accepted and reach the store (from an agent: the next collector),
    /// and that at most half of the backlog's limit waits.
    ///
    /// # Errors
    /// Returns the problem as text for people.
    pub fn health(&self) -> Result<(), String> {
        self.check_threads()?;
        let failing = self.inner.state.failing();
        if let Some(reason) = &failing.log {
            return Err(format!("writes are not accepted for now: {reason}"));
        }
        let state = &self.inner.state;
        if let Some(reason) = &failing.store {
            let action = match state.is_agent {
                true => "forwarded",
                false => "put into the store",
            };
            return Err(format!(
                "the log cannot be {action}, and is retried automatically: {reason}"
            ));
        }
        drop(failing);
        let bytes = state.backlog_bytes();
        if bytes > state.backlog_bytes_max / 2 {
            return Err(state.backlog_error(bytes).to_string());
        }
        Ok(())
    }

    /// Checks the readiness: the intake is not stopping, its threads run, its log works, and the
    /// backlog is within its limit. [`Intake::health`] also reports imminent failures.
    ///
    /// # Errors
    /// Returns the reason as text for people.
    pub fn ready(&self) -> Result<(), String> {
        if self.channels().is_none() {
            return Err(IntakeError::Stopping.to_string());
        }
        self.check_threads()?;
        if let Some(reason) = &self.inner.state.failing().log {
            return Err(format!("writes are not accepted for now: {reason}"));
        }
        let state = &self.inner.state;
        let bytes = state.backlog_bytes();
        if bytes > state.backlog_bytes_max {
            return Err(state.backlog_error(bytes).to_string());
        }
        Ok(())
    }
}
