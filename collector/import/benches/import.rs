//! Measures the lines that an import reads per second on one core: `cargo bench -p
//! stroboscope-import --bench import`.
//!
//! The bench writes a log of 2,000,000 lines (or as many as the first argument states): requests of
//! 20 events over five tasks on three hosts, with ids of 32 hex digits and two attributes. It
//! imports the log three times, into fresh directories. The measured time is that of the whole
//! import, from opening the file to durable Parquet. It then imports the log compressed by zstd,
//! and a tenth as many events in other forms, by mappings: JSON with other names and RFC 3339
//! times, and plain text. An import uses one thread, and the kernel's work in the background is not
//! counted (`taskset -c 0` pins both).

use std::io::{BufWriter, Write as _};
use std::path::Path;
use std::time::Instant;

use stroboscope_import::{FieldMapping, ImportOutcome, Importer};
use stroboscope_store::data_dir::DataDir;
use stroboscope_store::tables::Store;

const EVENTS_PER_TRACE: u64 = 20;
const TASKS: [&str; 5] = ["server", "network", "page/header", "page/feed", "logger"];
const EVENTS: [&str; 4] = ["begin", "flushed", "first byte", "end"];

/// Form of a log.
#[derive(Clone, Copy)]
enum Layout {
    Plain,
    Json,
    Text,
}

const JSON_MAPPING: &str = r#"
trace = "{request.id}"
host = "{host}"
task = "{service}"
event = "{msg}"
time = "{time}"
attributes = ["user", "page"]
"#;
const TEXT_MAPPING: &str = r#"
pattern = '^(?<time>\S+) (?<host>\S+) \[(?<trace>[0-9a-f]+)\] (?<task>\S+): (?<event>.*) user=(?<user>\d+) page=(?<page>\S+)$'
trace = "{trace}"
host = "{host}"
task = "{task}"
event = "{event}"
time = "{time}"
attributes = ["user", "page"]
"#;

fn write_log(path: &Path, lines: u64, layout: Layout) -> std::io::Result<()> {
    let mut log = BufWriter::new(std::fs::File::create(path)?);
    for line in 0..lines {
        let (trace, at) = (line / EVENTS_PER_TRACE, line % EVENTS_PER_TRACE);
        // The ids cover the whole range, as random ids do.
        let id = u128::from(trace + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
        let (host, user) = (trace % 3, trace % 10_007);
        let (event, task) = (EVENTS[(at % 4) as usize], TASKS[(at / 4) as usize]);
        let since_ns = trace * 1_000_000 + at * 43_211;
        let time_ns = 1_767_322_800_000_000_000 + since_ns;
        // All times are within one hour, so that dates need no calendar.
        let (minute, second, ns) = (
            since_ns / 60_000_000_000 % 60,
            since_ns / 1_000_000_000 % 60,
            since_ns % 1_000_000_000,
        );
        let time = format_args!("2026-01-02T03:{minute:02}:{second:02}.{ns:09}Z");
        match layout {
            Layout::Plain => writeln!(
                log,
                r#"{{"trace":"{id:032x}","host":"web{host}","ts_ns":{time_ns},"event":"{event}","task":"{task}","attrs":{{"user":{user},"page":"home"}}}}"#,
            )?,
            Layout::Json => writeln!(
                log,
                r#"{{"time":"{time}","level":"info","service":"{task}","host":"web{host}","request":{{"id":"{id:032x}"}},"msg":"{event}","user":{user},"page":"home"}}"#,
            )?,
            Layout::Text => {
                writeln!(
                    log,
                    "{time} web{host} [{id:032x}] {task}: {event} user={user} page=home"
                )?;
            }
        }
    }
    log.flush()
}

struct Bench {
    directory: tempfile::TempDir,
    runtime: tokio::runtime::Runtime,
    rounds: u32,
}

impl Bench {
    fn import(
        &mut self,
        what: &str,
        log: &Path,
        lines: u64,
        mapping: Option<&str>,
    ) -> Result<(), Box<dyn std::error::Error>> {
        self.rounds += 1;
        let data = self.directory.path().join(format!("data-{}", self.rounds));
        let store = Store::local(&data, self.runtime.handle().clone())?;
        let mut importer = Importer::new(DataDir::create(&data)?, store);
        if let Some(mapping) = mapping {
            let path = self.directory.path().join("mapping.toml");
            std::fs::write(&path, mapping)?;
            importer = importer.with_mapping(FieldMapping::read(&path)?);
        }
        let log_bytes = std::fs::metadata(log)?.len();
        let started = Instant::now();
        let ImportOutcome::Now(summary) =
            importer.file(log, &mut |line, reason| eprintln!("{line}: {reason}"))?
        else {
            return Err("imported before".into());
        };
        let seconds = started.elapsed().as_secs_f64();
        assert_eq!((summary.events, summary.bad_lines), (lines, 0));
        println!(
            "{what}: {:.0} lines/s, {:.0} MB/s ({lines} lines in {seconds:.2} s)",
            lines as f64 / seconds,
            log_bytes as f64 / seconds / 1e6
        );
        std::fs::remove_dir_all(&data)?;
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let lines = std::env::args()
        .nth(1)
        .and_then(|count| count.parse().ok())
        .unwrap_or(2_000_000);
    let directory = tempfile::tempdir()?;
    let log = directory.path().join("log.jsonl");
    let runtime = tokio::runtime::Runtime::new()?;
    let mut bench = Bench {
        directory,
        runtime,
        rounds: 0,
    };
    write_log(&log, lines, Layout::Plain)?;
    for _ in 0..3 {
        bench.import("event lines", &log, lines, None)?;
    }
    let packed = log.with_extension("zst");
    zstd::stream::copy_encode(
        std::fs::File::open(&log)?,
        std::fs::File::create(&packed)?,
        3,
    )?;
    bench.import("event lines, packed by zstd", &packed, lines, None)?;
    let lines = lines / 10;
    write_log(&log, lines, Layout::Json)?;
    bench.import("JSON by a mapping", &log, lines, Some(JSON_MAPPING))?;
    write_log(&log, lines, Layout::Text)?;
    bench.import(
        "text by a mapping's pattern",
        &log,
        lines,
        Some(TEXT_MAPPING),
    )
}
