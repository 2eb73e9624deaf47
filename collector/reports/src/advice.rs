//! Advice on errors of the libraries, whose texts cannot name subcommands.

use std::error::Error;
use std::path::Path;

use stroboscope_query::QueryError;
use stroboscope_store::data_dir::{DataDir, DataDirError};

use crate::suggest::command_on;

/// Returns advice on an error; `None` for errors without advice.
pub(crate) fn advice(error: &(dyn Error + 'static)) -> Option<String> {
    if let Some(error) = error.downcast_ref() {
        return of_query(error);
    }
    if let Some(error) = error.downcast_ref() {
        return of_directory(error);
    }
    None
}

fn of_query(error: &QueryError) -> Option<String> {
    match error {
        QueryError::Data(error) => of_directory(error),
        QueryError::Damaged { error, .. } => of_query(error),
        QueryError::Empty {
            data,
            unflushed_bytes,
        } => {
            let fill = to_fill(Path::new(data), *unflushed_bytes);
            Some(format!(
                "{fill}; each demo has a directory of its own, {data}/demo-…"
            ))
        }
        QueryError::NoSuchTrace { data, .. } => {
            let listed = command_on("critical-path --each --json", Path::new(data));
            Some(format!("ids are those that `{listed}` lists"))
        }
        QueryError::NoSuchRoot { .. } => Some(
            "names are service:name of the root span, as `stroboscope infer` lists them".to_owned(),
        ),
        QueryError::NoSuchSegment { data, .. } => Some(format!(
            "`{}` lists them",
            command_on("model", Path::new(data))
        )),
        _ => None,
    }
}

fn of_directory(error: &DataDirError) -> Option<String> {
    match error {
        // `collect` and `import` reject a directory with files of other programs.
        DataDirError::NotOurs(data) if DataDir::refuse_foreign(data).is_err() => {
            Some("it has files of other programs; name a data directory by --data".to_owned())
        }
        DataDirError::Missing(data) | DataDirError::NotOurs(data) => Some(format!(
            "`{}` or `{}` makes a data directory, --data names another",
            command_on("collect", data),
            command_on("import FILE", data)
        )),
        _ => None,
    }
}

/// Returns advice on a store without data: to wait for the next flush if a collector holds data, or
/// else how to fill it.
fn to_fill(data: &Path, unflushed_bytes: u64) -> String {
    if unflushed_bytes > 0 {
        return format!(
            "the collector that runs has taken {unflushed_bytes} bytes, which will be in the store within its \
             --flush-interval (10 s by default): ask again then"
        );
    }
    format!(
        "run `{}` and let services send to it (what it has taken is in the store within its --flush-interval, 10 s by \
         default), or `{}`",
        command_on("collect", data),
        command_on("import FILE", data)
    )
}
