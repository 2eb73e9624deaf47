//! Property tests of masks: the rows of redacted requests and batches equal those that an obvious
//! implementation masks, in every encoding, and no stored text has a match.

use std::sync::Arc;

use proptest::prelude::*;
use proptest::sample::select;
use prost::Message as _;
use serde_json::{Value, json};
use stroboscope_fixtures::batches::batch;
use stroboscope_otlp::message::{
    AnyKind, AnyValue, ArrayValue, Event, KeyValue, KeyValueList, Link, Resource, ResourceSpans,
    Scope, ScopeSpans, Span, Status,
};
use stroboscope_otlp::{
    LogRecord, ResourceLogs, ScopeLogs, any_json, hex, pairs_json, resource_spans_json,
    standard_base64,
};
use stroboscope_proto::v1::Batch;
use stroboscope_store::decode::{
    CheckedBatch, otlp_json, otlp_logs_json, otlp_logs_protobuf, otlp_protobuf,
};
use stroboscope_store::limits::Limits;
use stroboscope_store::record::Rows;

use super::{Redaction, pattern, whole};

const TEXTS: [&str; 12] = [
    "alice@example.com",
    "4111 1111 1111 1111",
    "4111111111111111",
    "4",
    "41",
    "a",
    "@b",
    " ",
    ".c",
    "é",
    "\u{fffd}",
    "-",
];

fn redaction() -> Arc<Redaction> {
    let rules = ["mask:{card}", "mask:[a-z]+@[a-z.]+", "mask:^4"];
    let rules = rules.map(|rule| rule.parse().unwrap());
    Redaction::new(rules.into(), b"").unwrap()
}

fn text() -> impl Strategy<Value = String> {
    let pieces = prop::collection::vec(select(&TEXTS[..]), 0..4);
    pieces.prop_map(|pieces| pieces.concat())
}

fn any_value() -> impl Strategy<Value = AnyValue> {
    let int = select(&[4_111_111_111_111_111, -4_111_111_111_111_111, 7, 41][..]);
    let double = select(
        &[
            4_111_111_111_111_111.0,
            0.411_111_111_111_111_1,
            41.0,
            1e300,
        ][..],
    );
    let leaf = prop_oneof![
        text().prop_map(AnyKind::Text),
        text().prop_map(|text| AnyKind::Bytes(text.into())),
        int.prop_map(AnyKind::Int),
        double.prop_map(AnyKind::Double),
        any::<bool>().prop_map(AnyKind::Bool),
    ];
    let leaf = leaf.prop_map(|kind| AnyValue { kind: Some(kind) });
    leaf.prop_recursive(3, 12, 3, |inner| {
        let list = prop::collection::vec(inner.clone(), 0..3);
        let map = prop::collection::vec((text(), inner), 0..3);
        prop_oneof![
            list.prop_map(|values| AnyKind::Array(ArrayValue { values })),
            map.prop_map(|map| AnyKind::Map(KeyValueList {
                values: pairs_of(map)
            })),
        ]
        .prop_map(|kind| AnyValue { kind: Some(kind) })
    })
}

fn pairs_of(pairs: Vec<(String, AnyValue)>) -> Vec<KeyValue> {
    let pair = |(key, value)| KeyValue {
        key,
        value: Some(value),
    };
    pairs.into_iter().map(pair).collect()
}

fn pairs() -> impl Strategy<Value = Vec<KeyValue>> {
    prop::collection::vec((text(), any_value()), 0..4).prop_map(pairs_of)
}

fn spans() -> impl Strategy<Value = ResourceSpans> {
    let all_texts = prop::collection::vec(text(), 9);
    (all_texts, prop::collection::vec(pairs(), 5)).prop_map(|(texts, pairs)| {
        let mut texts = texts.into_iter();
        let mut pairs = pairs.into_iter();
        let (mut text, mut pairs) = (|| texts.next().unwrap(), || pairs.next().unwrap());
        let span = Span {
            trace_id: vec![7; 16],
            span_id: vec![8; 8],
            name: format!("n{}", text()),
            start_time_unix_nano: 5,
            end_time_unix_nano: 6,
            attributes: pairs(),
            events: vec![Event {
                time_unix_nano: 5,
                name: text(),
                attributes: pairs(),
                ..Event::default()
            }],
            links: vec![Link {
                trace_id: vec![9; 16],
                span_id: vec![9; 8],
                attributes: pairs(),
                trace_state: text(),
                ..Link::default()
            }],
            status: Some(Status {
                message: text(),
                code: 2,
                deprecated_code: 0,
            }),
            trace_state: text(),
            ..Span::default()
        };
        let mut resource = pairs();
        resource.extend(pairs_of(vec![(
            "service.name".to_owned(),
            AnyValue {
                kind: Some(AnyKind::Text(format!("n{}", text()))),
            },
        )]));
        ResourceSpans {
            resource: Some(Resource {
                attributes: resource,
                ..Resource::default()
            }),
            scope_spans: vec![ScopeSpans {
                scope: Some(Scope {
                    name: text(),
                    version: text(),
                    attributes: pairs(),
                    ..Scope::default()
                }),
                spans: vec![span],
                schema_url: text(),
            }],
            ..ResourceSpans::default()
        }
    })
}

