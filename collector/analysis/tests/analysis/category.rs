//! Categories of segments by what attributes say.

use stroboscope_analysis::category::{OperationValues, VALUES_MAX};
use stroboscope_analysis::label::{Labels, SegmentLabel};
use stroboscope_analysis::record::{
    AttributeRecord, EventRecord, RecordOwner, SpanFlags, SpanRecord, TraceRecords,
};
use stroboscope_analysis::segment::segment;

fn said(owner: RecordOwner, key: &str, value: &str) -> AttributeRecord {
    AttributeRecord { owner, key: key.into(), value: value.into() }
}

/// `web:page` calls `web:GET /user/<id>`, which calls `db:read`.
fn trace(id: u64, values: &[(u64, &str)]) -> TraceRecords {
    let span = |span_id, service: &str, name: &str, at_ns: i64| SpanRecord {
        span_id,
        parent_id: span_id - 1,
        service: service.into(),
        name: name.into(),
        host: "h".into(),
        process: 0,
        start_ns: at_ns,
        end_ns: 100 - at_ns,
        flags: SpanFlags::default(),
        events: Vec::new(),
    };
    TraceRecords {
        spans: vec![
            span(1, "web", "page", 0),
            span(2, "web", &format!("GET /user/{id}"), 10),
            span(3, "db", "read", 20),
        ],
        attributes: values
            .iter()
            .map(|(span_id, value)| said(RecordOwner::Span(*span_id), "layer", value))
            .collect(),
        ..TraceRecords::default()
    }
}

#[test]
fn operations_are_of_what_most_of_their_spans_say() {
    let traces = [
        trace(1, &[(1, "front"), (2, "remote")]),
        trace(2, &[(1, "front"), (2, "local")]),
        trace(3, &[(1, "back"), (2, "remote")]),
    ];
    let mut labels = Labels::default();
    traces.iter().for_each(|records| drop(segment(records, &mut labels)));
    let (mut whole, mut parts) = (OperationValues::default(), OperationValues::default());
    for records in traces.iter().rev() {
        whole.observe(records, "layer");
        whole.observe(records, "another key");
        let mut part = OperationValues::default();
        part.observe(records, "layer");
        parts.merge(&part);
    }
    assert_eq!(whole, parts);
    let values: std::collections::BTreeMap<String, String> = labels
        .iter()
        .map(|(_, label)| (label.operation(), whole.value(label).unwrap().to_string()))
        .collect();
    // The last one says nothing, and runs inside the one before.
    let expected = [("db:read", "remote"), ("web:GET /user/*", "remote"), ("web:page", "front")];
    assert_eq!(values, expected.map(|(a, b)| (a.to_owned(), b.to_owned())).into());
}

#[test]
fn tasks_of_event_logs_are_of_what_their_events_say() {
    let event = |seq: u32, task: &str| EventRecord {
        host: "h".into(),
        ts_ns: seq.into(),
        seq,
        event: "e".into(),
        task: task.into(),
    };
    let records = TraceRecords {
        events: vec![event(0, "shop: cart"), event(1, "shop: cart"), event(2, "log")],
        attributes: vec![
            said(RecordOwner::Event(0), "layer", "b"),
            said(RecordOwner::Event(1), "layer", "a"),
            said(RecordOwner::Event(9), "layer", "of no event"),
        ],
        ..TraceRecords::default()
    };
    let mut values = OperationValues::default();
    values.observe(&records, "layer");
    let value = |task| values.value(&SegmentLabel::new(task, "e", "e")).map(|value| value.to_string());
    assert_eq!((value("shop: cart"), value("log")), (Some("a".to_owned()), None));
}

#[test]
fn values_are_bounded() {
    let mut values = OperationValues::default();
    for number in 0..=VALUES_MAX {
        let operation = format!("task {number:03}");
        let records = TraceRecords {
            events: vec![EventRecord {
                host: "h".into(),
                ts_ns: 0,
                seq: 0,
                event: "e".into(),
                task: operation.as_str().into(),
            }],
            attributes: vec![said(RecordOwner::Event(0), "id", &number.to_string())],
            ..TraceRecords::default()
        };
        values.observe(&records, "id");
    }
    let value =
        |number: usize| values.value(&SegmentLabel::new(&format!("task {number:03}"), "e", "e")).cloned();
    assert_eq!((value(0).as_deref(), value(VALUES_MAX).as_deref()), (Some("0"), None));
}
