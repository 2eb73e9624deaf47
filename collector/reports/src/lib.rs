//! Reports on a store of traces.
//!
//! A report consists of its arguments, the question that it asks a store, and the rows of the
//! answer: a type that the command line prints. Pages show most of these types, SQL reads many. The
//! main modules, from the bottom up: `failure` with `advice` and `suggest`; the console (`output`,
//! `stderr`, `progress`); `time`, `size`, `arguments`, `memory_limit`; `study` (an opened store,
//! and the names of its segments); `verb` (the traits of reports); `shard` and `cluster` (reports
//! by several processes); `form` (arguments as fields, for pages and tools); `verdict_files` (files
//! for CI), `regression` and `assertion` (verdicts on reports); `results` (results shared by
//! several reports); then a module for each report, and their `registry`.
#![allow(
    missing_docs,
    reason = "the users are the program's crates beside this one, and help texts document arguments"
)]

mod advice;
pub mod anomalies;
pub mod arguments;
pub mod assertion;
pub mod bad_argument;
pub mod burst;
mod clock_words;
pub mod clocks;
pub mod cluster;
pub mod compare;
pub mod critical_path;
pub mod experiment;
pub mod explain;
pub mod failure;
pub mod failures;
pub mod flows;
pub mod form;
mod graphviz;
pub mod infer;
pub mod latency;
pub mod machine_memory;
pub mod map;
pub mod memory_limit;
pub mod merge;
pub mod model;
mod model_change;
mod model_focus;
mod model_json;
mod model_report;
pub mod notes;
pub mod operations;
pub mod output;
pub mod overview;
mod periods;
pub mod pool;
pub mod predict;
pub mod progress;
pub mod provenance;
pub mod registry;
pub mod regression;
pub mod report;
pub mod requests;
pub mod results;
pub mod roots;
pub mod search;
mod search_plan;
pub mod shard;
pub mod size;
pub mod slack;
pub mod status;
pub mod stderr;
mod step_commands;
pub mod study;
pub mod suggest;
pub mod time;
pub mod timeline;
pub mod tradeoffs;
pub mod verb;
pub mod verdict_files;
pub mod what_if;

pub use failure::{Failure, FailureCode};
pub use status::Status;
