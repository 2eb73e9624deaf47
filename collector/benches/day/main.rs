//! A store of one day: 8,640 flushes of ten seconds, 30 million spans, compacted throughout the day
//! as by a collector.
//!
//! `cargo bench -p stroboscope-collector --bench day` prints:
//!
//! - the CPU time that a collector takes to ingest spans, and the CPU time of compaction;
//! - the time of the main reading subcommands over the day as compaction left it, and over the same
//!   rows in one file for each table. Each time is the median of three runs without `cache/`. Runs
//!   over the two stores alternate.
//!
//! The bench writes files by the function that the flusher uses. It compacts after each minute of
//! the day's own clock. With `--no-care`, it does not compact, and subcommands read the files as
//! they were flushed.
//!
//! Arguments, after `--`: `--flushes COUNT`; `--spans COUNT` of the whole day; `--runs COUNT`;
//! `--verbs NAME,NAME` selects the subcommands whose names begin so; `--data DIR`, which must be
//! empty, keeps the store there.

#[allow(dead_code, reason = "the other bench has more use for it")]
#[path = "../ingest/load.rs"]
mod load;
#[allow(dead_code, reason = "the other bench has more use for it")]
#[path = "../ingest/process.rs"]
mod process;
#[allow(dead_code, reason = "the other bench has more use for it")]
#[path = "../million/verbs.rs"]
mod verbs;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use stroboscope_fixtures::workload::{EPOCH_NS, FLUSH_NS, request, rows_every};
use stroboscope_store::ledger::Checkpoint;
use stroboscope_store::maintenance::{Care, MaintenanceCounters, MaintenanceSettings};
use stroboscope_store::tables::{
    Hour, PartitionRule, RetriedSpans, Segments, Store, StoreTable, merge_files, write_rows,
};

use load::{Load, Sent};
use process::{CollectorProcess, cpu, processor};

type Failure = Box<dyn std::error::Error + Send + Sync>;

const SEED: u64 = 20_140_901;
const SPANS_PER_REQUEST: u64 = 53;
/// Flushes between two rounds of compaction: one minute.
const FLUSHES_PER_ROUND: u64 = 6;
/// Time for which the bench sends spans to a collector to measure their cost.
const INGEST: Duration = Duration::from_secs(6);
/// Arguments of the bench.
struct Arguments {
    flushes: u64,
    spans: u64,
    runs: usize,
    verbs: Option<String>,
    data: Option<PathBuf>,
    is_cared_for: bool,
}

fn arguments() -> Result<Option<Arguments>, Failure> {
    let mut found = Arguments {
        flushes: 8_640,
        spans: 30_000_000,
        runs: 3,
        verbs: None,
        data: None,
        is_cared_for: true,
    };
    let (mut all, mut is_bench) = (std::env::args().skip(1), false);
    while let Some(argument) = all.next() {
        let mut value = || {
            all.next()
                .ok_or_else(|| format!("{argument} wants a value"))
        };
        match argument.as_str() {
            "--bench" => is_bench = true,
            "--no-care" => found.is_cared_for = false,
            "--flushes" => found.flushes = value()?.parse::<u64>()?.max(2),
            "--spans" => found.spans = value()?.parse()?,
            "--runs" => found.runs = value()?.parse::<usize>()?.max(1),
            "--verbs" => found.verbs = Some(value()?),
            "--data" => found.data = Some(value()?.into()),
            other => return Err(format!("no such argument: {other}").into()),
        }
    }
    // `cargo test --benches` also runs this program, without `--bench`. It has nothing to test
    // then.
    Ok(is_bench.then_some(found))
}

fn main() -> Result<(), Failure> {
    let Some(arguments) = arguments()? else {
        return Ok(());
    };
    let temporary = tempfile::tempdir()?;
    let directory = arguments.data.as_deref().unwrap_or(temporary.path());
    stroboscope_fixtures::create_empty(directory)?;
    println!("on {}", processor());
    let ingest_s = [Load::Native, Load::OtlpHttp]
        .into_iter()
        .map(ingest)
        .collect::<Result<Vec<f64>, _>>()?;
    let runtime = tokio::runtime::Runtime::new()?;
    let many = directory.join("day");
    let store = Store::local(&many, runtime.handle().clone())?;
    let spans = generate(&store, &many, &arguments, &ingest_s)?;
    let one = directory.join("one");
    as_one(&store, &one, &runtime)?;
    println!(
        "verbs over the day's files, and over one file for each table; medians of {}, without what was kept of the model",
        arguments.runs
    );
    println!(
        "{:<42} {:>8} {:>8} {:>6} {:>8} {:>8} {:>9} {:>9}",
        "verb", "day s", "one s", "ratio", "day CPU", "one CPU", "day MiB", "one MiB"
    );
    let mut over = Vec::new();
    for verb in reading_verbs(directory) {
        let is_wanted = |wanted: &String| wanted.split(',').any(|one| verb[0].starts_with(one));
        if !arguments.verbs.as_ref().is_none_or(is_wanted) {
            continue;
        }
        let ratio = compare(&verb, &many, &one, arguments.runs)?;
        if ratio > 1.3 {
            over.push(format!("{} ({ratio:.2})", verb.join(" ")));
        }
    }
    if over.is_empty() {
        println!("{spans} spans: all within 1.3 times the time of one file");
    } else {
        println!(
            "{spans} spans: over 1.3 times the time of one file: {}",
            over.join(", ")
        );
    }
    Ok(())
}

