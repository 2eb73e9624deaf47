//! A day's store: 8,640 flushes of ten seconds, 29 million spans.
//!
//! `cargo bench -p stroboscope-collector --bench day` generates it, and prints how long verbs take over it as it was
//! flushed, what `compact` costs, and how long the verbs take after that, and over the same rows in one file for each table.
//!
//! Arguments, after `--`: `--flushes COUNT`; `--requests COUNT`, of a flush, 64 unless told otherwise, of 53 spans each;
//! `--data DIR`, which must be empty, to keep the store there.

#[allow(dead_code, reason = "the other bench has more use for it")]
#[path = "../million/verbs.rs"]
mod verbs;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use stroboscope_store::ledger::Checkpoint;
use stroboscope_store::tables::{
    Hour, PartitionRule, Retried, Segments, Store, StoreTable, merge_files, write_rows,
};
use stroboscope_testkit::workload::{EPOCH_NS, FLUSH_NS, rows_every};

/// How much there is.
#[derive(Clone, Copy)]
struct Day {
    flushes: u64,
    /// From one request to the next.
    interval_ns: u64,
}

impl Day {
    fn requests(self) -> u64 {
        (self.flushes - 1) * (FLUSH_NS / self.interval_ns)
    }
}

type Failure = Box<dyn std::error::Error + Send + Sync>;

const SEED: u64 = 20_140_901;
const VERBS: [&str; 2] = ["infer", "critical-path"];

fn main() -> Result<(), Failure> {
    let (mut flushes, mut requests, mut data, mut is_bench) = (8_640_u64, 64_u64, None, false);
    let mut all = std::env::args().skip(1);
    while let Some(argument) = all.next() {
        match argument.as_str() {
            "--bench" => is_bench = true,
            "--flushes" => flushes = all.next().ok_or("--flushes wants a count")?.parse()?,
            "--requests" => requests = all.next().ok_or("--requests wants a count")?.parse()?,
            "--data" => data = all.next().map(PathBuf::from),
            other => return Err(format!("no such argument: {other}").into()),
        }
    }
    // `cargo test --benches` runs this too, without `--bench`: there is nothing to test then.
    if !is_bench {
        return Ok(());
    }
    let day = Day {
        flushes: flushes.max(2),
        interval_ns: FLUSH_NS / requests.clamp(1, 10_000),
    };
    let temporary = tempfile::tempdir()?;
    let folder = data.as_deref().unwrap_or(temporary.path());
    let runtime = tokio::runtime::Runtime::new()?;
    let many = folder.join("many");
    let store = Store::local(&many, runtime.handle().clone())?;
    let spans = generate(&store, &many, day)?;
    read("as flushed", &many, day)?;
    let cpu_s = compact(&many)?;
    println!(
        "compact: {:.2} s of CPU a million spans",
        cpu_s / spans as f64 * 1e6
    );
    read("compacted", &many, day)?;
    let one = folder.join("one");
    as_one(&store, &one, &runtime)?;
    read("in one file", &one, day)
}

/// Writes the store; its spans.
fn generate(store: &Store, folder: &Path, day: Day) -> Result<u64, Failure> {
    let started = Instant::now();
    let (next, bytes, spans) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let (flushes, requests) = (day.flushes, day.requests());
    let write = || -> Result<(), Failure> {
        loop {
            let flush = next.fetch_add(1, Ordering::Relaxed);
            if flush >= flushes {
                return Ok(());
            }
            let rows = rows_every(day.interval_ns, SEED, requests, flush);
            spans.fetch_add(rows.spans.len() as u64, Ordering::Relaxed);
            let received_ns = (EPOCH_NS + (flush + 1) * FLUSH_NS) as i64;
            let rule = PartitionRule::received(received_ns - FLUSH_NS as i64, received_ns);
            let written = write_rows(store, &Segments::one(flush).name(), rows, &rule)?;
            bytes.fetch_add(written.bytes, Ordering::Relaxed);
        }
    };
    std::thread::scope(|scope| -> Result<(), Failure> {
        let threads = std::thread::available_parallelism()?.get();
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(write)).collect();
        workers
            .into_iter()
            .try_for_each(|worker| worker.join().map_err(|_| "a writer panicked")?)
    })?;
    let checkpoint = Checkpoint {
        next_segment: flushes,
        ..Checkpoint::default()
    };
    checkpoint.save(&stroboscope_store::disk::LocalDisk, folder)?;
    println!(
        "{flushes} flushes: {} spans of {requests} requests, {} MB, generated in {:.0} s",
        spans.load(Ordering::Relaxed),
        bytes.into_inner() / 1_000_000,
        started.elapsed().as_secs_f64()
    );
    Ok(spans.into_inner())
}

/// Runs the verbs, each without what another one kept.
fn read(what: &str, folder: &Path, day: Day) -> Result<(), Failure> {
    println!("{what}:");
    for verb in VERBS {
        let cache = folder.join("cache");
        if cache.exists() {
            std::fs::remove_dir_all(cache)?;
        }
        verbs::run(verb, folder, day.requests())?;
    }
    Ok(())
}

/// Compacts as a user does; the CPU time.
fn compact(folder: &Path) -> Result<f64, Failure> {
    let started = Instant::now();
    let mut child = Command::new(env!("CARGO_BIN_EXE_stroboscope"))
        .args(["compact", "--data"])
        .arg(folder)
        .spawn()?;
    let (mut peak_bytes, mut cpu_s) = (0, 0.0);
    let status = loop {
        (peak_bytes, cpu_s) = verbs::usage(child.id()).unwrap_or((peak_bytes, cpu_s));
        if let Some(status) = child.try_wait()? {
            break status;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    };
    if !status.success() {
        return Err(format!("compact: {status}").into());
    }
    println!(
        "compact: {:.1} s ({cpu_s:.1} s of CPU), peak memory {} MiB",
        started.elapsed().as_secs_f64(),
        peak_bytes >> 20
    );
    Ok(cpu_s)
}

/// The same rows in one file for each table.
fn as_one(store: &Store, folder: &Path, runtime: &tokio::runtime::Runtime) -> Result<(), Failure> {
    let fresh = Store::local(folder, runtime.handle().clone())?;
    for table in [StoreTable::Spans, StoreTable::Events, StoreTable::Batches] {
        let files = store.list(table)?;
        let path = Hour::of(EPOCH_NS as i64).path(table, "all");
        merge_files(
            store,
            table,
            &files,
            &path,
            &mut Retried::default(),
            &|| true,
        )?
        .publish()?;
        let to = folder.join(path.as_ref());
        std::fs::create_dir_all(to.parent().ok_or("no folder")?)?;
        std::fs::rename(store.display(&path), to)?;
    }
    drop(fresh);
    Ok(())
}
