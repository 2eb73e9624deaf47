//! What spans of each format become.

use prost::Message as _;
use serde_json::{Value, json};

use super::foreign_span::{ForeignSpan, span_number};
use super::otlp_message::ExportRequest;
use super::protobuf::Messages;
use super::zipkin::Zipkin;
use super::{BadLine, jaeger, otlp};

const CLIENT: u32 = 64;
const SERVER: u32 = 128;
const UNFINISHED: u32 = 4;

type Told = Vec<Result<ForeignSpan, String>>;

fn jaeger(text: &str) -> Told {
    let mut told = Vec::new();
    let mut take =
        |line, span: Result<_, BadLine>| told.push(span.map_err(|reason| format!("{line}: {reason}")));
    if let Err((line, reason)) = jaeger::spans_of(text, &mut take) {
        take(line, Err(reason));
    }
    told
}

fn zipkin(text: &str) -> Told {
    let (mut zipkin, mut told) = (Zipkin::default(), Vec::new());
    zipkin.take(1, text, &mut |line, reason| told.push(Err(format!("{line}: {reason}"))));
    told.extend(zipkin.matched().map(|(_, span)| Ok(span)));
    told
}

fn otlp(text: &str) -> Told {
    let mut told = Vec::new();
    let mut take = |span: Result<_, BadLine>| told.push(span.map_err(|reason| reason.to_string()));
    if let Err((line, reason)) = otlp::spans_of_json(text, true, &mut take) {
        told.push(Err(format!("{line}: {reason}")));
    }
    told
}

fn only(told: &[Result<ForeignSpan, String>]) -> ForeignSpan {
    let [Ok(span)] = told else { panic!("{told:?}") };
    span.clone()
}

#[test]
fn a_span_of_jaeger() {
    let nested = "[".repeat(5_000) + &"]".repeat(5_000);
    let text = format!(
        r#"{{"traceID":"1f","processes":{{"p1":{{"serviceName":"shop","tags":[
        {{"key":"ip","type":"string","value":"10.0.0.1"}},{{"key":"hostname","type":"string","value":"web1"}}]}}}},"spans":[
        {{"traceID":"1f","spanID":"2a","operationName":"pay\u0021","startTime":10,"duration":5,"processID":"p1",
        "references":[{{"refType":"FOLLOWS_FROM","traceID":"1f","spanID":"9"}},
                      {{"refType":"CHILD_OF","traceID":"77","spanID":"8"}},
                      {{"refType":"CHILD_OF","traceID":"1f","spanID":"7","span":{nested}}}],
        "tags":[{{"key":"span.kind","type":"string","value":"client"}},{{"key":"n","type":"int64","value":"12"}},
                {{"key":"error","type":"bool","value":true}}],
        "logs":[{{"timestamp":12,"fields":[{{"key":"event","type":"string","value":"sent"}},{{"key":"k","value":1}}]}}]}}]}}"#
    );
    let span = only(&jaeger(&text));
    assert_eq!((&*span.trace, span.span_id, span.parent_id, span.flags), ("1f", 0x2a, 7, CLIENT));
    assert_eq!((&*span.service, &*span.name, &*span.host), ("shop", "pay!", "web1"));
    assert_eq!((span.start_ns, span.end_ns), (10_000, 15_000));
    let links = json!([{"trace_id": "1f", "span_id": "9", "type": "FOLLOWS_FROM"},
                       {"trace_id": "77", "span_id": "8", "type": "CHILD_OF"}]);
    let expected = json!({"n": 12, "error": true, "resource.ip": "10.0.0.1", "resource.hostname": "web1", "links": links});
    assert_eq!(Value::Object(span.attributes), expected);
    assert_eq!((span.events[0].time_ns, &*span.events[0].name), (12_000, "sent"));
    assert_eq!(Value::Object(span.events[0].attributes.clone()), json!({"k": 1}));
}

