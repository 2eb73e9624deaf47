//! Requests of OTLP: the fast path against the slow one.

use proptest::prelude::*;
use prost::Message as _;
use stroboscope_otlp::message::{
    AnyKind, AnyValue, ArrayValue, Event, KeyValue, Link, Resource, ResourceSpans, Scope,
    ScopeSpans, Span, Status,
};
use stroboscope_otlp::plain_records;
use stroboscope_store::decode::{check_otlp_protobuf, otlp_protobuf, otlp_protobuf_slowly};
use stroboscope_store::limits::Limits;
use stroboscope_store::record::{EventRow, Rows, SpanRow};

fn limits() -> Limits {
    Limits {
        string_bytes_max: 32,
        attributes_per_record_max: 36,
        ..Limits::default()
    }
}

fn value() -> impl Strategy<Value = AnyValue> {
    let leaf = prop_oneof![
        "[a-z\0]{0,16}".prop_map(AnyKind::Text),
        any::<bool>().prop_map(AnyKind::Bool),
        any::<i64>().prop_map(AnyKind::Int),
        any::<f64>().prop_map(AnyKind::Double),
        proptest::collection::vec(any::<u8>(), 0..4).prop_map(AnyKind::Bytes),
    ];
    let leaf = proptest::option::of(leaf).prop_map(|kind| AnyValue { kind });
    leaf.prop_recursive(3, 8, 3, |inner| {
        proptest::collection::vec(inner, 0..3).prop_map(|values| AnyValue {
            kind: Some(AnyKind::Array(ArrayValue { values })),
        })
    })
}

fn pairs(most: usize) -> impl Strategy<Value = Vec<KeyValue>> {
    let key = prop_oneof!["service.name", "host.name", "[a-z]{1,3}"];
    let pair =
        (key, proptest::option::of(value())).prop_map(|(key, value)| KeyValue { key, value });
    proptest::collection::vec(pair, 0..most)
}

fn id(length: usize) -> impl Strategy<Value = Vec<u8>> {
    let odd = proptest::collection::vec(0..2_u8, 0..18);
    prop_oneof![20 => proptest::collection::vec(any::<u8>(), length), 1 => odd]
}

fn time() -> impl Strategy<Value = u64> {
    prop_oneof![20 => 0..100_u64, 1 => Just(u64::MAX)]
}

fn span() -> impl Strategy<Value = Span> {
    let event = (time(), "[a-z]{0,34}", pairs(3), 0..2_u32);
    let event = event.prop_map(|(time, name, attributes, dropped)| Event {
        time_unix_nano: time,
        name,
        attributes,
        dropped_attributes_count: dropped,
    });
    let link = (id(16), id(8), pairs(2)).prop_map(|(trace_id, span_id, attributes)| Link {
        trace_id,
        span_id,
        attributes,
        ..Link::default()
    });
    let more = (
        proptest::collection::vec(event, 0..3),
        proptest::collection::vec(link, 0..2),
        proptest::option::of((0..4_i32, "[a-z]{0,3}")),
        any::<u32>(),
    );
    let ids = (id(16), id(8), prop_oneof![Just(Vec::new()), id(8)]);
    (
        ids,
        "[a-z]{0,33}",
        -1..8_i32,
        time(),
        time(),
        pairs(8),
        more,
    )
        .prop_map(
            |((trace_id, span_id, parent_span_id), name, kind, start, end, attributes, more)| {
                Span {
                    trace_id,
                    span_id,
                    parent_span_id,
                    name,
                    kind,
                    start_time_unix_nano: start.min(end),
                    end_time_unix_nano: if start == 7 { 0 } else { end },
                    attributes,
                    events: more.0,
                    links: more.1,
                    status: more.2.map(|(code, message)| Status {
                        code,
                        message,
                        ..Status::default()
                    }),
                    flags: more.3,
                    ..Span::default()
                }
            },
        )
}

