//! OTLP, in JSON and in protobuf as others write it.

use prost::Message as _;
use serde_json::{Value, json};

use super::{BadLine, Heard, SERVER, Told, heard, only};
use crate::protobuf::Messages;
use crate::take::Spans;

/// Returns the first `ResourceSpans` of a request.
fn of_resource(request: &str) -> String {
    let request: Value = serde_json::from_str(request).unwrap();
    request["resourceSpans"][0].to_string()
}

fn otlp_of_json(line: u64, record: &str, heard: &mut Heard) -> Result<(), (u64, BadLine)> {
    stroboscope_otlp::spans_of_json(line, record, &mut Spans(heard))
        .map_err(|(line, reason)| (line, reason.into()))
}

fn otlp(text: &str) -> Told {
    heard(|heard| otlp_of_json(0, &of_resource(text), heard)).told
}

const REQUEST: &str = r#"{"resourceSpans":[{"resource":{"attributes":[
    {"key":"service.name","value":{"stringValue":"shop"}},{"key":"host.name","value":{"stringValue":"web1"}}]},
    "scopeSpans":[{"scope":{"name":"lib","version":"1.2"},"spans":[{"traceId":"5B8EFFF798038103D269B633813FC60C",
    "spanId":"EEE19B7EC3C1B174","parentSpanId":"","name":"pay","kind":2,"startTimeUnixNano":"1544712660000000000",
    "endTimeUnixNano":1544712661000000000,"status":{"code":2,"message":"no funds"},
    "attributes":[{"key":"n","value":{"intValue":"-5"}},{"key":"d","value":{"doubleValue":0.5}},
      {"key":"b","value":{"boolValue":true}},{"key":"inf","value":{"doubleValue":"Infinity"}},{"key":"none","value":{}},
      {"key":"list","value":{"arrayValue":{"values":[{"stringValue":"x"},{"intValue":2}]}}},
      {"key":"map","value":{"kvlistValue":{"values":[{"key":"k","value":{"stringValue":"v"}}]}}}],
    "events":[{"timeUnixNano":"1544712660500000000","attributes":[{"key":"e","value":{"intValue":1}}]}],
    "links":[{"traceId":"5b8efff798038103d269b633813fc60c","spanId":"eee19b7ec3c1b173"}]}]}]}]}"#;

#[test]
fn a_span_of_otlp() {
    let span = only(&otlp(REQUEST));
    assert_eq!(
        (&*span.trace, span.span_id),
        ("5b8efff798038103d269b633813fc60c", 0xeee1_9b7e_c3c1_b174)
    );
    assert_eq!(
        (
            &*span.service,
            &*span.host,
            &*span.name,
            span.flags,
            span.parent_id
        ),
        ("shop", "web1", "pay", SERVER, 0)
    );
    assert_eq!(
        (span.start_ns, span.end_ns),
        (1_544_712_660_000_000_000, 1_544_712_661_000_000_000)
    );
    let expected = json!({"resource.host.name": "web1", "otel.scope.name": "lib", "otel.scope.version": "1.2", "n": -5,
        "d": 0.5, "b": true, "inf": "inf", "none": null, "list": ["x", 2], "map": {"k": "v"}, "error": true,
        "otel.status_description": "no funds", "otel.exact": {"inf": {"doubleValue": "Infinity"}},
        "links": [{"trace_id": "5b8efff798038103d269b633813fc60c", "span_id": "eee19b7ec3c1b173"}]});
    assert_eq!(Value::Object(span.attributes), expected);
    assert_eq!(
        (&*span.events[0].name, &span.events[0].attributes["e"]),
        ("event", &json!(1))
    );
    assert_eq!(span.events[0].attributes["otel.event_name"], "");
    let check = |from: &str, to: &str, reason: &str| {
        let told = otlp(&REQUEST.replace(from, to));
        assert!(told[0].as_ref().unwrap_err().contains(reason), "{told:?}");
    };
    check(
        "5B8EFFF798038103D269B633813FC60C",
        "5B8E",
        "traceId is `5b8e`: expected 32 hex digits",
    );
    check(
        "EEE19B7EC3C1B174",
        "0000000000000000",
        "spanId is `0000000000000000`",
    );
    check("EEE19B7EC3C1B174", "xyz", "`xyz` is no id");
    check(
        "\"1544712660000000000\"",
        "\"soon\"",
        "`soon`: invalid digit",
    );
}

