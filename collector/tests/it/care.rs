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

/// Folders that are none of ours: what is there is left as it is, also a lock that was not.
#[test]
fn folders_of_others_are_refused_and_left_alone() {
    let temporary = tempfile::tempdir().unwrap();
    let folder = temporary.path();
    // As `/etc` is: it has a folder of the name of a table.
    let foreign = folder.join("foreign");
    std::fs::create_dir_all(foreign.join("kernel/install.d")).unwrap();
    std::fs::write(foreign.join("passwd"), "root").unwrap();
    std::fs::create_dir(folder.join("empty")).unwrap();
    std::fs::write(folder.join("file"), "").unwrap();
    std::fs::write(folder.join("log.jsonl"), "{}").unwrap();
    let entries = |of: &Path| {
        let names = std::fs::read_dir(of)
            .unwrap()
            .map(|entry| entry.unwrap().file_name());
        names.collect::<BTreeSet<_>>()
    };
    let before = (entries(folder), entries(&foreign));
    let refused = |arguments: &[&str], data: &str, why: &str| {
        let output = Command::new(env!("CARGO_BIN_EXE_stroboscope"))
            .args(arguments)
            .args(["--data", data])
            .current_dir(folder)
            .output()
            .unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(
            output.status.code(),
            Some(2),
            "{arguments:?} {data}: {said}"
        );
        assert!(
            said.contains(data) && said.contains(why),
            "{arguments:?}: {said}"
        );
        assert_eq!(
            (entries(folder), entries(&foreign)),
            before,
            "{arguments:?} {data}"
        );
        assert_eq!(
            entries(&folder.join("empty")).len(),
            0,
            "{arguments:?} {data}"
        );
    };
    for verb in [
        &["check"][..],
        &["check", "--repair"],
        &["compact"],
        &["infer"],
        &["report", "--html", "page.html"],
        &["critical-path"],
    ] {
        refused(verb, "foreign", "holds nothing of Stroboscope's");
        refused(verb, "empty", "holds nothing of Stroboscope's");
        refused(verb, "missing", "there is no data folder");
        refused(verb, "file", "not a directory");
    }
    for verb in [
        &["collect", "--listen", "127.0.0.1:0"][..],
        &["import", "log.jsonl"],
    ] {
        refused(verb, "foreign", "it holds passwd");
    }
}

/// What a fresh volume comes with is nobody's.
#[test]
fn a_fresh_volume_becomes_a_data_folder() {
    let temporary = tempfile::tempdir().unwrap();
    let folder = temporary.path();
    std::fs::create_dir_all(folder.join("data/lost+found")).unwrap();
    std::fs::write(
        folder.join("log.jsonl"),
        r#"{"trace":"r1","host":"a","ts_ns":1767322800000000000,"event":"begin","task":"t"}"#,
    )
    .unwrap();
    let imported = run(folder, &["import", "log.jsonl"]);
    assert!(imported.status.success(), "{imported:?}");
    assert!(folder.join("data/wal").is_dir() && run(folder, &["check"]).status.success());
}
