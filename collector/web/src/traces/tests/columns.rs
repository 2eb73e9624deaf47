//! Tests that a decoder restores every request from its encoded columns.

use std::collections::{BTreeMap, HashMap, HashSet};

use proptest::prelude::*;
use serde_json::Value;
use stroboscope_analysis::critical_path::analyse;
use stroboscope_analysis::model::Model;
use stroboscope_analysis::record::{
    EventRecord, PointEvent, SpanFlags, SpanRecord, TraceId, TraceRecords,
};
use stroboscope_analysis::segment::{Segmenter, owners};
use stroboscope_query::{Request, RequestConnection, unmodelled};
use stroboscope_store::query_memory::QueryMemory;

use crate::traces::request_columns::columns_of;

/// Decoded columns of a request. `columns` contains all numbers as `f64`, except the ids of spans.
pub(super) struct Decoded {
    pub(super) head: Value,
    pub(super) columns: HashMap<String, Vec<f64>>,
    ids: Vec<u64>,
}

pub(super) fn decode(bytes: &[u8]) -> Decoded {
    assert_eq!(&bytes[..4], b"STRC");
    assert_eq!(u16::from_le_bytes([bytes[4], bytes[5]]), 1);
    let head_bytes = u32::from_le_bytes(bytes[8..12].try_into().unwrap()) as usize;
    let head: Value = serde_json::from_slice(&bytes[12..12 + head_bytes]).unwrap();
    let base = (12 + head_bytes).div_ceil(8) * 8;
    let (mut columns, mut ids) = (HashMap::new(), Vec::new());
    for (name, place) in head["columns"].as_object().unwrap() {
        let at = base + place["at"].as_u64().unwrap() as usize;
        let count = place["count"].as_u64().unwrap() as usize;
        assert_eq!(at % 8, 0, "{name} is not aligned");
        let of = |width: usize| bytes[at..at + count * width].chunks(width);
        let values: Vec<f64> = match place["type"].as_str().unwrap() {
            "f64" => of(8)
                .map(|b| f64::from_le_bytes(b.try_into().unwrap()))
                .collect(),
            "u32" => of(4)
                .map(|b| u32::from_le_bytes(b.try_into().unwrap()).into())
                .collect(),
            "u16" => of(2)
                .map(|b| u16::from_le_bytes(b.try_into().unwrap()).into())
                .collect(),
            "u8" => of(1).map(|b| b[0].into()).collect(),
            "u64" => {
                ids = of(8)
                    .map(|b| u64::from_le_bytes(b.try_into().unwrap()))
                    .collect();
                Vec::new()
            }
            other => panic!("{name} is of {other}"),
        };
        columns.insert(name.clone(), values);
    }
    Decoded { head, columns, ids }
}

pub(super) fn request_of(recorded: TraceRecords, moved_ns: i64) -> Request {
    let mut aligned = recorded.clone();
    for span in aligned.spans.iter_mut().filter(|span| &*span.host == "h1") {
        span.start_ns += moved_ns;
        span.end_ns += moved_ns;
        span.events
            .iter_mut()
            .for_each(|event| event.time_ns += moved_ns);
    }
    let (mut segmenter, mut model) = (Segmenter::default(), Model::new());
    let (trace, _) = segmenter.segment(&aligned, model.labels_mut());
    model.observe(&trace);
    let path = analyse(&trace, &model.relations(0.0));
    let outline = segmenter.outline(&aligned);
    let labels = model.labels().clone();
    Request {
        owners: owners(&aligned, &outline, &trace.segments, &labels),
        spans_in_store: recorded.spans.len() as u64,
        share: QueryMemory::unbounded().share(),
        recorded,
        aligned,
        outline,
        trace,
        labels,
        unmodelled: Vec::new(),
        path: Some(path),
        failure: None,
        connection: RequestConnection::default(),
        follows: stroboscope_query::Follows::default(),
        reasons: Vec::new(),
        kernel: Vec::new(),
        damage: Vec::new(),
    }
}

type DrawnSpan = (u64, usize, usize, u8, i64, i64, u32, Vec<i64>);

