//! Event lines imported per second, on one core: `cargo bench -p stroboscope-collector --bench import`.
//!
//! Writes a log of 2,000,000 lines (or as many as the first argument says): requests of 20 events over five tasks on
//! three hosts, with ids of 32 hex digits and two attributes; then imports it three times into fresh folders. The time
//! is that of the whole import, from opening the file to durable Parquet.

use std::io::{BufWriter, Write as _};
use std::time::Instant;

use stroboscope_collector::import::{Imported, Importer};
use stroboscope_collector::intake::DataDir;
use stroboscope_collector::store::Store;

const EVENTS_PER_TRACE: u64 = 20;
const TASKS: [&str; 5] = ["server", "network", "page/header", "page/feed", "logger"];
const EVENTS: [&str; 4] = ["begin", "flushed", "first byte", "end"];

fn write_log(path: &std::path::Path, lines: u64) -> std::io::Result<()> {
    let mut log = BufWriter::new(std::fs::File::create(path)?);
    for line in 0..lines {
        let (trace, at) = (line / EVENTS_PER_TRACE, line % EVENTS_PER_TRACE);
        // Spread over the whole range, as random ids are.
        let id = u128::from(trace + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
        let time_ns = 1_767_322_800_000_000_000 + trace * 1_000_000 + at * 43_211;
        writeln!(
            log,
            r#"{{"trace":"{id:032x}","host":"web{}","ts_ns":{time_ns},"event":"{}","task":"{}","attrs":{{"user":{},"page":"home"}}}}"#,
            trace % 3,
            EVENTS[(at % 4) as usize],
            TASKS[(at / 4) as usize],
            trace % 10_007,
        )?;
    }
    log.flush()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let lines = std::env::args().nth(1).and_then(|count| count.parse().ok()).unwrap_or(2_000_000);
    let folder = tempfile::tempdir()?;
    let log = folder.path().join("log.jsonl");
    write_log(&log, lines)?;
    let log_bytes = std::fs::metadata(&log)?.len();
    println!("{lines} lines, {} MB", log_bytes / 1_000_000);
    let runtime = tokio::runtime::Runtime::new()?;
    for round in 1..=3 {
        let data = folder.path().join(format!("data-{round}"));
        let store = Store::local(&data, runtime.handle().clone())?;
        let importer = Importer::new(DataDir::create(&data)?, store);
        let started = Instant::now();
        let Imported::Now(summary) = importer.file(&log, &mut |_, _| {})? else {
            return Err("imported before".into());
        };
        let seconds = started.elapsed().as_secs_f64();
        assert_eq!((summary.events, summary.bad_lines), (lines, 0));
        println!(
            "round {round}: {:.0} lines/s, {:.0} MB/s ({seconds:.2} s)",
            lines as f64 / seconds,
            log_bytes as f64 / seconds / 1e6
        );
    }
    Ok(())
}
