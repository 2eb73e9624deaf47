//! What OTLP's JSON writes otherwise than its protobuf.

use std::borrow::Cow;
use std::fmt::Display;
use std::str::FromStr;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use super::otlp_message::{AnyKind, AnyValue, ArrayValue, KeyValueList};

/// A number, or the same as text.
#[derive(Deserialize)]
#[serde(untagged)]
enum NumberOrText<'a, N> {
    Number(N),
    #[serde(borrow)]
    Text(Cow<'a, str>),
}

impl<N: FromStr<Err: Display>> NumberOrText<'_, N> {
    fn number<E: serde::de::Error>(self) -> Result<N, E> {
        match self {
            Self::Number(number) => Ok(number),
            Self::Text(text) => text.parse().map_err(|error| E::custom(format!("`{text}`: {error}"))),
        }
    }
}

pub(super) fn u64_or_text<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    NumberOrText::<u64>::deserialize(from)?.number()
}

fn i64_or_text<'de, D: Deserializer<'de>>(from: D) -> Result<Option<i64>, D::Error> {
    Option::<NumberOrText<'_, i64>>::deserialize(from)?.map(NumberOrText::number).transpose()
}

/// Numbers that JSON has no form for, such as infinity, are text.
fn f64_or_text<'de, D: Deserializer<'de>>(from: D) -> Result<Option<f64>, D::Error> {
    Option::<NumberOrText<'_, f64>>::deserialize(from)?.map(NumberOrText::number).transpose()
}

/// The bytes of an id.
pub(super) fn hex<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
    let text = <Cow<'_, str>>::deserialize(from)?;
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let pair = |pair: &[u8]| Some((digit(pair[0])? * 16 + digit(*pair.get(1)?)?) as u8);
    let bytes: Option<Vec<u8>> = text.as_bytes().chunks(2).map(pair).collect();
    bytes.ok_or_else(|| D::Error::custom(format!("`{text}` is no id: expected pairs of hex digits")))
}

/// An [`AnyValue`] as JSON has it.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct AnyValueText {
    string_value: Option<String>,
    bool_value: Option<bool>,
    #[serde(deserialize_with = "i64_or_text")]
    int_value: Option<i64>,
    #[serde(deserialize_with = "f64_or_text")]
    double_value: Option<f64>,
    array_value: Option<ArrayValue>,
    kvlist_value: Option<KeyValueList>,
    /// Base64, and kept so.
    bytes_value: Option<String>,
}

impl From<AnyValueText> for AnyValue {
    fn from(text: AnyValueText) -> Self {
        let kind = text.string_value.or(text.bytes_value).map(AnyKind::Text);
        let kind = kind.or(text.bool_value.map(AnyKind::Bool)).or(text.int_value.map(AnyKind::Int));
        let kind = kind.or(text.double_value.map(AnyKind::Double)).or(text.array_value.map(AnyKind::Array));
        Self { kind: kind.or(text.kvlist_value.map(AnyKind::Map)) }
    }
}
