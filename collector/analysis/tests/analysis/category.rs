//! Categories of segments by the values of attributes.

use stroboscope_analysis::attribute::Attribute;
use stroboscope_analysis::category::{OperationValues, VALUES_MAX};
use stroboscope_analysis::label::{Labels, SegmentLabel};
use stroboscope_analysis::record::{
    AttributeRecord, EventRecord, RecordOwner, SEVERAL_VALUES, SpanFlags, SpanRecord, TraceRecords,
};
use stroboscope_analysis::segment::segment;

fn said(owner: RecordOwner, key: &str, value: &str) -> AttributeRecord {
    AttributeRecord {
        owner,
        key: key.into(),
        value: value.into(),
    }
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
fn operations_are_of_what_nearly_all_of_their_spans_say() {
    let traces = [
        trace(1, &[(1, "front"), (2, "remote")]),
        trace(2, &[(1, "front"), (2, "local")]),
        trace(3, &[(1, "back"), (2, "remote")]),
    ];
    let mut labels = Labels::default();
    traces
        .iter()
        .for_each(|records| drop(segment(records, &mut labels)));
    let new = || OperationValues::new(Attribute::named("layer"));
    let (mut whole, mut parts) = (new(), new());
    for records in traces.iter().rev() {
        whole.observe(records);
        let mut part = new();
        part.observe(records);
        parts.merge(&part);
    }
    assert_eq!(whole, parts);
    let values: std::collections::BTreeMap<String, String> = labels
        .iter()
        .map(|(_, label)| (label.operation(), whole.value(label).unwrap().to_string()))
        .collect();
    // The last span has no value of its own, and runs inside the previous one.
    let several = SEVERAL_VALUES;
    let expected = [
        ("db:read", several),
        ("web:GET /user/*", several),
        ("web:page", several),
    ];
    assert_eq!(
        values,
        expected.map(|(a, b)| (a.to_owned(), b.to_owned())).into()
    );
    // One value in twenty differs.
    (0..18).for_each(|_| whole.observe(&traces[0]));
    let values: std::collections::BTreeMap<String, String> = labels
        .iter()
        .map(|(_, label)| (label.operation(), whole.value(label).unwrap().to_string()))
        .collect();
    let expected = [
        ("db:read", "remote"),
        ("web:GET /user/*", "remote"),
        ("web:page", "front"),
    ];
    assert_eq!(
        values,
        expected.map(|(a, b)| (a.to_owned(), b.to_owned())).into()
    );
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
        events: vec![
            event(0, "shop: cart"),
            event(1, "shop: cart"),
            event(2, "log"),
        ],
        attributes: vec![
            said(RecordOwner::Event(0), "layer", "b"),
            said(RecordOwner::Event(1), "layer", "a"),
            said(RecordOwner::Event(9), "layer", "of no event"),
        ],
        ..TraceRecords::default()
    };
    let mut values = OperationValues::new(Attribute::named("layer"));
    values.observe(&records);
    let value = |task| {
        values
            .value(&SegmentLabel::new(task, "e", "e"))
            .map(|value| value.to_string())
    };
    assert_eq!(
        (value("shop: cart"), value("log")),
        (Some(SEVERAL_VALUES.to_owned()), None)
    );
}

#[test]
fn values_are_bounded() {
    let mut values = OperationValues::new(Attribute::named("id"));
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
        values.observe(&records);
    }
    let value =
        |number: usize| values.value(&SegmentLabel::new(&format!("task {number:03}"), "e", "e"));
    assert_eq!(
        (value(0).as_deref(), value(VALUES_MAX).as_deref()),
        (Some("0"), None)
    );
}

#[test]
fn what_is_known_of_every_span_makes_categories() {
    let span = |span_id: u64, service: &str, flags| SpanRecord {
        span_id,
        parent_id: span_id - 1,
        service: service.into(),
        name: format!("GET /{span_id}").into(),
        host: if span_id == 3 {
            "".into()
        } else {
            format!("on {service}").into()
        },
        process: 1,
        start_ns: span_id as i64,
        end_ns: 20 - span_id as i64,
        flags,
        events: Vec::new(),
    };
    let none = SpanFlags::default();
    let records = TraceRecords {
        spans: vec![
            span(1, "web", SpanFlags::SERVER),
            span(2, "db", none),
            span(3, "log", none),
        ],
        attributes: vec![said(RecordOwner::Span(3), "span.kind", "producer")],
        ..TraceRecords::default()
    };
    let mut labels = Labels::default();
    drop(segment(&records, &mut labels));
    let found = |name: &str| -> Vec<String> {
        let mut values = OperationValues::new(Attribute::named(name));
        values.observe(&records);
        let one = |service: &str| {
            let label = labels
                .iter()
                .map(|(_, label)| label)
                .find(|label| label.operation().starts_with(service));
            values
                .value(label.expect("the span has segments"))
                .map_or_else(String::new, |value| value.to_string())
        };
        ["web", "db", "log"].map(one).to_vec()
    };
    assert_eq!(found("service"), ["web", "db", "log"]);
    // The host of the last span is unknown, so the host of its parent counts.
    assert_eq!(found("host.name"), ["on web", "on db", "on db"]);
    assert_eq!(
        found("operation"),
        ["web:GET /*", "db:GET /*", "log:GET /*"]
    );
    assert_eq!(found("kind"), ["server", "internal", "producer"]);
    assert_eq!(found("shoe"), ["", "", ""]);
}
