//! Thinning of old hours: the kept requests, unbiased estimates, and hours that are thinned in all
//! tables or in none.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use stroboscope_analysis::flow::failed_spans;
use stroboscope_analysis::record::{AttributeRecord, TraceRecords};
use stroboscope_analysis::sampling::{TraceSampling, WeightedCount};
use stroboscope_fixtures::disk::SimDisk;
use stroboscope_fixtures::mixed_requests::{
    HOUR_NS, HOURS, MS_NS, MixedRequest, SLOW_MS, add, requests, write,
};
use stroboscope_store::data_dir::DataDir;
use stroboscope_store::maintenance::{MaintenanceCounters, MaintenanceSettings, ThinningSettings};
use stroboscope_store::record::Rows;
use stroboscope_store::tables::{
    AttributeKeys, IdRange, PartitionRule, Store, StoreTable, TRACE_STATE, TraceReader,
    read_provenance, write_rows,
};

use crate::maintenance::{NOW_NS, care};
use crate::tables::Fixture;

pub(crate) fn thinning(ratio: f64) -> MaintenanceSettings {
    MaintenanceSettings {
        is_at_rest: true,
        thinning: Some(ThinningSettings {
            after: Duration::from_secs(48 * 3_600),
            ratio,
            slow: Some(Duration::from_millis(SLOW_MS as u64)),
        }),
        ..MaintenanceSettings::default()
    }
}

/// Time at which all hours are old enough to be thinned.
pub(crate) const LATER_NS: i64 = NOW_NS + 100 * HOUR_NS;

fn thin(store: &Store, ratio: f64) -> Arc<MaintenanceCounters> {
    let (mut care, counters) = care(store, thinning(ratio));
    care.round(1_000, LATER_NS, &|| true).unwrap();
    counters
}

pub(crate) fn traces(store: &Store) -> BTreeMap<u128, TraceRecords> {
    let keys = AttributeKeys::all().with_weights();
    let mut reader = TraceReader::open_with(store, &keys).unwrap();
    let traces = reader.by_ref().map(|trace| (trace.id.0, trace)).collect();
    assert_eq!(
        (reader.damage(), reader.left_out().span_missing),
        (vec![], 0)
    );
    traces
}

pub(crate) fn provenance(store: &Store) -> BTreeSet<u128> {
    let mut ids = BTreeSet::new();
    let damage = read_provenance(store, &IdRange::ALL, &mut |log| {
        ids.insert(log.trace_id);
        std::ops::ControlFlow::Continue(())
    });
    assert_eq!(damage.unwrap(), []);
    ids
}

/// Returns a trace without the parts that thinning may change.
fn without_state(trace: &TraceRecords) -> TraceRecords {
    let mut trace = trace.clone();
    trace.sampling = TraceSampling::default();
    trace
        .attributes
        .retain(|attribute| &*attribute.key != TRACE_STATE);
    let key = |of: &AttributeRecord| (of.owner, of.key.clone());
    trace.attributes.sort_by_key(key);
    trace
}

fn counts<'a>(traces: impl Iterator<Item = &'a TraceRecords>) -> [WeightedCount; 2] {
    let mut counts = [WeightedCount::default(); 2];
    for trace in traces {
        counts[0].count(trace.weight());
        if failed_spans(trace).next().is_some() {
            counts[1].count(trace.weight());
        }
    }
    counts
}

