//! Tests of the intake: acknowledged batches are stored exactly once, even after crashes.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use stroboscope_fixtures::batches::{EPOCH_NS, batch};
use stroboscope_query::{QueryError, Source};
use stroboscope_server::ingest::{CommitOutcome, Intake, Options, Stop};
use stroboscope_store::data_dir::{DataDir, DataDirError};
use stroboscope_store::decode::CheckedBatch;
use stroboscope_store::flush::{Counters, FlushError, Flusher};
use stroboscope_store::limits::Limits;
use stroboscope_store::tables::{Store, StoreTable, TraceReader, read_batches};
use stroboscope_store::wal::{Payload, Writer, list_segments};
use tokio::runtime::Runtime;

const NEVER: Options = Options {
    flush_interval: Duration::from_secs(3_600),
    in_flight_bytes_max: 256 << 20,
    segment_bytes: 1 << 30,
    live_quiet: None,
    care: None,
    live_records_max: 1_000_000,
    live_window: Duration::MAX,
    live_max_segments: 4_096,
    backlog_bytes_max: u64::MAX,
};

fn store(root: &Path, runtime: &Runtime) -> Store {
    Store::local(root, runtime.handle().clone()).unwrap()
}

fn open(root: &Path, runtime: &Runtime, options: &Options) -> Intake {
    Intake::open(root, store(root, runtime), options).unwrap()
}

fn submit(intake: &Intake, runtime: &Runtime, incarnation: u128, sequence: u64) -> CommitOutcome {
    let batch = CheckedBatch::check(batch(incarnation, sequence, 3), &Limits::default()).unwrap();
    runtime.block_on(async {
        intake
            .submit(batch, EPOCH_NS)
            .await
            .unwrap()
            .outcome()
            .await
            .unwrap()
    })
}

/// Returns the process and sequence number of each batch in the store, and the number of spans.
fn stored(root: &Path, runtime: &Runtime) -> (Vec<(u128, u64)>, usize) {
    let store = store(root, runtime);
    let batches = read_batches(&store)
        .unwrap()
        .map(|batch| (batch.process, batch.sequence))
        .collect();
    (
        batches,
        TraceReader::open(&store)
            .unwrap()
            .map(|trace| trace.spans.len())
            .sum(),
    )
}

#[test]
fn acknowledged_is_kept_once_without_a_flush() {
    let (directory, runtime) = (tempfile::tempdir().unwrap(), Runtime::new().unwrap());
    let intake = open(directory.path(), &runtime, &NEVER);
    for sequence in [0, 1, 2, 5] {
        assert_eq!(
            submit(&intake, &runtime, 9, sequence),
            CommitOutcome::Stored
        );
    }
    assert_eq!(submit(&intake, &runtime, 9, 2), CommitOutcome::Duplicate);
    assert_eq!(intake.with_ledger(|ledger| ledger.holes()), 2);
    runtime.block_on(intake.stop(Stop::Now)).unwrap();
    assert_eq!(stored(directory.path(), &runtime), (vec![], 0));
    // The next start recovers the log, and recognises retries.
    let intake = open(directory.path(), &runtime, &NEVER);
    assert_eq!(submit(&intake, &runtime, 9, 5), CommitOutcome::Duplicate);
    assert_eq!(submit(&intake, &runtime, 9, 3), CommitOutcome::Stored);
    runtime.block_on(intake.stop(Stop::Flush)).unwrap();
    assert_eq!(
        stored(directory.path(), &runtime),
        ([0, 1, 2, 3, 5].map(|s| (9, s)).to_vec(), 15)
    );
    assert!(
        list_segments(&directory.path().join("wal"))
            .unwrap()
            .is_empty()
    );
}

#[test]
fn a_retry_in_the_same_group_is_stored_once() {
    let (directory, runtime) = (tempfile::tempdir().unwrap(), Runtime::new().unwrap());
    let intake = open(directory.path(), &runtime, &NEVER);
    let outcomes = runtime.block_on(async {
        let mut receipts = Vec::new();
        for i in 0..200u64 {
            let batch = CheckedBatch::check(batch(1, i % 50, 2), &Limits::default()).unwrap();
            receipts.push(intake.submit(batch, EPOCH_NS).await.unwrap());
        }
        let mut outcomes = Vec::new();
        for receipt in receipts {
            outcomes.push(receipt.outcome().await.unwrap());
        }
        outcomes
    });
    assert_eq!(
        outcomes
            .iter()
            .filter(|outcome| **outcome == CommitOutcome::Stored)
            .count(),
        50
    );
    runtime.block_on(intake.stop(Stop::Flush)).unwrap();
    assert_eq!(stored(directory.path(), &runtime).0.len(), 50);
}

