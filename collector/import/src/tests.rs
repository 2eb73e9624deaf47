//! What spans of each format become.

use prost::Message as _;
use serde_json::{Value, json};

use super::line::LogEvent;
use super::protobuf::Messages;
use super::take::{Spans, Take};
use super::zipkin::Zipkin;
use super::{BadLine, jaeger};
use stroboscope_foreign::otlp;
use stroboscope_foreign::{ForeignSpan, span_number};

const CLIENT: u32 = 64;
const SERVER: u32 = 128;
const UNFINISHED: u32 = 4;

type Told = Vec<Result<ForeignSpan, String>>;

/// What a reader has handed on.
#[derive(Default)]
pub(super) struct Heard {
    pub(super) told: Told,
    pub(super) events: Vec<String>,
    /// Names and counts of what is not taken.
    pub(super) not_taken: Vec<(String, u64)>,
}

impl Take for Heard {
    fn span(&mut self, line: u64, span: Result<ForeignSpan, BadLine>) {
        self.told
            .push(span.map_err(|reason| format!("{line}: {reason}")));
    }

    fn event(&mut self, event: &LogEvent<'_>) {
        let LogEvent {
            trace,
            host,
            time_ns,
            event,
            task,
            attributes,
        } = event;
        let attributes = attributes.unwrap_or_default();
        let text = format!("{trace} {host} {time_ns} {task} {event} {attributes}");
        self.events.push(text.trim_end().to_owned());
    }

    fn bad(&mut self, line: u64, reason: &BadLine) {
        self.told.push(Err(format!("{line}: {reason}")));
    }

    fn not_taken(&mut self, _: u64, name: &str, count: u64) {
        if count > 0 {
            match self.not_taken.iter_mut().find(|known| known.0 == name) {
                Some(known) => known.1 += count,
                None => self.not_taken.push((name.to_owned(), count)),
            }
        }
    }
}

fn heard(read: impl FnOnce(&mut Heard) -> Result<(), (u64, BadLine)>) -> Heard {
    let mut heard = Heard::default();
    if let Err((line, reason)) = read(&mut heard) {
        heard.bad(line, &reason);
    }
    heard
}

fn jaeger(text: &str) -> Told {
    heard(|heard| jaeger::spans_of(0, text, heard)).told
}

/// Spans of a list, as they come by record.
fn zipkin(text: &str) -> Told {
    let (mut zipkin, mut heard) = (Zipkin::default(), Heard::default());
    let records: Vec<&serde_json::value::RawValue> = match text.starts_with('[') {
        true => serde_json::from_str(text).unwrap(),
        false => vec![serde_json::from_str(text).unwrap()],
    };
    records
        .iter()
        .for_each(|record| zipkin.take(1, record.get(), &mut heard));
    heard
        .told
        .extend(zipkin.matched().map(|(_, span)| Ok(span)));
    heard.told
}

/// Spans of the one element of a request.
fn of_resource(request: &str) -> String {
    let request: Value = serde_json::from_str(request).unwrap();
    request["resourceSpans"][0].to_string()
}

fn otlp_of_json(line: u64, record: &str, heard: &mut Heard) -> Result<(), (u64, BadLine)> {
    otlp::spans_of_json(line, record, &mut Spans(heard))
        .map_err(|(line, reason)| (line, reason.into()))
}

fn otlp(text: &str) -> Told {
    heard(|heard| otlp_of_json(0, &of_resource(text), heard)).told
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
    assert_eq!(
        (&*span.trace, span.span_id, span.parent_id, span.flags),
        ("1f", 0x2a, 7, CLIENT)
    );
    assert_eq!(
        (&*span.service, &*span.name, &*span.host),
        ("shop", "pay!", "web1")
    );
    assert_eq!((span.start_ns, span.end_ns), (10_000, 15_000));
    let links = json!([{"trace_id": "1f", "span_id": "9", "type": "FOLLOWS_FROM"},
                       {"trace_id": "77", "span_id": "8", "type": "CHILD_OF"}]);
    let expected = json!({"n": 12, "error": true, "resource.ip": "10.0.0.1", "resource.hostname": "web1", "links": links});
    assert_eq!(Value::Object(span.attributes), expected);
    assert_eq!(
        (span.events[0].time_ns, &*span.events[0].name),
        (12_000, "sent")
    );
    assert_eq!(
        Value::Object(span.events[0].attributes.clone()),
        json!({"k": 1})
    );
}

