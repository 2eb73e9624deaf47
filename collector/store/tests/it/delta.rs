//! Delta logs: whatever is flushed, merged or deleted, the newest version lists the files that
//! readers of the store see. A plain reader of the log is the reference.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;

use arrow_array::cast::AsArray as _;
use arrow_array::{Array as _, StructArray};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use serde_json::Value;
use stroboscope_store::check::Check;
use stroboscope_store::data_dir::DataDir;
use stroboscope_store::maintenance::MaintenanceSettings;
use stroboscope_store::tables::{DeltaLog, Store, StoreTable};

use crate::maintenance::{NOW_NS, at_rest, care, flush};
use crate::tables::Fixture;

const TABLE: StoreTable = StoreTable::Spans;

fn log_directory(fixture: &Fixture) -> PathBuf {
    fixture.root().join("spans/_delta_log")
}

/// Returns the lines of a commit.
fn commit(fixture: &Fixture, version: u64) -> Vec<Value> {
    let path = log_directory(fixture).join(format!("{version:020}.json"));
    let text = std::fs::read_to_string(path).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// Returns the versions of the log's commits.
fn versions(fixture: &Fixture) -> BTreeSet<u64> {
    let names = std::fs::read_dir(log_directory(fixture)).unwrap();
    names
        .filter_map(|entry| {
            let name = entry.unwrap().file_name().into_string().unwrap();
            name.strip_suffix(".json")?.parse().ok()
        })
        .collect()
}

/// Replays the commits from one that states the whole table to the newest. Returns the files with
/// their sizes.
fn replay(fixture: &Fixture, from: u64) -> BTreeMap<String, u64> {
    let mut files = BTreeMap::new();
    for version in from..=*versions(fixture).last().unwrap() {
        for action in commit(fixture, version) {
            if let Some(path) = action["remove"]["path"].as_str() {
                assert!(files.remove(path).is_some(), "{path} was not there");
            }
            if let Some(path) = action["add"]["path"].as_str() {
                files.insert(path.to_owned(), action["add"]["size"].as_u64().unwrap());
            }
        }
    }
    files
}

/// Returns the files that readers of the store see.
fn listed(store: &Store) -> BTreeMap<String, u64> {
    let files = store.list(TABLE).unwrap().into_iter();
    files
        .map(|(path, bytes)| {
            let path = path.as_ref().strip_prefix("spans/").unwrap();
            (path.to_owned(), bytes)
        })
        .collect()
}

#[test]
fn maintenance_keeps_a_begun_log_and_begins_none() {
    let fixture = Fixture::new();
    let store = fixture.store();
    let only_logs = MaintenanceSettings {
        compacts: false,
        ..at_rest()
    };
    flush(&store, 0..3);
    let (mut first, _) = care(&store, only_logs);
    first.round(3, NOW_NS, &|| true).unwrap();
    assert!(!log_directory(&fixture).exists());
    DeltaLog::begin(&store, TABLE).unwrap();
    first.round(3, NOW_NS, &|| true).unwrap();
    assert_eq!(replay(&fixture, 0), listed(&store));
    assert_eq!(versions(&fixture).len(), 1);
    first.round(3, NOW_NS, &|| true).unwrap();
    assert_eq!(versions(&fixture).len(), 1, "nothing has changed");

    // Another process merges the files, with files that the log does not have yet.
    flush(&store, 3..9);
    let (mut second, _) = care(&store, at_rest());
    second.round(8, NOW_NS, &|| true).unwrap();
    assert_eq!(listed(&store).len(), 2);
    assert_eq!(replay(&fixture, 0), listed(&store));

    // The first process continues after the second.
    flush(&store, 9..11);
    first.round(11, NOW_NS, &|| true).unwrap();
    assert_eq!(replay(&fixture, 0), listed(&store));

    // The hour is now too old, so the store and the log no longer have its files.
    let (mut last, _) = care(
        &store,
        MaintenanceSettings {
            keep: Some(std::time::Duration::from_secs(1)),
            ..at_rest()
        },
    );
    last.round(11, NOW_NS + 5 * 3_600_000_000_000, &|| true)
        .unwrap();
    assert_eq!(listed(&store), BTreeMap::new());
    assert_eq!(replay(&fixture, 0), BTreeMap::new());
}

#[test]
fn a_replaced_file_is_added_again() {
    let fixture = Fixture::new();
    let store = fixture.store();
    DeltaLog::begin(&store, TABLE).unwrap();
    let mut log = DeltaLog::of(TABLE);
    flush(&store, 0..1);
    assert_eq!(log.update(&store, 1).unwrap().added, 1);
    // After a crash, the flusher writes the files of a segment again.
    let other = crate::tables::rows([stroboscope_fixtures::batches::batch(1, 0, 50)]);
    crate::tables::write(&store, "seg-0000000000", other);
    let commit = log.update(&store, 2).unwrap();
    assert_eq!((commit.added, commit.removed, commit.files), (1, 0, 1));
    assert_eq!(replay(&fixture, 0), listed(&store));
}

#[test]
fn a_repair_takes_a_damaged_file_out_of_the_log() {
    let fixture = Fixture::new();
    let store = fixture.store();
    flush(&store, 0..2);
    DeltaLog::begin(&store, TABLE).unwrap();
    DeltaLog::of(TABLE).update(&store, 1).unwrap();
    std::fs::write(fixture.path("spans", "seg-0000000000"), "PAR1").unwrap();
    let data = DataDir::create(fixture.root()).unwrap();
    let check = Check::run(&data, &store, false).unwrap();
    check.repair().unwrap();
    assert_eq!(listed(&store).len(), 1);
    assert_eq!(replay(&fixture, 0), listed(&store));
}

#[test]
fn checkpoints_state_the_whole_table_and_old_commits_go() {
    let fixture = Fixture::new();
    let store = fixture.store();
    DeltaLog::begin(&store, TABLE).unwrap();
    let mut log = DeltaLog::of(TABLE);
    flush(&store, 0..1);
    let first = std::fs::read(fixture.path("spans", "seg-0000000000")).unwrap();
    for segment in 0..=203 {
        let name = format!("seg-{segment:010}");
        std::fs::write(fixture.path("spans", &name), &first).unwrap();
        if segment % 7 == 0 {
            log = DeltaLog::of(TABLE);
        }
        let commit = log.update(&store, 5).unwrap();
        assert_eq!(commit.version, Some(segment));
    }
    assert_eq!(versions(&fixture), (100..=203).collect());
    assert_eq!(replay(&fixture, 100), listed(&store));
    let last = std::fs::read(log_directory(&fixture).join("_last_checkpoint")).unwrap();
    let last: Value = serde_json::from_slice(&last).unwrap();
    assert_eq!(last, serde_json::json!({"version": 200, "size": 203}));

    let path = log_directory(&fixture).join(format!("{:020}.checkpoint.parquet", 200));
    let file = std::fs::File::open(path).unwrap();
    let reader = ParquetRecordBatchReaderBuilder::try_new(file).unwrap();
    let batch = reader.build().unwrap().next().unwrap().unwrap();
    let column = |name: &str| batch.column_by_name(name).unwrap().as_struct();
    let text = |of: &StructArray, name: &str, row: usize| {
        let texts = of.column_by_name(name).unwrap();
        texts.as_string::<i32>().value(row).to_owned()
    };
    let files = (2..batch.num_rows()).map(|row| text(column("add"), "path", row));
    let expected = listed(&store).into_keys().take(201);
    assert_eq!(files.collect::<BTreeSet<_>>(), expected.collect());
    let nulls = |name: &str| column(name).null_count();
    assert_eq!(
        (nulls("protocol"), nulls("metaData"), nulls("add")),
        (202, 202, 2)
    );
    let metadata = commit(&fixture, 200);
    let metadata = metadata.iter().find(|one| one.get("metaData").is_some());
    let schema = &metadata.unwrap()["metaData"]["schemaString"];
    assert_eq!(text(column("metaData"), "schemaString", 1), *schema);
}

#[test]
fn a_damaged_or_foreign_log_is_an_error_and_maintenance_goes_on() {
    let fixture = Fixture::new();
    let store = fixture.store();
    DeltaLog::begin(&store, TABLE).unwrap();
    flush(&store, 0..3);
    let first = log_directory(&fixture).join(format!("{:020}.json", 0));
    let check = |content: &str, expected: &str| {
        std::fs::write(&first, content).unwrap();
        let error = DeltaLog::of(TABLE)
            .update(&store, 1)
            .unwrap_err()
            .to_string();
        assert!(error.contains(expected), "{error}");
        assert!(
            error.contains("00.json") && error.contains("delete "),
            "{error}"
        );
    };
    check("{\"add\":", "EOF");
    check("", "it lacks the protocol");
    check(
        "{\"protocol\":{\"minReaderVersion\":1,\"minWriterVersion\":2}}\n",
        "another program",
    );
    let (mut maintenance, counters) = care(&store, at_rest());
    maintenance.round(3, NOW_NS, &|| true).unwrap();
    assert_eq!(listed(&store).len(), 1, "the files were merged");
    assert_eq!(counters.delta_log_failures.load(Relaxed), 2);
}

#[test]
fn a_damaged_file_is_left_out() {
    let fixture = Fixture::new();
    let store = fixture.store();
    DeltaLog::begin(&store, TABLE).unwrap();
    flush(&store, 0..2);
    std::fs::write(fixture.path("spans", "seg-0000000001"), "PAR1 PAR1").unwrap();
    let mut log = DeltaLog::of(TABLE);
    let mut check = |files: usize, damage: usize| {
        let commit = log.update(&store, 1).unwrap();
        assert_eq!((commit.files, commit.damage.len()), (files, damage));
        assert_eq!(replay(&fixture, 0).len(), files);
    };
    check(1, 1);
    check(1, 0);
    flush(&store, 1..2);
    check(2, 0);
}
