//! Account of stored batches: the sequence numbers of each process incarnation. It recognizes
//! retries and counts gaps.

mod checkpoint;
#[allow(clippy::module_inception)] // the module's main type
mod ledger;
mod losses;
mod ranges;

pub use checkpoint::{Checkpoint, CheckpointError};
pub use ledger::{Ledger, LedgerEntry, Verdict};
pub use losses::{BatchLosses, LossWatch};
pub use ranges::Ranges;
