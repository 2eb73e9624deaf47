//! Messages whose notation in OTLP's JSON differs from protobuf.

use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::json::{f64_or_text, i64_or_text};
use super::message::{AnyKind, AnyValue, ArrayValue, KeyValueList, Resource, Scope};
use crate::standard_bytes;
use crate::typed::nullable;

/// Spans of one resource.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct ResourceSpansText<'a> {
    pub(super) resource: Option<Resource>,
    #[serde(borrow, alias = "scope_spans")]
    pub(super) scope_spans: Option<Vec<ScopeSpansText<'a>>>,
    /// The name of `scope_spans` until version 0.18.
    #[serde(borrow, alias = "instrumentation_library_spans")]
    pub(super) instrumentation_library_spans: Option<Vec<ScopeSpansText<'a>>>,
    #[serde(deserialize_with = "nullable", alias = "schema_url")]
    pub(super) schema_url: String,
}

/// Spans of one scope, still unparsed: a defect in one span does not affect the next.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct ScopeSpansText<'a> {
    #[serde(alias = "instrumentationLibrary", alias = "instrumentation_library")]
    pub(super) scope: Option<Scope>,
    #[serde(borrow)]
    pub(super) spans: Option<Vec<&'a RawValue>>,
    #[serde(deserialize_with = "nullable", alias = "schema_url")]
    pub(super) schema_url: String,
}

/// An [`AnyValue`] in JSON.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct AnyValueText {
    #[serde(alias = "string_value")]
    string_value: Option<String>,
    #[serde(alias = "bool_value")]
    bool_value: Option<bool>,
    #[serde(deserialize_with = "i64_or_text", alias = "int_value")]
    int_value: Option<i64>,
    #[serde(deserialize_with = "f64_or_text", alias = "double_value")]
    double_value: Option<f64>,
    #[serde(alias = "array_value")]
    array_value: Option<ArrayValue>,
    #[serde(alias = "kvlist_value")]
    kvlist_value: Option<KeyValueList>,
    /// Base64; an invalid text is kept as a text.
    #[serde(alias = "bytes_value")]
    bytes_value: Option<String>,
}

impl<'de> Deserialize<'de> for AnyValue {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        AnyValueText::deserialize(from).map(Self::from)
    }
}

impl From<AnyValueText> for AnyValue {
    fn from(text: AnyValueText) -> Self {
        let bytes = |text: String| match standard_bytes(&text) {
            Some(bytes) => AnyKind::Bytes(bytes),
            None => AnyKind::Text(text),
        };
        let kind = text.string_value.map(AnyKind::Text);
        let kind = kind
            .or(text.bytes_value.map(bytes))
            .or(text.bool_value.map(AnyKind::Bool))
            .or(text.int_value.map(AnyKind::Int));
        let kind = kind
            .or(text.double_value.map(AnyKind::Double))
            .or(text.array_value.map(AnyKind::Array));
        Self {
            kind: kind.or(text.kvlist_value.map(AnyKind::Map)),
        }
    }
}
