//! Runs every target for a moment, always with the same input: the seeds, all earlier findings, and
//! mutations of both. `STROBOSCOPE_MUTATIONS=100000` sets the number of mutations of each.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use stroboscope_fixtures::mutation::mutate;
use stroboscope_fixtures::random::Random;
use stroboscope_fuzz::{TARGETS, seeds};

/// Tokens that parsers treat specially.
const TOKENS: [&[u8]; 16] = [
    b"\0",
    b"\"",
    b"\\",
    b"{",
    b"[",
    b"null",
    b"-1",
    b"1e400",
    b"18446744073709551616",
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    b"\x80",
    "ü".as_bytes(),
    b"\n",
    b"=",
    b"\"\\ud800\"",
    b"00000000000000000000000000000000",
];

/// Returns the saved cases of a target from `cases/`, with their paths, in the order of the paths.
fn kept(target: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("cases")
        .join(target);
    let mut paths: Vec<PathBuf> = std::fs::read_dir(directory)
        .into_iter()
        .flatten()
        .map(|entry| entry.expect("an entry").path())
        .collect();
    paths.sort();
    let read = |path: PathBuf| {
        let bytes = std::fs::read(&path).expect("a case");
        (path, bytes)
    };
    paths.into_iter().map(read).collect()
}

#[test]
fn no_target_finds_anything() {
    let given = std::env::var("STROBOSCOPE_MUTATIONS").ok();
    let given: Option<u64> = given.map(|count| count.parse().expect("a number"));
    for (name, target) in TARGETS {
        let mut samples = seeds(name);
        assert!(!samples.is_empty(), "{name} has no seeds");
        let run = |what: &str, bytes: &[u8]| {
            let ran = catch_unwind(AssertUnwindSafe(|| target(bytes)));
            assert!(
                ran.is_ok(),
                "{name}, {what}: {:?}",
                String::from_utf8_lossy(bytes)
            );
        };
        for (at, seed) in samples.iter().enumerate() {
            run(&format!("seed {at}"), seed);
        }
        for (path, case) in kept(name) {
            run(&path.display().to_string(), &case);
            samples.push(case);
        }
        // Those that write files take longer.
        let writes_files = ["import", "mapping", "wal"].contains(&name);
        let rounds = given.unwrap_or(if writes_files { 300 } else { 5_000 });
        for round in 0..rounds {
            let mut random = Random(round);
            let mut content = samples[random.below(samples.len())].clone();
            mutate(&mut random, &mut content, &TOKENS, &samples);
            run(&format!("round {round}"), &content);
        }
    }
}

/// The store accepts each seed of batches and OTLP: a rejected seed would test little.
#[test]
fn seeds_are_taken() {
    use stroboscope_store::decode::{
        CheckedBatch, otlp_json, otlp_logs_json, otlp_logs_protobuf, otlp_protobuf,
    };
    use stroboscope_store::limits::Limits;
    use stroboscope_store::record::Rows;
    let limits = Limits::default();
    let mut rows = Rows::default();
    for seed in seeds("batch") {
        CheckedBatch::from_bytes(&seed, &limits).expect("a batch");
    }
    for (target, records) in [
        ("otlp_protobuf", 4),
        ("otlp_json", 2),
        ("otlp_logs_protobuf", 2),
        ("otlp_logs_json", 2),
    ] {
        for seed in seeds(target) {
            let taken = match target {
                "otlp_protobuf" => otlp_protobuf(&seed, &limits, &mut rows),
                "otlp_json" => otlp_json(&seed, &limits, &mut rows),
                "otlp_logs_protobuf" => otlp_logs_protobuf(&seed, &limits, &mut rows),
                _ => otlp_logs_json(&seed, &limits, &mut rows),
            };
            let taken = taken.expect("a request");
            assert_eq!(taken.records, records, "{target}: {:?}", taken.reason);
        }
    }
}