/// Bytes encoded by OTLP's own crate result in the same spans as JSON.
#[test]
fn protobuf_is_as_others_write_it() {
    use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
    use opentelemetry_proto::tonic::common::v1::any_value::Value as Kind;
    use opentelemetry_proto::tonic::common::v1::{
        AnyValue, ArrayValue, InstrumentationScope, KeyValue, KeyValueList,
    };
    use opentelemetry_proto::tonic::resource::v1::Resource;
    use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span, Status, span};

    let any = |value| AnyValue { value: Some(value) };
    let pair = |key: &str, value| KeyValue {
        key: key.to_owned(),
        value: Some(any(value)),
        ..KeyValue::default()
    };
    let text = |text: &str| Kind::StringValue(text.to_owned());
    let list = ArrayValue {
        values: vec![any(text("x")), any(Kind::IntValue(2))],
    };
    let span = Span {
        trace_id: 0x5b8e_fff7_9803_8103_d269_b633_813f_c60c_u128
            .to_be_bytes()
            .to_vec(),
        span_id: 0xeee1_9b7e_c3c1_b174_u64.to_be_bytes().to_vec(),
        name: "pay".to_owned(),
        kind: 2,
        start_time_unix_nano: 1_544_712_660_000_000_000,
        end_time_unix_nano: 1_544_712_661_000_000_000,
        status: Some(Status {
            code: 2,
            message: "no funds".to_owned(),
        }),
        attributes: vec![
            pair("n", Kind::IntValue(-5)),
            pair("d", Kind::DoubleValue(0.5)),
            pair("b", Kind::BoolValue(true)),
            pair("inf", Kind::DoubleValue(f64::INFINITY)),
            KeyValue {
                key: "none".to_owned(),
                value: Some(AnyValue::default()),
                ..KeyValue::default()
            },
            pair("list", Kind::ArrayValue(list)),
            pair(
                "map",
                Kind::KvlistValue(KeyValueList {
                    values: vec![pair("k", text("v"))],
                }),
            ),
        ],
        events: vec![span::Event {
            time_unix_nano: 1_544_712_660_500_000_000,
            attributes: vec![pair("e", Kind::IntValue(1))],
            ..span::Event::default()
        }],
        links: vec![span::Link {
            trace_id: 0x5b8e_fff7_9803_8103_d269_b633_813f_c60c_u128
                .to_be_bytes()
                .to_vec(),
            span_id: 0xeee1_9b7e_c3c1_b173_u64.to_be_bytes().to_vec(),
            trace_state: "kept".to_owned(),
            ..span::Link::default()
        }],
        trace_state: "kept".to_owned(),
        dropped_attributes_count: 3,
        ..Span::default()
    };
    let scope = InstrumentationScope {
        name: "lib".to_owned(),
        version: "1.2".to_owned(),
        ..Default::default()
    };
    let theirs = ExportTraceServiceRequest {
        resource_spans: vec![ResourceSpans {
            resource: Some(Resource {
                attributes: vec![
                    pair("service.name", text("shop")),
                    pair("host.name", text("web1")),
                ],
                ..Resource::default()
            }),
            scope_spans: vec![ScopeSpans {
                scope: Some(scope),
                spans: vec![span],
                ..ScopeSpans::default()
            }],
            schema_url: "kept".to_owned(),
        }],
    };
    let bytes = theirs.encode_to_vec();
    let text = REQUEST
        .replace("\"scopeSpans\":", "\"schemaUrl\":\"kept\",\"scopeSpans\":")
        .replace(
            "\"name\":\"pay\",",
            "\"name\":\"pay\",\"traceState\":\"kept\",\"droppedAttributesCount\":3,",
        )
        .replace("\"links\":[{", "\"links\":[{\"traceState\":\"kept\",");
    let of_json = heard(|heard| otlp_of_json(0, &of_resource(&text), heard));
    let length = u32::try_from(bytes.len()).unwrap().to_be_bytes();
    let varint = |bytes: &[u8]| {
        [
            vec![bytes.len() as u8 | 0x80, (bytes.len() >> 7) as u8],
            bytes.to_vec(),
        ]
        .concat()
    };
    assert!((128..16_384).contains(&bytes.len()));
    // Tempo's answer: the trace is its first field.
    let answer = [&[0x0a], &varint(&bytes)[..]].concat();
    for file in [
        [&bytes[..], &bytes[..]].concat(),
        [&length[..], &bytes[..], &length[..], &bytes[..]].concat(),
        [varint(&bytes), varint(&bytes)].concat(),
        [&answer[..], &answer[..]].concat(),
    ] {
        let mut messages = Messages::new(&file[..], &file, 1 << 20);
        for number in 1..=2 {
            let (at, message) = messages.next_message().unwrap().unwrap();
            let message = message.unwrap();
            let mut of_protobuf = Heard::default();
            stroboscope_otlp::spans_of(at, &message, &mut Spans(&mut of_protobuf));
            assert_eq!((at, &of_protobuf.told), (number, &of_json.told));
            assert!(of_protobuf.not_taken.is_empty());
        }
        assert_eq!(messages.next_message().unwrap(), None);
        assert!(messages.not_taken().is_empty());
        let mut cut = Messages::new(&file[..file.len() - 1], &file, 1 << 20);
        cut.next_message().unwrap();
        let (number, reason) = cut.next_message().unwrap().unwrap();
        assert_eq!(
            (
                number,
                reason
                    .unwrap_err()
                    .to_string()
                    .contains("ends in the middle")
            ),
            (2, true)
        );
    }
    // A field that is not known: number 99 of the span, and of the request.
    let mut more = theirs.resource_spans[0].encode_to_vec();
    more.extend([0x12, 6, 0x12, 4, 0x9a, 6, 1, 0]);
    let request = [&[0x0a], &varint(&more)[..], &[0x98, 6, 1]].concat();
    let mut messages = Messages::new(&request[..], &request, 1 << 20);
    assert!(messages.next_message().unwrap().unwrap().1.is_ok());
    assert_eq!(messages.not_taken(), ["Span, field 99"]);
    assert_eq!(messages.next_message().unwrap(), None);
    assert_eq!(messages.not_taken(), ["field 99 beside the spans"]);
    // A log record: the fields of its time and trace id have other types in a span.
    let record = [&[9][..], &[0; 8], &[0x4a, 16], &[0x70, 1].repeat(8)].concat();
    let logs = [&[0x12, 29, 0x12, 27][..], &record].concat();
    let request = [&[0x0a], &varint(&logs)[..]].concat();
    let mut messages = Messages::new(&request[..], &request, 1 << 20);
    assert!(messages.next_message().unwrap().unwrap().1.is_err());
    assert!(messages.not_taken().is_empty());
}