/// Returns a log record with the name, trace state and attributes of a span.
fn log_of(span: &Span, body: AnyValue) -> LogRecord {
    LogRecord {
        time_unix_nano: 5,
        severity_text: span.trace_state.clone(),
        body: Some(body),
        attributes: span.attributes.clone(),
        trace_id: span.trace_id.clone(),
        span_id: span.span_id.clone(),
        event_name: span.name.clone(),
        ..LogRecord::default()
    }
}

/// The obvious implementation.
struct Twin(Arc<Redaction>);

impl Twin {
    fn find(&self, text: &str) -> Option<String> {
        pattern::masked(&self.0.masks, text)
    }

    fn text(&self, text: &mut String) {
        *text = self.find(text).unwrap_or_else(|| text.clone());
    }

    fn any(&self, any: &mut AnyValue) {
        let found = match any.kind.as_mut().unwrap() {
            AnyKind::Text(text) => self.find(text),
            AnyKind::Bytes(bytes) => self
                .find(std::str::from_utf8(bytes).unwrap())
                .or_else(|| self.find(&hex(bytes)))
                .or_else(|| self.find(&standard_base64(bytes))),
            AnyKind::Int(int) => self.find(&int.to_string()),
            AnyKind::Double(double) => whole(*double).and_then(|text| self.find(&text)),
            AnyKind::Bool(_) => None,
            AnyKind::Array(array) => return array.values.iter_mut().for_each(|any| self.any(any)),
            AnyKind::Map(map) => return self.pairs(&mut map.values),
        };
        if let Some(found) = found {
            any.kind = Some(AnyKind::Text(found));
        }
    }

    fn pairs(&self, pairs: &mut [KeyValue]) {
        for pair in pairs {
            self.text(&mut pair.key);
            self.any(pair.value.as_mut().unwrap());
        }
    }

    fn spans(&self, spans: &mut ResourceSpans) {
        self.pairs(&mut spans.resource.as_mut().unwrap().attributes);
        for of_scope in &mut spans.scope_spans {
            self.text(&mut of_scope.schema_url);
            let scope = of_scope.scope.as_mut().unwrap();
            self.text(&mut scope.name);
            self.text(&mut scope.version);
            self.pairs(&mut scope.attributes);
            for span in &mut of_scope.spans {
                self.text(&mut span.name);
                self.text(&mut span.trace_state);
                self.text(&mut span.status.as_mut().unwrap().message);
                self.pairs(&mut span.attributes);
                for event in &mut span.events {
                    self.text(&mut event.name);
                    self.pairs(&mut event.attributes);
                }
                for link in &mut span.links {
                    self.text(&mut link.trace_state);
                    self.pairs(&mut link.attributes);
                }
            }
        }
    }

    /// Masks the keys, texts and whole numbers of a stored value.
    fn json(&self, value: &mut Value) {
        match value {
            Value::Object(members) => {
                for (mut key, mut value) in std::mem::take(members) {
                    self.text(&mut key);
                    self.json(&mut value);
                    members.insert(key, value);
                }
            }
            Value::Array(elements) => elements.iter_mut().for_each(|each| self.json(each)),
            Value::String(text) => self.text(text),
            Value::Number(number) => {
                let text = match number.is_f64() {
                    true => number.as_f64().and_then(whole),
                    false => Some(number.to_string()),
                };
                if let Some(found) = text.and_then(|text| self.find(&text)) {
                    *value = found.into();
                }
            }
            _ => {}
        }
    }
}

/// Returns texts and attributes of the rows as JSON.
fn stored(rows: &Rows) -> Value {
    let name = |id| rows.strings.text(id);
    let parsed = |attributes: &Option<Box<str>>| -> Value {
        let text = attributes.as_deref().unwrap_or("{}");
        serde_json::from_str(text).unwrap()
    };
    let spans = rows.spans.iter().map(|row| {
        json!([
            name(row.name),
            name(row.service),
            name(row.host),
            parsed(&row.attributes)
        ])
    });
    let events = rows.events.iter().map(|row| {
        json!([
            name(row.name),
            name(row.service),
            name(row.host),
            parsed(&row.attributes)
        ])
    });
    let batches = rows.batches.iter();
    let batches = batches.map(|row| json!([name(row.service), name(row.sdk_version)]));
    spans.chain(events).chain(batches).collect()
}

fn rows_of(read: impl FnOnce(&Limits, &mut Rows)) -> Value {
    let mut rows = Rows::default();
    read(&Limits::default(), &mut rows);
    assert!(!rows.is_empty());
    stored(&rows)
}

/// Returns a request with one element.
fn request(element: &impl prost::Message) -> Vec<u8> {
    let mut request = vec![0x0a];
    let bytes = element.encode_to_vec();
    prost::encoding::encode_varint(bytes.len() as u64, &mut request);
    request.extend(bytes);
    request
}

