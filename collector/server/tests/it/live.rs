//! The live model equals the result of `infer` over the store if no records are late, and counts
//! omitted data.

use std::collections::{BTreeMap, HashMap};

use std::time::Duration;

use stroboscope_fixtures::batches::batch;
use stroboscope_query::{Selection, Source, infer};
use stroboscope_server::ingest::{Intake, Options, Stop};
use stroboscope_server::live::Live;
use stroboscope_store::decode::CheckedBatch;
use stroboscope_store::limits::Limits;
use stroboscope_store::record::Rows;
use stroboscope_store::tables::{PartitionRule, Store, write_rows};

use stroboscope_fixtures::workload;

const REQUESTS: u64 = 400;
const SEED: u64 = 11;

fn received_ns(file: u64) -> i64 {
    (workload::EPOCH_NS + (file + 1) * workload::FLUSH_NS) as i64
}

/// Returns a live model that received all files at their times, and then nothing for a long time.
fn fed(quiet_ns: u64, records_open_max: usize, change: impl Fn(u64, &mut Rows)) -> Live {
    fed_requests(REQUESTS, quiet_ns, records_open_max, change)
}

fn fed_requests(
    requests: u64,
    quiet_ns: u64,
    records_open_max: usize,
    change: impl Fn(u64, &mut Rows),
) -> Live {
    let mut live = Live::with_room(quiet_ns as i64, records_open_max);
    for file in 0..workload::files(requests) {
        let mut rows = workload::rows(SEED, requests, file);
        change(file, &mut rows);
        // All files before this one have been handed over.
        live.all_arrived_until(received_ns(file) - 1);
        live.arrived(&rows, received_ns(file));
    }
    live.all_arrived_until(i64::MAX);
    live
}

#[test]
fn without_late_records_it_equals_the_batch() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let store = Store::local(directory.path(), runtime.handle().clone()).unwrap();
    for file in 0..workload::files(REQUESTS) {
        let rule = PartitionRule::received(received_ns(file), received_ns(file));
        write_rows(
            &store,
            &format!("seg-{file}"),
            workload::rows(SEED, REQUESTS, file),
            &rule,
        )
        .unwrap();
    }
    let source = Source::open(directory.path(), runtime.handle().clone()).unwrap();
    let inference = infer(&source, Selection::default(), 0.0).unwrap();
    // One process sends a file late; the quiet time is longer than that. Within a file, rows come
    // in any order.
    let live = fed(2 * workload::FLUSH_NS, usize::MAX, |_, rows| {
        rows.spans.reverse();
    });
    let snapshot = live.snapshot();
    assert_eq!(snapshot.model.parts(), inference.model.parts());
    assert_eq!(snapshot.roots, inference.roots);
    assert!(!snapshot.roots.roots().is_empty());
    let counts = snapshot.counts;
    assert_eq!(
        (counts.traces, counts.complete_traces),
        (REQUESTS, REQUESTS)
    );
    assert_eq!(
        (counts.open_traces, counts.open_records, counts.late_records),
        (0, 0, 0)
    );
    assert_eq!(counts.left_out, inference.notes.left_out);
    assert!(!snapshot.clocks_differ && inference.alignment.is_none());
}