fn records(drawn: &[DrawnSpan], events: &[(u8, i64)]) -> TraceRecords {
    const BASE_NS: i64 = 1_795_309_397_000_000_000;
    let span = |(at, drawn): (usize, &DrawnSpan)| {
        let (id, parent, name, host, start_ns, takes_ns, flags, points) = drawn;
        let start_ns = BASE_NS + start_ns;
        SpanRecord {
            // Spans may have equal ids.
            span_id: id + 1,
            parent_id: if at == 0 { 0 } else { (*parent % 70) as u64 },
            service: format!("<script>{}", name % 3).into(),
            name: format!("n\"{name}").into(),
            host: format!("h{host}").into(),
            process: 1,
            start_ns,
            end_ns: start_ns + takes_ns,
            flags: SpanFlags(*flags),
            events: points
                .iter()
                .map(|after_ns| PointEvent {
                    time_ns: start_ns + after_ns,
                    name: format!("e{}", after_ns % 3).into(),
                    element: None,
                })
                .collect(),
        }
    };
    let event = |(seq, (task, at_ns)): (usize, &(u8, i64))| EventRecord {
        host: "h0".into(),
        ts_ns: BASE_NS + at_ns,
        seq: seq as u32,
        event: format!("e{}", seq % 4).into(),
        task: format!("task {task}").into(),
    };
    TraceRecords {
        id: TraceId(7),
        spans: drawn.iter().enumerate().map(span).collect(),
        events: events.iter().enumerate().map(event).collect(),
        ..TraceRecords::default()
    }
}

fn check(request: &Request) {
    let decoded = decode(&columns_of(request).encode());
    let column = |name: &str| &decoded.columns[name];
    let origin_ns: i64 = decoded.head["origin_ns"].as_str().unwrap().parse().unwrap();
    let at = |offset: f64| origin_ns + offset as i64;
    // The columns contain the spans of the outline, with the times of their records.
    let tasks = column("spans.flags")
        .iter()
        .filter(|flags| **flags as u32 & 512 != 0)
        .count();
    assert_eq!(decoded.ids.len(), request.outline.len() + tasks);
    let distinct: HashSet<u64> = request
        .recorded
        .spans
        .iter()
        .map(|span| span.span_id)
        .collect();
    assert_eq!(distinct.len(), request.outline.len());
    for (place, of) in request.outline.iter().enumerate() {
        let (span, recorded) = (
            &request.aligned.spans[of.record],
            &request.recorded.spans[of.record],
        );
        assert_eq!(decoded.ids[place], span.span_id);
        assert_eq!(at(column("spans.start")[place]), span.start_ns);
        assert_eq!(at(column("spans.end")[place]), span.end_ns);
        if let Some(raw) = decoded.columns.get("spans.raw_start") {
            assert_eq!(at(raw[place]), recorded.start_ns);
            assert_eq!(at(column("spans.raw_end")[place]), recorded.end_ns);
        } else {
            assert_eq!(span.start_ns, recorded.start_ns);
        }
        let parent = column("spans.parent")[place];
        if parent < f64::from(u32::MAX) {
            assert!(
                (parent as usize) < place,
                "each span stands before those below it"
            );
            assert_eq!(decoded.ids[parent as usize], span.parent_id);
        } else {
            let is_orphan = column("spans.flags")[place] as u32 & 256 != 0;
            assert_eq!(is_orphan, span.parent_id != 0);
        }
        let operation = &decoded.head["operations"][column("spans.operation")[place] as usize];
        let service = &decoded.head["services"][operation[0].as_u64().unwrap() as usize];
        assert_eq!(
            (service.as_str(), operation[1].as_str()),
            (Some(&*span.service), Some(&*span.name))
        );
        let host = &decoded.head["hosts"][column("spans.host")[place] as usize];
        assert_eq!(host["name"].as_str(), Some(&*span.host));
        assert_eq!(column("spans.flags")[place] as u32 & 255, span.flags.0);
    }
    check_segments(request, &decoded, &at);
}

