//! Searches a week of bursts: ten million spans of six services on twelve hosts, in bursts of 16 ms
//! every 16.384 s, with a rare event in one of 100,000 requests.
//!
//! `cargo bench -p stroboscope-collector --bench search` writes and compacts the spans as a
//! collector does, and a tenth of them, at the same density, in another store. It then runs
//! `search` over both as a user would. For each formula, it prints the seconds without and with the
//! results of an earlier search (`cache/`), the peak memory, the skipped data, and the matches. It
//! also prints the growth of time and memory from the tenth to the whole. Files that the bench has
//! just written or read are in the page cache.
//!
//! Arguments, after `--`: `--spans COUNT` of the larger store; `--data DIR` keeps the stores there,
//! and uses existing ones; `--formulas NAME,NAME` selects the formulas whose names begin so.

#[path = "../million/verbs.rs"]
#[allow(dead_code, reason = "the other bench has more use for it")]
mod verbs;

mod formulas;
mod week;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;
use stroboscope_store::ledger::Checkpoint;
use stroboscope_store::maintenance::{Care, MaintenanceCounters, MaintenanceSettings};
use stroboscope_store::tables::{PartitionRule, Segments, Store, StoreTable, write_rows};

use formulas::SearchCase;
use week::Size;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Number of spans in a week.
const WEEK_SPANS: u64 = 10_000_000;
/// Flushes between two rounds of compaction: about 17 minutes.
const FLUSHES_PER_ROUND: u64 = 16;
/// Maximum time of a search on two cores, in seconds.
const SELECTIVE_MAX_S: f64 = 10.0;
const ANY_MAX_S: f64 = 60.0;
/// Maximum growth of memory and time for ten times the spans.
const MEMORY_GROWTH_MAX: f64 = 1.5;
const TIME_GROWTH_MAX: f64 = 13.0;

struct Arguments {
    spans: u64,
    data: Option<PathBuf>,
    formulas: Option<String>,
}

fn arguments() -> Result<Option<Arguments>, Failure> {
    let mut found = Arguments {
        spans: WEEK_SPANS,
        data: None,
        formulas: None,
    };
    let (mut all, mut is_bench) = (std::env::args().skip(1), false);
    while let Some(argument) = all.next() {
        let mut value = || {
            all.next()
                .ok_or_else(|| format!("{argument} wants a value"))
        };
        match argument.as_str() {
            "--bench" => is_bench = true,
            "--spans" => found.spans = value()?.parse()?,
            "--data" => found.data = Some(value()?.into()),
            "--formulas" => found.formulas = Some(value()?),
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
    let data = arguments.data.as_deref().unwrap_or(temporary.path());
    let is_wanted = |asked: &&SearchCase| {
        let wanted = arguments.formulas.as_ref();
        wanted.is_none_or(|wanted| wanted.split(',').any(|name| asked.name.starts_with(name)))
    };
    let mut runs: Vec<Vec<Searched>> = Vec::new();
    for spans in [arguments.spans / 10, arguments.spans] {
        let directory = data.join(format!("spans-{spans}"));
        generate(&directory, spans)?;
        println!(
            "{:<22} {:>7} {:>7} {:>7} {:>9} {:>9} {:>8}  what was read",
            "formula", "cold s", "kept s", "MiB", "searched", "matched", "unknown"
        );
        let all = formulas::ALL.iter().filter(is_wanted);
        runs.push(
            all.map(|asked| search(asked, &directory))
                .collect::<Result<_, _>>()?,
        );
    }
    let [small, large] = runs.as_slice() else {
        return Err("two stores were to be searched".into());
    };
    println!("from a tenth to the whole:");
    let mut missed = Vec::new();
    for (small, large) in small.iter().zip(large) {
        let (time, memory) = (
            large.cold.wall_s / small.cold.wall_s,
            large.peak_bytes() as f64 / small.peak_bytes() as f64,
        );
        let name = large.asked.name;
        println!("{name:<22} {time:.1} times the time, {memory:.2} times the memory");
        let max_s = match large.asked.is_selective {
            true => SELECTIVE_MAX_S,
            false => ANY_MAX_S,
        };
        let mut must = |holds: bool, what: String| {
            if !holds {
                missed.push(format!("{name}: {what}"));
            }
        };
        let took_s = large.cold.wall_s;
        must(took_s <= max_s, format!("{took_s:.1} s, not {max_s} s"));
        must(time <= TIME_GROWTH_MAX, format!("{time:.1} times the time"));
        must(
            memory <= MEMORY_GROWTH_MAX,
            format!("{memory:.2} times the memory"),
        );
    }
    match missed.is_empty() {
        true => println!("all goals are met"),
        false => println!("goals that are missed: {}", missed.join("; ")),
    }
    Ok(())
}

/// Writes and compacts the store, unless it exists.
fn generate(directory: &Path, spans: u64) -> Result<(), Failure> {
    let marker = directory.join("generated");
    if marker.exists() {
        println!(
            "{}: {}",
            directory.display(),
            std::fs::read_to_string(&marker)?
        );
        return Ok(());
    }
    let size = Size::of(spans, WEEK_SPANS);
    let runtime = tokio::runtime::Runtime::new()?;
    let store = Store::local(directory, runtime.handle().clone())?;
    let settings = MaintenanceSettings {
        // No reader needs the replaced files.
        replaced_bytes_max: 256 << 20,
        ..MaintenanceSettings::default()
    };
    let mut care = Care::of(
        store.clone(),
        settings,
        Arc::new(MaintenanceCounters::default()),
    );
    let (started, flushes) = (Instant::now(), size.flushes());
    let written = AtomicU64::new(0);
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
                let (rows, to_ns) = week::rows(&size, flush);
                written.fetch_add(rows.spans.len() as u64, Ordering::Relaxed);
                let from_ns = to_ns - week::BURSTS_PER_FLUSH * week::PERIOD_NS;
                let rule = PartitionRule::received(from_ns as i64, to_ns as i64);
                write_rows(&store, &Segments::one(flush).name(), rows, &rule)?;
            }
        };
        std::thread::scope(|scope| -> Result<(), Failure> {
            let workers: Vec<_> = (0..threads).map(|_| scope.spawn(write)).collect();
            workers
                .into_iter()
                .try_for_each(|worker| worker.join().map_err(|_| "a writer panicked")?)
        })?;
        let now_ns = week::EPOCH_NS + end * week::BURSTS_PER_FLUSH * week::PERIOD_NS;
        care.round(end, now_ns as i64, &|| true)?;
    }
    let checkpoint = Checkpoint {
        next_segment: flushes,
        ..Checkpoint::default()
    };
    checkpoint.save(&stroboscope_store::disk::LocalDisk, directory)?;
    let files = store.list(StoreTable::Spans)?;
    let bytes: u64 = files.iter().map(|(_, bytes)| bytes).sum();
    let about = format!(
        "{} spans of {} requests in {} bursts over {:.2} days, {} files of spans of {:.1} MB together",
        written.into_inner(),
        size.requests,
        size.bursts,
        (size.bursts * week::PERIOD_NS) as f64 / 86_400e9,
        files.len(),
        bytes as f64 / 1e6,
    );
    println!(
        "{about}, written in {:.0} s",
        started.elapsed().as_secs_f64()
    );
    std::fs::write(marker, about)?;
    Ok(())
}

