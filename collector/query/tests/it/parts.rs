//! Several threads over parts of a store produce the same results as one thread over the whole.

use stroboscope_analysis::aggregate::PathAggregate;
use stroboscope_analysis::convergence::LineLimit;
use stroboscope_analysis::model::ModelParts;
use stroboscope_analysis::record::{TraceId, TraceRecords};
use stroboscope_analysis::what_if::Change;
use stroboscope_query::{
    AnomalyQuestion, BreakdownQuestion, BreakdownReport, CategoryChoice, InferSettings, Inference,
    OverviewQuestion, PartsWanted, PathsQuestion, PredictSettings, Selection, Source, StrataRule,
    Study, TimeRange, check_slack, clocks, infer_with, what_if,
};
use stroboscope_render::roots::roots_json;
use stroboscope_store::record::{Rows, SpanRow};
use stroboscope_store::tables::{
    AttributeKeys, PartitionRule, Store, TraceFiles, TraceReader, write_rows,
};

use stroboscope_fixtures::workload;

const REQUESTS: u64 = 700;
const SEED: u64 = 7;
/// Number of users. The first span of each request names its user.
const USERS: u128 = 5;

struct Fixture {
    runtime: tokio::runtime::Runtime,
    directory: tempfile::TempDir,
}

impl Fixture {
    /// Stores the simulated requests. Half of the spans of the second file are in small files, so
    /// that some files are held whole and others are read by pages.
    fn new() -> Self {
        let fixture = Self {
            runtime: tokio::runtime::Runtime::new().unwrap(),
            directory: tempfile::tempdir().unwrap(),
        };
        let store = fixture.store();
        for file in 0..workload::files(REQUESTS) {
            let mut rows = workload::rows(SEED, REQUESTS, file);
            for root in rows.spans.iter_mut().filter(|span| span.parent_id == 0) {
                root.attributes =
                    Some(format!("{{\"user\":\"u{}\"}}", root.trace_id % USERS).into());
            }
            let late = if file == 1 {
                rows.spans.split_off(rows.spans.len() / 2)
            } else {
                Vec::new()
            };
            for (number, spans) in late.chunks(500).enumerate() {
                let strings = workload::rows(SEED, 0, file).strings;
                let rows = Rows {
                    spans: spans.to_vec(),
                    strings,
                    ..Rows::default()
                };
                fixture.write(&store, &format!("late-{number}"), rows);
            }
            fixture.write(&store, &format!("seg-{file:010}"), rows);
        }
        fixture
    }

    fn write(&self, store: &Store, name: &str, rows: Rows) {
        let received_ns = workload::EPOCH_NS as i64;
        write_rows(
            store,
            name,
            rows,
            &PartitionRule::received(received_ns, received_ns),
        )
        .unwrap();
    }

    fn store(&self) -> Store {
        Store::local(self.directory.path(), self.runtime.handle().clone()).unwrap()
    }

    fn source(&self, parts: usize) -> Source {
        let source = Source::open(self.directory.path(), self.runtime.handle().clone()).unwrap();
        source.with_parts(PartsWanted::Exactly(parts))
    }
}

#[test]
fn ranges_hold_every_trace_once() {
    let fixture = Fixture::new();
    let whole: Vec<TraceRecords> = TraceReader::open(&fixture.store()).unwrap().collect();
    assert_eq!(whole.len() as u64, REQUESTS);
    let mut ids: Vec<TraceId> = (0..REQUESTS)
        .map(|number| TraceId(workload::request(SEED, number).trace_id))
        .collect();
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
        let mut read: Vec<_> = trace
            .spans
            .iter()
            .map(|s| (s.start_ns, s.end_ns, s.span_id, s.parent_id))
            .collect();
        read.sort_unstable();
        assert_eq!(read, spans);
        assert_eq!(
            trace
                .spans
                .iter()
                .map(|span| span.events.len())
                .sum::<usize>(),
            2
        );
    }
    let files = TraceFiles::open(&fixture.store(), &AttributeKeys::none()).unwrap();
    for parts in [1, 2, 3, 8, 30] {
        let ranges = files.ranges(parts, 0);
        assert_eq!(ranges.len(), parts);
        let read: Vec<Vec<TraceRecords>> = ranges
            .iter()
            .map(|range| files.read(range, parts).collect())
            .collect();
        let fullest = read.iter().map(Vec::len).max().unwrap();
        // Ids are random, so parts with many traces have about equally many.
        assert!(
            parts > 8 || fullest < REQUESTS as usize / parts * 5 / 4,
            "{fullest} of {parts} parts"
        );
        assert_eq!(read.concat(), whole, "{parts} parts");
    }
    assert!(files.ranges(8, 10_000).len() < 8 && files.ranges(8, u64::MAX).len() == 1);
}

