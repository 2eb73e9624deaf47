//! Helpers to run the program and to read its output.
#![allow(dead_code, reason = "each test uses some of it")]

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// Runs a subcommand in a directory, and checks its exit status. Returns its standard output and
/// error.
#[track_caller]
pub(crate) fn check(directory: &Path, arguments: &[&str], status: i32) -> (String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_stroboscope"))
        .args(arguments)
        .current_dir(directory)
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(
        output.status.code(),
        Some(status),
        "{arguments:?}\n{stdout}\n{stderr}"
    );
    (stdout, stderr)
}

/// Returns the JSON that a subcommand prints, which must succeed.
#[track_caller]
pub(crate) fn json_of(directory: &Path, arguments: &[&str]) -> Value {
    serde_json::from_str(&check(directory, arguments, 0).0).unwrap()
}

/// Returns a file of other systems' data, if it is in the directory `STROBOSCOPE_OTHERS_DATA`, by
/// default next to the project.
pub(crate) fn others(name: &str) -> Option<PathBuf> {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data");
    let path = std::env::var_os("STROBOSCOPE_OTHERS_DATA")
        .map_or_else(beside, Into::into)
        .join(name);
    if !path.exists() {
        eprintln!("SKIPPED: {} is not there", path.display());
        return None;
    }
    Some(path)
}
