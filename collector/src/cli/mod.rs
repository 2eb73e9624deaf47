//! The command line: one verb, one file.

mod advice;
mod anomalies;
mod arguments;
mod burst;
mod care;
mod check;
mod clock_words;
mod clocks;
mod collect;
mod compact;
mod compare;
mod config;
mod critical_path;
#[cfg(feature = "demo")]
mod demo;
mod doors;
mod experiment;
mod explain;
mod flows;
mod import;
mod infer;
mod kernel;
mod latency;
mod log;
mod memory;
mod model;
mod model_change;
mod model_json;
mod notes;
mod notify;
mod output;
mod pages;
mod periods;
mod pool;
mod predict;
mod ready;
mod report;
mod results;
mod roots;
mod run;
#[cfg(test)]
mod schemas;
mod search;
mod settings;
mod size;
mod slack;
mod sql;
mod study;
mod time;
mod timeline;
mod tradeoffs;
mod verb;
mod verbs;
mod view;
mod what_if;

pub use run::{Failure, Status, main};
