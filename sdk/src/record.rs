//! The format of records in a ring. Written by the recording threads, read by the drain of the same process.
//!
//! ```text
//! word 0   kind (8 bits) | flags (16) | fields (8) | length in words (32)
//! BEGIN    tick, callsite, trace id high, low, span id, parent id, fields…
//! END      tick, span id
//! EVENT    tick, callsite, trace id high, low, span id, fields…
//! FIELDS   tick, callsite, 0, 0, span id, fields…             (fields added to an open span)
//! field    value kind (8) | index in the callsite's names (8) | bytes (32), then one word, or the text's words
//! ```
//!
//! A callsite is the address of a `static`. Texts are copied into the record: nothing is allocated, and nothing
//! points to memory that could go away.

#![allow(unsafe_code)]

use std::fmt::Write as _;

use crate::callsite::Callsite;
use crate::loss::{LOSSES, LossCause};
use crate::ring::RECORD_WORDS_MAX;

/// Texts longer than this many bytes are cut (at a character) and the cut is counted.
pub(crate) const TEXT_BYTES_MAX: usize = 1_024;

/// Words before the fields: BEGIN says its parent too.
#[inline]
const fn header_words(kind: RecordKind) -> usize {
    if matches!(kind, RecordKind::Begin) { 7 } else { 6 }
}

/// What a record says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum RecordKind {
    Begin = 1,
    End = 2,
    Event = 3,
    Fields = 4,
}

/// How a field's value is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum ValueKind {
    Int = 0,
    Uint = 1,
    Double = 2,
    Bool = 3,
    Text = 4,
}

/// The fixed part of BEGIN, EVENT and FIELDS.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    pub(crate) kind: RecordKind,
    /// Bits of the wire's `SpanFlag`, as far as they are known.
    pub(crate) flags: u16,
    pub(crate) ticks: u64,
    pub(crate) callsite: &'static Callsite,
    pub(crate) trace_id: u128,
    pub(crate) span_id: u64,
    /// Of a BEGIN; 0 otherwise.
    pub(crate) parent_id: u64,
}

type Place = [u64; RECORD_WORDS_MAX];

/// Writes a record with fields; says its length in words.
#[inline]
pub(crate) fn write(place: &mut Place, head: &Head, fields: impl FnOnce(&mut FieldWriter<'_>)) -> usize {
    place[1] = head.ticks;
    place[2] = std::ptr::from_ref(head.callsite) as u64;
    place[3] = (head.trace_id >> 64) as u64;
    place[4] = head.trace_id as u64;
    place[5] = head.span_id;
    let header_words = header_words(head.kind);
    if header_words > 6 {
        place[6] = head.parent_id;
    }
    let mut writer = FieldWriter { place, used: header_words, fields: 0, left_out: false };
    fields(&mut writer);
    let (used, count, left_out) = (writer.used, writer.fields, writer.left_out);
    if left_out {
        LOSSES.add(LossCause::Oversize, 1);
    }
    place[0] = first_word(head.kind, head.flags, count, used);
    used
}

/// Writes an END; says its length in words.
#[inline]
pub(crate) fn write_end(place: &mut Place, flags: u16, ticks: u64, span_id: u64) -> usize {
    place[0] = first_word(RecordKind::End, flags, 0, 3);
    place[1] = ticks;
    place[2] = span_id;
    3
}

#[inline]
fn first_word(kind: RecordKind, flags: u16, fields: u8, length: usize) -> u64 {
    kind as u64 | u64::from(flags) << 8 | u64::from(fields) << 24 | (length as u64) << 32
}

/// Takes the fields of one record.
#[derive(Debug)]
pub struct FieldWriter<'a> {
    place: &'a mut Place,
    used: usize,
    fields: u8,
    left_out: bool,
}

