//! Runs the program as a user would.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::Failure;

/// A build of the program, and the length of its recordings.
pub(crate) struct Program {
    program: PathBuf,
    seconds: f64,
}

impl Program {
    pub(crate) fn new(program: &Path, seconds: f64) -> Self {
        Self {
            program: program.to_owned(),
            seconds,
        }
    }

    /// Records one period of the newsfeed below `directory`. Returns its data directory.
    pub(crate) fn record(
        &self,
        directory: &Path,
        rate_per_s: f64,
        fault: Option<&str>,
    ) -> Result<PathBuf, Failure> {
        std::fs::create_dir_all(directory)?;
        let mut command = Command::new(&self.program);
        command
            .args(["demo", "--json", "--burst-config", "always", "--data"])
            .arg(directory)
            .args(["--seconds", &self.seconds.to_string()])
            .args(["--rate", &rate_per_s.to_string()]);
        if let Some(fault) = fault {
            command.args(["--fault", fault]);
        }
        let report = json(&mut command)?;
        for count in ["failed_requests", "lost_records", "missing_batches"] {
            if report[count] != 0 {
                println!(
                    "{}: {count} is {}, not 0",
                    fault.unwrap_or("no change"),
                    report[count]
                );
            }
        }
        let data = report["data"]
            .as_str()
            .ok_or("demo names no data directory")?;
        Ok(data.into())
    }

    pub(crate) fn compare(&self, before: &Path, after: &Path) -> Result<Value, Failure> {
        // Requests all rows, because only listed rows can be judged.
        json(self.periods("compare", before, after).args(["--top", "0"]))
    }

    /// Returns the explanation of the first cause, or `None` if the program lacks the subcommand.
    pub(crate) fn explain(&self, before: &Path, after: &Path) -> Result<Option<Value>, Failure> {
        let help = Command::new(&self.program)
            .args(["explain", "--help"])
            .output()?;
        if !help.status.success() {
            return Ok(None);
        }
        json(
            self.periods("explain", before, after)
                .args(["--cause", "1"]),
        )
        .map(Some)
    }

    fn periods(&self, verb: &str, before: &Path, after: &Path) -> Command {
        let mut command = Command::new(&self.program);
        command.args([verb, "--json", "--before-data"]).arg(before);
        command.arg("--data").arg(after);
        command
    }
}

/// Runs a command and parses its output, which must be JSON.
fn json(command: &mut Command) -> Result<Value, Failure> {
    let Output {
        status,
        stdout,
        stderr,
    } = command.stdin(Stdio::null()).output()?;
    if !status.success() {
        let said = String::from_utf8_lossy(&stderr);
        return Err(format!("{command:?}: {status}\n{said}").into());
    }
    serde_json::from_slice(&stdout).map_err(|error| format!("{command:?}: {error}").into())
}