/// Checks that no text in the store has a match, and that no request contains `alice@`.
fn check_clean(twin: &Twin, stored: &Value, requests: &[&[u8]]) {
    let mut again = stored.clone();
    twin.json(&mut again);
    assert_eq!(again, *stored, "it has no match");
    for request in requests {
        let has_mail = request.windows(6).any(|window| window == b"alice@");
        assert!(!has_mail, "{}", String::from_utf8_lossy(request));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn spans_are_masked_as_by_the_twin(spans in spans()) {
        let redaction = redaction();
        let twin = Twin(redaction.clone());
        let mut masked = spans.clone();
        twin.spans(&mut masked);
        let expected = rows_of(|limits, rows| {
            otlp_protobuf(&request(&masked), limits, rows).unwrap();
        });
        let protobuf = redaction.traces(&request(&spans)).unwrap();
        let json = json!({"resourceSpans": [resource_spans_json(&spans)]});
        let json = redaction.json(json.to_string().as_bytes()).unwrap();
        check_clean(&twin, &expected, &[&protobuf, &json]);
        let of_protobuf = rows_of(|limits, rows| {
            otlp_protobuf(&protobuf, limits, rows).unwrap();
        });
        prop_assert_eq!(&of_protobuf, &expected);
        let of_json = rows_of(|limits, rows| {
            otlp_json(&json, limits, rows).unwrap();
        });
        prop_assert_eq!(&of_json, &expected);
    }

    #[test]
    fn log_records_are_masked_as_by_the_twin(spans in spans(), body in any_value()) {
        let redaction = redaction();
        let twin = Twin(redaction.clone());
        let logs_of = |spans: &ResourceSpans, body: AnyValue| ResourceLogs {
            resource: spans.resource.clone(),
            scope_logs: vec![ScopeLogs {
                log_records: vec![log_of(&spans.scope_spans[0].spans[0], body)],
                schema_url: spans.scope_spans[0].schema_url.clone(),
                ..ScopeLogs::default()
            }],
            ..ResourceLogs::default()
        };
        let (mut masked, mut masked_body) = (spans.clone(), body.clone());
        twin.spans(&mut masked);
        twin.any(&mut masked_body);
        let expected = rows_of(|limits, rows| {
            let masked = logs_of(&masked, masked_body);
            otlp_logs_protobuf(&request(&masked), limits, rows).unwrap();
        });
        let logs = logs_of(&spans, body);
        let protobuf = redaction.logs(&request(&logs)).unwrap();
        let record = &logs.scope_logs[0].log_records[0];
        let json = json!({"resourceLogs": [{
            "resource": {"attributes": pairs_json(&logs.resource.as_ref().unwrap().attributes)},
            "scopeLogs": [{
                "schemaUrl": logs.scope_logs[0].schema_url,
                "logRecords": [{
                    "timeUnixNano": "5", "severityText": record.severity_text,
                    "body": any_json(record.body.as_ref().unwrap()),
                    "attributes": pairs_json(&record.attributes), "traceId": hex(&record.trace_id),
                    "spanId": hex(&record.span_id), "eventName": record.event_name,
                }],
            }],
        }]});
        let json = redaction.json(json.to_string().as_bytes()).unwrap();
        check_clean(&twin, &expected, &[&protobuf, &json]);
        let of_protobuf = rows_of(|limits, rows| {
            otlp_logs_protobuf(&protobuf, limits, rows).unwrap();
        });
        prop_assert_eq!(&of_protobuf, &expected);
        let of_json = rows_of(|limits, rows| {
            otlp_logs_json(&json, limits, rows).unwrap();
        });
        prop_assert_eq!(&of_json, &expected);
    }

    #[test]
    fn batches_are_masked_as_by_the_twin(
        texts in prop::collection::vec(text(), 8),
        number in select(&[4_111_111_111_111_111_u64, 41, 7][..]),
        named in prop::collection::vec(1..6_u32, 4),
    ) {
        let redaction = redaction();
        let twin = Twin(redaction.clone());
        let mut sent: Batch = batch(7, 0, 4);
        // Equal keys would become one, and JSON does not show which was the last.
        for (text, (letter, other)) in sent.strings[1..].iter_mut().zip(('a'..).zip(&texts)) {
            *text = format!("{letter} {other}");
        }
        sent.spans.as_mut().unwrap().name_string = named;
        let process = sent.process.as_mut().unwrap();
        process.service = format!("n{}", texts[5]);
        process.host = texts[6].clone();
        process.sdk_version = texts[7].clone();
        let attributes = sent.spans.as_mut().unwrap().attributes.as_mut().unwrap();
        attributes.uint_values[0] = number;
        attributes.int_values[0] = -number.cast_signed();
        attributes.double_values[0] = number as f64;
        let stored_of = |batch: &Batch| rows_of(|limits, rows| {
            let checked = CheckedBatch::check(batch.clone(), limits);
            checked.unwrap().append_to(7, rows);
        });
        let mut expected = stored_of(&sent);
        twin.json(&mut expected);
        let mut redacted = sent.clone();
        redaction.batch(&mut redacted, &Limits::default()).unwrap();
        check_clean(&twin, &expected, &[&redacted.encode_to_vec()]);
        prop_assert_eq!(stored_of(&redacted), expected);
    }
}
