//! Durable storage of telemetry: data are acknowledged once they are durable.
//!
//! The modules, from the bottom up; each uses only those before it:
//!
//! - [`limits`]: limits of the collector.
//! - [`query_memory`]: memory that queries may hold.
//! - [`record`]: stored data as plain rows.
//! - [`progress`]: interface for showing the progress of long tasks.
//! - [`disk`]: abstraction of the disk for durable data.
//! - [`wal`]: the write-ahead log, in which data are durable before they are acknowledged.
//! - [`decode`]: checks received data and converts them to rows.
//! - [`ledger`]: record of stored and missing batches.
//! - [`tables`]: Parquet behind `object_store`, read back as whole traces.
//! - [`publishing`]: state of publishing to an object store.
//! - [`data_dir`]: the data directory and its lock.
//! - [`flush`]: flushes closed segments of the log to the tables, or forwards them to another
//!   collector.
//! - [`maintenance`]: merges small files, and thins and deletes old data.
//! - [`check`]: checks and repairs a data directory.
#![allow(
    missing_docs,
    reason = "what is known by its name needs no sentence; the users are the crates beside this one"
)]

pub mod check;
pub mod data_dir;
pub mod decode;
pub mod disk;
pub mod flush;
pub mod ledger;
pub mod limits;
pub mod maintenance;
pub mod progress;
pub mod publishing;
pub mod query_memory;
pub mod record;
pub mod tables;
pub mod wal;
