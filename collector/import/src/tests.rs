//! Tests of the conversion of each format to spans and events.

use serde_json::{Value, json};

use super::line::LogEvent;
use super::take::Take;
use super::zipkin::Zipkin;
use super::{BadLine, jaeger};
use stroboscope_otlp::{ForeignSpan, span_number};

mod exponents;
mod kutrace;
mod otlp;

const CLIENT: u32 = 64;
const SERVER: u32 = 128;
const UNFINISHED: u32 = 4;

type Told = Vec<Result<ForeignSpan, String>>;

/// Receiver that keeps all that a reader passes on.
#[derive(Default)]
pub(super) struct Heard {
    pub(super) told: Told,
    pub(super) events: Vec<String>,
    /// Names and counts of the parts that are not stored.
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

/// Reads a list of spans, or a single span, record by record.
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
    // The ids have their full length, as in links of OTLP.
    let link = |trace: u32, span: u32, kind: &str| {
        let (trace, span) = (format!("{trace:032x}"), format!("{span:016x}"));
        json!({"trace_id": trace, "span_id": span, "type": kind})
    };
    let links = json!([link(0x1f, 9, "FOLLOWS_FROM"), link(0x77, 8, "CHILD_OF")]);
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
    // Two spans of version 1, one for each side, are related in this way, too.
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
