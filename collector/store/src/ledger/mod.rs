//! Record of the stored batches of each process incarnation, by sequence number. It recognises
//! retries and counts missing batches.

mod checkpoint;
#[allow(clippy::module_inception)] // the module's main type
mod ledger;
mod losses;
mod ranges;

pub(crate) use checkpoint::FORWARDED;
pub use checkpoint::{Checkpoint, CheckpointError};
pub use ledger::{Ledger, LedgerEntry, ReportedConfig, Verdict};
pub use losses::{BatchLosses, LossWatch};
pub use ranges::Ranges;
