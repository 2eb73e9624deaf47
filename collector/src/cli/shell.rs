//! `completions` and `man`: the command line for shells and for `man`.

use std::path::PathBuf;

use clap::{Args, Command};
use clap_complete::Shell;

use stroboscope_reports::output::print_parts;
use stroboscope_reports::{Failure, Status};

/// Print completions of the command line for a shell
///
/// For example `stroboscope completions bash > /etc/bash_completion.d/stroboscope`.
#[derive(Debug, Args)]
pub(super) struct Completions {
    /// Shell to print completions for
    shell: Shell,
}

impl Completions {
    pub(super) fn run(self, mut program: Command) -> Result<Status, Failure> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut program, "stroboscope", &mut script);
        print_parts(&[&script])?;
        Ok(Status::Done)
    }
}

/// Print the man page, or write one for each subcommand
#[derive(Debug, Args)]
pub(super) struct Man {
    /// Directory for `stroboscope.1`, `stroboscope-collect.1` and so on. By default, prints the
    /// first of them
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

impl Man {
    pub(super) fn run(self, program: Command) -> Result<Status, Failure> {
        let Some(directory) = self.dir else {
            let mut page = Vec::new();
            clap_mangen::Man::new(program)
                .render(&mut page)
                .map_err(Failure::of)?;
            print_parts(&[&page])?;
            return Ok(Status::Done);
        };
        clap_mangen::generate_to(program, &directory).map_err(|error| {
            Failure::new(format!("cannot write to {}: {error}", directory.display()))
        })?;
        Ok(Status::Done)
    }
}
