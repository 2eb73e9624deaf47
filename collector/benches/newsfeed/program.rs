//! The program, as a user runs it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::Failure;

/// A build of the program, and how long it records.
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

    /// Records one period of the newsfeed below `directory`, and says in which data directory it is.
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
        // All rows: what is not listed cannot be judged.
        json(self.periods("compare", before, after).args(["--top", "0"]))
    }

    /// What tells the requests of the first cause from the others, or `None` where the program has no such verb.
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

/// What a command prints, which must be JSON.
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
