//! Flushes closed segments of the log to Parquet. The flush of a segment has five steps. After a
//! crash between any two of them, repeating all steps completes the flush:
//!
//! 1. The segment is closed (or found closed, after a crash).
//! 2. Its records become Parquet objects, named after the segment, so that a repetition overwrites
//!    them.
//! 3. The objects are synced, which makes them durable.
//! 4. The checkpoint advances past the segment. Its ledger has only batches of flushed segments.
//! 5. The segment is deleted.
//!
//! There are two ledgers. The live ledger answers senders, and includes all batches in the log. The
//! checkpoint's ledger includes only batches in Parquet. If the live ledger were saved, a replay of
//! the log after a crash would treat its batches as duplicates.
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
