//! Attribute columns of a batch: checks them as a whole, then reads them record by record as JSON
//! objects.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use stroboscope_proto::v1::{AttributeKind, Attributes};

use super::Refusal;
use crate::limits::Limits;

/// Maximum size of a number or bool as JSON, in bytes.
const SCALAR_BYTES: usize = 24;

/// Attribute columns of a batch's spans, or of its events.
pub(super) struct AttributeColumns<'a> {
    pub(super) counts: &'a [u32],
    pub(super) attributes: Option<&'a Attributes>,
    pub(super) strings: &'a [String],
    /// Name of the column `counts` in error messages: `spans.attribute_count` or
    /// `events.attribute_count`.
    pub(super) counts_name: &'static str,
}

impl<'a> AttributeColumns<'a> {
    /// Checks all attributes of `records` records. Adds to `spent_bytes` the bytes of their keys
    /// and texts, and [`SCALAR_BYTES`] for each attribute. `spent_bytes` counts spans and events of
    /// a batch together.
    pub(super) fn check(
        &self,
        records: usize,
        limits: &Limits,
        spent_bytes: &mut usize,
    ) -> Result<(), Refusal> {
        let empty = Attributes::default();
        let attributes = self.attributes.unwrap_or(&empty);
        if !self.counts.is_empty() {
            check_length(self.counts_name, self.counts.len(), records)?;
        }
        let mut total = 0usize;
        for &count in self.counts {
            let (count, limit) = (count as usize, limits.attributes_per_record_max);
            if count > limit {
                return Err(Refusal::TooManyAttributes { count, limit });
            }
            total += count;
        }
        check_length("attributes.key_string", attributes.key_string.len(), total)?;
        check_length("attributes.kind", attributes.kind.len(), total)?;
        self.check_values(attributes)?;
        self.check_bytes(attributes, limits, spent_bytes)
    }

    fn check_values(&self, attributes: &Attributes) -> Result<(), Refusal> {
        let (mut ints, mut uints, mut doubles, mut strings) = (0, 0, 0, 0);
        for &kind in &attributes.kind {
            match AttributeKind::try_from(kind).map_err(|_| Refusal::AttributeKind { kind })? {
                AttributeKind::Int | AttributeKind::Bool => ints += 1,
                AttributeKind::Uint => uints += 1,
                AttributeKind::Double => doubles += 1,
                AttributeKind::String => strings += 1,
            }
        }
        for (column, got, expected) in [
            ("attributes.int_values", attributes.int_values.len(), ints),
            (
                "attributes.uint_values",
                attributes.uint_values.len(),
                uints,
            ),
            (
                "attributes.double_values",
                attributes.double_values.len(),
                doubles,
            ),
            (
                "attributes.string_values",
                attributes.string_values.len(),
                strings,
            ),
        ] {
            check_length(column, got, expected)?;
        }
        for (column, indexes) in [
            ("attributes.key_string", &attributes.key_string),
            ("attributes.string_values", &attributes.string_values),
        ] {
            check_indexes(column, indexes, self.strings.len())?;
        }
        Ok(())
    }

    fn check_bytes(
        &self,
        attributes: &Attributes,
        limits: &Limits,
        spent: &mut usize,
    ) -> Result<(), Refusal> {
        let keys = attributes.key_string.iter();
        let texts = keys.chain(&attributes.string_values);
        let text_bytes = texts.map(|&index| self.strings[index as usize].len());
        let limit = limits.attribute_bytes_per_batch_max;
        *spent = spent.saturating_add(attributes.kind.len().saturating_mul(SCALAR_BYTES));
        for bytes in text_bytes.chain([0]) {
            *spent = spent.saturating_add(bytes);
            if *spent > limit {
                let bytes = *spent;
                return Err(Refusal::AttributeBytes { bytes, limit });
            }
        }
        Ok(())
    }

    /// Returns a reader that starts at the first record of the checked columns.
    pub(super) fn reader(&'a self) -> AttributeReader<'a> {
        AttributeReader {
            columns: self,
            record: 0,
            attribute: 0,
            int: 0,
            uint: 0,
            double: 0,
            string: 0,
            json: String::new(),
        }
    }

    fn text(&self, index: Option<&u32>) -> &'a str {
        let text = index.and_then(|&index| self.strings.get(index as usize));
        text.map_or("", |text| text)
    }
}

pub(super) fn check_length(
    column: &'static str,
    got: usize,
    expected: usize,
) -> Result<(), Refusal> {
    if got == expected {
        Ok(())
    } else {
        Err(Refusal::ColumnLength {
            column,
            got,
            expected,
        })
    }
}

pub(super) fn check_indexes(
    column: &'static str,
    indexes: &[u32],
    strings: usize,
) -> Result<(), Refusal> {
    match indexes.iter().position(|&index| index as usize >= strings) {
        Some(at) => Err(Refusal::StringIndex {
            column,
            at,
            index: indexes[at],
            strings,
        }),
        None => Ok(()),
    }
}

