//! The messages of OTLP's traces, as far as they are imported, for both encodings.
//!
//! The fields and their numbers are those of `opentelemetry/proto/trace/v1/trace.proto`, `common/v1/common.proto` and
//! `resource/v1/resource.proto`, version 1, and `instrumentation_library_spans`, as version 0.18 and before had it;
//! `otlp_fields` counts unknown ones. They are written here by hand because the crate `opentelemetry-proto` brings the
//! OpenTelemetry SDK with it; the tests compare with that crate. In JSON, keys may be in lower camel case or as the
//! protobuf has them, ids hex or base64, 64-bit integers and enumerations text or numbers: whatever the OTLP
//! specification or protobuf's own JSON mapping has.

use prost::{Message, Oneof};
use serde::Deserialize;

use super::otlp_json::{AnyValueText, id, kind, status_code, u32_or_text, u64_or_text};
use super::typed::nullable;

/// Spans of one resource.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ResourceSpans {
    #[prost(message, optional, tag = "1")]
    pub(super) resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    pub(super) scope_spans: Vec<ScopeSpans>,
    #[prost(string, tag = "3")]
    pub(super) schema_url: String,
    /// As it was called before.
    #[prost(message, repeated, tag = "1000")]
    pub(super) instrumentation_library_spans: Vec<ScopeSpans>,
}

/// Spans of one instrumentation library.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ScopeSpans {
    #[prost(message, optional, tag = "1")]
    pub(super) scope: Option<Scope>,
    #[prost(message, repeated, tag = "2")]
    pub(super) spans: Vec<Span>,
    #[prost(string, tag = "3")]
    pub(super) schema_url: String,
}

/// What recorded.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Resource {
    #[prost(message, repeated, tag = "1")]
    #[serde(deserialize_with = "nullable")]
    pub(super) attributes: Vec<KeyValue>,
    #[prost(uint32, tag = "2")]
    #[serde(deserialize_with = "u32_or_text", alias = "dropped_attributes_count")]
    pub(super) dropped_attributes_count: u32,
}

/// An instrumentation library.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Scope {
    #[prost(string, tag = "1")]
    #[serde(deserialize_with = "nullable")]
    pub(super) name: String,
    #[prost(string, tag = "2")]
    #[serde(deserialize_with = "nullable")]
    pub(super) version: String,
    #[prost(message, repeated, tag = "3")]
    #[serde(deserialize_with = "nullable")]
    pub(super) attributes: Vec<KeyValue>,
    #[prost(uint32, tag = "4")]
    #[serde(deserialize_with = "u32_or_text", alias = "dropped_attributes_count")]
    pub(super) dropped_attributes_count: u32,
}

/// A span.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Span {
    #[prost(bytes = "vec", tag = "1")]
    #[serde(deserialize_with = "id", alias = "trace_id")]
    pub(super) trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    #[serde(deserialize_with = "id", alias = "span_id")]
    pub(super) span_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "4")]
    #[serde(deserialize_with = "id", alias = "parent_span_id")]
    pub(super) parent_span_id: Vec<u8>,
    #[prost(string, tag = "5")]
    #[serde(deserialize_with = "nullable")]
    pub(super) name: String,
    #[prost(int32, tag = "6")]
    #[serde(deserialize_with = "kind")]
    pub(super) kind: i32,
    #[prost(fixed64, tag = "7")]
    #[serde(deserialize_with = "u64_or_text", alias = "start_time_unix_nano")]
    pub(super) start_time_unix_nano: u64,
    #[prost(fixed64, tag = "8")]
    #[serde(deserialize_with = "u64_or_text", alias = "end_time_unix_nano")]
    pub(super) end_time_unix_nano: u64,
    #[prost(message, repeated, tag = "9")]
    #[serde(deserialize_with = "nullable")]
    pub(super) attributes: Vec<KeyValue>,
    #[prost(message, repeated, tag = "11")]
    #[serde(deserialize_with = "nullable")]
    pub(super) events: Vec<Event>,
    #[prost(message, repeated, tag = "13")]
    #[serde(deserialize_with = "nullable")]
    pub(super) links: Vec<Link>,
    #[prost(message, optional, tag = "15")]
    pub(super) status: Option<Status>,
    #[prost(string, tag = "3")]
    #[serde(deserialize_with = "nullable", alias = "trace_state")]
    pub(super) trace_state: String,
    #[prost(uint32, tag = "10")]
    #[serde(deserialize_with = "u32_or_text", alias = "dropped_attributes_count")]
    pub(super) dropped_attributes_count: u32,
    #[prost(uint32, tag = "12")]
    #[serde(deserialize_with = "u32_or_text", alias = "dropped_events_count")]
    pub(super) dropped_events_count: u32,
    #[prost(uint32, tag = "14")]
    #[serde(deserialize_with = "u32_or_text", alias = "dropped_links_count")]
    pub(super) dropped_links_count: u32,
    #[prost(fixed32, tag = "16")]
    #[serde(deserialize_with = "u32_or_text")]
    pub(super) flags: u32,
}