#[test]
fn full_segments_are_flushed_by_themselves() {
    let (directory, runtime) = (tempfile::tempdir().unwrap(), Runtime::new().unwrap());
    let intake = open(
        directory.path(),
        &runtime,
        &Options {
            segment_bytes: 1_000,
            ..NEVER
        },
    );
    for sequence in 0..20 {
        submit(&intake, &runtime, 1, sequence);
    }
    runtime.block_on(intake.flush()).unwrap();
    let totals = intake.counters().totals();
    assert_eq!((totals.batches["stored"], totals.records), (20, 100));
    assert!(
        intake
            .counters()
            .flushes
            .load(std::sync::atomic::Ordering::Relaxed)
            > 3
    );
    runtime.block_on(intake.stop(Stop::Now)).unwrap();
    assert_eq!(stored(directory.path(), &runtime).0.len(), 20);
}

#[test]
fn the_interval_flushes() {
    let (directory, runtime) = (tempfile::tempdir().unwrap(), Runtime::new().unwrap());
    let intake = open(
        directory.path(),
        &runtime,
        &Options {
            flush_interval: Duration::from_millis(20),
            ..NEVER
        },
    );
    submit(&intake, &runtime, 1, 0);
    let waited = std::time::Instant::now();
    while stored(directory.path(), &runtime).0.is_empty() {
        assert!(waited.elapsed() < Duration::from_secs(10), "never flushed");
        std::thread::sleep(Duration::from_millis(10));
    }
    runtime.block_on(intake.stop(Stop::Now)).unwrap();
}

#[test]
fn one_writer_at_a_time() {
    let (directory, runtime) = (tempfile::tempdir().unwrap(), Runtime::new().unwrap());
    let intake = open(directory.path(), &runtime, &NEVER);
    let second =
        Intake::open(directory.path(), store(directory.path(), &runtime), &NEVER).unwrap_err();
    assert!(
        matches!(second, FlushError::Data(DataDirError::InUse(_))),
        "{second}"
    );
    runtime.block_on(intake.stop(Stop::Now)).unwrap();
    let batch = CheckedBatch::check(batch(1, 0, 1), &Limits::default()).unwrap();
    assert!(
        runtime
            .block_on(intake.submit(batch, EPOCH_NS))
            .unwrap_err()
            .to_string()
            .contains("stopping")
    );
    let intake = open(directory.path(), &runtime, &NEVER);
    runtime.block_on(intake.stop(Stop::Now)).unwrap();
}

/// Writes a log of two segments. Batch 1 occurs twice in the first and once in the second, as after
/// retries on a failing disk.
fn torn_log(data: &DataDir) {
    let mut writer = Writer::new(&data.wal(), 0);
    for group in [[0, 1, 1], [1, 2, 3]] {
        let payloads: Vec<_> = group
            .iter()
            .map(|&s| Payload::of(EPOCH_NS + s, &batch(4, s, 3)))
            .collect();
        writer.append_group(&payloads).unwrap();
        writer.rotate();
    }
}

#[test]
fn a_crash_between_any_two_steps_keeps_each_batch_once() {
    for crash_after in 0..=4 {
        for crashes in 1..=2 {
            let (directory, runtime) = (tempfile::tempdir().unwrap(), Runtime::new().unwrap());
            let data = DataDir::create(directory.path()).unwrap();
            torn_log(&data);
            for _ in 0..crashes {
                let counters = Arc::new(Counters::default());
                let mut flusher =
                    Flusher::load(&data, store(directory.path(), &runtime), counters).unwrap();
                let segment = list_segments(&data.wal()).unwrap()[0];
                if crash_after >= 1 {
                    let converted = flusher.convert(segment).unwrap();
                    if crash_after >= 2 {
                        flusher.make_durable(&converted).unwrap();
                    }
                    if crash_after >= 3 {
                        flusher.save(converted).unwrap();
                    }
                    if crash_after >= 4 {
                        flusher.remove(segment).unwrap();
                    }
                }
            }
            let intake = open(directory.path(), &runtime, &NEVER);
            assert_eq!(submit(&intake, &runtime, 4, 3), CommitOutcome::Duplicate);
            assert_eq!(submit(&intake, &runtime, 4, 4), CommitOutcome::Stored);
            runtime.block_on(intake.stop(Stop::Flush)).unwrap();
            let expected: Vec<_> = (0..5).map(|sequence| (4, sequence)).collect();
            assert_eq!(
                stored(directory.path(), &runtime),
                (expected, 15),
                "crash after step {crash_after}, {crashes} times"
            );
        }
    }
}

