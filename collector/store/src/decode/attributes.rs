//! Attribute columns: checked as a whole, then read record by record as JSON objects.

use std::fmt::Write as _;

use stroboscope_proto::v1::{AttributeKind, Attributes};

use super::Refusal;
use crate::limits::Limits;

/// Bytes that a number or bool takes at most when written out.
const SCALAR_BYTES: usize = 24;

/// The attribute columns of spans, or of events.
pub(super) struct AttributeColumns<'a> {
    pub(super) counts: &'a [u32],
    pub(super) attributes: Option<&'a Attributes>,
    pub(super) strings: &'a [String],
    /// `spans.attribute_count` or `events.attribute_count`, for messages.
    pub(super) counts_name: &'static str,
}

impl AttributeColumns<'_> {
    /// Checks all attributes of `records` records; `spent_bytes` adds up over spans and events.
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
        check_length("attributes.int_values", attributes.int_values.len(), ints)?;
        check_length(
            "attributes.uint_values",
            attributes.uint_values.len(),
            uints,
        )?;
        check_length(
            "attributes.double_values",
            attributes.double_values.len(),
            doubles,
        )?;
        check_length(
            "attributes.string_values",
            attributes.string_values.len(),
            strings,
        )?;
        check_indexes(
            "attributes.key_string",
            &attributes.key_string,
            self.strings.len(),
        )?;
        check_indexes(
            "attributes.string_values",
            &attributes.string_values,
            self.strings.len(),
        )
    }

    fn check_bytes(
        &self,
        attributes: &Attributes,
        limits: &Limits,
        spent: &mut usize,
    ) -> Result<(), Refusal> {
        let texts = attributes
            .key_string
            .iter()
            .chain(&attributes.string_values);
        let text_bytes = texts.map(|&index| self.strings[index as usize].len());
        let limit = limits.attribute_bytes_per_batch_max;
        *spent = spent.saturating_add(attributes.kind.len().saturating_mul(SCALAR_BYTES));
        for bytes in text_bytes.chain([0]) {
            *spent = spent.saturating_add(bytes);
            if *spent > limit {
                return Err(Refusal::AttributeBytes {
                    bytes: *spent,
                    limit,
                });
            }
        }
        Ok(())
    }

    /// Reads the checked columns from their beginning.
    pub(super) fn reader(&self) -> AttributeReader<'_> {
        AttributeReader {
            columns: self,
            record: 0,
            attribute: 0,
            int: 0,
            uint: 0,
            double: 0,
            string: 0,
        }
    }

    fn text(&self, index: Option<&u32>) -> &str {
        index
            .and_then(|&index| self.strings.get(index as usize))
            .map_or("", |text| text)
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

/// Walks the records; each call of [`AttributeReader::next_json`] is the next record.
pub(super) struct AttributeReader<'a> {
    columns: &'a AttributeColumns<'a>,
    record: usize,
    attribute: usize,
    int: usize,
    uint: usize,
    double: usize,
    string: usize,
}

/// The next unread element of a value column. A checked column always has it.
fn take<T: Copy + Default>(column: &[T], cursor: &mut usize) -> T {
    let value = column.get(*cursor).copied().unwrap_or_default();
    *cursor += 1;
    value
}

impl AttributeReader<'_> {
    /// The next record's attributes as a JSON object; none when it has none.
    pub(super) fn next_json(&mut self) -> Option<Box<str>> {
        let count = take(self.columns.counts, &mut self.record) as usize;
        let attributes = self.columns.attributes?;
        if count == 0 {
            return None;
        }
        let mut json = String::from("{");
        for at in self.attribute..self.attribute + count {
            if json.len() > 1 {
                json.push(',');
            }
            push_json_text(&mut json, self.columns.text(attributes.key_string.get(at)));
            json.push(':');
            self.push_value(attributes, at, &mut json);
        }
        self.attribute += count;
        json.push('}');
        Some(json.into())
    }

    fn push_value(&mut self, attributes: &Attributes, at: usize, json: &mut String) {
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
                // JSON has no such numbers; as text they are at least not lost.
                value => write!(json, "\"{value}\""),
            },
            AttributeKind::String => {
                let index = take(&attributes.string_values, &mut self.string);
                push_json_text(json, self.columns.text(Some(&index)));
                Ok(())
            }
        };
    }
}

fn push_json_text(json: &mut String, text: &str) {
    json.push_str(&serde_json::Value::from(text).to_string());
}
