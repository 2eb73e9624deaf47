//! Messages of OTLP's traces, limited to the imported parts, for both encodings.
//!
//! The fields and their numbers are those of `opentelemetry/proto/trace/v1/trace.proto`,
//! `common/v1/common.proto` and `resource/v1/resource.proto`, version 1.
//! `instrumentation_library_spans` is from versions up to 0.18. `unknown_fields` finds fields that
//! are not listed here. The messages are written by hand because the crate `opentelemetry-proto`
//! brings the OpenTelemetry SDK with it; the importer's tests compare with that crate. JSON may
//! follow the OTLP specification or protobuf's own JSON mapping: keys in lower camel case or as in
//! protobuf, ids in hex or base64, 64-bit integers and enumerations as texts or numbers.

use prost::{Message, Oneof};
use serde::Deserialize;

use super::json::{id, kind, status_code, u32_or_text, u64_or_text};
use crate::typed::nullable;

/// `Status.code` of an error.
pub(crate) const STATUS_ERROR: i32 = 2;
/// `Status.code` of an explicit success.
pub(crate) const STATUS_OK: i32 = 1;

/// Spans of one resource.
#[derive(Clone, PartialEq, Message)]
pub struct ResourceSpans {
    #[prost(message, optional, tag = "1")]
    pub resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    pub scope_spans: Vec<ScopeSpans>,
    #[prost(string, tag = "3")]
    pub schema_url: String,
    /// Former name of `scope_spans`.
    #[prost(message, repeated, tag = "1000")]
    pub instrumentation_library_spans: Vec<ScopeSpans>,
}

/// Spans of one instrumentation library.
#[derive(Clone, PartialEq, Message)]
pub struct ScopeSpans {
    #[prost(message, optional, tag = "1")]
    pub scope: Option<Scope>,
    #[prost(message, repeated, tag = "2")]
    pub spans: Vec<Span>,
    #[prost(string, tag = "3")]
    pub schema_url: String,
}

/// The entity that recorded spans or log records.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Resource {
    #[prost(message, repeated, tag = "1")]
    #[serde(deserialize_with = "nullable")]
    pub attributes: Vec<KeyValue>,
    #[prost(uint32, tag = "2")]
    #[serde(deserialize_with = "u32_or_text", alias = "dropped_attributes_count")]
    pub dropped_attributes_count: u32,
}

/// The instrumentation library that made spans or log records.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Scope {
    #[prost(string, tag = "1")]
    #[serde(deserialize_with = "nullable")]
    pub name: String,
    #[prost(string, tag = "2")]
    #[serde(deserialize_with = "nullable")]
    pub version: String,
    #[prost(message, repeated, tag = "3")]
    #[serde(deserialize_with = "nullable")]
    pub attributes: Vec<KeyValue>,
    #[prost(uint32, tag = "4")]
    #[serde(deserialize_with = "u32_or_text", alias = "dropped_attributes_count")]
    pub dropped_attributes_count: u32,
}

/// One span of a [`ScopeSpans`].
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Span {
    #[prost(bytes = "vec", tag = "1")]
    #[serde(deserialize_with = "id", alias = "trace_id")]
    pub trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    #[serde(deserialize_with = "id", alias = "span_id")]
    pub span_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "4")]
    #[serde(deserialize_with = "id", alias = "parent_span_id")]
    pub parent_span_id: Vec<u8>,
    #[prost(string, tag = "5")]
    #[serde(deserialize_with = "nullable")]
    pub name: String,
    #[prost(int32, tag = "6")]
    #[serde(deserialize_with = "kind")]
    pub kind: i32,
    #[prost(fixed64, tag = "7")]
    #[serde(deserialize_with = "u64_or_text", alias = "start_time_unix_nano")]
    pub start_time_unix_nano: u64,
    #[prost(fixed64, tag = "8")]
    #[serde(deserialize_with = "u64_or_text", alias = "end_time_unix_nano")]
    pub end_time_unix_nano: u64,
    #[prost(message, repeated, tag = "9")]
    #[serde(deserialize_with = "nullable")]
    pub attributes: Vec<KeyValue>,
    #[prost(message, repeated, tag = "11")]
    #[serde(deserialize_with = "nullable")]
    pub events: Vec<Event>,
    #[prost(message, repeated, tag = "13")]
    #[serde(deserialize_with = "nullable")]
    pub links: Vec<Link>,
    #[prost(message, optional, tag = "15")]
    pub status: Option<Status>,
    #[prost(string, tag = "3")]
    #[serde(deserialize_with = "nullable", alias = "trace_state")]
    pub trace_state: String,
    #[prost(uint32, tag = "10")]
    #[serde(deserialize_with = "u32_or_text", alias = "dropped_attributes_count")]
    pub dropped_attributes_count: u32,
    #[prost(uint32, tag = "12")]
    #[serde(deserialize_with = "u32_or_text", alias = "dropped_events_count")]
    pub dropped_events_count: u32,
    #[prost(uint32, tag = "14")]
    #[serde(deserialize_with = "u32_or_text", alias = "dropped_links_count")]
    pub dropped_links_count: u32,
    #[prost(fixed32, tag = "16")]
    #[serde(deserialize_with = "u32_or_text")]
    pub flags: u32,
}