#[test]
fn flaws_of_jaeger_cost_one_span() {
    let good = r#"{"traceID":"1","spanID":"2","operationName":"a","startTime":1,"duration":1,"process":{"serviceName":"s"}}"#;
    assert_eq!(only(&jaeger(good)).service, "s");
    let parent = good.replace("\"duration\"", "\"parentSpanID\":\"0e\",\"duration\"");
    assert_eq!(only(&jaeger(&parent)).parent_id, 14);
    let check = |bad: &str, reason: &str| {
        let told = jaeger(&format!("{{\"traceID\":\"1\",\"spans\":[\n{good},\n{bad},\n{good}]}}"));
        let [Ok(_), Err(told), Ok(_)] = &told[..] else { panic!("{told:?}") };
        assert!(told.starts_with(reason), "{told}");
    };
    check("7", "2: invalid type: integer `7`, expected struct Span");
    check(&good.replace("spanID", "spamID"), "2: missing field `spanID`");
    check(&good.replace("\"2\"", "\"0\""), "2: span id is empty");
    check(&good.replace(":1,\"dur", ":-1,\"dur"), "2: invalid value: integer `-1`, expected u64");
    check(
        &good.replace(":1,\"dur", ":9223372036854775807,\"dur"),
        "2: startTime is 9223372036854775807 us: times must be below 2^63 ns since the Unix epoch",
    );
    assert_eq!(jaeger("\"frontend\"").len(), 1);
    assert!(
        jaeger("{\"parent\":\"a\",\"child\":\"b\"}")[0]
            .as_ref()
            .unwrap_err()
            .contains("missing field `spanID`")
    );
}

#[test]
fn ids_of_spans() {
    assert_eq!((span_number("2a"), span_number("00000000000000FF")), (0x2a, 255));
    assert_eq!((span_number(""), span_number("0000"), span_number("+1") > 1), (0, 0, true));
    assert_ne!(span_number("span-A"), span_number("span-B"));
    assert_eq!(span_number("span-A"), span_number("span-A"));
}

const SHARED: &str = r#"{"traceId":"a","id":"b","parentId":"c","name":"get","timestamp":100,"duration":60,"annotations":[
    {"timestamp":100,"value":"cs","endpoint":{"serviceName":"web","ipv4":"10.0.0.1","port":80}},
    {"timestamp":120,"value":"sr","endpoint":{"serviceName":"db","ipv4":"10.0.0.2"}},
    {"timestamp":125,"value":"lock","endpoint":{"serviceName":"db","ipv4":"10.0.0.2"}},
    {"timestamp":140,"value":"ss","endpoint":{"serviceName":"db","ipv4":"10.0.0.2"}},
    {"timestamp":160,"value":"cr","endpoint":{"serviceName":"web","ipv4":"10.0.0.1"}}],
    "binaryAnnotations":[{"key":"url","value":"/x","endpoint":{"serviceName":"web"}},
    {"key":"rows","value":"3","endpoint":{"serviceName":"db"}},{"key":"sa","value":true,"endpoint":{"serviceName":"db","port":7}}]}"#;

#[test]
fn both_sides_of_a_call_in_one_span_of_zipkin_1() {
    let told = zipkin(SHARED);
    let [Ok(client), Ok(server)] = &told[..] else { panic!("{told:?}") };
    assert_eq!((client.parent_id, server.span_id, server.parent_id), (0xc, 0xb, client.span_id));
    assert!(client.span_id != server.span_id && client.span_id != 0);
    assert_eq!((client.flags, &*client.service, &*client.host), (CLIENT, "web", "10.0.0.1"));
    assert_eq!((server.flags, &*server.service, &*server.host), (SERVER, "db", "10.0.0.2"));
    assert_eq!(
        (client.start_ns, client.end_ns, server.start_ns, server.end_ns),
        (100_000, 160_000, 120_000, 140_000)
    );
    assert_eq!((client.events.len(), &*server.events[0].name), (0, "lock"));
    assert_eq!(client.attributes["url"], "/x");
    assert_eq!((&client.attributes["peer.service"], &server.attributes["rows"]), (&json!("db"), &json!("3")));
    assert!(!server.attributes.contains_key("url") && !client.attributes.contains_key("rows"));
}

