//! Tests that OTLP that is stored is returned unchanged.

use proptest::prelude::*;
use prost::Message as _;
use stroboscope_otlp::message::{
    AnyKind, AnyValue, ArrayValue, Event, KeyValue, KeyValueList, Link, Resource, ResourceSpans,
    Scope, ScopeSpans, Span, Status,
};
use stroboscope_otlp::{resource_spans, resource_spans_json};

use crate::served::Served;

/// Returns a normal form of requests without the orders that OTLP leaves open: each span with its
/// resource and scope, and attributes by key. Empty fields count as absent.
pub(crate) fn normal(messages: &[ResourceSpans]) -> Vec<String> {
    let mut spans = Vec::new();
    for message in messages {
        let mut resource = message.resource.clone().unwrap_or_default();
        sort(&mut resource.attributes);
        for of_scope in &message.scope_spans {
            let mut scope = of_scope.scope.clone().unwrap_or_default();
            sort(&mut scope.attributes);
            for span in &of_scope.spans {
                let mut span = span.clone();
                sort(&mut span.attributes);
                span.events
                    .iter_mut()
                    .for_each(|event| sort(&mut event.attributes));
                span.links
                    .iter_mut()
                    .for_each(|link| sort(&mut link.attributes));
                // Events are ordered by time; events of the same time keep their order.
                span.events.sort_by_key(|event| event.time_unix_nano);
                span.status = span.status.filter(|status| *status != Status::default());
                spans.push(format!(
                    "{resource:?} {:?} {scope:?} {:?} {span:?}",
                    message.schema_url, of_scope.schema_url
                ));
            }
        }
    }
    spans.sort();
    spans
}

fn sort(pairs: &mut [KeyValue]) {
    pairs.sort_by(|a, b| a.key.cmp(&b.key));
    pairs.iter_mut().for_each(fill);
}

/// Replaces a missing value by a value without a kind.
fn fill(pair: &mut KeyValue) {
    fill_value(pair.value.get_or_insert_default());
}

fn fill_value(value: &mut AnyValue) {
    match &mut value.kind {
        Some(AnyKind::Array(array)) => array.values.iter_mut().for_each(fill_value),
        Some(AnyKind::Map(map)) => map.values.iter_mut().for_each(fill),
        _ => {}
    }
}

fn value(depth: u32) -> BoxedStrategy<AnyValue> {
    let doubles = vec![0.1, -0.0, 5.0, 1e300, 123_456_789.123_456_78, f64::INFINITY];
    let kind = prop_oneof![
        "[ -~é\n\"\\\\]{0,8}".prop_map(AnyKind::Text),
        Just(AnyKind::Text("inf".to_owned())),
        any::<bool>().prop_map(AnyKind::Bool),
        any::<i64>().prop_map(AnyKind::Int),
        any::<f64>().prop_map(AnyKind::Double),
        prop::sample::select(doubles).prop_map(AnyKind::Double),
        prop::collection::vec(any::<u8>(), 0..20).prop_map(AnyKind::Bytes),
    ];
    let leaf = prop::option::weighted(0.9, kind).prop_map(|kind| AnyValue { kind });
    if depth == 0 {
        return leaf.boxed();
    }
    let array = prop::collection::vec(value(depth - 1), 0..3).prop_map(|values| AnyValue {
        kind: Some(AnyKind::Array(ArrayValue { values })),
    });
    let map = pairs(depth - 1, "[a-c]{1,2}").prop_map(|values| AnyValue {
        kind: Some(AnyKind::Map(KeyValueList { values })),
    });
    prop_oneof![4 => leaf, 1 => array, 1 => map].boxed()
}

/// Generates attributes with unique keys, as OTLP requires.
fn pairs(depth: u32, keys: &'static str) -> BoxedStrategy<Vec<KeyValue>> {
    let pair = (keys, prop::option::weighted(0.95, value(depth)));
    let list = prop::collection::vec(pair, 0..6);
    list.prop_map(|pairs| {
        let mut known = std::collections::BTreeSet::new();
        let is_new = |(key, _): &(String, _)| known.insert(key.clone());
        let unique = pairs.into_iter().filter(is_new).collect::<Vec<_>>();
        let pair = |(key, value)| KeyValue { key, value };
        unique.into_iter().map(pair).collect()
    })
    .boxed()
}

