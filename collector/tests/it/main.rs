//! The tests of the program, each a module: one of them links in a fraction of the time of many.
mod common;
mod compare;

mod agent;
mod analyses;
mod argo_rollouts;
mod attributes;
mod bottleneck;
mod cli;
mod clocks;
#[cfg(feature = "cluster")]
mod cluster;
#[cfg(feature = "cluster")]
mod cluster_faults;
mod config;
mod distinct_rows;
mod escapes;
mod experiment;
mod explain;
mod explain_exact;
mod failures;
mod flows;
mod github_action;
mod help;
mod import_mapped;
mod import_not_taken;
mod kept;
mod kernel_chunks;
mod links;
mod lookup;
mod maintenance;
mod map;
mod mcp;
mod mcp_http;
mod mistakes;
mod models;
mod pipelines;
mod poisoned;
mod pool;
mod provenance;
mod report;
mod report_shards;
mod requests;
mod robust;
mod sampling;
mod search;
mod search_kernel;
mod search_stores;
mod shards;
mod snapshots;
#[cfg(feature = "sql")]
mod sql;
mod steering;
mod tradeoffs;
mod verdict_files;
mod view;
mod viewing;
