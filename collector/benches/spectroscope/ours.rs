//! `stroboscope compare` on the same requests.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::Failure;
use crate::process::{Took, watch};

/// Output of `compare`, with its cost.
pub(crate) struct Compared {
    pub(crate) took: Took,
    pub(crate) json: Value,
}

/// Compares two stores `runs` times. Returns the output, and the cost of the run with the median
/// time.
pub(crate) fn compare(
    program: &Path,
    [before, after]: [&Path; 2],
    runs: usize,
) -> Result<Compared, Failure> {
    let said = tempfile::tempdir()?;
    let (mut all, mut json) = (Vec::new(), Value::Null);
    for run in 0..runs {
        for directory in [before, after] {
            // Removes the cache of an earlier run.
            let cache = directory.join("cache");
            if cache.exists() {
                fs::remove_dir_all(cache)?;
            }
        }
        let path = said.path().join(run.to_string());
        let mut command = command(program, [before, after]);
        command.stdout(fs::File::create(&path)?);
        all.push(watch(&mut command)?);
        json = serde_json::from_slice(&fs::read(&path)?)?;
    }
    all.sort_by(|a, b| a.wall_s.total_cmp(&b.wall_s));
    let took = all.get(all.len() / 2).copied().ok_or("no run")?;
    Ok(Compared { took, json })
}

fn command(program: &Path, [before, after]: [&Path; 2]) -> Command {
    let mut command = Command::new(program);
    command
        .args(["compare", "--json", "--top", "0", "--data"])
        .arg(after)
        .arg("--before-data")
        .arg(before)
        .stderr(Stdio::inherit());
    command
}

/// Returns the number of categories in each period. Counts repetitions exactly, as the paper does.
pub(crate) fn categories(program: &Path, stores: [&Path; 2]) -> Result<[u64; 2], Failure> {
    let ran = command(program, stores).args(["--fold", "none"]).output()?;
    if !ran.status.success() {
        return Err(format!("compare --fold none: {}", ran.status).into());
    }
    let json: Value = serde_json::from_slice(&ran.stdout)?;
    let of = |period: &str| json[period]["categories"].as_u64().unwrap_or_default();
    Ok([of("before"), of("after")])
}

/// Returns the rows of a list.
pub(crate) fn rows<'a>(json: &'a Value, list: &str) -> &'a [Value] {
    json[list].as_array().map_or(&[], Vec::as_slice)
}

/// Reports whether a cause or an edge belongs to one of these operations.
pub(crate) fn is_of(row: &Value, operations: &[(&str, &str)]) -> bool {
    operations
        .iter()
        .any(|(service, operation)| row["service"] == *service && row["operation"] == *operation)
}