/// Returns typical command lines of subcommands that read the traces of a store. `predict` needs
/// attributes, and `timeline` a recording of the kernel; this day has neither.
fn reading_verbs(directory: &Path) -> Vec<Vec<String>> {
    let page = directory.join("page.html").display().to_string();
    let trace = format!("{:032x}", request(SEED, 100).trace_id);
    let verbs: [&[&str]; 11] = [
        &["infer", "--json"],
        &["model", "--all", "--json"],
        &["critical-path", "--json"],
        &["critical-path", "--json", "--each", "--top", "10"],
        &["critical-path", "--json", "--trace", &trace],
        &["slack", "--json"],
        &["slack", "--json", "--validate"],
        &["anomalies", "--json"],
        &[
            "what-if",
            "--json",
            "--operation",
            "ranker:rank",
            "--scale",
            "0.5",
        ],
        &["clocks", "--json"],
        &["report", "--html", &page],
    ];
    let owned = |verb: &[&str]| verb.iter().map(|&word| word.to_owned()).collect();
    verbs.into_iter().map(owned).collect()
}

/// Returns the CPU seconds that a collector takes per million spans, from their first byte to
/// Parquet.
fn ingest(load: Load) -> Result<f64, Failure> {
    let mut collector = CollectorProcess::start("2GiB")?;
    let prepared = load.prepare();
    let before = cpu()?;
    let sent = Sent::default();
    load.send(&collector.target, &prepared, 2, INGEST, None, &sent)?;
    let stored = collector.stop()?;
    let collector_s =
        (cpu()?.children_s - before.children_s) / sent.spans.into_inner() as f64 * 1e6;
    println!(
        "ingest, {}: {collector_s:.2} s of CPU a million spans ({} spans stored)",
        load.name(),
        stored.spans
    );
    Ok(collector_s)
}

/// Returns the CPU time of this thread, in seconds.
fn thread_cpu_s() -> Result<f64, Failure> {
    let told = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    let ns: f64 = told.split_whitespace().next().ok_or("no time")?.parse()?;
    Ok(ns / 1e9)
}

/// Writes and compacts the day's files. Returns the number of spans.
fn generate(
    store: &Store,
    directory: &Path,
    arguments: &Arguments,
    ingest_s: &[f64],
) -> Result<u64, Failure> {
    let flushes = arguments.flushes;
    let of_flush = (arguments.spans / SPANS_PER_REQUEST / flushes).clamp(1, 10_000);
    let interval_ns = FLUSH_NS / of_flush;
    let requests = (flushes - 1) * (FLUSH_NS / interval_ns);
    let settings = MaintenanceSettings {
        // No reader needs the replaced files.
        replaced_bytes_max: 256 << 20,
        ..MaintenanceSettings::default()
    };
    let counters = Arc::new(MaintenanceCounters::default());
    let mut care = Care::of(store.clone(), settings, counters.clone());
    let (bytes, spans) = (AtomicU64::new(0), AtomicU64::new(0));
    let (mut care_s, mut files_most) = (0.0, 0);
    let started = Instant::now();
    let threads = std::thread::available_parallelism()?.get();
    for first in (0..flushes).step_by(FLUSHES_PER_ROUND as usize) {
        let end = flushes.min(first + FLUSHES_PER_ROUND);
        let next = AtomicU64::new(first);
        let write = || -> Result<(), Failure> {
            loop {
                let flush = next.fetch_add(1, Ordering::Relaxed);
                if flush >= end {
                    return Ok(());
                }
                let rows = rows_every(interval_ns, SEED, requests, flush);
                spans.fetch_add(rows.spans.len() as u64, Ordering::Relaxed);
                let received_ns = (EPOCH_NS + (flush + 1) * FLUSH_NS) as i64;
                let rule = PartitionRule::received(received_ns - FLUSH_NS as i64, received_ns);
                let written = write_rows(store, &Segments::one(flush).name(), rows, &rule)?;
                bytes.fetch_add(written.bytes, Ordering::Relaxed);
            }
        };
        std::thread::scope(|scope| -> Result<(), Failure> {
            let workers: Vec<_> = (0..threads).map(|_| scope.spawn(write)).collect();
            workers
                .into_iter()
                .try_for_each(|worker| worker.join().map_err(|_| "a writer panicked")?)
        })?;
        if arguments.is_cared_for {
            let before_s = thread_cpu_s()?;
            care.round(end, (EPOCH_NS + end * FLUSH_NS) as i64, &|| true)?;
            care_s += thread_cpu_s()? - before_s;
            if first % (60 * FLUSHES_PER_ROUND) == 0 {
                files_most = files_most.max(store.list(StoreTable::Spans)?.len());
            }
        }
    }
    let checkpoint = Checkpoint {
        next_segment: flushes,
        ..Checkpoint::default()
    };
    checkpoint.save(&stroboscope_store::disk::LocalDisk, directory)?;
    let (spans, millions) = (spans.into_inner(), |count: u64| count as f64 / 1e6);
    println!(
        "{flushes} flushes: {spans} spans of {requests} requests, {:.0} MB, in {:.0} s",
        millions(bytes.into_inner()),
        started.elapsed().as_secs_f64()
    );
    for table in StoreTable::OF_SEGMENTS {
        let files = store.list(table)?;
        let bytes = files.iter().map(|(_, bytes)| bytes).sum();
        println!(
            "{}: {} files, {:.0} MB",
            table.name(),
            files.len(),
            millions(bytes)
        );
    }
    if arguments.is_cared_for {
        let per_million = care_s / millions(spans);
        println!(
            "care: {per_million:.2} s of CPU a million spans, {} merges, {:.0} MB read and {:.0} MB written, each row {:.2} \
             times; at most {files_most} files of spans",
            counters.compactions.load(Ordering::Relaxed),
            millions(counters.compaction_read_bytes.load(Ordering::Relaxed)),
            millions(counters.compaction_written_bytes.load(Ordering::Relaxed)),
            counters.compacted_rows.load(Ordering::Relaxed) as f64 / rows_of(spans),
        );
        for (load, ingest_s) in [Load::Native, Load::OtlpHttp].iter().zip(ingest_s) {
            println!(
                "care's share of what {} costs a collector in all: {:.0} %",
                load.name(),
                100.0 * per_million / (per_million + ingest_s)
            );
        }
    }
    Ok(spans)
}

