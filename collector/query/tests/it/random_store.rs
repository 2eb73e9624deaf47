//! Random stores of requests in bursts, with several hosts and processes, in several files of many
//! row groups.

use std::fs::File;
use std::path::{Path, PathBuf};

use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::file::properties::WriterProperties;
use stroboscope_fixtures::random::Random;
use stroboscope_query::Source;
use stroboscope_store::record::{BatchRow, EventRow, Rows, SpanRow, StringId, WindowRow};
use stroboscope_store::tables::{PartitionRule, Store, write_rows};

pub(crate) const EPOCH_NS: i64 = 1_767_322_800_000_000_000;
/// Time between the openings of two bursts. [`BURST_NS`] is the length of a burst.
const PERIOD_NS: i64 = 100_000_000;
const BURST_NS: i64 = 20_000_000;
const BURSTS_PER_FILE: u64 = 4;
pub(crate) const FILES: u64 = 5;
const ROW_GROUP_ROWS: usize = 32;

const SERVICES: [&str; 3] = ["web", "store", "ranker"];
const NAMES: [&str; 4] = ["page", "read", "write", "lock"];
const CUT_OPEN: u32 = 1;
const CUT_CLOSE: u32 = 2;
const CLIENT: u32 = 64;
const SERVER: u32 = 128;

/// A store in a directory of its own.
pub(crate) struct RandomStore {
    runtime: tokio::runtime::Runtime,
    directory: tempfile::TempDir,
    is_cached: bool,
}

/// Properties of the whole store.
struct Traits {
    /// Offset of each host's clock.
    skew_ns: [i64; 3],
    /// Number of cut roots per thousand.
    cut_per_mille: usize,
    /// Number of spans per thousand whose parent was not recorded.
    orphans_per_mille: usize,
    /// File in which a process lost records; `None` if there is none.
    lossy_file: Option<u64>,
}

impl RandomStore {
    pub(crate) fn new(seed: u64) -> Self {
        let mut random = Random(seed ^ 0x5e);
        let third_ns = random.below(2) * random.below(3_000_000);
        match seed % 4 > 1 {
            true => Self::with_skew(seed, [0, 4_000_000, third_ns as i64]),
            false => Self::with_skew(seed, [0; 3]),
        }
    }

    /// Creates a store whose hosts' clocks are ahead by these offsets.
    pub(crate) fn with_skew(seed: u64, skew_ns: [i64; 3]) -> Self {
        let store = Self {
            runtime: tokio::runtime::Runtime::new().expect("a runtime"),
            directory: tempfile::tempdir().expect("a directory"),
            is_cached: seed.is_multiple_of(2),
        };
        let mut random = Random(seed);
        let traits = Traits {
            skew_ns,
            cut_per_mille: [0, 60, 200][random.below(3)],
            orphans_per_mille: [0, 5][random.below(2)],
            lossy_file: random.happens(300).then(|| random.below(5) as u64),
        };
        let objects = Store::local(store.directory.path(), store.runtime.handle().clone());
        let objects = objects.expect("a store");
        let rule = PartitionRule::received(EPOCH_NS, EPOCH_NS);
        for file in 0..FILES {
            let rows = rows(&mut random, &traits, file);
            write_rows(&objects, &format!("seg-{file:010}"), rows, &rule).expect("written");
        }
        for table in ["spans", "events"] {
            cut_into_groups(&store.directory.path().join(table));
        }
        store
    }

    pub(crate) fn source(&self) -> Source {
        let open = match self.is_cached {
            true => Source::open_cached,
            false => Source::open,
        };
        open(self.directory.path(), self.runtime.handle().clone()).expect("it opens")
    }

    /// Returns the paths of the files of spans.
    pub(crate) fn span_files(&self) -> Vec<PathBuf> {
        files_below(&self.directory.path().join("spans"))
    }
}

fn files_below(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries
        .flat_map(|entry| match entry.path() {
            path if path.is_dir() => files_below(&path),
            path => vec![path],
        })
        .collect()
}

/// Rewrites the files with small row groups. The row groups that the store writes are so large that
/// a test would have only few.
fn cut_into_groups(directory: &Path) {
    for path in files_below(directory) {
        let builder = ParquetRecordBatchReaderBuilder::try_new(File::open(&path).expect("opened"));
        let builder = builder.expect("a table");
        // Readers accept a file without a checksum.
        let about = builder.metadata().file_metadata().key_value_metadata();
        let about = about.into_iter().flatten();
        let about =
            about.filter(|pair| !pair.key.starts_with("ARROW") && !pair.key.ends_with("crc32"));
        let about = about.cloned().collect();
        let properties = WriterProperties::builder()
            .set_max_row_group_row_count(Some(ROW_GROUP_ROWS))
            .set_key_value_metadata(Some(about))
            .set_column_dictionary_enabled("trace_id".into(), false)
            .build();
        let schema = builder.schema().clone();
        let reader = builder.build().expect("rows");
        let mut bytes = Vec::new();
        let writer = ArrowWriter::try_new(&mut bytes, schema, Some(properties));
        let mut writer = writer.expect("a writer");
        for batch in reader {
            writer.write(&batch.expect("rows")).expect("written");
        }
        writer.close().expect("closed");
        std::fs::write(&path, bytes).expect("written");
    }
}

fn process(service: usize, host: usize) -> u128 {
    (service * 3 + host + 1) as u128
}

