//! The way in: acknowledged means kept, once, wherever a crash comes.

mod batches;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use batches::{EPOCH_NS, batch};
use stroboscope_collector::decode::CheckedBatch;
use stroboscope_collector::intake::{
    Counters, DataDir, DataDirError, FlushError, Flusher, Intake, Options, Outcome, Stop,
};
use stroboscope_collector::limits::Limits;
use stroboscope_collector::store::{Store, TraceReader, read_batches};
use stroboscope_collector::wal::{Payload, Writer, list_segments};
use tokio::runtime::Runtime;

const NEVER: Options =
    Options { flush_interval: Duration::from_secs(3_600), segment_bytes: 1 << 30, live_quiet: None };

fn store(root: &Path, runtime: &Runtime) -> Store {
    Store::local(root, runtime.handle().clone()).unwrap()
}

fn open(root: &Path, runtime: &Runtime, options: &Options) -> Intake {
    Intake::open(root, store(root, runtime), options).unwrap()
}

fn submit(intake: &Intake, runtime: &Runtime, incarnation: u128, sequence: u64) -> Outcome {
    let batch = CheckedBatch::check(batch(incarnation, sequence, 3), &Limits::default()).unwrap();
    runtime.block_on(async { intake.submit(batch, EPOCH_NS).await.unwrap().outcome().await.unwrap() })
}

/// (process, sequence) of all batches in the store, and the spans.
fn stored(root: &Path, runtime: &Runtime) -> (Vec<(u128, u64)>, usize) {
    let store = store(root, runtime);
    let batches = read_batches(&store).unwrap().map(|batch| (batch.process, batch.sequence)).collect();
    (batches, TraceReader::open(&store).unwrap().map(|trace| trace.spans.len()).sum())
}

#[test]
fn acknowledged_is_kept_once_without_a_flush() {
    let (folder, runtime) = (tempfile::tempdir().unwrap(), Runtime::new().unwrap());
    let intake = open(folder.path(), &runtime, &NEVER);
    for sequence in [0, 1, 2, 5] {
        assert_eq!(submit(&intake, &runtime, 9, sequence), Outcome::Stored);
    }
    assert_eq!(submit(&intake, &runtime, 9, 2), Outcome::Duplicate);
    assert_eq!(intake.with_ledger(|ledger| ledger.holes()), 2);
    runtime.block_on(intake.stop(Stop::Now)).unwrap();
    assert_eq!(stored(folder.path(), &runtime), (vec![], 0));
    // The next start finds it, knows it, and may be asked again.
    let intake = open(folder.path(), &runtime, &NEVER);
    assert_eq!(submit(&intake, &runtime, 9, 5), Outcome::Duplicate);
    assert_eq!(submit(&intake, &runtime, 9, 3), Outcome::Stored);
    runtime.block_on(intake.stop(Stop::Flush)).unwrap();
    assert_eq!(stored(folder.path(), &runtime), ([0, 1, 2, 3, 5].map(|s| (9, s)).to_vec(), 15));
    assert!(list_segments(&folder.path().join("wal")).unwrap().is_empty());
}

#[test]
fn a_retry_in_the_same_group_is_stored_once() {
    let (folder, runtime) = (tempfile::tempdir().unwrap(), Runtime::new().unwrap());
    let intake = open(folder.path(), &runtime, &NEVER);
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
    assert_eq!(outcomes.iter().filter(|outcome| **outcome == Outcome::Stored).count(), 50);
    runtime.block_on(intake.stop(Stop::Flush)).unwrap();
    assert_eq!(stored(folder.path(), &runtime).0.len(), 50);
}

#[test]
fn full_segments_are_flushed_by_themselves() {
    let (folder, runtime) = (tempfile::tempdir().unwrap(), Runtime::new().unwrap());
    let intake = open(folder.path(), &runtime, &Options { segment_bytes: 1_000, ..NEVER });
    for sequence in 0..20 {
        submit(&intake, &runtime, 1, sequence);
    }
    runtime.block_on(intake.flush()).unwrap();
    let totals = intake.counters().totals();
    assert_eq!((totals.batches["stored"], totals.records), (20, 100));
    assert!(intake.counters().flushes.load(std::sync::atomic::Ordering::Relaxed) > 3);
    runtime.block_on(intake.stop(Stop::Now)).unwrap();
    assert_eq!(stored(folder.path(), &runtime).0.len(), 20);
}

