//! Intake: accepts checked batches and makes them durable, through the ledger and the log into the
//! store.
//!
//! The committing thread consults the ledger, appends to the log and answers. The flushing thread
//! converts closed segments to Parquet by the steps of [`stroboscope_store::flush`]. A third
//! thread, with the lowest priority, maintains the store's files.

mod care;
mod commit;
mod error;
mod flushing;
mod handle;
#[cfg(feature = "simulation")]
mod simulated;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod slow_disk;

pub use care::CareOptions;
pub use commit::CommitOutcome;
pub use error::IntakeError;
pub use handle::{Intake, Options, Stop, Submission};
#[cfg(feature = "simulation")]
pub use simulated::Ways;
