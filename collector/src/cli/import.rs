//! `import`

use std::path::{Path, PathBuf};

use clap::Args;
use tokio::runtime::Runtime;

use super::arguments::DataArguments;
use super::output::print;
use super::{Failure, Status};
use crate::import::{BadLine, ImportError, Imported, Importer};
use crate::intake::DataDir;
use crate::limits::IMPORT_BAD_LINES_SHOWN;
use crate::store::Store;

/// Import event logs (JSON lines)
///
/// One event a line: {"trace": "4bf9…", "host": "web1", "ts_ns": 1767322800000000000, "event": "begin", "task":
/// "server", "attrs": {"user": 7}}. A trace that is 1 to 32 hex digits is that trace id; any other name gets a stable
/// id and keeps its name. `attrs` may be left out. A line that cannot be used is reported with file and line, and
/// the rest is kept; then the exit status is 1. Importing the same content again does nothing.
#[derive(Debug, Args)]
pub struct Import {
    #[command(flatten)]
    data: DataArguments,
    /// Files; - is standard input
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
}

impl Import {
    pub(super) fn run(self, runtime: &Runtime) -> Result<Status, Failure> {
        let data = DataDir::create(&self.data.data).map_err(Failure::of)?;
        let store = Store::local(&self.data.data, runtime.handle().clone()).map_err(Failure::of)?;
        let importer = Importer::new(data, store);
        let (mut any_read, mut all_good) = (false, true);
        for file in &self.files {
            match import_one(&importer, file) {
                Ok(One { is_good, was_useful }) => {
                    any_read |= was_useful;
                    all_good &= is_good;
                }
                Err(error) => {
                    eprintln!("error: {error}");
                    all_good = false;
                }
            }
        }
        match (any_read, all_good) {
            (false, _) => Err(Failure("nothing could be imported; see above".to_owned())),
            (true, true) => Ok(Status::Done),
            (true, false) => Ok(Status::Partly),
        }
    }
}

struct One {
    is_good: bool,
    was_useful: bool,
}

fn import_one(importer: &Importer, file: &Path) -> Result<One, ImportError> {
    let is_stdin = file.as_os_str() == "-";
    let name = if is_stdin { "standard input".to_owned() } else { file.display().to_string() };
    let mut bad_lines = 0;
    let mut tell = |line: u64, reason: &BadLine| {
        bad_lines += 1;
        if bad_lines <= IMPORT_BAD_LINES_SHOWN {
            eprintln!("{name}:{line}: {reason}");
        }
    };
    let imported = if is_stdin {
        importer.stream(&name, std::io::stdin().lock(), &mut tell)?
    } else {
        importer.file(file, &mut tell)?
    };
    if bad_lines > IMPORT_BAD_LINES_SHOWN {
        eprintln!("{name}: {} more lines could not be used", bad_lines - IMPORT_BAD_LINES_SHOWN);
    }
    Ok(match imported {
        Imported::Before(receipt) => {
            eprintln!(
                "{name}: the same content was imported before, from {} ({} events); nothing done",
                receipt.source, receipt.events
            );
            One { is_good: true, was_useful: true }
        }
        Imported::Now(summary) => {
            // A closed standard output does not make the import fail.
            let _ = print(&format!("{name}: {} events, {} bad lines", summary.events, summary.bad_lines));
            if summary.events == 0 {
                eprintln!("{name}: holds no event that can be used");
            }
            One { is_good: summary.bad_lines == 0, was_useful: summary.events > 0 }
        }
    })
}