/// Reader of attributes by record.
pub(super) struct AttributeReader<'a> {
    columns: &'a AttributeColumns<'a>,
    record: usize,
    attribute: usize,
    int: usize,
    uint: usize,
    double: usize,
    string: usize,
    /// Buffer for the JSON of one record.
    json: String,
}

/// Returns the next unread element of a column, or the default at its end. Only the column of
/// counts can end early, because it may be empty.
fn take<T: Copy + Default>(column: &[T], cursor: &mut usize) -> T {
    let value = column.get(*cursor).copied().unwrap_or_default();
    *cursor += 1;
    value
}

impl<'a> AttributeReader<'a> {
    /// Returns the next record's attributes as a JSON object; `None` if it has no attributes.
    /// Passes the key and the text of each attribute with a text to `see`.
    pub(super) fn next_json(
        &mut self,
        mut see: impl FnMut(&'a str, &'a str),
    ) -> Option<&mut String> {
        let count = take(self.columns.counts, &mut self.record) as usize;
        let attributes = self.columns.attributes?;
        if count == 0 {
            return None;
        }
        let mut json = std::mem::take(&mut self.json);
        json.clear();
        json.push('{');
        for at in self.attribute..self.attribute + count {
            if json.len() > 1 {
                json.push(',');
            }
            let key = self.columns.text(attributes.key_string.get(at));
            push_json_text(&mut json, key);
            json.push(':');
            if let Some(text) = self.push_value(attributes, at, key, &mut json) {
                see(key, text);
            }
        }
        self.attribute += count;
        json.push('}');
        self.json = json;
        Some(&mut self.json)
    }

    /// Appends a value. Returns it if it is a text.
    fn push_value(
        &mut self,
        attributes: &Attributes,
        at: usize,
        key: &str,
        json: &mut String,
    ) -> Option<&'a str> {
        let kind = attributes.kind.get(at).copied().unwrap_or_default();
        // Writing to a String cannot fail.
        let _ = match AttributeKind::try_from(kind).unwrap_or_default() {
            AttributeKind::Int => write!(json, "{}", take(&attributes.int_values, &mut self.int)),
            AttributeKind::Bool => {
                write!(json, "{}", take(&attributes.int_values, &mut self.int) != 0)
            }
            AttributeKind::Uint => {
                write!(json, "{}", take(&attributes.uint_values, &mut self.uint))
            }
            AttributeKind::Double => match take(&attributes.double_values, &mut self.double) {
                value if value.is_finite() => write!(json, "{}", serde_json::Value::from(value)),
                // JSON has no infinities and no NaN, so these are written as texts.
                value => write!(json, "\"{value}\""),
            },
            AttributeKind::String => {
                let index = take(&attributes.string_values, &mut self.string);
                let text = self.columns.text(Some(&index));
                match (key == LINKS).then(|| links_of(text)).flatten() {
                    Some(links) => json.push_str(&links),
                    None => push_json_text(json, text),
                }
                return Some(text);
            }
        };
        None
    }
}

pub(super) fn push_json_text(json: &mut String, text: &str) {
    let is_plain = |byte| byte >= b' ' && byte != b'"' && byte != b'\\';
    if text.bytes().all(is_plain) {
        json.push('"');
        json.push_str(text);
        json.push('"');
    } else {
        json.push_str(&serde_json::Value::from(text).to_string());
    }
}

/// Attribute with links to other spans. The SDK has no list attributes, so it sends the list as
/// JSON text.
const LINKS: &str = "links";

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Link<'a> {
    trace_id: &'a str,
    span_id: &'a str,
}

/// Parses a text as a list of links. Returns the list in the form in which links of OTLP spans are
/// stored; `None` if the text is not a list of links.
fn links_of(text: &str) -> Option<String> {
    let links: Vec<Link<'_>> = serde_json::from_str(text).ok()?;
    let is_id =
        |id: &str, digits| id.len() == digits && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    let are_ids = (links.iter()).all(|link| is_id(link.trace_id, 32) && is_id(link.span_id, 16));
    are_ids.then(|| serde_json::to_string(&links).ok())?
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{links_of, push_json_text};

    proptest! {
        #[test]
        fn texts_are_those_that_serde_writes(text in r#"[a"\\\x00-\x20\x7fé]{0,6}"#) {
            let mut json = "x".to_owned();
            push_json_text(&mut json, &text);
            prop_assert_eq!(&json[1..], serde_json::Value::from(text).to_string());
        }
    }

    #[test]
    fn only_links_are_links() {
        let (trace, span) = ("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331");
        let links = format!(r#"[{{"trace_id":"{trace}","span_id":"{span}"}}]"#);
        assert_eq!(links_of(&links).as_ref(), Some(&links));
        for other in [
            "",
            "[",
            "7",
            "a text",
            "[7]",
            "{}",
            r#"[{"trace_id":"0a"}]"#,
            &links.replace("b7", "x7"),
            &links.replace(span, "b7"),
            &links.replace("}]", r#","more":1}]"#),
        ] {
            assert_eq!(links_of(other), None, "{other}");
        }
        assert_eq!(links_of(&"[".repeat(100_000)), None);
    }
}