#[test]
fn the_interval_flushes() {
    let (folder, runtime) = (tempfile::tempdir().unwrap(), Runtime::new().unwrap());
    let intake =
        open(folder.path(), &runtime, &Options { flush_interval: Duration::from_millis(20), ..NEVER });
    submit(&intake, &runtime, 1, 0);
    let waited = std::time::Instant::now();
    while stored(folder.path(), &runtime).0.is_empty() {
        assert!(waited.elapsed() < Duration::from_secs(10), "never flushed");
        std::thread::sleep(Duration::from_millis(10));
    }
    runtime.block_on(intake.stop(Stop::Now)).unwrap();
}

#[test]
fn one_writer_at_a_time() {
    let (folder, runtime) = (tempfile::tempdir().unwrap(), Runtime::new().unwrap());
    let intake = open(folder.path(), &runtime, &NEVER);
    let second = Intake::open(folder.path(), store(folder.path(), &runtime), &NEVER).unwrap_err();
    assert!(matches!(second, FlushError::Data(DataDirError::InUse(_))), "{second}");
    runtime.block_on(intake.stop(Stop::Now)).unwrap();
    let batch = CheckedBatch::check(batch(1, 0, 1), &Limits::default()).unwrap();
    assert!(runtime.block_on(intake.submit(batch, EPOCH_NS)).unwrap_err().to_string().contains("stopping"));
    let intake = open(folder.path(), &runtime, &NEVER);
    runtime.block_on(intake.stop(Stop::Now)).unwrap();
}

/// A log of two segments with a batch twice in each and once in both, as a failing disk and its retries leave it.
fn torn_log(data: &DataDir) {
    let mut writer = Writer::new(&data.wal(), 0);
    for group in [[0, 1, 1], [1, 2, 3]] {
        let payloads: Vec<_> = group.iter().map(|&s| Payload::of(EPOCH_NS + s, &batch(4, s, 3))).collect();
        writer.append_group(&payloads).unwrap();
        writer.rotate();
    }
}

#[test]
fn a_crash_between_any_two_steps_keeps_each_batch_once() {
    for crash_after in 0..=4 {
        for crashes in 1..=2 {
            let (folder, runtime) = (tempfile::tempdir().unwrap(), Runtime::new().unwrap());
            let data = DataDir::create(folder.path()).unwrap();
            torn_log(&data);
            for _ in 0..crashes {
                let counters = Arc::new(Counters::default());
                let mut flusher = Flusher::load(&data, store(folder.path(), &runtime), counters).unwrap();
                let segment = list_segments(&data.wal()).unwrap()[0];
                if crash_after >= 1 {
                    let converted = flusher.convert(segment).unwrap();
                    if crash_after >= 2 {
                        flusher.settle(&converted).unwrap();
                    }
                    if crash_after >= 3 {
                        flusher.save(converted).unwrap();
                    }
                    if crash_after >= 4 {
                        flusher.remove(segment).unwrap();
                    }
                }
            }
            let intake = open(folder.path(), &runtime, &NEVER);
            assert_eq!(submit(&intake, &runtime, 4, 3), Outcome::Duplicate);
            assert_eq!(submit(&intake, &runtime, 4, 4), Outcome::Stored);
            runtime.block_on(intake.stop(Stop::Flush)).unwrap();
            let expected: Vec<_> = (0..5).map(|sequence| (4, sequence)).collect();
            assert_eq!(
                stored(folder.path(), &runtime),
                (expected, 15),
                "crash after step {crash_after}, {crashes} times"
            );
        }
    }
}

#[test]
fn a_lost_checkpoint_never_overwrites() {
    let (folder, runtime) = (tempfile::tempdir().unwrap(), Runtime::new().unwrap());
    for round in 0..3 {
        let intake = open(folder.path(), &runtime, &NEVER);
        submit(&intake, &runtime, 1, round);
        runtime.block_on(intake.stop(Stop::Flush)).unwrap();
        std::fs::remove_file(folder.path().join("checkpoint.json")).unwrap();
    }
    assert_eq!(stored(folder.path(), &runtime).0.len(), 3);
}

#[test]
fn a_failing_store_loses_nothing() {
    let (folder, runtime) = (tempfile::tempdir().unwrap(), Runtime::new().unwrap());
    let intake = open(folder.path(), &runtime, &NEVER);
    // Where a table's folder should be is a file.
    std::fs::write(folder.path().join("events"), "in the way").unwrap();
    assert_eq!(submit(&intake, &runtime, 1, 0), Outcome::Stored);
    assert!(runtime.block_on(intake.flush()).is_err());
    assert_eq!(submit(&intake, &runtime, 1, 1), Outcome::Stored);
    std::fs::remove_file(folder.path().join("events")).unwrap();
    runtime.block_on(intake.stop(Stop::Flush)).unwrap();
    assert_eq!(stored(folder.path(), &runtime).0, [(1, 0), (1, 1)]);
}
