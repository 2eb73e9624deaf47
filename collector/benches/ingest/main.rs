//! Measures the ingest of a collector, from a second process over loopback. Every acknowledgement
//! is durable.
//!
//! `cargo bench -p stroboscope-collector --bench ingest` starts the binary as a user would, sends
//! spans as fast as the collector acknowledges them (a few connections with requests in flight,
//! closed loop), and stops it. For each protocol, it prints the acknowledged spans per second; the
//! spans per second in Parquet, up to the end of the collector; the CPU time of both sides per
//! million spans; the bytes of log and of Parquet per span; and the collector's peak memory. It
//! compares the acknowledged spans with the store.
//!
//! With `--rotel PROGRAM`, another agent receives the same OTLP in the same run, and drops it (its
//! exporter `blackhole`).
//!
//! With `--steady SECONDS`, the bench then sends each protocol for this time, at 70 % of the rate
//! into Parquet. It prints a line per minute: the rate, the collector's minimum and maximum memory,
//! its log, and the time to an acknowledgement.
//!
//! With `--siege SECONDS`, the bench only besieges a collector with a poisoned store for this time:
//! with decompression bombs, readers of a request of a million spans (as a page, and by the APIs of
//! Jaeger and Tempo), a hundred heavy pages, and the full load of both protocols. It prints the
//! collector's peak memory, and the acknowledgement times of a well-behaved client before and
//! during the siege. `--small` makes the store small. `--only` selects one kind of besieger:
//! `bombs`, `heavy pages`, `its page`, `Jaeger's readers`, `Tempo's readers`, `native`,
//! `otlp-http`.
//!
//! With `--agents N`, N agents are connected during the measurement. The bench first prints their
//! cost to an idle collector.
//!
//! Other arguments, after `--`: `--seconds N`, `--connections N`, `--only
//! native|forwarded|otlp-http|rotel`, `--memory-limit SIZE`.

mod agents;
mod load;
mod process;
mod siege;
mod steady;

use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use agents::Agents;
use load::{Load, Sent};
use process::{CollectorProcess, Rotel, cpu};
use stroboscope_fixtures::poisoned::Poison;

type Failure = Box<dyn std::error::Error + Send + Sync>;

struct Arguments {
    duration: Duration,
    connections: usize,
    only: Option<String>,
    memory_limit: String,
    rotel: Option<PathBuf>,
    steady: Option<Duration>,
    siege: Option<Duration>,
    agents: usize,
    poison: Poison,
}