/// Other notations of keys, ids and enums result in equal spans.
#[test]
fn forms_of_otlp_say_the_same() {
    let expected = otlp(REQUEST);
    let base64 = REQUEST
        .replace(
            "5B8EFFF798038103D269B633813FC60C",
            "W47/95gDgQPSabYzgT/GDA==",
        )
        .replace("EEE19B7EC3C1B174", "7uGbfsPBsXQ=")
        .replace("5b8efff798038103d269b633813fc60c", "W47_95gDgQPSabYzgT_GDA")
        .replace("eee19b7ec3c1b173", "7uGbfsPBsXM");
    let old = REQUEST
        .replace("scopeSpans", "instrumentationLibrarySpans")
        .replace("\"scope\"", "\"instrumentationLibrary\"");
    let named = REQUEST
        .replace("\"kind\":2", "\"kind\":\"SPAN_KIND_SERVER\"")
        .replace("\"code\":2", "\"code\":\"STATUS_CODE_ERROR\"");
    let mut snake = REQUEST.to_owned();
    for key in [
        "scopeSpans",
        "traceId",
        "spanId",
        "parentSpanId",
        "startTimeUnixNano",
        "endTimeUnixNano",
        "stringValue",
        "intValue",
        "doubleValue",
        "boolValue",
        "arrayValue",
        "kvlistValue",
        "timeUnixNano",
    ] {
        let humps = key.chars().flat_map(|c| {
            if c.is_uppercase() {
                vec!['_', c.to_ascii_lowercase()]
            } else {
                vec![c]
            }
        });
        snake = snake.replace(
            &format!("\"{key}\""),
            &format!("\"{}\"", humps.collect::<String>()),
        );
    }
    for form in [base64, old, named, snake] {
        assert_ne!(form, REQUEST);
        let found = heard(|heard| otlp_of_json(0, &of_resource(&form), heard));
        assert_eq!(found.told, expected, "{form}");
        assert!(found.not_taken.is_empty(), "{form}: {:?}", found.not_taken);
    }
}

