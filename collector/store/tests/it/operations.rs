//! Operation facts are the same from the metadata of files as from their rows.

use parquet::file::reader::{FileReader as _, SerializedFileReader};
use stroboscope_analysis::record::SpanFlags;
use stroboscope_fixtures::batches::EPOCH_NS;
use stroboscope_store::record::{Rows, SpanRow};
use stroboscope_store::tables::{
    OperationFacts, RetriedSpans, Store, StoreTable, merge_files, operation_facts,
};

use crate::tables::{Fixture, write};

/// Number of spans of a trace.
const SPANS: u64 = 32;

/// Returns the spans of some traces. `names` is the number of names of inner spans. One trace in
/// ten takes seconds, some roots are connections or servers, and one trace in seven was imported.
fn spans(traces: std::ops::Range<u64>, names: u64) -> Rows {
    let mut rows = Rows::default();
    for trace in traces {
        let step_ns = if trace.is_multiple_of(10) {
            70_000_000 + trace
        } else {
            1_000
        };
        for number in 0..SPANS {
            let name = match number {
                0 => format!("GET /item/{}", trace % 3),
                _ => format!("work {}", (trace * SPANS + number) % names),
            };
            let root_flags = [0, SpanFlags::SERVER.0, SpanFlags::CONNECTION.0];
            let start_ns = EPOCH_NS as i64 + (number * step_ns) as i64;
            rows.spans.push(SpanRow {
                trace_id: u128::from(trace + 1) << 64,
                trace_name: None,
                span_id: number + 1,
                parent_id: number.min(1),
                service: rows.strings.intern(["web", "store"][trace as usize % 2]),
                name: rows.strings.intern(&name),
                host: rows.strings.intern("h"),
                process: u128::from(!trace.is_multiple_of(7)),
                start_ns,
                end_ns: start_ns + 500,
                flags: if number == 0 {
                    root_flags[trace as usize % 3]
                } else {
                    0
                },
                attributes: None,
            });
        }
    }
    rows
}

/// Returns the number of files of spans, and how many of them have facts in their metadata.
fn files_with_facts(store: &Store) -> (usize, usize) {
    let files = store.list(StoreTable::Spans).unwrap();
    let has_facts = |(path, bytes): &&(object_store::path::Path, u64)| {
        let file = store.range(path, 0..*bytes).unwrap();
        let reader = SerializedFileReader::new(file).unwrap();
        let about = reader.metadata().file_metadata().key_value_metadata();
        let mut keys = about.unwrap().iter().map(|pair| pair.key.as_str());
        keys.any(|key| key == "stroboscope.operations.1")
    };
    (files.len(), files.iter().filter(has_facts).count())
}

fn parts(facts: &OperationFacts) -> impl PartialEq + std::fmt::Debug + use<> {
    let mut inner: Vec<_> = facts.inner.iter().cloned().collect();
    inner.sort_unstable();
    let mut long = facts.long_traces();
    long.sort_unstable();
    (inner, facts.roots.clone(), facts.marked.clone(), long)
}

#[test]
fn metadata_and_rows_give_the_same_facts() {
    let (whole, small) = (Fixture::new(), Fixture::new());
    let (whole, small) = (whole.store(), small.store());
    write(&whole, "seg-0", spans(0..1_000, 40));
    for part in 0..5 {
        let traces = part * 200..(part + 1) * 200;
        write(&small, &format!("seg-{part}"), spans(traces, 40));
    }
    assert_eq!(files_with_facts(&whole), (1, 1));
    assert_eq!(files_with_facts(&small), (5, 0));
    let expected = operation_facts(&small, 2).unwrap();
    let lengths = [
        expected.inner.iter().count(),
        expected.roots.len(),
        expected.marked.len(),
    ];
    assert_eq!(lengths, [80, 2, 2]);
    assert_eq!(expected.long_traces().len(), 4);
    assert_eq!(
        parts(&operation_facts(&whole, 2).unwrap()),
        parts(&expected)
    );
    // The merged file also has facts.
    let files = small.list(StoreTable::Spans).unwrap();
    let merged = "spans/date=2026-01-02/hour=03/merged.parquet".into();
    let mut retried = RetriedSpans::default();
    let made = merge_files(
        &small,
        StoreTable::Spans,
        &files,
        &merged,
        &mut retried,
        &|| true,
    );
    made.unwrap().publish().unwrap();
    let paths: Vec<_> = files.into_iter().map(|(path, _)| path).collect();
    small.remove(&paths).unwrap();
    assert_eq!(files_with_facts(&small), (1, 1));
    assert_eq!(
        parts(&operation_facts(&small, 2).unwrap()),
        parts(&expected)
    );
}

#[test]
fn facts_about_names_that_do_not_repeat_are_not_stored() {
    let (fixture, small) = (Fixture::new(), Fixture::new());
    let (store, small) = (fixture.store(), small.store());
    write(&store, "seg-0", spans(0..400, u64::MAX));
    assert_eq!(files_with_facts(&store), (1, 0));
    for part in 0..2 {
        let traces = part * 200..(part + 1) * 200;
        write(&small, &format!("seg-{part}"), spans(traces, u64::MAX));
    }
    let facts = [&store, &small].map(|store| parts(&operation_facts(store, 1).unwrap()));
    assert_eq!(facts[0], facts[1]);
}

#[test]
fn facts_that_cannot_be_read_are_found_in_the_rows() {
    let fixture = Fixture::new();
    let store = fixture.store();
    write(&store, "seg-0", spans(0..1_000, 40));
    let expected = parts(&operation_facts(&store, 1).unwrap());
    let path = fixture.path("spans", "seg-0");
    let mut bytes = std::fs::read(&path).unwrap();
    let entry = b"{\"inner\":";
    let at = bytes.windows(entry.len()).position(|part| part == entry);
    bytes[at.expect("an entry")] = b'x';
    std::fs::write(&path, bytes).unwrap();
    let damaged = fixture.store();
    assert_eq!(files_with_facts(&damaged), (1, 1));
    assert_eq!(parts(&operation_facts(&damaged, 1).unwrap()), expected);
}