#[test]
fn failed_slow_and_cut_requests_stay_and_the_others_are_a_sample() {
    let fixture = Fixture::new();
    let store = fixture.store();
    let written = requests(1, 2_400);
    write(&store, written.clone());
    let before = traces(&store);
    assert_eq!((before.len(), provenance(&store).len()), (2_400, 2_400));
    // Merges the files first, so that only thinning changes their size.
    let bytes = |store: &Store| {
        let files = StoreTable::OF_REQUESTS.map(|table| store.list(table).unwrap());
        files.iter().flatten().map(|(_, bytes)| bytes).sum::<u64>()
    };
    let (mut merging, _) = care(&store, MaintenanceSettings::default());
    merging.round(1_000, LATER_NS, &|| true).unwrap();
    let bytes_before = bytes(&store);
    let counters = thin(&store, 0.1);
    let after = traces(&store);
    println!("{bytes_before} bytes became {}", bytes(&store));
    assert_eq!(
        bytes_before - bytes(&store),
        counters.thinned_bytes.load(Relaxed)
    );
    // The fourth hour has only late spans, so it stays as it is.
    assert_eq!(counters.hours_thinned.load(Relaxed), HOURS);
    let dropped = (before.len() - after.len()) as u64;
    assert_eq!(counters.requests_thinned.load(Relaxed), dropped);
    let spans = |traces: &BTreeMap<u128, TraceRecords>| {
        traces
            .values()
            .map(|trace| trace.spans.len() as u64)
            .sum::<u64>()
    };
    let dropped_spans = spans(&before) - spans(&after);
    assert_eq!(counters.spans_thinned.load(Relaxed), dropped_spans);
    let kept: BTreeSet<u128> = after.keys().copied().collect();
    assert_eq!(provenance(&store), kept);
    let mut thinned = 0;
    for request in &written {
        let is_slow = request.length_ns >= SLOW_MS * MS_NS;
        let is_exempt = request.has_failed || is_slow || request.late_ns.is_some();
        let known = &before[&request.id];
        let Some(found) = after.get(&request.id) else {
            assert!(!is_exempt, "{:032x}", request.id);
            continue;
        };
        assert_eq!(without_state(found), without_state(known));
        let times = if is_exempt { 1.0 } else { 10.0 };
        let off = found.weight().value() - times * known.weight().value();
        assert!(off.abs() < 1e-3, "{:032x}: {off}", request.id);
        if is_exempt {
            assert_eq!(found, known);
        }
        thinned += u64::from(!is_exempt);
    }
    // Of about 2,200 requests, a tenth stays, plus or minus four standard deviations of 14.
    assert!((160..280).contains(&thinned), "{thinned}");
    let [all, failed] = counts(before.values());
    let [all_after, failed_after] = counts(after.values());
    assert_eq!(failed_after, failed, "failed requests are exact");
    let error = (all_after.estimate() - all.estimate()) / all.estimate();
    assert!(error.abs() < 0.25, "{error}");
}

/// Over many stores, estimates are right on average, and their 95 % intervals contain the truth
/// about as often as they promise.
#[test]
fn estimates_are_unbiased() {
    let (stores, ratio) = (40, 0.2);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (mut errors, mut covered, mut variances) = (0.0, 0, 0.0);
    for seed in 0..stores {
        let (disk, root) = (SimDisk::new(seed), std::path::Path::new("/sim/data"));
        DataDir::create_on(Arc::new(disk.clone()), root).unwrap();
        let store = disk.store(root, runtime.handle().clone());
        write(&store, requests(seed + 100, 300));
        let [truth, _] = counts(traces(&store).values());
        thin(&store, ratio);
        let after = traces(&store);
        let [found, _] = counts(after.values());
        // Horvitz and Thompson's estimate of the variance. Only thinned requests vary.
        let thinned = after
            .values()
            .filter(|trace| trace.sampling.thinned().is_some());
        let squares = thinned.map(|trace| trace.weight().value().powi(2));
        let variance = squares.sum::<f64>() * (1.0 - ratio);
        let error = found.estimate() - truth.estimate();
        covered += u32::from(error.abs() <= 1.96 * variance.sqrt());
        errors += error;
        variances += variance;
    }
    let bias = errors / variances.sqrt();
    println!("bias {bias:.2} standard errors, {covered} of {stores} intervals");
    assert!(bias.abs() < 3.5, "{bias}");
    assert!(covered >= 33, "{covered}");
}

#[test]
fn an_hour_is_thinned_once_it_is_old_and_settled() {
    let fixture = Fixture::new();
    let store = fixture.store();
    write(&store, requests(2, 300));
    let before = traces(&store);
    let (mut maintaining, counters) = care(&store, thinning(0.1));
    // The first hour ended 48 hours ago. It waits for a checkpoint behind its segments.
    let now_ns = NOW_NS + 49 * HOUR_NS;
    maintaining.round(2, now_ns, &|| true).unwrap();
    maintaining.round(1_000, now_ns - 1, &|| true).unwrap();
    assert_eq!(traces(&store), before);
    maintaining.round(1_000, now_ns, &|| true).unwrap();
    assert_eq!(counters.hours_thinned.load(Relaxed), 1);
    let is_later = |trace: &&TraceRecords| trace.spans[0].start_ns >= NOW_NS + HOUR_NS;
    let after = traces(&store);
    let later = |traces: &BTreeMap<u128, TraceRecords>| {
        traces
            .values()
            .filter(is_later)
            .cloned()
            .collect::<Vec<_>>()
    };
    assert_eq!(later(&after), later(&before));
    // Another ratio does not thin it again.
    let (mut next, _) = care(&store, thinning(0.01));
    next.round(1_000, now_ns, &|| true).unwrap();
    assert_eq!(traces(&store), after);
    // Even if the age is less, hours wait until no more records arrive.
    let early = MaintenanceSettings {
        thinning: thinning(0.01).thinning.map(|it| ThinningSettings {
            after: Duration::ZERO,
            ..it
        }),
        ..MaintenanceSettings::default()
    };
    let (mut early, counters) = care(&store, early);
    early.round(1_000, NOW_NS + 26 * HOUR_NS, &|| true).unwrap();
    assert_eq!(counters.hours_thinned.load(Relaxed), 0);
}