fn check_segments(request: &Request, decoded: &Decoded, at: &impl Fn(f64) -> i64) {
    let column = |name: &str| &decoded.columns[name];
    let path = request.path.as_ref().unwrap();
    assert_eq!(column("segments.start").len(), path.segments.len());
    let mut path_ns = path.tail_wait_ns as f64;
    let mut rows: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (row, timing) in path.segments.iter().enumerate() {
        let of = |name: &str| decoded.columns[&format!("segments.{name}")][row];
        assert_eq!(
            (at(of("start")), at(of("end"))),
            (timing.start_ns, timing.end_ns)
        );
        assert_eq!(
            (of("wait"), of("slack")),
            (timing.wait_ns as f64, timing.slack_ns as f64)
        );
        let flags = of("flags") as u8;
        assert_eq!(
            (flags & 1 != 0, flags & 2 != 0),
            (timing.critical, timing.after_answer)
        );
        if timing.critical {
            path_ns += of("end") - of("start") + of("wait");
        }
        let label = request.labels.get(timing.segment).unwrap();
        let boundary = |name: &str| {
            decoded.head["boundaries"][of(name) as usize]
                .as_str()
                .unwrap()
                .to_owned()
        };
        assert_eq!(
            (&*label.start, &*label.end),
            (&*boundary("from"), &*boundary("to"))
        );
        // A segment lies within the times of its span or task.
        let span = of("span") as usize;
        assert!(
            column("spans.start")[span] <= of("start") && of("end") <= column("spans.end")[span]
        );
        rows.entry(span).or_default().push(row);
    }
    // The critical path, as a reader adds it up, is as long as the latency.
    assert_eq!(path_ns, path.latency_ns as f64);
    // The segments of one row never overlap.
    for of_row in rows.values() {
        assert!(
            of_row.windows(2).all(|pair| {
                column("segments.end")[pair[0]] <= column("segments.start")[pair[1]]
            })
        );
    }
    let events: usize = request
        .outline
        .iter()
        .map(|of| request.aligned.spans[of.record].events.len())
        .sum();
    assert_eq!(column("events.at").len(), events);
}

proptest! {
    #[test]
    fn any_request_is_read_back(
        drawn in proptest::collection::vec(
            (0u64..80, 0usize..70, 0usize..5, 0u8..3, 0i64..1_000_000, 1i64..1_000_000, 0u32..256,
             proptest::collection::vec(0i64..1_000_000, 0..3)),
            1..60,
        ),
        moved_ns in prop_oneof![Just(0i64), -5_000i64..5_000],
    ) {
        let mut recorded = records(&drawn, &[]);
        // The analysis keeps one of several spans with equal ids. This test does not check which.
        let mut seen = HashSet::new();
        recorded.spans.retain(|span| seen.insert(span.span_id));
        check(&request_of(recorded, moved_ns));
    }
}

#[test]
fn tasks_of_event_logs_have_rows() {
    let events = [(0, 10), (1, 20), (0, 30), (1, 50), (0, 70)];
    let request = request_of(records(&[], &events), 0);
    let decoded = decode(&columns_of(&request).encode());
    let column = |name: &str| &decoded.columns[name];
    assert_eq!(column("spans.start").len(), 2);
    assert_eq!(column("spans.end"), &[60.0, 40.0]);
    assert_eq!(column("spans.start"), &[0.0, 10.0]);
    let name = |place: usize| {
        let operation = &decoded.head["operations"][column("spans.operation")[place] as usize];
        operation[1].as_str().unwrap().to_owned()
    };
    assert_eq!((name(0), name(1)), ("task 0".into(), "task 1".into()));
    assert_eq!(column("segments.span"), &[0.0, 1.0, 0.0]);
}

#[test]
fn a_hundred_thousand_spans_take_a_few_megabytes() {
    let span = |at: u64| SpanRecord {
        span_id: at + 1,
        parent_id: if at == 0 { 0 } else { at / 8 + 1 },
        service: "web".into(),
        name: format!("step {}", at % 9).into(),
        host: "h0".into(),
        process: 1,
        start_ns: at as i64 * 10,
        end_ns: at as i64 * 10 + 2_000_000 / (1 + at as i64 % 7),
        flags: SpanFlags(0),
        events: Vec::new(),
    };
    let recorded = TraceRecords {
        id: TraceId(7),
        spans: (0..100_000).map(span).collect(),
        ..TraceRecords::default()
    };
    let mut request = request_of(TraceRecords::default(), 0);
    let (mut segmenter, mut model) = (Segmenter::default(), Model::new());
    let (trace, _) = segmenter.segment(&recorded, model.labels_mut());
    request.outline = segmenter.outline(&recorded);
    request.labels = model.labels().clone();
    request.owners = owners(
        &recorded,
        &request.outline,
        &trace.segments,
        &request.labels,
    );
    request.unmodelled = unmodelled(&recorded, &request.outline, &request.owners);
    (request.trace, request.path) = (trace, None);
    (request.aligned, request.recorded) = (recorded.clone(), recorded);
    let bytes = columns_of(&request).encode();
    // The columns contain all segments, although the model has room for only some labels.
    let segments = request.trace.segments.len() + request.unmodelled.len();
    assert!(segments > 100_000, "{segments}");
    // The expected size is at most 34 bytes per span and 45 per segment, without names.
    let expected = 100_000 * 34 + segments * 45;
    assert!(
        bytes.len() < expected + 100_000,
        "{} bytes for {segments} segments",
        bytes.len()
    );
}
