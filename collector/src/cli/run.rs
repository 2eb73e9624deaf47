//! From arguments to an exit status.

use std::process::ExitCode;

use clap::Parser as _;
use tokio::runtime::Runtime;

use super::Arguments;
use super::arguments::Verb;

/// How a verb went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Exit status 0.
    Done,
    /// There is a result, but something was left out, and was said on standard error. Exit status 1.
    Partly,
}

/// There is no result. Exit status 2.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Failure(pub String);

impl Failure {
    /// From any error.
    pub fn of(error: impl std::fmt::Display) -> Self {
        Self(error.to_string())
    }
}

/// The whole program: reads the process's arguments, runs, prints an error if there is one.
#[must_use]
pub fn main() -> ExitCode {
    #[cfg(feature = "demo")]
    if let Some(status) = super::demo::role() {
        return status;
    }
    let arguments = Arguments::parse();
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_target(false)
        .with_ansi(false)
        .with_max_level(tracing::Level::INFO)
        .init();
    match run(arguments) {
        Ok(Status::Done) => ExitCode::SUCCESS,
        Ok(Status::Partly) => ExitCode::from(1),
        Err(failure) => {
            eprintln!("stroboscope: {failure}");
            ExitCode::from(2)
        }
    }
}

/// Runs one verb.
///
/// # Errors
/// When it has no result.
pub fn run(arguments: Arguments) -> Result<Status, Failure> {
    let runtime = Runtime::new().map_err(Failure::of)?;
    match arguments.verb {
        #[cfg(feature = "demo")]
        Verb::Demo(verb) => verb.run(&runtime),
        Verb::Collect(verb) => verb.run(&runtime),
        Verb::Import(verb) => verb.run(&runtime),
        Verb::Infer(verb) => verb.run(&runtime),
        Verb::Model(verb) => verb.run(&runtime),
        Verb::CriticalPath(verb) => verb.run(&runtime),
        Verb::Slack(verb) => verb.run(&runtime),
        Verb::Anomalies(verb) => verb.run(&runtime),
        Verb::WhatIf(verb) => verb.run(&runtime),
        Verb::Kernel(verb) => verb.run(&runtime),
        Verb::Timeline(verb) => verb.run(&runtime),
        Verb::Predict(verb) => verb.run(&runtime),
        Verb::Report(verb) => verb.run(&runtime),
        Verb::Clocks(verb) => verb.run(&runtime),
        Verb::Burst(verb) => verb.run(),
        Verb::Sql(verb) => verb.run(&runtime),
    }
}
