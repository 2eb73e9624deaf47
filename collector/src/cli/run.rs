//! Runs the program from its arguments to its exit status.

use std::process::ExitCode;

use super::log::Log;
use super::settings;
use super::verbs::{self, verbs};
use stroboscope_reports::Status;
use stroboscope_reports::bad_argument::in_our_words;
use stroboscope_reports::output::say;

/// Exit status of a run that failed or could not decide.
const FAILED: u8 = 2;

/// Runs the whole program: reads the process's arguments, runs the subcommand, prints or logs an
/// error if there is one.
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
    let matches = program.try_get_matches_from(arguments);
    let matches = matches.unwrap_or_else(|error| in_our_words(error).exit());
    let log = Log::begin(&matches);
    match verbs::run(&verbs, &matches) {
        Ok(Status::Done) => ExitCode::SUCCESS,
        Ok(Status::Partly | Status::Regression) => ExitCode::from(1),
        Ok(Status::Undecided) => FAILED.into(),
        Ok(Status::Interrupted(signal)) => {
            ExitCode::from(u8::try_from(128 + signal).unwrap_or(u8::MAX))
        }
        Err(failure) => {
            log.failure(&failure);
            FAILED.into()
        }
    }
}
