//! Maintenance of a store: whatever is merged, moved or interrupted, a reader sees each row once,
//! and a deleted hour as a whole or not at all.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use object_store::path::Path;
use stroboscope_analysis::record::TraceRecords;
use stroboscope_fixtures::batches::{EPOCH_NS, batch};
use stroboscope_store::maintenance::{
    Care, Job, MaintenanceCounters, MaintenanceSettings, next_job,
};
use stroboscope_store::publishing::PublishCounters;
use stroboscope_store::tables::{
    AttributeKeys, Hour, IdRange, Store, StoreTable, TraceFiles, TraceReader, damage_of,
    read_batches,
};

use crate::tables::{Fixture, rows, write};

/// Returns all rows of the store, as a reader sees them. Requires that there is no damage.
pub(crate) fn seen(store: &Store) -> (Vec<TraceRecords>, Vec<(u128, u64)>) {
    let mut reader = TraceReader::open(store).unwrap();
    let traces: Vec<TraceRecords> = reader.by_ref().collect();
    assert_eq!(reader.damage(), []);
    let mut reader = read_batches(store).unwrap();
    let batches = reader
        .by_ref()
        .map(|row| (row.process, row.sequence))
        .collect();
    assert_eq!(damage_of(&reader), []);
    (traces, batches)
}

/// Writes the files of these segments, all in one hour.
pub(crate) fn flush(store: &Store, segments: std::ops::Range<u64>) {
    for segment in segments {
        let of = rows([batch(1, segment, 7), batch(2, segment, 3)]);
        write(store, &format!("seg-{segment:010}"), of);
    }
}

pub(crate) fn care(
    store: &Store,
    settings: MaintenanceSettings,
) -> (Care, Arc<MaintenanceCounters>) {
    let counters = Arc::new(MaintenanceCounters::default());
    (
        Care::of(store.clone(), settings, counters.clone()),
        counters,
    )
}

pub(crate) fn at_rest() -> MaintenanceSettings {
    MaintenanceSettings {
        is_at_rest: true,
        ..MaintenanceSettings::default()
    }
}

pub(crate) fn files(store: &Store, table: StoreTable) -> Vec<String> {
    let files = store.list(table).unwrap();
    files
        .into_iter()
        .map(|(path, _)| path.filename().unwrap().to_owned())
        .collect()
}

pub(crate) const NOW_NS: i64 = EPOCH_NS as i64;

#[test]
fn a_store_at_rest_becomes_a_file_per_table_and_hour() {
    let fixture = Fixture::new();
    let store = fixture.store();
    flush(&store, 0..70);
    let before = seen(&store);
    let (mut care, counters) = care(&store, at_rest());
    // The last ten segments are not below the checkpoint.
    care.round(60, NOW_NS, &|| true).unwrap();
    for table in StoreTable::OF_SEGMENTS {
        let found = files(&store, table);
        assert_eq!(
            (found.len(), &*found[0], &*found[1]),
            (
                11,
                "seg-0000000000-0000000059.parquet",
                "seg-0000000060.parquet"
            )
        );
    }
    assert_eq!(seen(&store), before);
    care.round(70, NOW_NS, &|| true).unwrap();
    assert_eq!(
        files(&store, StoreTable::Batches),
        ["seg-0000000000-0000000069.parquet"]
    );
    assert_eq!(seen(&store), before);
    assert_eq!(counters.compactions.load(Relaxed), 8);
    assert_eq!(counters.files_replaced.load(Relaxed), 4 * 71);
    assert!(counters.replaced_bytes.load(Relaxed) > 0);
    care.round(70, NOW_NS, &|| true).unwrap();
    assert_eq!(
        counters.compactions.load(Relaxed),
        8,
        "there is nothing more to do"
    );
}