/// Checks the totals of critical paths and slack against the aggregate of the same requests, which
/// all count in one flush, so with the same relations.
#[test]
fn times_on_critical_paths_are_those_of_recent_requests() {
    let live = fed(i64::MAX as u64 / 2, usize::MAX, |_, _| {});
    let totals = live.totals();
    let recent = live.recent(i64::MAX);
    let (aggregate, labels) = recent.paths();
    assert_eq!(aggregate.traces().recorded(), REQUESTS);
    let mut expected: BTreeMap<String, (u128, u64, u128)> = BTreeMap::new();
    for of in aggregate.by_operation(labels) {
        let critical_ns = of.critical_duration_ns + of.critical_wait_ns;
        let (count, slack_ns) = (of.slack.count(), of.slack.sum_ns());
        expected.insert(of.operation, (critical_ns, count, slack_ns));
    }
    let tail = (aggregate.tail_wait().0, 0, 0);
    expected.insert(":(tail)".to_owned(), tail);
    let mut found: BTreeMap<String, (u128, u64, u128)> = BTreeMap::new();
    for ((_, (service, name)), time_ns) in &totals.critical_ns {
        found.entry(format!("{service}:{name}")).or_default().0 += time_ns;
    }
    for ((service, name), of) in &totals.slack {
        let found = found.entry(format!("{service}:{name}")).or_default();
        (found.1, found.2) = (of.segments.recorded(), of.sum_ns);
    }
    expected.retain(|_, of| *of != (0, 0, 0));
    assert_eq!(found, expected);
    assert!(found.values().any(|of| of.0 > 0) && found.values().any(|of| of.2 > 0));
}

/// Ids choose a part of the requests if a flush has too many, and the part's times are scaled.
#[test]
fn times_on_critical_paths_add_up_to_latencies() {
    let live = fed_requests(2_500, 2 * workload::FLUSH_NS, usize::MAX, |_, _| {});
    let totals = live.totals();
    let (mut by_root, mut by_operation) = (BTreeMap::new(), BTreeMap::new());
    for ((root, (service, name)), time_ns) in &totals.critical_ns {
        *by_root.entry(root).or_insert(0.0) += *time_ns as f64;
        *by_operation
            .entry(format!("{service}:{name}"))
            .or_insert(0.0) += *time_ns as f64;
    }
    let mut all_ns = 0.0;
    for (root, of) in &totals.roots {
        let (sum_ns, latency_ns) = (by_root[root], of.latency.sum_ns as f64);
        assert!((sum_ns / latency_ns - 1.0).abs() < 1e-9, "{root:?}");
        all_ns += latency_ns;
    }
    assert_eq!(by_root.len(), totals.roots.len());
    let complete = totals.roots.values().map(|of| of.outcomes.all.recorded());
    assert_eq!(complete.sum::<u64>(), 2_500);
    // Another part of the requests has about the same shares.
    let recent = live.recent(i64::MAX);
    let (aggregate, labels) = recent.paths();
    for of in aggregate.by_operation(labels) {
        let share = aggregate.share_of_time(of.critical_duration_ns + of.critical_wait_ns);
        let found = by_operation.get(&of.operation).copied().unwrap_or_default() / all_ns;
        assert!(
            (found - share).abs() < 0.03,
            "{}: {found} {share}",
            of.operation
        );
    }
}

/// The window moves on when no requests arrive any more, and its models are bounded.
#[test]
fn requests_leave_without_new_ones() {
    let second_ns = 1_000_000_000;
    let mut live = Live::with_room(0, usize::MAX).with_window(13 * second_ns, 3);
    let rows = workload::rows(SEED, REQUESTS, 0);
    let at_ns = received_ns(0);
    live.arrived(&rows, at_ns);
    live.all_arrived_until(at_ns + 1);
    let requests = |live: &Live| live.snapshot().roots.roots().len();
    let refused = live.snapshot().refused_labels;
    assert!(requests(&live) > 0 && refused > 0, "{refused}");
    assert_eq!(live.snapshot().model.labels().len(), 3);
    for seconds in 1..=12 {
        live.all_arrived_until(at_ns + seconds * second_ns);
        assert!(requests(&live) > 0, "after {seconds} s");
    }
    for seconds in 13..30 {
        live.all_arrived_until(at_ns + seconds * second_ns);
    }
    assert_eq!((requests(&live), live.snapshot().refused_labels), (0, 0));
}

#[test]
fn clocks_that_differ_are_said_to() {
    let live = fed(2 * workload::FLUSH_NS, usize::MAX, |_, rows| {
        let host = rows.strings.intern("host-06");
        for span in rows.spans.iter_mut().filter(|span| span.host == host) {
            (span.start_ns, span.end_ns) = (span.start_ns + 100_000_000, span.end_ns + 100_000_000);
        }
    });
    assert!(live.snapshot().clocks_differ);
}

