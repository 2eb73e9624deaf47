//! Whether a data folder is what the program takes it for, and what can be done where it is not.
//!
//! All files of the store are read to their end, the log is scanned, and the checkpoint's ledger is held against the table of
//! batches. While a collector is running, what it is about to change is left out.

mod finding;
mod ledger;
mod repair;
mod run;

pub use finding::{CheckReport, Finding, FindingKind, TableSize};
pub use run::{Check, CheckError};