#[test]
fn what_otlp_says_besides_is_kept_and_what_it_does_not_know_is_counted() {
    let text = REQUEST
        .replace("\"name\":\"pay\",", "\"name\":\"pay\",\"traceState\":\"a=1\",\"flags\":257,\"droppedEventsCount\":\"2\",\"colour\":1,\"attributes2\":[],")
        .replace("\"links\":[{", "\"links\":[{\"traceState\":\"x\",\"flags\":1,\"attributes\":[{\"key\":\"span_id\",\"value\":{\"intValue\":1}}],")
        .replace("\"code\":2", "\"code\":1")
        .replace("\"kind\":2", "\"kind\":\"SPAN_KIND_PRODUCER\"")
        .replace("\"version\":\"1.2\"", "\"version\":\"1.2\",\"droppedAttributesCount\":4,\"attributes\":[{\"key\":\"n\",\"value\":{\"intValue\":7}}]");
    let found = heard(|heard| otlp_of_json(0, &of_resource(&text), heard));
    let names: Vec<&str> = found.not_taken.iter().map(|(name, _)| &**name).collect();
    assert_eq!(names, ["span.colour", "span.attributes2"]);
    let span = only(&found.told);
    let kept = json!({"w3c.tracestate": "a=1", "otel.flags": 257, "otel.dropped_events_count": 2, "n": -5, "scope.n": 7,
        "otel.scope.dropped_attributes_count": 4, "otel.status_code": "OK", "otel.status_description": "no funds",
        "span.kind": "producer",
        "links": [{"trace_id": "5b8efff798038103d269b633813fc60c", "span_id": "eee19b7ec3c1b173", "trace_state": "x",
            "flags": 1, "attributes": {"span_id": 1}}]});
    for (key, value) in kept.as_object().unwrap() {
        assert_eq!(span.attributes.get(key), Some(value), "{key}");
    }
    assert_eq!(span.attributes.get("error"), None);
    // A bad span affects no other span.
    let two = of_resource(REQUEST).replace("\"spans\":[", "\"spans\":[{\"traceId\":7},\n");
    let found = heard(|heard| otlp_of_json(3, &two, heard));
    assert!(
        found.told[0]
            .as_ref()
            .unwrap_err()
            .starts_with("3: invalid type: integer `7`"),
        "{:?}",
        found.told
    );
    assert!(found.told[1].is_ok());
}
