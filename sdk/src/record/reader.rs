//! Decodes records for the drain.

use super::{Head, KIND_BITS, KINDS_SHIFT, Lineage, RecordKind, header_words};
use crate::callsite::Callsite;

/// Record of a ring, decoded for the drain.
#[derive(Debug)]
pub(crate) enum Record<'a> {
    /// BEGIN, FIELDS, CLOSE or EVENT. CHILD and AGAIN are returned as the BEGIN and EVENT that they
    /// abbreviate.
    Full { head: Head, fields: Fields<'a> },
    End {
        flags: u16,
        ticks: u64,
        span_id: u64,
    },
    /// CONTEXT: the following records come from a ring with this lineage.
    Context,
    /// Words that are not a record. They indicate a bug, and the drain skips them.
    Broken,
}

/// Fields of a record, in the order in which they were written.
#[derive(Clone, Debug)]
pub(crate) struct Fields<'a> {
    words: &'a [u64],
    left: u8,
    /// Number of fields read.
    position: u8,
    /// Kinds of the remaining fields, encoded as in word 0.
    kinds: u64,
}

/// Value of a field in a record.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum FieldValue<'a> {
    Int(i64),
    Uint(u64),
    Double(f64),
    Bool(bool),
    Text(&'a str),
}

/// Returns the length in words of the record at the start of `words`, for a later [`read`]: at most
/// the length of `words`.
#[inline]
pub(crate) fn length(words: &[u64]) -> usize {
    ((words[0] >> 32) as usize & 0xfff).clamp(1, words.len())
}

/// Returns the span of the FIELDS record at the start of `words`; `None` for other records.
#[inline]
pub(crate) fn added_to(words: &[u64]) -> Option<u64> {
    let is_fields = words[0] as u8 == RecordKind::Fields as u8;
    is_fields.then(|| words.get(5).copied()).flatten()
}

/// Decodes the record at the start of `words`, and applies it to `lineage`, which must be that of
/// the ring from which the record came.
pub(crate) fn read<'a>(words: &'a [u64], lineage: &mut Lineage) -> Record<'a> {
    let first = words[0];
    let (flags, fields) = ((first >> 8) as u16, (first >> 24) as u8);
    let record = &words[..length(words)];
    let (known_trace_id, innermost) = (lineage.trace_id(), lineage.innermost());
    lineage.follow(record);
    let kind = match (first as u8, record) {
        (1, _) => RecordKind::Begin,
        (2, &[_, ticks, span_id]) => {
            return Record::End {
                flags,
                ticks,
                span_id,
            };
        }
        (3, _) => RecordKind::Event,
        (4, _) => RecordKind::Fields,
        (5, _) => RecordKind::Again,
        (6, _) => {
            let Some(said) = Lineage::from_record(record) else {
                return Record::Broken;
            };
            *lineage = said;
            return Record::Context;
        }
        (7, _) => RecordKind::Child,
        (8, &[_, ticks]) => {
            return Record::End {
                flags,
                ticks,
                span_id: innermost,
            };
        }
        (9, _) => RecordKind::Close,
        _ => return Record::Broken,
    };
    let header_words = header_words(kind);
    if record.len() < header_words {
        return Record::Broken;
    }
    let said_trace_id = || u128::from(record[3]) << 64 | u128::from(record[4]);
    let (kind, trace_id, span_id, parent_id) = match kind {
        RecordKind::Child => (RecordKind::Begin, known_trace_id, record[3], innermost),
        RecordKind::Again => (RecordKind::Event, known_trace_id, innermost, 0),
        RecordKind::Begin => (kind, said_trace_id(), record[5], record[6]),
        _ => (kind, said_trace_id(), record[5], 0),
    };
    // SAFETY: only the functions of `record.rs` create records with a callsite, in this process,
    // from a `&'static Callsite`; the ring's protocol transfers the words unchanged.
    let callsite = unsafe { &*(record[2] as *const Callsite) };
    let head = Head {
        kind,
        flags,
        ticks: record[1],
        callsite,
        trace_id,
        span_id,
        parent_id,
    };
    let fields = Fields {
        words: &record[header_words..],
        left: fields,
        position: 0,
        kinds: first >> KINDS_SHIFT,
    };
    Record::Full { head, fields }
}

impl<'a> Iterator for Fields<'a> {
    /// Index of the field's name, and the value.
    type Item = (u8, FieldValue<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        if self.left == 0 {
            return None;
        }
        self.left -= 1;
        let known_kind = self.kinds as u8 & ((1 << KIND_BITS) - 1);
        self.kinds >>= KIND_BITS;
        let position = self.position;
        self.position = position.wrapping_add(1);
        let (rest, kind, index, bytes) = if known_kind > 0 {
            (self.words, known_kind - 1, position, 8)
        } else {
            let (&header, rest) = self.words.split_first()?;
            (
                rest,
                header as u8,
                (header >> 8) as u8,
                (header >> 32) as usize,
            )
        };
        let taken = bytes.div_ceil(8);
        let value_words = rest.get(..taken)?;
        self.words = &rest[taken..];
        let value = match kind {
            0 => FieldValue::Int(value_words.first()?.cast_signed()),
            1 => FieldValue::Uint(*value_words.first()?),
            2 => FieldValue::Double(f64::from_bits(*value_words.first()?)),
            3 => FieldValue::Bool(*value_words.first()? != 0),
            _ => {
                // SAFETY: `taken` words hold at least `bytes` bytes; any initialized word is valid
                // as bytes.
                let text =
                    unsafe { std::slice::from_raw_parts(value_words.as_ptr().cast::<u8>(), bytes) };
                FieldValue::Text(std::str::from_utf8(text).ok()?)
            }
        };
        Some((index, value))
    }
}