/// Keys under which the store keeps other fields, and ordinary keys.
const KEYS: &str = "error|span\\.kind|links|otel\\.(scope\\.name|exact|own_names|shadowed|flags|status_code|event_name|dropped_attributes_count)|resource\\.a|scope\\.a|w3c\\.tracestate|[ab]|http\\.route|element";

fn time() -> impl Strategy<Value = u64> {
    1_700_000_000_000_000_000_u64..1_700_000_100_000_000_000
}

fn event() -> impl Strategy<Value = Event> {
    ("(event|x)?", time(), pairs(1, KEYS), 0..3_u32).prop_map(
        |(name, time_unix_nano, attributes, dropped_attributes_count)| Event {
            time_unix_nano,
            name,
            attributes,
            dropped_attributes_count,
        },
    )
}

fn link() -> impl Strategy<Value = Link> {
    let ids = (
        prop::array::uniform16(1_u8..),
        prop::array::uniform8(1_u8..),
    );
    (ids, pairs(1, KEYS), "(a=b)?", 0..3_u32, any::<u32>()).prop_map(
        |((trace_id, span_id), attributes, trace_state, dropped, flags)| Link {
            trace_id: trace_id.into(),
            span_id: span_id.into(),
            attributes,
            trace_state,
            dropped_attributes_count: dropped,
            flags,
        },
    )
}

fn status() -> impl Strategy<Value = Status> {
    (0..4_i32, "(why)?").prop_map(|(code, message)| Status {
        message,
        code,
        deprecated_code: 0,
    })
}

fn span() -> impl Strategy<Value = Span> {
    let ids = (1..4_u8, 1..9_u8, 0..9_u8);
    let counts = (0..3_u32, 0..3_u32, 0..3_u32, any::<u32>());
    let lists = (
        pairs(2, KEYS),
        prop::collection::vec(event(), 0..3),
        prop::collection::vec(link(), 0..2),
    );
    let times = (time(), prop::option::weighted(0.9, 0..1_000_000_000_u64));
    let texts = ("[a-z]{0,5}", "(k=v)?");
    (
        ids,
        texts,
        0..7_i32,
        times,
        lists,
        prop::option::of(status()),
        counts,
    )
        .prop_map(
            |(ids, (name, trace_state), kind, (start, took), lists, status, counts)| Span {
                trace_id: [ids.0; 16].into(),
                span_id: [ids.1; 8].into(),
                parent_span_id: if ids.2 == 0 {
                    Vec::new()
                } else {
                    vec![ids.2; 8]
                },
                name,
                kind,
                start_time_unix_nano: start,
                end_time_unix_nano: took.map_or(0, |took| start + took),
                attributes: lists.0,
                events: lists.1,
                links: lists.2,
                status,
                trace_state,
                dropped_attributes_count: counts.0,
                dropped_events_count: counts.1,
                dropped_links_count: counts.2,
                flags: counts.3,
            },
        )
}

fn resource() -> impl Strategy<Value = Resource> {
    let keys =
        "service\\.name|host\\.name|host\\.id|k8s\\.pod\\.name|schema_url|a|otel\\.scope\\.name";
    (pairs(1, keys), 0..3_u32).prop_map(|(attributes, dropped_attributes_count)| Resource {
        attributes,
        dropped_attributes_count,
    })
}

fn of_scope() -> impl Strategy<Value = ScopeSpans> {
    let scope = (
        "[a-c]{0,2}",
        "(1\\.0)?",
        pairs(1, "name|version|a"),
        0..2_u32,
    );
    let scope = scope.prop_map(
        |(name, version, attributes, dropped_attributes_count)| Scope {
            name,
            version,
            attributes,
            dropped_attributes_count,
        },
    );
    let spans = prop::collection::vec(span(), 1..3);
    (prop::option::of(scope), spans, "(http:s)?").prop_map(|(scope, spans, schema_url)| {
        ScopeSpans {
            scope,
            spans,
            schema_url,
        }
    })
}