#[test]
fn a_lost_checkpoint_never_overwrites() {
    let (directory, runtime) = (tempfile::tempdir().unwrap(), Runtime::new().unwrap());
    for round in 0..3 {
        let intake = open(directory.path(), &runtime, &NEVER);
        submit(&intake, &runtime, 1, round);
        runtime.block_on(intake.stop(Stop::Flush)).unwrap();
        std::fs::remove_file(directory.path().join("checkpoint.json")).unwrap();
    }
    assert_eq!(stored(directory.path(), &runtime).0.len(), 3);
}

#[test]
fn a_failing_store_loses_nothing() {
    let (directory, runtime) = (tempfile::tempdir().unwrap(), Runtime::new().unwrap());
    let intake = open(directory.path(), &runtime, &NEVER);
    // A file is in the place of a table's directory.
    std::fs::write(directory.path().join("events"), "in the way").unwrap();
    assert_eq!(submit(&intake, &runtime, 1, 0), CommitOutcome::Stored);
    assert!(runtime.block_on(intake.flush()).is_err());
    assert_eq!(submit(&intake, &runtime, 1, 1), CommitOutcome::Stored);
    std::fs::remove_file(directory.path().join("events")).unwrap();
    runtime.block_on(intake.stop(Stop::Flush)).unwrap();
    assert_eq!(stored(directory.path(), &runtime).0, [(1, 0), (1, 1)]);
}

/// Returns a batch without news of a known process, and without provenance.
fn quiet(incarnation: u128, sequence: u64) -> CheckedBatch {
    let mut quiet = batch(incarnation, sequence, 0);
    (quiet.spans, quiet.events) = (None, None);
    quiet.losses.clear();
    quiet.provenance.clear();
    quiet.clock_steps.clear();
    CheckedBatch::check(quiet, &Limits::default()).unwrap()
}