impl FieldWriter<'_> {
    #[inline]
    pub(crate) fn scalar(&mut self, index: u8, kind: ValueKind, word: u64) {
        if self.used + 2 > RECORD_WORDS_MAX || self.fields == u8::MAX {
            self.left_out = true;
            return;
        }
        self.place[self.used] = kind as u64 | u64::from(index) << 8 | 8 << 32;
        self.place[self.used + 1] = word;
        self.used += 2;
        self.fields += 1;
    }

    #[inline]
    pub(crate) fn text(&mut self, index: u8, text: &str) {
        self.formatted_with(index, |tail| tail.push(text));
    }

    pub(crate) fn formatted(&mut self, index: u8, arguments: std::fmt::Arguments<'_>) {
        // `Tail` never fails; a value whose own formatting fails is recorded as far as it came.
        self.formatted_with(index, |tail| {
            let _ = tail.write_fmt(arguments);
        });
    }

    #[inline]
    fn formatted_with(&mut self, index: u8, fill: impl FnOnce(&mut Tail<'_>)) {
        if self.used + 1 >= RECORD_WORDS_MAX || self.fields == u8::MAX {
            self.left_out = true;
            return;
        }
        let (header, rest) = self.place[self.used..].split_at_mut(1);
        let room = (rest.len() * 8).min(TEXT_BYTES_MAX);
        // SAFETY: `rest` is initialised words of at least `room` bytes, any bytes are valid for both types, `u8` has no
        // alignment needs, and the borrow of `rest` ends before the words are used as words again.
        let bytes = unsafe { std::slice::from_raw_parts_mut(rest.as_mut_ptr().cast::<u8>(), room) };
        let mut tail = Tail { bytes, used: 0, cut: false };
        fill(&mut tail);
        let (used, cut) = (tail.used, tail.cut);
        if cut {
            LOSSES.add(LossCause::StringCut, 1);
        }
        header[0] = ValueKind::Text as u64 | u64::from(index) << 8 | (used as u64) << 32;
        self.used += 1 + used.div_ceil(8);
        self.fields += 1;
    }
}

/// The place of a text that is being written.
struct Tail<'a> {
    bytes: &'a mut [u8],
    used: usize,
    cut: bool,
}

impl Tail<'_> {
    #[inline]
    fn push(&mut self, text: &str) {
        let room = self.bytes.len() - self.used;
        let take = if text.len() <= room {
            text.len()
        } else {
            self.cut = true;
            (0..=room).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(0)
        };
        self.bytes[self.used..self.used + take].copy_from_slice(&text.as_bytes()[..take]);
        self.used += take;
    }
}

impl std::fmt::Write for Tail<'_> {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        if !self.cut {
            self.push(text);
        }
        Ok(())
    }
}

/// A record as the drain sees it.
#[derive(Debug)]
pub(crate) enum Record<'a> {
    /// BEGIN, EVENT or FIELDS.
    Full {
        head: Head,
        fields: Fields<'a>,
    },
    End {
        flags: u16,
        ticks: u64,
        span_id: u64,
    },
    /// Words that are no record; a bug, skipped.
    Broken,
}

/// The fields of a record, in the order in which they were written.
#[derive(Clone, Debug)]
pub(crate) struct Fields<'a> {
    words: &'a [u64],
    left: u8,
}

/// A field's value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum FieldValue<'a> {
    Int(i64),
    Uint(u64),
    Double(f64),
    Bool(bool),
    Text(&'a str),
}

/// The length in words of the record at the start of `words`, for [`read`] to see later: not more than there are.
#[inline]
pub(crate) fn length(words: &[u64]) -> usize {
    ((words[0] >> 32) as usize).clamp(1, words.len())
}

/// Reads the record at the start of `words`.
pub(crate) fn read(words: &[u64]) -> Record<'_> {
    let first = words[0];
    let (flags, fields) = ((first >> 8) as u16, (first >> 24) as u8);
    let kind = match first as u8 {
        1 => RecordKind::Begin,
        2 => RecordKind::End,
        3 => RecordKind::Event,
        4 => RecordKind::Fields,
        _ => return Record::Broken,
    };
    let record = &words[..length(words)];
    if kind == RecordKind::End {
        return match record {
            [_, ticks, span_id] => Record::End { flags, ticks: *ticks, span_id: *span_id },
            _ => Record::Broken,
        };
    }
    let header_words = header_words(kind);
    if record.len() < header_words {
        return Record::Broken;
    }
    // SAFETY: only `write` above makes records, in this process, from a `&'static Callsite`; the ring's protocol hands
    // the words over unchanged.
    let callsite = unsafe { &*(record[2] as *const Callsite) };
    let head = Head {
        kind,
        flags,
        ticks: record[1],
        callsite,
        trace_id: u128::from(record[3]) << 64 | u128::from(record[4]),
        span_id: record[5],
        parent_id: if header_words > 6 { record[6] } else { 0 },
    };
    Record::Full { head, fields: Fields { words: &record[header_words..], left: fields } }
}

