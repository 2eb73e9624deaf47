//! The command line: one verb, one file.

mod anomalies;
mod arguments;
mod burst;
mod clocks;
mod collect;
mod critical_path;
#[cfg(feature = "demo")]
mod demo;
mod import;
mod infer;
mod kernel;
mod model;
mod model_change;
mod notes;
mod output;
mod predict;
mod report;
mod run;
mod slack;
mod sql;
mod strata;
mod timeline;
mod what_if;

pub use arguments::Arguments;
pub use run::{Failure, Status, main, run};
