//! Deserializes fields whose notation in OTLP's JSON differs from protobuf.

use std::borrow::Cow;
use std::fmt::Display;
use std::str::FromStr;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::{bytes_of, whole_number};

/// A number, or a text.
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
            Self::Text(text) => text
                .parse()
                .map_err(|error| E::custom(format!("`{text}`: {error}"))),
        }
    }
}

/// Reads a number, or a string that contains one; null is 0. An exponent is read exactly, because
/// some languages write large numbers with one.
pub(super) fn u64_or_text<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    let Some(raw) = Option::<Box<RawValue>>::deserialize(from)? else {
        return Ok(0);
    };
    let text = raw.get().trim_matches('"');
    whole_number(text).map_or_else(
        || {
            let number = serde_json::from_str::<NumberOrText<'_, u64>>(raw.get());
            number.map_err(D::Error::custom)?.number()
        },
        Ok,
    )
}

/// Reads a number, or a string that contains one; null is 0.
pub(super) fn u32_or_text<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    Option::<NumberOrText<'_, u32>>::deserialize(from)?.map_or(Ok(0), NumberOrText::number)
}

pub(super) fn i64_or_text<'de, D: Deserializer<'de>>(from: D) -> Result<Option<i64>, D::Error> {
    Option::<NumberOrText<'_, i64>>::deserialize(from)?
        .map(NumberOrText::number)
        .transpose()
}

/// Reads a number, or a string that contains one, such as `"Infinity"`. Null is `None`.
pub(super) fn f64_or_text<'de, D: Deserializer<'de>>(from: D) -> Result<Option<f64>, D::Error> {
    let Some(raw) = Option::<Box<RawValue>>::deserialize(from)? else {
        return Ok(None);
    };
    // Rust's own parser is exact; that of JSON may err in the last bit.
    let text = raw.get().trim_matches('"');
    let number = text.parse();
    number
        .map(Some)
        .map_err(|error| D::Error::custom(format!("`{text}`: {error}")))
}

/// Reads a value of an enumeration, by its number or by its name, with or without `prefix`. Null is
/// 0; an unknown name is an error.
fn one_of<'de, D: Deserializer<'de>>(
    from: D,
    prefix: &str,
    names: &[&str],
) -> Result<i32, D::Error> {
    let text = match Option::<NumberOrText<'_, i32>>::deserialize(from)? {
        None => return Ok(0),
        Some(NumberOrText::Number(number)) => return Ok(number),
        Some(NumberOrText::Text(text)) => text,
    };
    let upper = text.to_ascii_uppercase();
    let name = upper.strip_prefix(prefix).unwrap_or(&upper);
    let place = names
        .iter()
        .position(|known| *known == name)
        .map(|place| place as i32);
    let unknown = || D::Error::custom(format!("`{text}` is none of {prefix}{}", names.join(", ")));
    place.or_else(|| text.parse().ok()).ok_or_else(unknown)
}

pub(super) fn kind<'de, D: Deserializer<'de>>(from: D) -> Result<i32, D::Error> {
    one_of(
        from,
        "SPAN_KIND_",
        &[
            "UNSPECIFIED",
            "INTERNAL",
            "SERVER",
            "CLIENT",
            "PRODUCER",
            "CONSUMER",
        ],
    )
}

pub(super) fn status_code<'de, D: Deserializer<'de>>(from: D) -> Result<i32, D::Error> {
    one_of(from, "STATUS_CODE_", &["UNSET", "OK", "ERROR"])
}

/// Reads the severity of a log record, by its number or its name.
pub(super) fn severity<'de, D: Deserializer<'de>>(from: D) -> Result<i32, D::Error> {
    one_of(
        from,
        "SEVERITY_NUMBER_",
        &[
            "UNSPECIFIED",
            "TRACE",
            "TRACE2",
            "TRACE3",
            "TRACE4",
            "DEBUG",
            "DEBUG2",
            "DEBUG3",
            "DEBUG4",
            "INFO",
            "INFO2",
            "INFO3",
            "INFO4",
            "WARN",
            "WARN2",
            "WARN3",
            "WARN4",
            "ERROR",
            "ERROR2",
            "ERROR3",
            "ERROR4",
            "FATAL",
            "FATAL2",
            "FATAL3",
            "FATAL4",
        ],
    )
}

/// Decodes an id from hex or base64. Null becomes an empty id. A text in neither form is an error.
pub(super) fn id<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
    let text = Option::<Cow<'_, str>>::deserialize(from)?.unwrap_or_default();
    let wrong = || {
        D::Error::custom(format!(
            "`{text}` is no id: expected pairs of hex digits, or base64"
        ))
    };
    bytes_of(&text).ok_or_else(wrong)
}