/// Generates a request: a list of `ResourceSpans`, each after its tag.
fn request() -> impl Strategy<Value = Vec<u8>> {
    let of_scope = (pairs(2), proptest::collection::vec(span(), 0..4));
    let of_scope = of_scope.prop_map(|(attributes, spans)| ScopeSpans {
        scope: Some(Scope {
            name: "lib".to_owned(),
            attributes,
            ..Scope::default()
        }),
        spans,
        ..ScopeSpans::default()
    });
    let of_resource = (pairs(4), proptest::collection::vec(of_scope, 0..3));
    let of_resource = of_resource.prop_map(|(attributes, scope_spans)| ResourceSpans {
        resource: Some(Resource {
            attributes,
            ..Resource::default()
        }),
        scope_spans,
        ..ResourceSpans::default()
    });
    proptest::collection::vec(of_resource, 0..3).prop_map(|all| request_of(&all))
}

fn request_of(all: &[ResourceSpans]) -> Vec<u8> {
    all.iter().fold(Vec::new(), |mut bytes, one| {
        bytes.push(0x0a);
        bytes.extend(one.encode_length_delimited_to_vec());
        bytes
    })
}

/// Checks that a plain request is converted as a whole, and that the fast and the slow path agree.
/// Returns the number of its records; `None` if it is not plain.
fn check(bytes: &[u8]) -> Option<u64> {
    let plain = plain_records(bytes, limits().of_span());
    if let Some(records) = plain {
        let mut rows = Rows::default();
        let found = otlp_protobuf(bytes, &limits(), &mut rows).expect("is plain");
        assert_eq!(
            (found.records, found.rejected),
            (records, 0),
            "{:?}",
            found.reason
        );
        assert_eq!(records as usize, rows.spans.len() + rows.events.len());
    }
    // Both paths give the same rows and the same texts.
    let (mut fast, mut slow) = (Rows::default(), Rows::default());
    let found = otlp_protobuf(bytes, &limits(), &mut fast);
    assert_eq!(found, otlp_protobuf_slowly(bytes, &limits(), &mut slow));
    if found.is_ok() {
        assert_eq!(texts(&fast), texts(&slow));
    }
    plain
}

/// Formats rows with their strings instead of string ids.
fn texts(rows: &Rows) -> Vec<String> {
    let text = |id| rows.strings.text(id);
    let spans = rows.spans.iter().map(|row| {
        let names = [row.service, row.name, row.host].map(text);
        let plain = SpanRow {
            service: 0,
            name: 0,
            host: 0,
            ..row.clone()
        };
        format!("{names:?} {plain:?}")
    });
    let events = rows.events.iter().map(|row| {
        let names = [row.service, row.name, row.host].map(text);
        let plain = EventRow {
            service: 0,
            name: 0,
            host: 0,
            ..row.clone()
        };
        format!("{names:?} {plain:?}")
    });
    spans.chain(events).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn what_is_plain_is_right(bytes in request(), at in any::<prop::sample::Index>(), with in any::<u8>(), cut in any::<prop::sample::Index>()) {
        check(&bytes);
        if !bytes.is_empty() {
            let mut changed = bytes.clone();
            let place = at.index(changed.len());
            changed[place] = with;
            check(&changed);
            check(&bytes[..cut.index(bytes.len())]);
        }
    }
}

/// An ordinary request and an empty one take the fast path.
#[test]
fn what_exporters_send_is_plain() {
    let span = Span {
        trace_id: vec![1; 16],
        span_id: vec![2; 8],
        name: "get".to_owned(),
        kind: 2,
        start_time_unix_nano: 1,
        end_time_unix_nano: 2,
        attributes: vec![KeyValue {
            key: "n".to_owned(),
            value: Some(AnyValue {
                kind: Some(AnyKind::Int(-1)),
            }),
        }],
        events: vec![Event::default()],
        ..Span::default()
    };
    let of_resource = ResourceSpans {
        scope_spans: vec![ScopeSpans {
            spans: vec![span.clone(), span],
            ..ScopeSpans::default()
        }],
        ..ResourceSpans::default()
    };
    let bytes = request_of(&[of_resource]);
    assert_eq!(check(&bytes), Some(4));
    assert_eq!(check(&[]), Some(0));
}

