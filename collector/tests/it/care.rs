//! `compact` and `check`, as people use them: what verbs say is the same before and after.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use stroboscope_store::tables::{PartitionRule, Segments, Store, StoreTable, write_rows};
use stroboscope_testkit::workload::{EPOCH_NS, FLUSH_NS, rows_every};

const FLUSHES: u64 = 30;

/// Half an hour's flushes of few requests, without a checkpoint.
fn flushed(runtime: &tokio::runtime::Runtime) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::local(&folder.path().join("data"), runtime.handle().clone()).unwrap();
    let interval_ns = FLUSH_NS / 4;
    for flush in 0..FLUSHES {
        let rows = rows_every(interval_ns, 7, (FLUSHES - 1) * 4, flush);
        let received_ns = (EPOCH_NS + (flush + 1) * FLUSH_NS) as i64;
        let rule = PartitionRule::received(received_ns, received_ns);
        write_rows(&store, &Segments::one(flush).name(), rows, &rule).unwrap();
    }
    folder
}

fn run(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_stroboscope"))
        .args(arguments)
        .args(["--data", "data"])
        .current_dir(folder)
        .output()
        .unwrap()
}

fn json(folder: &Path, arguments: &[&str], status: i32) -> Value {
    let output = run(folder, &[arguments, &["--json"]].concat());
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{arguments:?}: {said}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn cached(folder: &Path) -> BTreeSet<String> {
    let entries = std::fs::read_dir(folder.join("data/cache")).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names
        .map(|name| name.split('-').next().unwrap().to_owned())
        .collect()
}

#[test]
fn a_store_says_the_same_when_it_is_compacted() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let folder = flushed(&runtime);
    let folder = folder.path();
    let found = json(folder, &["check"], 1);
    assert_eq!(
        (&found["is_clean"], &found["findings"][0]["kind"]),
        (&false.into(), &"missing_checkpoint".into())
    );
    let repaired = json(folder, &["check", "--repair"], 0);
    assert_eq!(repaired["is_clean"], true);
    assert!(
        String::from_utf8(run(folder, &["check"]).stdout)
            .unwrap()
            .contains("All is in order")
    );

    let before = json(folder, &["infer"], 0);
    let known = cached(folder);
    let store = Store::local(&folder.join("data"), runtime.handle().clone()).unwrap();
    let files: usize = StoreTable::ALL
        .map(|table| store.list(table).unwrap().len())
        .iter()
        .sum();
    let done = json(folder, &["compact"], 0);
    assert_eq!(
        (
            &done["replaced_files"],
            &done["written_files"],
            &done["damaged_files"]
        ),
        (&files.into(), &3.into(), &0.into())
    );
    assert_eq!(store.list(StoreTable::Spans).unwrap().len(), 1);
    assert_eq!(json(folder, &["infer"], 0), before);
    assert!(
        cached(folder).is_disjoint(&known),
        "what was kept of the small files is gone"
    );
    assert_eq!(
        json(folder, &["check"], 0)["findings"],
        Value::Array(Vec::new())
    );

    let done = json(folder, &["compact", "--keep", "1h"], 0);
    assert_eq!(
        (&done["deleted_hours"], &done["written_files"]),
        (&1.into(), &0.into())
    );
    assert_eq!(
        run(folder, &["infer"]).status.code(),
        Some(2),
        "there is nothing left"
    );
    assert_eq!(json(folder, &["check"], 0)["is_clean"], true);
}

#[test]
fn what_is_in_use_is_not_compacted() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let folder = flushed(&runtime);
    let data = stroboscope_store::data_dir::DataDir::create(&folder.path().join("data")).unwrap();
    let _lock = data.lock().unwrap();
    for verb in [&["compact"][..], &["check", "--repair"]] {
        let output = run(folder.path(), verb);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.code() == Some(2) && said.contains("another stroboscope"),
            "{said}"
        );
    }
    let found = json(folder.path(), &["check"], 0);
    assert_eq!(found["is_in_use"], true);
}
