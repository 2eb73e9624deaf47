//! Takes checked batches in and makes them durable: ledger, log, and from the log into the store.
//!
//! One thread commits: it asks the ledger, appends to the log and answers. One thread flushes: it turns closed
//! segments into Parquet. The flush of a segment is five steps, and a crash between any two of them is repaired by
//! doing them again:
//!
//! 1. the segment is closed (or found closed, after a crash);
//! 2. its batches become Parquet objects, named after the segment, so that a second time overwrites the first;
//! 3. the objects are made durable;
//! 4. the checkpoint says so, and the ledger of exactly these segments is in it;
//! 5. the segment is deleted.
//!
//! There are two ledgers: the live one answers senders and knows all that is in the log; the checkpoint's knows only
//! what is in Parquet. Were the live one saved, replaying the log after a crash would take its batches for duplicates.

mod commit;
mod counters;
mod data_dir;
mod error;
mod flush;
mod handle;

pub use commit::CommitOutcome;
pub use counters::{Counters, Totals};
pub use data_dir::{DataDir, DataDirError, Lock};
pub use error::{FlushError, IntakeError};
pub use flush::{Converted, Flusher};
pub use handle::{Intake, Options, Stop, Submission};
