//! Maintenance of the store: merges small files, and thins and deletes old data, without disturbing
//! readers.
//!
//! Each flush writes a file per table and hour. That is thousands of files a day, and a query would
//! have to open all of them. [`Care`] merges the files that `policy.rs` chooses. A merge has five
//! steps, and a crash may come between any two of them:
//!
//! 1. The merged file is written next to its inputs, under a name that readers ignore.
//! 2. The merged file is synced and renamed. From then on, it covers its inputs (see
//!    [`Segments`](crate::tables::Segments)).
//! 3. Listings in progress are invalidated ([`Store::announce`](crate::tables::Store::announce)).
//! 4. The inputs are moved to `replaced/`, where readers that listed them earlier find them.
//! 5. They are deleted after a grace period, or earlier if replaced files take too much space.
//!
//! A crash may leave covered files, which readers ignore, or files of step 1. The first round after
//! a start removes them. Merging and retention skip the files of segments that the checkpoint does
//! not cover, and thinning skips their hours: the flusher may write them again after a crash.
//!
//! Old hours may be thinned, by similar steps (see `thinning.rs`).

mod counters;
mod delta;
mod disk;
mod policy;
mod retention;
mod round;
mod thinning;

pub use counters::MaintenanceCounters;
pub use policy::{Job, SETTLED, next_job};
pub use round::{Care, MaintenanceError, MaintenanceSettings, MergeResult, ThinningSettings};
