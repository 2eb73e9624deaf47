//! Which batches are stored: per process incarnation, which sequence numbers. A retry is recognised here, and a hole
//! is counted here.

mod checkpoint;
#[allow(clippy::module_inception)] // what the room is about
mod ledger;
mod losses;
mod ranges;

pub use checkpoint::{Checkpoint, CheckpointError};
pub use ledger::{Ledger, LedgerEntry, Verdict};
pub use losses::{BatchLosses, LossWatch};
pub use ranges::Ranges;
