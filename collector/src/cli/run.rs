//! From arguments to an exit status.

use std::error::Error;
use std::process::ExitCode;

use super::advice::advice;
use super::log::Log;
use super::output::say;
use super::settings;
use super::verbs::{self, verbs};

/// How a verb went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Exit status 0.
    Done,
    /// There is a result, but something was left out, and was said on standard error. Exit status 1.
    Partly,
    /// A signal of this number ended the verb before it had a result; what it had started is stopped. Exit status as
    /// shells give it: 128 more than the number, so 130 after Ctrl-C.
    Interrupted(i32),
}

/// There is no result. Exit status 2.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Failure(pub String);

impl Failure {
    /// From any error, with what to do about it.
    pub fn of(error: impl Error + 'static) -> Self {
        Self(match advice(&error) {
            Some(advice) => format!("{error}; {advice}"),
            None => error.to_string(),
        })
    }
}

/// Exit status without a result.
const FAILED: u8 = 2;

/// The whole program: reads the process's arguments, runs, prints an error if there is one.
#[must_use]
pub fn main() -> ExitCode {
    #[cfg(feature = "demo")]
    if let Some(status) = super::demo::role() {
        return status;
    }
    let verbs = verbs();
    let program = verbs::command(&verbs);
    let arguments = match settings::completed(&program, std::env::args_os().collect()) {
        Ok(arguments) => arguments,
        Err(failure) => {
            say!("stroboscope: {failure}");
            return FAILED.into();
        }
    };
    let matches = program.get_matches_from(arguments);
    let log = Log::begin(&matches);
    match verbs::run(&verbs, &matches) {
        Ok(Status::Done) => ExitCode::SUCCESS,
        Ok(Status::Partly) => ExitCode::from(1),
        Ok(Status::Interrupted(signal)) => {
            ExitCode::from(u8::try_from(128 + signal).unwrap_or(u8::MAX))
        }
        Err(failure) => {
            log.failure(&failure);
            FAILED.into()
        }
    }
}