#[test]
fn sides_of_a_call_in_two_spans_of_zipkin() {
    let endpoint = |service: &str| format!(r#""localEndpoint":{{"serviceName":"{service}"}}"#);
    let client = format!(
        r#"{{"traceId":"a","id":"b","kind":"CLIENT","name":"get","timestamp":100,"duration":60,{}}}"#,
        endpoint("web")
    );
    let server = format!(
        r#"{{"traceId":"a","id":"b","kind":"SERVER","shared":true,"timestamp":110,"duration":9,{}}}"#,
        endpoint("db")
    );
    let child = format!(
        r#"{{"traceId":"a","id":"d","parentId":"b","timestamp":112,"duration":2,{}}}"#,
        endpoint("db")
    );
    let told = zipkin(&format!("[{server},{child},{client}]"));
    let [Ok(server_span), Ok(child), Ok(client_span)] = &told[..] else { panic!("{told:?}") };
    assert_eq!(
        (server_span.span_id, child.parent_id, server_span.parent_id),
        (0xb, 0xb, client_span.span_id)
    );
    // The same with two half spans of version 1.
    let half = |service: &str, begin: &str, end: &str| {
        let annotation = |value: &str, at: u32| {
            format!(r#"{{"timestamp":{at},"value":"{value}","endpoint":{{"serviceName":"{service}"}}}}"#)
        };
        format!(
            r#"{{"traceId":"a","id":"b","annotations":[{},{}]}}"#,
            annotation(begin, 5),
            annotation(end, 7)
        )
    };
    let told = zipkin(&format!("[{},{}]", half("web", "cs", "cr"), half("db", "sr", "ss")));
    let [Ok(client), Ok(server)] = &told[..] else { panic!("{told:?}") };
    assert_eq!((client.flags, server.flags, server.parent_id), (CLIENT, SERVER, client.span_id));
    // Alone, a side keeps id and parent.
    let alone = only(&zipkin(&format!(
        "[{client}]",
        client = r#"{"traceId":"a","id":"b","parentId":"1","kind":"CLIENT","timestamp":5}"#
    )));
    assert_eq!((alone.span_id, alone.parent_id, alone.flags), (0xb, 1, CLIENT | UNFINISHED));
}

#[test]
fn flaws_of_zipkin_cost_one_span() {
    let good = r#"{"traceId":"a","id":"b","timestamp":1,"duration":1}"#;
    let check = |bad: &str, reason: &str| {
        let told = zipkin(&format!("[{good},{bad}]"));
        let [Err(told), Ok(_)] = &told[..] else { panic!("{told:?}") };
        assert!(told.contains(reason), "{told}");
    };
    check("7", "expected struct Span");
    check(r#"{"traceId":"a","id":"b"}"#, "the span has no time");
    check(r#"{"traceId":"a","timestamp":1}"#, "missing field `id`");
    check(r#"{"traceId":"a","id":"b","timestamp":99999999999999999}"#, "timestamp is 99999999999999999 us");
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
    assert_eq!((&*span.trace, span.span_id), ("5b8efff798038103d269b633813fc60c", 0xeee1_9b7e_c3c1_b174));
    assert_eq!(
        (&*span.service, &*span.host, &*span.name, span.flags, span.parent_id),
        ("shop", "web1", "pay", SERVER, 0)
    );
    assert_eq!((span.start_ns, span.end_ns), (1_544_712_660_000_000_000, 1_544_712_661_000_000_000));
    let expected = json!({"resource.host.name": "web1", "otel.scope.name": "lib", "otel.scope.version": "1.2", "n": -5,
        "d": 0.5, "b": true, "inf": "inf", "none": null, "list": ["x", 2], "map": {"k": "v"}, "error": true,
        "otel.status_description": "no funds",
        "links": [{"trace_id": "5b8efff798038103d269b633813fc60c", "span_id": "eee19b7ec3c1b173"}]});
    assert_eq!(Value::Object(span.attributes), expected);
    assert_eq!((&*span.events[0].name, &span.events[0].attributes["e"]), ("event", &json!(1)));
    let check = |from: &str, to: &str, reason: &str| {
        let told = otlp(&REQUEST.replace(from, to));
        assert!(told[0].as_ref().unwrap_err().contains(reason), "{told:?}");
    };
    check("5B8EFFF798038103D269B633813FC60C", "5B8E", "traceId is `5b8e`: expected 32 hex digits");
    check("EEE19B7EC3C1B174", "0000000000000000", "spanId is `0000000000000000`");
    check("EEE19B7EC3C1B174", "xyz", "`xyz` is no id");
    check("\"1544712660000000000\"", "\"soon\"", "`soon`: invalid digit");
}

/// The messages of OTLP's own crate, as bytes, are read as ours.
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
    let pair =
        |key: &str, value| KeyValue { key: key.to_owned(), value: Some(any(value)), ..KeyValue::default() };
    let text = |text: &str| Kind::StringValue(text.to_owned());
    let list = ArrayValue { values: vec![any(text("x")), any(Kind::IntValue(2))] };
    let span = Span {
        trace_id: 0x5b8e_fff7_9803_8103_d269_b633_813f_c60c_u128.to_be_bytes().to_vec(),
        span_id: 0xeee1_9b7e_c3c1_b174_u64.to_be_bytes().to_vec(),
        name: "pay".to_owned(),
        kind: 2,
        start_time_unix_nano: 1_544_712_660_000_000_000,
        end_time_unix_nano: 1_544_712_661_000_000_000,
        status: Some(Status { code: 2, message: "no funds".to_owned() }),
        attributes: vec![
            pair("n", Kind::IntValue(-5)),
            pair("d", Kind::DoubleValue(0.5)),
            pair("b", Kind::BoolValue(true)),
            pair("inf", Kind::DoubleValue(f64::INFINITY)),
            KeyValue { key: "none".to_owned(), value: Some(AnyValue::default()), ..KeyValue::default() },
            pair("list", Kind::ArrayValue(list)),
            pair("map", Kind::KvlistValue(KeyValueList { values: vec![pair("k", text("v"))] })),
        ],
        events: vec![span::Event {
            time_unix_nano: 1_544_712_660_500_000_000,
            attributes: vec![pair("e", Kind::IntValue(1))],
            ..span::Event::default()
        }],
        links: vec![span::Link {
            trace_id: 0x5b8e_fff7_9803_8103_d269_b633_813f_c60c_u128.to_be_bytes().to_vec(),
            span_id: 0xeee1_9b7e_c3c1_b173_u64.to_be_bytes().to_vec(),
            trace_state: "skipped".to_owned(),
            ..span::Link::default()
        }],
        trace_state: "skipped".to_owned(),
        dropped_attributes_count: 3,
        ..Span::default()
    };
    let scope =
        InstrumentationScope { name: "lib".to_owned(), version: "1.2".to_owned(), ..Default::default() };
    let theirs = ExportTraceServiceRequest {
        resource_spans: vec![ResourceSpans {
            resource: Some(Resource {
                attributes: vec![pair("service.name", text("shop")), pair("host.name", text("web1"))],
                ..Resource::default()
            }),
            scope_spans: vec![ScopeSpans { scope: Some(scope), spans: vec![span], ..ScopeSpans::default() }],
            schema_url: "skipped".to_owned(),
        }],
    };
    let bytes = theirs.encode_to_vec();
    let ours: ExportRequest = serde_json::from_str(REQUEST).unwrap();
    assert_eq!(ExportRequest::decode(&bytes[..]).unwrap(), ours);
    let length = u32::try_from(bytes.len()).unwrap().to_be_bytes();
    let of_resource = &ours.resource_spans[0];
    for file in
        [[&bytes[..], &bytes[..]].concat(), [&length[..], &bytes[..], &length[..], &bytes[..]].concat()]
    {
        let mut messages = Messages::new(&file[..], 1 << 20).unwrap();
        for number in 1..=2 {
            assert_eq!(messages.next_message().unwrap(), Some((number, Ok(of_resource.clone()))));
        }
        assert_eq!(messages.next_message().unwrap(), None);
        let mut cut = Messages::new(&file[..file.len() - 1], 1 << 20).unwrap();
        cut.next_message().unwrap();
        let (number, reason) = cut.next_message().unwrap().unwrap();
        assert_eq!((number, reason.unwrap_err().to_string().contains("ends in the middle")), (2, true));
    }
}
