//! The tests of the collector, each a module: one program links in a fraction of the time of thirty.
mod batches;
mod common;
#[path = "../../benches/million/workload.rs"]
#[allow(dead_code, reason = "the benchmark uses more of it")]
mod workload;

mod analyses;
mod attributes;
mod cli;
mod clocks;
mod decode;
mod escapes;
mod help;
mod import;
mod import_forms;
mod import_mapped;
mod import_mutated;
mod ingest;
mod intake;
mod kept;
mod kernel_chunks;
mod kernel_table;
mod layers;
mod ledger;
mod live;
mod lookup;
mod models;
mod others_data;
mod parts;
mod report;
mod requests;
mod robust;
mod snapshots;
#[cfg(feature = "sql")]
mod sql;
mod store;
mod uneven_parts;
mod wal;
