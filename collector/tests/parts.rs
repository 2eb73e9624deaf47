//! What several threads make of parts of a store is what one makes of the whole.

#[path = "../benches/million/workload.rs"]
#[expect(dead_code, reason = "the benchmark uses more of it")]
mod workload;

use stroboscope_analysis::aggregate::PathAggregate;
use stroboscope_analysis::model::ModelParts;
use stroboscope_analysis::record::{TraceId, TraceRecords};
use stroboscope_collector::query::{
    InferSettings, Inference, PartsWanted, Selection, Source, aggregate, infer_with,
};
use stroboscope_collector::record::Rows;
use stroboscope_collector::store::{AttributeKeys, Filing, Store, TraceFiles, TraceReader, write_rows};

const REQUESTS: u64 = 700;
const SEED: u64 = 7;

struct Fixture {
    runtime: tokio::runtime::Runtime,
    folder: tempfile::TempDir,
}

impl Fixture {
    /// The simulated requests, in as many files as they come in; the spans of the last file in many small ones, so
    /// that some files are held whole and others are read by pages.
    fn new() -> Self {
        let fixture =
            Self { runtime: tokio::runtime::Runtime::new().unwrap(), folder: tempfile::tempdir().unwrap() };
        let store = fixture.store();
        for file in 0..workload::files(REQUESTS) {
            let mut rows = workload::rows(SEED, REQUESTS, file);
            let late = if file == 1 { rows.spans.split_off(rows.spans.len() / 2) } else { Vec::new() };
            for (number, spans) in late.chunks(500).enumerate() {
                let strings = workload::rows(SEED, 0, file).strings;
                let rows = Rows { spans: spans.to_vec(), strings, ..Rows::default() };
                fixture.write(&store, &format!("late-{number}"), rows);
            }
            fixture.write(&store, &format!("seg-{file:010}"), rows);
        }
        fixture
    }

    fn write(&self, store: &Store, name: &str, rows: Rows) {
        let received_ns = workload::EPOCH_NS as i64;
        write_rows(store, name, rows, &Filing::received(received_ns, received_ns)).unwrap();
    }

    fn store(&self) -> Store {
        Store::local(self.folder.path(), self.runtime.handle().clone()).unwrap()
    }

    fn source(&self, parts: usize) -> Source {
        let source = Source::open(self.folder.path(), self.runtime.handle().clone()).unwrap();
        source.with_parts(PartsWanted::Exactly(parts))
    }
}

#[test]
fn ranges_hold_every_trace_once() {
    let fixture = Fixture::new();
    let whole: Vec<TraceRecords> = TraceReader::open(&fixture.store()).unwrap().collect();
    assert_eq!(whole.len() as u64, REQUESTS);
    let mut ids: Vec<TraceId> =
        (0..REQUESTS).map(|number| TraceId(workload::request(SEED, number).trace_id)).collect();
    ids.sort();
    assert_eq!(whole.iter().map(|trace| trace.id).collect::<Vec<_>>(), ids);
    for number in 0..REQUESTS {
        let request = workload::request(SEED, number);
        let trace = &whole[ids.binary_search(&TraceId(request.trace_id)).unwrap()];
        let mut spans: Vec<_> = request
            .spans
            .iter()
            .map(|s| (s.start_ns as i64, s.end_ns as i64, s.span_id, s.parent_id))
            .collect();
        spans.sort_unstable();
        let mut read: Vec<_> =
            trace.spans.iter().map(|s| (s.start_ns, s.end_ns, s.span_id, s.parent_id)).collect();
        read.sort_unstable();
        assert_eq!(read, spans);
        assert_eq!(trace.spans.iter().map(|span| span.events.len()).sum::<usize>(), 2);
    }
    let files = TraceFiles::open(&fixture.store(), &AttributeKeys::none()).unwrap();
    for parts in [1, 2, 3, 8, 30] {
        let ranges = files.ranges(parts, 0);
        assert_eq!(ranges.len(), parts);
        let read: Vec<Vec<TraceRecords>> =
            ranges.iter().map(|range| files.read(range, parts).collect()).collect();
        let fullest = read.iter().map(Vec::len).max().unwrap();
        // Ids are random, so that parts of many traces hardly differ.
        assert!(parts > 8 || fullest < REQUESTS as usize / parts * 5 / 4, "{fullest} of {parts} parts");
        assert_eq!(read.concat(), whole, "{parts} parts");
    }
    assert!(files.ranges(8, 10_000).len() < 8 && files.ranges(8, u64::MAX).len() == 1);
}

/// What there is to compare: the model, traces, segments and relations of each point of its convergence, traces and
/// complete ones, and everything else.
type Inferred = (ModelParts, Vec<(u64, usize, usize)>, (u64, u64), String);

fn inferred(inference: &Inference) -> Inferred {
    let points = inference.convergence.iter();
    let points = points.map(|point| (point.traces, point.segments, point.happens_before)).collect();
    let notes = &inference.notes;
    let seen =
        format!("{:?} {:?} {:?}", notes.incomplete, notes.diagnostics, inference.latency.percentiles());
    (inference.model.parts(), points, (notes.traces, notes.complete_traces), seen)
}

#[test]
fn parts_merge_to_the_whole() {
    let fixture = Fixture::new();
    let selection = Selection::default();
    let found = |parts: usize| -> (Inference, PathAggregate) {
        let source = fixture.source(parts);
        let settings = InferSettings { convergence_every: 100, ..InferSettings::default() };
        let inference = infer_with(&source, selection, settings).unwrap();
        let paths = aggregate(&source, selection, &inference).unwrap();
        assert_eq!(paths.notes.traces, REQUESTS);
        (inference, paths.aggregate)
    };
    let (one, one_aggregate) = found(1);
    assert_eq!(one.model.traces(), REQUESTS);
    assert!(one.model.labels().len() >= 100, "{:?}", one.model);
    for parts in [2, 3, 5] {
        let (several, aggregate) = found(parts);
        let (mut expected, mut found) = (inferred(&one), inferred(&several));
        // Which traces come first depends on the parts; how many do, and what is known in the end, does not.
        assert_eq!(found.1.last(), expected.1.last());
        assert_eq!(found.1.iter().map(|p| p.0).collect::<Vec<_>>(), [100, 200, 300, 400, 500, 600, 700]);
        (expected.1, found.1) = (Vec::new(), Vec::new());
        assert_eq!(found, expected);
        assert_eq!(aggregate, one_aggregate);
    }
}
