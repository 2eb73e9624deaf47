//! How much a collector takes, from a second process on loopback, with every acknowledgement durable.
//!
//! `cargo bench -p stroboscope-collector --bench ingest` starts the binary as a user would, sends it spans as fast as they
//! are acknowledged (requests in flight on a few connections, closed loop), ends it in order, and prints for each protocol:
//! spans acknowledged a second; spans in Parquet a second, until the collector had ended; processor time of both sides for
//! a million spans, bytes of log and of Parquet for a span, and the greatest memory of the collector. What was
//! acknowledged is compared with what the store holds.
//!
//! Arguments, after `--`: `--seconds N`, `--connections N`, `--only native|otlp-http`,
//! `--memory-limit SIZE`.

mod load;
mod process;

use std::time::{Duration, Instant};

use load::{Load, Sent};
use process::{CollectorProcess, cpu};

type Failure = Box<dyn std::error::Error + Send + Sync>;

struct Arguments {
    duration: Duration,
    connections: usize,
    only: Option<String>,
    memory_limit: String,
}

fn arguments() -> Result<Option<Arguments>, Failure> {
    let mut found = Arguments {
        duration: Duration::from_secs(10),
        connections: 2,
        only: None,
        memory_limit: "2GiB".to_owned(),
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
            other => return Err(format!("no such argument: {other}").into()),
        }
    }
    // `cargo test --benches` runs this too, without `--bench`: there is nothing to test then.
    Ok(is_bench.then_some(found))
}

fn main() -> Result<(), Failure> {
    let Some(arguments) = arguments()? else {
        return Ok(());
    };
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
    for load in [Load::Native, Load::OtlpHttp] {
        let is_asked = arguments
            .only
            .as_deref()
            .is_none_or(|only| only == load.name());
        if is_asked {
            run(load, &arguments)?;
        }
    }
    Ok(())
}

fn run(load: Load, arguments: &Arguments) -> Result<(), Failure> {
    let mut collector = CollectorProcess::start(&arguments.memory_limit)?;
    let prepared = load.prepare();
    let cpu_before = cpu()?;
    let begun = Instant::now();
    let sent: Sent = load.send(
        &collector,
        &prepared,
        arguments.connections,
        arguments.duration,
    )?;
    let took_s = begun.elapsed().as_secs_f64();
    let generator_s = cpu()?.own_s - cpu_before.own_s;
    let log_bytes = collector.metric("wal_written_bytes_total")?;
    let memory_mib = collector.peak_mib()?;
    let stored = collector.stop()?;
    let drained_s = begun.elapsed().as_secs_f64();
    let collector_s = cpu()?.children_s - cpu_before.children_s;
    let spans = sent.spans as f64;
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
        sent.refused
    );
    if stored.spans != sent.spans {
        let lost = format!("{} spans acknowledged, {} stored", sent.spans, stored.spans);
        return Err(lost.into());
    }
    Ok(())
}
