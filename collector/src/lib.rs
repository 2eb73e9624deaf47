//! The collector of Stroboscope: takes batches in, keeps them, and infers what causes what.
//!
//! The rooms, from the bottom up; each knows only those before it:
//!
//! - [`limits`]: how much of everything is taken.
//! - [`record`]: what is kept, as plain rows.
//! - [`wal`]: the write-ahead log. Acknowledged means: in here, durably.
//! - [`decode`]: batches from the wire, checked, as rows.
//! - [`ledger`]: which batches are stored, and which are missing.
//! - [`store`]: Parquet behind `object_store`, and whole traces out of it.
//! - [`live`]: what the traces say while they arrive.
//! - [`intake`]: the way in: ledger, log, store, in the order that loses nothing.
//! - [`recording`]: the kernel's events, on their way into the store; on Linux.
//! - [`import`]: event logs from files. [`progress`] of what takes long.
//! - [`ingest`], [`http`]: the servers, gRPC and HTTP.
//! - [`collect`]: all of the above, running.
//! - [`show`]: what a result says, once, for terminals, pages and tables.
//! - [`query`]: the analyses over the store.
//! - [`report`]: what the analyses found, as a page and as pictures.
//! - `demo` (feature): collector, newsfeed, load and report in one go.
//! - [`cli`]: the command line.

pub mod cli;
pub mod collect;
pub mod decode;
#[cfg(feature = "demo")]
pub mod demo;
pub mod http;
mod humanise;
pub mod import;
pub mod ingest;
pub mod intake;
pub mod ledger;
pub mod limits;
pub mod live;
pub mod progress;
pub mod query;
pub mod record;
pub mod recording;
pub mod report;
pub mod show;
pub mod store;
mod suggest;
pub mod wal;
