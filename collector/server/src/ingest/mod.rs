//! Intake: accepts checked batches and makes them durable, through the ledger and the log into the
//! store.
//!
//! The committing thread consults the ledger, appends to the log and answers. The flushing thread
//! converts closed segments to Parquet by the steps of [`stroboscope_store::flush`]. A third
//! thread, with the lowest priority, maintains the store's files.

mod error;
mod flushing;
mod handle;
mod health;
mod maintenance;
#[cfg(feature = "simulation")]
mod simulated;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod slow_disk;
mod wal_commit;

pub use error::IntakeError;
pub use handle::{Intake, Options, Stop, Submission};
pub use maintenance::MaintenanceOptions;
#[cfg(feature = "simulation")]
pub use simulated::Ways;
pub use wal_commit::CommitOutcome;
