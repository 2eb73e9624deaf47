//! Measures the cost of Stroboscope in a service: `cargo bench -p stroboscope-bench-service`. A run
//! takes about six minutes.
//!
//! The service is the newsfeed's web server, in a process of its own. It is compiled three times
//! from the same sources: with the SDK, with a crate of the same interface that does nothing
//! ("nothing installed"), and with one that uses `tracing-opentelemetry` and OpenTelemetry's batch
//! exporter. One process of each variant (see `VARIANTS`) runs at a time. In each round, one after
//! the other gets the same requests at a fixed rate, without waiting for answers (open loop). Each
//! fleet has new processes, so that the result depends neither on drift of the machine nor on one
//! process. Two variants have nothing installed. Their difference is the noise.
//!
//! The CPU time is that of the whole web process (workers, the SDK's threads, exporters) from the
//! first request of a slice to the end of its tail. The store, the ranker and the load generator
//! run in this process and the sink for records in another. Their CPU time is not included. The
//! store and the ranker answer at once.
//!
//! The options and their defaults are `-- --fleets 3 --rounds 6 --rate 250`. `--keep FILE` appends
//! the slices to a file and prints the table of all slices in the file, so that a long measurement
//! can be made in short runs.
//!
//! `-- --instructions` counts the web process's instructions per request with valgrind instead. It
//! shows differences of tenths of a percent on any machine, but includes neither caches nor the
//! kernel. It takes four to five minutes. Its options and their defaults are `--runs 3 --requests
//! 300 --rate 250`. `--profiles DIR` keeps callgrind's files of the last run in a directory, for
//! `callgrind_annotate`.

#![allow(missing_docs)]

mod backends;
#[path = "../../../examples/newsfeed/src/cpu.rs"]
#[allow(dead_code, unused_imports)]
mod cpu;
mod instructions;
mod load;
#[path = "../../../examples/newsfeed/src/random.rs"]
#[allow(dead_code, unused_imports)]
mod random;
mod report;
#[path = "../../../examples/newsfeed/src/session.rs"]
#[allow(dead_code, unused_imports)]
mod session;
mod sink;
mod web;
#[path = "../../../examples/newsfeed/src/wire.rs"]
mod wire;

use std::process::ExitCode;
use std::time::Duration;

use report::Slice;
use web::{VARIANTS, Web};

/// The options of the command line.
struct Options {
    fleets: usize,
    rounds: usize,
    rate_per_s: f64,
    keep: Option<String>,
}

/// Time for which one process gets requests before it is the next one's turn.
const SLICE: Duration = Duration::from_secs(2);
/// Time after the last answer of a slice that counts as well, because the process still ships its
/// records.
const TAIL: Duration = Duration::from_millis(300);

type Failure = Box<dyn std::error::Error + Send + Sync>;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args()
        .skip(1)
        .filter(|argument| argument != "--bench")
        .collect();
    let runtime = || {
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
    };
    let done: Result<(), Failure> = match arguments.first().map(String::as_str) {
        Some("--web") => return web::be(&arguments[1..]),
        Some("--sink") => runtime()
            .map_err(Failure::from)
            .and_then(|runtime| runtime.block_on(sink::be())),
        Some("--instructions") => counting(&arguments[1..])
            .and_then(|options| runtime()?.block_on(instructions::count_all(&options))),
        _ => options(&arguments).and_then(|options| runtime()?.block_on(compare(&options))),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("service: {error}");
            ExitCode::FAILURE
        }
    }
}

fn options(arguments: &[String]) -> Result<Options, Failure> {
    let mut options = Options {
        fleets: 3,
        rounds: 6,
        rate_per_s: 250.0,
        keep: None,
    };
    let mut rest = arguments.iter();
    while let Some(flag) = rest.next() {
        let value = rest.next().ok_or_else(|| format!("{flag} needs a value"))?;
        match flag.as_str() {
            "--fleets" => options.fleets = value.parse()?,
            "--rounds" => options.rounds = value.parse()?,
            "--rate" => options.rate_per_s = value.parse()?,
            "--keep" => options.keep = Some(value.clone()),
            _ => return Err(format!("there is no {flag}; see the top of service.rs").into()),
        }
    }
    if options.fleets == 0 || options.rounds == 0 {
        return Err("--fleets and --rounds must be at least 1".into());
    }
    Ok(options)
}

fn counting(arguments: &[String]) -> Result<instructions::Options, Failure> {
    let mut options = instructions::Options {
        runs: 3,
        requests: 300,
        rate_per_s: 250.0,
        profiles: None,
    };
    let mut rest = arguments.iter();
    while let Some(flag) = rest.next() {
        let value = rest.next().ok_or_else(|| format!("{flag} needs a value"))?;
        match flag.as_str() {
            "--runs" => options.runs = value.parse()?,
            "--requests" => options.requests = value.parse()?,
            "--rate" => options.rate_per_s = value.parse()?,
            "--profiles" => options.profiles = Some(value.into()),
            _ => return Err(format!("there is no {flag}; see the top of service.rs").into()),
        }
    }
    if options.runs == 0 || options.requests == 0 {
        return Err("--runs and --requests must be at least 1".into());
    }
    Ok(options)
}

async fn compare(options: &Options) -> Result<(), Failure> {
    let slices = options.fleets * options.rounds * VARIANTS.len();
    let seconds = slices as f64 * (SLICE + TAIL).as_secs_f64();
    eprintln!(
        "{slices} slices of {} s, {:.0} requests/s each: {seconds:.0} s",
        SLICE.as_secs(),
        options.rate_per_s
    );
    let backends = backends::start().await?;
    let sink = sink::Sink::start().await?;
    let mut measured: Vec<Slice> = Vec::new();
    for fleet in 0..options.fleets {
        let mut webs = Vec::new();
        for variant in &VARIANTS {
            webs.push(Web::start(variant, &backends, sink.address()).await?);
        }
        for web in &webs {
            // Warms up connections, allocators and branch predictors.
            load::run(web, options.rate_per_s, Duration::from_millis(500), 0).await?;
        }
        for round in 0..options.rounds {
            let number = fleet * options.rounds + round;
            for turn in 0..webs.len() {
                let index = (turn + number) % webs.len();
                let web = &webs[index];
                let cpu_before = web.cpu()?;
                let answered = load::run(web, options.rate_per_s, SLICE, number as u64 + 1).await?;
                tokio::time::sleep(TAIL).await;
                let slice = Slice::new(VARIANTS[index].name, &answered, web.cpu()? - cpu_before)?;
                measured.push(slice);
            }
        }
        for web in webs {
            web.stop().await?;
        }
    }
    let seen = sink.stop().await?;
    let all = match &options.keep {
        Some(file) => report::keep(file, &measured)?,
        None => measured,
    };
    report::print(&all, options.rate_per_s);
    println!("\nSpans that reached the sink in this run: {seen}");
    Ok(())
}
