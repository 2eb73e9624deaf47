//! Compares the output of reports, as text and as JSON, with `tests/snapshots/`. `.ci/bless
//! snapshots` writes these files anew.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::{attributes, clocks, failures, requests};

/// Store, file name, and arguments of each snapshot. The test also runs each with `--json`.
pub(crate) const SAID: [(&str, &str, &str); 37] = [
    ("shop", "overview", "overview"),
    ("shop", "requests", "requests --top 5 --min 1us"),
    ("shop", "infer", "infer"),
    ("shop", "infer-convergence", "infer --convergence-every 40"),
    ("shop", "model", "model"),
    ("shop", "critical-path", "critical-path"),
    (
        "shop",
        "critical-path-root",
        "critical-path --root shop:checkout",
    ),
    ("shop", "critical-path-trace", "critical-path --trace 1"),
    ("shop", "critical-path-cdf", "critical-path --cdf"),
    (
        "shop",
        "critical-path-category",
        "critical-path --category-by service",
    ),
    ("shop", "slack", "slack"),
    ("shop", "anomalies", "anomalies --slowest 0.2"),
    ("shop", "operations", "operations"),
    ("shop", "flows", "flows"),
    ("shop", "search", "search {name=\"charge\"}"),
    (
        "shop",
        "what-if",
        "what-if --operation shop:charge --scale 0.5",
    ),
    ("shop", "compare", "compare --after 1970-01-01T00:00:50.."),
    ("shop", "clocks", "clocks"),
    ("shop", "timeline-trace", "timeline --trace 1"),
    ("shop", "full-names", "slack --full-names"),
    ("failing", "failures", "failures"),
    ("failing", "map", "map"),
    ("users", "infer-log", "infer"),
    ("users", "critical-path-by", "critical-path --by browser"),
    (
        "users",
        "critical-path-quantiles",
        "critical-path --by size --quantiles 3",
    ),
    (
        "users",
        "slack-validate",
        "slack --validate --category-by layer --server backend",
    ),
    (
        "users",
        "predict",
        "predict --category-by layer --server backend",
    ),
    (
        "users",
        "what-if-category",
        "what-if --category-by layer --category backend --cap 1ms",
    ),
    (
        "users",
        "experiment",
        "experiment --by browser --control hare --test tortoise",
    ),
    ("users", "tradeoffs-log", "tradeoffs log"),
    ("hosts", "clocks-differ", "clocks --reference web"),
    ("hosts", "infer-differ", "infer"),
    ("hosts", "critical-path-differ", "critical-path"),
    ("dice", "quick-start-operations", "operations"),
    ("dice", "quick-start-map", "map"),
    ("dice", "quick-start-failures", "failures"),
    ("dice", "quick-start-critical-path", "critical-path"),
];

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/snapshots")
}

/// Imports the recordings of OpenTelemetry's quick starts, which `tests/recordings/README.md`
/// describes.
fn quick_starts() -> tempfile::TempDir {
    let store = tempfile::tempdir().unwrap();
    let recordings = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recordings");
    let imported = Command::new(env!("CARGO_BIN_EXE_stroboscope"))
        .arg("import")
        .arg(recordings.join("quick-start-javascript.json"))
        .arg(recordings.join("quick-start-python.json"))
        .current_dir(store.path())
        .output()
        .unwrap();
    assert!(imported.status.success(), "{imported:?}");
    store
}

/// Returns the output of the program in a directory.
fn say(directory: &Path, arguments: &str) -> (String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_stroboscope"))
        .arg0("stroboscope")
        .args(arguments.split(' '))
        .current_dir(directory)
        .env_remove("COLUMNS")
        .output()
        .unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (text(output.stdout), text(output.stderr))
}

/// Checks that the JSON of a subcommand satisfies its schema in `collector/docs/schemas/`.
#[track_caller]
pub(crate) fn check_schema(arguments: &str, json: &Value) {
    let verb = arguments.split(' ').next().unwrap();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("docs/schemas/{verb}.json"));
    let (mut schemas, mut compiler) = (boon::Schemas::new(), boon::Compiler::new());
    let schema = compiler
        .compile(path.to_str().unwrap(), &mut schemas)
        .unwrap();
    if let Err(wrong) = schemas.validate(json, schema) {
        panic!("{arguments}: {wrong:#}");
    }
    let is_nothing = schemas.validate(&serde_json::json!({}), schema).is_ok();
    assert!(!is_nothing, "the schema of {verb} promises nothing");
}

/// Returns the text, and the JSON with a line for each value, so that a difference has a place.
fn snapshots(store: &Path, name: &str, arguments: &str) -> [(String, String); 2] {
    let (stdout, stderr) = say(store, arguments);
    let mut text = format!("$ stroboscope {arguments}\n{stdout}");
    if !stderr.is_empty() {
        let _ = write!(text, "\n--- on standard error\n{stderr}");
    }
    let (json, _) = say(store, &format!("{arguments} --json"));
    let json: Value =
        serde_json::from_str(&json).unwrap_or_else(|error| panic!("{arguments}: {error}\n{json}"));
    check_schema(arguments, &json);
    let json = serde_json::to_string_pretty(&json).unwrap() + "\n";
    [
        (format!("{name}.txt"), text),
        (format!("{name}.json"), json),
    ]
}

#[test]
fn verbs_say_what_was_reviewed() {
    let stores = [
        ("shop", requests::imported()),
        ("failing", failures::imported()),
        ("users", attributes::imported()),
        ("hosts", clocks::stored()),
        ("dice", quick_starts()),
    ];
    let mut known = BTreeSet::new();
    let mut stale = Vec::new();
    for (store, name, arguments) in SAID {
        let (_, store) = stores.iter().find(|(known, _)| *known == store).unwrap();
        for (file, now) in snapshots(store.path(), name, arguments) {
            let path = directory().join(&file);
            if std::env::var_os("STROBOSCOPE_BLESS").is_some() {
                std::fs::create_dir_all(directory()).unwrap();
                std::fs::write(&path, &now).unwrap();
            }
            let kept = std::fs::read_to_string(&path).unwrap_or_default();
            if kept != now {
                let first = kept
                    .lines()
                    .zip(now.lines())
                    .find(|(kept, now)| kept != now);
                stale.push(format!("{file}: {first:?}"));
            }
            known.insert(file);
        }
    }
    assert!(
        stale.is_empty(),
        "not as reviewed; see this file's head:\n{}",
        stale.join("\n")
    );
    let kept = std::fs::read_dir(directory())
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap());
    let left: Vec<String> = kept.filter(|file| !known.contains(file)).collect();
    assert!(left.is_empty(), "no verb says these any more: {left:?}");
}
