//! Jaeger's JSON as its query API, its Elasticsearch indexes and its domain model write it.

use std::borrow::Cow;
use std::collections::HashMap;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use stroboscope_otlp::typed::{UnstoredValue, nullable};

/// A trace. A single span parses as a trace without `spans`.
#[derive(Deserialize)]
pub(super) struct Trace<'a> {
    #[serde(rename = "traceID", alias = "traceId", borrow, default)]
    pub(super) trace_id: Cow<'a, str>,
    #[serde(borrow)]
    pub(super) spans: Option<Vec<&'a RawValue>>,
    #[serde(borrow)]
    pub(super) processes: Option<HashMap<Cow<'a, str>, Process<'a>>>,
    /// `processes` in the domain model's form.
    #[serde(rename = "processMap", borrow)]
    pub(super) process_map: Option<Vec<ProcessMapping<'a>>>,
    #[serde(default)]
    pub(super) warnings: UnstoredValue,
}

#[derive(Deserialize)]
pub(super) struct ProcessMapping<'a> {
    #[serde(rename = "processId", alias = "processID", borrow)]
    pub(super) id: Cow<'a, str>,
    #[serde(borrow)]
    pub(super) process: Process<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Process<'a> {
    #[serde(borrow, default)]
    pub(super) service_name: Cow<'a, str>,
    #[serde(borrow)]
    pub(super) tags: Option<Vec<Tag<'a>>>,
    /// Tags as members of an object, with `@` for dots, as Elasticsearch stores them.
    pub(super) tag: Option<Map<String, Value>>,
}

/// A tag, whose value may be in one of several fields depending on its type.
#[derive(Deserialize)]
pub(super) struct Tag<'a> {
    #[serde(borrow)]
    pub(super) key: Cow<'a, str>,
    #[serde(rename = "type", alias = "vType", borrow, default)]
    pub(super) kind: Cow<'a, str>,
    #[serde(
        alias = "vStr",
        alias = "vBool",
        alias = "vInt64",
        alias = "vLong",
        alias = "vFloat64",
        alias = "vDouble",
        alias = "vBinary"
    )]
    pub(super) value: Option<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Reference<'a> {
    /// Type of the reference. Protobuf omits the first value of an enumeration, here `CHILD_OF`.
    #[serde(borrow, default = "child_of")]
    pub(super) ref_type: Cow<'a, str>,
    #[serde(rename = "traceID", alias = "traceId", borrow)]
    pub(super) trace_id: Option<Cow<'a, str>>,
    #[serde(rename = "spanID", alias = "spanId", borrow)]
    pub(super) span_id: Cow<'a, str>,
    /// The whole referenced span, which exports of Jaeger's UI embed; it also occurs on its own.
    #[serde(borrow)]
    #[expect(dead_code, reason = "known, and of no use")]
    span: Option<&'a RawValue>,
}

fn child_of() -> Cow<'static, str> {
    "CHILD_OF".into()
}

#[derive(Deserialize)]
pub(super) struct Log<'a> {
    #[serde(borrow)]
    pub(super) timestamp: &'a RawValue,
    #[serde(borrow, default, deserialize_with = "nullable")]
    pub(super) fields: Vec<Tag<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Span<'a> {
    #[serde(rename = "traceID", alias = "traceId", borrow)]
    pub(super) trace_id: Option<Cow<'a, str>>,
    #[serde(rename = "spanID", alias = "spanId", borrow)]
    pub(super) span_id: Cow<'a, str>,
    #[serde(rename = "parentSpanID", alias = "parentSpanId", borrow)]
    pub(super) parent_span_id: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(super) operation_name: Cow<'a, str>,
    #[serde(borrow, alias = "refs")]
    pub(super) references: Option<Vec<Reference<'a>>>,
    #[serde(borrow)]
    pub(super) start_time: &'a RawValue,
    /// Start time in ms, which Elasticsearch needs.
    #[serde(rename = "startTimeMillis", default)]
    #[expect(dead_code, reason = "known, and said by the start time")]
    start_time_ms: UnstoredValue,
    #[serde(borrow)]
    pub(super) duration: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) tags: Option<Vec<Tag<'a>>>,
    /// Tags as members of an object, with `@` for dots, as Elasticsearch stores them.
    pub(super) tag: Option<Map<String, Value>>,
    #[serde(borrow)]
    pub(super) logs: Option<Vec<Log<'a>>>,
    #[serde(rename = "processID", alias = "processId", borrow)]
    pub(super) process_id: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(super) process: Option<Process<'a>>,
    #[serde(default)]
    pub(super) flags: UnstoredValue,
    #[serde(default)]
    pub(super) warnings: UnstoredValue,
}