/// However many services are idle, and however often they report, the collector syncs at most about
/// once per second and seldom flushes. Acknowledged batches are durable all the same.
#[test]
fn an_idle_fleet_costs_next_to_nothing() {
    let (directory, runtime) = (tempfile::tempdir().unwrap(), Runtime::new().unwrap());
    let interval = Duration::from_millis(100);
    let intake = open(
        directory.path(),
        &runtime,
        &Options {
            flush_interval: interval,
            ..NEVER
        },
    );
    let counters = intake.counters().clone();
    let count =
        |counter: &std::sync::atomic::AtomicU64| counter.load(std::sync::atomic::Ordering::Relaxed);
    // The first batch of a process is news, and is in the store soon.
    for incarnation in 1..=3 {
        let outcome = async {
            intake
                .submit(quiet(incarnation, 0), EPOCH_NS)
                .await
                .unwrap()
                .outcome()
                .await
        };
        assert_eq!(runtime.block_on(outcome).unwrap(), CommitOutcome::Stored);
    }
    runtime.block_on(intake.flush()).unwrap();
    assert_eq!(
        stored(directory.path(), &runtime).0,
        [(1, 0), (2, 0), (3, 0)]
    );

    let (commits, flushes, start) = (
        count(&counters.commits),
        count(&counters.flushes),
        std::time::Instant::now(),
    );
    let outcomes = runtime.block_on(async {
        let mut receipts = Vec::new();
        for sequence in 1..=100 {
            for incarnation in 1..=3 {
                receipts.push(
                    intake
                        .submit(quiet(incarnation, sequence), EPOCH_NS)
                        .await
                        .unwrap(),
                );
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let mut outcomes = Vec::new();
        for receipt in receipts {
            outcomes.push(receipt.outcome().await.unwrap());
        }
        outcomes
    });
    assert_eq!(outcomes, [CommitOutcome::Stored; 300]);
    let (commits, flushes) = (
        count(&counters.commits) - commits,
        count(&counters.flushes) - flushes,
    );
    let elapsed = start.elapsed();
    println!("{commits} commits, {flushes} flushes in {elapsed:?}");
    assert!(
        commits <= elapsed.as_secs() + 2,
        "{commits} commits in {elapsed:?}"
    );
    assert!(
        flushes as u128 <= elapsed.as_nanos() / (60 * interval).as_nanos() + 1,
        "{flushes} in {elapsed:?}"
    );

    // A batch with news does not wait, and commits the waiting batches with it.
    let waiting = runtime
        .block_on(intake.submit(quiet(1, 101), EPOCH_NS))
        .unwrap();
    assert_eq!(submit(&intake, &runtime, 2, 101), CommitOutcome::Stored);
    assert_eq!(
        runtime.block_on(waiting.outcome()).unwrap(),
        CommitOutcome::Stored
    );
    // After a crash, all batches are in the store.
    runtime.block_on(intake.stop(Stop::Now)).unwrap();
    let intake = open(directory.path(), &runtime, &NEVER);
    runtime.block_on(intake.stop(Stop::Now)).unwrap();
    assert_eq!(stored(directory.path(), &runtime).0.len(), 3 + 300 + 2);
}

/// Batches whose sync is delayed are answered before the collector stops.
#[test]
fn quiet_batches_are_answered_at_the_end() {
    let (directory, runtime) = (tempfile::tempdir().unwrap(), Runtime::new().unwrap());
    let intake = open(directory.path(), &runtime, &NEVER);
    let receipts: Vec<_> = (0..5)
        .map(|sequence| {
            runtime
                .block_on(intake.submit(quiet(1, sequence), EPOCH_NS))
                .unwrap()
        })
        .collect();
    runtime.block_on(intake.stop(Stop::Now)).unwrap();
    for receipt in receipts {
        assert_eq!(
            runtime.block_on(receipt.outcome()).unwrap(),
            CommitOutcome::Stored
        );
    }
}

/// Readers are asked to retry for records, but not for batches without records.
#[test]
fn nobody_waits_for_quiet_to_reach_the_store() {
    let (directory, runtime) = (tempfile::tempdir().unwrap(), Runtime::new().unwrap());
    let intake = open(directory.path(), &runtime, &NEVER);
    let unflushed = || match Source::open(directory.path(), runtime.handle().clone()).map(|_| ()) {
        Err(QueryError::Empty {
            unflushed_bytes, ..
        }) => unflushed_bytes,
        other => panic!("{other:?}"),
    };
    let stored = async {
        intake
            .submit(quiet(1, 0), EPOCH_NS)
            .await
            .unwrap()
            .outcome()
            .await
    };
    assert_eq!(runtime.block_on(stored).unwrap(), CommitOutcome::Stored);
    assert_eq!(unflushed(), 0);
    assert_eq!(submit(&intake, &runtime, 1, 1), CommitOutcome::Stored);
    assert!(unflushed() > 0);
    runtime.block_on(intake.stop(Stop::Now)).unwrap();
}

/// The store is compacted while batches arrive. Merged rows occur once, and the thread ends with
/// the intake.
#[test]
fn a_running_intake_compacts_its_store() {
    let (directory, runtime) = (tempfile::tempdir().unwrap(), Runtime::new().unwrap());
    let care = stroboscope_server::ingest::MaintenanceOptions {
        interval: Duration::from_millis(1),
        ..Default::default()
    };
    let options = Options {
        care: Some(care),
        ..NEVER
    };
    let intake = open(directory.path(), &runtime, &options);
    let expected: Vec<(u128, u64)> = (0..40).map(|sequence| (9, sequence)).collect();
    for (incarnation, sequence) in &expected {
        submit(&intake, &runtime, *incarnation, *sequence);
        runtime.block_on(intake.flush()).unwrap();
        let (batches, spans) = stored(directory.path(), &runtime);
        assert_eq!(
            (batches.last(), spans),
            (Some(&(9, *sequence)), 3 * (*sequence as usize + 1))
        );
    }
    let waited = std::time::Instant::now();
    let files = |table| store(directory.path(), &runtime).list(table).unwrap().len();
    // The hour is long over.
    while StoreTable::ALL.into_iter().any(|table| files(table) > 1) {
        assert!(
            waited.elapsed() < Duration::from_secs(60),
            "nothing was merged"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(stored(directory.path(), &runtime), (expected, 120));
    let count =
        |counter: &std::sync::atomic::AtomicU64| counter.load(std::sync::atomic::Ordering::Relaxed);
    assert!(
        count(&intake.care().files_replaced) >= 40
            && count(&intake.care().compaction_failures) == 0
    );
    runtime.block_on(intake.stop(Stop::Flush)).unwrap();
    // The threads have released the lock, and the next segment has a new number.
    let intake = open(directory.path(), &runtime, &NEVER);
    submit(&intake, &runtime, 9, 40);
    runtime.block_on(intake.stop(Stop::Flush)).unwrap();
    assert_eq!(stored(directory.path(), &runtime).0.len(), 41);
}
