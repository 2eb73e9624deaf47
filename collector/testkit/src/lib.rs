//! Data for the tests and benchmarks of the collector's crates.
#![allow(missing_docs, reason = "read beside the tests that use it")]

pub mod batches;
pub mod disk;
pub mod mutation;
pub mod poisoned;
pub mod random;
pub mod stored;
pub mod workload;