/// Compared results: the model; traces, segments and relations at each point of the convergence;
/// the numbers of all and of complete traces; and everything else as text.
type Inferred = (ModelParts, Vec<(u64, usize, usize)>, (u64, u64), String);

fn inferred(inference: &Inference) -> Inferred {
    let points = inference.convergence.iter();
    let points = points
        .map(|point| (point.traces, point.segments, point.happens_before))
        .collect();
    let notes = &inference.notes;
    let seen = format!(
        "{:?} {:?} {:?}",
        notes.incomplete,
        notes.diagnostics,
        roots_json(&inference.roots)
    );
    (
        inference.model.parts(),
        points,
        (notes.traces, notes.complete_traces),
        seen,
    )
}

#[test]
fn parts_merge_to_the_whole() {
    let fixture = Fixture::new();
    let selection = Selection::default();
    let found = |parts: usize| -> (Inference, PathAggregate) {
        let source = fixture.source(parts);
        let settings = InferSettings {
            convergence: Some(LineLimit::Traces(100)),
            ..InferSettings::default()
        };
        let study = Study::new(source, selection, settings);
        let paths = study.ask(&PathsQuestion::default()).unwrap();
        assert_eq!(paths.notes.traces, REQUESTS);
        (study.into_inference().unwrap(), paths.aggregate)
    };
    let (one, one_aggregate) = found(1);
    assert_eq!(one.model.traces(), REQUESTS);
    assert!(one.model.labels().len() >= 100, "{:?}", one.model);
    for parts in [2, 3, 5] {
        let (several, aggregate) = found(parts);
        let (mut expected, mut found) = (inferred(&one), inferred(&several));
        // The number of parts determines which traces come first, but not their number at each
        // point or the final model.
        assert_eq!(found.1.last(), expected.1.last());
        assert_eq!(
            found.1.iter().map(|p| p.0).collect::<Vec<_>>(),
            [100, 200, 300, 400, 500, 600, 700]
        );
        (expected.1, found.1) = (Vec::new(), Vec::new());
        assert_eq!(found, expected);
        assert_eq!(aggregate, one_aggregate);
    }
}

#[test]
fn every_verb_finds_the_same_in_parts() {
    let fixture = Fixture::new();
    let selection = Selection::default();
    let found = |parts: usize| {
        let source = fixture.source(parts);
        assert_eq!(
            source
                .parts(selection, &AttributeKeys::none())
                .unwrap()
                .count(),
            parts
        );
        let study = Study::new(source, selection, InferSettings::default());
        let by = StrataRule {
            attribute: "user".to_owned(),
            quantiles: None,
        };
        let by_user = BreakdownQuestion {
            by: Some(by),
            ..BreakdownQuestion::default()
        };
        // The answers are the same if the questions are asked together during the inference, or one
        // by one afterwards.
        let strata = |report: BreakdownReport| (report.whole, report.strata, report.edges);
        let together = (
            by_user.clone(),
            (PredictSettings::default(), vec![AnomalyQuestion(0.05)]),
        );
        let (of_user, (predict, anomalies)) = study.ask(&together).unwrap();
        assert_eq!(
            study.source().readings(),
            2,
            "one for the model and what is asked of records, one for paths"
        );
        let anomalies = anomalies.into_iter().next().unwrap();
        let breakdown = strata(study.ask(&by_user).unwrap());
        assert_eq!(strata(of_user), breakdown);
        assert_eq!(
            study.ask(&PredictSettings::default()).unwrap().ranked,
            predict.ranked
        );
        assert_eq!(
            study.ask(&AnomalyQuestion(0.05)).unwrap().ranked,
            anomalies.ranked
        );
        assert!(
            !anomalies.outliers.is_zero()
                && anomalies.others.rounded() > anomalies.outliers.rounded(),
            "{anomalies:?}"
        );
        let slow = (
            anomalies.thresholds_ns,
            anomalies.outliers,
            anomalies.others,
            anomalies.ranked,
        );
        let segments = study.inference().unwrap().segments();
        let rank = segments
            .filter(|(_, label)| label.operation() == "ranker:rank")
            .map(|(id, _)| id)
            .collect();
        let what_if = what_if(&study, rank, Change::Scale(0.5)).unwrap();
        assert!(!what_if.latency.faster.is_zero());
        assert_eq!(breakdown.1.strata().len(), USERS as usize);
        let overview = study.ask(&OverviewQuestion::default()).unwrap();
        let examples = overview
            .examples
            .iter()
            .map(|example| (example.quantile, example.answer.id));
        let overview = (
            overview.breakdown,
            overview.server_slack,
            examples.collect::<Vec<_>>(),
        );
        assert_eq!(predict.ranked.len(), 1);
        let slack = check_slack(&study, &CategoryChoice::default(), 4).unwrap();
        let clocks = clocks(study.source(), selection, None).unwrap();
        assert!(
            clocks.round_trips > REQUESTS && clocks.hosts.len() == 12,
            "{:?}",
            clocks.hosts
        );
        let clocks = (
            clocks.alignment,
            clocks.hosts,
            clocks.round_trips,
            clocks.contradictions,
            clocks.notes.traces,
        );
        let slack = (slack.slack, slack.validation, slack.without_server);
        let predict = (predict.threshold_ns, predict.slack, predict.ranked);
        (
            slow,
            (what_if.segments, what_if.latency, what_if.expected),
            breakdown,
            overview,
            predict,
            slack,
            clocks,
        )
    };
    let one = found(1);
    for parts in [2, 5] {
        let several = found(parts);
        assert_eq!(several.0, one.0, "anomalies");
        assert_eq!(several.1, one.1, "what-if");
        assert_eq!(several.2, one.2, "strata");
        assert_eq!(several.3, one.3, "report");
        assert_eq!(several.4, one.4, "predict");
        assert_eq!(several.5, one.5, "slack");
        assert_eq!(several.6, one.6, "clocks");
    }
}

