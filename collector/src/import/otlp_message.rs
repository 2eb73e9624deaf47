//! The messages of OTLP's traces, as far as they are imported, for both encodings.
//!
//! The fields and their numbers are those of `opentelemetry/proto/trace/v1/trace.proto`, `common/v1/common.proto` and
//! `resource/v1/resource.proto`, version 1; unknown ones are skipped. They are written here by hand because the crate
//! `opentelemetry-proto` brings the OpenTelemetry SDK with it; the tests compare with that crate. Ids in JSON are hex,
//! and 64-bit integers may be text, as the OTLP specification has it.

use prost::{Message, Oneof};
use serde::Deserialize;

use super::otlp_json::{AnyValueText, hex, u64_or_text};

/// A request to export spans.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct ExportRequest {
    #[prost(message, repeated, tag = "1")]
    pub(super) resource_spans: Vec<ResourceSpans>,
}

/// Spans of one resource.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct ResourceSpans {
    #[prost(message, optional, tag = "1")]
    pub(super) resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    pub(super) scope_spans: Vec<ScopeSpans>,
}

/// What recorded.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default)]
pub(super) struct Resource {
    #[prost(message, repeated, tag = "1")]
    pub(super) attributes: Vec<KeyValue>,
}

/// Spans of one instrumentation library.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default)]
pub(super) struct ScopeSpans {
    #[prost(message, optional, tag = "1")]
    pub(super) scope: Option<Scope>,
    #[prost(message, repeated, tag = "2")]
    pub(super) spans: Vec<Span>,
}

/// An instrumentation library.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default)]
pub(super) struct Scope {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, tag = "2")]
    pub(super) version: String,
    #[prost(message, repeated, tag = "3")]
    pub(super) attributes: Vec<KeyValue>,
}

/// A span.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Span {
    #[prost(bytes = "vec", tag = "1")]
    #[serde(deserialize_with = "hex")]
    pub(super) trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    #[serde(deserialize_with = "hex")]
    pub(super) span_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "4")]
    #[serde(deserialize_with = "hex")]
    pub(super) parent_span_id: Vec<u8>,
    #[prost(string, tag = "5")]
    pub(super) name: String,
    #[prost(int32, tag = "6")]
    pub(super) kind: i32,
    #[prost(fixed64, tag = "7")]
    #[serde(deserialize_with = "u64_or_text")]
    pub(super) start_time_unix_nano: u64,
    #[prost(fixed64, tag = "8")]
    #[serde(deserialize_with = "u64_or_text")]
    pub(super) end_time_unix_nano: u64,
    #[prost(message, repeated, tag = "9")]
    pub(super) attributes: Vec<KeyValue>,
    #[prost(message, repeated, tag = "11")]
    pub(super) events: Vec<Event>,
    #[prost(message, repeated, tag = "13")]
    pub(super) links: Vec<Link>,
    #[prost(message, optional, tag = "15")]
    pub(super) status: Option<Status>,
}

/// Something that happened inside a span.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Event {
    #[prost(fixed64, tag = "1")]
    #[serde(deserialize_with = "u64_or_text")]
    pub(super) time_unix_nano: u64,
    #[prost(string, tag = "2")]
    pub(super) name: String,
    #[prost(message, repeated, tag = "3")]
    pub(super) attributes: Vec<KeyValue>,
}

/// Another span that has to do with this one.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Link {
    #[prost(bytes = "vec", tag = "1")]
    #[serde(deserialize_with = "hex")]
    pub(super) trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    #[serde(deserialize_with = "hex")]
    pub(super) span_id: Vec<u8>,
    #[prost(message, repeated, tag = "4")]
    pub(super) attributes: Vec<KeyValue>,
}

/// How a span ended.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default)]
pub(super) struct Status {
    #[prost(string, tag = "2")]
    pub(super) message: String,
    #[prost(int32, tag = "3")]
    pub(super) code: i32,
}

/// An attribute.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default)]
pub(super) struct KeyValue {
    #[prost(string, tag = "1")]
    pub(super) key: String,
    #[prost(message, optional, tag = "2")]
    pub(super) value: Option<AnyValue>,
}

/// Its value.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(from = "AnyValueText")]
pub(super) struct AnyValue {
    #[prost(oneof = "AnyKind", tags = "1, 2, 3, 4, 5, 6, 7")]
    pub(super) kind: Option<AnyKind>,
}

/// The kinds of values.
#[derive(Clone, PartialEq, Oneof)]
pub(super) enum AnyKind {
    #[prost(string, tag = "1")]
    Text(String),
    #[prost(bool, tag = "2")]
    Bool(bool),
    #[prost(int64, tag = "3")]
    Int(i64),
    #[prost(double, tag = "4")]
    Double(f64),
    #[prost(message, tag = "5")]
    Array(ArrayValue),
    #[prost(message, tag = "6")]
    Map(KeyValueList),
    #[prost(bytes = "vec", tag = "7")]
    Bytes(Vec<u8>),
}

/// Several values.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default)]
pub(super) struct ArrayValue {
    #[prost(message, repeated, tag = "1")]
    pub(super) values: Vec<AnyValue>,
}

/// Several attributes.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default)]
pub(super) struct KeyValueList {
    #[prost(message, repeated, tag = "1")]
    pub(super) values: Vec<KeyValue>,
}