/// A crash comes after each step of a merge, and after each move of a file. Then another process
/// continues.
#[test]
fn a_crash_between_any_two_steps_is_not_seen() {
    let inputs = 5;
    for stop in 0..inputs + 4 {
        let fixture = Fixture::new();
        let store = fixture.store();
        flush(&store, 0..inputs);
        let before = seen(&store);
        let (mut crashed, _) = care(&store, at_rest());
        let stretch = crashed
            .stretches(StoreTable::Spans, inputs)
            .unwrap()
            .remove(0);
        let Job {
            inputs: merged_files,
            output,
        } = next_job(&stretch, NOW_NS, true).unwrap();
        let job = Job {
            inputs: merged_files.clone(),
            output: output.clone(),
        };
        if stop == 0 {
            // A partial merged file.
            std::fs::write(format!("{}.part", store.display(&output)), "PAR1").unwrap();
        } else {
            let merged = crashed.merge(StoreTable::Spans, job, &|| true).unwrap();
            assert_eq!(seen(&store), before, "a merged file is not seen");
            if stop > 1 {
                crashed.publish(merged).unwrap();
            }
        }
        assert_eq!(seen(&store), before, "stopped at {stop}");
        if stop > 2 {
            store.announce(StoreTable::Spans).unwrap();
        }
        for (path, _) in merged_files.iter().take((stop as usize).saturating_sub(3)) {
            store.retire(path).unwrap();
            assert_eq!(seen(&store), before, "stopped at {stop}");
        }
        let (mut next, _) = care(&store, at_rest());
        next.round(inputs, NOW_NS, &|| true).unwrap();
        assert_eq!(seen(&store), before, "stopped at {stop}");
        assert_eq!(
            files(&store, StoreTable::Spans),
            ["seg-0000000000-0000000004.parquet"]
        );
        let directory = fixture.path("spans", "x");
        let left = std::fs::read_dir(directory.parent().unwrap())
            .unwrap()
            .count();
        assert_eq!(left, 1, "nothing is left over, stopped at {stop}");
    }
}

/// After a crash, the flusher writes a segment's files again. A merged file still covers them.
#[test]
fn a_segment_that_is_flushed_again_is_not_double() {
    let fixture = Fixture::new();
    let store = fixture.store();
    flush(&store, 0..4);
    let before = seen(&store);
    care(&store, at_rest())
        .0
        .round(4, NOW_NS, &|| true)
        .unwrap();
    flush(&store, 2..3);
    assert_eq!(seen(&store), before);
}

#[test]
fn who_began_to_read_goes_on() {
    let fixture = Fixture::new();
    let store = fixture.store();
    // Writes more files than a reader keeps open, so that it opens files again for each read.
    flush(&store, 0..260);
    let before = seen(&store).0;
    let (keys, always) = (AttributeKeys::none(), i64::MIN..=i64::MAX);
    let opened = TraceFiles::open_bounded(&store, &keys, always, &IdRange::ALL, 1_000).unwrap();
    assert!(opened.files() > 512);
    let mut begun = opened.read(&IdRange::ALL, 1);
    let first = begun.next().unwrap();
    let (mut care, _) = care(&store, at_rest());
    care.round(260, NOW_NS, &|| true).unwrap();
    assert_eq!(files(&store, StoreTable::Spans).len(), 1);
    let rest: Vec<TraceRecords> = begun.by_ref().collect();
    assert_eq!(begun.damage(), []);
    assert!([first].into_iter().chain(rest).eq(before.clone()));
    let anew: Vec<TraceRecords> = opened.read(&IdRange::ALL, 1).collect();
    assert_eq!(anew, before, "and who listed the files before");
}

/// Two threads read the store without pauses while another one compacts it.
#[test]
fn a_reader_beside_a_compactor_sees_each_row_once() {
    let fixture = Fixture::new();
    let store = fixture.store();
    flush(&store, 0..24);
    let before = seen(&store);
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let mut readings = 0;
                    while !ended.load(Relaxed) || readings == 0 {
                        assert_eq!(seen(&store), before);
                        readings += 1;
                    }
                    readings
                })
            })
            .collect();
        for count in 2..=24 {
            for table in StoreTable::OF_SEGMENTS {
                // Merges two files at a time. The first one is the result of the previous merges.
                let (mut care, _) = care(&store, at_rest());
                let stretch = care.stretches(table, count).unwrap().remove(0);
                assert_eq!(stretch.len(), 2);
                let job = next_job(&stretch, NOW_NS, true).unwrap();
                care.compact(table, job, &|| true).unwrap();
            }
        }
        ended.store(true, Relaxed);
        readers
            .into_iter()
            .for_each(|reader| assert!(reader.join().unwrap() > 0));
    });
    assert_eq!(
        files(&store, StoreTable::Events),
        ["seg-0000000000-0000000023.parquet"]
    );
}