/// Creates four groups of requests, hours apart, each with a file of spans and one of events, and a
/// request that begins half an hour before the second group and continues in it.
#[test]
fn files_of_other_times_are_not_read() {
    const HOUR_NS: i64 = 3_600_000_000_000;
    const EACH: u64 = 40;
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let store = Store::local(directory.path(), runtime.handle().clone()).unwrap();
    let at_ns = |stretch: i64| workload::EPOCH_NS as i64 + stretch * 5 * HOUR_NS;
    let write = |name: &str, rows: Rows| {
        write_rows(
            &store,
            name,
            rows,
            &PartitionRule::received(at_ns(4), at_ns(4)),
        )
        .unwrap();
    };
    let straddling = u128::MAX / 3;
    for stretch in 0..4 {
        let mut rows = workload::rows(100 + stretch as u64, EACH, 0);
        let late = workload::rows(100 + stretch as u64, EACH, 1);
        rows.spans.extend(late.spans);
        rows.events.extend(late.events);
        for span in &mut rows.spans {
            (span.start_ns, span.end_ns) = (
                span.start_ns + stretch * 5 * HOUR_NS,
                span.end_ns + stretch * 5 * HOUR_NS,
            );
        }
        rows.events
            .iter_mut()
            .for_each(|event| event.time_ns += stretch * 5 * HOUR_NS);
        if stretch == 1 {
            let (strings, mut early) = (rows.strings.clone(), rows.spans[0].clone());
            (early.trace_id, early.span_id, early.parent_id) = (straddling, 1, 0);
            let late = SpanRow {
                span_id: 2,
                parent_id: 1,
                ..early.clone()
            };
            early.start_ns -= HOUR_NS / 2;
            rows.spans.push(late);
            write(
                "early",
                Rows {
                    spans: vec![early],
                    strings,
                    ..Rows::default()
                },
            );
        }
        write(&format!("stretch-{stretch}"), rows);
    }
    let range = |since: Option<i64>, until: Option<i64>| Selection {
        range: TimeRange {
            since_ns: since,
            until_ns: until,
        },
        ..Selection::default()
    };
    let check = |selection: Selection, files: (usize, usize), traces: u64| {
        let source = Source::open(directory.path(), runtime.handle().clone()).unwrap();
        assert_eq!(
            source
                .parts(selection, &AttributeKeys::none())
                .unwrap()
                .files(),
            files
        );
        let whole = TraceReader::open(&store)
            .unwrap()
            .filter(|trace| selection.range.holds(trace))
            .count();
        assert_eq!(whole as u64, traces);
        for parts in [1, 3] {
            let source = Source::open(directory.path(), runtime.handle().clone()).unwrap();
            let source = source.with_parts(PartsWanted::Exactly(parts));
            let notes = infer_with(&source, selection, &InferSettings::default())
                .unwrap()
                .notes;
            assert_eq!((notes.traces, notes.complete_traces), (traces, traces));
            assert_eq!(notes.damage, []);
        }
    };
    check(range(None, None), (9, 0), 4 * EACH + 1);
    check(
        range(Some(at_ns(1)), Some(at_ns(1) + HOUR_NS)),
        (3, 6),
        EACH,
    );
    check(
        range(Some(at_ns(1) - HOUR_NS), Some(at_ns(1) + HOUR_NS)),
        (3, 6),
        EACH + 1,
    );
    check(range(Some(at_ns(2)), None), (4, 5), 2 * EACH);
    check(range(None, Some(at_ns(1))), (5, 4), EACH + 1);
    check(
        range(Some(at_ns(0) + 2 * HOUR_NS), Some(at_ns(0) + 3 * HOUR_NS)),
        (0, 9),
        0,
    );
}
