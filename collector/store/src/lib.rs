//! What is kept, and how nothing acknowledged is lost.
//!
//! The modules, from the bottom up; each knows only those before it:
//!
//! - [`limits`]: how much of everything is taken.
//! - [`memory`]: memory that queries may hold.
//! - [`record`]: what is kept, as plain rows.
//! - [`progress`]: who wants to know how far what takes long has come.
//! - [`disk`]: the disk, as far as what is kept depends on it.
//! - [`wal`]: the write-ahead log. Acknowledged means: in here, durably.
//! - [`decode`]: batches from the wire, checked, as rows.
//! - [`ledger`]: which batches are stored, and which are missing.
//! - [`tables`]: Parquet behind `object_store`, and whole traces out of it.
//! - [`care`]: small files become large ones, old ones go.
//! - [`data_dir`]: the folder that all of these are in, and its lock.
//! - [`publishing`]: counters of what was published to an object store.
//! - [`check`]: whether a data folder is in order, and what can be done where it is not.
//! - [`flush`]: from closed segments of the log into the tables; also what an ended collector left behind.
#![allow(
    missing_docs,
    reason = "what is known by its name needs no sentence; the users are the crates beside this one"
)]

pub mod care;
pub mod check;
pub mod data_dir;
pub mod decode;
pub mod disk;
pub mod flush;
pub mod ledger;
pub mod limits;
pub mod memory;
pub mod progress;
pub mod publishing;
pub mod record;
pub mod tables;
pub mod wal;