#[test]
fn flaws_of_jaeger_cost_one_span() {
    let good = r#"{"traceID":"1","spanID":"2","operationName":"a","startTime":1,"duration":1,"process":{"serviceName":"s"}}"#;
    assert_eq!(only(&jaeger(good)).service, "s");
    let parent = good.replace("\"duration\"", "\"parentSpanID\":\"0e\",\"duration\"");
    assert_eq!(only(&jaeger(&parent)).parent_id, 14);
    let check = |bad: &str, reason: &str| {
        let told = jaeger(&format!(
            "{{\"traceID\":\"1\",\"spans\":[\n{good},\n{bad},\n{good}]}}"
        ));
        let [Ok(_), Err(told), Ok(_)] = &told[..] else {
            panic!("{told:?}")
        };
        assert!(told.starts_with(reason), "{told}");
    };
    check("7", "2: invalid type: integer `7`, expected struct Span");
    check(
        &good.replace("spanID", "spamID"),
        "2: missing field `spanID`",
    );
    check(&good.replace("\"2\"", "\"0\""), "2: span id is empty");
    check(
        &good.replace(":1,\"dur", ":-1,\"dur"),
        "2: invalid value: integer `-1`, expected u64",
    );
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
    assert_eq!(
        (span_number("2a"), span_number("00000000000000FF")),
        (0x2a, 255)
    );
    assert_eq!(
        (span_number(""), span_number("0000"), span_number("+1") > 1),
        (0, 0, true)
    );
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
    let [Ok(client), Ok(server)] = &told[..] else {
        panic!("{told:?}")
    };
    assert_eq!(
        (client.parent_id, server.span_id, server.parent_id),
        (0xc, 0xb, client.span_id)
    );
    assert!(client.span_id != server.span_id && client.span_id != 0);
    assert_eq!(
        (client.flags, &*client.service, &*client.host),
        (CLIENT, "web", "10.0.0.1")
    );
    assert_eq!(
        (server.flags, &*server.service, &*server.host),
        (SERVER, "db", "10.0.0.2")
    );
    assert_eq!(
        (
            client.start_ns,
            client.end_ns,
            server.start_ns,
            server.end_ns
        ),
        (100_000, 160_000, 120_000, 140_000)
    );
    assert_eq!((client.events.len(), &*server.events[0].name), (0, "lock"));
    assert_eq!(client.attributes["url"], "/x");
    assert_eq!(
        (
            &client.attributes["peer.service"],
            &server.attributes["rows"]
        ),
        (&json!("db"), &json!("3"))
    );
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
    let [Ok(server_span), Ok(child), Ok(client_span)] = &told[..] else {
        panic!("{told:?}")
    };
    assert_eq!(
        (server_span.span_id, child.parent_id, server_span.parent_id),
        (0xb, 0xb, client_span.span_id)
    );
    // The same with two half spans of version 1.
    let half = |service: &str, begin: &str, end: &str| {
        let annotation = |value: &str, at: u32| {
            format!(
                r#"{{"timestamp":{at},"value":"{value}","endpoint":{{"serviceName":"{service}"}}}}"#
            )
        };
        format!(
            r#"{{"traceId":"a","id":"b","annotations":[{},{}]}}"#,
            annotation(begin, 5),
            annotation(end, 7)
        )
    };
    let told = zipkin(&format!(
        "[{},{}]",
        half("web", "cs", "cr"),
        half("db", "sr", "ss")
    ));
    let [Ok(client), Ok(server)] = &told[..] else {
        panic!("{told:?}")
    };
    assert_eq!(
        (client.flags, server.flags, server.parent_id),
        (CLIENT, SERVER, client.span_id)
    );
    // Alone, a side keeps id and parent.
    let alone = only(&zipkin(&format!(
        "[{client}]",
        client = r#"{"traceId":"a","id":"b","parentId":"1","kind":"CLIENT","timestamp":5}"#
    )));
    assert_eq!(
        (alone.span_id, alone.parent_id, alone.flags),
        (0xb, 1, CLIENT | UNFINISHED)
    );
}

