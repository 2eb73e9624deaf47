//! Takes checked batches in and makes them durable: ledger, log, and from the log into the store.
//!
//! One thread commits: it asks the ledger, appends to the log and answers. One thread flushes: it turns closed
//! segments into Parquet, by the steps of [`stroboscope_store::flush`]. A third, which steps back behind all others, takes
//! care of the store's files.

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
