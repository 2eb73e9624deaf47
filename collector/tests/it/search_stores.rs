//! `search` where a store is empty, damaged, or changes meanwhile.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use stroboscope_fixtures::workload::{EPOCH_NS, FLUSH_NS, rows_every};
use stroboscope_store::tables::{PartitionRule, Segments, Store, StoreTable, write_rows};

use crate::common::{check, json_of};

const FLUSHES: u64 = 30;
const PER_FLUSH: u64 = 4;

/// Stores five minutes' flushes of few requests. One span has a name of its own.
fn flushed(runtime: &tokio::runtime::Runtime, directory: &Path) {
    let store = Store::local(&directory.join("data"), runtime.handle().clone()).expect("a store");
    for flush in 0..FLUSHES {
        let mut rows = rows_every(FLUSH_NS / PER_FLUSH, 7, (FLUSHES - 1) * PER_FLUSH, flush);
        if flush == FLUSHES / 2 {
            let rare = rows.strings.intern("rare");
            rows.spans.last_mut().expect("spans").name = rare;
        }
        let received_ns = (EPOCH_NS + (flush + 1) * FLUSH_NS) as i64;
        let rule = PartitionRule::received(received_ns, received_ns);
        write_rows(&store, &Segments::one(flush).name(), rows, &rule).expect("written");
    }
}

const RARE: [&str; 6] = [
    "search",
    r#"{ name = "rare" }"#,
    "--json",
    "--explain",
    "--data",
    "data",
];

/// Separates the results from the plan.
fn taken(mut found: Value) -> (Value, Value) {
    let plan = found["plan"].take();
    (found, plan)
}

#[test]
fn an_empty_store_is_said_to_be_empty() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let directory = tempfile::tempdir().expect("a directory");
    let data = directory.path().join("data");
    drop(Store::local(&data, runtime.handle().clone()).expect("a store"));
    for more in [&[][..], &["--bursts"], &["--read-all"]] {
        let asked = [&["search", "{ }", "--data", "data"], more].concat();
        let (out, said) = check(directory.path(), &asked, 2);
        assert!(out.is_empty() && said.contains("data"), "{said}");
        assert!(said.contains("import FILE"), "what to do: {said}");
    }
}

/// A file of the store's spans, by its number.
fn file_of_spans(runtime: &tokio::runtime::Runtime, directory: &Path, number: usize) -> PathBuf {
    let data = directory.join("data");
    let store = Store::local(&data, runtime.handle().clone()).expect("a store");
    let files = store.list(StoreTable::Spans).expect("files");
    data.join(files[number].0.as_ref())
}

#[test]
fn a_damaged_file_is_named_and_nothing_is_skipped_for_it() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    flushed(&runtime, at);
    let (whole, plan) = taken(json_of(at, &RARE));
    assert_eq!(whole["matched"].as_u64(), Some(1));
    assert!(plan["all_because"].is_null(), "{plan}");
    // The end of the file stays intact, so that only readers of its rows notice the damage.
    let path = file_of_spans(&runtime, at, 3);
    let mut bytes = std::fs::read(&path).expect("a file");
    let middle = bytes.len() / 2;
    bytes[4..middle].fill(0xa5);
    std::fs::write(&path, bytes).expect("written");
    // Results of the undamaged file are cached.
    std::fs::remove_dir_all(at.join("data/cache")).expect("it was kept");
    let name = path
        .file_name()
        .and_then(|name| name.to_str())
        .expect("a name");
    for more in [&[][..], &["--read-all"]] {
        let (out, said) = check(at, &[&RARE[..], more].concat(), 1);
        assert!(said.contains(name) && said.contains("damaged"), "{said}");
        let (found, plan) = taken(serde_json::from_str(&out).expect("JSON"));
        assert_eq!(found["matched"].as_u64(), Some(1), "{found}");
        assert_ne!(
            found["complete_traces"], whole["complete_traces"],
            "{found}"
        );
        let because = plan["all_because"].as_str().expect("nothing is skipped");
        let expected = ["files are damaged", "it was asked for"][usize::from(!more.is_empty())];
        assert_eq!(because, expected);
        let file = found["damaged_files"][0]["file"].as_str().expect("a file");
        assert!(file.ends_with(name), "{file}");
    }
}

#[test]
fn a_store_that_is_compacted_meanwhile_is_searched_as_before() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    flushed(&runtime, at);
    let asked = |more: &[&str]| taken(json_of(at, &[&RARE[..], more].concat()));
    let (before, plan) = asked(&[]);
    assert!(
        plan["all_because"].is_null() && plan["files"].as_array().is_some_and(|of| of.len() > 20)
    );
    let checked = Command::new(env!("CARGO_BIN_EXE_stroboscope"))
        .args(["check", "--repair", "--data", "data"])
        .current_dir(at)
        .output()
        .expect("it runs");
    assert!(
        checked.status.code().is_some_and(|code| code < 2),
        "{checked:?}"
    );
    let mut compacting = Command::new(env!("CARGO_BIN_EXE_stroboscope"))
        .args(["compact", "--data", "data"])
        .current_dir(at)
        .stdout(Stdio::null())
        .spawn()
        .expect("it starts");
    let mut searched = 0;
    while compacting.try_wait().expect("it runs").is_none() || searched < 3 {
        assert_eq!(asked(&[]).0, before);
        searched += 1;
    }
    assert!(compacting.wait().expect("it ends").success());
    let (after, plan) = asked(&[]);
    assert_eq!(after, before);
    assert!(
        plan["files"].as_array().is_some_and(|of| of.len() < 20),
        "{plan}"
    );
}