#[test]
fn a_running_collector_thins_an_hour_in_a_round() {
    let fixture = Fixture::new();
    let store = fixture.store();
    write(&store, requests(7, 100));
    let running = MaintenanceSettings {
        is_at_rest: false,
        ..thinning(0.1)
    };
    let (mut care, counters) = care(&store, running);
    for round in 1..=4 {
        care.round(1_000, LATER_NS, &|| true).unwrap();
        let thinned = counters.hours_thinned.load(Relaxed);
        assert_eq!(thinned, HOURS.min(round));
    }
}

/// A request with a record in the next hour or in an imported file is not whole in its hour.
#[test]
fn requests_with_records_in_other_files_stay() {
    let fixture = Fixture::new();
    let store = fixture.store();
    let many = requests(3, 200);
    write(&store, many.clone());
    let mut imported = Rows::default();
    for request in &many[..50] {
        let late = MixedRequest {
            late_ns: Some(1),
            ..*request
        };
        add(&mut imported, late);
    }
    imported.spans.retain(|span| span.span_id == 3);
    (imported.events, imported.provenance) = (Vec::new(), Vec::new());
    let rule = PartitionRule::imported(NOW_NS);
    write_rows(&store, "import-x-0", imported, &rule).unwrap();
    let before = traces(&store);
    thin(&store, 1e-9);
    let after = traces(&store);
    for (at, request) in many.iter().enumerate() {
        let is_slow = request.length_ns >= SLOW_MS * MS_NS;
        let stays = at < 50 || is_slow || request.has_failed || request.late_ns.is_some();
        let expected = stays.then(|| &before[&request.id]);
        assert_eq!(after.get(&request.id), expected, "request {at}");
    }
}

/// A damaged file leaves its hour and the next one as they are, and the third hour is thinned.
#[test]
fn an_hour_with_a_damaged_file_is_not_thinned() {
    let fixture = Fixture::new();
    let store = fixture.store();
    write(&store, requests(4, 300));
    let (mut merging, _) = care(&store, MaintenanceSettings::default());
    merging.round(1_000, LATER_NS, &|| true).unwrap();
    let events = store.list(StoreTable::Events).unwrap();
    let damaged = &events[0].0;
    let bytes = std::fs::read(store.display(damaged)).unwrap();
    std::fs::write(store.display(damaged), &bytes[..bytes.len() / 2]).unwrap();
    let counters = thin(&store, 0.1);
    // The next hour may share requests with the hour of the damaged file.
    assert_eq!(counters.hours_thinned.load(Relaxed), 1);
    assert_eq!(counters.thinning_failures.load(Relaxed), 2);
    let files = store.list(StoreTable::Spans).unwrap();
    let is_thinned: Vec<bool> = files
        .iter()
        .map(|(path, _)| path.as_ref().ends_with("-thinned.parquet"))
        .collect();
    assert_eq!(is_thinned, [false, false, true, false]);
}

/// Two threads read the store while hours are thinned. They see each hour whole or thinned.
#[test]
fn an_hour_is_thinned_at_once() {
    let fixture = Fixture::new();
    let store = fixture.store();
    write(&store, requests(5, 300));
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let mut seen = BTreeSet::new();
                    while !ended.load(Relaxed) || seen.is_empty() {
                        // An event without its span, or the reverse, shows an hour that is thinned
                        // in part.
                        let traces = traces(&store);
                        let of_events = traces.values().flat_map(|trace| &trace.spans);
                        let events: usize = of_events.map(|span| span.events.len()).sum();
                        assert_eq!(events, traces.len());
                        seen.insert(traces.len());
                    }
                    seen
                })
            })
            .collect();
        for hour in 0..HOURS as i64 {
            let (mut maintaining, _) = care(&store, thinning(0.1));
            let now_ns = NOW_NS + (49 + hour) * HOUR_NS;
            maintaining.round(1_000, now_ns, &|| true).unwrap();
        }
        ended.store(true, Relaxed);
        for reader in readers {
            assert!(reader.join().unwrap().len() <= 1 + HOURS as usize);
        }
    });
}