fn request() -> impl Strategy<Value = Vec<ResourceSpans>> {
    let scopes = prop::collection::vec(of_scope(), 1..3);
    let of_resource = (prop::option::of(resource()), scopes, "(http:r)?");
    let of_resource = of_resource.prop_map(|(resource, scope_spans, schema_url)| ResourceSpans {
        resource,
        scope_spans,
        schema_url,
        instrumentation_library_spans: Vec::new(),
    });
    let request = prop::collection::vec(of_resource, 1..3);
    request.prop_map(|mut request| {
        // Each span has a unique id, by which its events are found.
        let mut number = 0_u64;
        for span in request
            .iter_mut()
            .flat_map(|resource| &mut resource.scope_spans)
            .flat_map(|scope| &mut scope.spans)
        {
            number += 1;
            span.span_id = number.to_be_bytes().into();
        }
        request
    })
}

/// Returns the bytes of a request, as an exporter encodes it.
fn framed(request: &[ResourceSpans]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for message in request {
        prost::encoding::message::encode(1, message, &mut bytes);
    }
    bytes
}

/// Compares the texts of the spans, because NaN is not equal to itself.
fn check(request: &[ResourceSpans], served: &Served) {
    let mut found = Vec::new();
    for id in 1..4_u8 {
        let id = u128::from_be_bytes([id; 16]);
        let trace = served.by_id(id);
        let parts = trace.iter().flat_map(|trace| trace.otlp_parts());
        // Drop the warnings, which were not in the request.
        let parts = parts.map(|mut parts| {
            parts
                .span
                .attributes
                .retain(|pair| pair.key != "@jaeger@warnings");
            parts
        });
        found.extend(resource_spans(parts));
    }
    assert_eq!(normal(&found), normal(request));
    // The JSON of the response, stored in another store, results in the same request.
    let json: Vec<_> = found.iter().map(resource_spans_json).collect();
    let again = Served::new();
    again.take(&serde_json::json!({"resourceSpans": json}));
    let mut found_again = Vec::new();
    for id in 1..4_u8 {
        let trace = again.by_id(u128::from_be_bytes([id; 16]));
        for mut parts in trace.iter().flat_map(|trace| trace.otlp_parts()) {
            parts
                .span
                .attributes
                .retain(|pair| pair.key != "@jaeger@warnings");
            found_again.extend(resource_spans([parts]));
        }
    }
    assert_eq!(normal(&found_again), normal(request));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// Stores a request in protobuf and reads it, then stores its JSON and reads it.
    #[test]
    fn nothing_of_a_request_is_lost(request in request()) {
        let served = Served::new();
        served.take_protobuf(&framed(&request));
        check(&request, &served);
    }
}

/// Checks more attributes than have columns of their own.
#[test]
fn attributes_without_columns_come_out_too() {
    let attributes = (0..120).map(|number| KeyValue {
        key: format!("key {number}"),
        value: Some(AnyValue {
            kind: Some(AnyKind::Int(number)),
        }),
    });
    let span = |number: u64| Span {
        trace_id: vec![1; 16],
        span_id: number.to_be_bytes().into(),
        start_time_unix_nano: 1_700_000_000_000_000_000,
        end_time_unix_nano: 1_700_000_000_000_000_001,
        attributes: attributes
            .clone()
            .map(|pair| KeyValue {
                key: format!("{} of {number}", pair.key),
                ..pair
            })
            .collect(),
        ..Span::default()
    };
    let spans: Vec<Span> = (1..4).map(span).collect();
    let request = [ResourceSpans {
        scope_spans: vec![ScopeSpans {
            spans,
            ..ScopeSpans::default()
        }],
        ..ResourceSpans::default()
    }];
    let served = Served::new();
    served.take_protobuf(&framed(&request));
    assert!(request[0].encoded_len() > 1_000);
    check(&request, &served);
}
