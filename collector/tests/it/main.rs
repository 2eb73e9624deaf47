//! The tests of the program, each a module: one of them links in a fraction of the time of many.
mod common;
mod compare;

mod analyses;
mod attributes;
mod bottleneck;
mod care;
mod cli;
mod clocks;
mod config;
mod escapes;
mod experiment;
mod explain;
mod explain_exact;
mod flows;
mod help;
mod import_mapped;
mod import_not_taken;
mod kept;
mod kernel_chunks;
mod lookup;
mod models;
mod pipelines;
mod poisoned;
mod pool;
mod report;
mod requests;
mod robust;
mod sampling;
mod search;
mod search_kernel;
mod search_stores;
mod snapshots;
#[cfg(feature = "sql")]
mod sql;
mod tradeoffs;
mod view;
