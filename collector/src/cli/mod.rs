//! Command line: the subcommands that are not reports, and their arguments.

mod ask;
mod burst_set;
mod check;
mod collect;
mod compact;
mod config;
mod delta;
#[cfg(feature = "demo")]
mod demo;
mod forward;
mod import;
mod kernel;
mod log;
mod maintenance;
mod mcp;
mod memory;
mod net;
mod notify;
mod own_traces;
mod pages;
mod ready;
mod requests;
mod run;
#[cfg(test)]
mod schemas;
mod settings;
mod shell;
mod sql;
mod top;
mod verbs;
mod view;
mod worker;

pub use run::main;
pub use stroboscope_reports::{Failure, Status};