#[test]
fn a_damaged_file_stays_where_it_is_and_the_others_are_merged_around_it() {
    let fixture = Fixture::new();
    let store = fixture.store();
    flush(&store, 0..7);
    std::fs::write(
        fixture.path("spans", "seg-0000000003"),
        "PAR1, but what then?",
    )
    .unwrap();
    let (mut care, counters) = care(&store, at_rest());
    for _ in 0..2 {
        care.round(7, NOW_NS, &|| true).unwrap();
    }
    let expected = [
        "seg-0000000000-0000000002.parquet",
        "seg-0000000003.parquet",
        "seg-0000000004-0000000006.parquet",
    ];
    assert_eq!(files(&store, StoreTable::Spans), expected);
    assert_eq!(counters.compaction_failures.load(Relaxed), 1);
}

#[test]
fn what_was_replaced_goes_after_its_grace_or_when_it_is_too_much() {
    let fixture = Fixture::new();
    let store = fixture.store();
    flush(&store, 0..3);
    let now_ns = stroboscope_store::flush::now_ns();
    let (mut keeping, counters) = care(&store, at_rest());
    keeping.round(3, now_ns, &|| true).unwrap();
    let replaced = fixture.path("replaced/spans", "seg-0000000001");
    assert!(replaced.exists() && counters.replaced_bytes.load(Relaxed) > 0);
    let hour_ns = 3_600_000_000_000;
    keeping.purge(now_ns + hour_ns / 2).unwrap();
    assert!(replaced.exists());
    keeping.purge(now_ns + 2 * hour_ns).unwrap();
    assert!(!replaced.exists() && !replaced.parent().unwrap().exists());
    assert_eq!(counters.replaced_bytes.load(Relaxed), 0);
    flush(&store, 3..5);
    let small = MaintenanceSettings {
        replaced_bytes_max: 0,
        ..at_rest()
    };
    care(&store, small).0.round(5, now_ns, &|| true).unwrap();
    assert!(!fixture.path("replaced/spans", "seg-0000000004").exists());
}

/// Writes the rows of one segment, in the hour that is `hours` hours after the first.
fn hour(store: &Store, segment: u64, hours: u64) {
    let mut rows = rows([batch(u128::from(segment) + 1, 0, 5)]);
    let later = i64::try_from(hours * 3_600_000_000_000).unwrap();
    rows.spans.iter_mut().for_each(|row| {
        row.start_ns += later;
        row.end_ns += later;
    });
    rows.events.iter_mut().for_each(|row| row.time_ns += later);
    rows.provenance
        .iter_mut()
        .for_each(|row| row.time_ns += later);
    rows.batches
        .iter_mut()
        .for_each(|row| row.received_ns += later);
    let rule = stroboscope_store::tables::PartitionRule::received(NOW_NS + later, NOW_NS + later);
    let name = format!("seg-{segment:010}");
    let written = stroboscope_store::tables::write_rows(store, &name, rows, &rule).unwrap();
    store.make_durable(&written.paths).unwrap();
}

fn hours(store: &Store) -> Vec<Vec<Path>> {
    StoreTable::ALL
        .map(|table| {
            store
                .list(table)
                .unwrap()
                .into_iter()
                .map(|(path, _)| path)
                .collect()
        })
        .into()
}