impl<'a> Iterator for Fields<'a> {
    /// Index in the callsite's field names, and the value.
    type Item = (u8, FieldValue<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        if self.left == 0 {
            return None;
        }
        self.left -= 1;
        let (&header, rest) = self.words.split_first()?;
        let (kind, index, bytes) = (header as u8, (header >> 8) as u8, (header >> 32) as usize);
        let taken = bytes.div_ceil(8);
        let value_words = rest.get(..taken)?;
        self.words = &rest[taken..];
        let value = match kind {
            0 => FieldValue::Int(value_words.first()?.cast_signed()),
            1 => FieldValue::Uint(*value_words.first()?),
            2 => FieldValue::Double(f64::from_bits(*value_words.first()?)),
            3 => FieldValue::Bool(*value_words.first()? != 0),
            _ => {
                // SAFETY: `taken` words hold at least `bytes` bytes; any initialised word is valid as bytes.
                let text = unsafe { std::slice::from_raw_parts(value_words.as_ptr().cast::<u8>(), bytes) };
                FieldValue::Text(std::str::from_utf8(text).ok()?)
            }
        };
        Some((index, value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::{Value, debug, display};

    static CALLSITE: Callsite = Callsite::new("here", &["a", "b", "c"], "file", 1);

    fn head() -> Head {
        Head {
            kind: RecordKind::Begin,
            flags: 0x1234,
            ticks: 7,
            callsite: &CALLSITE,
            trace_id: (1 << 100) + 5,
            span_id: 9,
            parent_id: 8,
        }
    }

    fn check(values: &[&dyn Fn(&mut FieldWriter<'_>)], expected: &str) {
        let mut place = [0; RECORD_WORDS_MAX];
        let length = write(&mut place, &head(), |writer| values.iter().for_each(|value| value(writer)));
        assert_eq!(length, super::length(&place));
        let record = read(&place);
        let Record::Full { head: got, fields } = record else { panic!("{record:?}") };
        assert_eq!((got.kind, got.flags, got.ticks), (RecordKind::Begin, 0x1234, 7));
        assert_eq!((got.trace_id, got.span_id, got.parent_id), ((1 << 100) + 5, 9, 8));
        assert!(std::ptr::eq(got.callsite, &raw const CALLSITE));
        let text: Vec<String> = fields.map(|(index, value)| format!("{index}={value:?}")).collect();
        assert_eq!(text.join(" "), expected);
    }

    #[test]
    fn every_kind_of_value_comes_back() {
        check(&[], "");
        check(
            &[&|w| (-3i32).write(0, w), &|w| 7usize.write(1, w), &|w| true.write(2, w)],
            "0=Int(-3) 1=Uint(7) 2=Bool(true)",
        );
        check(
            &[&|w| 0.5f32.write(0, w), &|w| "twelve bytes".write(1, w)],
            "0=Double(0.5) 1=Text(\"twelve bytes\")",
        );
        check(&[&|w| "".write(0, w), &|w| String::from("ü").write(2, w)], "0=Text(\"\") 2=Text(\"ü\")");
        check(&[&|w| None::<u8>.write(0, w), &|w| Some(1u8).write(1, w)], "1=Uint(1)");
        check(
            &[&|w| display(1.5).write(0, w), &|w| debug("x").write(1, w)],
            "0=Text(\"1.5\") 1=Text(\"\\\"x\\\"\")",
        );
    }

    #[test]
    fn long_texts_are_cut_at_a_character_and_counted() {
        let before = LOSSES.get(LossCause::StringCut);
        let long = "ü".repeat(TEXT_BYTES_MAX);
        let mut place = [0; RECORD_WORDS_MAX];
        write(&mut place, &head(), |writer| writer.text(0, &format!("x{long}")));
        let Record::Full { mut fields, .. } = read(&place) else { panic!() };
        let Some((0, FieldValue::Text(text))) = fields.next() else { panic!() };
        assert_eq!(text.len(), TEXT_BYTES_MAX - 1);
        assert!(LOSSES.get(LossCause::StringCut) > before);
    }

    #[test]
    fn what_does_not_fit_is_left_out_and_counted() {
        let before = LOSSES.get(LossCause::Oversize);
        let mut place = [0; RECORD_WORDS_MAX];
        let text = "x".repeat(1_000);
        let length = write(&mut place, &head(), |writer| (0..10).for_each(|i| writer.text(i, &text)));
        assert!(length <= RECORD_WORDS_MAX);
        let Record::Full { fields, .. } = read(&place) else { panic!() };
        assert_eq!(fields.count(), 4);
        assert!(LOSSES.get(LossCause::Oversize) > before);
    }

    #[test]
    fn an_end_is_short() {
        let mut place = [0; RECORD_WORDS_MAX];
        assert_eq!(write_end(&mut place, 32, 5, 6), 3);
        let Record::End { flags: 32, ticks: 5, span_id: 6 } = read(&place) else { panic!() };
    }
}
