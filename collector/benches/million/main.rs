//! The Mystery Machine's batch run (§4.2.3) at its size: 1.3 million requests of 100 segments.
//!
//! `cargo bench -p stroboscope-collector --bench million` generates the requests into two stores: a
//! tenth of them, and all. It runs subcommands over both stores as a user would: *cold*, without
//! earlier results in the cache of the data directory, and *kept*, with those of an earlier run. It
//! prints their time and memory, and whether these grow faster than the number of requests. It also
//! measures the inference kernel alone and the naive double loop on 20,000 such requests.
//!
//! Arguments, after `--`: `--requests COUNT`; `--data DIR` keeps the stores there, and uses
//! existing ones; `--only generate|infer|critical-path|kernel` runs only that part.

mod kernel;
mod verbs;

use verbs::Cache;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use stroboscope_fixtures::workload;
use stroboscope_store::tables::{PartitionRule, Store, write_rows};

type Failure = Box<dyn std::error::Error + Send + Sync>;

const SEED: u64 = 20_140_901;
/// Number of runs over the tenth, of which the median counts. Each takes only seconds, which other
/// work on the machine easily doubles.
const SMALL_RUNS: usize = 5;

struct Arguments {
    requests: u64,
    data: Option<PathBuf>,
    only: Option<String>,
}

fn arguments() -> Result<Option<Arguments>, Failure> {
    let mut found = Arguments {
        requests: 1_300_000,
        data: None,
        only: None,
    };
    let (mut all, mut is_bench) = (std::env::args().skip(1), false);
    while let Some(argument) = all.next() {
        let mut value = || {
            all.next()
                .ok_or_else(|| format!("{argument} wants a value"))
        };
        match argument.as_str() {
            "--bench" => is_bench = true,
            "--requests" => found.requests = value()?.parse()?,
            "--data" => found.data = Some(value()?.into()),
            "--only" => found.only = Some(value()?),
            other => return Err(format!("no such argument: {other}").into()),
        }
    }
    // `cargo test --benches` also runs this program, without `--bench`. It has nothing to test
    // then.
    Ok(is_bench.then_some(found))
}

fn main() -> Result<(), Failure> {
    let Some(Arguments {
        requests,
        data,
        only,
    }) = arguments()?
    else {
        return Ok(());
    };
    warn_if_busy();
    let does = |what: &str| only.as_deref().is_none_or(|only| only == what);
    if does("kernel") {
        kernel::compare(SEED);
    }
    let temporary = tempfile::tempdir()?;
    let data = data.as_deref().unwrap_or(temporary.path());
    let mut runs: Vec<verbs::Run> = Vec::new();
    for (requests, times) in [(requests / 10, SMALL_RUNS), (requests, 1)] {
        let directory = data.join(requests.to_string());
        if ["generate", "infer", "critical-path"].into_iter().any(does) {
            generate(&directory, requests)?;
        }
        for (verb, cache) in [
            ("infer", Cache::Cold),
            ("critical-path", Cache::Cold),
            ("critical-path", Cache::Kept),
        ]
        .into_iter()
        .filter(|(verb, _)| does(verb))
        {
            let run = verbs::median((verb, cache), &directory, requests, times)?;
            if let Some(small) = runs.iter().find(|small| small.is_as(&run)) {
                println!("  {}", run.growth_since(small));
            }
            runs.push(run);
        }
    }
    Ok(())
}

/// Warns if other programs use the processors, because the times then say little.
fn warn_if_busy() {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let last_minute = load.split(' ').next().and_then(|load| load.parse().ok());
    if let Some(busy) = last_minute.filter(|busy: &f64| *busy > 0.5) {
        println!("warning: {busy:.1} processors were busy in the last minute; compare CPU times");
    }
}

/// Writes the store, unless it exists.
fn generate(directory: &Path, requests: u64) -> Result<(), Failure> {
    let marker = directory.join(format!("generated-{SEED}"));
    let files = workload::files(requests);
    if marker.exists() {
        println!("{requests} requests: in {}", directory.display());
        return Ok(());
    }
    let started = Instant::now();
    let runtime = tokio::runtime::Runtime::new()?;
    let store = Store::local(directory, runtime.handle().clone())?;
    let (next, bytes, spans) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let write = || -> Result<(), Failure> {
        loop {
            let file = next.fetch_add(1, Ordering::Relaxed);
            if file >= files {
                return Ok(());
            }
            let rows = workload::rows(SEED, requests, file);
            spans.fetch_add(rows.spans.len() as u64, Ordering::Relaxed);
            let received_ns = (workload::EPOCH_NS + (file + 1) * workload::FLUSH_NS) as i64;
            let rule =
                PartitionRule::received(received_ns - workload::FLUSH_NS as i64, received_ns);
            let written = write_rows(&store, &format!("seg-{file:010}"), rows, &rule)?;
            bytes.fetch_add(written.bytes, Ordering::Relaxed);
        }
    };
    let threads = std::thread::available_parallelism()?.get();
    std::thread::scope(|scope| -> Result<(), Failure> {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(write)).collect();
        workers
            .into_iter()
            .try_for_each(|worker| worker.join().map_err(|_| "a writer panicked")?)
    })?;
    std::fs::write(marker, "")?;
    println!(
        "{requests} requests: {} spans in {files} files of {} MB together, generated in {:.0} s",
        spans.into_inner(),
        bytes.into_inner() / 1_000_000,
        started.elapsed().as_secs_f64()
    );
    Ok(())
}
