//! Intake: accepts checked batches and makes them durable, through the ledger and the log into the
//! store.
//!
//! The committing thread consults the ledger, appends to the log and answers. The flushing thread
//! converts closed segments to Parquet by the steps of [`stroboscope_store::flush`]. A third
//! thread, with the lowest priority, maintains the store's files.

mod committer;
mod error;
mod flushing;
mod health;
mod intake;
mod maintenance;
#[cfg(feature = "simulation")]
mod simulated;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod slow_disk;

pub use committer::CommitOutcome;
pub use error::IntakeError;
pub use intake::{Intake, Options, Stop, Submission};
pub use maintenance::MaintenanceOptions;
#[cfg(feature = "simulation")]
pub use simulated::Ways;
