//! Many files, of which readers merge the smallest first, yield the same rows as one file.

use std::collections::BTreeSet;

use stroboscope_analysis::record::TraceRecords;
use stroboscope_fixtures::batches::{batch, trace_id};
use stroboscope_fixtures::random::Random;
use stroboscope_store::tables::{
    AttributeKeys, BatchRead, Damage, IdRange, LeftOut, ShardPlan, Store, StoreTable, TraceFiles,
    damage_of, read_batches,
};

use crate::tables::{Fixture, rows, write};

const ALWAYS: std::ops::RangeInclusive<i64> = i64::MIN..=i64::MAX;

/// Returns the content of the files: batches of very different sizes, of two processes with spans
/// in the same traces.
fn batches(count: u64) -> Vec<stroboscope_proto::v1::Batch> {
    (0..count)
        .map(|n| {
            batch(
                1 + u128::from(n % 2),
                n / 2,
                [1, 2, 5, 9, 40][n as usize % 5],
            )
        })
        .collect()
}

/// Returns a store with one file per batch, in an order that depends on the seed, and a store with
/// all batches in one file.
fn many_and_one(count: u64, seed: u64) -> (Fixture, Fixture) {
    let (many, one) = (Fixture::new(), Fixture::new());
    let mut random = Random(seed);
    let mut names: Vec<u64> = (0..count).collect();
    (1..names.len())
        .rev()
        .for_each(|at| names.swap(at, random.below(at + 1)));
    let store = many.store();
    for (name, batch) in names.iter().zip(batches(count)) {
        write(&store, &format!("seg-{name:010}"), rows([batch]));
    }
    write(&one.store(), "seg-0000000000", rows(batches(count)));
    (many, one)
}

type Read = (Vec<TraceRecords>, LeftOut, Vec<Damage>);

/// Sorts the attributes of a trace, because readers return them in the order of files.
fn sorted(mut trace: TraceRecords) -> TraceRecords {
    trace
        .attributes
        .sort_by_key(|said| (said.owner, said.key.clone(), said.value.clone()));
    trace
}

fn read(files: &TraceFiles, range: &IdRange) -> Read {
    let mut reader = files.read(range, 1);
    let traces = reader.by_ref().map(sorted).collect();
    let damage = [files.damage(), &reader.damage()].concat();
    (traces, reader.left_out(), damage)
}

fn all(store: &Store, keys: &AttributeKeys, files_max: usize) -> Read {
    let files = TraceFiles::open_bounded(store, keys, ALWAYS, &IdRange::ALL, files_max).unwrap();
    read(&files, &IdRange::ALL)
}

#[test]
fn many_files_are_read_as_one_is() {
    for seed in 0..2 {
        let (many, one) = many_and_one(31, seed);
        for keys in [
            AttributeKeys::none(),
            AttributeKeys::of(["key", "höhe \"quoted\""]),
            AttributeKeys::all(),
        ] {
            let expected = all(&one.store(), &keys, usize::MAX);
            assert!(expected.0.len() > 50 && expected.2.is_empty());
            // With few files at a time, runs are merged to runs again.
            for files_max in [1, 3, 7, 30, usize::MAX] {
                let found = all(&many.store(), &keys, files_max);
                assert!(found == expected, "seed {seed}, {files_max} at a time");
            }
        }
    }
}

#[test]
fn ranges_and_traces_are_found_in_what_was_merged() {
    let (many, one) = many_and_one(31, 7);
    let (store, keys) = (many.store(), AttributeKeys::none());
    let expected = all(&one.store(), &keys, usize::MAX).0;
    let files = TraceFiles::open_bounded(&store, &keys, ALWAYS, &IdRange::ALL, 4).unwrap();
    assert_eq!((files.files(), files.skipped()), (62, 0));
    for parts in [2, 3, 8] {
        let ranges = files.ranges(parts, 0);
        assert_eq!(ranges.len(), parts);
        let parts = ranges.iter().flat_map(|range| read(&files, range).0);
        assert!(parts.eq(expected.iter().cloned()));
    }
    for trace in expected.iter().step_by(5) {
        let range = IdRange::only(trace.id.0);
        let files = TraceFiles::open_bounded(&store, &keys, ALWAYS, &range, 4).unwrap();
        assert_eq!(read(&files, &range).0, std::slice::from_ref(trace));
    }
    let range = IdRange::only(trace_id(1_000_000, 0));
    let files = TraceFiles::open_bounded(&store, &keys, ALWAYS, &range, 4).unwrap();
    assert_eq!(read(&files, &range).0, []);
}

#[test]
fn files_of_another_time_are_not_merged() {
    let (many, _) = many_and_one(61, 3);
    let (store, keys) = (many.store(), AttributeKeys::none());
    // Each process has one batch per millisecond.
    let begin_ns = stroboscope_fixtures::batches::EPOCH_NS as i64 + 10_000_000;
    let times_ns = begin_ns..=begin_ns + 4_999_999;
    let open = |files_max| {
        TraceFiles::open_bounded(&store, &keys, times_ns.clone(), &IdRange::ALL, files_max).unwrap()
    };
    let (bounded, whole) = (open(3), open(usize::MAX));
    assert_eq!((bounded.files(), bounded.skipped()), (20, 102));
    assert_eq!((whole.files(), whole.skipped()), (20, 102));
    assert_eq!(read(&bounded, &IdRange::ALL), read(&whole, &IdRange::ALL));
}

