//! The store returns written rows in order, and a damaged file affects only itself.

use std::sync::Arc;

use proptest::prelude::*;
use stroboscope_analysis::record::{RecordOwner, TraceRecords};
use stroboscope_fixtures::batches::{EPOCH_NS, batch};
use stroboscope_proto::v1::Batch;
use stroboscope_store::decode::CheckedBatch;
use stroboscope_store::limits::Limits;
use stroboscope_store::record::{EventRow, Rows};
use stroboscope_store::tables::{
    AttributeKeys, ELEMENT, Merge, PartitionRule, SortedRun, Store, StoreTable, TraceReader,
    damage_of, read_batches, write_rows,
};

/// Creates a runtime with one thread, which is enough and starts quickly.
fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap()
}

pub(crate) struct Fixture {
    runtime: tokio::runtime::Runtime,
    directory: tempfile::TempDir,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        Self {
            runtime: tokio::runtime::Runtime::new().unwrap(),
            directory: tempfile::tempdir().unwrap(),
        }
    }

    pub(crate) fn store(&self) -> Store {
        Store::local(self.directory.path(), self.runtime.handle().clone()).unwrap()
    }

    pub(crate) fn root(&self) -> &std::path::Path {
        self.directory.path()
    }

    pub(crate) fn path(&self, table: &str, name: &str) -> std::path::PathBuf {
        self.directory
            .path()
            .join(format!("{table}/date=2026-01-02/hour=03/{name}.parquet"))
    }
}

pub(crate) fn rows(batches: impl IntoIterator<Item = Batch>) -> Rows {
    let mut rows = Rows::default();
    for batch in batches {
        CheckedBatch::check(batch, &Limits::default())
            .unwrap()
            .append_to(EPOCH_NS, &mut rows);
    }
    rows
}

pub(crate) fn write(store: &Store, name: &str, rows: Rows) {
    let rule = PartitionRule::received(EPOCH_NS as i64, EPOCH_NS as i64);
    let written = write_rows(store, name, rows, &rule).unwrap();
    store.make_durable(&written.paths).unwrap();
}

fn traces(store: &Store) -> Vec<TraceRecords> {
    TraceReader::open(store).unwrap().collect()
}

#[test]
fn whole_traces_come_out_of_several_files() {
    let fixture = Fixture::new();
    let store = fixture.store();
    // Batches of equal numbers of two processes have spans in the same traces.
    write(
        &store,
        "seg-0000000000",
        rows([batch(1, 0, 7), batch(1, 1, 4)]),
    );
    write(&store, "seg-0000000001", rows([batch(2, 0, 7)]));
    let traces = traces(&store);
    assert_eq!(traces.len(), 5);
    assert!(traces.windows(2).all(|pair| pair[0].id.0 < pair[1].id.0));
    assert_eq!(traces[0].spans.len(), 6, "three spans of each process");
    let first = &traces[0].spans[0];
    assert_eq!(
        (&*first.service, &*first.name, &*first.host, first.flags.0),
        ("web", "get", "alpha", 8)
    );
    let events: usize = traces
        .iter()
        .flat_map(|trace| &trace.spans)
        .map(|span| span.events.len())
        .sum();
    assert_eq!(events, 4 + 2 + 4);
    let batches: Vec<_> = read_batches(&store).unwrap().collect();
    assert_eq!(
        batches
            .iter()
            .map(|b| (b.process, b.sequence))
            .collect::<Vec<_>>(),
        [(1, 0), (1, 1), (2, 0)]
    );
    assert_eq!(batches[1].losses, [("ring_full".to_owned(), 1)]);
    assert_eq!(
        batches[1].windows[0].close_ns - batches[1].windows[0].open_ns,
        4_000_000
    );
    let said = batches[1].kernel_clock.unwrap();
    assert_eq!(
        (
            said.synchronised,
            said.max_error_ns,
            said.estimated_error_ns
        ),
        (true, 2_000_001, 1_000)
    );
    assert_eq!(
        (batches[0].kernel_clock, batches[2].kernel_clock),
        (None, None),
        "it was not said"
    );
}

