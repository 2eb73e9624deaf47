//! Flushes closed segments of the log to Parquet. The flush of a segment has five steps, and a
//! crash between any two of them is repaired by repeating them:
//!
//! 1. The segment is closed (or found closed, after a crash).
//! 2. Its batches become Parquet objects, named after the segment, so that a repetition overwrites
//!    them.
//! 3. The objects are made durable.
//! 4. The checkpoint records this, with the ledger of exactly these segments.
//! 5. The segment is deleted.
//!
//! There are two ledgers. The live one answers senders and covers everything in the log; the
//! checkpoint's covers only what is in Parquet. If the live one were saved, replaying the log after
//! a crash would treat its batches as duplicates.
//!
//! An agent has no store. Its [`Forwarder`] sends each closed segment to another collector instead.

mod counters;
mod error;
mod flusher;
mod forwarder;
mod segment;

pub use counters::{Counters, Totals};
pub use error::FlushError;
pub use flusher::{Arrivals, ConvertedSegment, Flusher, now_ns};
pub use forwarder::{Forwarder, Upstream, WaitingLog};