#[test]
fn old_hours_go_and_the_current_one_stays() {
    let fixture = Fixture::new();
    let store = fixture.store();
    (0..6).for_each(|n| hour(&store, n, n));
    let now_ns = NOW_NS + 5 * 3_600_000_000_000;
    let settings = MaintenanceSettings {
        compacts: false,
        keep: Some(Duration::from_secs(2 * 3_600)),
        ..MaintenanceSettings::default()
    };
    let (mut aged, counters) = care(&store, settings);
    let reader = TraceFiles::open(&store, &AttributeKeys::none()).unwrap();
    let before = seen(&store).0;
    aged.round(6, now_ns, &|| true).unwrap();
    let left = |store: &Store| hours(store)[0].len();
    assert_eq!(
        (left(&store), counters.hours_deleted_for_age.load(Relaxed)),
        (4, 2)
    );
    assert!(counters.deleted_bytes.load(Relaxed) > 0);
    assert_eq!(
        reader.read(&IdRange::ALL, 1).collect::<Vec<_>>(),
        before,
        "who began goes on"
    );
    assert!(
        !fixture.path("spans", "x").parent().unwrap().exists(),
        "an empty directory goes too"
    );
    // The size limit deletes all hours except the current one, and except files that are not below
    // the checkpoint.
    let settings = MaintenanceSettings {
        compacts: false,
        keep_bytes: Some(1),
        ..MaintenanceSettings::default()
    };
    let (mut crowded, counters) = care(&store, settings);
    crowded.round(4, now_ns, &|| true).unwrap();
    assert_eq!(
        (left(&store), counters.hours_deleted_for_size.load(Relaxed)),
        (2, 2)
    );
    crowded.round(6, now_ns, &|| true).unwrap();
    assert_eq!(left(&store), 1);
}

/// Returns the number of hours that a reader sees whole: spans with their events, and no event
/// without its span.
fn whole_hours(store: &Store) -> usize {
    let mut reader = TraceReader::open(store).unwrap();
    let traces: Vec<TraceRecords> = reader.by_ref().collect();
    assert_eq!(
        (reader.damage(), reader.left_out().span_missing),
        (vec![], 0)
    );
    let records = |trace: &TraceRecords| {
        (
            trace.spans.len(),
            trace
                .spans
                .iter()
                .map(|span| span.events.len())
                .sum::<usize>(),
        )
    };
    let (spans, events) = traces
        .iter()
        .map(records)
        .fold((0, 0), |sum: (usize, usize), of| {
            (sum.0 + of.0, sum.1 + of.1)
        });
    // Four files of each hour, of five spans and three events.
    assert_eq!((spans % 20, events), (0, spans / 20 * 12));
    spans / 20
}

fn hours_of_four_files(store: &Store, hours: u64) {
    (0..4 * hours).for_each(|n| hour(store, n, n / 4));
}

fn keeping(keep: Duration) -> MaintenanceSettings {
    MaintenanceSettings {
        compacts: false,
        keep: Some(keep),
        ..MaintenanceSettings::default()
    }
}

/// Before the publisher first checks, any hour may be unpublished. `--keep` does not delete an hour
/// that may be unpublished, but the size limit does.
#[test]
fn an_hour_that_is_not_published_is_not_too_old() {
    let fixture = Fixture::new();
    let store = fixture.store();
    const HOURS: u64 = 4;
    hours_of_four_files(&store, HOURS);
    let publishing = Arc::new(PublishCounters::default());
    let retain = |keep_bytes| {
        let settings = MaintenanceSettings {
            publishing: Some(publishing.clone()),
            keep_bytes,
            ..keeping(Duration::from_secs(1))
        };
        let (caring, _) = care(&store, settings);
        let now_ns = NOW_NS + HOURS as i64 * 3_600_000_000_000;
        caring.retain(4 * HOURS, now_ns).unwrap();
        whole_hours(&store)
    };
    assert_eq!(retain(None), 4);
    let second = store.list(StoreTable::Spans).unwrap().into_iter();
    let mut hours: Vec<Hour> = second
        .filter_map(|(path, _)| Hour::of_object(path.as_ref()))
        .collect();
    hours.sort_unstable();
    hours.dedup();
    publishing.set_waiting([hours[1]].into());
    // The waiting hour remains, and the one that ended just now.
    assert_eq!(retain(None), 2);
    assert_eq!(retain(Some(0)), 0);
}