/// Damage affects only its own file, and is reported as without merging.
#[test]
fn damage_costs_its_own_file() {
    let (many, _) = many_and_one(41, 5);
    let (store, keys) = (many.store(), AttributeKeys::all());
    std::fs::write(many.path("spans", "seg-0000000009"), "PAR1, but what then?").unwrap();
    // The footer is intact, but a page is not.
    for name in ["seg-0000000020", "seg-0000000033"] {
        let path = many.path("events", name);
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[4..60].fill(0xa5);
        std::fs::write(&path, bytes).unwrap();
    }
    let (traces, left_out, damage) = all(&store, &keys, usize::MAX);
    assert_eq!(damage.len(), 3);
    let told =
        |damage: &[Damage]| -> BTreeSet<String> { damage.iter().map(Damage::to_string).collect() };
    for files_max in [2, 9] {
        let found = all(&store, &keys, files_max);
        assert!(
            found.0 == traces && found.1 == left_out,
            "{files_max} at a time"
        );
        assert_eq!(told(&found.2), told(&damage));
    }
}

/// Reads more files than the default limit of files that are read together, in three tables.
#[test]
fn some_hundred_files_are_read_without_being_told() {
    let (many, one) = many_and_one(300, 1);
    let keys = AttributeKeys::none();
    let open = |fixture: &Fixture| TraceFiles::open(&fixture.store(), &keys).unwrap();
    let files = open(&many);
    assert_eq!(files.files(), 600);
    assert!(read(&files, &IdRange::ALL) == read(&open(&one), &IdRange::ALL));
    let batches = |fixture: &Fixture| -> Vec<BatchRead> {
        let mut rows = read_batches(&fixture.store()).unwrap();
        let read = rows.by_ref().collect();
        assert_eq!((damage_of(&rows), rows.runs().len() <= 256), (vec![], true));
        read
    };
    assert_eq!(batches(&many), batches(&one));
    std::fs::write(
        many.path("batches", "seg-0000000100"),
        "PAR1, but what then?",
    )
    .unwrap();
    let mut rows = read_batches(&many.store()).unwrap();
    assert_eq!(rows.by_ref().count(), 299);
    assert_eq!(damage_of(&rows).len(), 1);
    assert_eq!(many.store().list(StoreTable::Batches).unwrap().len(), 300);
    // Runs are unnamed files.
    let cache = many.path("cache", "x");
    let cache = cache.ancestors().nth(3).unwrap();
    assert_eq!(std::fs::read_dir(cache).unwrap().count(), 0);
}

/// Shards hold each trace once, and each of them leaves out the files that a whole reading leaves
/// out.
#[test]
fn shards_hold_what_the_whole_holds() {
    let (many, _) = many_and_one(31, 9);
    let (store, keys) = (many.store(), AttributeKeys::all());
    for is_damaged in [false, true] {
        if is_damaged {
            let path = many.path("spans", "seg-0000000007");
            let mut bytes = std::fs::read(&path).unwrap();
            bytes[4..60].fill(0xa5);
            std::fs::write(&path, bytes).unwrap();
        }
        let store = many.store();
        let whole = TraceFiles::open_within(&store, &keys, ALWAYS, &IdRange::ALL, 0).unwrap();
        let expected = read(&whole, &IdRange::ALL);
        assert_eq!(expected.2.len(), usize::from(is_damaged));
        for count in [1, 2, 5, 1_000] {
            let plan = ShardPlan::of(&store, &ALWAYS).unwrap();
            let shards = plan.shards(count);
            assert!(shards.len() <= count && IdRange::cover_all(shards.iter().copied()));
            assert!(count > 5 || shards.len() == count);
            let mut found = Vec::new();
            for shard in &shards {
                let files = TraceFiles::open_within(&store, &keys, ALWAYS, shard, 0).unwrap();
                for range in files.ranges_within(shard, 2, 0) {
                    found.extend(read(&files, &range).0);
                }
            }
            assert!(found == expected.0, "{count} shards");
        }
    }
    let plan = ShardPlan::of(&store, &ALWAYS).unwrap();
    for rows in [0, 50, 1_000_000] {
        let ranges = plan.first_and_rest(rows);
        assert_eq!(ranges.len(), if rows == 50 { 2 } else { 1 });
        assert!(IdRange::cover_all(ranges));
    }
    let again = ShardPlan::of(&many.store(), &ALWAYS).unwrap();
    assert_eq!(plan.identity(), again.identity());
    assert_eq!((plan.files(), plan.is_of(&store).unwrap()), (93, true));
    write(&store, "seg-0000000099", rows(batches(1)));
    let later = ShardPlan::of(&store, &ALWAYS).unwrap();
    assert!(!plan.is_of(&store).unwrap() && later.identity() != plan.identity());
}
