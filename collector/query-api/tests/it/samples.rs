//! Tests with Jaeger's own samples: its conversion of OTLP, and the traces with which it tests its
//! storages.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use stroboscope_otlp::message::{AnyValue, ResourceSpans};

use crate::round_trip::normal;
use crate::served::{Served, data};

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

/// Compares the conversion of OTLP for Jaeger's UI with Jaeger's own.
#[test]
fn otlp_becomes_what_jaeger_makes_of_it() {
    let (Some(given), Some(expected)) = (
        data("jaeger/otlp2jaeger-in.json"),
        data("jaeger/otlp2jaeger-out.json"),
    ) else {
        return;
    };
    let served = Served::new();
    served.take(&parsed(&std::fs::read_to_string(given).unwrap()));
    let expected = parsed(&std::fs::read_to_string(expected).unwrap());
    let id = expected["data"][0]["traceID"].as_str().unwrap();
    let mut found = served.json(&format!("/api/traces/{id}"));
    sort_tags(&mut found);
    let mut sorted = expected.clone();
    sort_tags(&mut sorted);
    // The sample has a span twice. Jaeger's converter keeps both, its query service one.
    let spans = sorted["data"][0]["spans"].as_array_mut().unwrap();
    assert_eq!(spans.len(), 2);
    spans.dedup();
    assert_eq!(found, sorted, "{found:#}");
}

/// Sorts tags, which have no order in Jaeger's model.
fn sort_tags(value: &mut Value) {
    match value {
        Value::Object(map) => {
            if let Some(Value::Array(tags)) = map.get_mut("tags") {
                tags.sort_by_key(Value::to_string);
            }
            map.values_mut().for_each(sort_tags);
        }
        Value::Array(list) => list.iter_mut().for_each(sort_tags),
        _ => {}
    }
}

/// Version 3 of the API returns each sample unchanged, or with all its spans if it is of several
/// traces or shares one with other samples. Version 1 returns each of its traces with spans.
#[test]
fn samples_come_out_as_they_went_in() {
    let Some(directory) = data("jaeger") else {
        return;
    };
    let served = Served::new();
    let mut samples = Vec::new();
    for file in std::fs::read_dir(directory).unwrap() {
        let path = file.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        // Another test has the sample with an expected result in Jaeger's format.
        if text.contains("resourceSpans") && !path.ends_with("otlp2jaeger-in.json") {
            samples.push((path, parsed(&text)));
        }
    }
    assert!(samples.len() > 25, "{}", samples.len());
    let mut ids: Vec<BTreeSet<String>> = Vec::new();
    for (path, sample) in &samples {
        let spans = spans_of(sample);
        ids.push(
            spans
                .iter()
                .map(|span| span["traceId"].as_str().unwrap().to_owned())
                .collect(),
        );
        assert!(!ids.last().unwrap().is_empty(), "{}", path.display());
        served.import(path);
    }
    for ((path, sample), own) in samples.iter().zip(&ids) {
        // Several samples may be of one trace, which the API returns as a whole.
        let shares = ids.iter().filter(|other| !other.is_disjoint(own)).count() > 1;
        for id in own {
            let found = served.json(&format!("/api/v3/traces/{id}"))["result"].clone();
            if !shares && own.len() == 1 {
                assert_eq!(messages(&found), messages(sample), "{}", path.display());
            } else {
                let found = spans_of(&found);
                let expected = spans_of(sample);
                let of_trace = expected.iter().filter(|span| span["traceId"] == **id);
                for span in of_trace {
                    assert!(
                        found.iter().any(|found| found["spanId"] == span["spanId"]),
                        "{found:#?}"
                    );
                }
            }
            let of_v1 = served.json(&format!("/api/traces/{id}"));
            assert_eq!(of_v1["data"][0]["traceID"], json!(id));
            assert!(!of_v1["data"][0]["spans"].as_array().unwrap().is_empty());
        }
    }
}

fn spans_of(sample: &Value) -> Vec<Value> {
    let lists = |value: &Value, key: &str| value[key].as_array().cloned().unwrap_or_default();
    lists(sample, "resourceSpans")
        .iter()
        .flat_map(|resource| lists(resource, "scopeSpans"))
        .flat_map(|scope| lists(&scope, "spans"))
        .collect()
}

/// Converts a request in JSON to messages, in their normal form.
fn messages(json: &Value) -> Vec<String> {
    let list = json["resourceSpans"].as_array().unwrap();
    let messages: Vec<ResourceSpans> = list.iter().map(message).collect();
    normal(&messages)
}

fn message(json: &Value) -> ResourceSpans {
    use stroboscope_otlp::message::{KeyValue, Resource, Scope, ScopeSpans, Span};
    let list = |value: &Value, key: &str| value[key].as_array().cloned().unwrap_or_default();
    let scope_spans = |value: &Value| ScopeSpans {
        scope: serde_json::from_value::<Scope>(value["scope"].clone()).ok(),
        spans: list(value, "spans")
            .into_iter()
            .map(|span| serde_json::from_value::<Span>(span).unwrap())
            .collect(),
        schema_url: value["schemaUrl"].as_str().unwrap_or_default().to_owned(),
    };
    let _: Option<(KeyValue, AnyValue)> = None;
    ResourceSpans {
        resource: serde_json::from_value::<Resource>(json["resource"].clone()).ok(),
        scope_spans: list(json, "scopeSpans").iter().map(scope_spans).collect(),
        schema_url: json["schemaUrl"].as_str().unwrap_or_default().to_owned(),
        instrumentation_library_spans: Vec::new(),
    }
}