/// Two threads read the store while hours are deleted. They see each hour as a whole or not at all.
#[test]
fn an_hour_is_deleted_at_once() {
    let fixture = Fixture::new();
    let store = fixture.store();
    const HOURS: u64 = 24;
    hours_of_four_files(&store, HOURS);
    assert_eq!(whole_hours(&store), HOURS as usize);
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let mut seen = vec![HOURS as usize];
                    while !ended.load(Relaxed) || seen.len() == 1 {
                        seen.push(whole_hours(&store));
                    }
                    seen
                })
            })
            .collect();
        let hour_ns = 3_600_000_000_000;
        for now in 2..=HOURS as i64 {
            let (caring, counters) = care(&store, keeping(Duration::from_secs(1)));
            caring.retain(4 * HOURS, NOW_NS + now * hour_ns).unwrap();
            assert_eq!(counters.hours_deleted_for_age.load(Relaxed), 1);
        }
        ended.store(true, Relaxed);
        for reader in readers {
            let seen = reader.join().unwrap();
            assert!(
                seen.is_sorted_by(|a, b| a >= b),
                "nothing comes back: {seen:?}"
            );
        }
    });
    assert_eq!(whole_hours(&store), 1);
}

/// A crash comes after each move of a file that is deleted. Then another process continues.
#[test]
fn a_deletion_that_was_interrupted_is_ended() {
    let of_hour = 16;
    for moved in 0..=of_hour {
        let fixture = Fixture::new();
        let store = fixture.store();
        hours_of_four_files(&store, 2);
        let all: Vec<Path> = hours(&store).concat();
        let doomed: Vec<&Path> = all
            .iter()
            .filter(|path| path.as_ref().contains("hour=03"))
            .collect();
        assert_eq!(doomed.len(), of_hour);
        // Writes the list of files as the crashed process did.
        let lines: String = doomed.iter().map(|path| format!("{path}\n")).collect();
        let root = fixture.path("spans", "x");
        let root = root.ancestors().nth(4).unwrap();
        std::fs::create_dir_all(root.join("generations")).unwrap();
        std::fs::write(root.join("generations/deleting"), lines).unwrap();
        assert_eq!(whole_hours(&store), 1, "it is gone for readers");
        for path in doomed.iter().take(moved) {
            store.retire(path).unwrap();
            assert_eq!(whole_hours(&store), 1);
        }
        let (mut next, _) = care(
            &store,
            MaintenanceSettings {
                compacts: false,
                ..MaintenanceSettings::default()
            },
        );
        next.round(8, NOW_NS, &|| true).unwrap();
        assert_eq!(whole_hours(&store), 1);
        assert!(!root.join("generations/deleting").exists());
        assert!(
            !fixture.path("spans", "x").parent().unwrap().exists(),
            "no file of it is there"
        );
        // Readers see data that arrive later for this hour.
        hour(&store, 9, 0);
        assert_eq!(hours(&store)[0].len(), 5);
    }
}

/// A client repeats an OTLP request whose response was lost. The repetition is in another segment.
#[test]
fn retries_of_otlp_are_kept_once_and_nothing_else_is() {
    let fixture = Fixture::new();
    let store = fixture.store();
    let foreign = || {
        let mut rows = rows([batch(1, 0, 4)]);
        rows.spans.iter_mut().for_each(|row| row.process = 0);
        rows.batches.clear();
        rows
    };
    write(&store, "seg-0000000000", foreign());
    let once = seen(&store).0;
    write(&store, "seg-0000000001", foreign());
    let (mut caring, counters) = care(&store, at_rest());
    caring.round(2, NOW_NS, &|| true).unwrap();
    assert_eq!(seen(&store).0, once);
    assert_eq!(counters.otlp_retries_dropped.load(Relaxed), 4 + 2);
    // Merging keeps equal rows of processes with the SDK, because the numbers of batches already
    // identify their retries.
    write(&store, "seg-0000000002", rows([batch(2, 5, 4)]));
    write(&store, "seg-0000000003", rows([batch(2, 5, 4)]));
    let twice = seen(&store);
    caring.round(4, NOW_NS, &|| true).unwrap();
    assert_eq!(files(&store, StoreTable::Events).len(), 1);
    assert_eq!(seen(&store), twice);
}