#[test]
fn attributes_are_read_if_they_are_asked_for() {
    let fixture = Fixture::new();
    let store = fixture.store();
    let mut said = rows([batch(1, 0, 3)]);
    let texts = [
        Some(r#"{"element":"a","user":7}"#),
        Some(r#"["user"]"#),
        Some("[]"),
    ];
    said.spans
        .iter_mut()
        .zip(texts)
        .for_each(|(row, text)| row.attributes = text.map(Into::into));
    let spans: Vec<u64> = said.spans.iter().map(|row| row.span_id).collect();
    said.events.truncate(1);
    said.events[0].attributes = Some(r#"{"element":"b","user":8}"#.into());
    let inside = said.events[0].span_id;
    let (trace_id, name) = (said.spans[0].trace_id, said.events[0].name);
    // Two imports give their events the same numbers.
    for (task_ns, user) in [(1, "x"), (2, "y")] {
        let attributes = Some(format!(r#"{{"element":"{user}","user":"{user}"}}"#).into());
        let (time_ns, task) = (EPOCH_NS as i64 + task_ns, Some(name));
        said.events.push(EventRow {
            trace_id,
            trace_name: None,
            span_id: 0,
            time_ns,
            seq: 0,
            host: name,
            service: name,
            task,
            name,
            attributes,
        });
    }
    write(&store, "seg-0000000000", said);
    assert!(
        traces(&store)
            .iter()
            .all(|trace| trace.attributes.is_empty() && trace.elements.is_empty())
    );
    let mut reader = TraceReader::open_with(&store, &AttributeKeys::of(["user", ELEMENT])).unwrap();
    let (mut attributes, mut elements) = (Vec::new(), Vec::new());
    for trace in reader.by_ref() {
        let text = |text: &Arc<str>| text.to_string();
        attributes.extend(
            trace
                .attributes
                .iter()
                .map(|said| (said.owner, text(&said.key), text(&said.value))),
        );
        elements.extend(
            trace
                .elements
                .iter()
                .map(|said| (said.owner, text(&said.element))),
        );
    }
    let user = |owner, value: &str| (owner, "user".to_owned(), value.to_owned());
    let element = |owner, value: &str| (owner, value.to_owned());
    let mut expected = vec![
        user(RecordOwner::Span(spans[0]), "7"),
        user(RecordOwner::InSpan(inside, 0), "8"),
        user(RecordOwner::Event(0), "x"),
        user(RecordOwner::Event(1), "y"),
    ];
    expected.sort();
    attributes.sort();
    assert_eq!(attributes, expected);
    let expected = [
        element(RecordOwner::Span(spans[0]), "a"),
        element(RecordOwner::Event(0), "x"),
        element(RecordOwner::Event(1), "y"),
    ];
    assert_eq!(elements, expected);
    assert_eq!(reader.left_out().unreadable_attributes, 1);
}

#[test]
fn writing_again_overwrites() {
    let fixture = Fixture::new();
    let store = fixture.store();
    for _ in 0..2 {
        write(&store, "seg-0000000000", rows([batch(1, 0, 5)]));
    }
    assert_eq!(
        traces(&store)
            .iter()
            .map(|trace| trace.spans.len())
            .sum::<usize>(),
        5
    );
    for table in StoreTable::OF_SEGMENTS {
        assert_eq!(store.list(table).unwrap().len(), 1);
    }
}

#[test]
fn other_object_stores_do_as_well() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let store = Store::over(
        Arc::new(object_store::memory::InMemory::new()),
        runtime.handle().clone(),
    );
    write(&store, "seg-0000000000", rows([batch(1, 0, 5)]));
    assert_eq!(traces(&store).len(), 2);
}

#[test]
fn large_objects_are_read_in_parts() {
    let fixture = Fixture::new();
    let store = fixture.store();
    let mut many = rows([]);
    let name = many.strings.intern("step");
    for i in 0..40_000u64 {
        // Noise from a multiplication, which zstd cannot compress, so that the file is large.
        let noise = i.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        many.events.push(EventRow {
            trace_id: u128::from(noise) + 1,
            trace_name: None,
            span_id: 0,
            time_ns: EPOCH_NS as i64 + (noise >> 32) as i64,
            seq: i as u32,
            host: name,
            service: name,
            task: Some(name),
            name,
            attributes: Some(format!("{{\"noise\":{noise}}}").into()),
        });
    }
    write(&store, "seg-0000000000", many);
    assert!(store.list(StoreTable::Events).unwrap()[0].1 > 300_000);
    let traces = traces(&store);
    assert_eq!(traces.len(), 40_000);
    assert!(traces.windows(2).all(|pair| pair[0].id < pair[1].id));
}

#[test]
fn an_empty_store_has_no_traces() {
    assert!(traces(&Fixture::new().store()).is_empty());
}

/// Damages the first of two files of spans. Expects that the second is read and that the damage of
/// the first is reported.
fn check_damage(reason: &str, spoil: impl FnOnce(&mut Vec<u8>)) {
    let fixture = Fixture::new();
    let store = fixture.store();
    write(&store, "seg-0000000000", rows([batch(1, 0, 5)]));
    write(&store, "seg-0000000001", rows([batch(1, 1, 3)]));
    let path = fixture.path("spans", "seg-0000000000");
    let mut bytes = std::fs::read(&path).unwrap();
    spoil(&mut bytes);
    std::fs::write(&path, &bytes).unwrap();
    let mut reader = TraceReader::open(&store).unwrap();
    let spans: usize = reader.by_ref().map(|trace| trace.spans.len()).sum();
    assert_eq!(spans, 3, "{reason}");
    let damage = reader.damage();
    assert_eq!(damage.len(), 1, "{reason}");
    let text = damage[0].to_string();
    assert!(
        text.contains("seg-0000000000.parquet") && text.contains("move it away"),
        "{text}"
    );
    assert!(text.contains(reason), "{text}");
}

#[test]
fn a_damaged_file_is_named_and_the_rest_is_read() {
    check_damage("EOF", Vec::clear);
    check_damage("Invalid Parquet", |bytes| bytes.truncate(bytes.len() / 2));
    check_damage("Invalid Parquet", |bytes| {
        *bytes = b"PK not parquet at all".to_vec();
    });
    check_damage("", |bytes| {
        let middle = bytes.len() - 900;
        bytes[4..middle].fill(0xAA);
    });
}

#[test]
fn files_of_others_are_named() {
    let fixture = Fixture::new();
    let store = fixture.store();
    write(&store, "seg-0000000000", rows([batch(1, 0, 5)]));
    // A file of batches among the spans: Stroboscope wrote it, but it lacks the required columns.
    std::fs::copy(
        fixture.path("batches", "seg-0000000000"),
        fixture.path("spans", "other"),
    )
    .unwrap();
    let mut reader = TraceReader::open(&store).unwrap();
    assert_eq!(reader.by_ref().count(), 2);
    assert!(
        reader.damage()[0]
            .to_string()
            .contains("no column trace_id"),
        "{}",
        reader.damage()[0]
    );
    let mut batches = read_batches(&store).unwrap();
    assert_eq!(batches.by_ref().count(), 1);
    assert!(damage_of(&batches).is_empty());
}

/// Run over a plain vector.
struct Plain(std::vec::IntoIter<(u8, usize)>);

impl SortedRun for Plain {
    type Row = (u8, usize);
    type Key = u8;

    fn key(row: &Self::Row) -> u8 {
        row.0
    }

    fn next_row(&mut self) -> Option<Self::Row> {
        self.0.next()
    }
}

proptest! {
    #[test]
    fn the_merge_is_a_stable_sort(runs in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 0..8)) {
        let mut sorted = Vec::new();
        let mut plain = Vec::new();
        for (run, mut keys) in runs.into_iter().enumerate() {
            keys.sort_unstable();
            let rows: Vec<_> = keys.into_iter().map(|key| (key, run)).collect();
            sorted.extend(rows.iter().copied());
            plain.push(Plain(rows.into_iter()));
        }
        sorted.sort_by_key(|row| row.0);
        prop_assert_eq!(Merge::new(plain).collect::<Vec<_>>(), sorted);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// Changed bytes of one file cause no panic, and the other file is read in full.
    #[test]
    fn random_damage_never_panics(flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8)) {
        let runtime = runtime();
        let store = Store::over(Arc::new(object_store::memory::InMemory::new()), runtime.handle().clone());
        write(&store, "seg-0000000000", rows([batch(1, 0, 5)]));
        write(&store, "seg-0000000001", rows([batch(1, 1, 3)]));
        let (path, size) = store.list(StoreTable::Spans).unwrap().remove(0);
        let mut bytes = store.range(&path, 0..size).unwrap().to_vec();
        for (at, value) in flips { let at = at.index(bytes.len()); bytes[at] = value; }
        store.put(&path, bytes).unwrap();
        let spans: usize = TraceReader::open(&store).unwrap().map(|trace| trace.spans.len()).sum();
        prop_assert!((3..=8).contains(&spans), "{spans} spans");
    }
}