#[test]
fn flaws_of_zipkin_cost_one_span() {
    let good = r#"{"traceId":"a","id":"b","timestamp":1,"duration":1}"#;
    let check = |bad: &str, reason: &str| {
        let told = zipkin(&format!("[{good},{bad}]"));
        let [Err(told), Ok(_)] = &told[..] else {
            panic!("{told:?}")
        };
        assert!(told.contains(reason), "{told}");
    };
    check("7", "expected struct Span");
    check(r#"{"traceId":"a","id":"b"}"#, "the span has no time");
    check(r#"{"traceId":"a","timestamp":1}"#, "missing field `id`");
    check(
        r#"{"traceId":"a","id":"b","timestamp":99999999999999999}"#,
        "timestamp is 99999999999999999 us",
    );
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
        "otel.status_description": "no funds",
        "links": [{"trace_id": "5b8efff798038103d269b633813fc60c", "span_id": "eee19b7ec3c1b173"}]});
    assert_eq!(Value::Object(span.attributes), expected);
    assert_eq!(
        (&*span.events[0].name, &span.events[0].attributes["e"]),
        ("event", &json!(1))
    );
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
            otlp::spans_of(at, &message, &mut Spans(&mut of_protobuf));
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
}

/// The same spans in all forms that keys, ids and numbers are written in.
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
    // One span that is wrong costs itself.
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

#[test]
fn jaegers_domain_model_says_the_same() {
    let api = r#"{"traceID":"5296 9a895571","spans":[]}"#;
    assert!(jaeger(api).is_empty());
    let by_api = r#"{"traceID":"000000000000000052969a8955571a3f","spans":[{"traceID":"000000000000000052969a8955571a3f",
        "spanID":"0000000000647d98","operationName":"get","startTime":1485467191639875,"duration":22938,
        "references":[{"refType":"CHILD_OF","traceID":"000000000000000052969a8955571a3f","spanID":"000000000068c4e3"}],
        "tags":[{"key":"span.kind","type":"string","value":"server"},{"key":"port","type":"int64","value":53931},
        {"key":"none","type":"int64","value":0},{"key":"d","type":"float64","value":129.8},{"key":"b","type":"bool","value":true}],
        "logs":[{"timestamp":1485467191639875,"fields":[{"key":"event","type":"string","value":"x"}]}],"processID":"p"}],
        "processes":{"p":{"serviceName":"api","tags":[{"key":"hostname","type":"string","value":"h"}]}}}"#;
    let by_domain = r#"{"spans":[{"traceId":"AAAAAAAAAABSlpqJVVcaPw==","spanId":"AAAAAABkfZg=","operationName":"get",
        "startTime":"2017-01-26T16:46:31.639875-05:00","duration":"22938000ns",
        "references":[{"traceId":"AAAAAAAAAABSlpqJVVcaPw==","spanId":"AAAAAABoxOM="}],
        "tags":[{"key":"span.kind","vType":"STRING","vStr":"server"},{"key":"port","vType":"INT64","vInt64":"53931"},
        {"key":"none","vType":"INT64"},{"key":"d","vType":"FLOAT64","vFloat64":129.8},{"key":"b","vType":"BOOL","vBool":true}],
        "logs":[{"timestamp":"2017-01-26T21:46:31.639875Z","fields":[{"key":"event","vType":"STRING","vStr":"x"}]}],
        "process":{"serviceName":"api","tags":[{"key":"hostname","vType":"STRING","vStr":"h"}]}}]}"#;
    let by_elasticsearch = r#"{"traceID":"000000000000000052969a8955571a3f","spanID":"0000000000647d98","operationName":"get",
        "startTime":1485467191639875,"startTimeMillis":1485467191639,"duration":22938,"flags":1,
        "references":[{"refType":"CHILD_OF","traceID":"000000000000000052969a8955571a3f","spanID":"000000000068c4e3"}],
        "tags":[],"tag":{"span@kind":"server","port":53931,"none":0,"d":129.8,"b":true},
        "logs":[{"timestamp":1485467191639875,"fields":[{"key":"event","type":"string","value":"x"}]}],
        "process":{"serviceName":"api","tag":{"hostname":"h"}}}"#;
    let expected = only(&jaeger(by_api));
    assert_eq!(
        (expected.parent_id, &*expected.host, expected.flags),
        (0x0068_c4e3, "h", SERVER)
    );
    for (form, not_taken) in [
        (by_domain, vec![]),
        (by_elasticsearch, vec![("span.flags".to_owned(), 1)]),
    ] {
        let found = heard(|heard| jaeger::spans_of(0, form, heard));
        assert_eq!(
            (only(&found.told), found.not_taken),
            (expected.clone(), not_taken),
            "{form}"
        );
    }
}