#[test]
fn what_is_late_is_counted() {
    // A trace counts as fully arrived between the file in which it first occurs and the next one.
    let mut first_file = HashMap::new();
    let (mut late, mut all) = (0, 0);
    for file in 0..workload::files(REQUESTS) {
        for span in workload::rows(SEED, REQUESTS, file).spans {
            all += 1;
            late += u64::from(*first_file.entry(span.trace_id).or_insert(file) < file);
        }
    }
    let whole = fed(2 * workload::FLUSH_NS, usize::MAX, |_, _| {}).counts();
    assert_eq!((whole.late_records, whole.traces), (0, REQUESTS));
    let hasty = fed(workload::FLUSH_NS / 2, usize::MAX, |_, _| {}).counts();
    assert!(0 < late && late < all);
    assert_eq!((hasty.late_records, hasty.traces), (late, REQUESTS));
}

#[test]
fn memory_is_bounded() {
    let mut live = Live::with_room(i64::MAX, 1_000);
    let rows = workload::rows(SEED, REQUESTS, 0);
    // Sorts by trace, so that traces that are observed early are whole.
    let mut sorted = Rows {
        strings: rows.strings.clone(),
        ..Rows::default()
    };
    sorted.spans = rows.spans.clone();
    sorted.spans.sort_by_key(|span| span.trace_id);
    for (number, spans) in sorted
        .spans
        .chunk_by(|a, b| a.trace_id == b.trace_id)
        .enumerate()
    {
        let strings = rows.strings.clone();
        live.arrived(
            &Rows {
                strings,
                spans: spans.to_vec(),
                ..Rows::default()
            },
            number as i64,
        );
        assert!(live.counts().open_records <= 1_000);
    }
    let counts = live.counts();
    assert_eq!(counts.traces, counts.early_traces);
    assert!(counts.early_traces > REQUESTS - 30, "{counts:?}");
    assert!(
        counts.open_traces > 10 && counts.late_records == 0,
        "{counts:?}"
    );
}

#[test]
fn lost_records_make_traces_incomplete() {
    let counts = fed(2 * workload::FLUSH_NS, usize::MAX, |_, rows| {
        let cause = rows.strings.intern("ring_full");
        rows.batches[1].losses.push((cause, 5));
    });
    let counts = counts.counts();
    assert!(
        counts.incomplete["lossy"] > 0 && counts.complete_traces > 0,
        "{counts:?}"
    );
}

#[test]
fn a_collector_feeds_it_what_it_has_stored() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let store = Store::local(directory.path(), runtime.handle().clone()).unwrap();
    let options = Options {
        flush_interval: Duration::from_secs(3_600),
        live_quiet: Some(Duration::from_millis(1)),
        ..Options::default()
    };
    let intake = Intake::open(directory.path(), store, &options).unwrap();
    let submit = |sequence| {
        let batch = CheckedBatch::check(batch(3, sequence, 3), &Limits::default()).unwrap();
        let now_ns = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap()
            .as_nanos();
        runtime.block_on(async {
            intake
                .submit(batch, now_ns as u64)
                .await
                .unwrap()
                .outcome()
                .await
                .unwrap()
        })
    };
    let live = intake.live().unwrap();
    // Flushes until the traces are quiet.
    let traces = |expected: u64| {
        for _ in 0..1_000 {
            runtime.block_on(intake.flush()).unwrap();
            if live.counts().0.traces >= expected {
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        live.counts().0
    };
    submit(0);
    submit(1);
    // The model does not see a retry twice.
    submit(1);
    let counts = traces(2);
    assert_eq!(
        (counts.traces, counts.open_records, counts.skipped_records),
        (2, 0, 0)
    );
    // Three roots in one trace are not one request.
    assert_eq!(
        (counts.complete_traces, counts.incomplete["several_roots"]),
        (0, 2)
    );
    runtime.block_on(intake.stop(Stop::Flush)).unwrap();
}