/// Measurements of one run.
struct Took {
    wall_s: f64,
    peak_bytes: u64,
    said: Value,
}

/// A search for a formula, measured without and with the cache.
struct Searched {
    asked: &'static SearchCase,
    cold: Took,
    kept: Took,
}

impl Searched {
    fn peak_bytes(&self) -> u64 {
        self.cold.peak_bytes.max(self.kept.peak_bytes)
    }
}

fn search(asked: &'static SearchCase, directory: &Path) -> Result<Searched, Failure> {
    let cache = directory.join("cache");
    if cache.exists() {
        std::fs::remove_dir_all(cache)?;
    }
    let (cold, kept) = (run(asked, directory)?, run(asked, directory)?);
    let counts = ["searched", "matched", "unknown"];
    let of = |took: &Took| counts.map(|key| took.said[key].as_u64());
    if of(&cold) != of(&kept) {
        return Err(format!("{}: what is kept changes the answer", asked.name).into());
    }
    let searched = Searched { asked, cold, kept };
    let said = &searched.kept.said;
    let count = |key: &str| said[key].as_u64().unwrap_or_default();
    println!(
        "{:<22} {:>7.2} {:>7.2} {:>7} {:>9} {:>9} {:>8}  {}",
        asked.name,
        searched.cold.wall_s,
        searched.kept.wall_s,
        searched.peak_bytes() >> 20,
        count("searched"),
        count("matched"),
        count("unknown"),
        what_was_read(said)
    );
    Ok(searched)
}

fn what_was_read(said: &Value) -> String {
    let plan = &said["plan"];
    let files = plan["files"].as_array().map_or(&[][..], Vec::as_slice);
    let sum = |key: &str| -> u64 { files.iter().filter_map(|file| file[key].as_u64()).sum() };
    let large = said["too_large_bursts"].as_array().map_or(0, Vec::len);
    match plan["all_because"].as_str() {
        Some(_) if plan["slices"].as_u64() > Some(0) => format!(
            "all, in {} slices of at most {} KiB, {large} too large",
            plan["slices"],
            plan["held_bytes"].as_u64().unwrap_or_default() >> 10
        ),
        Some(because) => format!("all: {because}"),
        None => format!(
            "{} requests: {} with what is needed, {} not seen whole; {} of {} row groups skipped",
            plan["read"],
            plan["candidates"],
            plan["not_all_seen"],
            sum("skipped_row_groups"),
            sum("row_groups")
        ),
    }
}

fn run(asked: &SearchCase, directory: &Path) -> Result<Took, Failure> {
    let started = Instant::now();
    let mut child = Command::new(env!("CARGO_BIN_EXE_stroboscope"))
        .args(["search", asked.formula, "--json", "--explain", "--data"])
        .arg(directory)
        .args(asked.more)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let mut output = child.stdout.take().ok_or("no output")?;
    let reader = std::thread::spawn(move || {
        let mut text = String::new();
        std::io::Read::read_to_string(&mut output, &mut text).map(|_| text)
    });
    let mut peak_bytes = 0;
    let status = loop {
        peak_bytes = verbs::usage(child.id()).map_or(peak_bytes, |(bytes, _)| bytes);
        if let Some(status) = child.try_wait()? {
            break status;
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let wall_s = started.elapsed().as_secs_f64();
    let text = reader.join().map_err(|_| "the reader panicked")??;
    if !status.success() {
        return Err(format!("search {}: {status}", asked.formula).into());
    }
    Ok(Took {
        wall_s,
        peak_bytes,
        said: serde_json::from_str(&text)?,
    })
}