/// Returns the number of rows of spans and events, with two events for each request. Batches are
/// few in comparison.
fn rows_of(spans: u64) -> f64 {
    spans as f64 * (1.0 + 2.0 / SPANS_PER_REQUEST as f64)
}

/// Measurements of one run of a subcommand.
struct Took {
    wall_s: f64,
    cpu_s: f64,
    peak_bytes: u64,
}

fn run(verb: &[String], directory: &Path) -> Result<Took, Failure> {
    let cache = directory.join("cache");
    if cache.exists() {
        std::fs::remove_dir_all(cache)?;
    }
    let started = Instant::now();
    let mut child = Command::new(env!("CARGO_BIN_EXE_stroboscope"))
        .args(verb)
        .arg("--data")
        .arg(directory)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let (mut peak_bytes, mut cpu_s) = (0, 0.0);
    let status = loop {
        (peak_bytes, cpu_s) = verbs::usage(child.id()).unwrap_or((peak_bytes, cpu_s));
        if let Some(status) = child.try_wait()? {
            break status;
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    if !status.success() {
        return Err(format!("{}: {status}", verb.join(" ")).into());
    }
    Ok(Took {
        wall_s: started.elapsed().as_secs_f64(),
        cpu_s,
        peak_bytes,
    })
}

/// Runs a subcommand over both stores in turn, and prints the medians. Returns the ratio of the
/// first store's time to the second's.
fn compare(verb: &[String], many: &Path, one: &Path, runs: usize) -> Result<f64, Failure> {
    let (mut of_many, mut of_one) = (Vec::new(), Vec::new());
    for _ in 0..runs {
        of_many.push(run(verb, many)?);
        of_one.push(run(verb, one)?);
    }
    let median = |took: &mut Vec<Took>| {
        took.sort_by(|a, b| a.wall_s.total_cmp(&b.wall_s));
        took.swap_remove(took.len() / 2)
    };
    let (many, one) = (median(&mut of_many), median(&mut of_one));
    let ratio = many.wall_s / one.wall_s;
    // Arguments that are paths are not printed.
    let words = verb
        .iter()
        .filter(|word| *word != "--json" && !word.contains('/'));
    let name: Vec<&str> = words.map(|word| &word[..word.len().min(12)]).collect();
    println!(
        "{:<42} {:>8.2} {:>8.2} {ratio:>6.2} {:>8.2} {:>8.2} {:>9} {:>9}",
        name.join(" "),
        many.wall_s,
        one.wall_s,
        many.cpu_s,
        one.cpu_s,
        many.peak_bytes >> 20,
        one.peak_bytes >> 20
    );
    Ok(ratio)
}

/// Writes the same rows into one file for each table.
fn as_one(
    store: &Store,
    directory: &Path,
    runtime: &tokio::runtime::Runtime,
) -> Result<(), Failure> {
    drop(Store::local(directory, runtime.handle().clone())?);
    for table in StoreTable::OF_SEGMENTS {
        let files = store.list(table)?;
        let path = Hour::of(EPOCH_NS as i64).path(table, "all");
        let mut retried = RetriedSpans::default();
        merge_files(store, table, &files, &path, &mut retried, &|| true)?.publish()?;
        let to = directory.join(path.as_ref());
        std::fs::create_dir_all(to.parent().ok_or("no directory")?)?;
        std::fs::rename(store.display(&path), to)?;
    }
    Ok(())
}
