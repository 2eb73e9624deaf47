//! The collector of Stroboscope: takes batches in, keeps them, and infers what causes what.
//!
//! The rooms, from the bottom up; each knows only those before it:
//!
//! - [`limits`]: how much of everything is taken.
//! - [`wal`]: the write-ahead log. Acknowledged means: in here, durably.

pub mod limits;
pub mod wal;
