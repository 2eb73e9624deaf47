//! Which batches are stored: per process incarnation, which sequence numbers. A retry is recognised here, and a hole
//! is counted here.

mod book;
mod checkpoint;
mod losses;
mod ranges;

pub use book::{Entry, Ledger, Verdict};
pub use checkpoint::{Checkpoint, CheckpointError};
pub use losses::{BatchLosses, LossWatch};
pub use ranges::Ranges;
