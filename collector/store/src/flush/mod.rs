//! Turns closed segments of the log into Parquet. The flush of a segment is five steps, and a crash between any two of
//! them is repaired by doing them again:
//!
//! 1. the segment is closed (or found closed, after a crash);
//! 2. its batches become Parquet objects, named after the segment, so that a second time overwrites the first;
//! 3. the objects are made durable;
//! 4. the checkpoint says so, and the ledger of exactly these segments is in it;
//! 5. the segment is deleted.
//!
//! There are two ledgers: the live one answers senders and knows all that is in the log; the checkpoint's knows only
//! what is in Parquet. Were the live one saved, replaying the log after a crash would take its batches for duplicates.

mod counters;
mod error;
mod flusher;

pub use counters::{Counters, Totals};
pub use error::FlushError;
pub use flusher::{Arrivals, Converted, Flusher, now_ns};
