//! Intake: accepts checked batches and OTLP requests, makes them durable in the log, and flushes
//! the log to the store. An agent, which has no store, forwards the log to a gateway.
//!
//! The committing thread consults the ledger, appends to the log and answers. The flushing thread
//! converts closed segments to Parquet, or delivers them to the gateway, by the steps of
//! [`stroboscope_store::flush`]. A further thread maintains the files of a store, unless this is
//! disabled; on Linux, it has the nice value 19.

mod committer;
mod error;
mod flushing;
mod health;
mod intake;
mod maintenance;
mod recovery;
#[cfg(feature = "simulation")]
mod simulated;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod slow_disk;

pub use committer::CommitOutcome;
pub use error::IntakeError;
pub use intake::{Intake, Options, Stop, Submission};
pub use maintenance::{MaintenanceOptions, StoreMaintenance};
#[cfg(feature = "simulation")]
pub use simulated::{Deliver, Ways};