fn rows(random: &mut Random, traits: &Traits, file: u64) -> Rows {
    let mut rows = Rows::default();
    let bursts = file * BURSTS_PER_FILE..(file + 1) * BURSTS_PER_FILE;
    for burst in bursts.clone() {
        let open_ns = EPOCH_NS + burst as i64 * PERIOD_NS;
        for _ in 0..random.below(6) {
            request(random, traits, &mut rows, (file, open_ns));
        }
    }
    let text = |rows: &mut Rows, text: &str| -> StringId { rows.strings.intern(text) };
    for (service, name) in SERVICES.iter().enumerate() {
        for host in 0..3 {
            let own = process(service, host);
            let window = |burst: u64| WindowRow {
                open_ns: EPOCH_NS + burst as i64 * PERIOD_NS,
                close_ns: EPOCH_NS + burst as i64 * PERIOD_NS + BURST_NS,
                burst_config: 1,
            };
            let lossy_file = traits.lossy_file.filter(|_| (service, host) == (1, 1));
            let lost = u64::from(lossy_file.is_some_and(|lossy| lossy <= file)) * 3;
            let losses = vec![(text(&mut rows, "ring_full"), lost)];
            let from_ns = EPOCH_NS + bursts.start as i64 * PERIOD_NS;
            let to_ns = EPOCH_NS + bursts.end as i64 * PERIOD_NS;
            let spans = rows.spans.iter().filter(|span| span.process == own).count();
            let batch = BatchRow {
                process: own,
                sequence: file,
                service: text(&mut rows, name),
                host: text(&mut rows, &format!("h{host}")),
                pid: own as u32,
                started_ns: EPOCH_NS,
                sdk_version: text(&mut rows, "0.1.0"),
                from_ns,
                to_ns,
                received_ns: to_ns,
                burst_config: 1,
                spans: spans as u32,
                events: 0,
                windows: bursts.clone().map(window).collect(),
                losses,
                clock_steps: Vec::new(),
                kernel_clock: None,
                loads: Vec::new(),
            };
            rows.batches.push(batch);
        }
    }
    rows
}

fn attributes(random: &mut Random, file: u64) -> Option<Box<str>> {
    let mut said = Vec::new();
    if random.happens(400) {
        said.push(format!("\"bytes\":{}", random.below(10)));
    }
    if random.happens(300) {
        said.push(format!("\"key\":\"k{}\"", random.below(4)));
    }
    if random.happens(8) {
        said.push(format!("\"rare\":\"r{file}\""));
    }
    if random.happens(50) {
        said.push("\"error\":true".to_owned());
    }
    (!said.is_empty()).then(|| format!("{{{}}}", said.join(",")).into())
}

/// Adds a request: calls between hosts, or an event log.
fn request(random: &mut Random, traits: &Traits, rows: &mut Rows, (file, open_ns): (u64, i64)) {
    let trace_id = u128::from(random.next_u64()) << 64 | u128::from(random.next_u64());
    let begin_ns = open_ns + random.below(BURST_NS as usize) as i64;
    if random.happens(80) {
        for seq in 0..=random.below(3) as u32 {
            let (host, service) = (rows.strings.intern("h0"), rows.strings.intern(""));
            let task = Some(rows.strings.intern(SERVICES[random.below(3)]));
            let name = rows.strings.intern(NAMES[random.below(4)]);
            rows.events.push(EventRow {
                trace_id,
                trace_name: None,
                span_id: 0,
                time_ns: begin_ns + i64::from(seq) * 1_000,
                seq,
                host,
                service,
                task,
                name,
                attributes: attributes(random, file),
            });
        }
        return;
    }
    // Spans that may have children: id, host, start and end by the true clock.
    let mut made: Vec<(u64, usize, i64, i64)> = Vec::new();
    for id in 1..=1 + random.below(9) as u64 {
        let parent = (id > 1).then(|| made[random.below(made.len())]);
        let (from_ns, to_ns) = match parent {
            Some((_, _, from_ns, to_ns)) => {
                let length_ns = (to_ns - from_ns).max(4) as usize;
                let start_ns = from_ns + random.below(length_ns / 2) as i64;
                (start_ns, start_ns + random.below(length_ns / 2) as i64)
            }
            None => (begin_ns, begin_ns + 1_000 + random.below(6_000_000) as i64),
        };
        let host = random.below(3);
        let is_call = parent.is_some_and(|(_, of, ..)| of != host);
        made.push((id, host, from_ns, to_ns));
        let service = random.below(3);
        let name = match random.happens(15) {
            true => format!("only-{file}"),
            false => NAMES[if id == 1 { 0 } else { random.below(4) }].to_owned(),
        };
        let mut flags = if is_call { SERVER } else { 0 };
        // Marks the root as cut by the burst, and keeps its times.
        if id == 1 && random.happens(traits.cut_per_mille) {
            flags |= [CUT_OPEN, CUT_CLOSE][random.below(2)];
        }
        let parent_id = match parent {
            Some(_) if random.happens(traits.orphans_per_mille) => 99,
            Some(parent) => parent.0,
            None => 0,
        };
        let mut span = SpanRow {
            trace_id,
            trace_name: None,
            span_id: id,
            parent_id,
            service: rows.strings.intern(SERVICES[service]),
            name: rows.strings.intern(&name),
            host: rows.strings.intern(&format!("h{host}")),
            process: process(service, host),
            start_ns: from_ns + traits.skew_ns[host],
            end_ns: to_ns + traits.skew_ns[host],
            flags,
            attributes: attributes(random, file),
        };
        if let Some((_, caller, ..)) = parent.filter(|_| is_call) {
            let client = SpanRow {
                span_id: 100 + id,
                host: rows.strings.intern(&format!("h{caller}")),
                process: process(service, caller),
                start_ns: from_ns - 2_000 + traits.skew_ns[caller],
                end_ns: to_ns + 2_000 + traits.skew_ns[caller],
                flags: CLIENT,
                attributes: None,
                ..span.clone()
            };
            span.parent_id = client.span_id;
            rows.spans.push(client);
        }
        rows.spans.push(span);
    }
}
