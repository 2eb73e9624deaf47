//! Care of the store while it is used, and at rest: small files become large ones, old ones go, and nobody who reads
//! notices.
//!
//! Each flush leaves a file per table and hour, thousands a day; whoever reads opens them all. [`Care`] merges them
//! (`policy.rs` says which), in steps between which a crash may come:
//!
//! 1. the merged file is written beside its inputs, under a name that nobody reads;
//! 2. it is made durable, and renamed: from that moment on it covers its inputs, see [`Segments`](crate::tables::Segments);
//! 3. listings that are under way are told that they do not count ([`Store::announce`](crate::tables::Store::announce));
//! 4. the inputs are moved to `replaced/`, where readers find them that listed them before;
//! 5. after a while, they are deleted.
//!
//! What a crash leaves is covered files, which nobody reads, and files of step 1: the next round finds them. Only files
//! of segments below the checkpoint are touched, as the flusher makes the others anew after a crash.

mod counters;
mod disk;
mod policy;
mod retention;
mod round;

pub use counters::CareCounters;
pub use policy::{Job, hour_of, next_job};
pub use round::{Care, CareError, CareSettings, Merged};