/// Invalid UTF-8 in one text affects only this text.
#[test]
fn one_bad_text_loses_no_span() {
    let span = |id: u8, name: &str| Span {
        trace_id: vec![1; 16],
        span_id: vec![id; 8],
        name: name.to_owned(),
        start_time_unix_nano: 1_000,
        end_time_unix_nano: 2_000,
        ..Span::default()
    };
    let scope = ScopeSpans {
        spans: vec![span(1, "bad\u{7f}"), span(2, "good")],
        ..ScopeSpans::default()
    };
    let of_resource = ResourceSpans {
        scope_spans: vec![scope],
        ..ResourceSpans::default()
    };
    let of_resource = of_resource.encode_to_vec();
    let mut request = vec![0x0a, u8::try_from(of_resource.len()).unwrap()];
    assert!(of_resource.len() < 128);
    request.extend(of_resource);
    request
        .iter_mut()
        .filter(|byte| **byte == 0x7f)
        .for_each(|byte| *byte = 0xff);
    let limits = Limits::default();
    let checked = check_otlp_protobuf(&request, &limits).unwrap();
    let mut rows = Rows::default();
    let taken = otlp_protobuf(&request, &limits, &mut rows).unwrap();
    assert_eq!(taken, checked);
    assert_eq!(
        (taken.records, taken.rejected, taken.replaced_texts),
        (2, 0, 1)
    );
    let names = rows.spans.iter().map(|span| rows.strings.text(span.name));
    assert_eq!(names.collect::<Vec<_>>(), ["bad\u{fffd}", "good"]);
}

/// Both paths put a function's module before its name, and name statements of databases.
#[test]
fn both_paths_name_functions_and_statements_alike() {
    let pair = |key: &str, text: &str| KeyValue {
        key: key.to_owned(),
        value: Some(AnyValue {
            kind: Some(AnyKind::Text(text.to_owned())),
        }),
    };
    let span = |id: u8, attributes: &[(&str, &str)]| Span {
        trace_id: vec![1; 16],
        span_id: vec![id; 8],
        name: "apply".to_owned(),
        kind: 1,
        start_time_unix_nano: 1,
        end_time_unix_nano: 2,
        attributes: attributes
            .iter()
            .map(|(key, text)| pair(key, text))
            .collect(),
        ..Span::default()
    };
    let of_resource = ResourceSpans {
        scope_spans: vec![ScopeSpans {
            spans: vec![
                span(1, &[("code.namespace", "redis::cmd::get")]),
                span(
                    2,
                    &[("a", "b"), ("code.function.name", "redis::cmd::set::apply")],
                ),
                span(3, &[("code.module.name", "redis")]),
                span(
                    4,
                    &[
                        ("db.operation.name", "apply"),
                        ("db.query.text", "SELECT\t'a\u{1}\"'"),
                    ],
                ),
            ],
            ..ScopeSpans::default()
        }],
        ..ResourceSpans::default()
    };
    let bytes = request_of(&[of_resource]);
    assert_eq!(check(&bytes), Some(4));
    let mut rows = Rows::default();
    otlp_protobuf(&bytes, &limits(), &mut rows).unwrap();
    let names = rows.spans.iter().map(|span| rows.strings.text(span.name));
    assert_eq!(
        names.collect::<Vec<_>>(),
        ["get::apply", "set::apply", "apply", "SELECT ?"]
    );
    let attributes = rows.spans[0].attributes.as_deref().unwrap();
    assert!(
        attributes.contains(r#""otel.span_name":"apply""#),
        "{attributes}"
    );
}