/// An event inside a span.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Event {
    #[prost(fixed64, tag = "1")]
    #[serde(deserialize_with = "u64_or_text", alias = "time_unix_nano")]
    pub time_unix_nano: u64,
    #[prost(string, tag = "2")]
    #[serde(deserialize_with = "nullable")]
    pub name: String,
    #[prost(message, repeated, tag = "3")]
    #[serde(deserialize_with = "nullable")]
    pub attributes: Vec<KeyValue>,
    #[prost(uint32, tag = "4")]
    #[serde(deserialize_with = "u32_or_text", alias = "dropped_attributes_count")]
    pub dropped_attributes_count: u32,
}

/// A reference to another span.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Link {
    #[prost(bytes = "vec", tag = "1")]
    #[serde(deserialize_with = "id", alias = "trace_id")]
    pub trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    #[serde(deserialize_with = "id", alias = "span_id")]
    pub span_id: Vec<u8>,
    #[prost(message, repeated, tag = "4")]
    #[serde(deserialize_with = "nullable")]
    pub attributes: Vec<KeyValue>,
    #[prost(string, tag = "3")]
    #[serde(deserialize_with = "nullable", alias = "trace_state")]
    pub trace_state: String,
    #[prost(uint32, tag = "5")]
    #[serde(deserialize_with = "u32_or_text", alias = "dropped_attributes_count")]
    pub dropped_attributes_count: u32,
    #[prost(fixed32, tag = "6")]
    #[serde(deserialize_with = "u32_or_text")]
    pub flags: u32,
}

/// Outcome of a span.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Status {
    #[prost(string, tag = "2")]
    #[serde(deserialize_with = "nullable")]
    pub message: String,
    #[prost(int32, tag = "3")]
    #[serde(deserialize_with = "status_code")]
    pub code: i32,
    /// Status code before version 0.10; each value other than 0 was an error.
    #[prost(int32, tag = "1")]
    #[serde(deserialize_with = "nullable", alias = "deprecated_code")]
    pub deprecated_code: i32,
}

/// Attribute or entry of a map: a key and its value; `None` is an empty value.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct KeyValue {
    #[prost(string, tag = "1")]
    #[serde(deserialize_with = "nullable")]
    pub key: String,
    #[prost(message, optional, tag = "2")]
    pub value: Option<AnyValue>,
}

/// Value of an attribute, an item of a list, or a log record's body.
#[derive(Clone, PartialEq, Message)]
pub struct AnyValue {
    #[prost(oneof = "AnyKind", tags = "1, 2, 3, 4, 5, 6, 7")]
    pub kind: Option<AnyKind>,
}

/// Content of an [`AnyValue`], by its kind.
#[derive(Clone, PartialEq, Oneof)]
pub enum AnyKind {
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

/// A list of values.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ArrayValue {
    #[prost(message, repeated, tag = "1")]
    #[serde(deserialize_with = "nullable")]
    pub values: Vec<AnyValue>,
}

/// A map, as a list of keys with values.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct KeyValueList {
    #[prost(message, repeated, tag = "1")]
    #[serde(deserialize_with = "nullable")]
    pub values: Vec<KeyValue>,
}
