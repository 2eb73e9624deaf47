//! `compact` and `check` do not change the output of other subcommands.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use stroboscope_fixtures::workload::{EPOCH_NS, FLUSH_NS, rows_every};
use stroboscope_store::tables::{PartitionRule, Segments, Store, StoreTable, write_rows};

const FLUSHES: u64 = 30;

/// Stores five minutes' flushes of few requests, without a checkpoint.
fn flushed(runtime: &tokio::runtime::Runtime) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::local(&directory.path().join("data"), runtime.handle().clone()).unwrap();
    let interval_ns = FLUSH_NS / 4;
    for flush in 0..FLUSHES {
        let rows = rows_every(interval_ns, 7, (FLUSHES - 1) * 4, flush);
        let received_ns = (EPOCH_NS + (flush + 1) * FLUSH_NS) as i64;
        let rule = PartitionRule::received(received_ns, received_ns);
        write_rows(&store, &Segments::one(flush).name(), rows, &rule).unwrap();
    }
    directory
}

fn run(directory: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_stroboscope"))
        .args(arguments)
        .args(["--data", "data"])
        .current_dir(directory)
        .output()
        .unwrap()
}

fn json(directory: &Path, arguments: &[&str], status: i32) -> Value {
    let output = run(directory, &[arguments, &["--json"]].concat());
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{arguments:?}: {said}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn cached(directory: &Path) -> BTreeSet<String> {
    let entries = std::fs::read_dir(directory.join("data/cache")).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names
        .map(|name| name.split('-').next().unwrap().to_owned())
        .collect()
}

#[test]
fn a_store_says_the_same_when_it_is_compacted() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let directory = flushed(&runtime);
    let directory = directory.path();
    let found = json(directory, &["check"], 1);
    assert_eq!(
        (&found["is_clean"], &found["findings"][0]["kind"]),
        (&false.into(), &"missing_checkpoint".into())
    );
    let repaired = json(directory, &["check", "--repair"], 0);
    assert_eq!(repaired["is_clean"], true);
    assert!(
        String::from_utf8(run(directory, &["check"]).stdout)
            .unwrap()
            .contains("No problems found")
    );

    let before = json(directory, &["infer"], 0);
    let known = cached(directory);
    let store = Store::local(&directory.join("data"), runtime.handle().clone()).unwrap();
    let files: usize = StoreTable::ALL
        .map(|table| store.list(table).unwrap().len())
        .iter()
        .sum();
    let done = json(directory, &["compact"], 0);
    assert_eq!(
        (
            &done["replaced_files"],
            &done["written_files"],
            &done["damaged_files"]
        ),
        (&files.into(), &3.into(), &0.into())
    );
    assert_eq!(store.list(StoreTable::Spans).unwrap().len(), 1);
    assert_eq!(json(directory, &["infer"], 0), before);
    assert!(
        cached(directory).is_disjoint(&known),
        "what was kept of the small files is gone"
    );
    assert_eq!(
        json(directory, &["check"], 0)["findings"],
        Value::Array(Vec::new())
    );

    // Of a published store, only the collector that publishes it deletes hours for their age.
    let published = directory.join("data/published.json");
    std::fs::write(&published, r#"{"id":"7","written":{}}"#).unwrap();
    let kept = run(directory, &["compact", "--keep", "1h", "--json"]);
    let said = String::from_utf8_lossy(&kept.stderr);
    assert!(said.contains("--keep deletes nothing"), "{said}");
    let kept: Value = serde_json::from_slice(&kept.stdout).unwrap();
    assert_eq!(kept["deleted_hours"], 0);
    std::fs::remove_file(&published).unwrap();

    let done = json(directory, &["compact", "--keep", "1h"], 0);
    assert_eq!(
        (&done["deleted_hours"], &done["written_files"]),
        (&1.into(), &0.into())
    );
    assert_eq!(
        run(directory, &["infer"]).status.code(),
        Some(2),
        "there is nothing left"
    );
    assert_eq!(json(directory, &["check"], 0)["is_clean"], true);
}

#[test]
fn what_is_in_use_is_not_compacted() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let directory = flushed(&runtime);
    let data =
        stroboscope_store::data_dir::DataDir::create(&directory.path().join("data")).unwrap();
    let _lock = data.lock().unwrap();
    for verb in [&["compact"][..], &["check", "--repair"]] {
        let output = run(directory.path(), verb);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.code() == Some(2) && said.contains("another stroboscope"),
            "{said}"
        );
    }
    let found = json(directory.path(), &["check"], 0);
    assert_eq!(found["is_in_use"], true);
}

/// Directories of other programs stay unchanged, without a new lock file.
#[test]
fn directories_of_others_are_refused_and_left_alone() {
    let temporary = tempfile::tempdir().unwrap();
    let directory = temporary.path();
    // Like `/etc`, the foreign directory has a subdirectory with the name of a table.
    let foreign = directory.join("foreign");
    std::fs::create_dir_all(foreign.join("kernel/install.d")).unwrap();
    std::fs::write(foreign.join("passwd"), "root").unwrap();
    std::fs::create_dir(directory.join("empty")).unwrap();
    std::fs::write(directory.join("file"), "").unwrap();
    std::fs::write(directory.join("log.jsonl"), "{}").unwrap();
    let entries = |of: &Path| {
        let names = std::fs::read_dir(of)
            .unwrap()
            .map(|entry| entry.unwrap().file_name());
        names.collect::<BTreeSet<_>>()
    };
    let before = (entries(directory), entries(&foreign));
    let refused = |arguments: &[&str], data: &str, why: &str| {
        let output = Command::new(env!("CARGO_BIN_EXE_stroboscope"))
            .args(arguments)
            .args(["--data", data])
            .current_dir(directory)
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
            (entries(directory), entries(&foreign)),
            before,
            "{arguments:?} {data}"
        );
        assert_eq!(
            entries(&directory.join("empty")).len(),
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
        refused(
            verb,
            "foreign",
            "it has files of other programs; name a data directory by --data",
        );
        refused(verb, "empty", "holds no data of Stroboscope");
        refused(verb, "missing", "there is no data directory");
        refused(verb, "file", "not a directory");
    }
    for verb in [
        &["collect", "--listen", "127.0.0.1:0"][..],
        &["import", "log.jsonl"],
    ] {
        refused(verb, "foreign", "it holds passwd");
    }
}

/// The directories in a fresh volume do not prevent its use.
#[test]
fn a_fresh_volume_becomes_a_data_directory() {
    let temporary = tempfile::tempdir().unwrap();
    let directory = temporary.path();
    std::fs::create_dir_all(directory.join("data/lost+found")).unwrap();
    std::fs::write(
        directory.join("log.jsonl"),
        r#"{"trace":"r1","host":"a","ts_ns":1767322800000000000,"event":"begin","task":"t"}"#,
    )
    .unwrap();
    let imported = run(directory, &["import", "log.jsonl"]);
    assert!(imported.status.success(), "{imported:?}");
    assert!(directory.join("data/wal").is_dir() && run(directory, &["check"]).status.success());
}