/// Something that happened inside a span.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Event {
    #[prost(fixed64, tag = "1")]
    #[serde(deserialize_with = "u64_or_text", alias = "time_unix_nano")]
    pub(super) time_unix_nano: u64,
    #[prost(string, tag = "2")]
    #[serde(deserialize_with = "nullable")]
    pub(super) name: String,
    #[prost(message, repeated, tag = "3")]
    #[serde(deserialize_with = "nullable")]
    pub(super) attributes: Vec<KeyValue>,
    #[prost(uint32, tag = "4")]
    #[serde(deserialize_with = "u32_or_text", alias = "dropped_attributes_count")]
    pub(super) dropped_attributes_count: u32,
}

/// Another span that has to do with this one.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Link {
    #[prost(bytes = "vec", tag = "1")]
    #[serde(deserialize_with = "id", alias = "trace_id")]
    pub(super) trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    #[serde(deserialize_with = "id", alias = "span_id")]
    pub(super) span_id: Vec<u8>,
    #[prost(message, repeated, tag = "4")]
    #[serde(deserialize_with = "nullable")]
    pub(super) attributes: Vec<KeyValue>,
    #[prost(string, tag = "3")]
    #[serde(deserialize_with = "nullable", alias = "trace_state")]
    pub(super) trace_state: String,
    #[prost(uint32, tag = "5")]
    #[serde(deserialize_with = "u32_or_text", alias = "dropped_attributes_count")]
    pub(super) dropped_attributes_count: u32,
    #[prost(fixed32, tag = "6")]
    #[serde(deserialize_with = "u32_or_text")]
    pub(super) flags: u32,
}

/// How a span ended.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Status {
    #[prost(string, tag = "2")]
    #[serde(deserialize_with = "nullable")]
    pub(super) message: String,
    #[prost(int32, tag = "3")]
    #[serde(deserialize_with = "status_code")]
    pub(super) code: i32,
    /// Of before version 0.10; not 0 is an error.
    #[prost(int32, tag = "1")]
    #[serde(deserialize_with = "nullable", alias = "deprecated_code")]
    pub(super) deprecated_code: i32,
}

/// An attribute.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct KeyValue {
    #[prost(string, tag = "1")]
    #[serde(deserialize_with = "nullable")]
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
#[serde(default, rename_all = "camelCase")]
pub(super) struct ArrayValue {
    #[prost(message, repeated, tag = "1")]
    #[serde(deserialize_with = "nullable")]
    pub(super) values: Vec<AnyValue>,
}

/// Several attributes.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct KeyValueList {
    #[prost(message, repeated, tag = "1")]
    #[serde(deserialize_with = "nullable")]
    pub(super) values: Vec<KeyValue>,
}
