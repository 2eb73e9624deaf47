//! Runs subcommands of the binary as a user would.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::Failure;

/// Content of the cache in the data directory before a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cache {
    /// Nothing.
    Cold,
    /// The results of an earlier run.
    Kept,
}

/// Measurements of one run of a subcommand.
pub(crate) struct Run {
    verb: &'static str,
    cache: Cache,
    requests: u64,
    seconds: f64,
    cpu_s: f64,
    peak_bytes: u64,
}

impl Run {
    /// Reports whether both runs are of one subcommand with the same kind of cache.
    pub(crate) fn is_as(&self, other: &Run) -> bool {
        (self.verb, self.cache) == (other.verb, other.cache)
    }

    /// Describes the growth of time and memory, compared with the growth of the number of requests.
    pub(crate) fn growth_since(&self, small: &Run) -> String {
        let times = self.requests as f64 / small.requests as f64;
        let time = self.seconds / small.seconds;
        format!(
            "for {times:.1} times the requests: {time:.2} times the time ({:+.0} % off linear), {:.2} times the CPU time, \
             {:.2} times the memory",
            100.0 * (time / times - 1.0),
            self.cpu_s / small.cpu_s,
            self.peak_bytes as f64 / small.peak_bytes as f64
        )
    }
}

/// Runs a subcommand `times` times. Returns the run with the median time.
pub(crate) fn median(
    what: (&'static str, Cache),
    directory: &Path,
    requests: u64,
    times: usize,
) -> Result<Run, Failure> {
    let mut runs = (0..times.max(1))
        .map(|_| run(what, directory, requests))
        .collect::<Result<Vec<_>, _>>()?;
    runs.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
    Ok(runs.swap_remove(runs.len() / 2))
}

/// Runs a subcommand over the store, and prints its time and memory. For a run with a kept cache,
/// the caller must have made a cold run before.
fn run(
    (verb, cache): (&'static str, Cache),
    directory: &Path,
    requests: u64,
) -> Result<Run, Failure> {
    let kept = directory.join("cache");
    if cache == Cache::Cold && kept.exists() {
        std::fs::remove_dir_all(kept)?;
    }
    let started = Instant::now();
    let mut child = Command::new(env!("CARGO_BIN_EXE_stroboscope"))
        .args([verb, "--json", "--data"])
        .arg(directory)
        .stdout(Stdio::piped())
        .spawn()?;
    let mut output = child.stdout.take().ok_or("no output")?;
    let reader = std::thread::spawn(move || {
        let mut text = String::new();
        std::io::Read::read_to_string(&mut output, &mut text).map(|_| text)
    });
    let (mut peak_bytes, mut cpu_s) = (0, 0.0);
    let status = loop {
        let seen = usage(child.id());
        (peak_bytes, cpu_s) = seen.unwrap_or((peak_bytes, cpu_s));
        if let Some(status) = child.try_wait()? {
            break status;
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    let seconds = started.elapsed().as_secs_f64();
    let text = reader.join().map_err(|_| "the reader panicked")??;
    if !status.success() {
        return Err(format!("{verb}: {status}").into());
    }
    let found: serde_json::Value = serde_json::from_str(&text)?;
    let count = |key: &str| found[key].as_array().map_or(0, Vec::len);
    println!(
        "{verb} of {requests} requests, {cache:?}: {seconds:.1} s ({cpu_s:.1} s of CPU), {:.0} requests/s, peak memory {} MiB; {} of \
         {} traces complete, {} segments, {} happens-before, {} mutual exclusions",
        requests as f64 / seconds,
        peak_bytes >> 20,
        found["complete_traces"],
        found["traces"],
        count("segments"),
        count("happens_before"),
        count("mutual_exclusion"),
    );
    Ok(Run {
        verb,
        cache,
        requests,
        seconds,
        cpu_s,
        peak_bytes,
    })
}

/// Returns the peak memory (VmHWM, in bytes) and the CPU time of a process, from Linux's `/proc`.
pub(crate) fn usage(pid: u32) -> Option<(u64, f64)> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // Fields 14 and 15, in ticks of 10 ms. They follow the name, which may contain any character.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<u64>().ok();
    Some((kib << 10, (ticks()? + ticks()?) as f64 / 100.0))
}
