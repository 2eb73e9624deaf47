//! Maintenance of the store, in use and at rest: merges small files and deletes old ones without
//! disturbing readers.
//!
//! Each flush leaves a file per table and hour, thousands a day, and a reader opens all of them.
//! [`Care`] merges them (`policy.rs` chooses which), in steps between which a crash may come:
//!
//! 1. The merged file is written next to its inputs, under a name that readers ignore.
//! 2. It is made durable and renamed. From that moment on it covers its inputs, see
//!    [`Segments`](crate::tables::Segments).
//! 3. Listings in progress are invalidated ([`Store::announce`](crate::tables::Store::announce)).
//! 4. The inputs are moved to `replaced/`, where readers that listed them before find them.
//! 5. After a grace period, they are deleted.
//!
//! A crash leaves covered files, which readers ignore, and files of step 1. The next round removes
//! them. Only files of segments below the checkpoint are touched, as the flusher recreates the
//! others after a crash.

mod counters;
mod disk;
mod policy;
mod retention;
mod round;

pub use counters::MaintenanceCounters;
pub use policy::{Job, hour_of, next_job};
pub use round::{Care, MaintenanceError, MaintenanceSettings, MergeResult};
