//! Checks that a data directory is consistent, and repairs it where possible.
//!
//! A check reads all Parquet files that readers of the tables see, scans the log, and compares the
//! checkpoint's ledger with the table of batches. While a collector is running, the check skips
//! comparisons that the collector's changes would distort.

mod finding;
mod ledger;
mod repair;
mod run;

pub use finding::{CheckReport, Finding, FindingKind, TableSize};
pub use run::{Check, CheckError};
