//! Runs and measures programs.

use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use crate::Failure;
use crate::verbs::usage;

/// Cost of a program.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Took {
    pub(crate) wall_s: f64,
    /// CPU time of all its processes.
    pub(crate) cpu_s: f64,
    /// Peak memory of its largest process.
    pub(crate) peak_bytes: u64,
}

/// Runs a program, and measures all its processes meanwhile.
pub(crate) fn watch(command: &mut Command) -> Result<Took, Failure> {
    let (started, before_s) = (Instant::now(), children_cpu_s()?);
    let mut child = command
        .spawn()
        .map_err(|error| format!("{}: {error}", Path::new(command.get_program()).display()))?;
    let mut peak_bytes = 0;
    let status = loop {
        for process in processes(&child) {
            peak_bytes = usage(process).map_or(peak_bytes, |(bytes, _)| bytes.max(peak_bytes));
        }
        if let Some(status) = child.try_wait()? {
            break status;
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    let wall_s = started.elapsed().as_secs_f64();
    if !status.success() {
        return Err(format!("{}: {status}", Path::new(command.get_program()).display()).into());
    }
    Ok(Took {
        wall_s,
        cpu_s: children_cpu_s()? - before_s,
        peak_bytes,
    })
}

/// Returns the ids of a process and of all its descendants.
fn processes(child: &Child) -> Vec<u32> {
    let mut found = vec![child.id()];
    let mut at = 0;
    while let Some(&process) = found.get(at) {
        let path = format!("/proc/{process}/task/{process}/children");
        let below = std::fs::read_to_string(path).unwrap_or_default();
        found.extend(
            below
                .split_whitespace()
                .filter_map(|word| word.parse::<u32>().ok()),
        );
        at += 1;
    }
    found
}

/// Returns the user and system time of all children that have ended, and of their children.
fn children_cpu_s() -> Result<f64, Failure> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    // Fields 16 and 17, in ticks of 10 ms. They follow the name, which may contain any character.
    let rest = stat.rsplit_once(')').ok_or("no name")?.1;
    let ticks = rest.split_whitespace().skip(13).take(2);
    let ticks: Vec<f64> = ticks.map(str::parse).collect::<Result<_, _>>()?;
    Ok(ticks.iter().sum::<f64>() / 100.0)
}