fn arguments() -> Result<Option<Arguments>, Failure> {
    let mut found = Arguments {
        duration: Duration::from_secs(10),
        connections: 2,
        only: None,
        memory_limit: "2GiB".to_owned(),
        rotel: None,
        steady: None,
        siege: None,
        agents: 0,
        poison: Poison::WHOLE,
    };
    let (mut all, mut is_bench) = (std::env::args().skip(1), false);
    while let Some(argument) = all.next() {
        let mut value = || {
            all.next()
                .ok_or_else(|| format!("{argument} wants a value"))
        };
        match argument.as_str() {
            "--bench" => is_bench = true,
            "--seconds" => found.duration = Duration::from_secs(value()?.parse()?),
            "--connections" => found.connections = value()?.parse()?,
            "--memory-limit" => found.memory_limit = value()?,
            "--only" => found.only = Some(value()?),
            "--rotel" => found.rotel = Some(value()?.into()),
            "--steady" => found.steady = Some(Duration::from_secs(value()?.parse()?)),
            "--siege" => found.siege = Some(Duration::from_secs(value()?.parse()?)),
            "--agents" => found.agents = value()?.parse()?,
            "--small" => found.poison = Poison::SMALL,
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
    if let Some(duration) = arguments.siege {
        println!("on {}", process::processor());
        return siege::run(duration, arguments.poison, &arguments);
    }
    println!(
        "{} connections, {} s each, on {}",
        arguments.connections,
        arguments.duration.as_secs(),
        process::processor()
    );
    println!(
        "{:>10}  {:>14}  {:>9}  {:>13}  {:>13}  {:>6}  {:>10}  {:>6}  {:>8}",
        "protocol",
        "acknowledged/s",
        "stored/s",
        "collector s/M",
        "generator s/M",
        "log B",
        "Parquet B",
        "MiB",
        "refused"
    );
    let is_asked = |name: &str| arguments.only.as_deref().is_none_or(|only| only == name);
    let mut stored = Vec::new();
    for load in [Load::Native, Load::Forwarded, Load::OtlpHttp] {
        if is_asked(load.name()) {
            stored.push((load, run(load, &arguments)?));
        }
    }
    if let Some(rotel) = arguments.rotel.as_ref().filter(|_| is_asked("rotel")) {
        run_rotel(rotel, &arguments)?;
    }
    for (load, spans_per_s) in stored {
        if let Some(duration) = arguments.steady {
            steady::run(load, 0.7 * spans_per_s, duration, &arguments)?;
        }
    }
    Ok(())
}

/// Sends at the maximum rate. Returns the spans per second that the collector wrote to Parquet.
fn run(load: Load, arguments: &Arguments) -> Result<f64, Failure> {
    let mut collector = CollectorProcess::start(&arguments.memory_limit)?;
    let agents = (arguments.agents > 0).then(|| Agents::connect(&collector, arguments.agents));
    let agents = agents.transpose()?;
    let prepared = load.prepare();
    let cpu_before = cpu()?;
    let begun = Instant::now();
    let sent = Sent::default();
    let (connections, duration) = (arguments.connections, arguments.duration);
    load.send(
        &collector.target,
        &prepared,
        connections,
        duration,
        None,
        &sent,
    )?;
    let took_s = begun.elapsed().as_secs_f64();
    let generator_s = cpu()?.own_s - cpu_before.own_s;
    let log_bytes = collector.metric("wal_written_bytes_total")?;
    let memory_mib = collector.peak_mib()?;
    drop(agents);
    let stored = collector.stop()?;
    let drained_s = begun.elapsed().as_secs_f64();
    let collector_s = cpu()?.children_s - cpu_before.children_s;
    let acknowledged = sent.spans.into_inner();
    let spans = acknowledged as f64;
    println!(
        "{:>10}  {:>14.0}  {:>9.0}  {:>13.2}  {:>13.2}  {:>6.1}  {:>10.1}  {:>6.0}  {:>8}",
        load.name(),
        spans / took_s,
        spans / drained_s,
        collector_s / spans * 1e6,
        generator_s / spans * 1e6,
        log_bytes / spans,
        stored.bytes as f64 / spans,
        memory_mib,
        sent.refused.into_inner()
    );
    if stored.spans != acknowledged {
        let lost = format!("{acknowledged} spans acknowledged, {} stored", stored.spans);
        return Err(lost.into());
    }
    Ok(spans / drained_s)
}

/// Sends the OTLP load to an agent that neither logs nor stores it.
fn run_rotel(program: &std::path::Path, arguments: &Arguments) -> Result<(), Failure> {
    let mut rotel = Rotel::start(program)?;
    let prepared = Load::OtlpHttp.prepare();
    let cpu_before = cpu()?;
    let begun = Instant::now();
    let sent = Sent::default();
    let (connections, duration) = (arguments.connections, arguments.duration);
    Load::OtlpHttp.send(&rotel.target, &prepared, connections, duration, None, &sent)?;
    let took_s = begun.elapsed().as_secs_f64();
    let generator_s = cpu()?.own_s - cpu_before.own_s;
    let memory_mib = rotel.peak_mib()?;
    rotel.stop()?;
    let rotel_s = cpu()?.children_s - cpu_before.children_s;
    let spans = sent.spans.load(Relaxed) as f64;
    println!(
        "{:>10}  {:>14.0}  {:>9}  {:>13.2}  {:>13.2}  {:>6}  {:>10}  {:>6.0}  {:>8}",
        "rotel",
        spans / took_s,
        "-",
        rotel_s / spans * 1e6,
        generator_s / spans * 1e6,
        "-",
        "-",
        memory_mib,
        sent.refused.into_inner()
    );
    Ok(())
}
